/* text_model.c - the Qwen3-VL decoder as a sequence of ops (spec model-conditioning 4.2).
 *
 *     ids -> embed -> x
 *     layer: n = norm(x)   q,k = rope(norm_head(n Wq, n Wk))   v = n Wv   x += attention(q, k, v) Wo
 *            m = norm(x)   x += (silu(m Wg) * m Wu) Wd     (in row chunks: the widest intermediate)
 *
 * 1. The residual stream is the caller's output buffer; it is never copied.
 * 2. Layers from the tap on, the final norm and the head are not looked up: a truncated file is complete.
 * 3. Activations are one allocation whose parts text_model_sizes.c places; it is kept between calls and
 *    regrown for a longer text.
 *
 * Not here: presentation and tokenizer, vision rows. */
#include "nn/text_model.h"

#include <stdio.h>

#include "base/alloc.h"
#include "nn/text_model_int.h"
#include "nn/text_rope.h"

enum { MAX_NAME = 96 };

static const char EMBED_NAME[] = "model.language_model.embed_tokens.weight";
static const char LAYER_NAME[] = "model.language_model.layers.%d.%s";

/* ---- open and close ---- */

static duet_status open_layer(duet_model *model, int index, duet__text_layer *l, duet_error *err) {
    static const char *const names[] = {
#define T(member, name) name,
        DUET__TEXT_LAYER_WEIGHTS(T)
#undef T
    };
    duet_weight *const members[] = {
#define T(member, name) &l->member,
        DUET__TEXT_LAYER_WEIGHTS(T)
#undef T
    };
    for (int i = 0; i < DUET__TEXT_N_LAYER_WEIGHTS; i++) {
        char name[MAX_NAME];
        snprintf(name, sizeof name, LAYER_NAME, index, names[i]);
        duet_status st = duet_model_weight(model, DUET_COMPONENT_TEXT, name, members[i], err);
        if (st != DUET_OK) return st;
        l->list[i] = members[i];
    }
    snprintf(l->name, sizeof l->name, "layers.%d", index);
    l->unit = (duet_unit){.name = l->name, .weights = l->list, .n_weights = DUET__TEXT_N_LAYER_WEIGHTS};
    return DUET_OK;
}

static duet_status open_units(duet_text_model *t, duet_model *model, duet_error *err) {
    int n_layers = t->config.tap_layer;
    t->layers = duet_calloc((size_t)n_layers + 1, sizeof *t->layers, DUET_MEM_TENSOR);
    t->walk = duet_calloc((size_t)n_layers + 1, sizeof(duet_unit *), DUET_MEM_TENSOR);
    if (!t->layers || !t->walk)
        return duet_fail(err, DUET_E_MEMORY, "text encoder: no memory for %d layers", n_layers);
    duet_status st = duet_model_weight(model, DUET_COMPONENT_TEXT, EMBED_NAME, &t->table, err);
    t->table_list[0] = &t->table;
    t->embed = (duet_unit){.name = "embed", .weights = t->table_list, .n_weights = 1};
    t->walk[0] = &t->embed;
    for (int i = 0; i < n_layers && st == DUET_OK; i++) {
        st = open_layer(model, i, &t->layers[i], err);
        t->walk[i + 1] = &t->layers[i].unit;
    }
    return st;
}

duet_status duet_text_model_open(duet_model *model, duet_device *dev, duet_text_model **out,
                                 duet_error *err) {
    *out = NULL;
    duet_text_model *t = duet_calloc(1, sizeof *t, DUET_MEM_TENSOR);
    if (!t) return duet_fail(err, DUET_E_MEMORY, "text encoder: out of memory");
    t->config = duet_model_config_get(model)->text;
    t->dev = dev;
    t->mlp_chunk_values = DUET__TEXT_MLP_CHUNK_VALUES;
    duet_status st = open_units(t, model, err);
    if (st == DUET_OK)
        *out = t;
    else
        duet_text_model_close(&t);
    return st;
}

void duet_text_model_close(duet_text_model **text) {
    duet_text_model *t = *text;
    if (!t) return;
    *text = NULL;
    duet_device_free(t->dev, t->block);
    duet_free(t->layers);
    duet_free(t->walk);
    duet_free(t);
}

/* ---- forward ---- */

/* What one call works on: device addresses and sizes. */
typedef struct pass {
    duet_text_model *text;
    duet_residency *residency;
    duet_stream *stream;
    duet_tap *tap;
    int64_t rows, chunk_rows;
    int32_t *ids;
    float *x; /* residual stream: the caller's output */
    float *cos, *sin, *n, *q, *k, *v, *gate, *up;
} pass;

/* Room for the activations. Regrowing waits for the stream, whose earlier ops may still use the old block. */
static duet_status reserve(pass *p, duet_error *err) {
    duet_text_model *t = p->text;
    duet__text_layout l = duet__text_layout_of(&t->config, t->mlp_chunk_values, p->rows);
    if (l.bytes > t->block_bytes) {
        duet_status st = duet_stream_sync(p->stream, err);
        if (st != DUET_OK) return st;
        duet_device_free(t->dev, t->block);
        t->block = NULL;
        t->block_bytes = 0;
        void *block;
        st = duet_device_alloc(t->dev, l.bytes, "text encoder activations", &block, err);
        if (st != DUET_OK) return st;
        t->block = block;
        t->block_bytes = l.bytes;
    }
    p->chunk_rows = l.chunk_rows;
    p->ids = (int32_t *)(t->block + l.ids);
    p->cos = (float *)(t->block + l.cos), p->sin = (float *)(t->block + l.sin);
    p->n = (float *)(t->block + l.n);
    p->q = (float *)(t->block + l.q), p->k = (float *)(t->block + l.k), p->v = (float *)(t->block + l.v);
    p->gate = (float *)(t->block + l.gate), p->up = (float *)(t->block + l.up);
    return DUET_OK;
}

static duet_status upload_rope(pass *p, duet_error *err) {
    const duet_text_config *c = &p->text->config;
    int64_t values = p->rows * (c->head_dim / 2);
    float *tables = duet_calloc((size_t)values * 2 + 1, sizeof *tables, DUET_MEM_TENSOR);
    int32_t *at = duet_calloc((size_t)p->rows, DUET_TEXT_AXES * sizeof *at, DUET_MEM_TENSOR);
    duet_status st = DUET_OK;
    if (tables && at) {
        duet_text_positions(p->rows, at);
        duet_text_rope_tables(c, at, p->rows, tables, tables + values);
        duet_copy_in(p->stream, p->cos, tables, values * 4);
        duet_copy_in(p->stream, p->sin, tables + values, values * 4);
    } else {
        st = duet_fail(err, DUET_E_MEMORY, "text encoder: no memory for the positions of %lld tokens",
                       (long long)p->rows);
    }
    duet_free(tables);
    duet_free(at);
    return st;
}

static void take(pass *p, const char *name) {
    int64_t hidden = p->text->config.hidden;
    if (duet_tap_wants(p->tap, name))
        p->tap->take_device(p->tap, p->stream, name, p->x, p->rows, hidden, hidden,
                            &DUET_SHAPE(p->rows, hidden));
}

static void linear(pass *p, const float *x, float *y, const duet_weight *w, int64_t rows, int64_t cols_in,
                   int64_t cols_out) {
    duet_linear_args a = duet__text_product(x, y, w, rows, cols_in, cols_out);
    duet_linear(p->stream, &a);
}

static void rmsnorm(pass *p, const float *x, float *y, const duet_weight *gain, int64_t groups,
                    int64_t cols) {
    duet_rmsnorm_args a = duet__text_norm(&p->text->config, x, y, gain, p->rows, groups, cols);
    duet_rmsnorm(p->stream, &a);
}

static void add(pass *p, int64_t first_row, int64_t rows) {
    int64_t hidden = p->text->config.hidden;
    duet_gated_add(p->stream, &(duet_gated_add_args){.h = p->x + first_row * hidden,
                                                     .x = p->n + first_row * hidden,
                                                     .rows = rows,
                                                     .cols = hidden,
                                                     .h_stride = hidden,
                                                     .x_stride = hidden});
}

/* One projection, its norm over each head, and the rotation. */
static void rotated_heads(pass *p, float *y, const duet_weight *w, const duet_weight *gain, int64_t heads) {
    const duet_text_config *c = &p->text->config;
    linear(p, p->n, y, w, p->rows, c->hidden, heads * c->head_dim);
    rmsnorm(p, y, y, gain, heads, c->head_dim);
    duet_rope(p->stream, &(duet_rope_args){.x = y,
                                           .cos = p->cos,
                                           .sin = p->sin,
                                           .rows = p->rows,
                                           .heads = heads,
                                           .pairs = c->head_dim / 2,
                                           .x_stride = heads * c->head_dim,
                                           .head_stride = c->head_dim});
}

static void attention_half(pass *p, const duet__text_layer *l) {
    const duet_text_config *c = &p->text->config;
    int64_t q_width = (int64_t)c->heads * c->head_dim, kv_width = (int64_t)c->kv_heads * c->head_dim;
    rmsnorm(p, p->x, p->n, &l->attention_norm, 1, c->hidden);
    rotated_heads(p, p->q, &l->wq, &l->q_norm, c->heads);
    rotated_heads(p, p->k, &l->wk, &l->k_norm, c->kv_heads);
    linear(p, p->n, p->v, &l->wv, p->rows, c->hidden, kv_width);
    duet_attention_args a = duet__text_attention(c, p->q, p->k, p->v, p->rows);
    duet_attention(p->stream, &a);
    linear(p, p->q, p->n, &l->wo, p->rows, q_width, c->hidden);
    add(p, 0, p->rows);
}

/* A chunk's output replaces its normed rows, which nobody reads any more. */
static void mlp_chunk(pass *p, const duet__text_layer *l, int64_t first_row, int64_t rows) {
    const duet_text_config *c = &p->text->config;
    float *m = p->n + first_row * c->hidden;
    linear(p, m, p->gate, &l->w_gate, rows, c->hidden, c->ffn);
    linear(p, m, p->up, &l->w_up, rows, c->hidden, c->ffn);
    duet_silu_mul(p->stream, &(duet_silu_mul_args){.gate = p->gate,
                                                   .up = p->up,
                                                   .y = p->gate,
                                                   .rows = rows,
                                                   .cols = c->ffn,
                                                   .gate_stride = c->ffn,
                                                   .up_stride = c->ffn,
                                                   .y_stride = c->ffn});
    linear(p, p->gate, m, &l->w_down, rows, c->ffn, c->hidden);
    add(p, first_row, rows);
}

static void mlp_half(pass *p, const duet__text_layer *l) {
    rmsnorm(p, p->x, p->n, &l->mlp_norm, 1, p->text->config.hidden);
    for (int64_t row = 0; row < p->rows; row += p->chunk_rows)
        mlp_chunk(p, l, row, p->rows - row < p->chunk_rows ? p->rows - row : p->chunk_rows);
}

static duet_status run_embed(pass *p, duet_error *err) {
    duet_text_model *t = p->text;
    duet_status st = p->residency->acquire(p->residency, &t->embed, p->stream, err);
    if (st != DUET_OK) return st;
    duet_embed(p->stream,
               &(duet_embed_args){
                   .ids = p->ids, .y = p->x, .table = &t->table, .rows = p->rows, .cols = t->config.hidden});
    p->residency->release(p->residency, &t->embed, p->stream);
    take(p, "text.embed");
    return DUET_OK;
}

static duet_status run_layer(pass *p, int index, duet_error *err) {
    char name[40];
    duet__text_layer *l = &p->text->layers[index];
    duet_status st = p->residency->acquire(p->residency, &l->unit, p->stream, err);
    if (st != DUET_OK) return st;
    attention_half(p, l);
    mlp_half(p, l);
    p->residency->release(p->residency, &l->unit, p->stream);
    snprintf(name, sizeof name, "text.layer_%02d.out", index);
    take(p, name);
    return DUET_OK;
}

static duet_status check_ids(const duet_text_config *c, const int32_t *ids, int64_t n_ids, duet_error *err) {
    if (n_ids < 1) return duet_fail(err, DUET_E_USAGE, "text encoder: no tokens");
    for (int64_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= c->vocab)
            return duet_fail(err, DUET_E_MODEL,
                             "text encoder: token id %d at position %lld; the embedding has %d rows", ids[i],
                             (long long)i, c->vocab);
    return DUET_OK;
}

duet_status duet_text_model_forward(duet_text_model *text, duet_residency *residency, duet_stream *stream,
                                    const int32_t *ids, int64_t n_ids, float *out, duet_tap *tap,
                                    const volatile int *cancel, duet_error *err) {
    pass p = {.text = text, .residency = residency, .stream = stream, .tap = tap, .rows = n_ids, .x = out};
    int n_layers = text->config.tap_layer;
    duet_status st;
    TRY(st, fail, check_ids(&text->config, ids, n_ids, err));
    TRY(st, fail, reserve(&p, err));
    TRY(st, fail, upload_rope(&p, err));
    duet_copy_in(stream, p.ids, ids, n_ids * (int64_t)sizeof *ids);
    if (residency->declare_walk) residency->declare_walk(residency, text->walk, n_layers + 1);
    TRY(st, fail, run_embed(&p, err));
    for (int i = 0; i < n_layers; i++) {
        if (cancel && *cancel)
            return duet_fail(err, DUET_E_CANCELLED, "text encoder: cancelled before layer %d", i);
        TRY(st, fail, run_layer(&p, i, err));
    }
    take(&p, "text_embeds");
fail:
    return st;
}
