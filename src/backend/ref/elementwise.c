/* elementwise.c - modulation, gates, activations, copies, the solver step, clamps, and statistics.
 *
 * All exact (fp32, one rounding per written operation) but the two SiLUs, which compute in double. */
#include <math.h>

#include "backend/ref/ref.h"

static void modulate_row(void *arg, int64_t r, int thread) {
    (void)thread;
    const duet_modulate_args *a = ((const ref_job *)arg)->args;
    const float *x = a->x + r * a->x_stride;
    const float *scale = a->scale + a->index[r] * a->table_stride,
                *shift = a->shift + a->index[r] * a->table_stride;
    float *y = a->y + r * a->y_stride;
    for (int64_t c = 0; c < a->cols; c++) {
        float scaled = x[c] * (1.0f + scale[c]);
        y[c] = scaled + shift[c];
    }
}

void duet__ref_modulate(const duet_kernel_ctx *ctx, const duet_modulate_args *a) {
    duet__ref_run(ctx, a, 0, a->rows, modulate_row);
}

static void gated_add_row(void *arg, int64_t r, int thread) {
    (void)thread;
    const duet_gated_add_args *a = ((const ref_job *)arg)->args;
    const float *x = a->x + r * a->x_stride;
    const float *gate = a->gate ? a->gate + a->index[r] * a->table_stride : NULL;
    float *h = a->h + r * a->h_stride;
    for (int64_t c = 0; c < a->cols; c++) {
        float g = gate ? gate[c] : duet__has(a->channel_gate) ? duet__ref_value(a->channel_gate, c) : 1.0f;
        float gated = g * x[c];
        h[c] = h[c] + gated;
    }
}

void duet__ref_gated_add(const duet_kernel_ctx *ctx, const duet_gated_add_args *a) {
    duet__ref_run(ctx, a, 0, a->rows, gated_add_row);
}

static double silu(float x) {
    return (double)x / (1.0 + exp(-(double)x));
}

void duet__ref_silu(const duet_kernel_ctx *ctx, const duet_silu_args *a) {
    (void)ctx;
    for (int64_t i = 0; i < a->n; i++) a->y[i] = (float)silu(a->x[i]);
}

static void silu_mul_row(void *arg, int64_t r, int thread) {
    (void)thread;
    const duet_silu_mul_args *a = ((const ref_job *)arg)->args;
    const float *gate = a->gate + r * a->gate_stride, *up = a->up + r * a->up_stride;
    float *y = a->y + r * a->y_stride;
    for (int64_t c = 0; c < a->cols; c++) y[c] = (float)(silu(gate[c]) * (double)up[c]);
}

void duet__ref_silu_mul(const duet_kernel_ctx *ctx, const duet_silu_mul_args *a) {
    duet__ref_run(ctx, a, 0, a->rows, silu_mul_row);
}

void duet__ref_copy_rows(const duet_kernel_ctx *ctx, const duet_copy_rows_args *a) {
    (void)ctx;
    for (int64_t r = 0; r < a->rows; r++)
        memcpy(a->y + r * a->y_stride, a->x + r * a->x_stride, (size_t)a->cols * sizeof(float));
}

void duet__ref_euler(const duet_kernel_ctx *ctx, const duet_euler_args *a) {
    (void)ctx;
    for (int64_t i = 0; i < a->n; i++) {
        float step = a->st * a->velocity[i];
        float denoised = a->x[i] + step;
        float kept = a->ratio * a->x[i], moved = (1.0f - a->ratio) * denoised;
        a->x[i] = kept + moved;
    }
}

/* Above 2^24 the count is no longer exact, which nobody needs. */
void duet__ref_stats(const duet_kernel_ctx *ctx, const duet_stats_args *a) {
    (void)ctx;
    int64_t bad = 0;
    float lo = INFINITY, hi = -INFINITY;
    for (int64_t r = 0; r < a->rows; r++) {
        for (int64_t c = 0; c < a->cols; c++) {
            float x = a->x[r * a->x_stride + c];
            if (!isfinite(x)) {
                bad++;
                continue;
            }
            if (x < lo) lo = x;
            if (x > hi) hi = x;
        }
    }
    bool any_finite = lo <= hi;
    a->result[0] = (float)bad;
    a->result[1] = any_finite ? lo : 0.0f;
    a->result[2] = any_finite ? hi : 0.0f;
}

void duet__ref_axpby(const duet_kernel_ctx *ctx, const duet_axpby_args *a) {
    (void)ctx;
    for (int64_t i = 0; i < a->n; i++) {
        float scaled = a->a * a->x[i];
        if (a->b == 0.0f) {
            a->y[i] = scaled;
        } else {
            float old = a->b * a->y[i];
            a->y[i] = scaled + old;
        }
    }
}

/* A NaN stays a NaN: the stage that looks for them must still find it. */
void duet__ref_clamp(const duet_kernel_ctx *ctx, const duet_clamp_args *a) {
    (void)ctx;
    for (int64_t i = 0; i < a->n; i++) {
        if (a->x[i] < a->lo) a->x[i] = a->lo;
        if (a->x[i] > a->hi) a->x[i] = a->hi;
    }
}
