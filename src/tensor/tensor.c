/* tensor.c - dtype table, shape arithmetic with overflow checks, half-precision conversion. */
#include "tensor/tensor.h"

#include <stdio.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
#define T(id, name, bytes) {name, bytes},
    DUET_DTYPES(T)
#undef T
};

const char *duet_dtype_name(duet_dtype dtype) {
    return dtypes[dtype].name;
}
size_t duet_dtype_bytes(duet_dtype dtype) {
    return dtypes[dtype].bytes;
}

bool duet_dtype_parse(const char *name, duet_dtype *out) {
    for (int i = 0; i < DUET_N_DTYPES; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            *out = (duet_dtype)i;
            return true;
        }
    }
    return false;
}

bool duet_shape_elems(const duet_shape *shape, int64_t *out) {
    int64_t n = 1;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] < 0 || __builtin_mul_overflow(n, shape->dim[i], &n)) return false;
    }
    *out = n;
    return true;
}

bool duet_shape_equal(const duet_shape *a, const duet_shape *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

const char *duet_shape_text(const duet_shape *shape, char *buf, size_t buf_bytes) {
    size_t used = (size_t)snprintf(buf, buf_bytes, "[");
    for (int i = 0; i < shape->rank && used < buf_bytes; i++)
        used +=
            (size_t)snprintf(buf + used, buf_bytes - used, i ? ", %lld" : "%lld", (long long)shape->dim[i]);
    if (used < buf_bytes) snprintf(buf + used, buf_bytes - used, "]");
    return buf;
}

float duet_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 1023u, bits;
    if (exponent == 31) {
        bits = sign | 0x7f800000u | (mantissa << 13);
    } else if (exponent) {
        bits = sign | ((exponent + 112) << 23) | (mantissa << 13);
    } else {
        float tiny = (float)mantissa * 0x1p-24f; /* subnormal: exact in fp32 */
        memcpy(&bits, &tiny, sizeof bits);
        bits |= sign;
    }
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint16_t duet_f32_to_f16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above round to infinity */
    if (magnitude < 0x38800000u) { /* subnormal half: let fp32 do the rounding */
        float scaled;
        memcpy(&scaled, &magnitude, sizeof scaled);
        scaled += 0.5f; /* ulp of 0.5 is 2^-24, the spacing of subnormal halves */
        uint32_t rounded;
        memcpy(&rounded, &scaled, sizeof rounded);
        return (uint16_t)(sign | (rounded - 0x3f000000u));
    }
    magnitude += 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((magnitude - 0x38000000u) >> 13));
}

bool duet_widen_to_f32(duet_dtype dtype, const void *src, int64_t n_elems, float *dst) {
    const char *bytes = src;
    switch (dtype) {
    case DUET_F32:
        memcpy(dst, src, (size_t)n_elems * sizeof *dst);
        return true;
    case DUET_BF16:
    case DUET_F16:
        for (int64_t i = 0; i < n_elems; i++) {
            uint16_t half;
            memcpy(&half, bytes + 2 * i, sizeof half);
            dst[i] = dtype == DUET_BF16 ? duet_bf16_to_f32(half) : duet_f16_to_f32(half);
        }
        return true;
    case DUET_F64:
        for (int64_t i = 0; i < n_elems; i++) {
            double wide;
            memcpy(&wide, bytes + 8 * i, sizeof wide);
            dst[i] = (float)wide;
        }
        return true;
    default:
        return false;
    }
}
