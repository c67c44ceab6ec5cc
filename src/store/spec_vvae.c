/* spec_vvae.c - tensors of the video VAE: causal convolution encoder and ViT decoder (spec model-vae 3.2, 3.3). */
#include <stdio.h>

#include "store/spec.h"

static void conv3(duet__spec_list *out, int64_t to, int64_t from, int64_t kernel, const char *name) {
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(to, from, kernel, kernel, kernel), name);
}

static void res_block(duet__spec_list *out, int level, int block, int64_t from, int64_t to) {
    char name[80];
#define NAME(part) (snprintf(name, sizeof name, "encoder.down.%d.block.%d." part, level, block), name)
    duet__spec_norm(out, DUET_F32, from, NAME("norm1"));
    conv3(out, to, from, 3, NAME("conv1"));
    duet__spec_norm(out, DUET_F32, to, NAME("norm2"));
    conv3(out, to, to, 3, NAME("conv2"));
    if (from != to) conv3(out, to, from, 1, NAME("nin_shortcut"));
#undef NAME
}

static void encoder(const duet_vvae_config *c, duet__spec_list *out) {
    int64_t width = c->channels[0], latent = c->latent_channels;
    conv3(out, width, 3, 3, "encoder.conv_in");
    for (int level = 0; level < c->levels; level++) {
        for (int b = 0; b < c->res_blocks; b++) {
            res_block(out, level, b, width, c->channels[level]);
            width = c->channels[level];
        }
        if (c->space_down[level] * c->time_down[level] == 1) continue;
        char name[64];
        snprintf(name, sizeof name, "encoder.down.%d.downsample.conv", level);
        conv3(out, width, width, 3, name);
    }
    duet__spec_norm(out, DUET_F32, width, "encoder.norm_out");
    conv3(out, 2 * latent, width, 3, "encoder.conv_out");
    conv3(out, 2 * latent, 2 * latent, 1, "quant_conv");
    conv3(out, latent, latent, 1, "post_quant_conv");
}

static void vit_block(const duet_vvae_config *c, duet__spec_list *out, int block) {
    char prefix[48];
    int64_t width = (int64_t)c->vit_heads * c->vit_head_dim, inner = width * c->vit_ffn_mult;
    snprintf(prefix, sizeof prefix, "decoder.transformer_blocks.%d", block);
    for (int i = 1; i <= 2; i++) {
        duet__spec_add(out, DUET_F32, DUET__FILL_ABOUT_1, 0.3, DUET_SHAPE(width), "%s.norm%d.weight", prefix,
                       i);
        duet__spec_add(out, DUET_F32, DUET__FILL_SCALE, 0.2, DUET_SHAPE(width), "%s.scale%d", prefix, i);
    }
    const struct {
        const char *name;
        int64_t rows, columns;
        duet__order order;
    } linear[] = {{"attn.to_qkv", 3 * width, width, DUET__QKV},
                  {"attn.to_out", width, width, DUET__ROWS},
                  {"ff.w1", 2 * inner, width, DUET__HALVES},
                  {"ff.w2", width, inner, DUET__ROWS}};
    for (int i = 0; i < 4; i++) {
        duet__spec *w = duet__spec_add(out, DUET_F32, DUET__FILL_WEIGHT, 1.3,
                                       DUET_SHAPE(linear[i].rows, linear[i].columns), "%s.%s.weight", prefix,
                                       linear[i].name);
        w->order = linear[i].order;
        w->block = c->vit_head_dim;
        duet__spec *b = duet__spec_add(out, DUET_F32, DUET__FILL_NORMAL, 0.2, DUET_SHAPE(linear[i].rows),
                                       "%s.%s.bias", prefix, linear[i].name);
        b->order = linear[i].order;
        b->block = c->vit_head_dim;
    }
}

void duet__specs_vvae(const duet_vvae_config *c, duet__spec_list *out) {
    int64_t width = (int64_t)c->vit_heads * c->vit_head_dim;
    int64_t pixels = 3 * (int64_t)c->time_ratio * c->space_ratio * c->space_ratio;
    encoder(c, out);
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(width, c->latent_channels), "decoder.x_embedder");
    duet__spec_add(out, DUET_F32, DUET__FILL_NORMAL, 1.0, DUET_SHAPE(1, c->vit_registers, width),
                   "decoder.register_tokens");
    duet__spec_add(out, DUET_F32, DUET__FILL_ZERO, 0.0, DUET_SHAPE(1, 1, width), "decoder.mask_token")->role =
        DUET__SKIP;
    for (int i = 0; i < c->vit_layers; i++) vit_block(c, out, i);
    duet__spec_norm(out, DUET_F32, width, "decoder.norm_out");
    duet__spec_linear(out, DUET_F32, 0.6, DUET_SHAPE(pixels, width), "decoder.proj_out");
}
