/* transformer_test.c - frequencies without a file, and the sizes that the plan relies on. Everything that
 * needs weights is in tests/parity. */
#include "harness/fixture.h"

#include "nn/transformer.c"

TEST(frequencies_equal_the_reference_bit_for_bit, 1000) {
    static const float released[16] = {1,
                                       0.562341332f,
                                       0.316227764f,
                                       0.177827939f,
                                       0.100000001f,
                                       0.0562341288f,
                                       0.0316227786f,
                                       0.0177827943f,
                                       0.00999999978f,
                                       0.00562341325f,
                                       0.00316227786f,
                                       0.00177827943f,
                                       0.00100000005f,
                                       0.000562341302f,
                                       0.000316227786f,
                                       0.00017782794f};
    static const int counts[] = {1, 2, 3, 4, 5, 16};
    fixture f = fixture_open("golden/embeddings.safetensors");
    float got[16];
    default_frequencies(10000.0, 16, got);
    EXPECT_SAME_F32(got, released, 16);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int other = 0; other < 2; other++) {
            char name[64];
            snprintf(name, sizeof name, "rope.inv_freq.%d.%s", counts[i], other ? "500" : "10000");
            default_frequencies(other ? 500.0 : 10000.0, counts[i], got);
            EXPECT_SAME_F32(got, fixture_f32(&f, name, counts[i]), counts[i]);
        }
    fixture_close(&f);
}

TEST(feed_forward_chunks_are_bounded_and_depend_on_shape_alone, 1000) {
    duet_dit_config released = {.hidden = 5376, .heads = 56, .head_dim = 128, .ffn = 14336};
    int64_t budget = DUET__MLP_BUDGET_BYTES;
    int64_t chunk = duet__dit_mlp_chunk_rows(&released, budget, 110000);
    EXPECT(chunk % 64 == 0 && chunk * 2 * 14336 * 4 <= budget);
    EXPECT_EQ(duet__dit_mlp_chunk_rows(&released, budget, 15000), chunk);
    EXPECT_EQ(duet__dit_mlp_chunk_rows(&released, budget, 7), 7);
    EXPECT_EQ(duet__dit_mlp_chunk_rows(&released, 1, 1000), 64);
    /* qkv rules at released sizes: the inner rows fit into its buffer */
    EXPECT_EQ(duet__dit_work_floats(&released, budget, 110000), 110000ll * 3 * 7168);
    EXPECT_EQ(duet__dit_work_floats(&released, budget, 7), 7ll * 2 * 14336);
}

TEST(tables_of_the_released_size_are_as_published, 1000) {
    duet_dit_config c = {.hidden = 5376, .layers = 50};
    /* fp32: twice the published bf16 bytes of one timestep */
    EXPECT_EQ(duet_dit_table_bytes(&c, 1), 2 * (9676800 + 21504));
}
