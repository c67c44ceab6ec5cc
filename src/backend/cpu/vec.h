/* vec.h - one small vector vocabulary for two instruction levels; kernels are written once against it.
 *
 * The level is that of the including file (CMake gives *_avx2.c and *_avx512.c their flags). VL lanes of fp32.
 * `_n` forms touch the first n lanes (0 <= n <= VL) and read zeros beyond; memory behind lane n is never touched.
 * vf_max and vf_min return their second argument when either is a NaN, as the instructions do. */
#ifndef DUET_CPU_VEC_H
#define DUET_CPU_VEC_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline, unused))

/* Before a loop with a small constant count that must become straight code (accumulators stay in registers). */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__AVX512F__)

enum { VL = 16 };
typedef __m512 vf;

INLINE vf vf_zero(void) {
    return _mm512_setzero_ps();
}
INLINE vf vf_set(float x) {
    return _mm512_set1_ps(x);
}
INLINE vf vf_load(const float *p) {
    return _mm512_loadu_ps(p);
}
INLINE void vf_store(float *p, vf v) {
    _mm512_storeu_ps(p, v);
}
INLINE __mmask16 vf_lanes(int64_t n) {
    return (__mmask16)((1u << n) - 1u);
}
INLINE vf vf_load_n(const float *p, int64_t n) {
    return _mm512_maskz_loadu_ps(vf_lanes(n), p);
}
INLINE void vf_store_n(float *p, vf v, int64_t n) {
    _mm512_mask_storeu_ps(p, vf_lanes(n), v);
}
INLINE vf vf_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}
INLINE vf vf_sub(vf a, vf b) {
    return _mm512_sub_ps(a, b);
}
INLINE vf vf_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
INLINE vf vf_div(vf a, vf b) {
    return _mm512_div_ps(a, b);
}
INLINE vf vf_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}
INLINE vf vf_fnma(vf a, vf b, vf c) {
    return _mm512_fnmadd_ps(a, b, c);
}
INLINE vf vf_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
}
INLINE vf vf_min(vf a, vf b) {
    return _mm512_min_ps(a, b);
}
INLINE vf vf_round(vf a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* a * 2^n, n integral */
INLINE vf vf_scale2(vf a, vf n) {
    return _mm512_scalef_ps(a, n);
}
/* Any lane with |a| > limit, or a NaN? */
INLINE int vf_any_beyond(vf a, float limit) {
    return _mm512_cmp_ps_mask(_mm512_abs_ps(a), _mm512_set1_ps(limit), _CMP_NLE_UQ) != 0;
}
INLINE float vf_sum(vf a) {
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a),
                                _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)));
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}
INLINE float vf_top(vf a) {
    return _mm512_reduce_max_ps(a);
}
/* Rounded to nearest even. */
INLINE void vf_store_i32(int32_t *p, vf v) {
    _mm512_storeu_si512(p, _mm512_cvtps_epi32(v));
}
INLINE vf vf_load_bf16(const void *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
INLINE vf vf_load_f16(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

/* Rows become columns: lane j of row i goes to lane i of row j. */
INLINE void vf_transpose(vf r[16]) {
    __m512 t[16];
    for (int i = 0; i < 16; i += 4) { /* 2x2 and 4x4 blocks inside each 128-bit lane */
        __m512 a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
        __m512 c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    for (int i = 0; i < 4; i++) { /* a 4x4 transpose of the 128-bit lanes */
        __m512 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        __m512 c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88),
               d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
        r[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

#elif defined(__AVX2__)

enum { VL = 8 };
typedef __m256 vf;

INLINE vf vf_zero(void) {
    return _mm256_setzero_ps();
}
INLINE vf vf_set(float x) {
    return _mm256_set1_ps(x);
}
INLINE vf vf_load(const float *p) {
    return _mm256_loadu_ps(p);
}
INLINE void vf_store(float *p, vf v) {
    _mm256_storeu_ps(p, v);
}
INLINE __m256i vf_lanes(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE vf vf_load_n(const float *p, int64_t n) {
    return _mm256_maskload_ps(p, vf_lanes(n));
}
INLINE void vf_store_n(float *p, vf v, int64_t n) {
    _mm256_maskstore_ps(p, vf_lanes(n), v);
}
INLINE vf vf_add(vf a, vf b) {
    return _mm256_add_ps(a, b);
}
INLINE vf vf_sub(vf a, vf b) {
    return _mm256_sub_ps(a, b);
}
INLINE vf vf_mul(vf a, vf b) {
    return _mm256_mul_ps(a, b);
}
INLINE vf vf_div(vf a, vf b) {
    return _mm256_div_ps(a, b);
}
INLINE vf vf_fma(vf a, vf b, vf c) {
    return _mm256_fmadd_ps(a, b, c);
}
INLINE vf vf_fnma(vf a, vf b, vf c) {
    return _mm256_fnmadd_ps(a, b, c);
}
INLINE vf vf_max(vf a, vf b) {
    return _mm256_max_ps(a, b);
}
INLINE vf vf_min(vf a, vf b) {
    return _mm256_min_ps(a, b);
}
INLINE vf vf_round(vf a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE vf vf_pow2(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
/* In two halves, so that 2^n itself may be out of range. */
INLINE vf vf_scale2(vf a, vf n) {
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(a, vf_pow2(half)), vf_pow2(_mm256_sub_epi32(whole, half)));
}
INLINE int vf_any_beyond(vf a, float limit) {
    __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
    return _mm256_movemask_ps(_mm256_cmp_ps(size, _mm256_set1_ps(limit), _CMP_NLE_UQ)) != 0;
}
INLINE float vf_sum(vf a) {
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}
INLINE float vf_top(vf a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
INLINE void vf_store_i32(int32_t *p, vf v) {
    _mm256_storeu_si256((__m256i *)p, _mm256_cvtps_epi32(v));
}
INLINE vf vf_load_bf16(const void *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
INLINE vf vf_load_f16(const void *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

INLINE void vf_transpose(vf r[8]) {
    __m256 t[8];
    for (int i = 0; i < 8; i += 4) {
        __m256 a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
        __m256 c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}

#endif

/* e^x within 1 ulp: x = n ln 2 + r, |r| <= ln 2 / 2, polynomial of degree 6. Overflows to infinity and underflows
 * through subnormals to zero where expf does; a NaN stays one. */
INLINE vf vf_exp(vf x) {
    x = vf_max(vf_set(-104.0f), vf_min(vf_set(89.0f), x));
    vf n = vf_round(vf_mul(x, vf_set(1.44269504088896341f)));
    vf r = vf_fnma(n, vf_set(0.693145751953125f), x); /* ln 2 in two parts, the first with few bits */
    r = vf_fnma(n, vf_set(1.42860682030941723212e-6f), r);
    vf p = vf_set(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set(5.0000001201e-1f));
    p = vf_fma(vf_mul(p, r), r, r);
    return vf_scale2(vf_add(p, vf_set(1.0f)), n);
}

/* x / (1 + e^-x) */
INLINE vf vf_silu(vf x) {
    return vf_div(x, vf_add(vf_set(1.0f), vf_exp(vf_sub(vf_zero(), x))));
}

#endif
