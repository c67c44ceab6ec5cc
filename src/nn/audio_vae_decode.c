/* audio_vae_decode.c - the forward pass of the BigVGAN decoder (spec model-vae 7.4).
 *
 *     latents -> dec_in_proj -> conv_pre -> stage 0 .. stage n-1 -> activation -> conv_post -> clamp
 *
 *     stage:  x = upsample(previous), no activation before it
 *             sum of block_j(x) over the residual kernels, divided by their number
 *     block:  h = x; for each dilation: h = h + conv2(act(conv1(act(h))))
 *
 *  1. All arrays are [2, channels, length]; left and right are a batch.
 *  2. Blocks of a stage read the same x, so x outlives them; each block works in place on h (the first of a
 *     stage directly in `sum`).
 *  3. The clamp hides an infinity: finiteness is checked before it, sameness after it. */
#include "nn/audio_vae_int.h"

#include "base/alloc.h"

#include <stdio.h>

typedef struct pass {
    duet_audio_vae *v;
    duet_stream *stream;
    duet_tap *tap;
    int64_t n; /* latents */
    duet__avae_buffers b;
} pass;

static void tap(const pass *p, const float *x, int64_t channels, int64_t length, const char *fmt, int i,
                int j) {
    char name[64];
    if (!p->tap) return;
    snprintf(name, sizeof name, fmt, i, j);
    if (!p->tap->wants(p->tap, name)) return;
    p->tap->take_device(p->tap, p->stream, name, x, DUET__STEREO * channels, length, length,
                        &DUET_SHAPE(DUET__STEREO, channels, length));
}

/* "Same" convolution with stride 1. */
static void conv(const pass *p, const duet_weight *w, const duet_weight *bias, const float *x, float *y,
                 const float *residual, int64_t in, int64_t out, int64_t length, int64_t kernel,
                 int64_t dilation) {
    duet_conv1d(p->stream, &(duet_conv1d_args){.x = x,
                                               .y = y,
                                               .residual = residual,
                                               .w = w,
                                               .bias = bias,
                                               .batch = DUET__STEREO,
                                               .channels_in = in,
                                               .channels_out = out,
                                               .length_in = length,
                                               .length_out = length,
                                               .kernel = kernel,
                                               .stride = 1,
                                               .dilation = dilation,
                                               .pad = dilation * (kernel - 1) / 2});
}

static void snake(const pass *p, const duet_weight *act, const float *x, float *y, int64_t channels,
                  int64_t length) {
    duet_snake_aa(p->stream, &(duet_snake_aa_args){.x = x,
                                                   .y = y,
                                                   .alpha = &act[ACT_ALPHA],
                                                   .beta = &act[ACT_BETA],
                                                   .up_filter = &act[ACT_UP],
                                                   .down_filter = &act[ACT_DOWN],
                                                   .batch = DUET__STEREO,
                                                   .channels = channels,
                                                   .length = length});
}

/* [2, channels, n] -> conv_pre's output in b.sum. */
static void enter(const pass *p, const float *latents) {
    const duet_avae_config *c = &p->v->config;
    const duet_weight *w = p->v->in.weight;
    int64_t bytes = DUET__STEREO * (int64_t)c->latent_channels * p->n * (int64_t)sizeof(float);
    duet_copy_in(p->stream, p->b.a, latents, bytes);
    conv(p, &w[AVAE_IN_W], &w[AVAE_IN_B], p->b.a, p->b.b, NULL, c->latent_channels, c->latent_dim, p->n, 1,
         1);
    tap(p, p->b.b, c->latent_dim, p->n, "avae.dec_in", 0, 0);
    conv(p, &w[AVAE_PRE_W], &w[AVAE_PRE_B], p->b.b, p->b.sum, NULL, c->latent_dim, c->decoder_dim, p->n,
         DUET__END_KERNEL, 1);
    tap(p, p->b.sum, c->decoder_dim, p->n, "avae.conv_pre", 0, 0);
}

static void upsample(const pass *p, int i) {
    const duet_avae_config *c = &p->v->config;
    const duet_weight *w = p->v->stages[i].weight;
    int64_t length = p->n * duet__avae_rate(c, i), rate = c->decoder_rates[i], kernel = c->decoder_kernels[i];
    duet_conv1d_up(p->stream, &(duet_conv1d_up_args){.x = p->b.sum,
                                                     .y = p->b.x,
                                                     .w = &w[AVAE_UP_W],
                                                     .bias = &w[AVAE_UP_B],
                                                     .batch = DUET__STEREO,
                                                     .channels_in = duet__avae_channels(c, i),
                                                     .channels_out = duet__avae_channels(c, i + 1),
                                                     .length_in = length,
                                                     .length_out = length * rate,
                                                     .kernel = kernel,
                                                     .stride = rate,
                                                     .pad = (kernel - rate) / 2});
    tap(p, p->b.x, duet__avae_channels(c, i + 1), length * rate, "avae.stage_%d.up", i, 0);
}

/* Residual block j of stage i: b.x -> h. */
static void residual_block(const pass *p, int i, int j, float *h) {
    const duet_avae_config *c = &p->v->config;
    const duet_weight *w = p->v->stages[i].weight + AVAE_RES + j * c->n_res_dilations * AVAE_N_RES;
    int64_t channels = duet__avae_channels(c, i + 1), length = p->n * duet__avae_rate(c, i + 1);
    int64_t kernel = c->res_kernels[j];
    const float *from = p->b.x;
    for (int d = 0; d < c->n_res_dilations; d++, w += AVAE_N_RES, from = h) {
        snake(p, &w[RES_ACT1], from, p->b.a, channels, length);
        conv(p, &w[RES_CONV1], &w[RES_CONV1 + 1], p->b.a, p->b.b, NULL, channels, channels, length, kernel,
             c->res_dilations[d]);
        snake(p, &w[RES_ACT2], p->b.b, p->b.a, channels, length);
        conv(p, &w[RES_CONV2], &w[RES_CONV2 + 1], p->b.a, h, from, channels, channels, length, kernel, 1);
    }
    tap(p, h, channels, length, "avae.stage_%d.block_%d", i, j);
}

/* b.sum -> b.sum */
static duet_status stage(const pass *p, int i, const volatile int *cancel, duet_error *err) {
    const duet_avae_config *c = &p->v->config;
    int64_t channels = duet__avae_channels(c, i + 1), length = p->n * duet__avae_rate(c, i + 1);
    int64_t values = DUET__STEREO * channels * length;
    upsample(p, i);
    for (int j = 0; j < c->n_res_kernels; j++) {
        if (cancel && *cancel) return duet_fail(err, DUET_E_CANCELLED, "cancelled");
        residual_block(p, i, j, j ? p->b.h : p->b.sum);
        float share = j == c->n_res_kernels - 1 ? 1.0f / (float)c->n_res_kernels : 1.0f;
        duet_axpby_args add = {.x = p->b.h, .y = p->b.sum, .n = values, .a = share, .b = share};
        if (j) duet_axpby(p->stream, &add);
    }
    tap(p, p->b.sum, channels, length, "avae.stage_%d.out", i, 0);
    return DUET_OK;
}

static void stats(const pass *p, const float *x, int64_t n, float *result) {
    duet_stats(p->stream, &(duet_stats_args){.x = x, .result = result, .rows = 1, .cols = n, .x_stride = n});
}

/* b.sum -> the waveform in b.b, clamped */
static void leave(const pass *p) {
    const duet_avae_config *c = &p->v->config;
    const duet_weight *w = p->v->out.weight;
    int64_t channels = duet__avae_channels(c, c->n_decoder_rates), length = p->n * c->hop;
    snake(p, &w[AVAE_POST_ACT], p->b.sum, p->b.a, channels, length);
    tap(p, p->b.a, channels, length, "avae.post", 0, 0);
    conv(p, &w[AVAE_POST_W], NULL, p->b.a, p->b.b, NULL, channels, 1, length, DUET__END_KERNEL, 1);
    if (p->tap && p->tap->wants(p->tap, "avae.wave"))
        p->tap->take_device(p->tap, p->stream, "avae.wave", p->b.b, DUET__STEREO, length, length,
                            &DUET_SHAPE(DUET__STEREO, length));
    stats(p, p->b.b, DUET__STEREO * length, p->b.stats);
    duet_clamp(p->stream,
               &(duet_clamp_args){.x = p->b.b, .n = DUET__STEREO * length, .lo = -1.0f, .hi = 1.0f});
    stats(p, p->b.b, DUET__STEREO * length, p->b.stats + 3);
}

static duet_status run(const pass *p, duet_residency *residency, const float *latents,
                       const volatile int *cancel, duet_error *err) {
    duet_audio_vae *v = p->v;
    int n = v->config.n_decoder_rates;
    duet_status st;
    if (residency->declare_walk) residency->declare_walk(residency, v->walk, n + 2);
    TRY(st, fail, residency->acquire(residency, &v->in.unit, p->stream, err));
    enter(p, latents);
    residency->release(residency, &v->in.unit, p->stream);
    for (int i = 0; i < n; i++) {
        TRY(st, fail, residency->acquire(residency, &v->stages[i].unit, p->stream, err));
        st = stage(p, i, cancel, err);
        residency->release(residency, &v->stages[i].unit, p->stream);
        if (st != DUET_OK) goto fail;
    }
    TRY(st, fail, residency->acquire(residency, &v->out.unit, p->stream, err));
    leave(p);
    residency->release(residency, &v->out.unit, p->stream);
fail:
    return st;
}

static duet_status check(const float result[6], int64_t values, duet_error *err) {
    if (result[0] > 0.0f || result[3] > 0.0f)
        return duet_fail(err, DUET_E_RUN, "avae.wave: %.0f of %lld values are not finite", (double)result[0],
                         (long long)values);
    if (values > 1 && result[4] == result[5])
        return duet_fail(err, DUET_E_RUN, "avae.wave: all %lld values are equal (%g)", (long long)values,
                         (double)result[4]);
    return DUET_OK;
}

duet_status duet_audio_vae_decode(duet_audio_vae *v, duet_residency *residency, duet_stream *stream,
                                  const float *latents, int64_t n_latents, float *samples,
                                  duet_tap *tap_or_null, const volatile int *cancel, duet_error *err) {
    pass p = {.v = v, .stream = stream, .tap = tap_or_null, .n = n_latents};
    int64_t values = DUET__STEREO * n_latents * v->config.hop;
    float result[6];
    void *memory = NULL;
    duet_error ignored = {0};
    duet_status st;
    TRY(st, fail,
        duet_device_alloc(v->dev, duet__avae_carve(&v->config, n_latents, NULL, &p.b),
                          "audio decoder activations", &memory, err));
    duet__avae_carve(&v->config, n_latents, memory, &p.b);
    TRY(st, fail, run(&p, residency, latents, cancel, err));
    duet_copy_out(stream, samples, p.b.b, values * (int64_t)sizeof(float));
    duet_copy_out(stream, result, p.b.stats, (int64_t)sizeof result);
    TRY(st, fail, duet_stream_sync(stream, err));
    st = check(result, values, err);
fail:
    if (st != DUET_OK) duet_stream_sync(stream, &ignored); /* whatever was enqueued uses the memory */
    duet_device_free(v->dev, memory);
    return st;
}
