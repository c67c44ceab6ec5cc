/* snake_kernel.h - alias-free SnakeBeta in one pass: the 2x signal lives in a tile of registers' worth of stack.
 *
 *     v[2m]   = act(2 sum_j f[2j+1] x[m+2-j])   "even"      v[2m+1] = act(2 sum_j f[2j] x[m+3-j])   "odd"
 *     y[m]    = sum_j g[2j+1] even[m+j-2] + g[2j] odd[m+j-3]                                       j = 0..5
 *
 * so with even and odd samples apart every access is contiguous. The signal repeats its first and last sample, on
 * both rates: samples of v before the start are even[0], behind the end odd[length-1].
 *
 * sin(z)^2 needs no sign: z is reduced to [-pi/2, pi/2] by a three-part pi, valid to |z| of some ten thousand; a
 * vector with anything larger (or not finite) takes the library's sine in double. */
#ifndef DUET_CPU_SNAKE_KERNEL_H
#define DUET_CPU_SNAKE_KERNEL_H

#include <math.h>

#include "backend/cpu/tile_kernel.h"

enum { SNAKE_TILE = 512, SNAKE_EDGE = 3, SNAKE_ROOM = SNAKE_TILE + 2 * SNAKE_EDGE + 2 * VL };

typedef struct snake_plan {
    const duet_snake_aa_args *a;
    const float *alpha, *beta;
    float up[12], down[12];
    int64_t tiles;
} snake_plan;

INLINE vf sin_squared(vf z) {
    if (vf_any_beyond(z, 20000.0f)) {
        float room[VL];
        vf_store(room, z);
        for (int i = 0; i < VL; i++) {
            double s = sin((double)room[i]);
            room[i] = (float)(s * s);
        }
        return vf_load(room);
    }
    vf n = vf_round(vf_mul(z, vf_set(0.318309886183790671f)));
    vf r = vf_fnma(n, vf_set(3.140625f), z);
    r = vf_fnma(n, vf_set(9.67502593994140625e-4f), r);
    r = vf_fnma(n, vf_set(1.50995798975374e-7f), r);
    vf q = vf_mul(r, r), p = vf_set(-2.50521083854417e-8f);
    p = vf_fma(p, q, vf_set(2.75573192239859e-6f));
    p = vf_fma(p, q, vf_set(-1.98412698412698e-4f));
    p = vf_fma(p, q, vf_set(8.33333333333333e-3f));
    p = vf_fma(p, q, vf_set(-1.66666666666667e-1f));
    vf s = vf_fma(vf_mul(p, q), r, r);
    return vf_mul(s, s);
}

/* n (rounded up to vectors) activated samples: 2 sum_j f[2j] x[m - j]. */
static void upsample(const float *x, const float *f, float *v, int64_t n, vf frequency, vf height) {
    for (int64_t m = 0; m < n; m += VL) {
        vf u = vf_zero();
        for (int j = 0; j < 6; j++) u = vf_fma(vf_set(f[2 * j]), vf_load(x + m - j), u);
        u = vf_add(u, u);
        vf_store(v + m, vf_fma(height, sin_squared(vf_mul(frequency, u)), u));
    }
}

/* Samples first .. first+n of a repeated-edge signal of some length. */
static void copy_repeated(float *dst, const float *x, int64_t length, int64_t first, int64_t n) {
    int64_t lead = min_i64(n, max_i64(0, -first)), inside = max_i64(0, min_i64(n, length - first) - lead);
    for (int64_t i = 0; i < lead; i++) dst[i] = x[0];
    memcpy(dst + lead, x + first + lead, (size_t)inside * 4);
    for (int64_t i = lead + inside; i < n; i++) dst[i] = x[length - 1];
}

static void snake_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const snake_plan *p = arg;
    const duet_snake_aa_args *a = p->a;
    int64_t row = task / p->tiles, c = row % a->channels, first = task % p->tiles * SNAKE_TILE;
    int64_t n = min_i64(SNAKE_TILE, a->length - first), wide = n + 2 * SNAKE_EDGE;
    float x[SNAKE_ROOM + 2 * SNAKE_EDGE] = {0}, even[SNAKE_ROOM], odd[SNAKE_ROOM];
    vf frequency = vf_set((float)exp((double)p->alpha[c]));
    vf height = vf_set((float)(1.0 / (exp((double)p->beta[c]) + 1e-9)));
    /* x[i] is sample first + i - 6; even[i], odd[i] are at first + i - 3 */
    copy_repeated(x, a->x + row * a->length, a->length, first - 2 * SNAKE_EDGE, n + 4 * SNAKE_EDGE);
    upsample(x + 5, p->up + 1, even, wide, frequency, height);
    upsample(x + 6, p->up, odd, wide, frequency, height);
    for (int64_t i = 0; i < SNAKE_EDGE && first + i < SNAKE_EDGE; i++)
        even[i] = odd[i] = even[SNAKE_EDGE - first];
    int64_t end = a->length - first + SNAKE_EDGE; /* where samples behind the signal begin */
    for (int64_t i = max_i64(0, end); i < wide; i++) even[i] = odd[i] = odd[end - 1];
    float *y = a->y + row * a->length + first;
    for (int64_t m = 0; m < n; m += VL) {
        vf sum = vf_zero();
        for (int j = 0; j < 6; j++) {
            sum = vf_fma(vf_set(p->down[2 * j]), vf_load(odd + m + j), sum);
            sum = vf_fma(vf_set(p->down[2 * j + 1]), vf_load(even + m + j + 1), sum);
        }
        store_cols(y + m, sum, n - m);
    }
}

static size_t snake_scratch(const duet_snake_aa_args *a, int n_threads) {
    (void)n_threads;
    return 2 * round64(a->channels * 4);
}

static void snake_run(const duet_kernel_ctx *ctx, const duet_snake_aa_args *a) {
    snake_plan p = {.a = a, .tiles = ceil_div(a->length, SNAKE_TILE)};
    float room[12];
    memcpy(p.up, vector_weight(a->up_filter, 12, room), sizeof p.up);
    memcpy(p.down, vector_weight(a->down_filter, 12, room), sizeof p.down);
    p.alpha = vector_weight(a->alpha, a->channels, ctx->scratch);
    p.beta = vector_weight(a->beta, a->channels, (float *)((char *)ctx->scratch + round64(a->channels * 4)));
    duet_pool_run(ctx->pool, a->batch * a->channels * p.tiles, snake_task, &p);
}

#endif
