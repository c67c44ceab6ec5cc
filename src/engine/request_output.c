/* request_output.c - how many, from which seed, under which names and how encoded; and the fields that are
 * words.
 *
 * Output k of n uses seed + k, which must not run over 2^63 - 1. Names: clip.mp4 -> clip-0.mp4, clip-1.mp4;
 * out/ -> out/output_0/, out/output_1/. What is not ".mp4" or a folder is refused by name, before any work.
 * */
#include "engine/request_int.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { MAX_COMPRESSION = 100, DEFAULT_SEED = 42 };

typedef struct quality_level {
    const char *name;
    int32_t compression;
} quality_level;
static const quality_level OUTPUT_QUALITIES[] = {
    {"default", 50}, {"maximum", 100}, {"high", 90}, {"medium", 55}, {"low", 35}};
enum { N_OUTPUT_QUALITIES = sizeof OUTPUT_QUALITIES / sizeof OUTPUT_QUALITIES[0] };

/* ---- counts and seeds
 * ---------------------------------------------------------------------------------------- */

static int64_t outputs_of(const duet_request *r) {
    return duet__given(r->num_outputs_per_prompt) ? r->num_outputs_per_prompt : 1;
}

static duet_status refuse_range(const char *param, int64_t got, int64_t low, int64_t high, duet_error *err) {
    char value[32], nearest[32];
    snprintf(value, sizeof value, "%lld", (long long)got);
    snprintf(nearest, sizeof nearest, "%lld", (long long)(got < low ? low : high));
    return duet_refuse(err, param, "out_of_range", value, nearest, "must be between %lld and %lld",
                       (long long)low, (long long)high);
}

static duet_status check_seed(const duet_request *r, duet_error *err) {
    if (!duet__given(r->seed) || r->seed == -1) return DUET_OK;
    if (r->seed < -1) {
        char value[32];
        snprintf(value, sizeof value, "%lld", (long long)r->seed);
        return duet_refuse(err, "seed", "out_of_range", value, "0",
                           "must be between 0 and 9223372036854775807, or -1");
    }
    int64_t room = INT64_MAX - (outputs_of(r) - 1);
    if (r->seed <= room) return DUET_OK;
    char value[32], nearest[32];
    snprintf(value, sizeof value, "%lld", (long long)r->seed);
    snprintf(nearest, sizeof nearest, "%lld", (long long)room);
    return duet_refuse(err, "seed", "out_of_range", value, nearest,
                       "seed + num_outputs_per_prompt - 1 must be at most 9223372036854775807");
}

/* ---- names
 * --------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

bool duet_output_is_folder(const char *output) {
    return ends_with(output, "/");
}

char *duet_output_name(const char *output, int32_t k, int32_t n) {
    if (n <= 1) return duet_strdup(output);
    size_t bytes = strlen(output) + 32;
    char *name = duet_alloc(bytes, DUET_MEM_STRING);
    if (!name) return NULL;
    if (duet_output_is_folder(output)) {
        snprintf(name, bytes, "%soutput_%d/", output, k);
    } else {
        int stem = (int)(strlen(output) - strlen(".mp4"));
        snprintf(name, bytes, "%.*s-%d.mp4", stem, output, k);
    }
    return name;
}

char *duet_latents_name(const char *output) {
    const char *end = duet_output_is_folder(output) ? "latents.safetensors" : ".latents.safetensors";
    size_t bytes = strlen(output) + strlen(end) + 1;
    char *name = duet_alloc(bytes, DUET_MEM_STRING);
    if (name) snprintf(name, bytes, "%s%s", output, end);
    return name;
}

/* A result is a line on standard output: a name must not end it, nor speak to a terminal. */
static duet_status refuse_controls(const char *output, duet_error *err) {
    char nearest[96];
    bool whole = snprintf(nearest, sizeof nearest, "%s", output) < (int)sizeof nearest;
    for (unsigned char *p = (unsigned char *)nearest; *p; p++)
        if (*p < 0x20 || *p == 0x7f) *p = '_';
    return duet_refuse(err, "output", "invalid_value", output, whole ? nearest : NULL,
                       "must not hold control characters (a line break, a tab, an escape)");
}

static bool has_controls(const char *text) {
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7f) return true;
    return false;
}

/* The suggestion is the name with its ending replaced by .mp4. */
duet_status duet_output_name_check(const char *output, duet_error *err) {
    const char *base = strrchr(output, '/');
    base = base ? base + 1 : output;
    if (has_controls(output)) return refuse_controls(output, err);
    if (duet_output_is_folder(output) || (ends_with(output, ".mp4") && strlen(base) > 4)) return DUET_OK;
    char nearest[96];
    const char *dot = strrchr(base, '.');
    bool folder = !strcmp(base, ".") || !strcmp(base, "..");
    int stem = dot && dot != base && !folder ? (int)(dot - output) : (int)strlen(output);
    bool whole = *base && strcmp(base, ".mp4") != 0 &&
                 snprintf(nearest, sizeof nearest, "%.*s%s", stem, output, folder ? "/" : ".mp4") <
                     (int)sizeof nearest;
    return duet_refuse(err, "output", "invalid_value", output, whole ? nearest : "clip.mp4",
                       "must end in .mp4, or in / for a folder of PNG frames and a WAV");
}

/* ---- encoding
 * ------------------------------------------------------------------------------------------------ */

static const quality_level *output_quality(const char *name) {
    for (int i = 0; i < N_OUTPUT_QUALITIES; i++) {
        if (!name || !strcmp(name, OUTPUT_QUALITIES[i].name)) return &OUTPUT_QUALITIES[i];
    }
    return NULL;
}

static duet_status check_encoding(const duet_request *r, duet_error *err) {
    if (!output_quality(r->output_quality))
        return duet_refuse(err, "output_quality", "invalid_value", r->output_quality, "default",
                           "must be default, maximum, high, medium or low");
    int64_t c = r->output_compression;
    if (duet__given(c) && (c < 0 || c > MAX_COMPRESSION))
        return refuse_range("output_compression", c, 0, MAX_COMPRESSION, err);
    return DUET_OK;
}

duet_status duet__check_outputs(const duet_request *r, duet_error *err) {
    int64_t n = outputs_of(r);
    if (n < 1 || n > DUET_MAX_OUTPUTS)
        return refuse_range("num_outputs_per_prompt", n, 1, DUET_MAX_OUTPUTS, err);
    if (r->init_noise && n > 1) {
        char value[32];
        snprintf(value, sizeof value, "%lld", (long long)n);
        return duet_refuse(err, "num_outputs_per_prompt", "conflicting_parameters", value, "1",
                           "must be 1 with init_noise: every output would be the same clip");
    }
    duet_status st;
    TRY(st, fail, check_seed(r, err));
    TRY(st, fail, check_encoding(r, err));
    if (r->output) st = duet_output_name_check(r->output, err);
fail:
    return st;
}

/* ---- words
 * --------------------------------------------------------------------------------------------------- */

static const char *quality_of(const duet_request *r) {
    static const char *const exact[] = {"exact", "lossless", "extra-high"};
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++) {
        if (!r->quality || !strcmp(r->quality, exact[i])) return exact[i];
    }
    return NULL;
}

static duet_status check_quality(const duet_request *r, duet_error *err) {
    if (quality_of(r)) return DUET_OK;
    if (!strcmp(r->quality, "high"))
        return duet_refuse(err, "quality", "quality_not_available", r->quality, "lossless",
                           "this build has no audited approximation for it");
    return duet_refuse(err, "quality", "invalid_value", r->quality, "lossless",
                       "must be exact, lossless, extra-high or high");
}

duet_status duet__check_words(const duet_request *r, duet_error *err) {
    if (r->noise && strcmp(r->noise, "sglang") && strcmp(r->noise, "diffusers"))
        return duet_refuse(err, "noise", "invalid_value", r->noise, "sglang", "must be sglang or diffusers");
    if (r->dtype && !strcmp(r->dtype, "bf16"))
        return duet_refuse(err, "dtype", "unsupported_parameter", "bf16", "f32",
                           "bf16 is not available in this version");
    if (r->dtype && strcmp(r->dtype, "f32"))
        return duet_refuse(err, "dtype", "invalid_value", r->dtype, "f32", "must be f32");
    return check_quality(r, err);
}

/* ---- resolve
 * ------------------------------------------------------------------------------------------------- */

/* 32 bits, because no more reach the generator: a drawn seed stays short enough to type again. */
static duet_status draw_seed(int64_t *seed, duet_error *err) {
    uint32_t bits = 0;
    FILE *f = fopen("/dev/urandom", "rb");
    bool ok = f && fread(&bits, sizeof bits, 1, f) == 1;
    if (f) fclose(f);
    *seed = (int64_t)bits;
    return ok ? DUET_OK : duet_fail(err, DUET_E_IO, "/dev/urandom: cannot be read to draw a seed");
}

duet_status duet__resolve_outputs(const duet_request *r, duet_resolved *out, duet_error *err) {
    out->num_outputs = (int32_t)outputs_of(r);
    out->quality = quality_of(r);
    bool compression = duet__given(r->output_compression);
    out->output_compression =
        compression ? (int32_t)r->output_compression : output_quality(r->output_quality)->compression;
    if (compression && r->output_quality)
        duet__warn(out, "output_quality: has no effect beside output_compression");
    if (r->init_noise && duet__given(r->seed)) duet__warn(out, "seed: has no effect beside init_noise");
    if (r->init_noise && r->noise) duet__warn(out, "noise: has no effect beside init_noise");
    out->seed = duet__given(r->seed) ? r->seed : DEFAULT_SEED;
    return out->seed == -1 ? draw_seed(&out->seed, err) : DUET_OK;
}
