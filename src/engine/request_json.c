/* request_json.c - the resolved request as JSON: what --json prints and what latents files carry.
 *
 * Keys are the HTTP field names where there is one. Sigmas are fp32 printed with nine digits, so that
 * reading them back gives the same bits. */
#include "engine/request.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static json_t *sigma_list(const float *v, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) json_array_append_new(list, json_real((double)v[i]));
    return list;
}

static json_t *warning_list(const duet_resolved *r) {
    json_t *list = json_array();
    for (int32_t i = 0; i < r->n_warnings; i++) json_array_append_new(list, json_string(r->warnings[i]));
    return list;
}

static json_t *text_or_null(const char *text) {
    return text && *text ? json_string(text) : json_null();
}

static void add_canvas(json_t *o, const duet_resolved *r) {
    json_object_set_new(o, "task", json_string(r->task));
    json_object_set_new(o, "width", json_integer(r->width));
    json_object_set_new(o, "height", json_integer(r->height));
    json_object_set_new(o, "aspect_ratio", text_or_null(r->aspect_ratio));
    json_object_set_new(o, "short_edge", r->short_edge ? json_integer(r->short_edge) : json_null());
    json_object_set_new(o, "num_frames", json_integer(r->num_frames));
    json_object_set_new(o, "seconds", json_real(r->seconds));
    json_object_set_new(o, "fps", json_integer(24));
}

static void add_schedule(json_t *o, const duet_resolved *r) {
    bool shifted = r->flow_shift > 0;
    json_object_set_new(o, "schedule", json_string(r->schedule));
    json_object_set_new(o, "num_inference_steps", json_integer(r->points));
    json_object_set_new(o, "evaluations", json_integer(r->evaluations));
    json_object_set_new(o, "flow_shift", shifted ? json_real(r->flow_shift) : json_null());
    json_object_set_new(o, "audio_flow_shift", shifted ? json_real(r->audio_flow_shift) : json_null());
    json_object_set_new(o, "sigmas", sigma_list(r->sigmas, r->points));
    json_object_set_new(o, "audio_sigmas", sigma_list(r->audio_sigmas, r->points));
}

static void add_rest(json_t *o, const duet_resolved *r) {
    json_object_set_new(o, "seed", json_integer(r->seed));
    json_object_set_new(o, "num_outputs_per_prompt", json_integer(r->num_outputs));
    json_object_set_new(o, "noise", json_string(r->noise));
    json_object_set_new(o, "dtype", json_string(r->dtype));
    json_object_set_new(o, "quality", json_string(r->quality));
    json_object_set_new(o, "output_compression", json_integer(r->output_compression));
    json_object_set_new(o, "prompt_characters", json_integer(r->prompt_characters));
    json_object_set_new(o, "prompt_tokens", json_integer(r->prompt_tokens));
    json_object_set_new(o, "prompt_tokens_assumed", json_boolean(r->text_rows_assumed));
    json_object_set_new(o, "prompt_sha256", text_or_null(r->prompt_sha256));
    json_object_set_new(o, "warnings", warning_list(r));
}

char *duet_resolved_json(const duet_resolved *resolved, int indent) {
    json_t *o = json_object();
    if (!o) return NULL;
    add_canvas(o, resolved);
    add_schedule(o, resolved);
    add_rest(o, resolved);
    char *text =
        json_dumps(o, (indent > 0 ? JSON_INDENT((size_t)indent) : JSON_COMPACT) | JSON_REAL_PRECISION(9));
    json_decref(o);
    char *copy = text ? duet_strdup(text) : NULL;
    free(text);
    return copy;
}

void duet_string_free(char *text) {
    duet_free(text);
}
