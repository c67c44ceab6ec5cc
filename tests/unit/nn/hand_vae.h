/* hand_vae.h - the two decoders with weights made by hand: any dimensions, any values, no files.
 *
 * The networks are the real ones; only their units are filled here instead of from a model directory.
 * Weights can be overwritten by a test (hand_values). Fused rows of q, k, v lie interleaved per head, as in
 * native files. */
#ifndef DUET_TEST_HAND_VAE_H
#define DUET_TEST_HAND_VAE_H

#include "harness/harness.h"

#include "base/alloc.h"
#include "engine/residency.h"
#include "nn/audio_vae_int.h"
#include "nn/video_vae_int.h"

/* Uniform in -1..1, a function of i alone. */
static inline float hand_noise(uint64_t i) {
    i = (i + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    i = (i ^ (i >> 29)) * 0x94d049bb133111ebu;
    return (float)((double)(i >> 40) / 8388608.0 - 1.0);
}

static inline float *hand_values(const duet_weight *w) {
    return (float *)(uintptr_t)w->piece[0].data;
}

static inline int64_t hand_count(const duet_weight *w) {
    return duet_weight_rows(w) * duet_weight_row_elems(w);
}

static inline float hand_at(const duet_weight *w, int64_t row, int64_t i) {
    return ((const float *)duet_weight_row(w, row))[i];
}

static uint64_t hand_seed; /* moves on with every weight */

/* The next handle of a unit: around `mean`, +- `spread`. */
static inline duet_weight *hand_add(duet__vae_unit *u, duet_shape shape, float mean, float spread) {
    int64_t n;
    EXPECT(duet_shape_elems(&shape, &n));
    float *data = duet_alloc((size_t)n * sizeof *data, DUET_MEM_TENSOR);
    EXPECT(data && u->unit.n_weights < u->capacity);
    for (int64_t i = 0; i < n; i++) data[i] = mean + spread * hand_noise((++hand_seed) * 7919);
    u->weight[u->unit.n_weights] = duet_weight_view("hand", DUET_F32, shape, data);
    return &u->weight[u->unit.n_weights++];
}

static inline void hand_drop(duet__vae_unit *u) {
    for (int i = 0; i < u->unit.n_weights; i++) duet_free(hand_values(&u->weight[i]));
    duet__vae_unit_free(u);
}

/* A matrix of `cols` inputs that keeps the size of what it multiplies. */
static inline duet_weight *hand_matrix(duet__vae_unit *u, int64_t rows, int64_t cols) {
    return hand_add(u, DUET_SHAPE(rows, cols), 0.0f, 1.7f / sqrtf((float)cols));
}

/* ---- video --------------------------------------------------------------------------------------------- */

static inline void hand_interleave(duet_weight *w, int64_t heads, int64_t head_dim) {
    int64_t row_elems = duet_weight_row_elems(w);
    const float *base = w->piece[0].data;
    w->n_pieces = 3;
    for (int p = 0; p < 3; p++)
        w->piece[p] = (duet_weight_piece){.data = base + p * head_dim * row_elems,
                                          .rows = heads * head_dim,
                                          .block_rows = head_dim,
                                          .block_stride_rows = 3 * head_dim};
}

static inline void hand_vvae_block(duet__vae_unit *u, const duet__vvae_dims *d, int i) {
    EXPECT_EQ(duet__vae_unit_init(u, VVAE_N_BLOCK, NULL, "blocks.%d", i), DUET_OK);
    hand_add(u, DUET_SHAPE(d->width), 1.0f, 0.3f);
    hand_interleave(hand_matrix(u, 3 * d->width, d->width), d->heads, d->head_dim);
    hand_interleave(hand_add(u, DUET_SHAPE(3 * d->width), 0.0f, 0.5f), d->heads, d->head_dim);
    hand_matrix(u, d->width, d->width);
    hand_add(u, DUET_SHAPE(d->width), 0.0f, 0.5f);
    hand_add(u, DUET_SHAPE(d->width), 0.0f, 0.9f);
    hand_add(u, DUET_SHAPE(d->width), 1.0f, 0.3f);
    hand_matrix(u, 2 * d->ffn, d->width);
    hand_add(u, DUET_SHAPE(2 * d->ffn), 0.0f, 0.5f);
    hand_matrix(u, d->width, d->ffn);
    hand_add(u, DUET_SHAPE(d->width), 0.0f, 0.5f);
    hand_add(u, DUET_SHAPE(d->width), 0.0f, 0.9f);
}

static inline duet_video_vae *hand_vvae_open(const duet_vvae_config *config, duet_device *dev,
                                             uint64_t seed) {
    duet_video_vae *v = duet_calloc(1, sizeof *v, DUET_MEM_WEIGHT);
    hand_seed = seed << 32;
    EXPECT(v && duet__vvae_dims_of(config, &v->dims, NULL) == DUET_OK);
    const duet__vvae_dims *d = &v->dims;
    v->dev = dev;
    v->layers = config->vit_layers;
    v->blocks = duet_calloc((size_t)v->layers, sizeof *v->blocks, DUET_MEM_WEIGHT);
    v->walk = duet_calloc((size_t)v->layers + 2, sizeof *v->walk, DUET_MEM_WEIGHT);
    EXPECT(v->blocks && v->walk);
    EXPECT_EQ(duet__vae_unit_init(&v->embed, VVAE_N_EMBED, NULL, "embed"), DUET_OK);
    hand_matrix(&v->embed, d->channels, d->channels);
    hand_add(&v->embed, DUET_SHAPE(d->channels), 0.0f, 0.5f);
    hand_matrix(&v->embed, d->width, d->channels);
    hand_add(&v->embed, DUET_SHAPE(d->width), 0.0f, 0.5f);
    if (d->registers) hand_add(&v->embed, DUET_SHAPE(d->registers, d->width), 0.0f, 1.0f);
    EXPECT_EQ(duet__vae_unit_init(&v->out, VVAE_N_OUT, NULL, "out"), DUET_OK);
    hand_add(&v->out, DUET_SHAPE(d->width), 1.0f, 0.3f);
    hand_add(&v->out, DUET_SHAPE(d->width), 0.0f, 0.5f);
    hand_matrix(&v->out, d->patch, d->width);
    hand_add(&v->out, DUET_SHAPE(d->patch), 0.0f, 0.5f);
    v->walk[0] = &v->embed.unit;
    for (int i = 0; i < v->layers; i++) {
        hand_vvae_block(&v->blocks[i], d, i);
        v->walk[i + 1] = &v->blocks[i].unit;
    }
    v->walk[v->layers + 1] = &v->out.unit;
    return v;
}

static inline void hand_vvae_close(duet_video_vae **v) {
    hand_drop(&(*v)->embed);
    hand_drop(&(*v)->out);
    for (int i = 0; i < (*v)->layers; i++) hand_drop(&(*v)->blocks[i]);
    duet_video_vae_close(v);
}

/* ---- audio --------------------------------------------------------------------------------------------- */

static inline void hand_activation(duet__vae_unit *u, int64_t channels) {
    static const float half[6] = {0.00202896645f, 0.00938946394f, -0.0255434641f,
                                  -0.0576573755f, 0.128572609f,   0.4432098f};
    hand_add(u, DUET_SHAPE(channels), 0.0f, 0.5f);
    hand_add(u, DUET_SHAPE(channels), 0.0f, 0.5f);
    for (int f = 0; f < 2; f++) {
        float *taps = hand_values(hand_add(u, DUET_SHAPE(1, 1, 12), 0.0f, 0.0f));
        for (int i = 0; i < 12; i++) taps[i] = half[i < 6 ? i : 11 - i];
    }
}

static inline void hand_conv(duet__vae_unit *u, int64_t out, int64_t in, int64_t kernel, bool bias) {
    hand_add(u, DUET_SHAPE(out, in, kernel), 0.0f, 1.2f / sqrtf((float)(in * kernel)));
    if (bias) hand_add(u, DUET_SHAPE(out), 0.0f, 0.2f);
}

static inline void hand_avae_stage(duet__vae_unit *u, const duet_avae_config *c, int i) {
    int64_t in = duet__avae_channels(c, i), out = duet__avae_channels(c, i + 1);
    int groups = c->n_res_kernels * c->n_res_dilations;
    EXPECT_EQ(duet__vae_unit_init(u, AVAE_RES + groups * AVAE_N_RES, NULL, "stages.%d", i), DUET_OK);
    float gain = 1.5f * sqrtf((float)c->decoder_rates[i] / (float)(in * c->decoder_kernels[i]));
    hand_add(u, DUET_SHAPE(in, out, c->decoder_kernels[i]), 0.0f, gain);
    hand_add(u, DUET_SHAPE(out), 0.0f, 0.2f);
    for (int g = 0; g < groups; g++)
        for (int half = 0; half < 2; half++) {
            hand_activation(u, out);
            hand_conv(u, out, out, c->res_kernels[g / c->n_res_dilations], true);
        }
}

static inline duet_audio_vae *hand_avae_open(const duet_avae_config *c, duet_device *dev, uint64_t seed) {
    duet_audio_vae *v = duet_calloc(1, sizeof *v, DUET_MEM_WEIGHT);
    hand_seed = seed << 32;
    EXPECT(v);
    v->dev = dev;
    v->config = *c;
    v->stages = duet_calloc((size_t)c->n_decoder_rates, sizeof *v->stages, DUET_MEM_WEIGHT);
    v->walk = duet_calloc((size_t)c->n_decoder_rates + 2, sizeof *v->walk, DUET_MEM_WEIGHT);
    EXPECT(v->stages && v->walk);
    EXPECT_EQ(duet__vae_unit_init(&v->in, AVAE_N_IN, NULL, "in"), DUET_OK);
    hand_conv(&v->in, c->latent_dim, c->latent_channels, 1, true);
    hand_conv(&v->in, c->decoder_dim, c->latent_dim, DUET__END_KERNEL, true);
    EXPECT_EQ(duet__vae_unit_init(&v->out, AVAE_N_OUT, NULL, "out"), DUET_OK);
    int64_t last = duet__avae_channels(c, c->n_decoder_rates);
    hand_activation(&v->out, last);
    hand_conv(&v->out, 1, last, DUET__END_KERNEL, false);
    v->walk[0] = &v->in.unit;
    for (int i = 0; i < c->n_decoder_rates; i++) {
        hand_avae_stage(&v->stages[i], c, i);
        v->walk[i + 1] = &v->stages[i].unit;
    }
    v->walk[c->n_decoder_rates + 1] = &v->out.unit;
    return v;
}

static inline void hand_avae_close(duet_audio_vae **v) {
    hand_drop(&(*v)->in);
    hand_drop(&(*v)->out);
    for (int i = 0; i < (*v)->config.n_decoder_rates; i++) hand_drop(&(*v)->stages[i]);
    duet_audio_vae_close(v);
}

/* ---- where they run ------------------------------------------------------------------------------------ */

typedef struct hand_device {
    duet_device *dev;
    duet_stream *stream;
    duet_residency *residency;
} hand_device;

static inline hand_device hand_device_open(const char *backend, int threads) {
    hand_device h = {0};
    duet_error e = {0};
    EXPECT_OK(duet_device_open(&(duet_device_options){.backend = backend, .n_threads = threads}, &h.dev, &e),
              e);
    EXPECT_OK(duet_stream_open(h.dev, 0, &h.stream, &e), e);
    EXPECT_OK(duet_residency_open(h.dev, &h.residency, &e), e);
    return h;
}

/* Before the networks: their units are in the residency's list. */
static inline void hand_device_idle(hand_device *h) {
    duet_stream_close(&h->stream);
    duet_residency_close(&h->residency);
}

static inline void hand_device_close(hand_device *h) {
    EXPECT_EQ(duet_device_live_bytes(h->dev), 0);
    duet_device_close(&h->dev);
}

static inline double hand_rel_l2(const float *got, const double *want, int64_t n) {
    double diff = 0.0, size = 0.0;
    for (int64_t i = 0; i < n; i++) {
        diff += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += want[i] * want[i];
    }
    return sqrt(diff / size);
}

#endif
