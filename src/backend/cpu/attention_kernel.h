/* attention_kernel.h - softmax(scale q k^T) v by blocks, with the running maximum of flash attention.
 *
 *     a task: one head, a chunk of query rows of one segment (packed once, scaled)
 *       key tiles of KEY_TILE rows, counted from the start of the segment: k transposed, v copied together
 *         panels of MR query rows:  scores -> new maximum -> probabilities -> o = o * correction + p v
 *
 * A row's result depends on its own segment alone: tiles are counted from the segment's start, a masked tile leaves
 * maximum, sum and o as they are. Under causality the keys that only some rows of a panel see are added row by row,
 * so that a value that a row must not see is not even multiplied by zero.
 *
 * KEY_TILE 128 beats 64 by 3 to 5 % (the softmax's fixed cost per row and tile) and equals 192. */
#ifndef DUET_CPU_ATTENTION_KERNEL_H
#define DUET_CPU_ATTENTION_KERNEL_H

#include <math.h>

#include "backend/cpu/tile_kernel.h"

enum { Q_CHUNK = 16 * MR };

typedef struct attention_plan {
    const duet_attention_args *a;
    char *scratch;
    size_t thread_bytes;
    int64_t n_chunks;
} attention_plan;

/* A thread's room. dv: head_dim rounded up to whole vectors, so that loads of v and o stay inside. */
typedef struct attention_room {
    float *q;     /* [Q_CHUNK/MR][head_dim][MR] scaled */
    float *k;     /* [KEY_TILE/NR][head_dim][NR] */
    float *v;     /* [KEY_TILE][dv] */
    float *o;     /* [Q_CHUNK][dv] */
    float *sum;   /* [Q_CHUNK][VL] partial sums of probabilities */
    float *top;   /* [Q_CHUNK] running maxima */
    float *score; /* [MR][KEY_TILE] */
    int64_t dv;
} attention_room;

static attention_room lay_out(const duet_attention_args *a, char *at, size_t *bytes) {
    int64_t dv = ceil_div(a->head_dim, NR) * NR;
    int64_t sizes[7] = {Q_CHUNK * a->head_dim, KEY_TILE * a->head_dim, KEY_TILE * dv,
                        Q_CHUNK * dv,          Q_CHUNK * VL,           Q_CHUNK,
                        MR * KEY_TILE};
    float *part[7];
    size_t used = 0;
    for (int i = 0; i < 7; i++) {
        part[i] = at ? (float *)(at + used) : NULL;
        used += round64(sizes[i] * 4);
    }
    *bytes = used;
    return (attention_room){part[0], part[1], part[2], part[3], part[4], part[5], part[6], dv};
}

static size_t attention_scratch(const duet_attention_args *a, int n_threads) {
    size_t bytes = 0;
    lay_out(a, NULL, &bytes);
    return bytes * (size_t)n_threads;
}

static void load_queries(const duet_attention_args *a, const attention_room *m, int64_t head, int64_t first,
                         int64_t rows) {
    for (int64_t panel = 0; panel < rows; panel += MR) {
        const void *from[VL] = {NULL};
        float *to = m->q + panel * a->head_dim;
        for (int64_t i = 0; i < MR && panel + i < rows; i++)
            from[i] = a->q + (first + panel + i) * a->q_stride + head * a->q_head_stride;
        pack_rows(to, MR, DUET_F32, from, a->head_dim);
        for (int64_t i = 0; i < a->head_dim * MR; i++) to[i] *= a->scale;
    }
    memset(m->o, 0, (size_t)(rows * m->dv) * 4);
    memset(m->sum, 0, (size_t)(rows * VL) * 4);
    for (int64_t i = 0; i < rows; i++) m->top[i] = -INFINITY;
}

static void load_keys(const duet_attention_args *a, const attention_room *m, int64_t kv_head, int64_t first,
                      int64_t n) {
    for (int64_t c = 0; c < ceil_div(n, NR) * NR; c += VL) {
        const void *from[VL] = {NULL};
        for (int64_t i = 0; i < VL && c + i < n; i++)
            from[i] = a->k + (first + c + i) * a->k_stride + kv_head * a->k_head_stride;
        pack_rows(m->k + c / NR * NR * a->head_dim + c % NR, NR, DUET_F32, from, a->head_dim);
    }
    for (int64_t j = 0; j < n; j++)
        memcpy(m->v + j * m->dv, a->v + (first + j) * a->v_stride + kv_head * a->v_head_stride,
               (size_t)a->head_dim * 4);
}

/* Scores of one row become probabilities in place; maximum and sum move on. Returns what o must be multiplied by. */
static float soften(float *score, int64_t n, float *top, float *sum) {
    vf best = vf_set(-INFINITY);
    int64_t c = 0;
    for (; c + VL <= n; c += VL) best = vf_max(best, vf_load(score + c));
    float now = vf_top(best);
    for (; c < n; c++) now = score[c] > now ? score[c] : now;
    now = now > *top ? now : *top;
    float base = now == -INFINITY ? 0.0f : now; /* only impossible keys so far: probabilities 0, not NaN */
    vf correction = vf_exp(vf_set(*top - base)), total = vf_mul(vf_load(sum), correction);
    for (c = 0; c < n; c += VL) {
        int64_t some = min_i64(VL, n - c);
        vf p = vf_exp(vf_sub(vf_load(score + c), vf_set(base)));
        vf_store(score + c, p); /* a whole vector: columns behind n are not used */
        total = vf_add(total, some == VL ? p : vf_load_n(score + c, some));
    }
    vf_store(sum, total);
    *top = now;
    float factor[VL];
    vf_store(factor, correction);
    return factor[0];
}

/* o[rows] = o * factor + p v over keys first .. end of the tile; factor NULL: 1. */
static void add_values(const duet_attention_args *a, const attention_room *m, int64_t row, int64_t mr,
                       const float *score, const float *factor, int64_t first, int64_t end) {
    for (int64_t d = 0; d < a->head_dim; d += NR) {
        tile_args t = {.a = score + first,
                       .b = m->v + first * m->dv + d,
                       .a_step = 1,
                       .n_outer = 1,
                       .n_inner = end - first,
                       .b_inner = m->dv,
                       .y = m->o + row * m->dv + d,
                       .y_stride = m->dv,
                       .cols = min_i64(NR, a->head_dim - d),
                       .accumulate = true,
                       .row_scale = factor};
        tile_rows(mr, &t);
    }
}

static void score_panel(const duet_attention_args *a, const attention_room *m, int64_t row, int64_t mr,
                        int64_t n) {
    for (int64_t c = 0; c < n; c += NR) {
        tile_args t = {.a = m->q + row * a->head_dim,
                       .b = m->k + c * a->head_dim,
                       .a_step = MR,
                       .n_outer = 1,
                       .n_inner = a->head_dim,
                       .b_inner = NR,
                       .y = m->score + c,
                       .y_stride = KEY_TILE,
                       .cols = NR};
        tile_packed(mr, &t);
    }
}

/* One panel of query rows against one key tile. first_query, first_key: row numbers inside the segment. Keys that
 * all rows see are added by the panel, the rest (under causality) row by row. */
static void attend_panel(const duet_attention_args *a, const attention_room *m, int64_t row, int64_t mr,
                         int64_t first_query, int64_t first_key, int64_t n) {
    float factor[MR];
    int64_t sees[MR];
    for (int64_t r = 0; r < mr; r++) sees[r] = a->causal ? min_i64(n, first_query + r - first_key + 1) : n;
    if (sees[mr - 1] <= 0) return; /* nobody sees any of it */
    score_panel(a, m, row, mr, n);
    for (int64_t r = 0; r < mr; r++) {
        factor[r] = 1.0f;
        if (sees[r] > 0)
            factor[r] = soften(m->score + r * KEY_TILE, sees[r], &m->top[row + r], m->sum + (row + r) * VL);
    }
    int64_t common = max_i64(0, sees[0]);
    if (common > 0) add_values(a, m, row, mr, m->score, factor, 0, common);
    for (int64_t r = 0; r < mr; r++)
        if (sees[r] > common)
            add_values(a, m, row + r, 1, m->score + r * KEY_TILE, common > 0 ? NULL : &factor[r], common,
                       sees[r]);
}

static void store_rows(const duet_attention_args *a, const attention_room *m, int64_t head, int64_t first,
                       int64_t rows) {
    for (int64_t r = 0; r < rows; r++) {
        float *o = a->o + (first + r) * a->o_stride + head * a->o_head_stride;
        vf total = vf_set(vf_sum(vf_load(m->sum + r * VL)));
        for (int64_t d = 0; d < a->head_dim; d += VL)
            store_cols(o + d, vf_div(vf_load(m->o + r * m->dv + d), total), a->head_dim - d);
    }
}

static void attend_chunk(const duet_attention_args *a, const attention_room *m, int64_t head,
                         int64_t seg_first, int64_t seg_end, int64_t first, int64_t rows) {
    int64_t kv_head = head / (a->heads / a->kv_heads), query = first - seg_first;
    int64_t keys = a->causal ? query + rows : seg_end - seg_first;
    load_queries(a, m, head, first, rows);
    for (int64_t key = 0; key < keys; key += KEY_TILE) {
        int64_t n = min_i64(KEY_TILE, seg_end - seg_first - key);
        load_keys(a, m, kv_head, seg_first + key, n);
        for (int64_t row = 0; row < rows; row += MR)
            attend_panel(a, m, row, min_i64(MR, rows - row), query + row, key, n);
    }
    store_rows(a, m, head, first, rows);
}

/* Chunks of a segment: as few as Q_CHUNK allows, then of even size. */
static int64_t chunk_rows(int64_t rows) {
    return ceil_div(ceil_div(rows, ceil_div(rows, Q_CHUNK)), MR) * MR;
}

static int64_t segment_end(const duet_attention_args *a, int64_t s) {
    return a->seg_end_row ? a->seg_end_row[s] : a->rows;
}

static int64_t count_chunks(const duet_attention_args *a) {
    int64_t n = 0, first = 0, segments = a->seg_end_row ? a->n_seg : 1;
    for (int64_t s = 0; s < segments; first = segment_end(a, s++)) {
        int64_t rows = segment_end(a, s) - first;
        if (rows > 0) n += ceil_div(rows, chunk_rows(rows));
    }
    return n;
}

static void attention_task(void *arg, int64_t task, int thread) {
    const attention_plan *p = arg;
    const duet_attention_args *a = p->a;
    size_t bytes;
    attention_room m = lay_out(a, p->scratch + p->thread_bytes * (size_t)thread, &bytes);
    int64_t chunk = task % p->n_chunks, first = 0;
    for (int64_t s = 0;; first = segment_end(a, s++)) {
        int64_t end = segment_end(a, s), rows = end - first;
        if (rows <= 0) continue;
        int64_t each = chunk_rows(rows), n = ceil_div(rows, each);
        if (chunk < n) {
            int64_t at = first + chunk * each;
            attend_chunk(a, &m, task / p->n_chunks, first, end, at, min_i64(each, end - at));
            return;
        }
        chunk -= n;
    }
}

static void attention_run(const duet_kernel_ctx *ctx, const duet_attention_args *a) {
    attention_plan p = {.a = a, .scratch = ctx->scratch, .n_chunks = count_chunks(a)};
    lay_out(a, NULL, &p.thread_bytes);
    duet_pool_run(ctx->pool, p.n_chunks * a->heads, attention_task, &p);
}

#endif
