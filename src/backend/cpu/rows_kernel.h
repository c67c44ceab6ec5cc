/* rows_kernel.h - ops that go over rows: norms, modulation, gates, rope, SiLU, and plain vectors of values.
 *
 * All are bound by memory; what is won is the vector form and the second core. Tasks are groups of rows of about
 * 32 Ki values, so that small ops stay on the calling thread. Exact ops (see ref/ref.h) use no fused operation. */
#ifndef DUET_CPU_ROWS_KERNEL_H
#define DUET_CPU_ROWS_KERNEL_H

#include <math.h>

#include "backend/cpu/tile_kernel.h"

typedef struct rows_plan {
    const void *args;
    const float *gain, *bias; /* widened vector weights, or NULL */
    int64_t rows, per_task;
} rows_plan;

INLINE void run_rows(const duet_kernel_ctx *ctx, rows_plan *p, int64_t rows, int64_t cols,
                     duet_task_fn task) {
    p->rows = rows;
    p->per_task = rows_per_task(cols);
    duet_pool_run(ctx->pool, ceil_div(rows, p->per_task), task, p);
}

/* for each row of the task */
#define EACH_ROW(p, task, r)                                                                                 \
    for (int64_t r = (task) * (p)->per_task; r < min_i64(((task) + 1) * (p)->per_task, (p)->rows); r++)
/* for each vector of n values: c = first, some = valid lanes */
#define EACH_VECTOR(n, c, some)                                                                              \
    for (int64_t c = 0, some = min_i64(VL, (n)); c < (n); c += VL, some = min_i64(VL, (n)-c))

/* ---- norms */

/* Four chains of vectors, joined in a fixed order: the pattern depends on n alone. */
INLINE float sum_of_squares(const float *x, int64_t n, float shift) {
    vf s[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()}, m = vf_set(shift);
    int64_t c = 0;
    for (; c + 4 * VL <= n; c += 4 * VL) {
        for (int j = 0; j < 4; j++) {
            vf d = vf_sub(vf_load(x + c + j * VL), m);
            s[j] = vf_fma(d, d, s[j]);
        }
    }
    for (; c + VL <= n; c += VL) {
        vf d = vf_sub(vf_load(x + c), m);
        s[0] = vf_fma(d, d, s[0]);
    }
    float sum = vf_sum(vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3])));
    for (; c < n; c++) sum += (x[c] - shift) * (x[c] - shift);
    return sum;
}

INLINE float sum_of_values(const float *x, int64_t n) {
    vf s[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int64_t c = 0;
    for (; c + 4 * VL <= n; c += 4 * VL)
        for (int j = 0; j < 4; j++) s[j] = vf_add(s[j], vf_load(x + c + j * VL));
    for (; c + VL <= n; c += VL) s[0] = vf_add(s[0], vf_load(x + c));
    float sum = vf_sum(vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3])));
    for (; c < n; c++) sum += x[c];
    return sum;
}

/* y = (x - mean) * scale * gain + bias; gain and bias may be NULL. */
INLINE void normalise(const float *x, float *y, int64_t n, float mean, float scale, const float *gain,
                      const float *bias) {
    vf m = vf_set(mean), s = vf_set(scale);
    EACH_VECTOR(n, c, some) {
        vf v = vf_mul(vf_sub(load_cols(x + c, some), m), s);
        if (gain) v = vf_mul(v, load_cols(gain + c, some));
        if (bias) v = vf_add(v, load_cols(bias + c, some));
        store_cols(y + c, v, some);
    }
}

static void rmsnorm_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const rows_plan *p = arg;
    const duet_rmsnorm_args *a = p->args;
    EACH_ROW(p, task, r) {
        for (int64_t g = 0; g < a->groups; g++) {
            const float *x = a->x + r * a->x_stride + g * a->x_group_stride;
            float scale = 1.0f / sqrtf(sum_of_squares(x, a->cols, 0.0f) / (float)a->cols + a->eps);
            normalise(x, a->y + r * a->y_stride + g * a->y_group_stride, a->cols, 0.0f, scale, p->gain, NULL);
        }
    }
}

static size_t rmsnorm_scratch(const duet_rmsnorm_args *a, int n_threads) {
    (void)n_threads;
    return round64(a->cols * 4);
}

static void rmsnorm_run(const duet_kernel_ctx *ctx, const duet_rmsnorm_args *a) {
    rows_plan p = {.args = a};
    if (duet__has(a->gain)) p.gain = vector_weight(a->gain, a->cols, ctx->scratch);
    run_rows(ctx, &p, a->rows, a->cols * a->groups, rmsnorm_task);
}

static void layernorm_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const rows_plan *p = arg;
    const duet_layernorm_args *a = p->args;
    EACH_ROW(p, task, r) {
        const float *x = a->x + r * a->x_stride;
        float mean = sum_of_values(x, a->cols) / (float)a->cols;
        float scale = 1.0f / sqrtf(sum_of_squares(x, a->cols, mean) / (float)a->cols + a->eps);
        normalise(x, a->y + r * a->y_stride, a->cols, mean, scale, p->gain, p->bias);
    }
}

static size_t layernorm_scratch(const duet_layernorm_args *a, int n_threads) {
    (void)n_threads;
    return 2 * round64(a->cols * 4);
}

static void layernorm_run(const duet_kernel_ctx *ctx, const duet_layernorm_args *a) {
    rows_plan p = {.args = a};
    if (duet__has(a->gain)) p.gain = vector_weight(a->gain, a->cols, ctx->scratch);
    if (duet__has(a->bias))
        p.bias = vector_weight(a->bias, a->cols, (float *)((char *)ctx->scratch + round64(a->cols * 4)));
    run_rows(ctx, &p, a->rows, a->cols, layernorm_task);
}

/* ---- modulation and gates */

static void modulate_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const rows_plan *p = arg;
    const duet_modulate_args *a = p->args;
    EACH_ROW(p, task, r) {
        const float *x = a->x + r * a->x_stride, *scale = a->scale + a->index[r] * a->table_stride;
        const float *shift = a->shift + a->index[r] * a->table_stride;
        float *y = a->y + r * a->y_stride;
        EACH_VECTOR(a->cols, c, some) {
            vf v = vf_mul(load_cols(x + c, some), vf_add(vf_set(1.0f), load_cols(scale + c, some)));
            store_cols(y + c, vf_add(v, load_cols(shift + c, some)), some);
        }
    }
}

static void modulate_run(const duet_kernel_ctx *ctx, const duet_modulate_args *a) {
    run_rows(ctx, &(rows_plan){.args = a}, a->rows, a->cols, modulate_task);
}

static void gated_add_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const rows_plan *p = arg;
    const duet_gated_add_args *a = p->args;
    EACH_ROW(p, task, r) {
        const float *x = a->x + r * a->x_stride;
        const float *gate = a->gate ? a->gate + a->index[r] * a->table_stride : p->gain;
        float *h = a->h + r * a->h_stride;
        EACH_VECTOR(a->cols, c, some) {
            vf v = load_cols(x + c, some);
            if (gate) v = vf_mul(load_cols(gate + c, some), v);
            store_cols(h + c, vf_add(load_cols(h + c, some), v), some);
        }
    }
}

static size_t gated_add_scratch(const duet_gated_add_args *a, int n_threads) {
    (void)n_threads;
    return round64(a->cols * 4);
}

static void gated_add_run(const duet_kernel_ctx *ctx, const duet_gated_add_args *a) {
    rows_plan p = {.args = a};
    if (duet__has(a->channel_gate)) p.gain = vector_weight(a->channel_gate, a->cols, ctx->scratch);
    run_rows(ctx, &p, a->rows, a->cols, gated_add_task);
}

/* ---- rope */

static void rope_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const rows_plan *p = arg;
    const duet_rope_args *a = p->args;
    EACH_ROW(p, task, r) {
        const float *cosine = a->cos + r * a->pairs, *sine = a->sin + r * a->pairs;
        for (int64_t h = 0; h < a->heads; h++) {
            float *lo = a->x + r * a->x_stride + h * a->head_stride, *hi = lo + a->pairs;
            EACH_VECTOR(a->pairs, c, some) {
                vf x = load_cols(lo + c, some), y = load_cols(hi + c, some);
                vf co = load_cols(cosine + c, some), si = load_cols(sine + c, some);
                store_cols(lo + c, vf_sub(vf_mul(x, co), vf_mul(y, si)), some);
                store_cols(hi + c, vf_add(vf_mul(y, co), vf_mul(x, si)), some);
            }
        }
    }
}

static void rope_run(const duet_kernel_ctx *ctx, const duet_rope_args *a) {
    run_rows(ctx, &(rows_plan){.args = a}, a->rows, 2 * a->heads * a->pairs, rope_task);
}

/* ---- activations and plain vectors */

static void silu_mul_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const rows_plan *p = arg;
    const duet_silu_mul_args *a = p->args;
    EACH_ROW(p, task, r) {
        const float *gate = a->gate + r * a->gate_stride, *up = a->up + r * a->up_stride;
        float *y = a->y + r * a->y_stride;
        EACH_VECTOR(a->cols, c, some)
        store_cols(y + c, vf_mul(vf_silu(load_cols(gate + c, some)), load_cols(up + c, some)), some);
    }
}

static void silu_mul_run(const duet_kernel_ctx *ctx, const duet_silu_mul_args *a) {
    run_rows(ctx, &(rows_plan){.args = a}, a->rows, 2 * a->cols, silu_mul_task);
}

/* Vectors are cut into rows of LINE values. */
enum { LINE = 32768 };

static void silu_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const duet_silu_args *a = ((const rows_plan *)arg)->args;
    const float *x = a->x + task * LINE;
    float *y = a->y + task * LINE;
    EACH_VECTOR(min_i64(LINE, a->n - task * LINE), c, some)
    store_cols(y + c, vf_silu(load_cols(x + c, some)), some);
}

static void silu_run(const duet_kernel_ctx *ctx, const duet_silu_args *a) {
    duet_pool_run(ctx->pool, ceil_div(a->n, LINE), silu_task, &(rows_plan){.args = a});
}

static void axpby_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const duet_axpby_args *a = ((const rows_plan *)arg)->args;
    const float *x = a->x + task * LINE;
    float *y = a->y + task * LINE;
    EACH_VECTOR(min_i64(LINE, a->n - task * LINE), c, some) {
        vf v = vf_mul(vf_set(a->a), load_cols(x + c, some));
        if (a->b != 0.0f) v = vf_add(v, vf_mul(vf_set(a->b), load_cols(y + c, some)));
        store_cols(y + c, v, some);
    }
}

static void axpby_run(const duet_kernel_ctx *ctx, const duet_axpby_args *a) {
    duet_pool_run(ctx->pool, ceil_div(a->n, LINE), axpby_task, &(rows_plan){.args = a});
}

static void copy_rows_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const rows_plan *p = arg;
    const duet_copy_rows_args *a = p->args;
    EACH_ROW(p, task, r) memcpy(a->y + r * a->y_stride, a->x + r * a->x_stride, (size_t)a->cols * 4);
}

static void copy_rows_run(const duet_kernel_ctx *ctx, const duet_copy_rows_args *a) {
    run_rows(ctx, &(rows_plan){.args = a}, a->rows, a->cols, copy_rows_task);
}

#endif
