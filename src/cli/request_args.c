/* request_args.c - from options to duet.h's structs. Nothing is judged here but files that must be read. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { MAX_PROMPT_FILE_BYTES = 1 << 20 };

static const char *text_of(const opt_set *set, opt_id id) {
    return set->value[id].given ? set->value[id].text : NULL;
}

static int64_t int_of(const opt_set *set, opt_id id) {
    return set->value[id].given ? set->value[id].integer : DUET_UNSET;
}

static double number_of(const opt_set *set, opt_id id) {
    return set->value[id].given ? set->value[id].number : DUET_UNSET_NUMBER;
}

duet_status need_option(const opt_set *set, opt_id id, duet_error *err) {
    char field[64];
    if (set->value[id].given && *set->value[id].text) return DUET_OK;
    return duet_refuse(err, opt_field(&OPT_ROWS[id], field, sizeof field), "missing_required_parameter", NULL,
                       NULL, "is required");
}

/* ---- --prompt-file: verbatim less one final newline (LF or CRLF)
 * ----------------------------------------------- */

static duet_status refuse_file(const char *path, const char *why, duet_error *err) {
    return duet_refuse(err, "prompt_file", "invalid_value", path, NULL, "cannot be read: %s", why);
}

static duet_status read_prompt_file(const char *path, char **text, int64_t *bytes, duet_error *err) {
    bool standard = !strcmp(path, "-");
    FILE *f = standard ? stdin : fopen(path, "rb");
    if (!f) return refuse_file(path, strerror(errno), err);
    char *buf = duet_alloc(MAX_PROMPT_FILE_BYTES + 1, DUET_MEM_STRING);
    errno = 0;
    size_t n = buf ? fread(buf, 1, MAX_PROMPT_FILE_BYTES + 1, f) : 0;
    int why = ferror(f) ? errno : 0;
    if (!standard) fclose(f);
    duet_status st = DUET_OK;
    if (!buf)
        st = duet_fail(err, DUET_E_MEMORY, "out of memory");
    else if (why)
        st = refuse_file(path, strerror(why), err);
    else if (n > MAX_PROMPT_FILE_BYTES)
        st = duet_refuse(err, "prompt_file", "string_above_max_length", "more than 1 MiB", "7000 characters",
                         "must hold at most 7000 characters");
    if (st != DUET_OK) {
        duet_free(buf);
        return st;
    }
    if (n && buf[n - 1] == '\n') n -= n > 1 && buf[n - 2] == '\r' ? 2 : 1;
    *text = buf;
    *bytes = (int64_t)n;
    return DUET_OK;
}

/* ---- the structs
 * ------------------------------------------------------------------------------------------------ */

static void set_schedule(const opt_set *set, duet_request *r) {
    r->num_inference_steps = int_of(set, OPT_num_inference_steps);
    r->steps_unit = text_of(set, OPT_steps_unit);
    r->sigmas = set->value[OPT_sigmas].list;
    r->n_sigmas = set->value[OPT_sigmas].n_list;
    r->audio_sigmas = set->value[OPT_audio_sigmas].list;
    r->n_audio_sigmas = set->value[OPT_audio_sigmas].n_list;
    r->base_schedule = set->value[OPT_base_schedule].list;
    r->n_base_schedule = set->value[OPT_base_schedule].n_list;
    r->flow_shift = number_of(set, OPT_flow_shift);
    r->audio_flow_shift = number_of(set, OPT_audio_flow_shift);
}

static void set_output(const opt_set *set, duet_request *r) {
    r->output = text_of(set, OPT_output);
    r->output_quality = text_of(set, OPT_output_quality);
    r->output_compression = int_of(set, OPT_output_compression);
    r->overwrite = is_on(set, OPT_overwrite);
    r->keep_latents = is_on(set, OPT_keep_latents);
    r->dump_dir = text_of(set, OPT_dump);
}

duet_status request_from_options(const opt_set *set, duet_request *r, char **prompt_file, duet_error *err) {
    duet_request_defaults(r, sizeof *r);
    *prompt_file = NULL;
    r->prompt = text_of(set, OPT_prompt);
    r->task = text_of(set, OPT_task);
    r->seconds = number_of(set, OPT_seconds);
    r->num_frames = int_of(set, OPT_num_frames);
    r->any_length = is_on(set, OPT_any_length);
    r->width = int_of(set, OPT_width);
    r->height = int_of(set, OPT_height);
    r->size = text_of(set, OPT_size);
    r->short_edge = int_of(set, OPT_short_edge);
    r->aspect_ratio = text_of(set, OPT_aspect_ratio);
    set_schedule(set, r);
    r->seed = int_of(set, OPT_seed);
    r->num_outputs_per_prompt = int_of(set, OPT_num_outputs_per_prompt);
    r->noise = text_of(set, OPT_noise);
    r->init_noise = text_of(set, OPT_init_noise);
    r->dtype = text_of(set, OPT_dtype);
    r->quality = text_of(set, OPT_quality);
    set_output(set, r);
    if (!set->value[OPT_prompt_file].given) return DUET_OK;
    duet_status st = read_prompt_file(set->value[OPT_prompt_file].text, prompt_file, &r->prompt_bytes, err);
    r->prompt = *prompt_file;
    return st;
}

duet_engine_options engine_from_options(const opt_set *set) {
    duet_engine_options o;
    duet_engine_options_defaults(&o, sizeof o);
    o.model = text_of(set, OPT_model);
    o.layout = text_of(set, OPT_layout);
    o.task = text_of(set, OPT_task);
    o.backend = text_of(set, OPT_backend);
    o.cpu_level = text_of(set, OPT_cpu_level);
    o.threads = set->value[OPT_threads].given ? (int32_t)set->value[OPT_threads].integer : 0; /* 0: all */
    return o;
}
