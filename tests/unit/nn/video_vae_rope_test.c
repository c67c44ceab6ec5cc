/* video_vae_rope_test.c - rotary tables of the video decoder (spec model-vae 5.2), from exact coordinates. */
#include "harness/fixture.h"

#include "nn/video_vae_int.h"

enum { MAX_VALUES = 1 << 16 };

static float cos_table[MAX_VALUES], sin_table[MAX_VALUES];

static duet__vvae_tile_rows build(const duet__vvae_dims *d, int64_t t, int64_t h, int64_t w) {
    duet__vvae_tile_rows r = duet__vvae_tile_rows_of(d, t, h, w);
    EXPECT(r.rows * 3 * d->freqs <= MAX_VALUES);
    duet__vvae_rope_tables(d, &r, cos_table, sin_table);
    return r;
}

/* Rounding the coordinates to half precision, as autocast does, moves an angle by up to 2.7e-3. */
TEST(rope_angles_come_from_exact_coordinates, 2000) {
    const duet__vvae_dims d = {.freqs = 8, .registers = 4, .theta = 100.0};
    const int64_t size[3] = {7, 5, 11};
    duet__vvae_tile_rows r = build(&d, size[0], size[1], size[2]);
    for (int64_t row = 0; row < r.patches; row++) {
        const int64_t index[3] = {row / 55, row / 11 % 5, row % 11};
        for (int axis = 0; axis < 3; axis++) {
            for (int k = 0; k < 8; k++) {
                double at = ((double)(2 * index[axis] + 1 - size[axis])) / (double)size[axis];
                double angle = 2.0 * acos(-1.0) * at / pow(10.0, k / 4.0);
                EXPECT_LE(fabs(cos_table[row * 24 + axis * 8 + k] - cos(angle)), 6e-8);
                EXPECT_LE(fabs(sin_table[row * 24 + axis * 8 + k] - sin(angle)), 6e-8);
            }
        }
    }
}

TEST(rope_leaves_suffix_rows_and_centres_alone, 2000) {
    const duet__vvae_dims d = {.freqs = 2, .registers = 3, .theta = 100.0};
    duet__vvae_tile_rows r = build(&d, 7, 5, 3);
    EXPECT_EQ(r.rows, 7 * 5 * 3 + 4);
    for (int64_t i = r.patches * 6; i < r.rows * 6; i++) {
        EXPECT(cos_table[i] == 1.0f);
        EXPECT(sin_table[i] == 0.0f);
    }
    int64_t centre = ((3 * 5) + 2) * 3 + 1;
    for (int64_t i = centre * 6; i < centre * 6 + 6; i++) {
        EXPECT(cos_table[i] == 1.0f);
        EXPECT(sin_table[i] == 0.0f);
    }
}

TEST(rope_of_mirrored_tokens_turns_the_other_way, 2000) {
    const duet__vvae_dims d = {.freqs = 3, .registers = 0, .theta = 100.0};
    duet__vvae_tile_rows r = build(&d, 4, 6, 5);
    for (int64_t row = 0; row < r.patches; row++) {
        int64_t mirror = r.patches - 1 - row;
        for (int k = 0; k < 9; k++) {
            EXPECT_LE(fabsf(cos_table[row * 9 + k] - cos_table[mirror * 9 + k]), 0.0);
            EXPECT_LE(fabsf(sin_table[row * 9 + k] + sin_table[mirror * 9 + k]), 0.0);
        }
    }
}

/* The reference forms coordinates in fp32: up to 2.4e-7 of a turn away from exact ones. */
TEST(rope_angles_equal_the_reference, 2000) {
    fixture f = fixture_open("golden/embeddings.safetensors");
    static const struct {
        int dim, theta;
    } set[] = {{48, 100}, {24, 100}, {12, 100}, {12, 200}, {6, 100}, {6, 50}};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        int64_t freqs = set[i].dim / 6;
        const duet__vvae_dims d = {.freqs = freqs, .registers = 1, .theta = set[i].theta};
        char name[64];
        snprintf(name, sizeof name, "vvae_rope.inv_freq.%d.%d", set[i].dim, set[i].theta);
        const float *inv_freq = fixture_f32(&f, name, freqs);
        for (int64_t size = 1; size <= 32; size++) {
            snprintf(name, sizeof name, "vvae_rope.axis.%" PRId64, size);
            const float *axis = fixture_f32(&f, name, size);
            build(&d, 1, 1, size);
            for (int64_t x = 0; x < size; x++)
                for (int64_t k = 0; k < freqs; k++) {
                    double angle = 2.0 * acos(-1.0) * (double)axis[x] * (double)inv_freq[k];
                    EXPECT_LE(fabs(cos_table[(x * 3 + 2) * freqs + k] - cos(angle)), 2e-6);
                    EXPECT_LE(fabs(sin_table[(x * 3 + 2) * freqs + k] - sin(angle)), 2e-6);
                }
        }
    }
    fixture_close(&f);
}

TEST(video_decoder_refuses_rotary_sizes_it_cannot_share, 1000) {
    duet_vvae_config c = {
        .vit_heads = 2, .vit_head_dim = 64, .vit_rope_ratio = 0.75f, .space_ratio = 16, .time_ratio = 4};
    duet__vvae_dims d;
    duet_error e = {0};
    EXPECT_OK(duet__vvae_dims_of(&c, &d, &e), e);
    EXPECT_EQ(d.freqs, 8);
    c.vit_head_dim = 8;
    EXPECT_OK(duet__vvae_dims_of(&c, &d, &e), e);
    EXPECT_EQ(d.freqs, 1);
    c.vit_head_dim = 20; /* 15 rotary dimensions */
    EXPECT_EQ(duet__vvae_dims_of(&c, &d, &e), DUET_E_MODEL);
    EXPECT_HAS(e.message, "multiple of 6");
    c.vit_head_dim = 4; /* none */
    EXPECT_EQ(duet__vvae_dims_of(&c, &d, NULL), DUET_E_MODEL);
    c.vit_head_dim = 20;
    c.vit_rope_ratio = 0.6f; /* 12 in decimals, 12.0000005 in fp32 */
    EXPECT_OK(duet__vvae_dims_of(&c, &d, NULL), e);
    EXPECT_EQ(d.freqs, 2);
}

/* Spec model-vae 8.1: 9.658 TFLOP a tile, of which 0.023 in and out. */
TEST(video_decoder_cost_of_the_released_tile, 1000) {
    duet_vvae_config c = {.vit_heads = 32,
                          .vit_head_dim = 64,
                          .vit_rope_ratio = 0.75f,
                          .space_ratio = 16,
                          .time_ratio = 4,
                          .vit_ffn_mult = 4,
                          .vit_layers = 36,
                          .vit_registers = 4,
                          .latent_channels = 24};
    EXPECT_LE(fabs(duet_video_vae_flops(&c, 7, 16, 16) / 9.658e12 - 1.0), 5e-4);
    int64_t rows = 7 * 16 * 16 + 5, bytes = duet_video_vae_activation_bytes(&c, 7, 16, 16);
    int64_t floats = rows * (2 * 2048 + 2 * 8192 + 2 * 24);
    EXPECT(bytes >= floats * 4 && bytes < floats * 4 + 64 * 8);
}
