/* conv1d.c - one-dimensional convolution and its transpose, zero padding, sums in double.
 *
 * A task is one output channel of one batch item: its sums live in the thread's scratch, and the loops run
 * over input channel, tap, time, which keeps the innermost one contiguous. */
#include "backend/ref/ref.h"

static void start_sums(double *sum, int64_t n, const duet_weight *bias, int64_t channel) {
    double b = duet__has(bias) ? (double)duet__ref_value(bias, channel) : 0.0;
    for (int64_t t = 0; t < n; t++) sum[t] = b;
}

/* Scratch of a thread: the sums, then room for one weight row. */
static size_t conv_bytes(const duet_conv1d_args *a) {
    return duet__ref_round64(a->length_out * 8) + duet__ref_round64(a->channels_in * a->kernel * 4);
}

size_t duet__ref_conv1d_scratch(const duet_conv1d_args *a, int n_threads) {
    return conv_bytes(a) * (size_t)n_threads;
}

static void conv_channel(void *arg, int64_t task, int thread) {
    const ref_job *job = arg;
    const duet_conv1d_args *a = job->args;
    int64_t b = task / a->channels_out, o = task % a->channels_out;
    double *sum = duet__ref_room(job, thread);
    const float *w = duet__ref_row(a->w, o, (float *)((char *)sum + duet__ref_round64(a->length_out * 8)));
    start_sums(sum, a->length_out, a->bias, o);
    for (int64_t i = 0; i < a->channels_in; i++) {
        const float *x = a->x + (b * a->channels_in + i) * a->length_in;
        for (int64_t k = 0; k < a->kernel; k++) {
            double tap = (double)w[i * a->kernel + k];
            for (int64_t t = 0; t < a->length_out; t++) {
                int64_t at = t * a->stride + k * a->dilation - a->pad;
                if (at >= 0 && at < a->length_in) sum[t] += tap * (double)x[at];
            }
        }
    }
    int64_t base = task * a->length_out;
    for (int64_t t = 0; t < a->length_out; t++)
        a->y[base + t] = (float)(a->residual ? sum[t] + (double)a->residual[base + t] : sum[t]);
}

void duet__ref_conv1d(const duet_kernel_ctx *ctx, const duet_conv1d_args *a) {
    duet__ref_run(ctx, a, conv_bytes(a), a->batch * a->channels_out, conv_channel);
}

/* Scratch of a thread: the sums, then one weight row [channels_out, kernel] when it must be widened. */
static size_t up_bytes(const duet_conv1d_up_args *a) {
    return duet__ref_round64(a->length_out * 8) + duet__ref_round64(a->channels_out * a->kernel * 4);
}

size_t duet__ref_conv1d_up_scratch(const duet_conv1d_up_args *a, int n_threads) {
    return up_bytes(a) * (size_t)n_threads;
}

static void up_channel(void *arg, int64_t task, int thread) {
    const ref_job *job = arg;
    const duet_conv1d_up_args *a = job->args;
    int64_t b = task / a->channels_out, o = task % a->channels_out;
    double *sum = duet__ref_room(job, thread);
    float *room = (float *)((char *)sum + duet__ref_round64(a->length_out * 8));
    start_sums(sum, a->length_out, a->bias, o);
    for (int64_t i = 0; i < a->channels_in; i++) {
        const float *x = a->x + (b * a->channels_in + i) * a->length_in;
        const float *w = duet__ref_row(a->w, i, room) + o * a->kernel;
        for (int64_t s = 0; s < a->length_in; s++) {
            for (int64_t k = 0; k < a->kernel; k++) {
                int64_t t = s * a->stride + k - a->pad;
                if (t >= 0 && t < a->length_out) sum[t] += (double)w[k] * (double)x[s];
            }
        }
    }
    for (int64_t t = 0; t < a->length_out; t++) a->y[task * a->length_out + t] = (float)sum[t];
}

void duet__ref_conv1d_up(const duet_kernel_ctx *ctx, const duet_conv1d_up_args *a) {
    duet__ref_run(ctx, a, up_bytes(a), a->batch * a->channels_out, up_channel);
}
