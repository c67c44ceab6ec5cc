/* ref.h - between the reference kernels: reading weights, summing, handing out rows.
 *
 * The reference is the specification: scalar, readable, sums in double. Two classes of op:
 *   exact    elementwise ops in fp32, each operation rounded once, in the order of the formula in ops.h;
 * every backend must give the same bits (modulate, gated_add, rope, euler, blends, pixels, copies...) rounded
 * reductions and transcendentals, computed in double and rounded once at the end; faster backends get an
 * error budget (linear, norms, attention, silu, convolutions, snake) The pool is used across rows or channels
 * only, so it cannot change bits. */
#ifndef DUET_BACKEND_REF_H
#define DUET_BACKEND_REF_H

#include "backend/device_int.h"

/* What a task gets: the arguments and its context. */
typedef struct ref_job {
    const void *args;
    char *scratch;
    size_t thread_bytes; /* scratch per thread */
} ref_job;

/* Canonical row of a weight as fp32: in place when stored so, else widened into `room` (row_elems floats). */
const float *duet__ref_row(const duet_weight *w, int64_t row, float *room);
/* One element of a rank 1 or scalar-like weight (bias, gain), widened. */
float duet__ref_value(const duet_weight *w, int64_t i);

/* sum a[i]*b[i] in double; four interleaved partial sums, in a fixed order. */
double duet__ref_dot(const float *a, const float *b, int64_t n);

/* fn(job, task, thread) for all tasks on the context's pool. */
static inline void duet__ref_run(const duet_kernel_ctx *ctx, const void *args, size_t thread_bytes,
                                 int64_t n_tasks, duet_task_fn fn) {
    ref_job job = {.args = args, .scratch = ctx->scratch, .thread_bytes = thread_bytes};
    duet_pool_run(ctx->pool, n_tasks, fn, &job);
}

static inline void *duet__ref_room(const ref_job *job, int thread) {
    return job->scratch + job->thread_bytes * (size_t)thread;
}

static inline size_t duet__ref_round64(int64_t bytes) {
    return ((size_t)bytes + 63) / 64 * 64;
}

/* Every kernel of ref/, declared from the table. */
#define DUET_OP(name, ptrs, weights)                                                                         \
    void duet__ref_##name(const duet_kernel_ctx *, const duet_##name##_args *);
#include "backend/ops.def"
#undef DUET_OP

size_t duet__ref_linear_scratch(const duet_linear_args *a, int n_threads);
size_t duet__ref_attention_scratch(const duet_attention_args *a, int n_threads);
size_t duet__ref_conv1d_scratch(const duet_conv1d_args *a, int n_threads);
size_t duet__ref_conv1d_up_scratch(const duet_conv1d_up_args *a, int n_threads);

#endif
