/* tensor.h - element types, shapes and half-precision conversion. No computation, no ownership.
 *
 * A shape lists dimensions outermost first; data is always contiguous row-major unless an op takes explicit
 * strides. */
#ifndef DUET_TENSOR_TENSOR_H
#define DUET_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* id, safetensors name, bytes per element. F32 is zero on purpose: a zeroed argument struct means fp32. */
#define DUET_DTYPES(T)                                                                                       \
    T(F32, "F32", 4)                                                                                         \
    T(BF16, "BF16", 2)                                                                                       \
    T(F16, "F16", 2)                                                                                         \
    T(F64, "F64", 8)                                                                                         \
    T(F8_E4M3, "F8_E4M3", 1)                                                                                 \
    T(F8_E5M2, "F8_E5M2", 1)                                                                                 \
    T(F8_E8M0, "F8_E8M0", 1)                                                                                 \
    T(I8, "I8", 1)                                                                                           \
    T(U8, "U8", 1)                                                                                           \
    T(I16, "I16", 2)                                                                                         \
    T(I32, "I32", 4)                                                                                         \
    T(I64, "I64", 8)                                                                                         \
    T(BOOL, "BOOL", 1)

typedef enum duet_dtype {
#define T(id, name, bytes) DUET_##id,
    DUET_DTYPES(T)
#undef T
        DUET_N_DTYPES
} duet_dtype;

enum { DUET_MAX_RANK = 6 };

typedef struct duet_shape {
    int rank; /* 0 = scalar */
    int64_t dim[DUET_MAX_RANK];
} duet_shape;

const char *duet_dtype_name(duet_dtype dtype); /* safetensors spelling */
size_t duet_dtype_bytes(duet_dtype dtype);
bool duet_dtype_parse(const char *name, duet_dtype *out);
bool duet_shape_elems(const duet_shape *shape, int64_t *out); /* false: negative dimension or overflow */
bool duet_shape_equal(const duet_shape *a, const duet_shape *b);
/* "[2, 3, 4]" into buf; returns buf. */
const char *duet_shape_text(const duet_shape *shape, char *buf, size_t buf_bytes);

#define DUET_SHAPE(...)                                                                                      \
    ((duet_shape){.rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .dim = {__VA_ARGS__}})

static inline float duet_bf16_to_f32(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Round to nearest even; NaN stays NaN. */
static inline uint16_t duet_f32_to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    bits += 0x7fffu + ((bits >> 16) & 1u);
    return (uint16_t)(bits >> 16);
}

float duet_f16_to_f32(uint16_t bits);
uint16_t duet_f32_to_f16(float value); /* round to nearest even, overflow to infinity */

/* Widen n elements of a floating dtype (F32, BF16, F16, F64) to fp32. `src` may be unaligned. false: not a
 * floating dtype. */
bool duet_widen_to_f32(duet_dtype dtype, const void *src, int64_t n_elems, float *dst);

#endif
