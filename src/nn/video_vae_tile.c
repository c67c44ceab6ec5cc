/* video_vae_tile.c - one forward pass of the ViT decoder (spec model-vae 5.1, 5.2).
 *
 *     rows  0 .. P-1          one a latent, t slowest, x fastest
 *           P .. P+R-1        learned registers
 *           P+R               zeros
 *
 *  1. All rows attend to all rows; there is no mask and no causality.
 *  2. The suffix rows stand at coordinate 0 on every axis, which rotates nothing; they are dropped before the
 *     projection to pixels.
 *  3. q and k lie side by side in one row, so that the per-head norm and the rotation treat them as 2*heads
 *     heads.
 *  4. Attention writes its result over q: nobody reads q afterwards.
 *
 * `wide` holds in turn the latents, q|k|v, gate|up and the pixel patches of a tile. */
#include "nn/video_vae_int.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>

typedef struct pass {
    duet_video_vae *v;
    duet_stream *stream;
    const duet_video_tile *tile;
    duet_tap *tap;
    duet__vvae_tile_rows r;
    duet__vvae_buffers b;
} pass;

/* ---- taps ---------------------------------------------------------------------------------------------- */

enum { NAME_BYTES = 160 };

/* Full name of a tap, or false when nobody wants it. block < 0: not of a block. */
static bool wanted(const pass *p, int block, const char *what, char name[NAME_BYTES]) {
    if (!p->tap) return false;
    if (block < 0)
        snprintf(name, NAME_BYTES, "%s.%s", p->tile->tap_prefix, what);
    else
        snprintf(name, NAME_BYTES, "%s.block_%02d.%s", p->tile->tap_prefix, block, what);
    return p->tap->wants(p->tap, name);
}

static void tap_rows(const pass *p, int block, const char *what, const float *x, int64_t rows, int64_t cols,
                     int64_t stride) {
    char name[NAME_BYTES];
    if (!wanted(p, block, what, name)) return;
    p->tap->take_device(p->tap, p->stream, name, x, rows, cols, stride, &DUET_SHAPE(rows, cols));
}

static void tap_heads(const pass *p, int block, const char *what, const float *x) {
    const duet__vvae_dims *d = &p->v->dims;
    char name[NAME_BYTES];
    if (!wanted(p, block, what, name)) return;
    p->tap->take_device(p->tap, p->stream, name, x, p->r.rows, d->width, 3 * d->width,
                        &DUET_SHAPE(p->r.rows, d->heads, d->head_dim));
}

/* Latents are one token a row here and [C,t,h,w] for everybody else. `tokens` is host memory. */
static duet_status tap_latent(const pass *p, const char *what, const float *tokens, duet_error *err) {
    char name[NAME_BYTES];
    if (!wanted(p, -1, what, name)) return DUET_OK;
    int64_t n = p->r.patches, c = p->v->dims.channels;
    float *turned = duet_alloc((size_t)(n * c) * sizeof *turned, DUET_MEM_TENSOR);
    if (!turned) return duet_fail(err, DUET_E_MEMORY, "out of memory for tap %s", name);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < c; k++) turned[k * n + i] = tokens[i * c + k];
    p->tap->take_host(p->tap, name, DUET_F32, &DUET_SHAPE(c, p->r.t, p->r.h, p->r.w), turned);
    duet_free(turned);
    return DUET_OK;
}

static duet_status tap_post_quant(const pass *p, const float *x, duet_error *err) {
    char name[NAME_BYTES];
    if (!wanted(p, -1, "post_quant", name)) return DUET_OK;
    int64_t bytes = p->r.patches * p->v->dims.channels * (int64_t)sizeof(float);
    float *host = duet_alloc((size_t)bytes, DUET_MEM_TENSOR);
    if (!host) return duet_fail(err, DUET_E_MEMORY, "out of memory for tap %s", name);
    duet_copy_out(p->stream, host, x, bytes);
    duet_status st = duet_stream_sync(p->stream, err);
    if (st == DUET_OK) st = tap_latent(p, "post_quant", host, err);
    duet_free(host);
    return st;
}

/* ---- rotary tables ------------------------------------------------------------------------------------- */

/* Angles of one axis: coordinate 2(i+1/2)/n - 1, relative to the tile; frequencies theta^(-k/freqs). */
static void axis_angles(const duet__vvae_dims *d, int64_t i, int64_t n, float *cos_out, float *sin_out) {
    double at = 2.0 * ((double)i + 0.5) / (double)n - 1.0;
    for (int64_t k = 0; k < d->freqs; k++) {
        double angle = 2.0 * 3.14159265358979323846 * at * pow(d->theta, -(double)k / (double)d->freqs);
        cos_out[k] = (float)cos(angle);
        sin_out[k] = (float)sin(angle);
    }
}

void duet__vvae_rope_tables(const duet__vvae_dims *d, const duet__vvae_tile_rows *r, float *cos_out,
                            float *sin_out) {
    int64_t pairs = 3 * d->freqs;
    for (int64_t row = 0; row < r->rows; row++, cos_out += pairs, sin_out += pairs) {
        if (row >= r->patches) {
            for (int64_t k = 0; k < pairs; k++) {
                cos_out[k] = 1.0f;
                sin_out[k] = 0.0f;
            }
            continue;
        }
        axis_angles(d, row / (r->h * r->w), r->t, cos_out, sin_out);
        axis_angles(d, row / r->w % r->h, r->h, cos_out + d->freqs, sin_out + d->freqs);
        axis_angles(d, row % r->w, r->w, cos_out + 2 * d->freqs, sin_out + 2 * d->freqs);
    }
}

static duet_status upload_tables(const pass *p, duet_error *err) {
    const duet__vvae_dims *d = &p->v->dims;
    int64_t n = p->r.rows * 3 * d->freqs, bytes = n * (int64_t)sizeof(float);
    float *host = duet_alloc((size_t)(2 * bytes), DUET_MEM_TENSOR);
    if (!host) return duet_fail(err, DUET_E_MEMORY, "out of memory for rotary tables");
    duet__vvae_rope_tables(d, &p->r, host, host + n);
    duet_copy_in(p->stream, p->b.cos, host, bytes);
    duet_copy_in(p->stream, p->b.sin, host + n, bytes);
    for (int32_t i = 0; i < (int32_t)d->registers; i++)
        duet_copy_in(p->stream, p->b.register_ids + i, &i, (int64_t)sizeof i);
    duet_free(host);
    p->v->table_rows = p->r;
    return DUET_OK;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static duet_status make_room(pass *p, duet_error *err) {
    duet_video_vae *v = p->v;
    duet_status st;
    int64_t bytes = duet__vvae_carve(&v->dims, &p->r, NULL, &p->b);
    if (bytes > v->memory_bytes) {
        TRY(st, fail,
            duet_stream_sync(p->stream, err)); /* earlier tiles may still be at work in the old memory */
        duet_device_free(v->dev, v->memory);
        v->memory = NULL;
        v->memory_bytes = 0;
        v->table_rows = (duet__vvae_tile_rows){0};
        TRY(st, fail, duet_device_alloc(v->dev, bytes, "video decoder activations", &v->memory, err));
        v->memory_bytes = bytes;
    }
    duet__vvae_carve(&v->dims, &p->r, v->memory, &p->b);
    if (v->table_rows.t == p->r.t && v->table_rows.h == p->r.h && v->table_rows.w == p->r.w) return DUET_OK;
    st = upload_tables(p, err);
fail:
    return st;
}

/* ---- the network --------------------------------------------------------------------------------------- */

static void linear(const pass *p, const duet__vae_unit *u, int weight, const float *x, float *y, int64_t rows,
                   int64_t cols_in, int64_t cols_out, int64_t x_stride) {
    duet_linear(p->stream, &(duet_linear_args){.x = x,
                                               .y = y,
                                               .w = &u->weight[weight],
                                               .bias = &u->weight[weight + 1],
                                               .rows = rows,
                                               .cols_in = cols_in,
                                               .cols_out = cols_out,
                                               .x_stride = x_stride,
                                               .y_stride = cols_out});
}

static void rmsnorm(const pass *p, const duet_weight *gain) {
    const duet__vvae_dims *d = &p->v->dims;
    duet_rmsnorm(p->stream, &(duet_rmsnorm_args){.x = p->b.x,
                                                 .y = p->b.n,
                                                 .gain = gain,
                                                 .rows = p->r.rows,
                                                 .groups = 1,
                                                 .cols = d->width,
                                                 .x_stride = d->width,
                                                 .x_group_stride = d->width,
                                                 .y_stride = d->width,
                                                 .y_group_stride = d->width,
                                                 .eps = d->eps});
}

/* x += scale * n */
static void add_branch(const pass *p, const duet_weight *scale) {
    int64_t width = p->v->dims.width;
    duet_gated_add(p->stream, &(duet_gated_add_args){.h = p->b.x,
                                                     .x = p->b.n,
                                                     .channel_gate = scale,
                                                     .rows = p->r.rows,
                                                     .cols = width,
                                                     .h_stride = width,
                                                     .x_stride = width});
}

static duet_status embed(const pass *p, duet_error *err) {
    const duet__vvae_dims *d = &p->v->dims;
    const duet__vae_unit *u = &p->v->embed;
    int64_t n = p->r.patches, c = d->channels;
    float *latent = p->b.wide, *quant = p->b.wide + n * c, *suffix = p->b.x + n * d->width;
    duet_status st = tap_latent(p, "latent", p->tile->latent, err);
    if (st != DUET_OK) return st;
    duet_copy_in(p->stream, latent, p->tile->latent, n * c * (int64_t)sizeof(float));
    linear(p, u, VVAE_POST_QUANT_W, latent, quant, n, c, c, c);
    st = tap_post_quant(p, quant, err);
    if (st != DUET_OK) return st;
    linear(p, u, VVAE_EMBED_W, quant, p->b.x, n, c, d->width, c);
    if (d->registers)
        duet_embed(p->stream, &(duet_embed_args){.ids = p->b.register_ids,
                                                 .y = suffix,
                                                 .table = &u->weight[VVAE_REGISTERS],
                                                 .rows = d->registers,
                                                 .cols = d->width});
    duet_fill_zero(p->stream, suffix + d->registers * d->width, d->width * (int64_t)sizeof(float));
    tap_rows(p, -1, "tokens", p->b.x, p->r.rows, d->width, d->width);
    return DUET_OK;
}

/* q and k: per-head RMS norm without a gain, then rotation, both in place. */
static void norm_and_rotate(const pass *p) {
    const duet__vvae_dims *d = &p->v->dims;
    duet_rmsnorm(p->stream, &(duet_rmsnorm_args){.x = p->b.wide,
                                                 .y = p->b.wide,
                                                 .rows = p->r.rows,
                                                 .groups = 2 * d->heads,
                                                 .cols = d->head_dim,
                                                 .x_stride = 3 * d->width,
                                                 .x_group_stride = d->head_dim,
                                                 .y_stride = 3 * d->width,
                                                 .y_group_stride = d->head_dim,
                                                 .eps = d->eps});
    duet_rope(p->stream, &(duet_rope_args){.x = p->b.wide,
                                           .cos = p->b.cos,
                                           .sin = p->b.sin,
                                           .rows = p->r.rows,
                                           .heads = 2 * d->heads,
                                           .pairs = 3 * d->freqs,
                                           .x_stride = 3 * d->width,
                                           .head_stride = d->head_dim});
}

static void attend(const pass *p) {
    const duet__vvae_dims *d = &p->v->dims;
    int64_t stride = 3 * d->width;
    duet_attention(p->stream, &(duet_attention_args){.q = p->b.wide,
                                                     .k = p->b.wide + d->width,
                                                     .v = p->b.wide + 2 * d->width,
                                                     .o = p->b.wide,
                                                     .rows = p->r.rows,
                                                     .heads = d->heads,
                                                     .kv_heads = d->heads,
                                                     .head_dim = d->head_dim,
                                                     .q_stride = stride,
                                                     .k_stride = stride,
                                                     .v_stride = stride,
                                                     .o_stride = stride,
                                                     .q_head_stride = d->head_dim,
                                                     .k_head_stride = d->head_dim,
                                                     .v_head_stride = d->head_dim,
                                                     .o_head_stride = d->head_dim,
                                                     .scale = (float)(1.0 / sqrt((double)d->head_dim))});
}

static void block(const pass *p, int i) {
    const duet__vvae_dims *d = &p->v->dims;
    const duet__vae_unit *u = &p->v->blocks[i];
    const duet__vvae_buffers *b = &p->b;
    int64_t rows = p->r.rows, width = d->width;

    rmsnorm(p, &u->weight[VVAE_NORM1]);
    linear(p, u, VVAE_QKV_W, b->n, b->wide, rows, width, 3 * width, width);
    norm_and_rotate(p);
    tap_heads(p, i, "q_rope", b->wide);
    tap_heads(p, i, "k_rope", b->wide + width);
    attend(p);
    tap_rows(p, i, "attn", b->wide, rows, width, 3 * width);
    linear(p, u, VVAE_ATTN_OUT_W, b->wide, b->n, rows, width, width, 3 * width);
    add_branch(p, &u->weight[VVAE_SCALE1]);

    rmsnorm(p, &u->weight[VVAE_NORM2]);
    linear(p, u, VVAE_W1_W, b->n, b->wide, rows, width, 2 * d->ffn, width);
    duet_silu_mul(p->stream, &(duet_silu_mul_args){.gate = b->wide,
                                                   .up = b->wide + d->ffn,
                                                   .y = b->wide,
                                                   .rows = rows,
                                                   .cols = d->ffn,
                                                   .gate_stride = 2 * d->ffn,
                                                   .up_stride = 2 * d->ffn,
                                                   .y_stride = 2 * d->ffn});
    linear(p, u, VVAE_W2_W, b->wide, b->n, rows, d->ffn, width, 2 * d->ffn);
    add_branch(p, &u->weight[VVAE_SCALE2]);
    tap_rows(p, i, "out", b->x, rows, width, width);
}

static void to_pixels(const pass *p) {
    const duet__vvae_dims *d = &p->v->dims;
    const duet__vae_unit *u = &p->v->out;
    duet_layernorm(p->stream, &(duet_layernorm_args){.x = p->b.x,
                                                     .y = p->b.n,
                                                     .gain = &u->weight[VVAE_NORM_W],
                                                     .bias = &u->weight[VVAE_NORM_B],
                                                     .rows = p->r.rows,
                                                     .cols = d->width,
                                                     .x_stride = d->width,
                                                     .y_stride = d->width,
                                                     .eps = d->eps});
    tap_rows(p, -1, "norm_out", p->b.n, p->r.rows, d->width, d->width);
    linear(p, u, VVAE_PROJ_W, p->b.n, p->b.wide, p->r.patches, d->width, d->patch, d->width);
    tap_rows(p, -1, "proj_out", p->b.wide, p->r.patches, d->patch, d->patch);
    for (int i = 0; i < p->tile->n_parts; i++) {
        const duet_raw_frames *part = &p->tile->parts[i];
        duet_unpatch(p->stream, &(duet_unpatch_args){.x = p->b.wide,
                                                     .y = part->raw,
                                                     .t = p->r.t,
                                                     .h = p->r.h,
                                                     .w = p->r.w,
                                                     .channels = DUET__RGB,
                                                     .patch_t = d->patch_t,
                                                     .patch_s = d->patch_s,
                                                     .x_stride = d->patch,
                                                     .first_frame = part->first,
                                                     .frames = part->frames});
    }
}

duet_status duet_video_vae_decode_tile(duet_video_vae *v, duet_residency *residency, duet_stream *stream,
                                       const duet_video_tile *tile, duet_tap *tap, const volatile int *cancel,
                                       duet_error *err) {
    pass p = {.v = v, .stream = stream, .tile = tile, .tap = tap};
    duet_status st;
    p.r = duet__vvae_tile_rows_of(&v->dims, tile->t, tile->h, tile->w);
    TRY(st, fail, make_room(&p, err));
    if (residency->declare_walk) residency->declare_walk(residency, v->walk, v->layers + 2);

    TRY(st, fail, residency->acquire(residency, &v->embed.unit, stream, err));
    st = embed(&p, err);
    residency->release(residency, &v->embed.unit, stream);
    if (st != DUET_OK) goto fail;
    for (int i = 0; i < v->layers; i++) {
        if (cancel && *cancel) return duet_fail(err, DUET_E_CANCELLED, "cancelled");
        TRY(st, fail, residency->acquire(residency, &v->blocks[i].unit, stream, err));
        block(&p, i);
        residency->release(residency, &v->blocks[i].unit, stream);
    }
    TRY(st, fail, residency->acquire(residency, &v->out.unit, stream, err));
    to_pixels(&p);
    residency->release(residency, &v->out.unit, stream);
fail:
    return st;
}
