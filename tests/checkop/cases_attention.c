/* cases_attention.c - segments, causality, grouped keys, fused and separate storage. */
#include "checkop/checkop.h"

typedef struct attention_shape {
    int64_t rows, heads, kv_heads, head_dim;
    int n_seg;
    bool causal, fused, in_place;
} attention_shape;

static const attention_shape corners[] = {
    {1, 1, 1, 1, 0, false, false, false},    {1, 2, 1, 16, 1, true, true, false},
    {33, 2, 2, 64, 0, false, true, false},   {64, 1, 1, 128, 0, true, false, false},
    {65, 4, 2, 32, 3, true, true, false},    {130, 2, 1, 48, 2, false, false, true},
    {200, 3, 3, 20, 0, false, false, false}, {97, 6, 2, 8, 4, true, false, true},
    {300, 1, 1, 72, 5, false, true, false}};
static const attention_shape shapes[] = {{900, 10, 10, 128, 0, false, true, false},
                                         {1797, 16, 16, 64, 0, false, true, false},
                                         {256, 16, 8, 128, 0, true, true, false},
                                         {64, 4, 4, 32, 0, false, true, false}};

static void storage(checkop_case *c, const attention_shape *s) {
    duet_attention_args *a = &c->args.attention;
    int64_t q_cols = s->heads * s->head_dim, kv_cols = s->kv_heads * s->head_dim;
    a->q_head_stride = a->k_head_stride = a->v_head_stride = a->o_head_stride = s->head_dim;
    if (s->fused) { /* [q | k | v] in one row */
        int64_t stride = q_cols + 2 * kv_cols + checkop_pick(c, 0, 4);
        a->q = checkop_in(c, s->rows * stride);
        a->k = a->q + q_cols;
        a->v = a->k + kv_cols;
        a->q_stride = a->k_stride = a->v_stride = stride;
    } else {
        float *q = s->in_place ? checkop_inout(c, s->rows * q_cols) : checkop_in(c, s->rows * q_cols);
        a->q = q;
        a->k = checkop_in(c, s->rows * kv_cols);
        a->v = checkop_in(c, s->rows * kv_cols);
        a->q_stride = q_cols;
        a->k_stride = a->v_stride = kv_cols;
        if (s->in_place) a->o = q;
    }
    a->o_stride = q_cols + (s->in_place ? 0 : checkop_pick(c, 0, 4));
    if (!a->o) a->o = checkop_out(c, ((s->rows - 1) * a->o_stride + q_cols) * 4);
}

static void build(checkop_case *c, attention_shape s) {
    duet_attention_args *a = &c->args.attention;
    *a = (duet_attention_args){
        .rows = s.rows, .heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim};
    a->causal = s.causal;
    a->scale = 1.0f / sqrtf((float)s.head_dim);
    storage(c, &s);
    if (s.n_seg) {
        int32_t *end = checkop_ids(c, s.n_seg, s.rows);
        for (int i = 0; i < s.n_seg; i++) end[i] = (int32_t)((i + 1) * s.rows / s.n_seg);
        if (s.n_seg > 2) end[0] = 1; /* a segment of one row */
        a->seg_end_row = end;
        a->n_seg = s.n_seg;
    }
    c->flops = 4.0 * (double)(s.rows * s.rows * s.heads * s.head_dim) * (s.causal ? 0.5 : 1.0);
    checkop_text(c, "attention rows %lld heads %lld/%lld dim %lld segments %d causal %d fused %d in place %d",
                 (long long)s.rows, (long long)s.heads, (long long)s.kv_heads, (long long)s.head_dim, s.n_seg,
                 s.causal, s.fused, s.in_place);
}

static void attention_make(checkop_case *c) {
    int64_t kv = checkop_pick(c, 1, 3);
    attention_shape s = {.rows = checkop_pick(c, 1, 220),
                         .heads = kv * checkop_pick(c, 1, 3),
                         .kv_heads = kv,
                         .head_dim =
                             checkop_pick(c, 0, 2) ? 8 * checkop_pick(c, 1, 16) : checkop_pick(c, 1, 140),
                         .causal = checkop_pick(c, 0, 1),
                         .fused = checkop_pick(c, 0, 1)};
    s.n_seg = (int)checkop_pick(c, 0, s.rows < 4 ? 1 : 4);
    s.in_place = !s.fused && checkop_pick(c, 0, 1);
    build(c, c->index < (int)(sizeof corners / sizeof *corners) ? corners[c->index] : s);
}

static void attention_bench(checkop_case *c) {
    build(c, shapes[c->index]);
}

const checkop_spec checkop_attention = {.n_corners = sizeof corners / sizeof *corners,
                                        .n_bench = sizeof shapes / sizeof *shapes,
                                        .make = attention_make,
                                        .bench = attention_bench,
                                        .naive = naive_attention};
