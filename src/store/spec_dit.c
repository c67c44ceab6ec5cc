/* spec_dit.c - tensors of the diffusion transformer (spec model-dit 2.1): 10 a block, 8 a refiner block, 19 others. */
#include <stdio.h>

#include "store/spec.h"

static void block(const duet_dit_config *c, duet__spec_list *out, const char *prefix, bool adaln) {
    int64_t hidden = c->hidden, inner = (int64_t)c->heads * c->head_dim, ffn = c->ffn;
    duet__spec_add(out, DUET_BF16, DUET__FILL_ABOUT_1, 0.3, DUET_SHAPE(hidden), "%s.norm1.weight", prefix);
    duet__spec_add(out, DUET_BF16, DUET__FILL_ABOUT_1, 0.3, DUET_SHAPE(hidden), "%s.norm2.weight", prefix);
    duet__spec *qkv = duet__spec_add(out, DUET_BF16, DUET__FILL_WEIGHT, 1.3, DUET_SHAPE(3 * inner, hidden),
                                     "%s.attn.qkv_proj.weight", prefix);
    qkv->order = DUET__QKV;
    qkv->block = c->head_dim;
    duet__spec_add(out, DUET_BF16, DUET__FILL_ABOUT_1, 0.3, DUET_SHAPE(c->head_dim), "%s.attn.q_norm.weight",
                   prefix);
    duet__spec_add(out, DUET_BF16, DUET__FILL_ABOUT_1, 0.3, DUET_SHAPE(c->head_dim), "%s.attn.k_norm.weight",
                   prefix);
    duet__spec_add(out, DUET_BF16, DUET__FILL_WEIGHT, 1.3, DUET_SHAPE(hidden, inner),
                   "%s.attn.out_proj.weight", prefix);
    duet__spec_add(out, DUET_BF16, DUET__FILL_WEIGHT, 1.3, DUET_SHAPE(2 * ffn, hidden), "%s.mlp.fc1.weight",
                   prefix)
        ->order = DUET__HALVES;
    duet__spec_add(out, DUET_BF16, DUET__FILL_WEIGHT, 1.3, DUET_SHAPE(hidden, ffn), "%s.mlp.fc2.weight",
                   prefix);
    if (!adaln) return;
    char name[64];
    snprintf(name, sizeof name, "%s.adaln_proj.linear", prefix);
    duet__spec_linear(out, DUET_BF16, 0.7, DUET_SHAPE(18 * hidden, c->time_dim), name);
}

/* The fp32 island: whatever the rest is stored in, these twelve and rope.inv_freq compute in fp32. */
static void island(const duet_dit_config *c, duet__spec_list *out) {
    int64_t video = (int64_t)c->video_channels * c->patch_t * c->patch_h * c->patch_w;
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(c->hidden, video), "video_patch_proj");
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(c->hidden, c->audio_channels), "audio_patch_proj");
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(c->time_hidden, c->time_sinusoid),
                      "time_embedder.proj_in");
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(c->time_dim, c->time_hidden), "time_embedder.proj_out");
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(video, c->hidden), "final_layer.video_out");
    duet__spec_linear(out, DUET_F32, 1.3, DUET_SHAPE(c->audio_channels, c->hidden), "final_layer.audio_out");
    duet__spec_add(out, DUET_F32, DUET__FILL_INV_FREQ, c->rope_theta, DUET_SHAPE(c->rope_freqs),
                   "rope.inv_freq")
        ->role = DUET__CONSTANT;
}

void duet__specs_dit(const duet_dit_config *c, duet__spec_list *out) {
    char prefix[64];
    island(c, out);
    duet__spec_linear(out, DUET_BF16, 1.3, DUET_SHAPE(c->hidden, c->text_dim), "condition_proj");
    for (int i = 0; i < c->refiner_layers; i++) {
        snprintf(prefix, sizeof prefix, "token_refiner.blocks.%d", i);
        block(c, out, prefix, false);
    }
    duet__spec_add(out, DUET_BF16, DUET__FILL_ABOUT_1, 0.3, DUET_SHAPE(c->hidden),
                   "token_refiner.final_norm.weight");
    for (int i = 0; i < c->layers; i++) {
        snprintf(prefix, sizeof prefix, "blocks.%d", i);
        block(c, out, prefix, true);
    }
    duet__spec_add(out, DUET_BF16, DUET__FILL_ABOUT_1, 0.3, DUET_SHAPE(c->hidden), "final_layer.norm.weight");
    duet__spec_linear(out, DUET_BF16, 0.7, DUET_SHAPE(2 * (int64_t)c->hidden, c->time_dim),
                      "final_layer.adaln_proj.linear");
}
