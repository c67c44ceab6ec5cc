/* transformer_block.c - one block of the transformer (spec model-dit 4.5, 4.6).
 *
 *     n = norm1(h) modulated          qkv = n Wqkv            q, k = rotate(norm per head)
 *     h += gate * attention(q, k, v) Wout
 *     n = norm2(h) modulated          [gate up] = n Wfc1      h += gate * (silu(gate) * up) Wfc2
 *
 * 1. Refiner blocks are the same without modulation, gates and rotation: no table.
 * 2. qkv is one product of the fused weight [q; k; v]; attention writes where q stood.
 * 3. The feed-forward goes over rows in chunks, by a rule of shape alone, so that its inner rows stay
 *    bounded; a chunk's result replaces the chunk of n that it was made from. */
#include "nn/transformer_int.h"

#include <math.h>

enum { SHIFT_MSA, SCALE_MSA, GATE_MSA, SHIFT_MLP, SCALE_MLP, GATE_MLP };

static const float *slot(const duet__dit_pass *p, int which) {
    return p->table ? p->table + (int64_t)which * p->dit->config.hidden : NULL;
}

static void tap_rows(const duet__dit_pass *p, const char *leaf, const float *x, int64_t cols, int64_t stride,
                     const duet_shape *shape) {
    if (!p->tap) return;
    const char *stem = p->table ? "block" : "refiner";
    duet__dit_tap(p->tap, p->stream, duet__dit_tap_name(stem, p->number, leaf).text, x, p->rows, cols, stride,
                  shape);
}

/* n = norm(h), scaled and shifted by the rows' table entries. */
static void norm_rows(const duet__dit_pass *p, const duet_weight *gain, int shift, int scale) {
    int64_t hidden = p->dit->config.hidden;
    duet_dit_state *s = p->state;
    duet_rmsnorm(p->stream, &(duet_rmsnorm_args){.x = s->h,
                                                 .y = s->n,
                                                 .gain = gain,
                                                 .rows = p->rows,
                                                 .groups = 1,
                                                 .cols = hidden,
                                                 .x_stride = hidden,
                                                 .y_stride = hidden,
                                                 .eps = p->dit->config.norm_eps});
    if (!p->table) return;
    duet_modulate(p->stream, &(duet_modulate_args){.x = s->n,
                                                   .y = s->n,
                                                   .shift = slot(p, shift),
                                                   .scale = slot(p, scale),
                                                   .index = s->adaln_index,
                                                   .rows = p->rows,
                                                   .cols = hidden,
                                                   .x_stride = hidden,
                                                   .y_stride = hidden,
                                                   .table_stride = DUET__BLOCK_SLOTS * hidden});
}

/* h += gate * n over some rows. */
static void add_rows(const duet__dit_pass *p, int gate, int64_t first, int64_t rows) {
    int64_t hidden = p->dit->config.hidden;
    duet_dit_state *s = p->state;
    duet_gated_add(p->stream, &(duet_gated_add_args){.h = s->h + first * hidden,
                                                     .x = s->n + first * hidden,
                                                     .gate = slot(p, gate),
                                                     .index = p->table ? s->adaln_index + first : NULL,
                                                     .rows = rows,
                                                     .cols = hidden,
                                                     .h_stride = hidden,
                                                     .x_stride = hidden,
                                                     .table_stride = DUET__BLOCK_SLOTS * hidden});
}

/* Norm of every head, then rotation, in place inside qkv. x: first q or first k. */
static void prepare_heads(const duet__dit_pass *p, float *x, const duet_weight *gain, const char *normed,
                          const char *rotated) {
    const duet_dit_config *c = &p->dit->config;
    int64_t inner = duet__dit_inner(c), stride = 3 * inner, dim = c->head_dim;
    duet_shape by_head = DUET_SHAPE(p->rows, c->heads, dim);
    duet_rmsnorm(p->stream, &(duet_rmsnorm_args){.x = x,
                                                 .y = x,
                                                 .gain = gain,
                                                 .rows = p->rows,
                                                 .groups = c->heads,
                                                 .cols = dim,
                                                 .x_stride = stride,
                                                 .x_group_stride = dim,
                                                 .y_stride = stride,
                                                 .y_group_stride = dim,
                                                 .eps = c->qk_norm_eps});
    if (!p->table) return;
    tap_rows(p, normed, x, inner, stride, &by_head);
    duet_rope(p->stream, &(duet_rope_args){.x = x,
                                           .cos = p->state->cos,
                                           .sin = p->state->sin,
                                           .rows = p->rows,
                                           .heads = c->heads,
                                           .pairs = 3 * (int64_t)c->rope_freqs,
                                           .x_stride = stride,
                                           .head_stride = dim});
    tap_rows(p, rotated, x, inner, stride, &by_head);
}

static void attend(const duet__dit_pass *p, float *q) {
    const duet_dit_config *c = &p->dit->config;
    int64_t inner = duet__dit_inner(c), stride = 3 * inner, dim = c->head_dim;
    duet_attention(p->stream, &(duet_attention_args){.q = q,
                                                     .k = q + inner,
                                                     .v = q + 2 * inner,
                                                     .o = q,
                                                     .rows = p->rows,
                                                     .heads = c->heads,
                                                     .kv_heads = c->heads,
                                                     .head_dim = dim,
                                                     .q_stride = stride,
                                                     .k_stride = stride,
                                                     .v_stride = stride,
                                                     .o_stride = stride,
                                                     .q_head_stride = dim,
                                                     .k_head_stride = dim,
                                                     .v_head_stride = dim,
                                                     .o_head_stride = dim,
                                                     .scale = 1.0f / sqrtf((float)dim)});
    if (p->table) tap_rows(p, "attn", q, inner, stride, NULL);
}

static void attention_half(const duet__dit_pass *p, const duet__dit_block *b) {
    const duet_dit_config *c = &p->dit->config;
    int64_t inner = duet__dit_inner(c), hidden = c->hidden;
    duet_dit_state *s = p->state;
    norm_rows(p, &b->norm1, SHIFT_MSA, SCALE_MSA);
    duet_linear(p->stream, &(duet_linear_args){.x = s->n,
                                               .y = s->work,
                                               .w = &b->qkv,
                                               .rows = p->rows,
                                               .cols_in = hidden,
                                               .cols_out = 3 * inner,
                                               .x_stride = hidden,
                                               .y_stride = 3 * inner});
    prepare_heads(p, s->work, &b->q_norm, "q_norm", "q_rope");
    prepare_heads(p, s->work + inner, &b->k_norm, "k_norm", "k_rope");
    attend(p, s->work);
    duet_linear(p->stream, &(duet_linear_args){.x = s->work,
                                               .y = s->n,
                                               .w = &b->out,
                                               .rows = p->rows,
                                               .cols_in = inner,
                                               .cols_out = hidden,
                                               .x_stride = 3 * inner,
                                               .y_stride = hidden});
    add_rows(p, GATE_MSA, 0, p->rows);
}

static void feed_forward_chunk(const duet__dit_pass *p, const duet__dit_block *b, int64_t first,
                               int64_t rows) {
    const duet_dit_config *c = &p->dit->config;
    int64_t hidden = c->hidden, ffn = c->ffn;
    duet_dit_state *s = p->state;
    float *n = s->n + first * hidden, *inner = s->work;
    duet_linear(p->stream, &(duet_linear_args){.x = n,
                                               .y = inner,
                                               .w = &b->fc1,
                                               .rows = rows,
                                               .cols_in = hidden,
                                               .cols_out = 2 * ffn,
                                               .x_stride = hidden,
                                               .y_stride = 2 * ffn});
    duet_silu_mul(p->stream, &(duet_silu_mul_args){.gate = inner,
                                                   .up = inner + ffn,
                                                   .y = inner,
                                                   .rows = rows,
                                                   .cols = ffn,
                                                   .gate_stride = 2 * ffn,
                                                   .up_stride = 2 * ffn,
                                                   .y_stride = 2 * ffn});
    duet_linear(p->stream, &(duet_linear_args){.x = inner,
                                               .y = n,
                                               .w = &b->fc2,
                                               .rows = rows,
                                               .cols_in = ffn,
                                               .cols_out = hidden,
                                               .x_stride = 2 * ffn,
                                               .y_stride = hidden});
    add_rows(p, GATE_MLP, first, rows);
}

void duet__dit_run_block(const duet__dit_pass *p, const duet__dit_block *b) {
    attention_half(p, b);
    norm_rows(p, &b->norm2, SHIFT_MLP, SCALE_MLP);
    int64_t chunk = duet__dit_mlp_chunk_rows(&p->dit->config, p->dit->mlp_budget_bytes, p->rows);
    for (int64_t first = 0; first < p->rows; first += chunk) {
        int64_t left = p->rows - first;
        feed_forward_chunk(p, b, first, left < chunk ? left : chunk);
    }
    tap_rows(p, "out", p->state->h, p->dit->config.hidden, p->dit->config.hidden, NULL);
}
