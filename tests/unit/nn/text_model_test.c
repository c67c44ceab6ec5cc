/* text_model_test.c - sizes and rotary tables of the text model; its values are held against the reference
 * in tests/parity. */
#include "harness/harness.h"

#include "nn/text_model_int.h"
#include "nn/text_rope.h"

static const duet_text_config released = {.hidden = 5120,
                                          .layers_in_file = 64,
                                          .tap_layer = 50,
                                          .heads = 64,
                                          .kv_heads = 8,
                                          .head_dim = 128,
                                          .ffn = 25600,
                                          .vocab = 151936,
                                          .mrope_section = {24, 20, 20},
                                          .rope_theta = 5e6,
                                          .norm_eps = 1e-6f,
                                          .max_positions = 262144};

static const duet_text_config tiny = {.hidden = 46,
                                      .layers_in_file = 5,
                                      .tap_layer = 3,
                                      .heads = 6,
                                      .kv_heads = 2,
                                      .head_dim = 10,
                                      .ffn = 70,
                                      .vocab = 414,
                                      .mrope_section = {3, 1, 1},
                                      .rope_theta = 1e4,
                                      .norm_eps = 2e-6f,
                                      .max_positions = 262144};

TEST(text_rope_axes_are_interleaved, 1000) {
    int count[3] = {0};
    for (int64_t pair = 0; pair < 64; pair++) {
        int want = pair < 60 && pair % 3 == 1 ? 1 : pair < 60 && pair % 3 == 2 ? 2 : 0;
        EXPECT_EQ(duet_text_rope_axis(&released, pair), want);
        count[want]++;
    }
    EXPECT_EQ(count[0], 24);
    EXPECT_EQ(count[1], 20);
    EXPECT_EQ(count[2], 20);
    static const int tiny_axis[5] = {0, 1, 2, 0, 0};
    for (int pair = 0; pair < 5; pair++) EXPECT_EQ(duet_text_rope_axis(&tiny, pair), tiny_axis[pair]);
}

TEST(text_rope_of_text_is_one_dimensional, 1000) {
    enum { ROWS = 40, PAIRS = 64 };
    static int32_t at[ROWS * 3];
    static float c[ROWS * PAIRS], s[ROWS * PAIRS];
    duet_text_positions(ROWS, at);
    for (int r = 0; r < ROWS; r++)
        for (int axis = 0; axis < 3; axis++) EXPECT_EQ(at[r * 3 + axis], r);
    duet_text_rope_tables(&released, at, ROWS, c, s);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < PAIRS; i++) {
            double angle = r * pow(5e6, -2.0 * i / 128.0);
            EXPECT_LE(fabs(c[r * PAIRS + i] - cos(angle)), 4e-6);
            EXPECT_LE(fabs(s[r * PAIRS + i] - sin(angle)), 4e-6);
        }
}

TEST(text_rope_takes_each_pair_from_its_axis, 1000) {
    static const int32_t at[3] = {2, 30, 7}, same[3][3] = {{2, 2, 2}, {30, 30, 30}, {7, 7, 7}};
    float c[64], s[64], want_c[3][64], want_s[3][64];
    duet_text_rope_tables(&released, at, 1, c, s);
    for (int axis = 0; axis < 3; axis++)
        duet_text_rope_tables(&released, same[axis], 1, want_c[axis], want_s[axis]);
    for (int i = 0; i < 64; i++) {
        int axis = duet_text_rope_axis(&released, i);
        EXPECT(c[i] == want_c[axis][i] && s[i] == want_s[axis][i]);
    }
}

/* Parts lie one behind the other, each with room for what it holds. */
static void expect_layout(const duet_text_config *c, int64_t rows, int64_t chunk_rows) {
    duet__text_layout l = duet__text_layout_of(c, DUET__TEXT_MLP_CHUNK_VALUES, rows);
    int64_t kv = (int64_t)c->kv_heads * c->head_dim, q = (int64_t)c->heads * c->head_dim,
            half = c->head_dim / 2;
    int64_t start[] = {l.ids, l.cos, l.sin, l.n, l.q, l.k, l.v, l.gate, l.up, l.bytes};
    int64_t values[] = {rows,      rows * half, rows * half,         rows * c->hidden,   rows * q,
                        rows * kv, rows * kv,   chunk_rows * c->ffn, chunk_rows * c->ffn};
    EXPECT_EQ(l.chunk_rows, chunk_rows);
    EXPECT_EQ(start[0], 0);
    for (int i = 0; i < 9; i++) {
        EXPECT_EQ(start[i] % 64, 0);
        EXPECT(start[i + 1] - start[i] >= 4 * values[i]);
        EXPECT(start[i + 1] - start[i] < 4 * values[i] + 64);
    }
    EXPECT_EQ(duet_text_model_activation_bytes(c, rows), l.bytes);
}

TEST(text_model_layout, 1000) {
    expect_layout(&tiny, 1, 1);
    expect_layout(&tiny, 7000, 7000);
    expect_layout(&released, 6, 6);
    expect_layout(&released, 640, 640);
    expect_layout(&released, 641, 640);
    expect_layout(&released, 42000, 640);
}
