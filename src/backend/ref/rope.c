/* rope.c - rotate-half in place; products and sum rounded one by one (exact op). */
#include "backend/ref/ref.h"

static void rope_row(void *arg, int64_t r, int thread) {
    (void)thread;
    const duet_rope_args *a = ((const ref_job *)arg)->args;
    const float *c = a->cos + r * a->pairs, *s = a->sin + r * a->pairs;
    for (int64_t h = 0; h < a->heads; h++) {
        float *lo = a->x + r * a->x_stride + h * a->head_stride, *hi = lo + a->pairs;
        for (int64_t j = 0; j < a->pairs; j++) {
            float x = lo[j], y = hi[j];
            lo[j] = x * c[j] - y * s[j];
            hi[j] = y * c[j] + x * s[j];
        }
    }
}

void duet__ref_rope(const duet_kernel_ctx *ctx, const duet_rope_args *a) {
    duet__ref_run(ctx, a, 0, a->rows, rope_row);
}
