/* result.c - how a run ended, for people and as JSON; shared by generate and decode. */
#include "cli/cli.h"

#include <stdio.h>

static json_t *stages_json(const duet_result *r) {
    json_t *o = json_object();
    for (int s = 0; s < DUET_N_STAGES; s++)
        json_object_set_new(o, duet_stage_name((duet_stage)s), json_real(r->stage_seconds[s]));
    return o;
}

static json_t *outputs_json(const duet_result *r) {
    json_t *list = json_array();
    for (int32_t k = 0; k < r->num_outputs; k++) {
        const duet_output *o = &r->output[k];
        json_t *j = json_object();
        json_object_set_new(j, "path", path_json(o->path));
        json_object_set_new(j, "bytes", json_integer(o->bytes));
        json_object_set_new(j, "seed", json_integer(o->seed));
        json_object_set_new(j, "width", json_integer(o->width));
        json_object_set_new(j, "height", json_integer(o->height));
        json_object_set_new(j, "num_frames", json_integer(o->frames));
        json_object_set_new(j, "audio_samples", json_integer(o->audio_samples));
        json_object_set_new(j, "latents", path_json(o->latents_path));
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *result_json(const duet_result *r) {
    json_t *o = json_object();
    json_object_set_new(o, "duet_version", json_string(duet_version()));
    json_object_set_new(o, "model_hash", json_string(r->model_hash));
    json_object_set_new(o, "device", json_string(r->device_kind));
    json_object_set_new(o, "outputs", outputs_json(r));
    json_object_set_new(o, "seconds", json_real(r->seconds));
    json_object_set_new(o, "stage_seconds", stages_json(r));
    json_object_set_new(o, "peak_memory_bytes", json_integer(r->peak_resident_bytes));
    json_object_set_new(o, "device_peak_bytes", json_integer(r->device_peak_bytes));
    return o;
}

static void print_result(const duet_result *r, bool quiet) {
    char text[32], peak[32];
    for (int32_t k = 0; k < r->num_outputs; k++) printf("%s\n", r->output[k].path);
    if (quiet) return;
    fprintf(stderr, "done in %s, peak memory %s (", seconds_text(r->seconds, text, sizeof text),
            bytes_text(r->peak_resident_bytes, peak, sizeof peak));
    const char *before = "";
    for (int s = 0; s < DUET_N_STAGES; s++) {
        if (r->stage_seconds[s] <= 0) continue;
        fprintf(stderr, "%s%s %s", before, duet_stage_name((duet_stage)s),
                seconds_text(r->stage_seconds[s], text, sizeof text));
        before = ", ";
    }
    fputs(")\n", stderr);
}

static void print_result_json(const duet_result *r) {
    json_t *o = result_json(r);
    if (r->resolved.task) { /* a decode resolves nothing */
        json_object_set_new(o, "request", parse_own_json(duet_resolved_json(&r->resolved, 0)));
        json_object_set_new(o, "plan", plan_json(&r->plan));
    }
    print_json(o);
}

int report_result(const opt_set *set, duet_status st, const duet_error *err, const duet_result *result) {
    if (st != DUET_OK) return report_failure(st, err, PHASE_WORK, is_on(set, OPT_json), result);
    if (is_on(set, OPT_json))
        print_result_json(result);
    else
        print_result(result, is_on(set, OPT_quiet));
    fflush(stdout);
    for (int32_t k = 0; k < result->num_outputs; k++) { /* the last line, whatever else was said */
        if (result->output[k].latents_path)
            fprintf(stderr, "latents kept: %s\n", result->output[k].latents_path);
    }
    return EXIT_DONE;
}
