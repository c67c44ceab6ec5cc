/* geometry_test.c - the tables of the model chapters, the laws behind them, and the half-to-even cases. */
#include "harness/fixture.h"

#include "engine/geometry.h"

/* ---- frames ----------------------------------------------------------------------------------------------
 */

TEST(frames_from_seconds_match_the_table, 1000) {
    static const struct {
        double seconds;
        int64_t frames, latents, audio;
    } row[] = {
        {4, 107, 32, 178},  {5, 124, 37, 207},  {6, 158, 47, 263},   {8, 192, 57, 320},
        {10, 243, 72, 405}, {12, 294, 87, 490}, {14, 345, 102, 575}, {15, 362, 107, 603},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int64_t frames = duet_frames_from_seconds(row[i].seconds);
        EXPECT_EQ(frames, row[i].frames);
        EXPECT_EQ(duet_video_latents_for_frames(frames), row[i].latents);
        EXPECT_EQ(duet_audio_latents_for_frames(frames), row[i].audio);
    }
}

/* 4.4375 s = 106.5 frames -> 106 -> 107; 4.4791667 s = 107.5 -> 108 -> 124: half up would give 107 -> 107,
 * 124. */
TEST(seconds_round_half_to_even_before_snapping, 1000) {
    EXPECT_EQ(duet_frames_from_seconds(106.5 / 24.0), 107);
    EXPECT_EQ(duet_frames_from_seconds(107.5 / 24.0), 124);
    EXPECT_EQ(duet_frames_from_seconds(124.5 / 24.0), 124); /* 124.5 -> 124, not 125 -> 141 */
    EXPECT_EQ(duet_frames_from_seconds(124.51 / 24.0), 141);
    EXPECT_EQ(duet_frames_from_seconds(0.0), 5);
    EXPECT_EQ(duet_frames_from_seconds(-1.0), 5);
    EXPECT_EQ(duet_frames_from_seconds(NAN), 5);
    EXPECT(duet_frames_from_seconds(INFINITY) > 0);
}

TEST(snapping_reaches_the_next_valid_count, 1000) {
    for (int64_t f = -40; f < 2000; f++) {
        int64_t up = duet_frames_snap_up(f), down = duet_frames_snap_down(f);
        EXPECT_EQ(up % 17, 5);
        EXPECT_EQ(down % 17, 5);
        EXPECT(up >= f && (f < 5 || up - f < 17));
        EXPECT(down <= f || f < 5);
        EXPECT(f < 5 || f - down < 17);
        EXPECT_EQ(duet_frames_for_video_latents(duet_video_latents_for_frames(up)), up);
    }
}

TEST(audio_latents_round_five_thirds_of_the_frames, 1000) {
    static const int64_t row[][2] = {{22, 37}, {56, 93}, {107, 178}, {124, 207}, {209, 348}, {362, 603}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        EXPECT_EQ(duet_audio_latents_for_frames(row[i][0]), row[i][1]);
    for (int64_t f = 1; f < 5000; f++)
        EXPECT_EQ(duet_audio_latents_for_frames(f), (int64_t)nearbyint((double)f / 24.0 * 40.0));
}

/* ---- canvas ----------------------------------------------------------------------------------------------
 */

static void expect_canvas(double rw, double rh, double edge, int32_t want_w, int32_t want_h) {
    int32_t w = 0, h = 0;
    EXPECT(duet_canvas_resolve(rw, rh, edge, 768 * 1344, 32, &w, &h));
    if (w != want_w || h != want_h)
        FAIL("%g:%g at %g: got %dx%d, want %dx%d", rw, rh, edge, w, h, want_w, want_h);
}

TEST(canvases_match_the_table_in_both_orientations, 1000) {
    static const double edge[4] = {768, 480, 512, 544};
    static const struct {
        double w, h;
        int32_t canvas[4][2];
    } row[] = {
        {21, 9, {{1536, 672}, {1120, 480}, {1184, 512}, {1280, 544}}},
        {16, 9, {{1344, 768}, {864, 480}, {896, 512}, {960, 544}}},
        {3, 2, {{1152, 768}, {704, 480}, {768, 512}, {832, 544}}},
        {4, 3, {{1024, 768}, {640, 480}, {672, 512}, {736, 544}}},
        {1, 1, {{768, 768}, {480, 480}, {512, 512}, {544, 544}}},
        {4, 1, {{2016, 512}, {1920, 480}, {2016, 512}, {2016, 512}}},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        for (int e = 0; e < 4; e++) {
            expect_canvas(row[i].w, row[i].h, edge[e], row[i].canvas[e][0], row[i].canvas[e][1]);
            expect_canvas(row[i].h, row[i].w, edge[e], row[i].canvas[e][1], row[i].canvas[e][0]);
        }
    }
    expect_canvas(16, 9, 576, 1024, 576);
    expect_canvas(16, 9, 640, 1152, 640);
    expect_canvas(16, 9, 1440, 1344, 768); /* the area cap does not grow with the edge */
}

TEST(canvas_axes_round_half_to_even, 1000) {
    int32_t w, h;
    EXPECT(duet_canvas_resolve(1, 1, 80, 1e9, 32, &w, &h)); /* 2.5 units */
    EXPECT_EQ(w, 64);
    EXPECT(duet_canvas_resolve(1, 1, 112, 1e9, 32, &w, &h)); /* 3.5 units */
    EXPECT_EQ(h, 128);
    EXPECT(duet_canvas_resolve(1, 1, 3, 1e9, 32, &w, &h)); /* never below one unit */
    EXPECT_EQ(w, 32);
}

TEST(canvas_refuses_ratios_outside_one_to_four, 1000) {
    int32_t w, h;
    EXPECT(duet_canvas_resolve(1, 4, 768, 1e9, 32, &w, &h));
    EXPECT(!duet_canvas_resolve(1, 4.0001, 768, 1e9, 32, &w, &h));
    EXPECT(!duet_canvas_resolve(4.0001, 1, 768, 1e9, 32, &w, &h));
    EXPECT(!duet_canvas_resolve(0, 0, 768, 1e9, 32, &w, &h));
    EXPECT(!duet_canvas_resolve(1, 0, 768, 1e9, 32, &w, &h));
    EXPECT(!duet_canvas_resolve(-1, -1, -768, 1e9, 32, &w, &h));
    EXPECT(!duet_canvas_resolve(1, 1, 1e8, 1e17, 32, &w, &h)); /* no int32 could hold it */
    EXPECT(!duet_canvas_resolve(1, 1, 1e300, 1e9, 32, &w, &h));
}

/* ---- tiles -----------------------------------------------------------------------------------------------
 */

/* The rule as the chapter writes it, step by step: a second opinion on the closed form. */
static int slow_split(int length, int tile, int min_overlap, int unit, int *start, int *overlap) {
    if (tile >= length) return 1;
    int n = (length + tile - 1) / tile;
    while (tile * n - min_overlap * (n - 1) < length) n++;
    for (int i = 0; i < n - 1; i++) overlap[i] = min_overlap;
    int slack = tile * n - min_overlap * (n - 1) - length;
    for (int u = 0; u < slack / unit; u++) overlap[u % (n - 1)] += unit;
    for (int i = 0; i < n - 1; i++) start[i + 1] = start[i] + tile - overlap[i];
    return n;
}

TEST(tiles_match_the_table, 1000) {
    static const struct {
        int length, n, start[11], overlap[11];
    } row[] = {
        {256, 1, {0}, {0}},
        {480, 3, {0, 112, 224}, {144, 144}},
        {704, 4, {0, 144, 288, 448}, {112, 112, 96}},
        {768, 4, {0, 160, 336, 512}, {96, 80, 80}},
        {864, 5, {0, 144, 288, 448, 608}, {112, 112, 96, 96}},
        {1024, 5, {0, 192, 384, 576, 768}, {64, 64, 64, 64}},
        {1280, 7, {0, 160, 320, 496, 672, 848, 1024}, {96, 96, 80, 80, 80, 80}},
        {1344, 7, {0, 176, 352, 528, 704, 896, 1088}, {80, 80, 80, 80, 64, 64}},
        {2048,
         11,
         {0, 176, 352, 528, 704, 880, 1056, 1232, 1408, 1600, 1792},
         {80, 80, 80, 80, 80, 80, 80, 80, 64, 64}},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        duet_axis_tiles t;
        EXPECT(duet_axis_split(row[i].length, 256, 64, 16, &t));
        EXPECT_EQ(t.n, row[i].n);
        EXPECT_EQ(t.tile_px, 256);
        for (int k = 0; k < t.n; k++) EXPECT_EQ(t.start_px[k], row[i].start[k]);
        for (int k = 0; k + 1 < t.n; k++) EXPECT_EQ(t.overlap_px[k], row[i].overlap[k]);
    }
}

TEST(tiles_cover_every_length_exactly, 2000) {
    for (int unit = 4; unit <= 32; unit *= 2) {
        for (int length = unit; length <= 4096; length += unit) {
            int start[64] = {0}, overlap[64] = {0}, sum = 0;
            duet_axis_tiles t;
            EXPECT(duet_axis_split(length, 256, 64, unit, &t));
            EXPECT_EQ(t.n, slow_split(length, 256, 64, unit, start, overlap));
            for (int k = 0; k < t.n; k++) {
                sum += t.tile_px - (k + 1 < t.n ? t.overlap_px[k] : 0);
                EXPECT_EQ(t.start_px[k], start[k]);
                if (k + 1 < t.n) EXPECT_EQ(t.overlap_px[k], overlap[k]);
                EXPECT_EQ(t.start_px[k] % unit, 0);
            }
            EXPECT_EQ(sum, length);
        }
    }
}

/* Only there do two overlaps of one tile meet, so that a cross-fade is cut short. */
TEST(fades_are_truncated_at_464_480_and_496_alone, 2000) {
    for (int length = 16; length <= 4096; length += 16) {
        duet_axis_tiles t;
        bool meets = false;
        EXPECT(duet_axis_split(length, 256, 64, 16, &t));
        for (int k = 0; k + 2 < t.n; k++) meets |= t.overlap_px[k] + t.overlap_px[k + 1] > t.tile_px;
        EXPECT_EQ(meets, length == 464 || length == 480 || length == 496);
    }
}

TEST(tiles_refuse_what_they_cannot_cover, 1000) {
    duet_axis_tiles t;
    EXPECT(!duet_axis_split(0, 256, 64, 16, &t));
    EXPECT(!duet_axis_split(-16, 256, 64, 16, &t));
    EXPECT(!duet_axis_split(300, 256, 64, 16, &t));
    EXPECT(!duet_axis_split(512, 256, 256, 16, &t));
    EXPECT(!duet_axis_split(512, 256, 64, 0, &t));
    EXPECT(!duet_axis_split(512, 250, 64, 16, &t));
    EXPECT(!duet_axis_split(1 << 30, 256, 64, 16, &t));
    EXPECT(duet_axis_split(240, 256, 64, 16, &t));
    EXPECT_EQ(t.tile_px, 240);
}

/* ---- chunks ----------------------------------------------------------------------------------------------
 */

static const duet_vvae_config released = {.clip_frames = 17, .token_drop = 3, .time_ratio = 4};

TEST(chunks_of_the_released_model, 1000) {
    duet_time_chunks c;
    EXPECT(duet_time_split(&released, 37, &c));
    EXPECT_EQ(c.chunks, 7);
    EXPECT_EQ(c.frames, 124);
    EXPECT_EQ(c.stride_latents, 5);
    EXPECT_EQ(c.clip_latents, 7);
    EXPECT_EQ(c.head, 3);
    EXPECT_EQ(c.main, 17);
    EXPECT_EQ(c.tail_first, 23);
    EXPECT_EQ(c.tail, 5);
    EXPECT_EQ(c.raw_frames, 28);
}

TEST(chunk_counts_for_whole_and_padded_lengths, 1000) {
    static const int64_t odd[][2] = {{3, 9}, {4, 13}, {5, 17}, {6, 18}, {8, 26}, {9, 30}, {10, 34}};
    duet_time_chunks c;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        EXPECT(duet_time_split(&released, odd[i][0], &c));
        EXPECT_EQ(c.frames, odd[i][1]);
    }
    for (int64_t frames = 22; frames <= 362; frames += 17) {
        EXPECT(duet_time_split(&released, duet_video_latents_for_frames(frames), &c));
        EXPECT_EQ(c.frames, frames);
        EXPECT_EQ(c.chunks, (frames - 5) / 17);
        EXPECT_EQ(c.pad_latents, 0);
    }
    EXPECT(!duet_time_split(&released, 0, &c));
    EXPECT(!duet_time_split(&released, 1, &c));
    EXPECT(!duet_time_split(&released, 2, &c));
    EXPECT(
        !duet_time_split(&(duet_vvae_config){.clip_frames = 17, .token_drop = 5, .time_ratio = 4}, 37, &c));
    EXPECT(!duet_time_split(&(duet_vvae_config){0}, 37, &c));
}

/* ---- against the reference implementation -------------------------------------------------------------- */

static const int32_t *recorded(const fixture *f, const char *name, int64_t *n) {
    fixture_tensor t = fixture_get(f, name);
    EXPECT_STR(t.dtype, "I32");
    *n = t.n;
    return t.data;
}

TEST(frames_equal_the_reference, 1000) {
    fixture f = fixture_open("golden/geometry.safetensors");
    int64_t n;
    const int32_t *snapped = recorded(&f, "frames.snapped", &n), *latent = recorded(&f, "frames.latent", &n),
                  *sound = recorded(&f, "frames.audio", &n);
    EXPECT_EQ(n, 400);
    for (int64_t i = 0; i < n; i++) {
        EXPECT_EQ(duet_frames_snap_up(i + 1), snapped[i]);
        EXPECT_EQ(duet_video_latents_for_frames(snapped[i]), latent[i]);
        EXPECT_EQ(duet_audio_latents_for_frames(snapped[i]), sound[i]);
    }
    fixture_close(&f);
}

TEST(canvases_equal_the_reference, 1000) {
    fixture f = fixture_open("golden/geometry.safetensors");
    int64_t n;
    const int32_t *row = recorded(&f, "canvas", &n);
    for (int64_t i = 0; i < n / 7; i++, row += 7) {
        int32_t w, h;
        EXPECT(duet_canvas_resolve(row[0], row[1], row[3], row[4], row[2], &w, &h));
        if (w != row[5] || h != row[6])
            FAIL("%d:%d, multiple %d, short edge %d, at most %d pixels: got %dx%d, want %dx%d", row[0],
                 row[1], row[2], row[3], row[4], w, h, row[5], row[6]);
    }
    fixture_close(&f);
}

TEST(tiles_equal_the_reference, 1000) {
    fixture f = fixture_open("golden/geometry.safetensors");
    int64_t n, all;
    const int32_t *count = recorded(&f, "tiles.count", &n), *start = recorded(&f, "tiles.start", &all),
                  *length = recorded(&f, "tiles.length", &all),
                  *overlap = recorded(&f, "tiles.overlap", &all);
    for (int64_t i = 0, at = 0; i < n; at += count[i++]) {
        duet_axis_tiles t;
        EXPECT(duet_axis_split((int32_t)(16 * (i + 1)), 256, 64, 16, &t));
        EXPECT_EQ(t.n, count[i]);
        for (int k = 0; k < t.n; k++) {
            EXPECT_EQ(t.start_px[k], start[at + k]);
            EXPECT_EQ(t.tile_px, length[at + k]);
            EXPECT_EQ(t.overlap_px[k], overlap[at + k]);
        }
    }
    fixture_close(&f);
}
