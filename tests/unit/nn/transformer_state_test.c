/* transformer_state_test.c - rotation tables of given positions, against recorded ones. */
#include "harness/fixture.h"

#include "nn/transformer_state.c"

TEST(rotations_equal_the_reference_to_rounding, 2000) {
    static const int counts[] = {1, 2, 3, 4, 5, 16};
    fixture f = fixture_open("golden/embeddings.safetensors");
    double positions[15];
    memcpy(positions, fixture_get(&f, "rope.positions").data, sizeof positions);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int n = counts[i], pairs = 3 * n;
        float inv_freq[16], got[48];
        char name[64];
        snprintf(name, sizeof name, "rope.inv_freq.%d.10000", n);
        memcpy(inv_freq, fixture_f32(&f, name, n), (size_t)n * sizeof(float));
        duet_dit dit = {.config = {.rope_freqs = n}, .inv_freq = inv_freq};
        for (int sine = 0; sine < 2; sine++) {
            snprintf(name, sizeof name, "rope.%s.%d", sine ? "sin" : "cos", n);
            const float *want =
                fixture_f32(&f, name, 5 * 2 * pairs); /* the reference repeats each row's half */
            for (int r = 0; r < 5; r++) {
                rotation_row(&dit, positions + 3 * r, sine ? sinf : cosf, got);
                for (int k = 0; k < pairs; k++) EXPECT_LE(fabsf(got[k] - want[r * 2 * pairs + k]), 1.2e-7);
            }
        }
    }
    fixture_close(&f);
}
