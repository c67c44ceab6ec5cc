/* layout_test.c - name rules and row permutations by hand-written examples of the chapters. */
#include "harness/harness.h"

#include "store/layout.h"

static void expect_stored(const duet__layout *layout, duet_component component, const char *canonical,
                          duet__order order, duet__arrangement arrangement, const char *a, const char *b,
                          const char *c) {
    duet__spec spec = {.shape = DUET_SHAPE(24, 5), .order = order, .block = 2};
    duet__stored stored[3];
    snprintf(spec.name, sizeof spec.name, "%s", canonical);
    const char *want[] = {a, b, c};
    int n = duet__layout_stored(layout, component, &spec, stored);
    EXPECT_EQ(n, !a ? 0 : !b ? 1 : 3);
    EXPECT_EQ(stored[0].arrangement, arrangement);
    for (int i = 0; i < n; i++) {
        EXPECT_STR(stored[i].name, want[i]);
        EXPECT_EQ(stored[i].shape.dim[0], n == 3 ? 8 : 24);
        EXPECT_EQ(stored[i].shape.dim[1], 5);
    }
}

TEST(layout_names, 1000) {
    const duet__layout *d = &duet__layout_diffusers, *n = &duet__layout_native;
#define DIT(from, ...) expect_stored(d, DUET_COMPONENT_DIT, from, DUET__ROWS, __VA_ARGS__)
#define VVAE(from, ...) expect_stored(d, DUET_COMPONENT_VVAE, from, DUET__ROWS, __VA_ARGS__)
    DIT("blocks.17.attn.qkv_proj.weight", DUET__SPLIT, "transformer_blocks.17.attn.to_q.weight",
        "transformer_blocks.17.attn.to_k.weight", "transformer_blocks.17.attn.to_v.weight");
    DIT("token_refiner.blocks.1.mlp.fc1.weight", DUET__SWAPPED,
        "token_refiner.refiner_blocks.1.ff.net.0.proj.weight", NULL, NULL);
    DIT("blocks.3.adaln_proj.linear.bias", DUET__PLAIN, "transformer_blocks.3.adaln_proj.linear.bias", NULL,
        NULL);
    DIT("token_refiner.final_norm.weight", DUET__PLAIN, "token_refiner.final_norm.weight", NULL, NULL);
    DIT("final_layer.adaln_proj.linear.weight", DUET__PLAIN, "norm_out.linear.weight", NULL, NULL);
    DIT("final_layer.video_out.bias", DUET__PLAIN, "proj_out.bias", NULL, NULL);
    DIT("rope.inv_freq", DUET__ABSENT, NULL, NULL, NULL);
    VVAE("encoder.down.5.block.0.nin_shortcut.bias", DUET__PLAIN,
         "encoder.down_blocks.5.resnets.0.conv_shortcut.bias", NULL, NULL);
    VVAE("encoder.down.2.downsample.conv.weight", DUET__PLAIN,
         "encoder.down_blocks.2.downsamplers.0.conv.weight", NULL, NULL);
    VVAE("decoder.transformer_blocks.9.attn.to_qkv.bias", DUET__SPLIT,
         "decoder.transformer_blocks.9.attn.to_q.bias", "decoder.transformer_blocks.9.attn.to_k.bias",
         "decoder.transformer_blocks.9.attn.to_v.bias");
    VVAE("decoder.transformer_blocks.9.scale1", DUET__PLAIN, "decoder.transformer_blocks.9.scale1", NULL,
         NULL);
    VVAE("decoder.norm_out.weight", DUET__PLAIN, "decoder.norm_out.weight", NULL, NULL);
    expect_stored(n, DUET_COMPONENT_DIT, "blocks.0.attn.qkv_proj.weight", DUET__QKV, DUET__GROUPED,
                  "blocks.0.attn.qkv_proj.weight", NULL, NULL);
    expect_stored(n, DUET_COMPONENT_TEXT, "model.visual.blocks.0.attn.qkv.weight", DUET__ROWS, DUET__PLAIN,
                  "model.visual.blocks.0.attn.qkv.weight", NULL, NULL);
    expect_stored(d, DUET_COMPONENT_AVAE, "pre_block.attn.qkv.weight", DUET__ROWS, DUET__PLAIN,
                  "pre_block.attn.qkv.weight", NULL, NULL);
#undef DIT
#undef VVAE
}

TEST(layout_rules_match_whole_names, 1000) {
    char out[32];
    EXPECT(duet__rule_apply("a.#.*", "b.#.c.*", "a.12.x.y", out, sizeof out));
    EXPECT_STR(out, "b.12.c.x.y");
    EXPECT(!duet__rule_apply("a.#.*", "b", "a.x.y", out, sizeof out));
    EXPECT(!duet__rule_apply("a.#", "b", "a.1.", out, sizeof out));
    EXPECT(!duet__rule_apply("a.*", "b", "a.", out, sizeof out));
    EXPECT(!duet__rule_apply("a.*", "b.*", "a.012345678901234567890123456789", out,
                             sizeof out)); /* does not fit */
}

/* Spec model-dit 2.1: stored row 384 g + 128 p + d is canonical row 7168 p + 128 g + d. */
TEST(layout_rows, 1000) {
    duet__spec spec = {.shape = DUET_SHAPE(21504, 5376), .order = DUET__QKV, .block = 128};
    duet__stored grouped = {.shape = spec.shape, .arrangement = DUET__GROUPED};
    for (int64_t g = 0; g < 56; g += 5)
        for (int64_t p = 0; p < 3; p++)
            EXPECT_EQ(duet__canonical_row(&spec, &grouped, 384 * g + 128 * p + 7), 7168 * p + 128 * g + 7);
    duet__stored k = {.arrangement = DUET__SPLIT, .part = 1};
    EXPECT_EQ(duet__canonical_row(&spec, &k, 3), 7168 + 3);
    duet__stored swapped = {.arrangement = DUET__SWAPPED};
    EXPECT_EQ(duet__canonical_row(&spec, &swapped, 0), 10752);
    EXPECT_EQ(duet__canonical_row(&spec, &swapped, 10752), 0);
}
