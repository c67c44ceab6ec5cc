/* pack_test.c - the packed sequence against recorded ones, the published worked examples, and its inverse. */
#include "harness/fixture.h"

#include "engine/pack.h"

static double position(const duet_packed *p, int64_t row, int axis) {
    return p->position_ids[3 * row + axis];
}

static void expect_same_f64(const double *got, const fixture *f, const char *name, int64_t n) {
    fixture_tensor want = fixture_get(f, name);
    EXPECT_STR(want.dtype, "F64");
    EXPECT_EQ(want.n, n);
    for (int64_t i = 0; i < n; i++) {
        double w;
        memcpy(&w, (const char *)want.data + 8 * i, sizeof w);
        if (got[i] != w) FAIL("%s[%" PRId64 "]: got %.17g, want %.17g", name, i, got[i], w);
    }
}

static void expect_same_i32(const int32_t *got, const fixture *f, const char *name, int64_t n) {
    fixture_tensor want = fixture_get(f, name);
    EXPECT_STR(want.dtype, "I32");
    EXPECT_EQ(want.n, n);
    for (int64_t i = 0; i < n; i++) {
        int32_t w;
        memcpy(&w, (const char *)want.data + 4 * i, sizeof w);
        if (got[i] != w) FAIL("%s[%" PRId64 "]: got %d, want %d", name, i, got[i], w);
    }
}

static const struct {
    int text, frames, height, width, patch;
} LAYOUTS[] = {{1, 22, 64, 96, 2},  {9, 22, 32, 32, 2},   {17, 39, 96, 64, 2},
               {5, 22, 80, 112, 1}, {300, 56, 64, 64, 2}, {33, 107, 32, 64, 2}};
enum { N_LAYOUTS = sizeof LAYOUTS / sizeof *LAYOUTS };

static duet_pack_spec t2va(int text, int frames, int height, int width, int patch) {
    return (duet_pack_spec){.text_rows = text,
                            .video_latents = 5 * (frames - 5) / 17 + 2,
                            .audio_latents = (5 * frames + 1) / 3, /* round(5F/3) */
                            .latent_h = height / 16,
                            .latent_w = width / 16,
                            .patch_h = patch,
                            .patch_w = patch};
}

static duet_packed pack(const duet_pack_spec *spec) {
    duet_packed p;
    duet_error err = {0};
    EXPECT_OK(duet_pack_rows(spec, &p, &err), err);
    return p;
}

/* Two evaluations, the first with the given times: enough to read its row indices. */
static void expect_row_times(const fixture *f, const duet_packed *p, int layout, const char *when,
                             float video, float audio) {
    float sv[] = {1.0f - video, 0.0f}, sa[] = {1.0f - audio, 0.0f};
    duet_schedule schedule = {.points = 2, .sigma_video = sv, .sigma_audio = sa};
    duet_timestep_plan plan;
    duet_error err = {0};
    EXPECT_OK(duet_timestep_plan_build(&schedule, false, &plan, &err), err);
    static int32_t rows[4096];
    char name[64];
    snprintf(name, sizeof name, "layout.%d.%s.timesteps", layout, when);
    EXPECT_SAME_F32(plan.timesteps, fixture_f32(f, name, plan.n_distinct), plan.n_distinct);
    snprintf(name, sizeof name, "layout.%d.%s.indices", layout, when);
    duet_timestep_rows(&plan, p, 0, rows);
    expect_same_i32(rows, f, name, p->layout.rows);
    duet_timestep_rows_local(&plan, p, 0, rows);
    expect_same_i32(rows, f, name, p->layout.rows);
    duet_timestep_plan_free(&plan);
}

TEST(layouts_equal_the_reference, 5000) {
    fixture f = fixture_open("golden/positions.safetensors");
    for (int i = 0; i < N_LAYOUTS; i++) {
        duet_pack_spec spec =
            t2va(LAYOUTS[i].text, LAYOUTS[i].frames, LAYOUTS[i].height, LAYOUTS[i].width, LAYOUTS[i].patch);
        duet_packed p = pack(&spec);
        char name[64];
        snprintf(name, sizeof name, "layout.%d.position_ids", i);
        expect_same_f64(p.position_ids, &f, name, 3 * p.layout.rows);
        snprintf(name, sizeof name, "layout.%d.token_tags", i);
        expect_same_i32(p.token_tags, &f, name, p.layout.rows);
        expect_row_times(&f, &p, i, "start", 0.0f, 0.0f);
        expect_row_times(&f, &p, i, "later", 0.25f, 0.5f);
        expect_row_times(&f, &p, i, "swapped", 0.75f, 0.5f);
        duet_packed_free(&p);
    }
    fixture_close(&f);
}

TEST(spatial_axes_equal_the_reference, 2000) {
    static const int size[][2] = {{48, 84},  {30, 54}, {48, 48}, {42, 96},
                                  {32, 126}, {34, 60}, {30, 30}, {29, 31}};
    fixture f = fixture_open("golden/positions.safetensors");
    int checked = 0;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        for (int patch = 1; patch <= 2; patch++) {
            int h = size[i][0], w = size[i][1];
            if (h % patch || w % patch) continue;
            duet_pack_spec spec = t2va(3, 22, 16 * h, 16 * w, patch);
            duet_packed p = pack(&spec);
            const double *first = p.position_ids + 3 * p.layout.video_range[0].first;
            double axis_h[128], axis_w[128];
            for (int y = 0; y < h / patch; y++) axis_h[y] = first[3 * (y * (w / patch)) + 1];
            for (int x = 0; x < w / patch; x++) axis_w[x] = first[3 * x + 2];
            char name[64];
            snprintf(name, sizeof name, "axis.%d.%d.%d", h, w, patch);
            expect_same_f64(axis_h, &f, name, h / patch);
            snprintf(name, sizeof name, "axis.%d.%d.%d", w, h, patch);
            expect_same_f64(axis_w, &f, name, w / patch);
            duet_packed_free(&p);
            checked++;
        }
    EXPECT_EQ(checked, 15);
    fixture_close(&f);
}

TEST(clocks_equal_the_reference_from_any_text_length, 5000) {
    static const int origin[] = {1, 512, 7000};
    fixture f = fixture_open("golden/positions.safetensors");
    for (int i = 0; i < 3; i++) {
        duet_pack_spec spec = t2va(origin[i], 362, 32, 32, 2);
        duet_packed p = pack(&spec);
        EXPECT_EQ(p.target_video_rows, 107);
        double clock[107];
        for (int k = 0; k < 107; k++) clock[k] = position(&p, p.layout.video_range[0].first + k, 0);
        char name[64];
        snprintf(name, sizeof name, "clock.%d", origin[i]);
        expect_same_f64(clock, &f, name, 107);
        duet_packed_free(&p);
    }
    fixture_close(&f);
}

/* spec model-dit 7.3, 16: two keyframes on 1344x768, 124 frames, 600 text rows. */
TEST(keyframes_stand_at_the_published_rows_and_times, 5000) {
    duet_pack_condition keys[] = {{.kind = DUET_CONDITION_FIRST_FRAME}, {.kind = DUET_CONDITION_LAST_FRAME}};
    duet_pack_spec spec = t2va(600, 124, 768, 1344, 2);
    spec.conditions = keys;
    spec.n_conditions = 2;
    duet_packed p = pack(&spec);
    EXPECT_EQ(p.layout.rows, 40326);
    EXPECT_EQ(p.condition_video_rows, 2016);
    EXPECT_EQ(p.layout.video_range[0].first, 600);
    EXPECT_EQ(p.layout.video_range[1].first, 1608);
    EXPECT_EQ(p.layout.audio_range[0].first, 2616);
    EXPECT_EQ(p.layout.video_range[2].first, 3030);
    EXPECT(position(&p, 600, 0) == 600.0);
    EXPECT(position(&p, 1608, 0) == 600.0 + 206.66666666666663 - 1.6666666666666667);
    EXPECT(position(&p, 40325, 0) == 799.9999999999999);
    EXPECT(position(&p, 600, 1) == 3.9051368637047297 && position(&p, 600, 2) == -5.166010488516722);
    EXPECT(position(&p, 1607, 1) == 27.08695787493733 && position(&p, 1607, 2) == 36.15810522715877);
    duet_packed_free(&p);
}

/* spec model-dit 16: an image, a video with its soundtrack, and sound alone. */
TEST(references_advance_the_clock_as_published, 5000) {
    duet_pack_condition refs[] = {{.kind = DUET_CONDITION_IMAGE, .latent_h = 128, .latent_w = 128},
                                  {.kind = DUET_CONDITION_VIDEO,
                                   .latent_h = 48,
                                   .latent_w = 84,
                                   .video_latents = 37,
                                   .audio_latents = 207},
                                  {.kind = DUET_CONDITION_AUDIO, .audio_latents = 80}};
    duet_pack_spec spec = t2va(100, 124, 768, 1344, 2);
    spec.conditions = refs;
    spec.n_conditions = 3;
    duet_packed p = pack(&spec);
    EXPECT_EQ(p.layout.rows, 79776);
    EXPECT_EQ(p.layout.n_video_ranges, 3);
    EXPECT_EQ(p.layout.n_audio_ranges, 3);
    EXPECT_EQ(p.layout.video_range[0].rows, 4096);
    EXPECT(position(&p, 100, 0) == 100.0);
    EXPECT(position(&p, p.layout.audio_range[0].first, 0) == 101.0);
    EXPECT(position(&p, p.layout.video_range[1].first, 0) == 101.0);
    EXPECT(position(&p, p.layout.audio_range[1].first, 0) == 308.0);
    EXPECT(position(&p, p.layout.audio_range[2].first, 0) == 388.0);
    EXPECT(position(&p, p.layout.video_range[2].first, 0) == 388.0);
    EXPECT_EQ(p.token_tags[100], 0);
    EXPECT_EQ(p.token_tags[p.layout.audio_range[0].first], 2);
    duet_packed_free(&p);
}

/* A silent reference video advances the clock by its span, summed left to right: 178.3333333333333, where
 * the pairwise sum of an anchor would give 178.33333333333334. */
TEST(reference_videos_advance_the_clock_by_the_sequential_sum, 1000) {
    duet_pack_condition ref = {
        .kind = DUET_CONDITION_VIDEO, .latent_h = 2, .latent_w = 2, .video_latents = 32};
    duet_pack_spec spec = t2va(1, 22, 32, 32, 2);
    spec.conditions = &ref;
    spec.n_conditions = 1;
    duet_packed p = pack(&spec);
    EXPECT_EQ(p.layout.n_audio_ranges, 1);
    EXPECT(position(&p, p.layout.audio_range[0].first, 0) == 1.0 + 178.3333333333333);
    EXPECT(1.0 + 178.3333333333333 != 1.0 + 178.33333333333334);
    ref.audio_latents = 179; /* sound that outlasts the picture */
    duet_packed_free(&p);
    p = pack(&spec);
    EXPECT(position(&p, p.layout.audio_range[1].first, 0) == 180.0);
    duet_packed_free(&p);
}

TEST(text_rows_keep_the_tags_they_are_given, 1000) {
    static const int32_t tags[] = {1, 0, 0, 1};
    duet_pack_spec spec = t2va(4, 22, 32, 32, 2);
    spec.text_tags = tags;
    duet_packed p = pack(&spec);
    EXPECT(memcmp(p.token_tags, tags, sizeof tags) == 0);
    duet_packed_free(&p);
}

TEST(a_default_schedule_has_99_distinct_timesteps, 2000) {
    duet_schedule s;
    duet_timestep_plan plan;
    duet_error err = {0};
    EXPECT_OK(duet_schedule_build(&(duet_schedule_spec){.points = 50, .video_shift = 12, .audio_shift = 3},
                                  &s, &err),
              err);
    EXPECT_OK(duet_timestep_plan_build(&s, true, &plan, &err), err);
    EXPECT_EQ(plan.n_distinct, 99);
    for (int64_t i = 1; i < plan.n_distinct; i++) EXPECT(plan.timesteps[i] > plan.timesteps[i - 1]);
    EXPECT(plan.timesteps[0] == 0.0f && plan.timesteps[plan.n_distinct - 1] == 1.0f);
    for (int64_t e = 0; e < 49; e++) {
        const int32_t *k = plan.kind_index + e * DUET_N_ROW_KINDS;
        EXPECT(plan.timesteps[k[DUET_ROWS_TEXT]] == 1.0f - s.sigma_video[e]);
        EXPECT(plan.timesteps[k[DUET_ROWS_VIDEO_TARGET]] == 1.0f - s.sigma_video[e]);
        EXPECT(plan.timesteps[k[DUET_ROWS_AUDIO_TARGET]] == 1.0f - s.sigma_audio[e]);
        EXPECT(plan.timesteps[k[DUET_ROWS_VIDEO_CONDITION]] == 0.999f);
        EXPECT(plan.timesteps[k[DUET_ROWS_AUDIO_CONDITION]] == 1.0f);
    }
    duet_timestep_plan_free(&plan);
    duet_schedule_free(&s);
}

TEST(condition_rows_number_their_own_levels, 1000) {
    duet_pack_condition key = {.kind = DUET_CONDITION_FIRST_FRAME};
    duet_pack_spec spec = t2va(4, 22, 32, 32, 2);
    spec.conditions = &key;
    spec.n_conditions = 1;
    duet_packed p = pack(&spec);
    float sv[] = {1.0f, 0.5f, 0.0f}, sa[] = {1.0f, 0.25f, 0.0f};
    duet_schedule s = {.points = 3, .sigma_video = sv, .sigma_audio = sa};
    duet_timestep_plan plan;
    duet_error err = {0};
    EXPECT_OK(duet_timestep_plan_build(&s, true, &plan, &err), err);
    int32_t rows[256];
    duet_timestep_rows_local(&plan, &p, 1,
                             rows); /* video 0.5 < audio 0.75 < keyframe 0.999; 1.0 is not in use */
    EXPECT_EQ(rows[0], 0);
    EXPECT_EQ(rows[p.layout.video_range[0].first], 2);
    EXPECT_EQ(rows[p.layout.audio_range[0].first], 1);
    EXPECT_EQ(rows[p.layout.rows - 1], 0);
    duet_timestep_plan_free(&plan);
    duet_packed_free(&p);
}

TEST(patch_rows_follow_the_documented_columns_and_invert, 1000) {
    enum { C = 3, T = 2, H = 4, W = 6 };
    float latents[C * T * H * W], rows[C * T * H * W], back[C * T * H * W];
    for (int i = 0; i < C * T * H * W; i++) latents[i] = (float)i;
    static const int patches[][2] = {{2, 2}, {1, 1}, {2, 1}, {1, 2}, {4, 3}};
    for (size_t n = 0; n < sizeof patches / sizeof *patches; n++) {
        int ph = patches[n][0], pw = patches[n][1];
        duet_patch_shape shape = {C, H, W, ph, pw, T};
        duet_patchify(&shape, latents, rows);
        for (int t = 0; t < T; t++)
            for (int y = 0; y < H; y++)
                for (int x = 0; x < W; x++)
                    for (int c = 0; c < C; c++) {
                        int row = (t * (H / ph) + y / ph) * (W / pw) + x / pw;
                        int col = (c * ph + y % ph) * pw + x % pw;
                        EXPECT(rows[row * C * ph * pw + col] == latents[((c * T + t) * H + y) * W + x]);
                    }
        duet_unpatchify(&shape, rows, back);
        EXPECT_SAME_F32(back, latents, C * T * H * W);
    }
}

TEST(audio_rows_are_channel_major, 1000) {
    float rows[2 * 3 * 4], latents[2 * 4 * 3];
    for (int i = 0; i < 24; i++) rows[i] = (float)i;
    duet_audio_rows_to_latents(3, 4, rows, latents);
    for (int side = 0; side < 2; side++)
        for (int c = 0; c < 4; c++)
            for (int i = 0; i < 3; i++)
                EXPECT(latents[(side * 4 + c) * 3 + i] == rows[(side * 3 + i) * 4 + c]);
}

TEST(pack_refuses_sizes_that_do_not_fit, 1000) {
    duet_packed p;
    duet_error err = {0};
    duet_pack_spec odd = t2va(4, 22, 80, 96, 2); /* 5 latent rows, patch 2 */
    EXPECT_EQ(duet_pack_rows(&odd, &p, &err), DUET_E_INTERNAL);
    duet_pack_spec huge = t2va(4, 22, 16 * 60000, 16 * 60000, 1);
    err = (duet_error){0};
    EXPECT_EQ(duet_pack_rows(&huge, &p, &err), DUET_E_UNSUPPORTED);
    EXPECT(!p.position_ids && !p.token_tags);
}
