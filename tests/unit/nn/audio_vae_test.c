/* audio_vae_test.c - the BigVGAN decoder against a second opinion in fp64, on random models; stereo, edges,
 * faults.
 *
 * The second opinion builds the 2x signal of every activation in full, with padding as the reference pads
 * (spec model-vae 7.4), and can be told to make the mistakes that hide. */
#include "unit/nn/hand_vae.h"

/* ---- second opinion: one channel of sound at a time ---------------------------------------------------- */

typedef struct mistakes {
    bool zero_edges, no_share, swapped_filter_phase;
} mistakes;

typedef struct signal {
    int64_t channels, length;
    double *x; /* [channels, length] */
} signal;

static signal make(int64_t channels, int64_t length) {
    signal s = {channels, length, duet_calloc((size_t)(channels * length), sizeof(double), DUET_MEM_TENSOR)};
    EXPECT(s.x);
    return s;
}

static double sample(const signal *s, int64_t c, int64_t t) {
    return t < 0 || t >= s->length ? 0.0 : s->x[c * s->length + t];
}

static signal naive_conv(const signal *in, const duet_weight *w, const duet_weight *bias, int64_t dilation) {
    int64_t kernel = w->shape.dim[2], out = w->shape.dim[0], pad = dilation * (kernel - 1) / 2;
    signal y = make(out, in->length);
    for (int64_t o = 0; o < out; o++)
        for (int64_t t = 0; t < in->length; t++) {
            double sum = bias ? hand_at(bias, o, 0) : 0.0;
            for (int64_t i = 0; i < in->channels; i++)
                for (int64_t k = 0; k < kernel; k++)
                    sum += hand_at(w, o, i * kernel + k) * sample(in, i, t + k * dilation - pad);
            y.x[o * in->length + t] = sum;
        }
    return y;
}

static signal naive_up(const signal *in, const duet_weight *w, const duet_weight *bias, int64_t rate) {
    int64_t kernel = w->shape.dim[2], out = w->shape.dim[1], pad = (kernel - rate) / 2;
    signal y = make(out, in->length * rate);
    for (int64_t o = 0; o < out; o++)
        for (int64_t t = 0; t < y.length; t++) {
            double sum = hand_at(bias, o, 0);
            for (int64_t s = 0; s < in->length; s++) {
                int64_t k = t + pad - s * rate;
                if (k < 0 || k >= kernel) continue;
                for (int64_t i = 0; i < in->channels; i++)
                    sum += hand_at(w, i, o * kernel + k) * sample(in, i, s);
            }
            y.x[o * y.length + t] = sum;
        }
    return y;
}

/* Transposed convolution of the signal padded by 5 on both sides, 15 cropped; then the activation; then a
 * convolution with stride 2 of that padded by 5 and 6. Padding repeats the edge. */
static signal naive_snake(const signal *in, const duet_weight *act, mistakes wrong) {
    int64_t n = in->length;
    signal y = make(in->channels, n);
    double *up = duet_calloc((size_t)(2 * n), sizeof *up, DUET_MEM_TENSOR);
    EXPECT(up);
    for (int64_t c = 0; c < in->channels; c++) {
        double alpha = exp((double)hand_at(&act[ACT_ALPHA], c, 0)),
               beta = exp((double)hand_at(&act[ACT_BETA], c, 0));
        for (int64_t t = 0; t < 2 * n; t++) {
            double u = 0.0;
            for (int64_t s = -5; s < n + 5; s++) {
                int64_t k = t + 15 - 2 * (s + 5), at = s < 0 ? 0 : s >= n ? n - 1 : s;
                if (wrong.swapped_filter_phase) k ^= 1;
                if (k < 0 || k >= 12 || (wrong.zero_edges && at != s)) continue;
                u += 2.0 * hand_values(&act[ACT_UP])[k] * in->x[c * n + at];
            }
            up[t] = u + pow(sin(alpha * u), 2.0) / (beta + 1e-9);
        }
        for (int64_t t = 0; t < n; t++)
            for (int64_t k = 0; k < 12; k++) {
                int64_t at = 2 * t + k - 5;
                at = at < 0 ? 0 : at >= 2 * n ? 2 * n - 1 : at;
                y.x[c * n + t] += hand_values(&act[ACT_DOWN])[k] * up[at];
            }
    }
    duet_free(up);
    return y;
}

static signal naive_block(const signal *in, const duet_weight *w, const duet_avae_config *c, mistakes wrong) {
    signal h = make(in->channels, in->length);
    memcpy(h.x, in->x, (size_t)(h.channels * h.length) * sizeof *h.x);
    for (int d = 0; d < c->n_res_dilations; d++, w += AVAE_N_RES) {
        signal a = naive_snake(&h, &w[RES_ACT1], wrong);
        signal b = naive_conv(&a, &w[RES_CONV1], &w[RES_CONV1 + 1], c->res_dilations[d]);
        signal e = naive_snake(&b, &w[RES_ACT2], wrong);
        signal f = naive_conv(&e, &w[RES_CONV2], &w[RES_CONV2 + 1], 1);
        for (int64_t i = 0; i < h.channels * h.length; i++) h.x[i] += f.x[i];
        duet_free(a.x), duet_free(b.x), duet_free(e.x), duet_free(f.x);
    }
    return h;
}

static signal naive_stage(const signal *in, const duet_audio_vae *v, int i, mistakes wrong) {
    const duet_avae_config *c = &v->config;
    const duet_weight *w = v->stages[i].weight;
    signal x = naive_up(in, &w[AVAE_UP_W], &w[AVAE_UP_B], c->decoder_rates[i]),
           sum = make(x.channels, x.length);
    for (int j = 0; j < c->n_res_kernels; j++) {
        signal block = naive_block(&x, w + AVAE_RES + j * c->n_res_dilations * AVAE_N_RES, c, wrong);
        for (int64_t k = 0; k < sum.channels * sum.length; k++)
            sum.x[k] += block.x[k] / (wrong.no_share ? 1.0 : c->n_res_kernels);
        duet_free(block.x);
    }
    duet_free(x.x);
    return sum;
}

/* Waveform of one channel; latents [channels, n] within [2, channels, n]. */
static signal naive_channel(const duet_audio_vae *v, const float *latents, int64_t n, mistakes wrong) {
    const duet_weight *in = v->in.weight, *out = v->out.weight;
    signal z = make(v->config.latent_channels, n);
    for (int64_t i = 0; i < z.channels * n; i++) z.x[i] = latents[i];
    signal a = naive_conv(&z, &in[AVAE_IN_W], &in[AVAE_IN_B], 1);
    signal x = naive_conv(&a, &in[AVAE_PRE_W], &in[AVAE_PRE_B], 1);
    for (int i = 0; i < v->config.n_decoder_rates; i++) {
        signal next = naive_stage(&x, v, i, wrong);
        duet_free(x.x);
        x = next;
    }
    signal post = naive_snake(&x, &out[AVAE_POST_ACT], wrong),
           wave = naive_conv(&post, &out[AVAE_POST_W], NULL, 1);
    for (int64_t i = 0; i < wave.length; i++) wave.x[i] = fmax(-1.0, fmin(1.0, wave.x[i]));
    duet_free(z.x), duet_free(a.x), duet_free(x.x), duet_free(post.x);
    return wave;
}

/* ---- the network under test ---------------------------------------------------------------------------- */

static const duet_avae_config sets[] = {
    {.latent_dim = 20,
     .latent_channels = 3,
     .decoder_dim = 16,
     .n_decoder_rates = 3,
     .decoder_rates = {5, 2, 2},
     .decoder_kernels = {9, 4, 4},
     .n_res_kernels = 3,
     .res_kernels = {3, 7, 11},
     .n_res_dilations = 3,
     .res_dilations = {1, 3, 5},
     .hop = 20},
    {.latent_dim = 9,
     .latent_channels = 4,
     .decoder_dim = 12,
     .n_decoder_rates = 2,
     .decoder_rates = {3, 4},
     .decoder_kernels = {5, 8},
     .n_res_kernels = 2,
     .res_kernels = {5, 3},
     .n_res_dilations = 2,
     .res_dilations = {1, 2},
     .hop = 12},
    {.latent_dim = 6,
     .latent_channels = 2,
     .decoder_dim = 4,
     .n_decoder_rates = 1,
     .decoder_rates = {2},
     .decoder_kernels = {4},
     .n_res_kernels = 1,
     .res_kernels = {3},
     .n_res_dilations = 1,
     .res_dilations = {1},
     .hop = 2},
};
enum { N_SETS = sizeof sets / sizeof *sets, MAX_LATENTS = 40 };

static void some_latents(const duet_avae_config *c, int64_t n, float *out) {
    for (int64_t i = 0; i < 2 * c->latent_channels * n; i++) out[i] = 1.5f * hand_noise((uint64_t)i + 11);
}

static float *decode(hand_device *h, duet_audio_vae *v, const float *latents, int64_t n) {
    duet_error e = {0};
    float *samples = duet_alloc((size_t)(2 * n * v->config.hop) * sizeof *samples, DUET_MEM_TENSOR);
    EXPECT(samples);
    EXPECT_OK(duet_audio_vae_decode(v, h->residency, h->stream, latents, n, samples, NULL, NULL, &e), e);
    return samples;
}

static double distance(hand_device *h, duet_audio_vae *v, int64_t n, mistakes wrong) {
    float latents[2 * 8 * MAX_LATENTS];
    int64_t length = n * v->config.hop;
    some_latents(&v->config, n, latents);
    float *got = decode(h, v, latents, n);
    double *want = duet_alloc((size_t)(2 * length) * sizeof *want, DUET_MEM_TENSOR);
    EXPECT(want);
    for (int side = 0; side < 2; side++) {
        signal wave = naive_channel(v, latents + side * v->config.latent_channels * n, n, wrong);
        memcpy(want + side * length, wave.x, (size_t)length * sizeof *want);
        duet_free(wave.x);
    }
    double rel = hand_rel_l2(got, want, 2 * length);
    duet_free(got);
    duet_free(want);
    return rel;
}

TEST(waveform_agrees_with_fp64, 30000) {
    static const char *const backends[] = {"ref", "cpu"};
    static const int64_t lengths[] = {37, 8, 3, 1};
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < N_SETS; i++) {
            hand_device h = hand_device_open(backends[b], 2);
            duet_audio_vae *v = hand_avae_open(&sets[i], h.dev, 1 + (uint64_t)i);
            for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
                EXPECT_LE(distance(&h, v, lengths[k], (mistakes){0}), 3e-6);
            hand_device_idle(&h);
            hand_avae_close(&v);
            hand_device_close(&h);
        }
}

TEST(waveform_shows_the_mistakes_that_hide, 30000) {
    hand_device h = hand_device_open("ref", 2);
    duet_audio_vae *v = hand_avae_open(&sets[0], h.dev, 1);
    EXPECT(distance(&h, v, 37, (mistakes){.zero_edges = true}) > 1e-3);
    EXPECT(distance(&h, v, 37, (mistakes){.no_share = true}) > 1e-2);
    EXPECT(distance(&h, v, 37, (mistakes){.swapped_filter_phase = true}) > 1e-3);
    hand_device_idle(&h);
    hand_avae_close(&v);
    hand_device_close(&h);
}

/* ---- laws ---------------------------------------------------------------------------------------------- */

TEST(swapping_latents_left_and_right_swaps_the_waveforms, 10000) {
    enum { N = 23 };
    hand_device h = hand_device_open("cpu", 2);
    duet_audio_vae *v = hand_avae_open(&sets[0], h.dev, 5);
    int64_t half = sets[0].latent_channels * N, length = N * sets[0].hop;
    float latents[2 * 3 * N], swapped[2 * 3 * N];
    some_latents(&sets[0], N, latents);
    memcpy(swapped, latents + half, (size_t)half * sizeof *swapped);
    memcpy(swapped + half, latents, (size_t)half * sizeof *swapped);
    float *a = decode(&h, v, latents, N), *b = decode(&h, v, swapped, N);
    EXPECT(!memcmp(a, b + length, (size_t)length * sizeof *a));
    EXPECT(!memcmp(a + length, b, (size_t)length * sizeof *a));
    EXPECT(memcmp(a, a + length, (size_t)length * sizeof *a));
    duet_free(a);
    duet_free(b);
    hand_device_idle(&h);
    hand_avae_close(&v);
    hand_device_close(&h);
}

TEST(waveform_is_the_same_for_any_number_of_threads, 10000) {
    enum { N = 31 };
    float latents[2 * 3 * N], *first = NULL;
    some_latents(&sets[0], N, latents);
    for (int threads = 1; threads <= 3; threads++) {
        hand_device h = hand_device_open("cpu", threads);
        duet_audio_vae *v = hand_avae_open(&sets[0], h.dev, 6);
        float *samples = decode(&h, v, latents, N);
        if (!first)
            first = samples;
        else {
            EXPECT(!memcmp(first, samples, 2 * N * 20 * sizeof *samples));
            duet_free(samples);
        }
        hand_device_idle(&h);
        hand_avae_close(&v);
        hand_device_close(&h);
    }
    duet_free(first);
}

TEST(waveform_behind_a_wall_is_that_of_ref, 10000) {
    enum { N = 6 };
    float latents[2 * 3 * N], *samples[2];
    static const char *const backends[] = {"ref", "walled"};
    some_latents(&sets[0], N, latents);
    for (int b = 0; b < 2; b++) {
        hand_device h = hand_device_open(backends[b], 2);
        duet_audio_vae *v = hand_avae_open(&sets[0], h.dev, 6);
        samples[b] = decode(&h, v, latents, N);
        hand_device_idle(&h);
        hand_avae_close(&v);
        hand_device_close(&h);
    }
    EXPECT(!memcmp(samples[0], samples[1], 2 * N * 20 * sizeof *samples[0]));
    duet_free(samples[0]);
    duet_free(samples[1]);
}

/* ---- faults (P5) --------------------------------------------------------------------------------------- */

static duet_status decode_faulty(hand_device *h, duet_audio_vae *v, duet_error *e) {
    enum { N = 5 };
    float latents[2 * 3 * N], samples[2 * N * 20];
    some_latents(&sets[0], N, latents);
    return duet_audio_vae_decode(v, h->residency, h->stream, latents, N, samples, NULL, NULL, e);
}

/* A NaN deep inside; an infinity in the last convolution, which the clamp would turn into full scale. */
TEST(waveform_with_one_bad_weight_fails_and_says_so, 5000) {
    for (int where = 0; where < 2; where++) {
        hand_device h = hand_device_open("cpu", 1);
        duet_audio_vae *v = hand_avae_open(&sets[0], h.dev, 7);
        duet_error e = {0};
        if (where)
            hand_values(&v->out.weight[AVAE_POST_W])[3] = INFINITY;
        else
            hand_values(&v->stages[1].weight[AVAE_UP_W])[3] = NAN;
        EXPECT_EQ(decode_faulty(&h, v, &e), DUET_E_RUN);
        EXPECT_HAS(e.message, "avae.wave");
        EXPECT_HAS(e.message, "not finite");
        hand_device_idle(&h);
        hand_avae_close(&v);
        hand_device_close(&h);
    }
}

TEST(silence_is_not_a_success, 5000) {
    hand_device h = hand_device_open("cpu", 1);
    duet_audio_vae *v = hand_avae_open(&sets[0], h.dev, 8);
    duet_error e = {0};
    memset(hand_values(&v->out.weight[AVAE_POST_W]), 0,
           (size_t)hand_count(&v->out.weight[AVAE_POST_W]) * sizeof(float));
    EXPECT_EQ(decode_faulty(&h, v, &e), DUET_E_RUN);
    EXPECT_HAS(e.message, "equal");
    hand_device_idle(&h);
    hand_avae_close(&v);
    hand_device_close(&h);
}

TEST(waveform_stops_when_cancelled, 5000) {
    hand_device h = hand_device_open("cpu", 1);
    duet_audio_vae *v = hand_avae_open(&sets[0], h.dev, 9);
    float latents[2 * 3], samples[2 * 20];
    volatile int cancel = 1;
    duet_error e = {0};
    some_latents(&sets[0], 1, latents);
    EXPECT_EQ(duet_audio_vae_decode(v, h.residency, h.stream, latents, 1, samples, NULL, &cancel, &e),
              DUET_E_CANCELLED);
    hand_device_idle(&h);
    hand_avae_close(&v);
    hand_device_close(&h); /* nothing left behind */
}

/* Spec model-vae 8: 1.46 TFLOP of convolutions for 603 latents, 30.9 MB a buffer. */
TEST(audio_decoder_cost_of_the_released_model, 1000) {
    const duet_avae_config c = {.latent_dim = 2048,
                                .latent_channels = 32,
                                .decoder_dim = 1024,
                                .n_decoder_rates = 7,
                                .decoder_rates = {5, 5, 2, 2, 2, 2, 2},
                                .decoder_kernels = {9, 9, 4, 4, 4, 4, 4},
                                .n_res_kernels = 3,
                                .res_kernels = {3, 7, 11},
                                .n_res_dilations = 3,
                                .res_dilations = {1, 3, 5},
                                .hop = 800};
    double flops = duet_audio_vae_flops(&c, 603);
    EXPECT(flops > 1.45e12 && flops < 1.60e12);
    EXPECT_LE(fabs((double)duet_audio_vae_activation_bytes(&c, 603) / (5 * 30.9e6) - 1.0), 2e-3);
}
