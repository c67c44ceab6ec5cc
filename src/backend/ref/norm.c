/* norm.c - RMS norm (per row and group) and layer norm. Statistics and product in double, one rounding. */
#include <math.h>

#include "backend/ref/ref.h"

static void rms_row(const duet_rmsnorm_args *a, const float *x, float *y) {
    double scale = 1.0 / sqrt(duet__ref_dot(x, x, a->cols) / (double)a->cols + (double)a->eps);
    for (int64_t c = 0; c < a->cols; c++) {
        double gain = duet__has(a->gain) ? (double)duet__ref_value(a->gain, c) : 1.0;
        y[c] = (float)((double)x[c] * scale * gain);
    }
}

static void rmsnorm_task(void *arg, int64_t r, int thread) {
    (void)thread;
    const duet_rmsnorm_args *a = ((const ref_job *)arg)->args;
    for (int64_t g = 0; g < a->groups; g++)
        rms_row(a, a->x + r * a->x_stride + g * a->x_group_stride,
                a->y + r * a->y_stride + g * a->y_group_stride);
}

void duet__ref_rmsnorm(const duet_kernel_ctx *ctx, const duet_rmsnorm_args *a) {
    duet__ref_run(ctx, a, 0, a->rows, rmsnorm_task);
}

static void layernorm_task(void *arg, int64_t r, int thread) {
    (void)thread;
    const duet_layernorm_args *a = ((const ref_job *)arg)->args;
    const float *x = a->x + r * a->x_stride;
    float *y = a->y + r * a->y_stride;
    double sum = 0, square = 0;
    for (int64_t c = 0; c < a->cols; c++) sum += (double)x[c];
    double mean = sum / (double)a->cols;
    for (int64_t c = 0; c < a->cols; c++) square += ((double)x[c] - mean) * ((double)x[c] - mean);
    double scale = 1.0 / sqrt(square / (double)a->cols + (double)a->eps);
    for (int64_t c = 0; c < a->cols; c++) {
        double gain = duet__has(a->gain) ? (double)duet__ref_value(a->gain, c) : 1.0;
        double bias = duet__has(a->bias) ? (double)duet__ref_value(a->bias, c) : 0.0;
        y[c] = (float)(((double)x[c] - mean) * scale * gain + bias);
    }
}

void duet__ref_layernorm(const duet_kernel_ctx *ctx, const duet_layernorm_args *a) {
    duet__ref_run(ctx, a, 0, a->rows, layernorm_task);
}
