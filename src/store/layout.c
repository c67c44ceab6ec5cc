/* layout.c - the tables of the two unquantised layouts (spec checkpoints 1.1, 1.2; model-vae 3.2, 3.3). */
#include "store/layout.h"

#include <ctype.h>
#include <string.h>

#define DIT(from, to, how)                                                                                   \
    { DUET_COMPONENT_DIT, from, {to}, how }
#define VVAE(from, to, how)                                                                                  \
    { DUET_COMPONENT_VVAE, from, {to}, how }

static const duet__rule native_rules[] = {
    DIT("blocks.#.attn.qkv_proj.weight", "blocks.#.attn.qkv_proj.weight", DUET__GROUPED),
    DIT("token_refiner.blocks.#.attn.qkv_proj.weight", "token_refiner.blocks.#.attn.qkv_proj.weight",
        DUET__GROUPED),
    VVAE("decoder.transformer_blocks.#.attn.to_qkv.*", "decoder.transformer_blocks.#.attn.to_qkv.*",
         DUET__GROUPED),
};

/* Blocks and refiner blocks follow the same rules under different prefixes. */
#define BLOCK(from, to)                                                                                      \
    {DUET_COMPONENT_DIT,                                                                                     \
     from ".#.attn.qkv_proj.weight",                                                                         \
     {to ".#.attn.to_q.weight", to ".#.attn.to_k.weight", to ".#.attn.to_v.weight"},                         \
     DUET__SPLIT},                                                                                           \
        DIT(from ".#.attn.q_norm.weight", to ".#.attn.norm_q.weight", DUET__PLAIN),                          \
        DIT(from ".#.attn.k_norm.weight", to ".#.attn.norm_k.weight", DUET__PLAIN),                          \
        DIT(from ".#.attn.out_proj.weight", to ".#.attn.to_out.0.weight", DUET__PLAIN),                      \
        DIT(from ".#.mlp.fc1.weight", to ".#.ff.net.0.proj.weight", DUET__SWAPPED),                          \
        DIT(from ".#.mlp.fc2.weight", to ".#.ff.net.2.weight", DUET__PLAIN),                                 \
        DIT(from ".#.*", to ".#.*", DUET__PLAIN)

#define VIT "decoder.transformer_blocks.#."

static const duet__rule diffusers_rules[] = {
    BLOCK("blocks", "transformer_blocks"),
    BLOCK("token_refiner.blocks", "token_refiner.refiner_blocks"),
    DIT("video_patch_proj.*", "proj_in.*", DUET__PLAIN),
    DIT("audio_patch_proj.*", "audio_proj_in.*", DUET__PLAIN),
    DIT("condition_proj.*", "context_embedder.*", DUET__PLAIN),
    DIT("time_embedder.proj_in.*", "time_embedder.linear_1.*", DUET__PLAIN),
    DIT("time_embedder.proj_out.*", "time_embedder.linear_2.*", DUET__PLAIN),
    DIT("final_layer.norm.weight", "norm_out.norm.weight", DUET__PLAIN),
    DIT("final_layer.adaln_proj.linear.*", "norm_out.linear.*", DUET__PLAIN),
    DIT("final_layer.video_out.*", "proj_out.*", DUET__PLAIN),
    DIT("final_layer.audio_out.*", "audio_proj_out.*", DUET__PLAIN),
    DIT("rope.inv_freq", "", DUET__ABSENT),

    VVAE("encoder.down.#.block.#.nin_shortcut.*", "encoder.down_blocks.#.resnets.#.conv_shortcut.*",
         DUET__PLAIN),
    VVAE("encoder.down.#.block.#.*", "encoder.down_blocks.#.resnets.#.*", DUET__PLAIN),
    VVAE("encoder.down.#.downsample.*", "encoder.down_blocks.#.downsamplers.0.*", DUET__PLAIN),
    VVAE("decoder.x_embedder.*", "decoder.proj_in.*", DUET__PLAIN),
    {DUET_COMPONENT_VVAE,
     VIT "attn.to_qkv.*",
     {VIT "attn.to_q.*", VIT "attn.to_k.*", VIT "attn.to_v.*"},
     DUET__SPLIT},
    VVAE(VIT "attn.to_out.*", VIT "attn.to_out.0.*", DUET__PLAIN),
    VVAE(VIT "ff.w1.*", VIT "ff.net.0.proj.*", DUET__SWAPPED),
    VVAE(VIT "ff.w2.*", VIT "ff.net.2.*", DUET__PLAIN),
    VVAE("decoder.mask_token", "", DUET__ABSENT),
};

#define COUNT(table) (int)(sizeof(table) / sizeof *(table))

const duet__layout duet__layout_native = {
    .name = "native",
    .rules = native_rules,
    .n_rules = COUNT(native_rules),
    .dir = {"transformer", "text_encoder", "video_vae/source", "audio_vae"},
    .dir_ref = "transformer", /* a partition is a directory of its own */
    .stem = {"model", "model", "model", "model"},
    .config_file = {"transformer/config.json", "text_encoder/config.json", "video_vae/source/config.json",
                    "audio_vae/metadata.json"},
};

const duet__layout duet__layout_diffusers = {
    .name = "diffusers",
    .rules = diffusers_rules,
    .n_rules = COUNT(diffusers_rules),
    .dir = {"transformer", "text_encoder", "vae", "audio_vae"},
    .dir_ref = "transformer_ref",
    .stem = {"diffusion_pytorch_model", "model", "diffusion_pytorch_model", "diffusion_pytorch_model"},
    .config_file = {"transformer/config.json", "text_encoder/config.json", "vae/config.json",
                    "audio_vae/config.json"},
};

const duet__prefix duet__prefixes[] = {
    {DUET_COMPONENT_TEXT,
     {"model.language_model.", "language_model.model.", "language_model.", "model.", NULL},
     "embed_tokens.weight"},
    {DUET_COMPONENT_TEXT, {"model.visual.", "visual.", NULL}, "patch_embed.proj.weight"},
    {DUET_COMPONENT_TEXT, {"lm_head.", "language_model.lm_head.", NULL}, "weight"},
};
const int duet__n_prefixes = COUNT(duet__prefixes);

const duet__layout *duet__layout_find(const char *name) {
    if (strcmp(name, "native") == 0) return &duet__layout_native;
    if (strcmp(name, "diffusers") == 0) return &duet__layout_diffusers;
    return NULL;
}

/* ---- rules --------------------------------------------------------------------------------------------------- */

enum { MAX_CAPTURES = 4 };

typedef struct captures {
    const char *text[MAX_CAPTURES];
    size_t bytes[MAX_CAPTURES];
    int n;
} captures;

static bool match(const char *pattern, const char *name, captures *got) {
    for (; *pattern; pattern++) {
        if (*pattern == '#' || *pattern == '*') {
            size_t n = *pattern == '#' ? strspn(name, "0123456789") : strlen(name);
            if (!n || got->n == MAX_CAPTURES) return false;
            got->text[got->n] = name;
            got->bytes[got->n++] = n;
            name += n;
        } else if (*pattern != *name++) {
            return false;
        }
    }
    return *name == '\0';
}

bool duet__rule_apply(const char *from, const char *to, const char *name, char *out, size_t out_bytes) {
    captures got = {.n = 0};
    if (!match(from, name, &got)) return false;
    size_t used = 0;
    int next = 0;
    for (; *to; to++) {
        bool capture = *to == '#' || *to == '*';
        const char *piece = capture ? got.text[next] : to;
        size_t n = capture ? got.bytes[next++] : 1;
        if (used + n + 1 > out_bytes) return false;
        memcpy(out + used, piece, n);
        used += n;
    }
    out[used] = '\0';
    return true;
}

static int stored_split(const duet__rule *rule, const duet__spec *spec, duet__stored out[3]) {
    for (int part = 0; part < 3; part++) {
        duet__stored *s = &out[part];
        *s = (duet__stored){.shape = spec->shape, .arrangement = DUET__SPLIT, .part = part};
        s->shape.dim[0] /= 3;
        duet__rule_apply(rule->canonical, rule->stored[part], spec->name, s->name, sizeof s->name);
    }
    return 3;
}

int duet__layout_stored(const duet__layout *layout, duet_component component, const duet__spec *spec,
                        duet__stored out[3]) {
    out[0] = (duet__stored){.shape = spec->shape, .arrangement = DUET__PLAIN};
    for (int i = 0; i < layout->n_rules; i++) {
        const duet__rule *rule = &layout->rules[i];
        if (rule->component != component ||
            !duet__rule_apply(rule->canonical, rule->stored[0], spec->name, out[0].name, sizeof out[0].name))
            continue;
        out[0].arrangement = rule->arrangement;
        if (rule->arrangement == DUET__SPLIT) return stored_split(rule, spec, out);
        return rule->arrangement != DUET__ABSENT;
    }
    strcpy(out[0].name, spec->name);
    return 1;
}

int64_t duet__canonical_row(const duet__spec *spec, const duet__stored *stored, int64_t row) {
    int64_t rows = spec->shape.dim[0], block = spec->block;
    switch (stored->arrangement) {
    case DUET__GROUPED: { /* row = (head*3 + part)*block + i */
        int64_t part = row / block % 3, head = row / (3 * block);
        return part * (rows / 3) + head * block + row % block;
    }
    case DUET__SPLIT:
        return stored->part * (rows / 3) + row;
    case DUET__SWAPPED:
        return (row + rows / 2) % rows;
    default:
        return row;
    }
}
