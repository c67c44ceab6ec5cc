/* tile_kernel.h - the one inner loop under products, attention and convolutions, and the packing that feeds it.
 *
 *     acc[r][c] = sum over k of a(r, k) * b(k, c)          r < mr <= MR rows, c < nv*VL columns
 *
 * Accumulators stay in registers (14 x 2 vectors on AVX-512, 6 x 2 on AVX2), b is loaded as vectors, a is broadcast.
 * The reduction is two nested loops, because convolutions walk channels and taps; products use one of them. Each
 * value is one chain of fused multiply-adds in ascending order: no tile size can change its bits. */
#ifndef DUET_CPU_TILE_KERNEL_H
#define DUET_CPU_TILE_KERNEL_H

#include "backend/cpu/cpu_int.h"

#if defined(__AVX512F__)
enum { MR = 14 };
#else
enum { MR = 6 };
#endif
enum { NV = 2, NR = NV * VL };

/* Keys per step of attention; also the row distance of its probabilities, which the rows form below knows at
 * compile time. */
enum { KEY_TILE = 128 };

typedef struct tile_args {
    const float *a, *b;
    int64_t a_step, a_skip;   /* distance of a's columns; what is left out after each inner loop */
    int64_t n_outer, n_inner; /* reduction length = n_outer * n_inner */
    int64_t b_outer, b_inner; /* b's step in either loop */
    float *y;
    int64_t y_stride, cols; /* valid columns, <= nv*VL */
    bool accumulate;        /* start from y (times row_scale) instead of zero */
    const float *row_scale; /* [mr] or NULL */
    const float *row_bias;  /* [mr] added at the end, or NULL */
    const float *col_bias;  /* [cols] added at the end, or NULL */
    const float *add;       /* as y, added at the end, or NULL; may be y */
} tile_args;

INLINE vf load_cols(const float *p, int64_t n) {
    return n >= VL ? vf_load(p) : vf_load_n(p, max_i64(n, 0));
}

INLINE void store_cols(float *p, vf v, int64_t n) {
    if (n >= VL)
        vf_store(p, v);
    else if (n > 0)
        vf_store_n(p, v, n);
}

INLINE void tile_begin(const int mr, const int nv, vf *acc, const tile_args *t) {
    UNROLL
    for (int r = 0; r < mr; r++) {
        UNROLL
        for (int v = 0; v < nv; v++) {
            if (!t->accumulate) {
                acc[r * nv + v] = vf_zero();
                continue;
            }
            vf old = load_cols(t->y + r * t->y_stride + v * VL, t->cols - v * VL);
            acc[r * nv + v] = t->row_scale ? vf_mul(old, vf_set(t->row_scale[r])) : old;
        }
    }
}

/* a_row: distance of a's rows, a constant wherever this is used. */
INLINE void tile_reduce(const int mr, const int nv, const int a_row, vf *acc, const tile_args *t) {
    const float *a = t->a, *outer = t->b;
    for (int64_t i = 0; i < t->n_outer; i++, outer += t->b_outer, a += t->a_skip) {
        const float *b = outer;
        for (int64_t k = 0; k < t->n_inner; k++, b += t->b_inner, a += t->a_step) {
            vf column[NV];
            UNROLL
            for (int v = 0; v < nv; v++) column[v] = vf_load(b + v * VL);
            UNROLL
            for (int r = 0; r < mr; r++) {
                vf row = vf_set(a[r * a_row]);
                UNROLL
                for (int v = 0; v < nv; v++) acc[r * nv + v] = vf_fma(row, column[v], acc[r * nv + v]);
            }
        }
    }
}

INLINE void tile_end(const int mr, const int nv, const vf *acc, const tile_args *t) {
    UNROLL
    for (int r = 0; r < mr; r++) {
        UNROLL
        for (int v = 0; v < nv; v++) {
            vf sum = acc[r * nv + v];
            int64_t n = t->cols - v * VL, at = r * t->y_stride + v * VL;
            if (t->row_bias) sum = vf_add(sum, vf_set(t->row_bias[r]));
            if (t->col_bias) sum = vf_add(sum, load_cols(t->col_bias + v * VL, n));
            if (t->add) sum = vf_add(sum, load_cols(t->add + at, n));
            store_cols(t->y + at, sum, n);
        }
    }
}

INLINE void tile_body(const int mr, const int nv, const int a_row, const tile_args *t) {
    vf acc[MR * NV];
    tile_begin(mr, nv, acc, t);
    tile_reduce(mr, nv, a_row, acc, t);
    tile_end(mr, nv, acc, t);
}

#if defined(__AVX512F__)
#define EACH_MR(T) T(1) T(2) T(3) T(4) T(5) T(6) T(7) T(8) T(9) T(10) T(11) T(12) T(13) T(14)
#else
#define EACH_MR(T) T(1) T(2) T(3) T(4) T(5) T(6)
#endif

#define T(mr)                                                                                                \
    static void packed_##mr##_1(const tile_args *t) {                                                        \
        tile_body(mr, 1, 1, t);                                                                              \
    }                                                                                                        \
    static void packed_##mr##_2(const tile_args *t) {                                                        \
        tile_body(mr, 2, 1, t);                                                                              \
    }                                                                                                        \
    static void rows_##mr##_1(const tile_args *t) {                                                          \
        tile_body(mr, 1, KEY_TILE, t);                                                                       \
    }                                                                                                        \
    static void rows_##mr##_2(const tile_args *t) {                                                          \
        tile_body(mr, 2, KEY_TILE, t);                                                                       \
    }
EACH_MR(T)
#undef T

typedef void (*tile_fn)(const tile_args *);

/* a packed: its rows lie next to each other. mr rows, enough vectors for `cols` columns. */
INLINE void tile_packed(int64_t mr, const tile_args *t) {
#define T(mr) {packed_##mr##_1, packed_##mr##_2},
    static const tile_fn fns[][2] = {EACH_MR(T)};
#undef T
    fns[mr - 1][t->cols > VL](t);
}

/* a in rows that are KEY_TILE apart. */
INLINE void tile_rows(int64_t mr, const tile_args *t) {
#define T(mr) {rows_##mr##_1, rows_##mr##_2},
    static const tile_fn fns[][2] = {EACH_MR(T)};
#undef T
    fns[mr - 1][t->cols > VL](t);
}

/* ---- packing */

/* n <= VL elements of a stored row, widened; zeros beyond. */
INLINE vf load_widened(duet_dtype dtype, const void *p, int64_t n) {
    if (dtype == DUET_F32) return load_cols(p, n);
    if (n == VL && dtype == DUET_BF16) return vf_load_bf16(p);
    if (n == VL && dtype == DUET_F16) return vf_load_f16(p);
    float room[VL] = {0};
    duet_widen_to_f32(dtype, p, n, room);
    return vf_load(room);
}

/* Interleave up to VL rows: dst[k*step + i] = rows[i][k] for k < n, i < min(step, VL); rows that are NULL give
 * zeros. Vectors are stored whole where later ones overwrite the excess, so nothing behind dst[n*step] is touched. */
INLINE void pack_rows(float *dst, int64_t step, duet_dtype dtype, const void *const *rows, int64_t n) {
    size_t bytes = duet_dtype_bytes(dtype);
    for (int64_t k = 0; k < n; k += VL) {
        int64_t some = min_i64(VL, n - k);
        vf block[VL];
        for (int i = 0; i < VL; i++)
            block[i] =
                rows[i] ? load_widened(dtype, (const char *)rows[i] + (size_t)k * bytes, some) : vf_zero();
        vf_transpose(block);
        if (step >= VL || k + 2 * VL < n) {
            for (int j = 0; j < some; j++) vf_store(dst + (k + j) * step, block[j]);
        } else {
            for (int j = 0; j < some; j++) vf_store_n(dst + (k + j) * step, block[j], step);
        }
    }
}

#endif
