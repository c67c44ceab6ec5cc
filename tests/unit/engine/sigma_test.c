/* sigma_test.c - schedules against recorded ones, published values, and the rules ladders must obey. */
#include "harness/fixture.h"

#include "engine/sigma.h"

static const double SHIFTS[] = {12.0, 3.0, 7.5, 2.2, 6.0, 1.1, 1.0, 0.3};
enum { N_SHIFTS = sizeof SHIFTS / sizeof *SHIFTS };

TEST(linspace_equals_the_reference, 2000) {
    fixture f = fixture_open("golden/schedules.safetensors");
    int checked = 0;
    for (int points = 2; points <= 201; points++) {
        char name[64];
        float got[201];
        snprintf(name, sizeof name, "linspace.%d", points);
        if (!fixture_has(&f, name)) continue;
        duet_linspace_1_0(points, got);
        EXPECT_SAME_F32(got, fixture_f32(&f, name, points), points);
        checked++;
    }
    EXPECT_EQ(checked, 67);
    fixture_close(&f);
}

TEST(schedules_equal_the_reference_for_every_shift, 5000) {
    fixture f = fixture_open("golden/schedules.safetensors");
    int checked = 0;
    for (int s = 0; s < N_SHIFTS; s++)
        for (int points = 2; points <= 201; points++) {
            char name[64];
            snprintf(name, sizeof name, "sigmas.%g.%d", SHIFTS[s], points);
            if (!fixture_has(&f, name)) continue;
            duet_schedule got;
            duet_error err = {0};
            duet_schedule_spec spec = {
                .points = points, .video_shift = SHIFTS[s], .audio_shift = SHIFTS[(s + 1) % N_SHIFTS]};
            EXPECT_OK(duet_schedule_build(&spec, &got, &err), err);
            EXPECT_EQ(got.points, points);
            EXPECT_SAME_F32(got.sigma_video, fixture_f32(&f, name, points), points);
            snprintf(name, sizeof name, "sigmas.%g.%d", spec.audio_shift, points);
            EXPECT_SAME_F32(got.sigma_audio, fixture_f32(&f, name, points), points);
            duet_schedule_free(&got);
            checked++;
        }
    EXPECT_EQ(checked, 67 * N_SHIFTS);
    fixture_close(&f);
}

TEST(default_schedule_has_the_published_values, 1000) {
    static const struct {
        int at;
        float video, audio;
    } want[] = {{1, 0.998266876f, 0.993103445f},
                {10, 0.979079425f, 0.921259761f},
                {25, 0.920127749f, 0.742268026f},
                {40, 0.729729712f, 0.402985036f},
                {48, 0.200000003f, 0.0588235296f}};
    duet_schedule s;
    duet_error err = {0};
    EXPECT_OK(duet_schedule_build(&(duet_schedule_spec){.points = 50, .video_shift = 12, .audio_shift = 3},
                                  &s, &err),
              err);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        EXPECT_SAME_F32(s.sigma_video + want[i].at, &want[i].video, 1);
        EXPECT_SAME_F32(s.sigma_audio + want[i].at, &want[i].audio, 1);
    }
    duet_schedule_free(&s);
}

TEST(base_ladders_are_shifted_per_modality, 1000) {
    static const double base[] = {0.999, 0.749, 0.5, 0.25, 0.0};
    static const float published[] = {0.999916553f, 0.972832501f, 0.923076928f, 0.800000012f, 0.0f};
    fixture f = fixture_open("golden/schedules.safetensors");
    for (int i = 0; i < N_SHIFTS; i++) {
        duet_schedule s;
        duet_error err = {0};
        duet_schedule_spec spec = {.base = base, .n_base = 5, .video_shift = SHIFTS[i], .audio_shift = 3.0};
        EXPECT_OK(duet_schedule_build(&spec, &s, &err), err);
        char name[64];
        snprintf(name, sizeof name, "ladder.%g", SHIFTS[i]);
        EXPECT_SAME_F32(s.sigma_video, fixture_f32(&f, name, 5), 5);
        EXPECT_SAME_F32(s.sigma_audio, fixture_f32(&f, "ladder.3", 5), 5);
        if (SHIFTS[i] == 12.0) EXPECT_SAME_F32(s.sigma_video, published, 5);
        duet_schedule_free(&s);
    }
    fixture_close(&f);
}

TEST(final_ladders_are_taken_verbatim, 1000) {
    static const double video[] = {1.0, 0.7, 0.1, 0.0}, audio[] = {0.9, 0.4, 0.05, 0.0};
    duet_schedule s;
    duet_error err = {0};
    EXPECT_OK(
        duet_schedule_build(&(duet_schedule_spec){.video = video, .audio = audio, .n_final = 4}, &s, &err),
        err);
    for (int i = 0; i < 4; i++) {
        EXPECT(s.sigma_video[i] == (float)video[i]);
        EXPECT(s.sigma_audio[i] == (float)audio[i]);
    }
    duet_schedule_free(&s);
}

typedef struct bad_ladder {
    double value[4];
    int n;
    const char *rule;
} bad_ladder;

static const bad_ladder BAD[] = {
    {{1.0, 0.5, 0.5, 0.0}, 4, "decrease strictly"},
    {{0.5, 0.6, 0.2, 0.0}, 4, "decrease strictly"},
    {{0.5, 0.5 - 1e-12, 0.0}, 3, "decrease strictly"}, /* equal as fp32 */
    {{1.0, 0.5, 0.1}, 3, "end with 0"},
    {{1.0, 0.5, -0.1}, 3, "end with 0"},
    {{1.25, 0.5, 0.0}, 3, "not above 1"},
    {{1.0, 0.0, 0.0}, 3, "above 0"},
    {{1.0, 1e-60, 0.0}, 3, "above 0"}, /* zero as fp32 */
    {{NAN, 0.5, 0.0}, 3, "finite"},
    {{INFINITY, 0.5, 0.0}, 3, "finite"},
    {{0.0}, 1, "at least two"},
};

static void expect_refusal(const duet_schedule_spec *spec, const char *param, const char *rule) {
    duet_schedule s;
    duet_error err = {0};
    EXPECT_EQ(duet_schedule_build(spec, &s, &err), DUET_E_REQUEST);
    EXPECT_STR(err.param, param);
    EXPECT_HAS(err.message, rule);
    EXPECT(!s.sigma_video && !s.sigma_audio);
}

TEST(bad_ladders_are_refused_by_name, 1000) {
    static const double good[] = {1.0, 0.5, 0.25, 0.0}, good3[] = {1.0, 0.5, 0.0}, good1[] = {0.0};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        const double *v = BAD[i].value;
        int n = BAD[i].n;
        const double *ok = n == 4 ? good : n == 3 ? good3 : good1;
        expect_refusal(&(duet_schedule_spec){.video = v, .audio = ok, .n_final = n}, "sigmas", BAD[i].rule);
        if (n > 1)
            expect_refusal(&(duet_schedule_spec){.video = ok, .audio = v, .n_final = n}, "audio_sigmas",
                           BAD[i].rule);
        expect_refusal(&(duet_schedule_spec){.base = v, .n_base = n, .video_shift = 12, .audio_shift = 3},
                       "base_schedule", BAD[i].rule);
    }
    expect_refusal(&(duet_schedule_spec){.video = good, .n_final = 4}, "audio_sigmas", "together");
    expect_refusal(&(duet_schedule_spec){.audio = good, .n_final = 4}, "sigmas", "together");
}

TEST(bad_shifts_and_points_are_refused, 1000) {
    expect_refusal(&(duet_schedule_spec){.points = 1, .video_shift = 12, .audio_shift = 3},
                   "num_inference_steps", "at least 2");
    expect_refusal(&(duet_schedule_spec){.points = 5, .video_shift = 0, .audio_shift = 3}, "flow_shift",
                   "positive");
    expect_refusal(&(duet_schedule_spec){.points = 5, .video_shift = 12, .audio_shift = -1},
                   "audio_flow_shift", "positive");
    expect_refusal(&(duet_schedule_spec){.points = 5, .video_shift = NAN, .audio_shift = 3}, "flow_shift",
                   "positive");
    expect_refusal(&(duet_schedule_spec){.points = 1000, .video_shift = 1e8, .audio_shift = 3}, "flow_shift",
                   "equal");
}
