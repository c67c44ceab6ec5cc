/* engine.c - the order of stages, and nothing else. See engine.h for the promises kept here.
 *
 *     load       open the networks' handles, read injected noise
 *     condition  prompt ids -> text embeddings; the encoder goes
 *     pack       rows, positions, tags
 *     denoise    per output: noise -> latents -> file; the transformer goes
 *     deliver    per output: latents -> sound and frames -> clip; the latents file goes
 */
#include "engine/run_int.h"

#include <sys/stat.h>

#include "base/alloc.h"
#include "base/clock.h"

void duet_run_result_free(duet_run_result *result) {
    for (int k = 0; k < DUET_MAX_OUTPUTS; k++) {
        duet_free(result->output[k].path);
        duet_free(result->output[k].latents_path);
        result->output[k] = (duet_run_output){0};
    }
}

static void report(void *ctx, duet_stage stage, int64_t done, int64_t total) {
    duet__run *r = ctx;
    const duet_run_events *e = r->a->events;
    if (e && e->progress) e->progress(e->ctx, r->output, stage, done, total);
}

ino_t duet__file_at(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

static void close_run(duet__run *r) {
    duet__run_close_denoiser(r);
    if (r->stream) duet_stream_sync(r->stream, NULL);
    duet_device_free(r->a->device, r->text);
    duet_stream_close(&r->stream);
    duet_packed_free(&r->packed);
    duet_schedule_free(&r->schedule);
    for (int k = 0; k < DUET_MAX_OUTPUTS; k++) {
        duet_dump_close(&r->dump[k]);
        duet_latents_free(&r->latents[k]);
    }
    duet_free(r->video_noise);
    duet_free(r->audio_noise);
}

/* Run one stage and book its time. */
static duet_status timed(duet__run *r, duet_stage stage, duet_status (*work)(duet__run *, duet_error *),
                         duet_error *err) {
    double start = duet_clock_s();
    duet_status st = work(r, err);
    r->result->stage_seconds[stage] += duet_clock_s() - start;
    return st;
}

duet_status duet_run(const duet_run_args *args, duet_run_result *result, duet_error *err) {
    duet__run r = {.a = args, .config = duet_model_config_get(args->model), .result = result};
    r.progress =
        (duet_progress){.report = report, .ctx = &r, .cancel = args->events ? args->events->cancel : NULL};
    duet_status st;
    TRY(st, done, timed(&r, DUET_STAGE_LOAD, duet__run_load, err));
    TRY(st, done, timed(&r, DUET_STAGE_CONDITION, duet__run_condition, err));
    TRY(st, done, duet__run_pack(&r, err));
    TRY(st, done, timed(&r, DUET_STAGE_DENOISE, duet__run_denoise, err));
    TRY(st, done, duet__run_deliver(&r, err)); /* books the time of its own stages */
done:
    close_run(&r);
    return st;
}

/* ---- decode alone ---------------------------------------------------------------------------------------- */

static duet_status redecode(const duet_redecode_args *a, duet__run *r, const duet_latents *latents,
                            duet_error *err) {
    duet_dump_depths depths = {r->config->dit.layers, r->config->text.tap_layer, r->config->vvae.vit_layers};
    duet_decoders decoders = {0};
    duet_status st;
    if (a->dump_dir) TRY(st, done, duet_dump_open(a->dump_dir, &depths, &r->dump[0], err));
    TRY(st, done, duet_stream_open(a->device, 0, &r->stream, err));
    duet_stream_watch(r->stream, r->progress.cancel);
    TRY(st, done, duet_decoders_open(a->model, a->device, r->stream, &decoders, err));
    TRY(st, done,
        duet_deliver(&(duet_deliver_args){.decoders = &decoders,
                                          .latents = latents,
                                          .path = a->output,
                                          .sinks = a->sinks,
                                          .progress = &r->progress,
                                          .dump = r->dump[0],
                                          .stage_seconds = r->result->stage_seconds},
                     err));
    r->result->output[0].finished = true;
    if (a->events && a->events->finished) a->events->finished(a->events->ctx, 0, a->output);
done:
    duet_decoders_close(&decoders);
    return st;
}

duet_status duet_redecode(const duet_redecode_args *a, duet_run_result *result, duet_error *err) {
    duet_run_args shell = {.device = a->device, .events = a->events};
    duet__run r = {.a = &shell, .config = duet_model_config_get(a->model), .result = result};
    r.progress = (duet_progress){.report = report, .ctx = &r, .cancel = a->events ? a->events->cancel : NULL};
    result->output[0].path = duet_strdup(a->output);
    if (!result->output[0].path) return duet_fail(err, DUET_E_MEMORY, "decode: out of memory");
    duet_status st = redecode(a, &r, a->latents, err);
    close_run(&r);
    return st;
}
