/* request_test.c - every limit just outside and just inside, and that "nearest" is never a lie. */
#include "harness/harness.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "request_fixture.h"

static duet_model_config config;
static duet_resolved got;
static duet_plan_args args;
static duet_error err;

static duet_status run(const duet_request *r) {
    config = released_config();
    return ask(r, &config, &got, &args, &err);
}

static void expect_refused(const duet_request *r, const char *param, const char *code, const char *nearest) {
    if (run(r) != DUET_E_REQUEST) FAIL("accepted, want %s %s", param, code);
    EXPECT_STR(err.param, param);
    EXPECT_STR(err.code, code);
    if (nearest) EXPECT_STR(err.nearest, nearest);
}

static void expect_made(const duet_request *r) {
    duet_status st = run(r);
    if (st != DUET_OK) FAIL("refused: %s: %s (got %s)", err.param, err.message, err.value);
}

/* ---- integer fields: one row per bound
 * --------------------------------------------------------------------- */

typedef struct bound {
    const char *param;
    size_t offset;
    int64_t low, high;
} bound;
#define BOUND(field, low, high)                                                                              \
    { #field, offsetof(duet_request, field), low, high }
static const bound BOUNDS[] = {
    BOUND(num_frames, 96, 362),           BOUND(num_inference_steps, 2, 200), BOUND(short_edge, 256, 1440),
    BOUND(num_outputs_per_prompt, 1, 10), BOUND(output_compression, 0, 100),
};

TEST(request_integer_bounds, 2000) {
    for (size_t i = 0; i < sizeof BOUNDS / sizeof BOUNDS[0]; i++) {
        const bound *b = &BOUNDS[i];
        const int64_t outside[] = {b->low - 1,  b->high + 1, b->high * 1000,
                                   -b->low - 7, INT64_MAX,   INT64_MIN + 1};
        for (int k = 0; k < 6; k++) {
            duet_request r = plain_request();
            *(int64_t *)((char *)&r + b->offset) = outside[k];
            char nearest[32];
            snprintf(nearest, sizeof nearest, "%lld", (long long)(outside[k] > b->high ? b->high : b->low));
            expect_refused(&r, b->param, "out_of_range", nearest);
        }
        for (int k = 0; k < 2; k++) {
            duet_request r = plain_request();
            *(int64_t *)((char *)&r + b->offset) = k ? b->high : b->low;
            expect_made(&r);
        }
    }
}

TEST(request_defaults, 2000) {
    duet_request r = plain_request();
    expect_made(&r);
    EXPECT_STR(got.task, "t2va");
    EXPECT_EQ(got.width, 1344);
    EXPECT_EQ(got.height, 768);
    EXPECT_EQ(got.num_frames, 107);
    EXPECT_EQ(got.points, 50);
    EXPECT_EQ(got.evaluations, 49);
    EXPECT_EQ(got.seed, 42);
    EXPECT_EQ(got.num_outputs, 1);
    EXPECT_EQ(got.output_compression, 50);
    EXPECT_EQ(got.n_warnings, 0);
    EXPECT_EQ(args.timesteps, 97); /* 49 + 49, of which t = 0 is shared */
    EXPECT_EQ(got.prompt_characters, 17);
}

TEST(request_struct_stamp, 2000) {
    duet_request r = plain_request();
    r.struct_bytes -= 8;
    EXPECT_EQ(run(&r), DUET_E_USAGE);
    r.struct_bytes = 0;
    EXPECT_EQ(run(&r), DUET_E_USAGE);
}

/* ---- prompt
 * -------------------------------------------------------------------------------------------------- */

static void refuse_prompt(const char *bytes, int64_t n, const char *code) {
    duet_request r = plain_request();
    r.prompt = bytes;
    r.prompt_bytes = n;
    expect_refused(&r, "prompt", code, NULL);
}

TEST(request_prompt_encoding, 2000) {
    static const char *const bad[] = {
        "\x80",         "a\xc3",        "\xc0\xaf",         "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xe0\x80\x80", "\xf8\x88\x80", "\xf0\x80\x80\x80", "ok\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) refuse_prompt(bad[i], -1, "invalid_encoding");
    static const char *const good[] = {"\xc2\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        duet_request r = plain_request();
        r.prompt = good[i];
        if (i) expect_made(&r);
        if (i) EXPECT_EQ(got.prompt_characters, 1);
    }
}

TEST(request_prompt_blank, 2000) {
    duet_request r = plain_request();
    r.prompt = NULL;
    expect_refused(&r, "prompt", "missing_required_parameter", NULL);
    refuse_prompt("", -1, "missing_required_parameter");
    refuse_prompt(" \t\r\n\f\v", -1, "missing_required_parameter");
    refuse_prompt("\xc2\xa0\xe3\x80\x80\xe2\x80\x83\xe2\x80\xa9", -1, "missing_required_parameter");
    r.prompt = "\xe2\x80\x8b"; /* ZERO WIDTH SPACE is not white space to Unicode */
    expect_made(&r);
    r.prompt = "a\0b";
    r.prompt_bytes = 3;
    expect_made(&r);
    EXPECT_EQ(got.prompt_characters, 3);
}

TEST(request_prompt_length, 2000) {
    static char text[4 * 7001 + 1];
    for (int i = 0; i < 7001; i++)
        memcpy(text + 4 * i, "\xf0\x9f\x8e\xac", 4); /* one code point, two UTF-16 units */
    refuse_prompt(text, 4 * 7001, "string_above_max_length");
    EXPECT_STR(err.value, "7001 characters");
    duet_request r = plain_request();
    r.prompt = text;
    r.prompt_bytes = 4 * 7000;
    expect_made(&r);
    EXPECT_EQ(got.prompt_characters, 7000);
}

TEST(request_prompt_against_model, 2000) {
    duet_request r = plain_request();
    config = released_config();
    duet_request_model m = {
        .config = &config, .serves_t2va = true, .prompt_tokens = 5, .vision_token = "<|image_pad|>"};
    err = (duet_error){0};
    EXPECT_EQ(duet_request_resolve(&r, &m, &got, &args, &err), DUET_E_REQUEST);
    EXPECT_STR(err.param, "prompt");
    EXPECT_STR(err.value, "<|image_pad|>");
    m.vision_token = NULL;
    m.prompt_tokens = config.text.max_positions + 1;
    err = (duet_error){0};
    EXPECT_EQ(duet_request_resolve(&r, &m, &got, &args, &err), DUET_E_REQUEST);
    EXPECT_STR(err.code, "string_above_max_length");
}

/* ---- task
 * ---------------------------------------------------------------------------------------------------- */

TEST(request_task, 2000) {
    duet_request r = plain_request();
    r.task = "v2v";
    expect_refused(&r, "task", "invalid_value", "t2va");
    r.task = "T2VA";
    expect_made(&r);
    EXPECT_STR(got.task, "t2va");
    r.task = "ref2va";
    expect_refused(&r, "task", "task_not_served", "t2va");
    duet_request_model m = {.config = &config, .serves_fl2va = true, .serves_t2va = true, .prompt_tokens = 5};
    r.task = "fl2va";
    err = (duet_error){0};
    EXPECT_EQ(duet_request_resolve(&r, &m, &got, &args, &err), DUET_E_REQUEST);
    EXPECT_STR(err.code, "unsupported_parameter");
}

/* ---- duration
 * ------------------------------------------------------------------------------------------------ */

typedef struct duration_row {
    double seconds;
    int64_t frames;
} duration_row;

TEST(request_seconds, 2000) {
    static const duration_row rows[] = {{4, 107}, {4.4, 107}, {5, 124},  {5.2, 141}, {6, 158},
                                        {8, 192}, {8.7, 209}, {10, 243}, {12, 294},  {15, 362}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        duet_request r = plain_request();
        r.seconds = rows[i].seconds;
        expect_made(&r);
        EXPECT_EQ(got.num_frames, rows[i].frames);
    }
    static const double outside[] = {3.9, 3.999999, 15.000001, 15.1, 0, -4, 1e300, INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        duet_request r = plain_request();
        r.seconds = outside[i];
        expect_refused(&r, "seconds", "out_of_range", NULL);
    }
}

TEST(request_frames_snap_and_any_length, 2000) {
    duet_request r = plain_request();
    r.num_frames = 108;
    expect_made(&r);
    EXPECT_EQ(got.num_frames, 124);
    r.num_frames = 95;
    expect_refused(&r, "num_frames", "out_of_range", "96");
    r.any_length = true;
    r.num_frames = 21;
    expect_refused(&r, "num_frames", "out_of_range", "22");
    r.num_frames = 363;
    expect_refused(&r, "num_frames", "out_of_range", "362");
    r.num_frames = 22;
    expect_made(&r);
    EXPECT_EQ(got.num_frames, 22);
    EXPECT_EQ(got.n_warnings, 1);
    EXPECT_HAS(got.warnings[0], "num_frames");
    r.num_frames = DUET_UNSET;
    r.seconds = 0.917;
    expect_made(&r);
    EXPECT_EQ(got.num_frames, 22);
    r.seconds = 15.083;
    expect_made(&r);
    EXPECT_EQ(got.num_frames, 362);
    r.seconds = 0.9;
    expect_refused(&r, "seconds", "out_of_range", "0.917");
    r.num_frames = 120;
    expect_refused(&r, "num_frames", "conflicting_parameters", NULL);
    r.seconds = 5; /* equal, and refused all the same */
    expect_refused(&r, "num_frames", "conflicting_parameters", NULL);
}

/* ---- canvas
 * -------------------------------------------------------------------------------------------------- */

static duet_status canvas(int64_t w, int64_t h) {
    duet_request r = plain_request();
    r.width = w;
    r.height = h;
    return run(&r);
}

TEST(request_canvas_rules, 2000) {
    duet_request r = plain_request();
    r.width = 1344;
    expect_refused(&r, "height", "missing_required_parameter", NULL);
    r.width = DUET_UNSET;
    r.height = 768;
    expect_refused(&r, "width", "missing_required_parameter", NULL);
    EXPECT_EQ(canvas(1344, 768), DUET_OK);
    EXPECT_EQ(canvas(1350, 768), DUET_E_REQUEST);
    EXPECT_STR(err.param, "width");
    EXPECT_STR(err.nearest, "1344");
    EXPECT_EQ(canvas(4096, 512), DUET_E_REQUEST); /* ratio 8 */
    EXPECT_EQ(canvas(512, 128), DUET_OK);
    EXPECT_EQ(canvas(544, 128), DUET_E_REQUEST);
    EXPECT_EQ(canvas(128, 96), DUET_E_REQUEST);
    EXPECT_STR(err.param, "height");
    EXPECT_EQ(canvas(2560, 1440), DUET_OK);
    EXPECT_EQ(canvas(2976, 1248), DUET_OK);
    EXPECT_EQ(canvas(1952, 1952), DUET_E_REQUEST); /* 3 810 304 pixels */
    EXPECT_EQ(canvas(1920, 1952), DUET_OK);
    EXPECT_EQ(canvas(0, 0), DUET_E_REQUEST);
    EXPECT_EQ(canvas(INT64_MAX, INT64_MAX), DUET_E_REQUEST);
    EXPECT_EQ(canvas(INT64_MIN + 1, 4), DUET_E_REQUEST);
}

TEST(request_canvas_of_a_small_model, 2000) {
    duet_request r = plain_request();
    config = released_config();
    config.canvas_short_edge = 96;
    config.canvas_multiple = 16;
    r.width = 32;
    r.height = 48;
    EXPECT_OK(ask(&r, &config, &got, &args, &err), err);
    r.width = 40;
    EXPECT_EQ(ask(&r, &config, &got, &args, &err), DUET_E_REQUEST);
    r.width = r.height = DUET_UNSET;
    r.short_edge = 95;
    EXPECT_EQ(ask(&r, &config, &got, &args, &err), DUET_E_REQUEST);
    EXPECT_STR(err.nearest, "96");
    r.short_edge = 96;
    EXPECT_OK(ask(&r, &config, &got, &args, &err), err);
    EXPECT_EQ(got.height, 96);
    EXPECT_EQ(got.n_warnings, 0);
}

TEST(request_size, 2000) {
    static const char *const bad[] = {"",          "x",          "1344",      "1344x",
                                      "x768",      "1344X768",   "1344x768 ", " 1344x768",
                                      "1344x-768", "1344x768x3", "1e3x768",   "99999999999x768",
                                      "1344*768"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        duet_request r = plain_request();
        r.size = bad[i];
        expect_refused(&r, "size", "invalid_value", NULL);
    }
    duet_request r = plain_request();
    r.size = "1280x720";
    expect_made(&r);
    EXPECT_EQ(got.width, 1344);
    EXPECT_EQ(got.height, 768);
    EXPECT_EQ(got.n_warnings, 1);
    r.size = "720x1280";
    expect_made(&r);
    EXPECT_EQ(got.height, 1344);
    r.size = "1792x1024";
    expect_made(&r);
    EXPECT_EQ(got.n_warnings, 0);
    EXPECT_EQ(got.width, 1792);
    r.size = "1344x768";
    r.width = 1344;
    r.height = 768;
    expect_made(&r);
    r.height = 736;
    expect_refused(&r, "size", "conflicting_parameters", "1344x736");
}

typedef struct ratio_row {
    const char *name;
    int32_t w, h;
} ratio_row;

TEST(request_aspect_ratio, 2000) {
    static const ratio_row rows[] = {{"21:9", 1536, 672}, {"16:9", 1344, 768},     {"4:3", 1024, 768},
                                     {"1:1", 768, 768},   {"3:4", 768, 1024},      {"9:16", 768, 1344},
                                     {"auto", 1344, 768}, {"adaptive", 1344, 768}, {"1.7777778", 1344, 768}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        duet_request r = plain_request();
        r.aspect_ratio = rows[i].name;
        expect_made(&r);
        EXPECT_EQ(got.width, rows[i].w);
        EXPECT_EQ(got.height, rows[i].h);
    }
    duet_request r = plain_request();
    r.aspect_ratio = "3:2";
    expect_refused(&r, "aspect_ratio", "invalid_value", "4:3");
    r.aspect_ratio = "2.4";
    expect_refused(&r, "aspect_ratio", "invalid_value", "21:9");
    r.aspect_ratio = "wide";
    expect_refused(&r, "aspect_ratio", "invalid_value", "16:9");
    r.aspect_ratio = "";
    expect_refused(&r, "aspect_ratio", "invalid_value", NULL);
    r.aspect_ratio = "nan:1";
    expect_refused(&r, "aspect_ratio", "invalid_value", NULL);
    r.aspect_ratio = NULL;
    r.short_edge = 480;
    expect_made(&r);
    EXPECT_EQ(got.width, 864);
    EXPECT_EQ(got.n_warnings, 1);
}

static uint64_t lcg = 1;
static int64_t any(int64_t n) {
    lcg = lcg * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((lcg >> 33) % (uint64_t)n);
}

/* Whatever was refused for its canvas is accepted once the suggestions are followed, edge by edge. */
TEST(request_nearest_canvas_is_accepted, 10000) {
    for (int i = 0; i < 20000; i++) {
        duet_request r = plain_request();
        r.width = any(5000) + 1;
        r.height = any(i % 2 ? 5000 : 300) + 1;
        int tries = 0;
        while (run(&r) != DUET_OK) {
            if (++tries > 3)
                FAIL("%lldx%lld is still refused: %s", (long long)r.width, (long long)r.height, err.message);
            long long w, h;
            if (sscanf(err.nearest, "%lldx%lld", &w, &h) == 2) {
                r.width = w;
                r.height = h;
            } else {
                *(strcmp(err.param, "width") ? &r.height : &r.width) = strtoll(err.nearest, NULL, 10);
            }
        }
    }
}

/* ---- schedule
 * ------------------------------------------------------------------------------------------------ */

TEST(request_steps, 2000) {
    duet_request r = plain_request();
    r.steps_unit = "evaluations";
    r.num_inference_steps = 0;
    expect_refused(&r, "num_inference_steps", "out_of_range", "1");
    r.num_inference_steps = 1;
    expect_made(&r);
    EXPECT_EQ(got.points, 2);
    r.num_inference_steps = 200;
    expect_made(&r);
    EXPECT_EQ(got.evaluations, 200);
    r.steps_unit = "steps";
    expect_refused(&r, "steps_unit", "invalid_value", "points");
}

TEST(request_shifts, 2000) {
    static const double bad[] = {0, -1, -0.0, INFINITY, -INFINITY, NAN, 1e39, 1e-50};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        duet_request r = plain_request();
        r.flow_shift = bad[i];
        expect_refused(&r, "flow_shift", "out_of_range", "12");
        r.flow_shift = DUET_UNSET_NUMBER;
        r.audio_flow_shift = bad[i];
        expect_refused(&r, "audio_flow_shift", "out_of_range", "3");
    }
    duet_request r = plain_request();
    r.flow_shift = 1e20; /* fp32 can hold it, but all sigmas become 1 */
    expect_refused(&r, "flow_shift", "invalid_value", NULL);
    r.flow_shift = 6;
    expect_made(&r);
    EXPECT(got.flow_shift == 6.0 && got.audio_flow_shift == 3.0);
}

static const double LADDER[] = {0.999, 0.749, 0.5, 0.25, 0};
static const double AUDIO[] = {1, 0.9, 0.75, 0.5, 0};

TEST(request_ladders, 2000) {
    duet_request r = plain_request();
    r.base_schedule = LADDER;
    r.n_base_schedule = 5;
    expect_made(&r);
    EXPECT_STR(got.schedule, "base_schedule");
    EXPECT(got.sigmas[0] == 0.999916553f && got.audio_sigmas[1] == 0.899519563f);
    r.num_inference_steps = 5;
    expect_refused(&r, "num_inference_steps", "conflicting_parameters", NULL);
    r.num_inference_steps = DUET_UNSET;
    r.sigmas = LADDER;
    r.n_sigmas = 5;
    expect_refused(&r, "base_schedule", "conflicting_parameters", NULL);
    r.base_schedule = NULL;
    expect_refused(&r, "audio_sigmas", "missing_required_parameter", NULL);
    r.audio_sigmas = AUDIO;
    r.n_audio_sigmas = 5;
    expect_made(&r);
    EXPECT(got.sigmas[1] == 0.749f && got.audio_sigmas[1] == 0.9f);
    r.flow_shift = 12;
    expect_refused(&r, "flow_shift", "conflicting_parameters", NULL);
    r.flow_shift = DUET_UNSET_NUMBER;
    r.n_audio_sigmas = 4;
    expect_refused(&r, "audio_sigmas", "invalid_value", NULL); /* ends with 0.5 */
}

TEST(request_ladder_values, 2000) {
    static const double bad[][3] = {{1, 0.5, 0.1}, {1, 1, 0},          {0.5, 0.6, 0},
                                    {1.5, 0.5, 0}, {1, NAN, 0},        {1, -0.5, 0},
                                    {1, 0, 0},     {1, 0.1, INFINITY}, {0.5, 0.5 - 1e-12, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        duet_request r = plain_request();
        r.base_schedule = bad[i];
        r.n_base_schedule = 3;
        expect_refused(&r, "base_schedule", "invalid_value", NULL);
    }
    duet_request r = plain_request();
    r.base_schedule = LADDER + 4;
    r.n_base_schedule = 1;
    expect_refused(&r, "base_schedule", "out_of_range", "2 values");
}

TEST(request_pinned_schedule, 2000) {
    duet_request r = plain_request();
    config = released_config();
    memcpy(config.base_schedule, LADDER, sizeof LADDER);
    config.n_base_schedule = 5;
    EXPECT_OK(ask(&r, &config, &got, &args, &err), err);
    EXPECT_STR(got.schedule, "model");
    EXPECT_EQ(got.evaluations, 4);
    for (int n = 3; n <= 6; n++) {
        r.num_inference_steps = n;
        EXPECT_EQ(ask(&r, &config, &got, &args, &err), n == 4 || n == 5 ? DUET_OK : DUET_E_REQUEST);
    }
    r.num_inference_steps = DUET_UNSET;
    r.flow_shift = 6;
    EXPECT_EQ(ask(&r, &config, &got, &args, &err), DUET_E_REQUEST);
    EXPECT_STR(err.nearest, "12");
}

/* ---- outputs and words
 * --------------------------------------------------------------------------------------- */

TEST(request_seed, 2000) {
    duet_request r = plain_request();
    r.seed = -2;
    expect_refused(&r, "seed", "out_of_range", "0");
    r.seed = INT64_MAX;
    expect_made(&r);
    r.num_outputs_per_prompt = 2;
    expect_refused(&r, "seed", "out_of_range", "9223372036854775806");
    r.seed = 0;
    expect_made(&r);
    EXPECT_EQ(got.seed, 0);
    r.seed = -1;
    int64_t first = -1;
    bool other = false;
    for (int i = 0; i < 8; i++) {
        expect_made(&r);
        EXPECT(got.seed >= 0);
        if (i) other = other || got.seed != first;
        first = i ? first : got.seed;
    }
    EXPECT(other);
}

TEST(request_words, 2000) {
    duet_request r = plain_request();
    r.quality = "high";
    expect_refused(&r, "quality", "quality_not_available", "lossless");
    r.quality = "best";
    expect_refused(&r, "quality", "invalid_value", "lossless");
    r.quality = "extra-high";
    expect_made(&r);
    EXPECT_STR(got.quality, "extra-high");
    r.dtype = "bf16";
    expect_refused(&r, "dtype", "unsupported_parameter", "f32");
    r.dtype = "fp32";
    expect_refused(&r, "dtype", "invalid_value", "f32");
    r.dtype = "f32";
    r.noise = "torch";
    expect_refused(&r, "noise", "invalid_value", "sglang");
    r.noise = "diffusers";
    expect_made(&r);
    EXPECT_STR(got.noise, "diffusers");
    r.output_quality = "best";
    expect_refused(&r, "output_quality", "invalid_value", "default");
    r.output_quality = "low";
    expect_made(&r);
    EXPECT_EQ(got.output_compression, 35);
    r.output_compression = 80;
    expect_made(&r);
    EXPECT_EQ(got.output_compression, 80);
    r.init_noise = "noise.safetensors";
    r.num_outputs_per_prompt = 2;
    expect_refused(&r, "num_outputs_per_prompt", "conflicting_parameters", "1");
}

TEST(request_output_names, 2000) {
    static const char *const bad[] = {"clip.avi", "a\nb.mp4", "a\x1b[0m.mp4",  "tab\t/",   "clip", "",
                                      ".mp4",     "dir/.mp4", "clip.mp4.part", "clip.MP4", "a.mov"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        duet_request r = plain_request();
        r.output = bad[i];
        expect_refused(&r, "output", "invalid_value", NULL);
    }
    duet_request r = plain_request();
    r.output = "a.b/clip.avi";
    expect_refused(&r, "output", "invalid_value", "a.b/clip.mp4");
    r.output = "a.b/clip";
    expect_refused(&r, "output", "invalid_value", "a.b/clip.mp4");
    r.output = "out/";
    expect_made(&r);
    static const char *const names[][3] = {{"clip.mp4", "clip-1.mp4", "clip-1.mp4.latents.safetensors"},
                                           {"a/b.c.mp4", "a/b.c-1.mp4", "a/b.c-1.mp4.latents.safetensors"},
                                           {"out/", "out/output_1/", "out/output_1/latents.safetensors"}};
    for (int i = 0; i < 3; i++) {
        char *alone = duet_output_name(names[i][0], 0, 1), *second = duet_output_name(names[i][0], 1, 2);
        EXPECT_STR(alone, names[i][0]);
        EXPECT_STR(second, names[i][1]);
        char *latents = duet_latents_name(second);
        EXPECT_STR(latents, names[i][2]);
        duet_free(alone);
        duet_free(second);
        duet_free(latents);
    }
}

TEST(request_json_reads_back, 2000) {
    duet_request r = plain_request();
    r.seed = INT64_MAX;
    expect_made(&r);
    char *json = duet_resolved_json(&got, 0);
    EXPECT_HAS(json, "\"seed\":9223372036854775807");
    EXPECT_HAS(json, "\"num_frames\":107");
    EXPECT_HAS(json, "\"flow_shift\":12.0");
    duet_string_free(json);
}

TEST(error_text_form, 2000) {
    char buf[1024], small[12];
    duet_error e = {0};
    duet_refuse(&e, "num_frames", "out_of_range", "95", "96", "must be between 96 and 362");
    EXPECT_STR(duet_error_text(&e, buf, sizeof buf),
               "num_frames: must be between 96 and 362 (got 95; nearest: 96)");
    EXPECT_STR(duet_error_text(&e, small, sizeof small), "num_frames:");
    e = (duet_error){0};
    duet_fail(&e, DUET_E_RUN, "denoise: evaluation 3:\nvideo");
    EXPECT_STR(duet_error_text(&e, buf, sizeof buf), "denoise: evaluation 3:?video");
    e = (duet_error){0};
    duet_refuse(&e, "height", "missing_required_parameter", NULL, NULL, "must be given together with width");
    EXPECT_STR(duet_error_text(&e, buf, sizeof buf), "height: must be given together with width");
}
