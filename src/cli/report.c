/* report.c - one way to say that something failed, and numbers for people. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int exit_code_of(duet_status status, phase when) {
    switch (status) {
    case DUET_OK:
        return EXIT_DONE;
    case DUET_E_USAGE:
    case DUET_E_REQUEST:
        return EXIT_REQUEST;
    case DUET_E_MODEL:
        return EXIT_MODEL;
    case DUET_E_UNSUPPORTED:
        return when == PHASE_REQUEST ? EXIT_REQUEST : EXIT_RUN;
    case DUET_E_CANCELLED:
        return EXIT_INTERRUPTED;
    default:
        return EXIT_RUN;
    }
}

static const char *error_type(int code) {
    return code == EXIT_REQUEST ? "invalid_request_error" : "server_error";
}

static const char *error_code(const duet_error *err, int code) {
    if (code == EXIT_REQUEST) return err->code[0] ? err->code : "invalid_value";
    return code == EXIT_MODEL         ? "model_invalid"
           : code == EXIT_INTERRUPTED ? "cancelled"
                                      : "generation_failed";
}

json_t *path_json(const char *text) {
    if (!text) return json_null();
    json_t *s = json_string(text);
    if (s) return s;
    char *clean = strdup(text);
    if (!clean) return json_null();
    for (char *p = clean; *p; p++) {
        if ((unsigned char)*p >= 0x80) *p = '?';
    }
    s = json_string(clean);
    free(clean);
    return s;
}

duet_status check_json_name(const opt_set *set, opt_id id, duet_error *err) {
    const char *name = set->value[id].text;
    json_t *s = is_on(set, OPT_json) ? json_string(name) : json_null();
    bool whole = s != NULL;
    json_decref(s);
    if (whole) return DUET_OK;
    char nearest[96];
    bool fits = snprintf(nearest, sizeof nearest, "%s", name) < (int)sizeof nearest;
    for (char *p = nearest; *p; p++) {
        if ((unsigned char)*p >= 0x80) *p = '_';
    }
    return duet_refuse(err, "output", "invalid_value", name, fits ? nearest : NULL,
                       "must be UTF-8 with json, which can name no other file");
}

static json_t *kept_latents(const duet_result *result) {
    for (int32_t k = 0; result && k < result->num_outputs; k++) {
        if (!result->output[k].finished && result->output[k].latents_path)
            return path_json(result->output[k].latents_path);
    }
    return NULL;
}

static void print_json_error(const duet_error *err, int code, const duet_result *result) {
    char text[1024];
    json_t *e = json_object(), *root = json_object();
    json_object_set_new(e, "message", path_json(duet_error_text(err, text, sizeof text)));
    json_object_set_new(e, "type", json_string(error_type(code)));
    json_object_set_new(e, "param", err->param[0] ? path_json(err->param) : json_null());
    json_object_set_new(e, "code", json_string(error_code(err, code)));
    json_object_set_new(root, "error", e);
    json_t *latents = kept_latents(result);
    if (latents) json_object_set_new(root, "latents", latents);
    print_json(root);
}

int report_failure(duet_status status, const duet_error *err, phase when, bool json,
                   const duet_result *result) {
    char text[1024];
    int code = exit_code_of(status, when);
    if (code == EXIT_INTERRUPTED)
        fprintf(stderr, "interrupted: %s\n", duet_error_text(err, text, sizeof text));
    else
        fprintf(stderr, "error: %s\n", duet_error_text(err, text, sizeof text));
    for (int32_t k = 0; result && k < result->num_outputs; k++) {
        const duet_output *o = &result->output[k];
        if (o->finished) fprintf(stderr, "finished: %s\n", o->path);
    }
    for (int32_t k = 0; result && k < result->num_outputs; k++) {
        const duet_output *o = &result->output[k];
        if (!o->finished && o->latents_path) fprintf(stderr, LATENTS_KEPT "%s\n", o->latents_path);
    }
    if (json) print_json_error(err, code, result);
    return code;
}

void print_json(json_t *object) {
    json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    fputc('\n', stdout);
    json_decref(object);
}

json_t *parse_own_json(char *text) {
    json_t *o = text ? json_loads(text, 0, NULL) : NULL;
    duet_string_free(text);
    return o ? o : json_null();
}

/* ---- numbers for people
 * -------------------------------------------------------------------------------------- */

/* Value and unit, three digits or so. */
static const char *scaled(double value, double step, const char *const *units, int n, char *buf,
                          size_t buf_bytes) {
    int unit = 0;
    while (unit + 1 < n && value >= step) {
        value /= step;
        unit++;
    }
    snprintf(buf, buf_bytes, "%.*f %s", unit ? (value < 10 ? 2 : 1) : 0, value, units[unit]);
    return buf;
}

const char *bytes_text(int64_t bytes, char *buf, size_t buf_bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    return scaled((double)bytes, 1024, units, 5, buf, buf_bytes);
}

const char *flops_text(double flops, char *buf, size_t buf_bytes) {
    static const char *const units[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
    return scaled(flops, 1000, units, 7, buf, buf_bytes);
}

const char *seconds_text(double seconds, char *buf, size_t buf_bytes) {
    int64_t whole = (int64_t)(seconds + 0.5);
    if (seconds < 100)
        snprintf(buf, buf_bytes, seconds < 10 ? "%.2f s" : "%.1f s", seconds);
    else if (whole < 3600)
        snprintf(buf, buf_bytes, "%lld min %02lld s", (long long)whole / 60, (long long)whole % 60);
    else
        snprintf(buf, buf_bytes, "%lld h %02lld min", (long long)whole / 3600, (long long)whole / 60 % 60);
    return buf;
}
