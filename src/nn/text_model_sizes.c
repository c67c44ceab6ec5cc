/* text_model_sizes.c - how big everything of the text model is: activations, row chunks, op scratch.
 *
 * Pure functions of the configuration and the number of rows. The plan adds them up before any weight is
 * open, and the run places its buffers and fills its arguments by the same ones, so that what was
 * announced is what is used (promise P6). */
#include <math.h>

#include "nn/text_model_int.h"

enum { MLP_CHUNK_STEP_ROWS = 64 };

/* A rule of shape alone (promise P1). */
static int64_t mlp_chunk_rows(const duet_text_config *c, int64_t chunk_values, int64_t rows) {
    int64_t chunk = chunk_values / c->ffn / MLP_CHUNK_STEP_ROWS * MLP_CHUNK_STEP_ROWS;
    if (chunk < MLP_CHUNK_STEP_ROWS) chunk = MLP_CHUNK_STEP_ROWS;
    return rows < chunk ? rows : chunk;
}

static int64_t place(duet__text_layout *l, int64_t values) {
    int64_t at = l->bytes;
    l->bytes += (values * 4 + 63) / 64 * 64; /* every part is of 4-byte elements */
    return at;
}

duet__text_layout duet__text_layout_of(const duet_text_config *c, int64_t mlp_chunk_values, int64_t rows) {
    duet__text_layout l = {.chunk_rows = mlp_chunk_rows(c, mlp_chunk_values, rows)};
    l.ids = place(&l, rows);
    l.cos = place(&l, rows * (c->head_dim / 2));
    l.sin = place(&l, rows * (c->head_dim / 2));
    l.n = place(&l, rows * c->hidden);
    l.q = place(&l, rows * c->heads * c->head_dim);
    l.k = place(&l, rows * c->kv_heads * c->head_dim);
    l.v = place(&l, rows * c->kv_heads * c->head_dim);
    l.gate = place(&l, l.chunk_rows * c->ffn);
    l.up = place(&l, l.chunk_rows * c->ffn);
    return l;
}

int64_t duet_text_model_activation_bytes(const duet_text_config *config, int64_t n_rows) {
    return duet__text_layout_of(config, DUET__TEXT_MLP_CHUNK_VALUES, n_rows).bytes;
}

duet_linear_args duet__text_product(const float *x, float *y, const duet_weight *w, int64_t rows,
                                    int64_t cols_in, int64_t cols_out) {
    return (duet_linear_args){.x = x,
                              .y = y,
                              .w = w,
                              .rows = rows,
                              .cols_in = cols_in,
                              .cols_out = cols_out,
                              .x_stride = cols_in,
                              .y_stride = cols_out};
}

duet_rmsnorm_args duet__text_norm(const duet_text_config *c, const float *x, float *y,
                                  const duet_weight *gain, int64_t rows, int64_t groups, int64_t cols) {
    return (duet_rmsnorm_args){.x = x,
                               .y = y,
                               .gain = gain,
                               .rows = rows,
                               .groups = groups,
                               .cols = cols,
                               .x_stride = groups * cols,
                               .x_group_stride = cols,
                               .y_stride = groups * cols,
                               .y_group_stride = cols,
                               .eps = c->norm_eps};
}

duet_attention_args duet__text_attention(const duet_text_config *c, float *q, const float *k, const float *v,
                                         int64_t rows) {
    int64_t d = c->head_dim, q_width = c->heads * d, kv_width = c->kv_heads * d;
    return (duet_attention_args){.q = q,
                                 .k = k,
                                 .v = v,
                                 .o = q,
                                 .rows = rows,
                                 .heads = c->heads,
                                 .kv_heads = c->kv_heads,
                                 .head_dim = d,
                                 .q_stride = q_width,
                                 .k_stride = kv_width,
                                 .v_stride = kv_width,
                                 .o_stride = q_width,
                                 .q_head_stride = d,
                                 .k_head_stride = d,
                                 .v_head_stride = d,
                                 .o_head_stride = d,
                                 .scale = (float)(1.0 / sqrt((double)d)),
                                 .causal = true};
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t product_scratch(const duet_device *dev, int64_t rows, int64_t cols_in, int64_t cols_out) {
    duet_linear_args a = duet__text_product(NULL, NULL, NULL, rows, cols_in, cols_out);
    return duet_linear_scratch_bytes(dev, &a);
}

static size_t mlp_scratch(const duet_text_config *c, const duet_device *dev, int64_t rows) {
    duet_silu_mul_args gating = {
        .rows = rows, .cols = c->ffn, .gate_stride = c->ffn, .up_stride = c->ffn, .y_stride = c->ffn};
    size_t most = product_scratch(dev, rows, c->hidden, c->ffn);
    most = larger(most, product_scratch(dev, rows, c->ffn, c->hidden));
    return larger(most, duet_silu_mul_scratch_bytes(dev, &gating));
}

int64_t duet_text_model_scratch_bytes(const duet_text_config *c, const duet_device *dev, int64_t n_rows) {
    int64_t q_width = (int64_t)c->heads * c->head_dim, kv_width = (int64_t)c->kv_heads * c->head_dim;
    int64_t chunk = mlp_chunk_rows(c, DUET__TEXT_MLP_CHUNK_VALUES, n_rows), rest = n_rows % chunk;
    duet_embed_args embed = {.rows = n_rows, .cols = c->hidden};
    duet_rmsnorm_args row_norm = duet__text_norm(c, NULL, NULL, NULL, n_rows, 1, c->hidden);
    duet_rmsnorm_args head_norm = duet__text_norm(c, NULL, NULL, NULL, n_rows, c->heads, c->head_dim);
    duet_rope_args rope = {.rows = n_rows,
                           .heads = c->heads,
                           .pairs = c->head_dim / 2,
                           .x_stride = q_width,
                           .head_stride = c->head_dim};
    duet_attention_args attend = duet__text_attention(c, NULL, NULL, NULL, n_rows);
    duet_gated_add_args add = {
        .rows = n_rows, .cols = c->hidden, .h_stride = c->hidden, .x_stride = c->hidden};
    size_t most = duet_embed_scratch_bytes(dev, &embed);
    most = larger(most, duet_rmsnorm_scratch_bytes(dev, &row_norm));
    most = larger(most, duet_rmsnorm_scratch_bytes(dev, &head_norm));
    most = larger(most, product_scratch(dev, n_rows, c->hidden, q_width));
    most = larger(most, product_scratch(dev, n_rows, c->hidden, kv_width));
    most = larger(most, product_scratch(dev, n_rows, q_width, c->hidden));
    most = larger(most, duet_rope_scratch_bytes(dev, &rope));
    most = larger(most, duet_attention_scratch_bytes(dev, &attend));
    most = larger(most, duet_gated_add_scratch_bytes(dev, &add));
    most = larger(most, mlp_scratch(c, dev, chunk));
    if (rest) most = larger(most, mlp_scratch(c, dev, rest));
    return (int64_t)most;
}
