/* linear.c - matrix products: y = x w^T + b, and the table look-up.
 *
 * A task is one output column for all rows, so that a weight row is widened once. */
#include "backend/ref/ref.h"

size_t duet__ref_linear_scratch(const duet_linear_args *a, int n_threads) {
    return duet__ref_round64(a->cols_in * 4) * (size_t)n_threads;
}

static void linear_column(void *arg, int64_t column, int thread) {
    const ref_job *job = arg;
    const duet_linear_args *a = job->args;
    const float *w = duet__ref_row(a->w, a->row0 + column, duet__ref_room(job, thread));
    double bias = duet__has(a->bias) ? (double)duet__ref_value(a->bias, a->row0 + column) : 0.0;
    for (int64_t r = 0; r < a->rows; r++)
        a->y[r * a->y_stride + column] = (float)(duet__ref_dot(a->x + r * a->x_stride, w, a->cols_in) + bias);
}

void duet__ref_linear(const duet_kernel_ctx *ctx, const duet_linear_args *a) {
    duet__ref_run(ctx, a, duet__ref_round64(a->cols_in * 4), a->cols_out, linear_column);
}

static void embed_row(void *arg, int64_t r, int thread) {
    (void)thread;
    const duet_embed_args *a = ((const ref_job *)arg)->args;
    duet_widen_to_f32(a->table->dtype, duet_weight_row(a->table, a->ids[r]), a->cols, a->y + r * a->cols);
}

void duet__ref_embed(const duet_kernel_ctx *ctx, const duet_embed_args *a) {
    duet__ref_run(ctx, a, 0, a->rows, embed_row);
}
