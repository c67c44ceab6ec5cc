/* ref_test.c - the ruler itself: reference kernels against formulas written down independently in double, and against
 * properties that hold whatever the values. The rounded ops also meet naive.c in every checkop case. */
#include "checkop/checkop.h"

#include <stdlib.h>

static duet_device *dev;
static duet_stream *stream;

static void open_ref(void) {
    duet_error err = {0};
    EXPECT_OK(duet_device_open(&(duet_device_options){.backend = "ref", .n_threads = 2}, &dev, &err), err);
    EXPECT_OK(duet_stream_open(dev, 0, &stream, &err), err);
}

static void close_ref(void) {
    duet_error err = {0};
    EXPECT_OK(duet_stream_sync(stream, &err), err);
    duet_stream_close(&stream);
    duet_device_close(&dev);
}

static checkop_case values; /* source of random numbers */

static float *random_values(int64_t n) {
    float *x = malloc((size_t)n * sizeof *x);
    if (!values.rng) values.rng = checkop_seed();
    for (int64_t i = 0; i < n; i++) x[i] = checkop_normal(&values);
    return x;
}

static void expect_near(float got, double want, double bound, const char *what, int64_t at) {
    if (!(fabs((double)got - want) <= bound * (1.0 + fabs(want))))
        FAIL("%s at %lld: got %.9g, want %.9g", what, (long long)at, (double)got, want);
}

/* ---- tiles and seams */

/* Output pixel of a row of three tiles along one axis, from the definition: which tile owns it, and the fade. */
static double along_axis(const float *tiles, int64_t tile, const int64_t *start, const int64_t *overlap,
                         int64_t at) {
    int64_t owner = 0;
    for (int64_t i = 0; i < 3; i++) {
        int64_t end = start[i] + tile - (i < 2 ? overlap[i] : 0);
        owner = i;
        if (at < end) break;
    }
    int64_t k = at - start[owner];
    double now = (double)tiles[owner * tile + k];
    if (owner > 0 && k < overlap[owner - 1]) {
        double part = (double)k / (double)overlap[owner - 1];
        now = (double)tiles[(owner - 1) * tile + tile - overlap[owner - 1] + k] * (1 - part) + now * part;
    }
    return now;
}

/* 480 = three tiles of 256 that overlap by 144 twice: the kept part of the middle tile (112) is shorter than its own
 * fade (144). The fade is cut, and the raw tile begins after it; both axes. */
TEST(ref_blend_tile_cuts_a_fade_that_is_too_long, 20000) {
    enum { TILE = 256, CANVAS = 480 };
    static const int64_t start[3] = {0, 112, 224}, overlap[2] = {144, 144};
    for (int across = 0; across < 2; across++) {
        open_ref();
        float *tiles = random_values(3 * TILE), *canvas = calloc(CANVAS, sizeof *canvas);
        for (int64_t i = 0; i < 3; i++) {
            int64_t keep = i < 2 ? TILE - overlap[i] : TILE, fade = i ? overlap[i - 1] : 0;
            duet_blend_tile_args a = {.tile = tiles + i * TILE, .canvas = canvas, .planes = 1};
            const float *before = i ? tiles + (i - 1) * TILE : NULL;
            if (across) {
                a.tile_h = 1, a.tile_w = TILE, a.left = before, a.fade_cols = fade, a.keep_rows = 1;
                a.keep_cols = keep, a.canvas_h = 1, a.canvas_w = CANVAS, a.at_col = start[i];
            } else {
                a.tile_h = TILE, a.tile_w = 1, a.above = before, a.fade_rows = fade, a.keep_rows = keep;
                a.keep_cols = 1, a.canvas_h = CANVAS, a.canvas_w = 1, a.at_row = start[i];
            }
            a.above_h = a.tile_h, a.left_w = a.tile_w;
            duet_blend_tile(stream, &a);
        }
        for (int64_t p = 0; p < CANVAS; p++)
            expect_near(canvas[p], along_axis(tiles, TILE, start, overlap, p), 1e-6, "pixel", p);
        EXPECT(canvas[224] ==
               tiles[TILE + 112]); /* weight 0: raw tile 1 at its row 112, a jump in the picture */
        free(tiles), free(canvas);
        close_ref();
    }
}

/* The corner of four tiles: rows are faded first, then columns, with raw neighbours; the diagonal one is not used. */
TEST(ref_blend_tile_corner_order, 5000) {
    open_ref();
    enum { N = 6 };
    float *tile = random_values(N * N), *above = random_values(N * N), *left = random_values(N * N),
          canvas[N * N];
    duet_blend_tile(stream, &(duet_blend_tile_args){.tile = tile,
                                                    .above = above,
                                                    .left = left,
                                                    .canvas = canvas,
                                                    .planes = 1,
                                                    .tile_h = N,
                                                    .tile_w = N,
                                                    .above_h = N,
                                                    .left_w = N,
                                                    .fade_rows = 2,
                                                    .fade_cols = 4,
                                                    .keep_rows = N,
                                                    .keep_cols = N,
                                                    .canvas_h = N,
                                                    .canvas_w = N});
    for (int y = 0; y < N; y++) {
        for (int x = 0; x < N; x++) {
            double v = (double)tile[y * N + x], wy = y / 2.0, wx = x / 4.0;
            if (y < 2) v = (double)above[(N - 2 + y) * N + x] * (1 - wy) + v * wy;
            if (x < 4) v = (double)left[y * N + N - 4 + x] * (1 - wx) + v * wx;
            expect_near(canvas[y * N + x], v, 1e-6, "corner", y * N + x);
        }
    }
    free(tile), free(above), free(left);
    close_ref();
}

TEST(ref_blend_seam_starts_with_the_old_frame, 5000) {
    open_ref();
    float *head = random_values(2 * 5 * 7), *tail = random_values(2 * 5 * 7), *now = malloc(2 * 5 * 7 * 4);
    memcpy(now, head, 2 * 5 * 7 * 4);
    duet_blend_seam(stream, &(duet_blend_seam_args){.head = now,
                                                    .tail = tail,
                                                    .channels = 2,
                                                    .frames = 5,
                                                    .pixels = 7,
                                                    .head_channel_stride = 35,
                                                    .tail_channel_stride = 35});
    for (int i = 0; i < 70; i++) {
        double part = (i / 7 % 5) / 5.0;
        expect_near(now[i], (double)tail[i] * (1 - part) + (double)head[i] * part, 1e-6, "seam", i);
        if (i / 7 % 5 == 0) EXPECT(now[i] == tail[i]);
    }
    free(head), free(tail), free(now);
    close_ref();
}

/* Pixel (c, pt*t+dt, ps*y+dy, ps*x+dx) is column [c][dt][dy][dx] of row (t, y, x). */
TEST(ref_unpatch_puts_every_value_in_its_place, 5000) {
    open_ref();
    enum { T = 3, H = 2, W = 4, C = 3, PT = 4, PS = 5, COLS = C * PT * PS * PS, FIRST = 3, FRAMES = 7 };
    float *x = random_values(T * H * W * COLS), *y = calloc(C * FRAMES * H * PS * W * PS, 4);
    duet_unpatch(stream, &(duet_unpatch_args){.x = x,
                                              .y = y,
                                              .t = T,
                                              .h = H,
                                              .w = W,
                                              .channels = C,
                                              .patch_t = PT,
                                              .patch_s = PS,
                                              .x_stride = COLS,
                                              .first_frame = FIRST,
                                              .frames = FRAMES});
    for (int c = 0, at = 0; c < C; c++)
        for (int f = FIRST; f < FIRST + FRAMES; f++)
            for (int py = 0; py < H * PS; py++)
                for (int px = 0; px < W * PS; px++, at++) {
                    int row = (f / PT * H + py / PS) * W + px / PS;
                    int col = ((c * PT + f % PT) * PS + py % PS) * PS + px % PS;
                    if (y[at] != x[row * COLS + col]) FAIL("value %d", at);
                }
    free(x), free(y);
    close_ref();
}

TEST(ref_pixels_round_to_nearest_even, 5000) {
    open_ref();
    static const float levels[] = {0.0f,
                                   1.0f,
                                   -3.0f,
                                   7.0f,
                                   0.5f / 255.0f,
                                   1.5f / 255.0f,
                                   2.5f / 255.0f,
                                   100.4f / 255.0f,
                                   100.6f / 255.0f,
                                   NAN};
    static const uint8_t want[] = {0, 255, 0, 255, 0, 2, 2, 100, 101, 0};
    enum { N = sizeof levels / sizeof *levels };
    float x[3 * N];
    uint8_t y[3 * N];
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < N; i++) x[c * N + i] = levels[(i + c) % N];
    duet_pixels_u8(stream,
                   &(duet_pixels_u8_args){
                       .x = x, .y = y, .frames = 1, .pixels = N, .x_channel_stride = N, .std = {1, 1, 1}});
    for (int i = 0; i < N; i++)
        for (int c = 0; c < 3; c++) EXPECT_EQ(y[3 * i + c], want[(i + c) % N]);
    close_ref();
}

/* ---- rows */

TEST(ref_rope_rotates_halves, 5000) {
    open_ref();
    enum { ROWS = 3, HEADS = 2, PAIRS = 5, DIM = 13 };
    float *x = random_values(ROWS * HEADS * DIM), *before = malloc(ROWS * HEADS * DIM * 4), cosine[15],
          sine[15];
    memcpy(before, x, ROWS * HEADS * DIM * 4);
    for (int i = 0; i < 15; i++) cosine[i] = cosf((float)i), sine[i] = sinf((float)i);
    duet_rope(stream, &(duet_rope_args){.x = x,
                                        .cos = cosine,
                                        .sin = sine,
                                        .rows = ROWS,
                                        .heads = HEADS,
                                        .pairs = PAIRS,
                                        .x_stride = HEADS * DIM,
                                        .head_stride = DIM});
    for (int i = 0; i < ROWS * HEADS * DIM; i++) {
        int row = i / (HEADS * DIM), d = i % DIM;
        if (d >= 2 * PAIRS) {
            EXPECT(x[i] == before[i]);
            continue;
        }
        double angle = row * PAIRS + d % PAIRS;
        double partner = d < PAIRS ? -(double)before[i + PAIRS] : (double)before[i - PAIRS];
        expect_near(x[i], (double)before[i] * cos(angle) + partner * sin(angle), 1e-5, "rope", i);
    }
    free(x), free(before);
    close_ref();
}

TEST(ref_stats_count_and_bound, 5000) {
    open_ref();
    float x[6] = {3, -7, NAN, INFINITY, 99, -99}, all_bad[2] = {NAN, -INFINITY}, got[3];
    duet_stats(stream, &(duet_stats_args){.x = x, .result = got, .rows = 2, .cols = 2, .x_stride = 2});
    EXPECT(got[0] == 2 && got[1] == -7 && got[2] == 3); /* 99 and -99 are in the next row */
    duet_stats(stream, &(duet_stats_args){.x = all_bad, .result = got, .rows = 1, .cols = 2, .x_stride = 2});
    EXPECT(got[0] == 2 && got[1] == 0 && got[2] == 0);
    close_ref();
}

/* Ratio 0 lands on the denoised estimate; ratio 1 does not move. */
TEST(ref_euler_ends_where_it_should, 5000) {
    open_ref();
    float x[2] = {1.5f, -2.0f}, v[2] = {0.25f, 4.0f};
    duet_euler(stream, &(duet_euler_args){.x = x, .velocity = v, .n = 2, .st = 0.5f, .ratio = 1.0f});
    EXPECT(x[0] == 1.5f && x[1] == -2.0f);
    duet_euler(stream, &(duet_euler_args){.x = x, .velocity = v, .n = 2, .st = 0.5f, .ratio = 0.25f});
    expect_near(x[0], 0.25 * 1.5 + 0.75 * (1.5 + 0.125), 1e-7, "euler", 0);
    x[1] = -2.0f;
    duet_euler(stream, &(duet_euler_args){.x = x, .velocity = v, .n = 2, .st = 0.5f, .ratio = 0.0f});
    EXPECT(x[1] == 0.0f);
    close_ref();
}

/* ---- attention and the resampling filters */

/* Equal values come back whatever the scores; a causal first row sees only itself. */
TEST(ref_attention_averages_what_it_sees, 5000) {
    open_ref();
    enum { ROWS = 9, DIM = 4 };
    float *q = random_values(ROWS * DIM), *k = random_values(ROWS * DIM), *v = random_values(ROWS * DIM),
          o[ROWS * DIM];
    int32_t end[3] = {1, 5, 9};
    duet_attention_args a = {.q = q,
                             .k = k,
                             .v = v,
                             .o = o,
                             .rows = ROWS,
                             .heads = 1,
                             .kv_heads = 1,
                             .head_dim = DIM,
                             .q_stride = DIM,
                             .k_stride = DIM,
                             .v_stride = DIM,
                             .o_stride = DIM,
                             .scale = 0.5f};
    a.seg_end_row = end, a.n_seg = 3, a.causal = true;
    duet_attention(stream, &a);
    static const int alone[] = {0, 1, 5}; /* the first row of each segment */
    for (int i = 0; i < 3; i++)
        for (int d = 0; d < DIM; d++)
            expect_near(o[alone[i] * DIM + d], (double)v[alone[i] * DIM + d], 1e-7, "alone", i);
    for (int i = 0; i < ROWS * DIM; i++) v[i] = (float)(i % DIM);
    a.causal = false;
    duet_attention(stream, &a);
    for (int i = 0; i < ROWS * DIM; i++) expect_near(o[i], i % DIM, 1e-6, "constant", i);
    free(q), free(k), free(v);
    close_ref();
}

/* With a filter that sums to one, a constant signal stays that constant under resampling: y = c + sin(c)^2. */
TEST(ref_snake_keeps_constants, 5000) {
    open_ref();
    float f[12], zero = 0, x[20], y[20];
    for (int i = 0; i < 12; i++) f[i] = 1.0f / 12;
    for (int i = 0; i < 20; i++) x[i] = 0.7f;
    duet_weight filter = duet_weight_view("f", DUET_F32, DUET_SHAPE(1, 1, 12), f);
    duet_weight scalar = duet_weight_view("s", DUET_F32, DUET_SHAPE(1), &zero);
    duet_snake_aa(stream, &(duet_snake_aa_args){.x = x,
                                                .y = y,
                                                .alpha = &scalar,
                                                .beta = &scalar,
                                                .up_filter = &filter,
                                                .down_filter = &filter,
                                                .batch = 1,
                                                .channels = 1,
                                                .length = 20});
    for (int i = 0; i < 20; i++) expect_near(y[i], 0.7 + sin(0.7) * sin(0.7), 1e-6, "snake", i);
    close_ref();
}

/* A transposed convolution is the adjoint of the convolution: <conv(x), y> = <x, up(y)>. */
TEST(ref_conv1d_up_is_the_adjoint_of_conv1d, 5000) {
    open_ref();
    enum { IN = 3, OUT = 2, LONG = 30, SHORT = 6, KERNEL = 9, STRIDE = 5, PAD = 2 };
    float *w = random_values(OUT * IN * KERNEL), *x = random_values(IN * LONG),
          *y = random_values(OUT * SHORT);
    float forward[OUT * SHORT], back[IN * LONG];
    duet_weight weight = duet_weight_view("w", DUET_F32, DUET_SHAPE(OUT, IN, KERNEL), w);
    duet_conv1d(stream, &(duet_conv1d_args){.x = x,
                                            .y = forward,
                                            .w = &weight,
                                            .batch = 1,
                                            .channels_in = IN,
                                            .channels_out = OUT,
                                            .length_in = LONG,
                                            .length_out = SHORT,
                                            .kernel = KERNEL,
                                            .stride = STRIDE,
                                            .dilation = 1,
                                            .pad = PAD});
    duet_conv1d_up(stream, &(duet_conv1d_up_args){.x = y,
                                                  .y = back,
                                                  .w = &weight,
                                                  .batch = 1,
                                                  .channels_in = OUT,
                                                  .channels_out = IN,
                                                  .length_in = SHORT,
                                                  .length_out = LONG,
                                                  .kernel = KERNEL,
                                                  .stride = STRIDE,
                                                  .pad = PAD});
    double a = 0, b = 0;
    for (int i = 0; i < OUT * SHORT; i++) a += (double)forward[i] * (double)y[i];
    for (int i = 0; i < IN * LONG; i++) b += (double)back[i] * (double)x[i];
    expect_near((float)a, b, 1e-5, "inner product", 0);
    free(w), free(x), free(y);
    close_ref();
}
