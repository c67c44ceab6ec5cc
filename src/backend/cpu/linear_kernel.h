/* linear_kernel.h - y = x w^T + b by packed panels.
 *
 *     rows in chunks of CHUNK_ROWS                 x of a chunk is packed once: panels of MR rows, k-major
 *       a task: up to COL_BLOCK columns, some rows
 *         k in blocks of K_BLOCK                   the task packs its columns of w (widening them): fits the L2 cache
 *           panels of x (fit L1)  x  panels of w   register tiles; y takes the partial sums between k blocks
 *
 * w is packed per call: that costs one part in the number of rows of a chunk, and no memory stays behind (a prepared
 * copy would double a model that is otherwise mapped). Partial sums of K_BLOCK products also bound the error growth. */
#ifndef DUET_CPU_LINEAR_KERNEL_H
#define DUET_CPU_LINEAR_KERNEL_H

#include "backend/cpu/tile_kernel.h"

enum { CHUNK_ROWS = 1008, COL_BLOCK = 4 * 32, K_BLOCK = 384, WANTED_TASKS = 16, PACK_PANELS = 4 };

typedef struct linear_plan {
    const duet_linear_args *a;
    float *x_panels;         /* [panels][cols_in][MR] */
    char *w_blocks;          /* per thread: [COL_BLOCK/NR][K_BLOCK][NR] */
    const float *bias;       /* [cols_out] or NULL */
    int64_t col_block;       /* columns per task, <= COL_BLOCK */
    int64_t first_row, rows; /* this chunk */
    int64_t row_parts, part_panels;
} linear_plan;

enum { W_BLOCK_BYTES = COL_BLOCK * K_BLOCK * 4 };

static size_t x_panels_bytes(const duet_linear_args *a) {
    int64_t rows = min_i64(CHUNK_ROWS, a->rows);
    return round64(ceil_div(rows, MR) * MR * a->cols_in * 4);
}

static size_t linear_scratch(const duet_linear_args *a, int n_threads) {
    return x_panels_bytes(a) + round64(a->cols_out * 4) + (size_t)W_BLOCK_BYTES * (size_t)n_threads;
}

static void pack_x(void *arg, int64_t task, int thread) {
    (void)thread;
    const linear_plan *p = arg;
    const duet_linear_args *a = p->a;
    int64_t first = task * PACK_PANELS, end = min_i64(first + PACK_PANELS, ceil_div(p->rows, MR));
    for (int64_t panel = first; panel < end; panel++) {
        const void *rows[VL] = {NULL};
        for (int64_t i = 0; i < MR && panel * MR + i < p->rows; i++)
            rows[i] = a->x + (p->first_row + panel * MR + i) * a->x_stride;
        pack_rows(p->x_panels + panel * MR * a->cols_in, MR, DUET_F32, rows, a->cols_in);
    }
}

/* Columns col .. col+n of w, k .. k+n_k, as panels of NR columns. */
static void pack_w(const duet_linear_args *a, float *dst, int64_t col, int64_t n, int64_t k, int64_t n_k) {
    size_t skip = (size_t)k * duet_dtype_bytes(a->w->dtype);
    for (int64_t c = 0; c < n; c += VL) {
        const void *rows[VL] = {NULL};
        for (int64_t i = 0; i < VL && c + i < n; i++)
            rows[i] = (const char *)duet_weight_row(a->w, a->row0 + col + c + i) + skip;
        pack_rows(dst + c / NR * NR * n_k + c % NR, NR, a->w->dtype, rows, n_k);
    }
    if (ceil_div(n, VL) % NV) { /* the vector that fills up the last panel */
        int64_t c = ceil_div(n, VL) * VL;
        float *last = dst + c / NR * NR * n_k + c % NR;
        for (int64_t i = 0; i < n_k; i++) vf_store(last + i * NR, vf_zero());
    }
}

static void linear_block(const linear_plan *p, const float *w, int64_t part, int64_t col, int64_t n,
                         int64_t k, int64_t n_k) {
    const duet_linear_args *a = p->a;
    int64_t end = min_i64((part + 1) * p->part_panels, ceil_div(p->rows, MR));
    for (int64_t panel = part * p->part_panels; panel < end; panel++) {
        int64_t row = panel * MR, mr = min_i64(MR, p->rows - row);
        for (int64_t c = 0; c < n; c += NR) {
            tile_args t = {.a = p->x_panels + (row * a->cols_in + k * MR),
                           .b = w + c * n_k,
                           .a_step = MR,
                           .n_outer = 1,
                           .n_inner = n_k,
                           .b_inner = NR,
                           .y = a->y + (p->first_row + row) * a->y_stride + col + c,
                           .y_stride = a->y_stride,
                           .cols = min_i64(NR, n - c),
                           .accumulate = k > 0,
                           .col_bias = p->bias && k == 0 ? p->bias + col + c : NULL};
            tile_packed(mr, &t);
        }
    }
}

static void linear_task(void *arg, int64_t task, int thread) {
    const linear_plan *p = arg;
    const duet_linear_args *a = p->a;
    float *w = (float *)(p->w_blocks + (size_t)thread * W_BLOCK_BYTES);
    int64_t col = task / p->row_parts * p->col_block, n = min_i64(p->col_block, a->cols_out - col);
    for (int64_t k = 0; k < a->cols_in; k += K_BLOCK) {
        int64_t n_k = min_i64(K_BLOCK, a->cols_in - k);
        pack_w(a, w, col, n, k, n_k);
        linear_block(p, w, task % p->row_parts, col, n, k, n_k);
    }
}

/* Enough tasks for many threads: narrower blocks first (64 columns are as fast), then fewer rows, but not below eight
 * panels, or packing w again for each part would show. */
static int64_t pick_col_block(int64_t cols) {
    return ceil_div(cols, COL_BLOCK) < WANTED_TASKS ? COL_BLOCK / 2 : COL_BLOCK;
}

static void cut_rows(linear_plan *p, int64_t col_blocks) {
    int64_t panels = ceil_div(p->rows, MR);
    int64_t parts = col_blocks < WANTED_TASKS / 2 ? ceil_div(WANTED_TASKS, col_blocks) : 1;
    parts = min_i64(parts, max_i64(1, panels / 8));
    p->part_panels = ceil_div(panels, parts);
    p->row_parts = ceil_div(panels, p->part_panels);
}

static void linear_run(const duet_kernel_ctx *ctx, const duet_linear_args *a) {
    char *scratch = ctx->scratch;
    float *bias = (float *)(scratch + x_panels_bytes(a));
    linear_plan p = {
        .a = a, .x_panels = (float *)scratch, .w_blocks = (char *)bias + round64(a->cols_out * 4)};
    if (duet__has(a->bias)) {
        for (int64_t n = 0; n < a->cols_out; n++)
            duet_widen_to_f32(a->bias->dtype, duet_weight_row(a->bias, a->row0 + n), 1, bias + n);
        p.bias = bias;
    }
    p.col_block = pick_col_block(a->cols_out);
    int64_t col_blocks = ceil_div(a->cols_out, p.col_block);
    for (p.first_row = 0; p.first_row < a->rows; p.first_row += CHUNK_ROWS) {
        p.rows = min_i64(CHUNK_ROWS, a->rows - p.first_row);
        cut_rows(&p, col_blocks);
        duet_pool_run(ctx->pool, ceil_div(ceil_div(p.rows, MR), PACK_PANELS), pack_x, &p);
        duet_pool_run(ctx->pool, col_blocks * p.row_parts, linear_task, &p);
    }
}

#endif
