/* audio_vae.c - opening the BigVGAN decoder: its weights, and how much memory and work a clip takes.
 *
 * The forward pass stands in audio_vae_decode.c. Weight norm is folded by the store: handles are plain
 * `*.weight`. */
#include "nn/audio_vae_int.h"

#include "base/alloc.h"

#include <stdio.h>

/* ---- sizes --------------------------------------------------------------------------------------------- */

int64_t duet__avae_channels(const duet_avae_config *config, int stages) {
    return config->decoder_dim >> stages;
}

int64_t duet__avae_rate(const duet_avae_config *config, int stages) {
    int64_t rate = 1;
    for (int i = 0; i < stages; i++) rate *= config->decoder_rates[i];
    return rate;
}

/* Floats of one channel pair of the widest point, for one latent. */
static int64_t widest(const duet_avae_config *c) {
    int64_t most = c->latent_channels > c->latent_dim ? c->latent_channels : c->latent_dim;
    for (int i = 0; i <= c->n_decoder_rates; i++) {
        int64_t n = duet__avae_channels(c, i) * duet__avae_rate(c, i);
        if (n > most) most = n;
    }
    return most;
}

int64_t duet__avae_carve(const duet_avae_config *config, int64_t n_latents, void *memory,
                         duet__avae_buffers *out) {
    int64_t step = (DUET__STEREO * widest(config) * n_latents * (int64_t)sizeof(float) + 63) / 64 * 64,
            at = 0;
    float **buffer[] = {&out->x, &out->a, &out->b, &out->h, &out->sum, &out->stats};
    for (size_t i = 0; i < sizeof buffer / sizeof *buffer; i++) {
        *buffer[i] = memory ? (float *)((char *)memory + at) : NULL;
        at += buffer[i] == &out->stats ? 64 : step;
    }
    return at;
}

int64_t duet_audio_vae_activation_bytes(const duet_avae_config *config, int64_t n_latents) {
    duet__avae_buffers unused;
    return duet__avae_carve(config, n_latents, NULL, &unused);
}

/* A product adds 2 FLOP, a resampled activation about 2 * 36 taps a value (spec model-vae 8.2). */
double duet_audio_vae_flops(const duet_avae_config *c, int64_t n_latents) {
    double n = DUET__STEREO * (double)n_latents, macs = n * c->latent_dim;
    double flops = 2.0 * macs * (c->latent_channels + DUET__END_KERNEL * (double)c->decoder_dim);
    for (int i = 0; i < c->n_decoder_rates; i++) {
        double in = (double)duet__avae_channels(c, i), out = (double)duet__avae_channels(c, i + 1);
        double values = n * (double)duet__avae_rate(c, i + 1) * out;
        flops += 2.0 * n * (double)duet__avae_rate(c, i) * in * out * c->decoder_kernels[i];
        for (int j = 0; j < c->n_res_kernels; j++)
            flops += values * c->n_res_dilations * 2.0 * (2.0 * out * c->res_kernels[j] + 2.0 * 36.0);
    }
    double last = (double)duet__avae_channels(c, c->n_decoder_rates);
    return flops + n * c->hop * last * (2.0 * DUET__END_KERNEL + 2.0 * 36.0);
}

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static duet_weight shape_only(int64_t rows, int64_t in, int64_t kernel) {
    duet_weight w = {.shape = DUET_SHAPE(rows, in, kernel), .n_pieces = 1};
    w.piece[0].rows = w.piece[0].block_rows = w.piece[0].block_stride_rows = rows;
    return w;
}

static int64_t conv_scratch(const duet_device *dev, int64_t in, int64_t out, int64_t length, int64_t kernel,
                            int64_t dilation) {
    duet_weight w = shape_only(out, in, kernel);
    return (int64_t)duet_conv1d_scratch_bytes(dev, &(duet_conv1d_args){.w = &w,
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

static int64_t up_scratch(const duet_device *dev, int64_t in, int64_t out, int64_t length, int64_t rate,
                          int64_t kernel) {
    duet_weight w = shape_only(in, out, kernel);
    return (int64_t)duet_conv1d_up_scratch_bytes(dev, &(duet_conv1d_up_args){.w = &w,
                                                                             .batch = DUET__STEREO,
                                                                             .channels_in = in,
                                                                             .channels_out = out,
                                                                             .length_in = length,
                                                                             .length_out = length * rate,
                                                                             .kernel = kernel,
                                                                             .stride = rate,
                                                                             .pad = (kernel - rate) / 2});
}

static int64_t stage_scratch(const duet_avae_config *c, const duet_device *dev, int64_t n, int i) {
    int64_t in = duet__avae_channels(c, i), out = duet__avae_channels(c, i + 1);
    int64_t length = n * duet__avae_rate(c, i + 1);
    int64_t most =
        up_scratch(dev, in, out, n * duet__avae_rate(c, i), c->decoder_rates[i], c->decoder_kernels[i]);
    for (int j = 0; j < c->n_res_kernels; j++) {
        most = max64(most, conv_scratch(dev, out, out, length, c->res_kernels[j], 1));
        for (int p = 0; p < c->n_res_dilations; p++)
            most = max64(most, conv_scratch(dev, out, out, length, c->res_kernels[j], c->res_dilations[p]));
    }
    duet_snake_aa_args snake = {.batch = DUET__STEREO, .channels = out, .length = length};
    return max64(most, (int64_t)duet_snake_aa_scratch_bytes(dev, &snake));
}

int64_t duet_audio_vae_scratch_bytes(const duet_avae_config *c, const duet_device *dev, int64_t n_latents) {
    if (!dev) return 0;
    int64_t most = conv_scratch(dev, c->latent_channels, c->latent_dim, n_latents, 1, 1);
    most = max64(most, conv_scratch(dev, c->latent_dim, c->decoder_dim, n_latents, DUET__END_KERNEL, 1));
    for (int i = 0; i < c->n_decoder_rates; i++) most = max64(most, stage_scratch(c, dev, n_latents, i));
    int64_t last = duet__avae_channels(c, c->n_decoder_rates);
    return max64(most, conv_scratch(dev, last, 1, n_latents * c->hop, DUET__END_KERNEL, 1));
}

/* ---- weights ------------------------------------------------------------------------------------------- */

#define LOAD(unit, ...) TRY(st, fail, duet__vae_unit_load(unit, model, DUET_COMPONENT_AVAE, err, __VA_ARGS__))

static duet_status load_activation(duet__vae_unit *u, duet_model *model, const char *name, duet_error *err) {
    duet_status st;
    LOAD(u, "%s.act.alpha", name);
    LOAD(u, "%s.act.beta", name);
    LOAD(u, "%s.upsample.filter", name);
    LOAD(u, "%s.downsample.lowpass.filter", name);
fail:
    return st;
}

/* One dilation of one residual block: activation, dilated convolution, activation, plain convolution. */
static duet_status load_residual(duet__vae_unit *u, duet_model *model, int block, int p, duet_error *err) {
    char act[80];
    duet_status st;
    for (int half = 0; half < 2; half++) {
        snprintf(act, sizeof act, "decoder.resblocks.%d.activations.%d", block, 2 * p + half);
        TRY(st, fail, load_activation(u, model, act, err));
        LOAD(u, "decoder.resblocks.%d.convs%d.%d.weight", block, half + 1, p);
        LOAD(u, "decoder.resblocks.%d.convs%d.%d.bias", block, half + 1, p);
    }
fail:
    return st;
}

static duet_status load_stage(duet_audio_vae *v, duet_model *model, int i, duet_error *err) {
    duet__vae_unit *u = &v->stages[i];
    int kernels = v->config.n_res_kernels, dilations = v->config.n_res_dilations;
    duet_status st;
    TRY(st, fail, duet__vae_unit_init(u, AVAE_RES + kernels * dilations * AVAE_N_RES, err, "stages.%d", i));
    LOAD(u, "decoder.ups.%d.0.weight", i);
    LOAD(u, "decoder.ups.%d.0.bias", i);
    for (int j = 0; j < kernels; j++)
        for (int p = 0; p < dilations; p++) TRY(st, fail, load_residual(u, model, i * kernels + j, p, err));
fail:
    return st;
}

static duet_status load_ends(duet_audio_vae *v, duet_model *model, duet_error *err) {
    duet_status st;
    TRY(st, fail, duet__vae_unit_init(&v->in, AVAE_N_IN, err, "in"));
    LOAD(&v->in, "dec_in_proj.weight");
    LOAD(&v->in, "dec_in_proj.bias");
    LOAD(&v->in, "decoder.conv_pre.weight");
    LOAD(&v->in, "decoder.conv_pre.bias");
    TRY(st, fail, duet__vae_unit_init(&v->out, AVAE_N_OUT, err, "out"));
    TRY(st, fail, load_activation(&v->out, model, "decoder.activation_post", err));
    LOAD(&v->out, "decoder.conv_post.weight");
fail:
    return st;
}

static duet_status load_all(duet_audio_vae *v, duet_model *model, duet_error *err) {
    int n = v->config.n_decoder_rates;
    duet_status st;
    TRY(st, fail, load_ends(v, model, err));
    v->stages = duet_calloc((size_t)n, sizeof *v->stages, DUET_MEM_WEIGHT);
    v->walk = duet_calloc((size_t)n + 2, sizeof(duet_unit *), DUET_MEM_WEIGHT);
    if (!v->stages || !v->walk) return duet_fail(err, DUET_E_MEMORY, "out of memory for the audio decoder");
    for (int i = 0; i < n; i++) {
        TRY(st, fail, load_stage(v, model, i, err));
        v->walk[i + 1] = &v->stages[i].unit;
    }
    v->walk[0] = &v->in.unit;
    v->walk[n + 1] = &v->out.unit;
fail:
    return st;
}

duet_status duet_audio_vae_open(duet_model *model, duet_device *dev, duet_audio_vae **out, duet_error *err) {
    *out = NULL;
    duet_audio_vae *v = duet_calloc(1, sizeof *v, DUET_MEM_WEIGHT);
    if (!v) return duet_fail(err, DUET_E_MEMORY, "out of memory for the audio decoder");
    v->dev = dev;
    v->config = duet_model_config_get(model)->avae;
    duet_status st = load_all(v, model, err);
    if (st == DUET_OK)
        *out = v;
    else
        duet_audio_vae_close(&v);
    return st;
}

void duet_audio_vae_close(duet_audio_vae **vae) {
    duet_audio_vae *v = *vae;
    if (!v) return;
    for (int i = 0; v->stages && i < v->config.n_decoder_rates; i++) duet__vae_unit_free(&v->stages[i]);
    duet__vae_unit_free(&v->in);
    duet__vae_unit_free(&v->out);
    duet_free(v->stages);
    duet_free(v->walk);
    duet_free(v);
    *vae = NULL;
}
