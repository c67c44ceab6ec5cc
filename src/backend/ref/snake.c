/* snake.c - alias-free SnakeBeta: 2x up, u + sin(e^alpha u)^2 / (e^beta + 1e-9), 2x down, in double.
 *
 *     u[2m]   = 2 sum_j f[2j+1] x[m+2-j]      u[2m+1] = 2 sum_j f[2j] x[m+3-j]      j = 0..5
 *     y[m]    = sum_t g[t] v[2m+t-5]                                               t = 0..11
 * with indices clamped to the signal (replicated edges). Each output needs 12 values of v, ten of them those of the
 * output before: a window moves along, so that no second signal has to be stored. */
#include <math.h>

#include "backend/ref/ref.h"

typedef struct snake_params {
    double up[12], down[12], frequency, height;
} snake_params;

static int64_t clamp_index(int64_t i, int64_t n) {
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* Sample i of the upsampled signal, after the activation. */
static double activated(const snake_params *p, const float *x, int64_t length, int64_t i) {
    i = clamp_index(i, 2 * length);
    int64_t m = i / 2, odd = i % 2;
    double u = 0;
    for (int64_t j = 0; j < 6; j++)
        u += p->up[2 * j + 1 - odd] * (double)x[clamp_index(m + 2 + odd - j, length)];
    u *= 2.0;
    double s = sin(p->frequency * u);
    return u + s * s * p->height;
}

static void snake_channel(void *arg, int64_t task, int thread) {
    (void)thread;
    const duet_snake_aa_args *a = ((const ref_job *)arg)->args;
    int64_t c = task % a->channels;
    const float *x = a->x + task * a->length;
    snake_params p = {.frequency = exp((double)duet__ref_value(a->alpha, c)),
                      .height = 1.0 / (exp((double)duet__ref_value(a->beta, c)) + 1e-9)};
    for (int i = 0; i < 12; i++) {
        p.up[i] = (double)duet__ref_value(a->up_filter, i);
        p.down[i] = (double)duet__ref_value(a->down_filter, i);
    }
    double v[12]; /* v[2m-5] .. v[2m+6] */
    for (int64_t t = 2; t < 12; t++) v[t] = activated(&p, x, a->length, t - 7);
    for (int64_t m = 0; m < a->length; m++) {
        double sum = 0;
        memmove(v, v + 2, 10 * sizeof *v);
        v[10] = activated(&p, x, a->length, 2 * m + 5);
        v[11] = activated(&p, x, a->length, 2 * m + 6);
        for (int64_t t = 0; t < 12; t++) sum += p.down[t] * v[t];
        a->y[task * a->length + m] = (float)sum;
    }
}

void duet__ref_snake_aa(const duet_kernel_ctx *ctx, const duet_snake_aa_args *a) {
    duet__ref_run(ctx, a, 0, a->batch * a->channels, snake_channel);
}
