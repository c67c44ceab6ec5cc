/* spec_text.c - tensors of the Qwen3-VL text encoder and its vision tower (spec model-conditioning 4.7, 5.3).
 *
 * Layers from the tap on, the final norm and the head belong to the checkpoint but are never read. */
#include <stdio.h>

#include "store/spec.h"

#define TEXT "model.language_model."
#define VISION "model.visual."

static void weight(duet__spec_list *out, duet__role role, int64_t rows, int64_t columns, const char *prefix,
                   const char *name) {
    duet__spec_add(out, DUET_BF16, DUET__FILL_WEIGHT, 1.3, DUET_SHAPE(rows, columns), "%s.%s.weight", prefix,
                   name)
        ->role = role;
}

static void gain(duet__spec_list *out, duet__role role, int64_t width, const char *prefix, const char *name) {
    duet__spec_add(out, DUET_BF16, DUET__FILL_ABOUT_1, 0.3, DUET_SHAPE(width), "%s.%s.weight", prefix, name)
        ->role = role;
}

static void text_layer(const duet_text_config *t, duet__spec_list *out, int layer) {
    char prefix[64];
    snprintf(prefix, sizeof prefix, TEXT "layers.%d", layer);
    duet__role role = layer < t->tap_layer ? DUET__READ : DUET__SKIP;
    int64_t q = (int64_t)t->heads * t->head_dim, kv = (int64_t)t->kv_heads * t->head_dim;
    gain(out, role, t->hidden, prefix, "input_layernorm");
    gain(out, role, t->hidden, prefix, "post_attention_layernorm");
    weight(out, role, q, t->hidden, prefix, "self_attn.q_proj");
    weight(out, role, kv, t->hidden, prefix, "self_attn.k_proj");
    weight(out, role, kv, t->hidden, prefix, "self_attn.v_proj");
    weight(out, role, t->hidden, q, prefix, "self_attn.o_proj");
    gain(out, role, t->head_dim, prefix, "self_attn.q_norm");
    gain(out, role, t->head_dim, prefix, "self_attn.k_norm");
    weight(out, role, t->ffn, t->hidden, prefix, "mlp.gate_proj");
    weight(out, role, t->ffn, t->hidden, prefix, "mlp.up_proj");
    weight(out, role, t->hidden, t->ffn, prefix, "mlp.down_proj");
}

static void vision_linear(duet__spec_list *out, int64_t rows, int64_t columns, const char *prefix,
                          const char *name) {
    char full[DUET__NAME_BYTES - 8];
    snprintf(full, sizeof full, "%s.%s", prefix, name);
    duet__spec_linear(out, DUET_BF16, 1.3, DUET_SHAPE(rows, columns), full);
}

static void vision_norm(duet__spec_list *out, int64_t width, const char *prefix, const char *name) {
    char full[DUET__NAME_BYTES - 8];
    snprintf(full, sizeof full, "%s.%s", prefix, name);
    duet__spec_norm(out, DUET_BF16, width, full);
}

static void merger(const duet_vision_config *v, duet__spec_list *out, int64_t norm_width,
                   const char *prefix) {
    int64_t wide = (int64_t)v->hidden * v->merge * v->merge;
    vision_norm(out, norm_width, prefix, "norm");
    vision_linear(out, wide, wide, prefix, "linear_fc1");
    vision_linear(out, v->out_hidden, wide, prefix, "linear_fc2");
}

static void vision(const duet_vision_config *v, duet__spec_list *out) {
    char prefix[64];
    int64_t hidden = v->hidden;
    duet__spec_linear(out, DUET_BF16, 1.3,
                      DUET_SHAPE(hidden, v->in_channels, v->temporal_patch, v->patch, v->patch),
                      VISION "patch_embed.proj");
    duet__spec_add(out, DUET_BF16, DUET__FILL_NORMAL, 1.0, DUET_SHAPE(v->positions, hidden),
                   VISION "pos_embed.weight");
    for (int i = 0; i < v->depth; i++) {
        snprintf(prefix, sizeof prefix, VISION "blocks.%d", i);
        vision_norm(out, hidden, prefix, "norm1");
        vision_norm(out, hidden, prefix, "norm2");
        vision_linear(out, 3 * hidden, hidden, prefix, "attn.qkv"); /* thirds contiguous: not interleaved */
        vision_linear(out, hidden, hidden, prefix, "attn.proj");
        vision_linear(out, v->ffn, hidden, prefix, "mlp.linear_fc1");
        vision_linear(out, hidden, v->ffn, prefix, "mlp.linear_fc2");
    }
    merger(v, out, hidden, VISION "merger"); /* normalises before grouping, the deepstack ones after */
    for (int i = 0; i < v->n_deepstack; i++) {
        snprintf(prefix, sizeof prefix, VISION "deepstack_merger_list.%d", i);
        merger(v, out, hidden * v->merge * v->merge, prefix);
    }
}

void duet__specs_text(const duet_text_config *t, const duet_vision_config *v, duet__spec_list *out) {
    duet__spec_add(out, DUET_BF16, DUET__FILL_NORMAL, 1.0, DUET_SHAPE(t->vocab, t->hidden),
                   TEXT "embed_tokens.weight");
    for (int i = 0; i < t->layers_in_file; i++) text_layer(t, out, i);
    duet__spec_add(out, DUET_BF16, DUET__FILL_ABOUT_1, 0.3, DUET_SHAPE(t->hidden), TEXT "norm.weight")->role =
        DUET__SKIP;
    duet__spec_add(out, DUET_BF16, DUET__FILL_WEIGHT, 1.3, DUET_SHAPE(t->vocab, t->hidden), "lm_head.weight")
        ->role = DUET__SKIP;
    vision(v, out);
}
