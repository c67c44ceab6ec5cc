/* video_vae.c - opening the ViT decoder: its dimensions, its weights, and how much memory a tile takes.
 *
 * The forward pass stands in video_vae_tile.c. */
#include "nn/video_vae_int.h"

#include "base/alloc.h"

#include <math.h>

/* ---- dimensions ---------------------------------------------------------------------------------------- */

duet_status duet__vvae_dims_of(const duet_vvae_config *c, duet__vvae_dims *out, duet_error *err) {
    int64_t s = c->space_ratio, t = c->time_ratio;
    /* The ratio came through fp32: 0.7f * 10 must still count 7. */
    int64_t rotary = (int64_t)((double)c->vit_rope_ratio * c->vit_head_dim + 1e-4);
    *out = (duet__vvae_dims){
        .width = (int64_t)c->vit_heads * c->vit_head_dim,
        .heads = c->vit_heads,
        .head_dim = c->vit_head_dim,
        .ffn = (int64_t)c->vit_heads * c->vit_head_dim * c->vit_ffn_mult,
        .channels = c->latent_channels,
        .registers = c->vit_registers,
        .freqs = rotary / 6,
        .patch_t = t,
        .patch_s = s,
        .patch = DUET__RGB * t * s * s,
        .eps = c->vit_norm_eps,
        .theta = c->vit_rope_theta,
    };
    if (rotary < 6 || rotary % 6 || rotary > c->vit_head_dim)
        return duet_fail(
            err, DUET_E_MODEL,
            "video decoder: head size %d with rotary ratio %g gives %lld rotary dimensions; a multiple of "
            "6 is needed",
            c->vit_head_dim, (double)c->vit_rope_ratio, (long long)rotary);
    return DUET_OK;
}

duet__vvae_tile_rows duet__vvae_tile_rows_of(const duet__vvae_dims *d, int64_t t, int64_t h, int64_t w) {
    int64_t patches = t * h * w;
    return (duet__vvae_tile_rows){
        .t = t, .h = h, .w = w, .patches = patches, .rows = patches + d->registers + 1};
}

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t wide_elems(const duet__vvae_dims *d, const duet__vvae_tile_rows *r) {
    int64_t branch = r->rows * max64(3 * d->width, 2 * d->ffn);
    return max64(branch, r->patches * max64(d->patch, 2 * d->channels));
}

/* Take n elements of 4 bytes at the next 64-byte boundary. */
static void *take(char *base, int64_t *at, int64_t n) {
    void *p = base ? base + *at : NULL;
    *at += (n * 4 + 63) / 64 * 64;
    return p;
}

int64_t duet__vvae_carve(const duet__vvae_dims *d, const duet__vvae_tile_rows *r, void *memory,
                         duet__vvae_buffers *out) {
    int64_t at = 0, table = r->rows * 3 * d->freqs;
    out->x = take(memory, &at, r->rows * d->width);
    out->n = take(memory, &at, r->rows * d->width);
    out->wide = take(memory, &at, wide_elems(d, r));
    out->cos = take(memory, &at, table);
    out->sin = take(memory, &at, table);
    out->register_ids = take(memory, &at, d->registers);
    return at;
}

/* ---- cost ---------------------------------------------------------------------------------------------- */

int64_t duet_video_vae_activation_bytes(const duet_vvae_config *config, int64_t t, int64_t h, int64_t w) {
    duet__vvae_dims d;
    duet__vvae_buffers unused;
    if (duet__vvae_dims_of(config, &d, NULL) != DUET_OK) return 0;
    duet__vvae_tile_rows r = duet__vvae_tile_rows_of(&d, t, h, w);
    return duet__vvae_carve(&d, &r, NULL, &unused);
}

int64_t duet_video_vae_host_bytes(const duet_vvae_config *config, int64_t t, int64_t h, int64_t w) {
    duet__vvae_dims d;
    if (duet__vvae_dims_of(config, &d, NULL) != DUET_OK) return 0;
    return 2 * duet__vvae_tile_rows_of(&d, t, h, w).rows * 3 * d.freqs * (int64_t)sizeof(float);
}

double duet_video_vae_flops(const duet_vvae_config *config, int64_t t, int64_t h, int64_t w) {
    duet__vvae_dims d;
    if (duet__vvae_dims_of(config, &d, NULL) != DUET_OK) return 0.0;
    duet__vvae_tile_rows r = duet__vvae_tile_rows_of(&d, t, h, w);
    double rows = (double)r.rows, patches = (double)r.patches, width = (double)d.width,
           c = (double)d.channels;
    double block = 2.0 * rows * width * (4.0 * width + 3.0 * (double)d.ffn) + 4.0 * rows * rows * width;
    double ends = 2.0 * patches * (c * c + c * width + width * (double)d.patch);
    return config->vit_layers * block + ends;
}

static int64_t linear_scratch(const duet_device *dev, int64_t rows, int64_t in, int64_t out) {
    duet_weight w = {.shape = DUET_SHAPE(out, in), .n_pieces = 1},
                b = {.shape = DUET_SHAPE(out), .n_pieces = 1};
    w.piece[0].rows = w.piece[0].block_rows = w.piece[0].block_stride_rows = out;
    b.piece[0] = w.piece[0];
    return (int64_t)duet_linear_scratch_bytes(dev, &(duet_linear_args){.w = &w,
                                                                       .bias = &b,
                                                                       .rows = rows,
                                                                       .cols_in = in,
                                                                       .cols_out = out,
                                                                       .x_stride = in,
                                                                       .y_stride = out});
}

static int64_t attention_scratch(const duet_device *dev, const duet__vvae_dims *d, int64_t rows) {
    return (int64_t)duet_attention_scratch_bytes(dev, &(duet_attention_args){.rows = rows,
                                                                             .heads = d->heads,
                                                                             .kv_heads = d->heads,
                                                                             .head_dim = d->head_dim,
                                                                             .q_stride = 3 * d->width,
                                                                             .k_stride = 3 * d->width,
                                                                             .v_stride = 3 * d->width,
                                                                             .o_stride = 3 * d->width,
                                                                             .q_head_stride = d->head_dim,
                                                                             .k_head_stride = d->head_dim,
                                                                             .v_head_stride = d->head_dim,
                                                                             .o_head_stride = d->head_dim});
}

int64_t duet_video_vae_scratch_bytes(const duet_vvae_config *config, const duet_device *dev, int64_t t,
                                     int64_t h, int64_t w) {
    duet__vvae_dims d;
    if (!dev || duet__vvae_dims_of(config, &d, NULL) != DUET_OK) return 0;
    duet__vvae_tile_rows r = duet__vvae_tile_rows_of(&d, t, h, w);
    int64_t most = attention_scratch(dev, &d, r.rows);
    most = max64(most, linear_scratch(dev, r.patches, d.channels, d.channels));
    most = max64(most, linear_scratch(dev, r.patches, d.channels, d.width));
    most = max64(most, linear_scratch(dev, r.rows, d.width, 3 * d.width));
    most = max64(most, linear_scratch(dev, r.rows, d.width, d.width));
    most = max64(most, linear_scratch(dev, r.rows, d.width, 2 * d.ffn));
    most = max64(most, linear_scratch(dev, r.rows, d.ffn, d.width));
    return max64(most, linear_scratch(dev, r.patches, d.width, d.patch));
}

/* ---- weights ------------------------------------------------------------------------------------------- */

static duet_status load(duet__vae_unit *u, duet_model *model, const char *const *names, int n,
                        duet_error *err) {
    duet_status st = DUET_OK;
    for (int i = 0; i < n && st == DUET_OK; i++)
        st = duet__vae_unit_load(u, model, DUET_COMPONENT_VVAE, err, "%s", names[i]);
    return st;
}

/* The file holds the registers as [1, registers, width]; as a table of rows they can be looked up by an
 * embed. */
static duet_status view_as_rows(duet_weight *w, int64_t rows, int64_t cols, duet_error *err) {
    if (w->n_pieces != 1 || duet_weight_rows(w) != 1 || duet_weight_row_elems(w) != rows * cols)
        return duet_fail(err, DUET_E_MODEL, "video decoder: %s is not one row of %lld values", w->name,
                         (long long)(rows * cols));
    w->shape = DUET_SHAPE(rows, cols);
    w->piece[0].rows = w->piece[0].block_rows = w->piece[0].block_stride_rows = rows;
    return DUET_OK;
}

static duet_status load_ends(duet_video_vae *v, duet_model *model, duet_error *err) {
    static const char *const embed[VVAE_N_EMBED] = {"post_quant_conv.weight", "post_quant_conv.bias",
                                                    "decoder.x_embedder.weight", "decoder.x_embedder.bias",
                                                    "decoder.register_tokens"};
    static const char *const out[VVAE_N_OUT] = {"decoder.norm_out.weight", "decoder.norm_out.bias",
                                                "decoder.proj_out.weight", "decoder.proj_out.bias"};
    duet_status st;
    TRY(st, fail, duet__vae_unit_init(&v->embed, VVAE_N_EMBED, err, "embed"));
    TRY(st, fail, load(&v->embed, model, embed, v->dims.registers ? VVAE_N_EMBED : VVAE_REGISTERS, err));
    if (v->dims.registers)
        TRY(st, fail, view_as_rows(&v->embed.weight[VVAE_REGISTERS], v->dims.registers, v->dims.width, err));
    TRY(st, fail, duet__vae_unit_init(&v->out, VVAE_N_OUT, err, "out"));
    TRY(st, fail, load(&v->out, model, out, VVAE_N_OUT, err));
fail:
    return st;
}

static duet_status load_block(duet__vae_unit *u, duet_model *model, int i, duet_error *err) {
    static const char *const names[VVAE_N_BLOCK] = {
#define W(id, name) name,
        DUET__VVAE_BLOCK_WEIGHTS(W)
#undef W
    };
    duet_status st = duet__vae_unit_init(u, VVAE_N_BLOCK, err, "blocks.%d", i);
    for (int k = 0; k < VVAE_N_BLOCK && st == DUET_OK; k++)
        st = duet__vae_unit_load(u, model, DUET_COMPONENT_VVAE, err, "decoder.transformer_blocks.%d.%s", i,
                                 names[k]);
    return st;
}

static duet_status load_all(duet_video_vae *v, duet_model *model, duet_error *err) {
    duet_status st;
    TRY(st, fail, load_ends(v, model, err));
    v->blocks = duet_calloc((size_t)v->layers, sizeof *v->blocks, DUET_MEM_WEIGHT);
    v->walk = duet_calloc((size_t)v->layers + 2, sizeof(duet_unit *), DUET_MEM_WEIGHT);
    if (!v->blocks || !v->walk) return duet_fail(err, DUET_E_MEMORY, "out of memory for the video decoder");
    for (int i = 0; i < v->layers; i++) {
        TRY(st, fail, load_block(&v->blocks[i], model, i, err));
        v->walk[i + 1] = &v->blocks[i].unit;
    }
    v->walk[0] = &v->embed.unit;
    v->walk[v->layers + 1] = &v->out.unit;
fail:
    return st;
}

duet_status duet_video_vae_open(duet_model *model, duet_device *dev, duet_video_vae **out, duet_error *err) {
    const duet_vvae_config *config = &duet_model_config_get(model)->vvae;
    duet_status st;
    *out = NULL;
    duet_video_vae *v = duet_calloc(1, sizeof *v, DUET_MEM_WEIGHT);
    if (!v) return duet_fail(err, DUET_E_MEMORY, "out of memory for the video decoder");
    v->dev = dev;
    v->layers = config->vit_layers;
    TRY(st, fail, duet__vvae_dims_of(config, &v->dims, err));
    TRY(st, fail, load_all(v, model, err));
    *out = v;
    return DUET_OK;
fail:
    duet_video_vae_close(&v);
    return st;
}

void duet_video_vae_close(duet_video_vae **vae) {
    duet_video_vae *v = *vae;
    if (!v) return;
    for (int i = 0; v->blocks && i < v->layers; i++) duet__vae_unit_free(&v->blocks[i]);
    duet__vae_unit_free(&v->embed);
    duet__vae_unit_free(&v->out);
    duet_device_free(v->dev, v->memory);
    duet_free(v->blocks);
    duet_free(v->walk);
    duet_free(v);
    *vae = NULL;
}
