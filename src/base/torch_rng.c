/* torch_rng.c - torch.randn on a CPU, reproduced bit for bit (spec model-dit 10.2).
 *
 *     MT19937 -> one 32-bit output per value -> uniform in 24 bits -> blocks of 16 -> Box-Muller
 *
 * 1. The form that torch runs on AVX2 and later, written in scalar C: its logarithm, sine and cosine are the
 * Cephes single-precision polynomials with fused multiply-adds, spelled fmaf here. The order of every
 * operation matters and the build must not contract products (-ffp-contract=off), so the bits are the same on
 * every processor.
 * 2. In a block of 16 the first eight uniforms give radii, the last eight give angles; cosines go to the
 * first half.
 * 3. A length that is no multiple of 16 redraws its last 16 values.
 * 4. Fewer than 16 values are made one by one in double precision, with a spare that survives large draws. */
#include "base/torch_rng.h"

#include <math.h>
#include <string.h>

enum { MT_WORDS = 624, MT_SHIFT = 397, BLOCK = 16, HALF = 8 };

/* ---- MT19937 ---- */

void duet_torch_rng_seed(duet_torch_rng *rng, uint64_t seed) {
    rng->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < MT_WORDS; i++) {
        uint32_t last = rng->state[i - 1];
        rng->state[i] = 1812433253u * (last ^ (last >> 30)) + i;
    }
    rng->index = MT_WORDS;
    rng->has_spare = false;
    rng->spare = 0.0;
}

static void twist(uint32_t *s) {
    for (int i = 0; i < MT_WORDS; i++) {
        uint32_t mixed = (s[i] & 0x80000000u) | (s[(i + 1) % MT_WORDS] & 0x7fffffffu);
        s[i] = s[(i + MT_SHIFT) % MT_WORDS] ^ (mixed >> 1) ^ (mixed & 1 ? 0x9908b0dfu : 0);
    }
}

uint32_t duet_torch_rng_next_u32(duet_torch_rng *rng) {
    if (rng->index >= MT_WORDS) {
        twist(rng->state);
        rng->index = 0;
    }
    uint32_t y = rng->state[rng->index++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

static float next_uniform(duet_torch_rng *rng) {
    return (float)(duet_torch_rng_next_u32(rng) & 0xffffffu) * 0x1p-24f;
}

/* ---- single-precision functions; arguments are in the ranges that Box-Muller needs ---- */

/* ln x for normal positive x. */
static float cephes_log(float x) {
    static const float p[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                              -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                              2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
    if (x < 0x1p-126f) x = 0x1p-126f;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    float e = (float)((int32_t)(bits >> 23) - 127) + 1.0f;
    bits = (bits & 0x007fffffu) | 0x3f000000u;
    float m;
    memcpy(&m, &bits, sizeof m);
    x = m - 1.0f;
    if (m < 0.707106781186547524f) { /* keep x within +-0.3; subtracting first loses no bit of m */
        e -= 1.0f;
        x += m;
    }
    float z = x * x, y = p[0];
    for (int i = 1; i < 9; i++) y = fmaf(y, x, p[i]);
    y *= x;
    y = fmaf(y, z, e * -2.12194440e-4f);
    y = fmaf(z, -0.5f, y);
    x += y;
    return fmaf(e, 0.693359375f, x);
}

/* Sine and cosine of 0 <= x < 2 pi. */
static void cephes_sincos(float x, float *sine, float *cosine) {
    int32_t j = ((int32_t)(x * 1.27323954473516f) + 1) & ~1; /* octant, made even */
    float octant = (float)j;
    x = fmaf(octant, -0.78515625f, x);
    x = fmaf(octant, -2.4187564849853515625e-4f, x);
    x = fmaf(octant, -3.77489497744594108e-8f, x);
    float z = x * x;

    float c = fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f);
    c = fmaf(c, z, 4.166664568298827e-2f) * z;
    c = fmaf(c, z, -(z * 0.5f)) + 1.0f;

    float s = fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f);
    s = fmaf(s, z, -1.6666654611e-1f) * z;
    s = fmaf(s, x, x);

    bool swapped = (j & 2) != 0;
    float sin_size = swapped ? c : s, cos_size = swapped ? s : c;
    *sine = j & 4 ? -sin_size : sin_size;
    *cosine = (j - 2) & 4 ? cos_size : -cos_size;
}

/* ---- draws ---- */

static void box_muller_block(float *d) {
    for (int j = 0; j < HALF; j++) {
        float u1 = 1.0f - d[j], u2 = d[j + HALF];
        float radius = sqrtf(-2.0f * cephes_log(u1));
        float sine, cosine;
        cephes_sincos(6.283185307179586f * u2, &sine, &cosine);
        d[j] = radius * cosine;
        d[j + HALF] = radius * sine;
    }
}

static double next_uniform53(duet_torch_rng *rng) {
    uint64_t high = duet_torch_rng_next_u32(rng);
    uint64_t word = high << 32 | duet_torch_rng_next_u32(rng);
    return (double)(word & 0x1fffffffffffffu) * 0x1p-53;
}

static float next_small(duet_torch_rng *rng) {
    if (rng->has_spare) {
        rng->has_spare = false;
        return (float)rng->spare;
    }
    double u1 = next_uniform53(rng), u2 = next_uniform53(rng);
    double radius = sqrt(-2.0 * log1p(-u2)), angle = 2.0 * 3.14159265358979323846 * u1;
    rng->spare = radius * sin(angle);
    rng->has_spare = true;
    return (float)(radius * cos(angle));
}

void duet_torch_randn(duet_torch_rng *rng, float *out, int64_t n) {
    if (n < BLOCK) {
        for (int64_t i = 0; i < n; i++) out[i] = next_small(rng);
        return;
    }
    for (int64_t i = 0; i < n; i++) out[i] = next_uniform(rng);
    for (int64_t i = 0; i + BLOCK <= n; i += BLOCK) box_muller_block(out + i);
    if (n % BLOCK == 0) return;
    float *last = out + n - BLOCK;
    for (int i = 0; i < BLOCK; i++) last[i] = next_uniform(rng);
    box_muller_block(last);
}
