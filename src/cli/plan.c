/* plan.c - duet plan: what a generate would make and cost, without reading weights. Written against duet.h
 * alone.
 *
 * Takes the options of generate, so that the same line asks first and makes afterwards. Without a prompt,
 * 256 text rows are assumed, and said to be. The keys of the JSON are documented in docs/cli.md. */
#include "cli/cli.h"

#include <stdio.h>

#include "base/alloc.h"

enum { ASSUMED_TEXT_ROWS = 256 };

/* ---- JSON
 * ------------------------------------------------------------------------------------------------------ */

static json_t *integers(const int64_t *v, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, json_integer(v[i]));
    return list;
}

static void add_segment(json_t *list, const char *kind, int64_t *first, int64_t rows) {
    json_t *o = json_object();
    json_object_set_new(o, "kind", json_string(kind));
    json_object_set_new(o, "first_row", json_integer(*first));
    json_object_set_new(o, "rows", json_integer(rows));
    json_array_append_new(list, o);
    *first += rows;
}

static json_t *segments_json(const duet_plan_info *p) {
    json_t *list = json_array();
    int64_t first = 0;
    add_segment(list, "text", &first, p->text_rows);
    add_segment(list, "audio", &first, p->audio_rows);
    add_segment(list, "video", &first, p->video_rows);
    return list;
}

static json_t *chunks_json(const duet_plan_info *p) {
    json_t *o = json_object();
    json_object_set_new(o, "time_chunks", json_integer(p->chunks));
    json_object_set_new(o, "tile_rows", json_integer(p->tiles_y));
    json_object_set_new(o, "tile_columns", json_integer(p->tiles_x));
    json_object_set_new(o, "tile_height", json_integer(p->tile_height));
    json_object_set_new(o, "tile_width", json_integer(p->tile_width));
    json_object_set_new(o, "calls", json_integer(p->chunks * p->tiles_y * p->tiles_x));
    return o;
}

static json_t *stage_json(const duet_stage_cost *s) {
    json_t *o = json_object();
    json_object_set_new(o, "weights_mapped_bytes", json_integer(s->weights_mapped_bytes));
    json_object_set_new(o, "weights_copied_bytes", json_integer(s->weights_copied_bytes));
    json_object_set_new(o, "activation_bytes", json_integer(s->activation_bytes));
    json_object_set_new(o, "scratch_bytes", json_integer(s->scratch_bytes));
    json_object_set_new(o, "host_bytes", json_integer(s->host_bytes));
    json_object_set_new(o, "flops", json_real(s->flops));
    return o;
}

json_t *plan_json(const duet_plan_info *p) {
    json_t *o = json_object(), *stages = json_object();
    json_object_set_new(o, "num_frames", json_integer(p->frames));
    json_object_set_new(o, "width", json_integer(p->width));
    json_object_set_new(o, "height", json_integer(p->height));
    json_object_set_new(
        o, "video_latents",
        integers((const int64_t[]){p->video_channels, p->video_latents, p->latent_height, p->latent_width},
                 4));
    json_object_set_new(o, "audio_latents",
                        integers((const int64_t[]){2, p->audio_channels, p->audio_latents}, 3));
    json_object_set_new(o, "audio_samples", json_integer(p->audio_samples));
    json_object_set_new(o, "rows", json_integer(p->rows));
    json_object_set_new(o, "segments", segments_json(p));
    json_object_set_new(o, "rows_per_latent_frame", json_integer((int64_t)p->patch_rows * p->patch_cols));
    json_object_set_new(o, "points", json_integer(p->points));
    json_object_set_new(o, "evaluations", json_integer(p->evaluations));
    json_object_set_new(o, "decode", chunks_json(p));
    for (int s = 0; s < DUET_N_STAGES; s++)
        json_object_set_new(stages, duet_stage_name((duet_stage)s), stage_json(&p->stage[s]));
    json_object_set_new(o, "stages", stages);
    json_object_set_new(o, "base_bytes", json_integer(p->base_bytes));
    json_object_set_new(o, "media_bytes", json_integer(p->media_bytes));
    json_object_set_new(o, "peak_bytes", json_integer(p->peak_bytes));
    json_object_set_new(o, "flops", json_real(p->flops));
    return o;
}

/* ---- text
 * ------------------------------------------------------------------------------------------------------ */

static void print_stage(duet_stage stage, const duet_stage_cost *s) {
    char cell[6][32];
    const int64_t bytes[] = {s->weights_mapped_bytes, s->weights_copied_bytes, s->activation_bytes,
                             s->scratch_bytes, s->host_bytes};
    int64_t sum = 0;
    printf("  %-13s", duet_stage_name(stage));
    for (int i = 0; i < 5; i++) {
        printf(" %11s", bytes[i] ? bytes_text(bytes[i], cell[i], sizeof cell[i]) : "-");
        sum += bytes[i];
    }
    printf(" %11s %12s\n", bytes_text(sum, cell[5], sizeof cell[5]),
           s->flops > 0 ? flops_text(s->flops, cell[0], sizeof cell[0]) : "-");
}

static void print_plan(const duet_resolved *r, const duet_plan_info *p) {
    char a[32], b[32], c[32];
    printf("clip      %s, %dx%d, %lld frames at 24/s (%.3f s), %lld audio samples per channel, %d output%s "
           "from seed %lld\n",
           r->task, p->width, p->height, (long long)p->frames, r->seconds, (long long)p->audio_samples,
           r->num_outputs, r->num_outputs > 1 ? "s" : "", (long long)r->seed);
    printf("latents   video [%d, %lld, %d, %d], audio [2, %d, %lld]\n", p->video_channels,
           (long long)p->video_latents, p->latent_height, p->latent_width, p->audio_channels,
           (long long)p->audio_latents);
    printf("rows      text %lld%s + audio %lld + video %lld (%lld x %dx%d) = %lld\n", (long long)p->text_rows,
           r->text_rows_assumed ? " (assumed)" : "", (long long)p->audio_rows, (long long)p->video_rows,
           (long long)p->video_latents, p->patch_rows, p->patch_cols, (long long)p->rows);
    printf("schedule  %s, %lld points, %lld evaluations", r->schedule, (long long)p->points,
           (long long)p->evaluations);
    if (r->flow_shift > 0) printf(", shifts %.6g and %.6g", r->flow_shift, r->audio_flow_shift);
    printf("\ndecode    %lld chunks of %dx%d tiles of %dx%d pixels\n\n", (long long)p->chunks, p->tiles_y,
           p->tiles_x, p->tile_width, p->tile_height);
    printf("  %-13s %11s %11s %11s %11s %11s %11s %12s\n", "stage", "mapped", "copied", "activation",
           "scratch", "host", "sum", "work");
    for (int s = 0; s < DUET_N_STAGES; s++) print_stage((duet_stage)s, &p->stage[s]);
    printf("\npeak      %s = base %s + largest stage; encoder %s (in host)\n",
           bytes_text(p->peak_bytes, a, sizeof a), bytes_text(p->base_bytes, b, sizeof b),
           bytes_text(p->media_bytes, c, sizeof c));
    printf("work      %s per output\n", flops_text(p->flops, a, sizeof a));
}

/* ---- the command
 * ------------------------------------------------------------------------------------------------ */

static duet_status plan(const opt_set *set, char **prompt_file, duet_engine **engine, duet_resolved *resolved,
                        duet_plan_info *info, duet_error *err) {
    duet_request request;
    duet_engine_options options = engine_from_options(set);
    duet_status st;
    TRY(st, fail, need_option(set, OPT_model, err));
    TRY(st, fail, request_from_options(set, &request, prompt_file, err));
    if (!request.prompt) {
        const opt_value *rows = &set->value[OPT_text_rows];
        TRY(st, fail, opt_judge(set, OPT_text_rows, err));
        request.assumed_text_rows = rows->given ? rows->integer : ASSUMED_TEXT_ROWS;
    }
    TRY(st, fail, duet_request_check(&request, err));
    TRY(st, fail, duet_engine_open(&options, engine, err));
    TRY(st, fail, duet_resolve(*engine, &request, resolved, info, err));
fail:
    return st;
}

int cmd_plan(const opt_set *set) {
    static duet_resolved resolved; /* large, and this runs once */
    static duet_plan_info info;
    duet_engine *engine = NULL;
    duet_error err = {0};
    char *prompt_file = NULL;
    int code = EXIT_DONE;
    duet_status st = plan(set, &prompt_file, &engine, &resolved, &info, &err);
    if (st != DUET_OK) {
        code = report_failure(st, &err, PHASE_REQUEST, is_on(set, OPT_json), NULL);
    } else if (is_on(set, OPT_json)) {
        json_t *root = json_object();
        json_object_set_new(root, "duet_version", json_string(duet_version()));
        json_object_set_new(root, "request", parse_own_json(duet_resolved_json(&resolved, 0)));
        json_object_set_new(root, "plan", plan_json(&info));
        print_json(root);
    } else {
        if (!is_on(set, OPT_quiet)) print_warnings(&resolved);
        print_plan(&resolved, &info);
    }
    duet_engine_close(&engine);
    duet_free(prompt_file);
    return code;
}
