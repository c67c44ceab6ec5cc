/* sigma.c - the two schedules of a request (spec model-dit 11).
 *
 *     linspace(1, 0, points)  or  base ladder u  --shift s-->  sigma = s u / (1 + (s - 1) u), once per
 * modality final ladders  ----------->  sigma, taken verbatim
 *
 * 1. fp32, every operation rounded on its own, except the first half of linspace, whose multiply-add is
 * fused: that is what the reference's processors do, and it moves 4 of the 50 default base values by one ulp.
 * 2. Both lists have the same length, decrease strictly and end with exactly 0. The reference collapses
 * sigmas that fall on the same fp32 value; here such a request is refused, because fewer evaluations than
 * asked for would be run (P2). It takes a shift times points above ten million. */
#include "engine/sigma.h"

#include <math.h>
#include <stdio.h>

#include "base/alloc.h"

void duet_linspace_1_0(int64_t points, float *out) {
    float step = -1.0f / (float)(points - 1);
    int64_t half = points / 2;
    for (int64_t i = 0; i < half; i++) out[i] = fmaf(step, (float)i, 1.0f);
    for (int64_t i = half; i < points; i++) out[i] = 0.0f - step * (float)(points - 1 - i);
}

void duet_sigma_shift(double shift, const float *u, int64_t n, float *sigma) {
    float s = (float)shift, s_less_1 = (float)(shift - 1.0);
    for (int64_t i = 0; i < n; i++) {
        float numerator = s * u[i], denominator = 1.0f + s_less_1 * u[i];
        sigma[i] = numerator / denominator;
    }
}

static duet_status refuse_at(duet_error *err, const char *param, int64_t i, double value, const char *rule) {
    char text[64];
    snprintf(text, sizeof text, "%.9g at position %lld", value, (long long)i);
    return duet_refuse(err, param, "invalid_value", text, NULL, "%s", rule);
}

/* The rules hold for the fp32 values that will be used, so two doubles that round together are refused too.
 */
static duet_status check_ladder(const char *param, const double *ladder, int64_t n, duet_error *err) {
    if (n < 2) {
        char text[32];
        snprintf(text, sizeof text, "%lld values", (long long)n);
        return duet_refuse(err, param, "invalid_value", text, NULL, "must hold at least two values");
    }
    for (int64_t i = 0; i < n; i++) {
        float value = (float)ladder[i];
        if (!isfinite(ladder[i])) return refuse_at(err, param, i, ladder[i], "must be finite");
        if (i > 0 && !(value < (float)ladder[i - 1]))
            return refuse_at(err, param, i, ladder[i], "must decrease strictly");
        if (i == n - 1 && ladder[i] != 0.0) return refuse_at(err, param, i, ladder[i], "must end with 0");
        if (i < n - 1 && !(value > 0.0f && value <= 1.0f))
            return refuse_at(err, param, i, ladder[i],
                             "must lie above 0 and not above 1 before the last value");
    }
    return DUET_OK;
}

static duet_status check_shift(const char *param, double shift, duet_error *err) {
    float s = (float)shift;
    if (isfinite(s) && s > 0.0f) return DUET_OK;
    char text[32];
    snprintf(text, sizeof text, "%.9g", shift);
    return duet_refuse(err, param, "invalid_value", text, NULL, "must be a positive number");
}

static duet_status check_distinct(const char *param, double shift, const float *sigma, int64_t n,
                                  duet_error *err) {
    for (int64_t i = 1; i < n; i++) {
        if (sigma[i] < sigma[i - 1]) continue;
        char text[32];
        snprintf(text, sizeof text, "%.9g", shift);
        return duet_refuse(err, param, "invalid_value", text, NULL,
                           "makes sigma points %lld and %lld equal; take fewer points or a smaller shift",
                           (long long)(i - 1), (long long)i);
    }
    return DUET_OK;
}

static duet_status allocate(duet_schedule *out, int64_t points, duet_error *err) {
    out->sigma_video = duet_calloc((size_t)points, sizeof(float), DUET_MEM_ENGINE);
    out->sigma_audio = duet_calloc((size_t)points, sizeof(float), DUET_MEM_ENGINE);
    if (!out->sigma_video || !out->sigma_audio)
        return duet_fail(err, DUET_E_MEMORY, "no memory for a schedule of %lld points", (long long)points);
    out->points = points;
    return DUET_OK;
}

static duet_status from_final(const duet_schedule_spec *spec, duet_schedule *out, duet_error *err) {
    duet_status st;
    if (!spec->video || !spec->audio)
        return duet_refuse(err, spec->video ? "audio_sigmas" : "sigmas", "missing_field", NULL, NULL,
                           "sigmas and audio_sigmas must be given together");
    TRY(st, fail, check_ladder("sigmas", spec->video, spec->n_final, err));
    TRY(st, fail, check_ladder("audio_sigmas", spec->audio, spec->n_final, err));
    TRY(st, fail, allocate(out, spec->n_final, err));
    for (int64_t i = 0; i < spec->n_final; i++) {
        out->sigma_video[i] = (float)spec->video[i];
        out->sigma_audio[i] = (float)spec->audio[i];
    }
fail:
    return st;
}

static duet_status from_base(const duet_schedule_spec *spec, duet_schedule *out, duet_error *err) {
    int64_t n = spec->base ? spec->n_base : spec->points;
    duet_status st;
    if (spec->base) {
        TRY(st, fail, check_ladder("base_schedule", spec->base, n, err));
    } else if (n < 2) {
        char text[32];
        snprintf(text, sizeof text, "%lld", (long long)n);
        return duet_refuse(err, "num_inference_steps", "out_of_range", text, "2", "must be at least 2");
    }
    TRY(st, fail, check_shift("flow_shift", spec->video_shift, err));
    TRY(st, fail, check_shift("audio_flow_shift", spec->audio_shift, err));
    TRY(st, fail, allocate(out, n, err));

    float *u = out->sigma_audio; /* shifted in place last */
    if (spec->base) {
        for (int64_t i = 0; i < n; i++) u[i] = (float)spec->base[i];
    } else {
        duet_linspace_1_0(n, u);
    }
    duet_sigma_shift(spec->video_shift, u, n, out->sigma_video);
    duet_sigma_shift(spec->audio_shift, u, n, out->sigma_audio);
    TRY(st, fail, check_distinct("flow_shift", spec->video_shift, out->sigma_video, n, err));
    TRY(st, fail, check_distinct("audio_flow_shift", spec->audio_shift, out->sigma_audio, n, err));
fail:
    return st;
}

duet_status duet_schedule_build(const duet_schedule_spec *spec, duet_schedule *out, duet_error *err) {
    *out = (duet_schedule){0};
    duet_status st = spec->video || spec->audio ? from_final(spec, out, err) : from_base(spec, out, err);
    if (st != DUET_OK) duet_schedule_free(out);
    return st;
}

void duet_schedule_free(duet_schedule *schedule) {
    duet_free(schedule->sigma_video);
    duet_free(schedule->sigma_audio);
    *schedule = (duet_schedule){0};
}
