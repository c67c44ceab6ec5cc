/* decode_stitch_test.c - blending against a second opinion that keeps every raw tile, and the laws of the
 * seam.
 *
 * The second opinion follows the chapter's words (spec model-vae 6): fade from the raw tile above, then
 * from the raw tile to the left, weights k/E, keep what the next tile does not begin. The stitcher keeps
 * strips only; the two must agree on every canvas, also where a fade is cut short (the model's 464, 480 and
 * 496 pixels; here also a quarter of them, with tiles of 64). */
#include "harness/harness.h"

#include "base/alloc.h"
#include "engine/decode_stitch.h"

/* 5 + 3 frames a chunk: the same rule as 17 + 5, on something small. */
static const duet_vvae_config small = {.space_ratio = 4,
                                       .time_ratio = 2,
                                       .clip_frames = 5,
                                       .token_drop = 1,
                                       .tile_px = 64,
                                       .tile_overlap_px = 16};
enum { CHUNK_LATENTS = 5 };

typedef struct fixture {
    duet_device *dev;
    duet_stream *stream;
    duet__stitch s;
} fixture;

/* The fades exist twice, plain and fast: tests of weights and of their order run on both. */
static const char *backend = "cpu";
static const char *const backends[] = {"ref", "cpu"};

static fixture setup(const duet_vvae_config *config, int64_t latents, int h, int w) {
    fixture f = {0};
    duet_error e = {0};
    int64_t bytes;
    EXPECT_OK(duet_device_open(&(duet_device_options){.backend = backend, .n_threads = 2}, &f.dev, &e), e);
    EXPECT_OK(duet_stream_open(f.dev, 0, &f.stream, &e), e);
    EXPECT(duet__stitch_plan(config, latents, h / config->space_ratio, w / config->space_ratio, false, &f.s,
                             &bytes));
    EXPECT_OK(duet__stitch_open(&f.s, f.dev, &e), e);
    EXPECT_EQ(duet_device_live_bytes(f.dev), bytes);
    return f;
}

static void teardown(fixture *f) {
    duet__stitch_close(&f->s);
    EXPECT_EQ(duet_device_live_bytes(f->dev), 0);
    duet_stream_close(&f->stream);
    duet_device_close(&f->dev);
}

static float noise(uint64_t i) {
    i = (i + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    i = (i ^ (i >> 29)) * 0x94d049bb133111ebu;
    return (float)((double)(i >> 40) / 8388608.0 - 1.0);
}

/* Value of a raw tile; one of many functions of place. */
typedef float (*tile_fn)(const duet__stitch *s, int part, int row, int col, int64_t plane, int64_t y,
                         int64_t x);

static float random_tile(const duet__stitch *s, int part, int row, int col, int64_t plane, int64_t y,
                         int64_t x) {
    (void)s;
    return noise((uint64_t)(((((part * 31 + row) * 31 + col) * 997 + plane) * 997 + y) * 997 + x));
}

/* Cut from one picture: every tile agrees about every pixel. */
static float picture(const duet__stitch *s, int part, int row, int col, int64_t plane, int64_t y, int64_t x) {
    return random_tile(s, part, 0, 0, plane, s->y.start_px[row] + y, s->x.start_px[col] + x);
}

static void put_tile(fixture *f, tile_fn fn, int row, int col) {
    duet__stitch *s = &f->s;
    for (int p = 0; p < s->n_parts; p++) {
        int64_t h = s->y.tile_px, w = s->x.tile_px, n = s->part[p].planes * h * w;
        float *tile = duet_alloc((size_t)n * sizeof *tile, DUET_MEM_TENSOR);
        EXPECT(tile);
        for (int64_t i = 0; i < n; i++) tile[i] = fn(s, p, row, col, i / (h * w), i / w % h, i % w);
        duet_copy_in(f->stream, s->part[p].tile, tile, n * (int64_t)sizeof *tile);
        duet_free(tile);
    }
    duet__stitch_tile(s, f->stream, row, col);
}

static void put_all(fixture *f, tile_fn fn) {
    for (int row = 0; row < f->s.y.n; row++)
        for (int col = 0; col < f->s.x.n; col++) put_tile(f, fn, row, col);
}

static float *fetch(fixture *f, const float *canvas, int64_t planes) {
    duet_error e = {0};
    int64_t n = planes * f->s.height * f->s.width;
    float *host = duet_alloc((size_t)n * sizeof *host, DUET_MEM_TENSOR);
    EXPECT(host);
    duet_copy_out(f->stream, host, canvas, n * (int64_t)sizeof *host);
    EXPECT_OK(duet_stream_sync(f->stream, &e), e);
    return host;
}

/* ---- tiles --------------------------------------------------------------------------------------------- */

/* Which tile owns an output coordinate: the last one that has begun, since earlier ones end where it
 * begins. */
static int owner(const duet_axis_tiles *t, int64_t at) {
    int i = t->n - 1;
    while (at < t->start_px[i]) i--;
    return i;
}

static double slow_pixel(const duet__stitch *s, int part, int64_t plane, int64_t at_y, int64_t at_x) {
    int row = owner(&s->y, at_y), col = owner(&s->x, at_x);
    int64_t y = at_y - s->y.start_px[row], x = at_x - s->x.start_px[col];
    double v = random_tile(s, part, row, col, plane, y, x);
    int64_t ey = row ? s->y.overlap_px[row - 1] : 0, ex = col ? s->x.overlap_px[col - 1] : 0;
    if (y < ey) {
        double k = (double)y / (double)ey;
        v = random_tile(s, part, row - 1, col, plane, s->y.tile_px - ey + y, x) * (1 - k) + v * k;
    }
    if (x < ex) {
        double k = (double)x / (double)ex;
        v = random_tile(s, part, row, col - 1, plane, y, s->x.tile_px - ex + x) * (1 - k) + v * k;
    }
    return v;
}

static void expect_second_opinion(const duet_vvae_config *config, int64_t latents, int h, int w) {
    fixture f = setup(config, latents, h, w);
    put_all(&f, random_tile);
    for (int p = 0; p < f.s.n_parts; p++) {
        int64_t plane = (int64_t)h * w;
        float *got = fetch(&f, f.s.part[p].canvas, f.s.part[p].planes);
        for (int64_t i = 0; i < f.s.part[p].planes * plane; i++) {
            double want = slow_pixel(&f.s, p, i / plane, i / w % h, i % w);
            if (!(fabs((double)got[i] - want) <= 3e-7))
                FAIL("%dx%d part %d plane %lld row %lld col %lld: got %.9g, want %.9g", w, h, p,
                     (long long)(i / plane), (long long)(i / w % h), (long long)(i % w), (double)got[i],
                     want);
        }
        duet_free(got);
    }
    teardown(&f);
}

TEST(stitching_agrees_with_whole_raw_tiles, 20000) {
    static const int lengths[] = {64, 68, 100, 112, 116, 120, 124, 128, 192, 256};
    enum { N = sizeof lengths / sizeof *lengths };
    for (int b = 0; b < 2; b++) {
        backend = backends[b];
        for (int i = 0; i < N; i++) {
            expect_second_opinion(&small, CHUNK_LATENTS, lengths[i], lengths[N - 1 - i]);
            expect_second_opinion(&small, CHUNK_LATENTS, lengths[i], lengths[i]);
        }
        expect_second_opinion(&small, CHUNK_LATENTS, 40, 120);
    }
}

TEST(stitching_cuts_fades_short_at_the_released_sizes, 30000) {
    duet_vvae_config released = small;
    released.space_ratio = 16;
    released.tile_px = 256;
    released.tile_overlap_px = 64;
    expect_second_opinion(&released, CHUNK_LATENTS, 480, 272);
    expect_second_opinion(&released, CHUNK_LATENTS, 464, 256);
    expect_second_opinion(&released, CHUNK_LATENTS, 256, 496);
}

TEST(tiles_cut_from_one_picture_give_the_picture, 10000) {
    fixture f = setup(&small, CHUNK_LATENTS, 120, 196);
    put_all(&f, picture);
    for (int p = 0; p < f.s.n_parts; p++) {
        int64_t plane = 120 * 196;
        float *got = fetch(&f, f.s.part[p].canvas, f.s.part[p].planes);
        for (int64_t i = 0; i < f.s.part[p].planes * plane; i++) {
            float want = random_tile(&f.s, p, 0, 0, i / plane, i / 196 % 120, i % 196);
            EXPECT_LE(fabsf(got[i] - want), 1.2e-7);
        }
        duet_free(got);
    }
    teardown(&f);
}

/* ---- the seam ------------------------------------------------------------------------------------------ */

static float zeros_then_ones(const duet__stitch *s, int part, int row, int col, int64_t plane, int64_t y,
                             int64_t x) {
    (void)s, (void)row, (void)col, (void)plane, (void)y, (void)x;
    return part == DUET__TAIL ? 1.0f : 0.0f;
}

/* Tail of ones into a head of zeros shows the weights themselves: 1, 0.8, 0.6, 0.4, 0.2 for five frames. */
static void expect_seam_weights(void) {
    duet_vvae_config c = small;
    c.clip_frames = 17;
    c.token_drop = 3;
    c.time_ratio = 4;
    fixture f = setup(&c, 12, 64, 64);
    for (int chunk = 0; chunk < 2; chunk++) {
        put_all(&f, zeros_then_ones);
        duet__stitch_chunk(&f.s, f.stream, chunk == 0);
        float *got = fetch(&f, f.s.part[DUET__MAIN].canvas, f.s.part[DUET__MAIN].planes);
        for (int64_t plane = 0; plane < 3 * 17; plane++) {
            int64_t k = plane % 17;
            float want = chunk && k < 5 ? 1.0f - (float)k / 5.0f : 0.0f;
            EXPECT_LE(fabsf(got[plane * 64 * 64 + 77] - want), 1e-7);
        }
        duet_free(got);
    }
    teardown(&f);
}

TEST(seam_weights_start_with_the_older_chunk_alone, 5000) {
    for (int b = 0; b < 2; b++) {
        backend = backends[b];
        expect_seam_weights();
    }
}

/* The head of the next chunk repeats the tail of this one. */
static float continued(const duet__stitch *s, int part, int row, int col, int64_t plane, int64_t y,
                       int64_t x) {
    int64_t frames = s->part[part].frames, channel = plane / frames, k = plane % frames;
    return random_tile(s, part == DUET__MAIN && k >= s->part[DUET__TAIL].frames, row, col, channel * 64 + k,
                       y, x);
}

TEST(seam_of_equal_tail_and_head_changes_nothing, 5000) {
    fixture f = setup(&small, 8, 64, 64);
    float *main[2], *tail = NULL;
    for (int chunk = 0; chunk < 2; chunk++) {
        put_all(&f, continued);
        if (!chunk) tail = fetch(&f, f.s.part[DUET__TAIL].canvas, f.s.part[DUET__TAIL].planes);
        duet__stitch_chunk(&f.s, f.stream, chunk == 0);
        main[chunk] = fetch(&f, f.s.part[DUET__MAIN].canvas, f.s.part[DUET__MAIN].planes);
    }
    for (int64_t i = 0; i < 3 * 5 * 64 * 64; i++) EXPECT_LE(fabsf(main[1][i] - main[0][i]), 1.2e-7);
    for (int64_t c = 0; c < 3; c++) /* frame 0 of a chunk is the older chunk's, to the bit */
        EXPECT(!memcmp(main[1] + c * 5 * 64 * 64, tail + c * 3 * 64 * 64, 64 * 64 * sizeof(float)));
    duet_free(main[0]);
    duet_free(main[1]);
    duet_free(tail);
    teardown(&f);
}

/* The two tail canvases take turns: after three chunks the last tail is the third's. */
static int now_chunk;
static float numbered(const duet__stitch *s, int part, int row, int col, int64_t plane, int64_t y,
                      int64_t x) {
    return (float)now_chunk + random_tile(s, part, row, col, plane, y, x);
}

TEST(each_chunk_fades_from_the_chunk_before_it, 5000) {
    fixture f = setup(&small, 11, 64, 64);
    EXPECT_EQ(f.s.time.chunks, 3);
    for (now_chunk = 0; now_chunk < 3; now_chunk++) {
        put_all(&f, numbered);
        duet__stitch_chunk(&f.s, f.stream, now_chunk == 0);
        float *got = fetch(&f, f.s.part[DUET__MAIN].canvas, 1);
        float older = now_chunk ? (float)(now_chunk - 1) + random_tile(&f.s, DUET__TAIL, 0, 0, 0, 3, 5)
                                : random_tile(&f.s, DUET__MAIN, 0, 0, 0, 3, 5);
        EXPECT_LE(fabsf(got[3 * 64 + 5] - older), 0.0);
        duet_free(got);
    }
    float *tail = fetch(&f, f.s.previous_tail, 1);
    EXPECT_LE(fabsf(tail[0] - (2.0f + random_tile(&f.s, DUET__TAIL, 0, 0, 0, 0, 0))), 0.0);
    duet_free(tail);
    teardown(&f);
}

TEST(stitch_plan_refuses_what_cannot_be_cut, 1000) {
    duet__stitch s;
    int64_t bytes;
    EXPECT(!duet__stitch_plan(&small, CHUNK_LATENTS, 0, 16, false, &s, &bytes));
    EXPECT(!duet__stitch_plan(&small, 0, 16, 16, false, &s, &bytes));
    EXPECT(!duet__stitch_plan(&small, CHUNK_LATENTS, 1 << 19, 16, false, &s, &bytes));
}
