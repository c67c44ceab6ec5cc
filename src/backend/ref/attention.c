/* attention.c - softmax(scale q k^T) v within segments: plain two-pass softmax in double.
 *
 * A task is one row of one head. Its output is collected aside before it is written, because o may lie where
 * q lies. */
#include <math.h>

#include "backend/ref/ref.h"

static size_t row_bytes(const duet_attention_args *a) {
    return duet__ref_round64((a->rows + a->head_dim) * 8);
}

size_t duet__ref_attention_scratch(const duet_attention_args *a, int n_threads) {
    return row_bytes(a) * (size_t)n_threads;
}

/* Keys that row r sees: first .. end. */
static void visible(const duet_attention_args *a, int64_t r, int64_t *first, int64_t *end) {
    *first = 0, *end = a->rows;
    for (int64_t s = 0; a->seg_end_row && s < a->n_seg; s++) {
        *end = a->seg_end_row[s];
        if (r < *end) break;
        *first = *end;
    }
    if (a->causal) *end = r + 1;
}

static void attention_row(void *arg, int64_t task, int thread) {
    const ref_job *job = arg;
    const duet_attention_args *a = job->args;
    int64_t r = task / a->heads, h = task % a->heads, kv = h / (a->heads / a->kv_heads), first, end;
    double *score = duet__ref_room(job, thread), *sum = score + a->rows, best = -INFINITY, total = 0;
    const float *q = a->q + r * a->q_stride + h * a->q_head_stride;
    visible(a, r, &first, &end);
    for (int64_t j = first; j < end; j++) {
        const float *k = a->k + j * a->k_stride + kv * a->k_head_stride;
        score[j] = (double)a->scale * duet__ref_dot(q, k, a->head_dim);
        if (score[j] > best) best = score[j];
    }
    for (int64_t d = 0; d < a->head_dim; d++) sum[d] = 0;
    for (int64_t j = first; j < end; j++) {
        const float *v = a->v + j * a->v_stride + kv * a->v_head_stride;
        double p = exp(score[j] - best);
        total += p;
        for (int64_t d = 0; d < a->head_dim; d++) sum[d] += p * (double)v[d];
    }
    float *o = a->o + r * a->o_stride + h * a->o_head_stride;
    for (int64_t d = 0; d < a->head_dim; d++) o[d] = (float)(sum[d] / total);
}

void duet__ref_attention(const duet_kernel_ctx *ctx, const duet_attention_args *a) {
    duet__ref_run(ctx, a, row_bytes(a), a->rows * a->heads, attention_row);
}
