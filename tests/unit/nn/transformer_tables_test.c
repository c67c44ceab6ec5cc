/* transformer_tables_test.c - the sinusoid of a timestep, against recorded ones. */
#include "harness/fixture.h"

#include "nn/transformer_tables.c"

TEST(time_features_equal_the_reference_to_rounding, 2000) {
    static const int widths[] = {8, 10, 16, 18, 256};
    fixture f = fixture_open("golden/embeddings.safetensors");
    const float *t = fixture_f32(&f, "time.t", 10);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        char name[64];
        float got[10 * 256];
        snprintf(name, sizeof name, "time.features.%d", widths[i]);
        const float *want = fixture_f32(&f, name, 10 * widths[i]);
        time_features(t, 10, widths[i], got);
        for (int k = 0; k < 10 * widths[i]; k++) EXPECT_LE(fabsf(got[k] - want[k]), 1.2e-7);
    }
    fixture_close(&f);
}

TEST(time_features_of_zero_are_ones_and_zeros_and_odd_widths_are_padded, 1000) {
    const float zero = 0.0f;
    float got[7];
    time_features(&zero, 1, 7, got);
    for (int k = 0; k < 7; k++) EXPECT(got[k] == (k < 3 ? 1.0f : 0.0f));
}
