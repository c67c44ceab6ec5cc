/* request_schedule.c - steps, shifts and ladders, to the two lists of sigmas that the solver walks.
 *
 *     num_inference_steps (points, or evaluations = points - 1) -> equal steps, shifted per modality
 *     base_schedule                                             -> these positions, shifted per modality
 *     sigmas + audio_sigmas                                     -> taken as they are
 *     nothing, and the checkpoint pins a schedule               -> the checkpoint's positions and shifts
 *
 * A ladder excludes num_inference_steps, because it already says how many; final sigmas exclude the shifts.
 * Values are compared as fp32, since that is what the solver divides by: two that differ only as fp64 are
 * equal. */
#include "engine/request_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MIN_POINTS = 2, MAX_STEPS = 200, MAX_LADDER = 201, DEFAULT_POINTS = 50 };

static bool in_evaluations(const duet_request *r) {
    return r->steps_unit && !strcmp(r->steps_unit, "evaluations");
}

/* ---- rules that need no model
 * -------------------------------------------------------------------------------- */

static duet_status check_steps(const duet_request *r, duet_error *err) {
    if (r->steps_unit && strcmp(r->steps_unit, "points") && !in_evaluations(r))
        return duet_refuse(err, "steps_unit", "invalid_value", r->steps_unit, "points",
                           "must be points or evaluations");
    int64_t n = r->num_inference_steps, low = in_evaluations(r) ? 1 : MIN_POINTS;
    if (!duet__given(n) || (n >= low && n <= MAX_STEPS)) return DUET_OK;
    char value[32], nearest[32];
    snprintf(value, sizeof value, "%lld", (long long)n);
    snprintf(nearest, sizeof nearest, "%lld", (long long)(n < low ? low : MAX_STEPS));
    return duet_refuse(err, "num_inference_steps", "out_of_range", value, nearest,
                       "must be between %lld and %d %s", (long long)low, MAX_STEPS,
                       in_evaluations(r) ? "evaluations" : "points");
}

static duet_status check_shift(const char *param, double shift, double usual, duet_error *err) {
    if (!duet__number_given(shift)) return DUET_OK;
    if (isfinite((float)shift) && (float)shift > 0.0f) return DUET_OK;
    char value[32], nearest[32];
    return duet_refuse(err, param, "out_of_range", duet__number_text(shift, value, sizeof value),
                       duet__number_text(usual, nearest, sizeof nearest), "must be a finite number above 0");
}

static duet_status refuse_value(const char *param, double value, const char *nearest, int32_t place,
                                const char *rule, duet_error *err) {
    char text[64], number[32];
    snprintf(text, sizeof text, "%s at place %d", duet__number_text(value, number, sizeof number), place + 1);
    return duet_refuse(err, param, "invalid_value", text, nearest, "%s", rule);
}

/* From at most 1, strictly downwards, to exactly 0. */
static duet_status check_ladder(const char *param, const double *v, int32_t n, duet_error *err) {
    char value[32];
    if (n < MIN_POINTS || n > MAX_LADDER) {
        snprintf(value, sizeof value, "%d values", n);
        return duet_refuse(err, param, "out_of_range", value, n < MIN_POINTS ? "2 values" : "201 values",
                           "must have between %d and %d values", MIN_POINTS, MAX_LADDER);
    }
    for (int32_t i = 0; i < n; i++) {
        if (!(v[i] >= 0.0 && v[i] <= 1.0))
            return refuse_value(param, v[i], v[i] > 1.0 ? "1" : "0", i, "every value must be between 0 and 1",
                                err);
        if (i && !((float)v[i] < (float)v[i - 1]))
            return refuse_value(param, v[i], NULL, i, "values must be strictly decreasing", err);
    }
    if (v[n - 1] != 0.0)
        return refuse_value(param, v[n - 1], "0", n - 1, "the last value must be exactly 0", err);
    return DUET_OK;
}

static duet_status refuse_beside(const char *param, double got, const char *other, duet_error *err) {
    char value[32];
    return duet_refuse(err, param, "conflicting_parameters", duet__number_text(got, value, sizeof value),
                       NULL, "cannot be given together with %s", other);
}

/* What may not stand beside a ladder. */
static duet_status check_exclusions(const duet_request *r, duet_error *err) {
    bool final = r->sigmas || r->audio_sigmas;
    if (!final && !r->base_schedule) return DUET_OK;
    if (final && r->base_schedule)
        return duet_refuse(err, "base_schedule", "conflicting_parameters", NULL, NULL,
                           "cannot be given together with sigmas");
    if (final && !(r->sigmas && r->audio_sigmas))
        return duet_refuse(err, r->sigmas ? "audio_sigmas" : "sigmas", "missing_required_parameter", NULL,
                           NULL, "must be given together with %s", r->sigmas ? "sigmas" : "audio_sigmas");
    const char *ladder = final ? "sigmas" : "base_schedule";
    if (duet__given(r->num_inference_steps))
        return refuse_beside("num_inference_steps", (double)r->num_inference_steps, ladder, err);
    if (final && duet__number_given(r->flow_shift))
        return refuse_beside("flow_shift", r->flow_shift, ladder, err);
    if (final && duet__number_given(r->audio_flow_shift))
        return refuse_beside("audio_flow_shift", r->audio_flow_shift, ladder, err);
    return DUET_OK;
}

static duet_status check_ladders(const duet_request *r, duet_error *err) {
    duet_status st = DUET_OK;
    char value[32], nearest[32];
    if (r->base_schedule) return check_ladder("base_schedule", r->base_schedule, r->n_base_schedule, err);
    if (!r->sigmas) return DUET_OK;
    TRY(st, fail, check_ladder("sigmas", r->sigmas, r->n_sigmas, err));
    TRY(st, fail, check_ladder("audio_sigmas", r->audio_sigmas, r->n_audio_sigmas, err));
    if (r->n_sigmas == r->n_audio_sigmas) return DUET_OK;
    snprintf(value, sizeof value, "%d values", r->n_audio_sigmas);
    snprintf(nearest, sizeof nearest, "%d values", r->n_sigmas);
    return duet_refuse(err, "audio_sigmas", "invalid_value", value, nearest,
                       "must have as many values as sigmas");
fail:
    return st;
}

duet_status duet__check_schedule(const duet_request *r, duet_error *err) {
    duet_status st;
    TRY(st, fail, check_exclusions(r, err));
    TRY(st, fail, check_steps(r, err));
    TRY(st, fail, check_shift("flow_shift", r->flow_shift, 12, err));
    TRY(st, fail, check_shift("audio_flow_shift", r->audio_flow_shift, 3, err));
    TRY(st, fail, check_ladders(r, err));
fail:
    return st;
}

/* ---- rules that need the configuration
 * ----------------------------------------------------------------------- */

static duet_status check_pinned_shift(const char *param, double asked, double own, duet_error *err) {
    if (!duet__number_given(asked) || asked == own) return DUET_OK;
    char value[32], nearest[32];
    return duet_refuse(err, param, "invalid_value", duet__number_text(asked, value, sizeof value),
                       duet__number_text(own, nearest, sizeof nearest), "is pinned by this checkpoint");
}

/* A checkpoint with its own ladder takes its number of points or of evaluations, both meaning that ladder. */
static duet_status check_pinned(const duet_request *r, const duet_model_config *c, duet_error *err) {
    duet_status st;
    char value[32], nearest[32];
    int64_t n = r->num_inference_steps;
    TRY(st, fail, check_pinned_shift("flow_shift", r->flow_shift, c->video_shift, err));
    TRY(st, fail, check_pinned_shift("audio_flow_shift", r->audio_flow_shift, c->audio_shift, err));
    if (!duet__given(n) || n == c->n_base_schedule || n == c->n_base_schedule - 1) return DUET_OK;
    snprintf(value, sizeof value, "%lld", (long long)n);
    snprintf(nearest, sizeof nearest, "%d", in_evaluations(r) ? c->n_base_schedule - 1 : c->n_base_schedule);
    return duet_refuse(err, "num_inference_steps", "invalid_value", value, nearest,
                       "is pinned by this checkpoint");
fail:
    return st;
}

static duet_status choose(const duet_request *r, const duet_model_config *c, duet_schedule_spec *spec,
                          duet_resolved *out, duet_error *err) {
    *spec = (duet_schedule_spec){
        .video_shift = duet__number_given(r->flow_shift) ? r->flow_shift : c->video_shift,
        .audio_shift = duet__number_given(r->audio_flow_shift) ? r->audio_flow_shift : c->audio_shift,
    };
    bool pinned = c->n_base_schedule > 0, ladder = r->sigmas || r->base_schedule;
    if (pinned && ladder)
        duet__warn(out, "%s: replaces the schedule that this checkpoint pins",
                   r->sigmas ? "sigmas" : "base_schedule");
    if (r->sigmas) {
        spec->video = r->sigmas;
        spec->audio = r->audio_sigmas;
        spec->n_final = spec->points = r->n_sigmas;
        out->schedule = "sigmas";
    } else if (r->base_schedule) {
        spec->base = r->base_schedule;
        spec->n_base = spec->points = r->n_base_schedule;
        out->schedule = "base_schedule";
    } else if (pinned) {
        spec->base = c->base_schedule;
        spec->n_base = spec->points = c->n_base_schedule;
        out->schedule = "model";
        return check_pinned(r, c, err);
    } else {
        int64_t n = duet__given(r->num_inference_steps) ? r->num_inference_steps : DEFAULT_POINTS;
        spec->points = n + (duet__given(r->num_inference_steps) && in_evaluations(r) ? 1 : 0);
        out->schedule = "linspace";
    }
    return DUET_OK;
}

duet_status duet__resolve_schedule(const duet_request *r, const duet_model_config *config, duet_resolved *out,
                                   duet_error *err) {
    duet_schedule_spec spec;
    duet_schedule s = {0};
    duet_status st;
    TRY(st, done, choose(r, config, &spec, out, err));
    TRY(st, done,
        duet_schedule_build(&spec, &s, err)); /* refuses shifts that make neighbouring sigmas equal */
    memcpy(out->sigmas, s.sigma_video, (size_t)s.points * sizeof(float));
    memcpy(out->audio_sigmas, s.sigma_audio, (size_t)s.points * sizeof(float));
    out->points = s.points;
    out->evaluations = s.points - 1;
    out->flow_shift = r->sigmas ? 0.0 : spec.video_shift;
    out->audio_flow_shift = r->sigmas ? 0.0 : spec.audio_shift;
done:
    duet_schedule_free(&s);
    return st;
}
