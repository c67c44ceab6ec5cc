/* cpu_int.h - between the vector kernels of one instruction level.
 *
 * Each *_kernel.h is written once against vec.h and included by kernels_avx2.c and kernels_avx512.c; everything in
 * it is static there. The determinism rule, as these kernels keep it: vector lanes run along an output dimension
 * (or, in norms, along a row in a fixed pattern), so each output value is one chain of operations whose order
 * depends on the reduced dimension alone. Which thread computes it, in which tile, with how many neighbours, cannot
 * change its bits. */
#ifndef DUET_CPU_INT_H
#define DUET_CPU_INT_H

#include "backend/cpu/vec.h"
#include "backend/device_int.h"

/* What a task gets. */
typedef struct job {
    const void *args;
    char *scratch;
    void *plan; /* the kernel's own view of the work */
} job;

INLINE int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
INLINE int64_t max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}
INLINE int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
INLINE size_t round64(int64_t bytes) {
    return ((size_t)bytes + 63) / 64 * 64;
}

/* fp32 values of a vector weight: where they lie, or widened into `room` (n floats). */
INLINE const float *vector_weight(const duet_weight *w, int64_t n, float *room) {
    if (w->n_pieces == 1 && w->dtype == DUET_F32 && w->piece[0].block_rows == w->piece[0].rows)
        return w->piece[0].data;
    int64_t cols = duet_weight_row_elems(w);
    for (int64_t i = 0; i < n; i += cols)
        duet_widen_to_f32(w->dtype, duet_weight_row(w, i / cols), min_i64(cols, n - i), room + i);
    return room;
}

/* Rows per task of an op that moves `cols` values per row: about 32 Ki values, so that a small op stays on the
 * calling thread. */
INLINE int64_t rows_per_task(int64_t cols) {
    return max_i64(1, 32768 / max_i64(1, cols));
}

#endif
