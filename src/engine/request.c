/* request.c - the order in which a request is checked and resolved; the rules themselves stand in
 * request_*.c.
 *
 *     check:    encoding -> required -> task -> duration -> canvas -> schedule -> outputs -> words
 *     resolve:  task served -> prompt against the vocabulary -> duration -> canvas -> schedule -> outputs
 *
 * 1. The first broken rule is the one reported, so the order is part of the interface.
 * 2. Nothing is changed silently (promise P2): whatever differs from what was written stands in the resolved
 *    request, and what somebody may not expect is a warning there.
 * 3. Pure but for the random seed. Not here: files (api), tokens (the caller brings them). */
#include "engine/request_int.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "nn/unicode.h"

void duet_request_defaults(duet_request *request, size_t struct_bytes) {
    duet_request d = {0};
    d.prompt_bytes = -1;
    d.seconds = DUET_UNSET_NUMBER;
    d.num_frames = d.width = d.height = d.short_edge = DUET_UNSET;
    d.num_inference_steps = d.seed = d.num_outputs_per_prompt = d.output_compression = DUET_UNSET;
    d.flow_shift = d.audio_flow_shift = DUET_UNSET_NUMBER;
    memset(request, 0, struct_bytes);
    memcpy(request, &d, struct_bytes < sizeof d ? struct_bytes : sizeof d);
    if (struct_bytes >= sizeof request->struct_bytes) request->struct_bytes = struct_bytes;
}

int64_t duet_request_prompt_bytes(const duet_request *r) {
    if (!r->prompt) return 0;
    return r->prompt_bytes < 0 ? (int64_t)strlen(r->prompt) : r->prompt_bytes;
}

/* This is the first version of the struct: any other size belongs to a caller that we cannot read. */
static duet_status check_stamp(const duet_request *r, duet_error *err) {
    if (!r || r->struct_bytes != sizeof *r)
        return duet_fail(err, DUET_E_USAGE,
                         "duet_request: not filled by duet_request_defaults, or of another version");
    return DUET_OK;
}

duet_status duet_request_check(const duet_request *r, duet_error *err) {
    duet_status st;
    TRY(st, fail, check_stamp(r, err));
    TRY(st, fail, duet__check_prompt(r, err));
    TRY(st, fail, duet__check_task(r, err));
    TRY(st, fail, duet__check_duration(r, err));
    TRY(st, fail, duet__check_canvas(r, err));
    TRY(st, fail, duet__check_schedule(r, err));
    TRY(st, fail, duet__check_outputs(r, err));
    TRY(st, fail, duet__check_words(r, err));
fail:
    return st;
}

/* ---- task
 * ------------------------------------------------------------------------------------------------- */

static const char *const TASKS[] = {"t2va", "fl2va", "ref2va"};

static bool equal_folded(const char *a, const char *b) {
    for (; *a && *b; a++, b++) {
        char low = *a >= 'A' && *a <= 'Z' ? (char)(*a + 32) : *a;
        if (low != *b) return false;
    }
    return *a == *b;
}

const char *duet_task_find(const char *name) {
    for (size_t i = 0; i < sizeof TASKS / sizeof TASKS[0]; i++) {
        if (equal_folded(name, TASKS[i])) return TASKS[i];
    }
    return NULL;
}

static const char *task_of(const duet_request *r) {
    return r->task ? duet_task_find(r->task) : TASKS[0];
}

duet_status duet__check_task(const duet_request *r, duet_error *err) {
    if (task_of(r)) return DUET_OK;
    return duet_refuse(err, "task", "invalid_value", r->task, "t2va", "must be t2va, fl2va or ref2va");
}

static duet_status check_served(const char *task, const duet_request_model *m, duet_error *err) {
    bool served = !strcmp(task, "t2va")    ? m->serves_t2va
                  : !strcmp(task, "fl2va") ? m->serves_fl2va
                                           : m->serves_ref2va;
    const char *other = m->serves_t2va     ? "t2va"
                        : m->serves_fl2va  ? "fl2va"
                        : m->serves_ref2va ? "ref2va"
                                           : NULL;
    if (!served)
        return duet_refuse(err, "task", "task_not_served", task, other, "is not served by this model");
    if (strcmp(task, "t2va"))
        return duet_refuse(err, "task", "unsupported_parameter", task, "t2va",
                           "needs conditions, which this version cannot take");
    return DUET_OK;
}

/* ---- the prompt against the model's vocabulary
 * --------------------------------------------------------------- */

static duet_status check_tokens(const duet_request_model *m, duet_error *err) {
    char value[96], nearest[96];
    if (m->vision_token)
        return duet_refuse(err, "prompt", "invalid_value", m->vision_token, NULL,
                           "must not contain a vision token of the model");
    if (m->prompt_tokens > m->config->text.max_positions) {
        snprintf(value, sizeof value, "%lld tokens", (long long)m->prompt_tokens);
        snprintf(nearest, sizeof nearest, "%d tokens", m->config->text.max_positions);
        return duet_refuse(err, "prompt", "string_above_max_length", value, nearest,
                           "is longer than the text encoder's positions");
    }
    if (m->prompt_tokens < 1)
        return duet_refuse(err, "prompt", "missing_required_parameter", NULL, NULL, "has no tokens");
    return DUET_OK;
}

/* ---- resolve
 * ------------------------------------------------------------------------------------------------- */

void duet__warn(duet_resolved *out, const char *fmt, ...) {
    if (out->n_warnings == DUET_MAX_WARNINGS) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(out->warnings[out->n_warnings++], DUET_WARNING_BYTES, fmt, ap);
    va_end(ap);
}

const char *duet__number_text(double value, char *buf, size_t buf_bytes) {
    snprintf(buf, buf_bytes, "%.15g", value);
    return buf;
}

/* Distinct timesteps t = 1 - sigma over both modalities: the rows of the AdaLN tables. */
static int64_t count_timesteps(const duet_resolved *out) {
    float seen[2 * DUET_MAX_POINTS];
    int64_t n = 0;
    for (int64_t i = 0; i < 2 * out->evaluations; i++) {
        float t = 1.0f - (i % 2 ? out->audio_sigmas : out->sigmas)[i / 2];
        int64_t j = 0;
        while (j < n && seen[j] != t) j++;
        if (j == n) seen[n++] = t;
    }
    return n;
}

duet_status duet_request_resolve(const duet_request *r, const duet_request_model *m, duet_resolved *out,
                                 duet_plan_args *args, duet_error *err) {
    *out = (duet_resolved){.task = task_of(r), .noise = r->noise ? r->noise : "sglang", .dtype = "f32"};
    duet_status st;
    TRY(st, fail, check_served(out->task, m, err));
    TRY(st, fail, check_tokens(m, err));
    duet__resolve_duration(r, out);
    TRY(st, fail, duet__resolve_canvas(r, m->config, out, err));
    TRY(st, fail, duet__resolve_schedule(r, m->config, out, err));
    TRY(st, fail, duet__resolve_outputs(r, out, err));
    out->noise = !strcmp(out->noise, "diffusers") ? "diffusers" : "sglang";
    out->prompt_tokens = m->prompt_tokens;
    out->text_rows_assumed = !r->prompt;
    out->prompt_characters = r->prompt ? duet_utf8_count(r->prompt, duet_request_prompt_bytes(r), NULL) : 0;
    *args = (duet_plan_args){.width = out->width,
                             .height = out->height,
                             .frames = out->num_frames,
                             .text_rows = m->prompt_tokens,
                             .points = out->points,
                             .timesteps = count_timesteps(out),
                             .outputs = out->num_outputs};
fail:
    return st;
}
