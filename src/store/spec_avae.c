/* spec_avae.c - tensors of the audio VAE: strided encoder with attention projection, BigVGAN decoder (spec
 * model-vae 7.2).
 *
 * Convolutions are stored as a direction `weight_v` and a length `weight_g` along axis 0 (which is the input channel
 * of a transposed convolution). Random gains keep the wave inside [-1, 1]: a clamped wave would hide errors. */
#include <math.h>
#include <stdio.h>

#include "store/spec.h"

static void weight_norm(duet__spec_list *out, double gain, duet_shape shape, int64_t bias_width,
                        const char *name) {
    duet__spec_add(out, DUET_F32, DUET__FILL_WEIGHT, 1.0, shape, "%s.weight_v", name);
    duet__spec_add(out, DUET_F32, DUET__FILL_WN_GAIN, gain, DUET_SHAPE(shape.dim[0], 1, 1), "%s.weight_g",
                   name);
    if (bias_width)
        duet__spec_add(out, DUET_F32, DUET__FILL_NORMAL, 0.06, DUET_SHAPE(bias_width), "%s.bias", name);
}

static void alpha(duet__spec_list *out, int64_t channels, const char *name) {
    duet__spec_add(out, DUET_F32, DUET__FILL_ABOUT_1, 0.3, DUET_SHAPE(1, channels, 1), "%s.alpha", name);
}

static int64_t encoder(const duet_avae_config *c, duet__spec_list *out) {
    char name[64];
#define NAME(...) (snprintf(name, sizeof name, "encoder.block." __VA_ARGS__), name)
    int64_t width = c->encoder_dim;
    int stage = 1;
    weight_norm(out, 1.0, DUET_SHAPE(width, 1, 7), width, NAME("0"));
    for (; stage <= c->n_encoder_rates; stage++) {
        for (int r = 0; r < 3; r++) {
            alpha(out, width, NAME("%d.block.%d.block.0", stage, r));
            weight_norm(out, 1.0, DUET_SHAPE(width, width, 7), width, NAME("%d.block.%d.block.1", stage, r));
            alpha(out, width, NAME("%d.block.%d.block.2", stage, r));
            weight_norm(out, 1.0, DUET_SHAPE(width, width, 1), width, NAME("%d.block.%d.block.3", stage, r));
        }
        alpha(out, width, NAME("%d.block.3", stage));
        weight_norm(out, 1.0, DUET_SHAPE(2 * width, width, 2 * c->encoder_rates[stage - 1]), 2 * width,
                    NAME("%d.block.4", stage));
        width *= 2;
    }
    alpha(out, width, NAME("%d", stage));
    weight_norm(out, 1.0, DUET_SHAPE(c->latent_dim, width, 3), c->latent_dim, NAME("%d", stage + 1));
#undef NAME
    return width;
}

static void projection(const duet_avae_config *c, duet__spec_list *out) {
    int64_t wide = c->latent_dim, narrow = c->latent_channels;
    duet__spec_norm(out, DUET_F32, wide, "pre_block.norm1");
    duet__spec_norm(out, DUET_F32, wide, "pre_block.norm3");
    duet__spec_add(out, DUET_F32, DUET__FILL_WEIGHT, 1.3, DUET_SHAPE(3 * wide, wide),
                   "pre_block.attn.qkv.weight");
    duet__spec_add(out, DUET_F32, DUET__FILL_NORMAL, 0.2, DUET_SHAPE(wide), "pre_block.attn.q_bias");
    duet__spec_add(out, DUET_F32, DUET__FILL_NORMAL, 0.2, DUET_SHAPE(wide), "pre_block.attn.v_bias");
    duet__spec_add(out, DUET_F32, DUET__FILL_ZERO, 0.0, DUET_SHAPE(wide), "pre_block.attn.zero_k_bias");
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(narrow, narrow), "pre_block.attn.proj");
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(narrow, wide), "pre_block.proj");
    duet__spec_norm(out, DUET_F32, narrow, "pre_block.norm2");
    duet__spec_norm(out, DUET_F32, narrow, "pre_block.mlp.norm");
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(2 * narrow, narrow), "pre_block.mlp.w0");
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(2 * narrow, narrow), "pre_block.mlp.w1");
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(narrow, 2 * narrow), "pre_block.mlp.w2");
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(narrow, narrow, 1), "mean_proj");
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(narrow, narrow, 1), "logs_proj");
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(wide, narrow, 1), "dec_in_proj");
}

static void activation(duet__spec_list *out, int64_t channels, const char *prefix) {
    duet__spec_add(out, DUET_F32, DUET__FILL_NORMAL, 0.3, DUET_SHAPE(channels), "%s.act.alpha", prefix);
    duet__spec_add(out, DUET_F32, DUET__FILL_NORMAL, 0.3, DUET_SHAPE(channels), "%s.act.beta", prefix);
    duet__spec_add(out, DUET_F32, DUET__FILL_FILTER, 0.0, DUET_SHAPE(1, 1, 12), "%s.upsample.filter", prefix);
    duet__spec_add(out, DUET_F32, DUET__FILL_FILTER, 0.0, DUET_SHAPE(1, 1, 12),
                   "%s.downsample.lowpass.filter", prefix);
}

static void amp_block(const duet_avae_config *c, duet__spec_list *out, int block, int64_t channels,
                      int64_t kernel) {
    char name[64];
#define NAME(part, i) (snprintf(name, sizeof name, "decoder.resblocks.%d." part ".%d", block, i), name)
    for (int p = 0; p < c->n_res_dilations; p++) {
        weight_norm(out, 0.5, DUET_SHAPE(channels, channels, kernel), channels, NAME("convs1", p));
        weight_norm(out, 0.5, DUET_SHAPE(channels, channels, kernel), channels, NAME("convs2", p));
    }
    for (int p = 0; p < 2 * c->n_res_dilations; p++) activation(out, channels, NAME("activations", p));
#undef NAME
}

static void decoder(const duet_avae_config *c, duet__spec_list *out) {
    int64_t width = c->decoder_dim;
    weight_norm(out, 1.0, DUET_SHAPE(width, c->latent_dim, 7), width, "decoder.conv_pre");
    for (int i = 0; i < c->n_decoder_rates; i++, width /= 2) {
        char name[48];
        snprintf(name, sizeof name, "decoder.ups.%d.0", i);
        weight_norm(out, sqrt(c->decoder_rates[i]), DUET_SHAPE(width, width / 2, c->decoder_kernels[i]),
                    width / 2, name);
        for (int k = 0; k < c->n_res_kernels; k++)
            amp_block(c, out, c->n_res_kernels * i + k, width / 2, c->res_kernels[k]);
    }
    activation(out, width, "decoder.activation_post");
    /* The signal grows by about 1.5 a stage: bring it back to a standard deviation of a quarter. */
    weight_norm(out, ldexp(0.036, -c->n_decoder_rates / 2), DUET_SHAPE(1, width, 7), 0, "decoder.conv_post");
}

void duet__specs_avae(const duet_avae_config *c, duet__spec_list *out) {
    encoder(c, out);
    projection(c, out);
    decoder(c, out);
}
