/* engine.c - the order of stages, and nothing else. See engine.h for the promises kept here.
 *
 *     load       open the networks' handles, read injected noise
 *     condition  prompt ids -> text embeddings; the encoder goes
 *     pack       rows, positions, tags
 *     denoise    per output: noise -> latents -> file; the transformer goes
 *     deliver    per output: latents -> sound and frames -> clip; the latents file goes
 */
#include "engine/engine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/condition.h"
#include "engine/deliver.h"
#include "engine/denoise.h"
#include "engine/init_noise.h"
#include "engine/noise.h"
#include "engine/residency.h"

typedef struct run {
    const duet_run_args *a;
    const duet_model_config *config;
    duet_run_result *result;
    int32_t output; /* the one events speak of */
    duet_progress progress;
    duet_stream *stream;
    duet_dump *dump[DUET_MAX_OUTPUTS];
    float *video_noise, *audio_noise; /* noise in, final rows out */
    float *text;                      /* device */
    duet_packed packed;
    duet_schedule schedule;
    duet_dit *dit;
    duet_residency *residency; /* of the transformer */
    duet_denoiser *denoiser;
    duet_latents latents[DUET_MAX_OUTPUTS];
    ino_t latents_file[DUET_MAX_OUTPUTS]; /* which file we wrote: another run may use the same name */
} run;

static ino_t file_at(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

void duet_run_result_free(duet_run_result *result) {
    for (int k = 0; k < DUET_MAX_OUTPUTS; k++) {
        duet_free(result->output[k].path);
        duet_free(result->output[k].latents_path);
        result->output[k] = (duet_run_output){0};
    }
}

static void report(void *ctx, duet_stage stage, int64_t done, int64_t total) {
    run *r = ctx;
    const duet_run_events *e = r->a->events;
    if (e && e->progress) e->progress(e->ctx, r->output, stage, done, total);
}

static int64_t video_width(const run *r) {
    const duet_dit_config *d = &r->config->dit;
    return (int64_t)d->video_channels * d->patch_h * d->patch_w;
}

/* ---- load ------------------------------------------------------------------------------------------------ */

static duet_status name_outputs(run *r, duet_error *err) {
    for (int32_t k = 0; k < r->a->resolved->num_outputs; k++) {
        r->result->output[k].path = duet_output_name(r->a->output, k, r->a->resolved->num_outputs);
        if (!r->result->output[k].path) return duet_fail(err, DUET_E_MEMORY, "load: out of memory");
    }
    return DUET_OK;
}

static duet_status open_dumps(run *r, duet_error *err) {
    if (!r->a->dump_dir) return DUET_OK;
    int32_t n = r->a->resolved->num_outputs;
    duet_dump_depths depths = {r->config->dit.layers, r->config->text.tap_layer, r->config->vvae.vit_layers};
    for (int32_t k = 0; k < n; k++) {
        char dir[4096];
        int used = n == 1 ? snprintf(dir, sizeof dir, "%s", r->a->dump_dir)
                          : snprintf(dir, sizeof dir, "%s/output_%d", r->a->dump_dir, k);
        if (used < 0 || (size_t)used >= sizeof dir)
            return duet_fail(err, DUET_E_IO, "dump: the folder's name is too long");
        duet_status st = duet_dump_open(dir, &depths, &r->dump[k], err);
        if (st != DUET_OK) return st;
    }
    return DUET_OK;
}

static duet_status alloc_rows(run *r, duet_error *err) {
    const duet_plan *p = r->a->plan;
    size_t video_bytes = (size_t)(p->video_rows * video_width(r)) * sizeof(float);
    size_t audio_bytes = (size_t)p->audio_rows * (size_t)r->config->dit.audio_channels * sizeof(float);
    r->video_noise = duet_alloc(video_bytes, DUET_MEM_ENGINE);
    r->audio_noise = duet_alloc(audio_bytes, DUET_MEM_ENGINE);
    if (!r->video_noise || !r->audio_noise)
        return duet_fail(err, DUET_E_MEMORY, "load: out of memory for latent rows");
    return DUET_OK;
}

static duet_status draw_noise(run *r, int32_t output, duet_error *err) {
    const duet_plan *p = r->a->plan;
    const duet_dit_config *d = &r->config->dit;
    if (r->a->init_noise)
        return duet_init_noise_read(r->a->init_noise, p->video_rows, video_width(r), p->audio_rows,
                                    d->audio_channels, r->video_noise, r->audio_noise, err);
    bool diffusers = strcmp(r->a->resolved->noise, "diffusers") == 0;
    return duet_noise_draw(&(duet_noise_args){.seed = (uint64_t)r->a->resolved->seed + (uint64_t)output,
                                              .stream = diffusers ? DUET_NOISE_DIFFUSERS : DUET_NOISE_SGLANG,
                                              .channels = d->video_channels,
                                              .latent_h = p->latent_h,
                                              .latent_w = p->latent_w,
                                              .patch_h = d->patch_h,
                                              .patch_w = d->patch_w,
                                              .audio_channels = d->audio_channels,
                                              .video_latents = p->video_latents,
                                              .audio_latents = p->audio_latents,
                                              .video_rows = r->video_noise,
                                              .audio_rows = r->audio_noise},
                           err);
}

static duet_status load(run *r, duet_error *err) {
    duet_status st;
    TRY(st, done, duet_progress_step(&r->progress, DUET_STAGE_LOAD, 0, 1, err));
    TRY(st, done, name_outputs(r, err));
    TRY(st, done, open_dumps(r, err));
    TRY(st, done, alloc_rows(r, err));
    if (r->a->init_noise)
        TRY(st, done, draw_noise(r, 0, err)); /* a bad file fails here, before any weight is touched */
    TRY(st, done, duet_stream_open(r->a->device, 0, &r->stream, err));
    TRY(st, done, duet_progress_step(&r->progress, DUET_STAGE_LOAD, 1, 1, err));
done:
    return st;
}

/* ---- condition and pack ---------------------------------------------------------------------------------- */

static duet_status condition(run *r, duet_error *err) {
    duet_tap *tap = duet_dump_tap(r->dump[0]);
    duet_status st = duet_condition_text(r->a->model, r->a->device, r->stream, r->a->prompt_ids,
                                         r->a->n_prompt_ids, &r->text, tap, &r->progress, err);
    return st == DUET_OK ? duet_dump_flush(r->dump[0], r->stream, "condition", err) : st;
}

static duet_status pack(run *r, duet_error *err) {
    const duet_plan *p = r->a->plan;
    const duet_dit_config *d = &r->config->dit;
    return duet_pack_rows(&(duet_pack_spec){.text_rows = r->a->n_prompt_ids,
                                            .video_latents = p->video_latents,
                                            .audio_latents = p->audio_latents,
                                            .latent_h = p->latent_h,
                                            .latent_w = p->latent_w,
                                            .patch_h = d->patch_h,
                                            .patch_w = d->patch_w},
                          &r->packed, err);
}

/* ---- denoise --------------------------------------------------------------------------------------------- */

static duet_status copy_schedule(run *r, duet_error *err) {
    const duet_resolved *q = r->a->resolved;
    size_t bytes = (size_t)q->points * sizeof(float);
    r->schedule.points = q->points;
    r->schedule.sigma_video = duet_alloc(bytes, DUET_MEM_ENGINE);
    r->schedule.sigma_audio = duet_alloc(bytes, DUET_MEM_ENGINE);
    if (!r->schedule.sigma_video || !r->schedule.sigma_audio)
        return duet_fail(err, DUET_E_MEMORY, "denoise: out of memory");
    memcpy(r->schedule.sigma_video, q->sigmas, bytes);
    memcpy(r->schedule.sigma_audio, q->audio_sigmas, bytes);
    return DUET_OK;
}

static duet_status open_denoiser(run *r, duet_error *err) {
    duet_status st;
    TRY(st, done, copy_schedule(r, err));
    TRY(st, done, duet_dit_open(r->a->model, r->a->device, &r->dit, err));
    TRY(st, done, duet_residency_open(r->a->device, &r->residency, err));
    TRY(st, done,
        duet_denoiser_open(&(duet_denoise_setup){.dit = r->dit,
                                                 .residency = r->residency,
                                                 .stream = r->stream,
                                                 .packed = &r->packed,
                                                 .schedule = &r->schedule,
                                                 .text = r->text,
                                                 .tap = duet_dump_tap(r->dump[0]),
                                                 .progress = &r->progress},
                           &r->denoiser, err));
    TRY(st, done, duet_stream_sync(r->stream, err));
    duet_device_free(r->a->device, r->text);
    r->text = NULL;
done:
    return st;
}

static void close_denoiser(run *r) {
    duet_denoiser_close(&r->denoiser);
    duet_residency_close(&r->residency);
    duet_dit_close(&r->dit);
}

static duet_status rows_to_latents(run *r, int32_t output, duet_error *err) {
    const duet_plan *p = r->a->plan;
    const duet_dit_config *d = &r->config->dit;
    duet_latents *l = &r->latents[output];
    *l = (duet_latents){.video_channels = d->video_channels,
                        .latent_h = p->latent_h,
                        .latent_w = p->latent_w,
                        .audio_channels = d->audio_channels,
                        .video_latents = p->video_latents,
                        .audio_latents = p->audio_latents};
    memcpy(l->hash_model, r->a->hashes->model, sizeof l->hash_model);
    memcpy(l->hash_vvae, r->a->hashes->component[DUET_COMPONENT_VVAE], sizeof l->hash_vvae);
    memcpy(l->hash_avae, r->a->hashes->component[DUET_COMPONENT_AVAE], sizeof l->hash_avae);
    duet_resolved alone = *r->a->resolved; /* the file holds one clip: its own seed, and one output */
    alone.seed += output;
    alone.num_outputs = 1;
    l->resolved_json = duet_resolved_json(&alone, 0);
    if (!l->resolved_json) return duet_fail(err, DUET_E_MEMORY, "denoise: out of memory");
    duet_status st = duet_latents_alloc(l, err);
    if (st != DUET_OK) return st;
    duet_patch_shape shape = {d->video_channels, p->latent_h, p->latent_w,
                              d->patch_h,        d->patch_w,  p->video_latents};
    duet_unpatchify(&shape, r->video_noise, l->video);
    duet_audio_rows_to_latents(p->audio_latents, d->audio_channels, r->audio_noise, l->audio);
    return DUET_OK;
}

/* The folder of a folder output must exist before its latents can stand in it. */
static duet_status make_output_folder(const char *path, duet_error *err) {
    char *copy = duet_strdup(path);
    if (!copy) return duet_fail(err, DUET_E_MEMORY, "denoise: out of memory");
    duet_status st = DUET_OK;
    for (char *at = strchr(copy + 1, '/'); at && st == DUET_OK; at = strchr(at + 1, '/')) {
        *at = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            st = duet_fail(err, DUET_E_IO, "%s: cannot create the folder: %s", copy, strerror(errno));
        *at = '/';
    }
    duet_free(copy);
    return st;
}

static duet_status keep_latents(run *r, int32_t output, duet_error *err) {
    duet_run_output *o = &r->result->output[output];
    duet_status st = duet_output_is_folder(o->path) ? make_output_folder(o->path, err) : DUET_OK;
    if (st != DUET_OK) return st;
    char *path = duet_latents_name(o->path);
    if (!path) return duet_fail(err, DUET_E_MEMORY, "denoise: out of memory");
    st = duet_latents_write(&r->latents[output], path, err);
    if (st == DUET_OK) {
        o->latents_path = path;
        r->latents_file[output] = file_at(path);
    } else {
        duet_free(path);
    }
    return st;
}

static duet_status denoise_output(run *r, int32_t output, duet_error *err) {
    duet_dump *dump = r->dump[output];
    duet_status st;
    r->output = output;
    if (!r->a->init_noise || output > 0) TRY(st, done, draw_noise(r, output, err));
    TRY(st, done,
        duet_denoise_tap_inputs(&r->config->dit, &r->packed, &r->schedule, r->video_noise, r->audio_noise,
                                duet_dump_tap(dump), err));
    TRY(st, done,
        duet_denoiser_run(r->denoiser,
                          &(duet_denoise_run){.video_noise = r->video_noise,
                                              .audio_noise = r->audio_noise,
                                              .video_rows = r->video_noise,
                                              .audio_rows = r->audio_noise,
                                              .tap = duet_dump_tap(dump)},
                          err));
    TRY(st, done, rows_to_latents(r, output, err));
    TRY(st, done, keep_latents(r, output, err));
    TRY(st, done, duet_dump_flush(dump, r->stream, "pack", err));
    TRY(st, done, duet_dump_flush(dump, r->stream, "denoise", err));
done:
    return st;
}

static duet_status denoise(run *r, duet_error *err) {
    duet_status st = open_denoiser(r, err);
    for (int32_t k = 0; st == DUET_OK && k < r->a->resolved->num_outputs; k++) st = denoise_output(r, k, err);
    if (st != DUET_OK && r->dump[r->output]) { /* what was heard before the fault helps most */
        duet_dump_flush(r->dump[r->output], NULL, "pack", NULL);
    }
    close_denoiser(r);
    return st;
}

/* ---- deliver --------------------------------------------------------------------------------------------- */

/* Latents that another run of the same name wrote over ours are that run's to remove. */
static void settle(run *r, int32_t output) {
    duet_run_output *o = &r->result->output[output];
    const duet_run_events *events = r->a->events;
    o->finished = true;
    if (!r->a->keep_latents && o->latents_path) {
        if (file_at(o->latents_path) == r->latents_file[output]) unlink(o->latents_path);
        duet_free(o->latents_path);
        o->latents_path = NULL;
    }
    if (events && events->finished) events->finished(events->ctx, output, o->path);
}

/* After a failure: latents that another run of the same name removed are written again; where its own stand now,
 * nothing of ours is kept, and nothing is said to be. */
static void keep_after_failure(run *r, int32_t output) {
    duet_run_output *o = &r->result->output[output];
    if (!o->latents_path || file_at(o->latents_path) == r->latents_file[output]) return;
    if (file_at(o->latents_path) == 0 &&
        duet_latents_write(&r->latents[output], o->latents_path, NULL) == DUET_OK)
        return;
    duet_free(o->latents_path);
    o->latents_path = NULL;
}

static duet_status deliver(run *r, duet_error *err) {
    duet_decoders decoders = {0};
    duet_status st = duet_decoders_open(r->a->model, r->a->device, r->stream, &decoders, err);
    for (int32_t k = 0; st == DUET_OK && k < r->a->resolved->num_outputs; k++) {
        r->output = k;
        st = duet_deliver(&(duet_deliver_args){.decoders = &decoders,
                                               .latents = &r->latents[k],
                                               .path = r->result->output[k].path,
                                               .output = k,
                                               .sinks = r->a->sinks,
                                               .progress = &r->progress,
                                               .dump = r->dump[k],
                                               .stage_seconds = r->result->stage_seconds},
                          err);
        if (st == DUET_OK)
            settle(r, k);
        else
            keep_after_failure(r, k);
        duet_latents_free(&r->latents[k]);
    }
    duet_decoders_close(&decoders);
    return st;
}

/* ---- the run --------------------------------------------------------------------------------------------- */

static void close_run(run *r) {
    close_denoiser(r);
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
static duet_status timed(run *r, duet_stage stage, duet_status (*work)(run *, duet_error *),
                         duet_error *err) {
    double start = duet_clock_s();
    duet_status st = work(r, err);
    r->result->stage_seconds[stage] += duet_clock_s() - start;
    return st;
}

duet_status duet_run(const duet_run_args *args, duet_run_result *result, duet_error *err) {
    run r = {.a = args, .config = duet_model_config_get(args->model), .result = result};
    r.progress =
        (duet_progress){.report = report, .ctx = &r, .cancel = args->events ? args->events->cancel : NULL};
    duet_status st;
    TRY(st, done, timed(&r, DUET_STAGE_LOAD, load, err));
    TRY(st, done, timed(&r, DUET_STAGE_CONDITION, condition, err));
    TRY(st, done, pack(&r, err));
    TRY(st, done, timed(&r, DUET_STAGE_DENOISE, denoise, err));
    TRY(st, done, deliver(&r, err)); /* books the time of its own stages */
done:
    close_run(&r);
    return st;
}

/* ---- decode alone ---------------------------------------------------------------------------------------- */

static duet_status redecode(const duet_redecode_args *a, run *r, const duet_latents *latents,
                            duet_error *err) {
    duet_dump_depths depths = {r->config->dit.layers, r->config->text.tap_layer, r->config->vvae.vit_layers};
    duet_decoders decoders = {0};
    duet_status st;
    if (a->dump_dir) TRY(st, done, duet_dump_open(a->dump_dir, &depths, &r->dump[0], err));
    TRY(st, done, duet_stream_open(a->device, 0, &r->stream, err));
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
    run r = {.a = &shell, .config = duet_model_config_get(a->model), .result = result};
    r.progress = (duet_progress){.report = report, .ctx = &r, .cancel = a->events ? a->events->cancel : NULL};
    result->output[0].path = duet_strdup(a->output);
    if (!result->output[0].path) return duet_fail(err, DUET_E_MEMORY, "decode: out of memory");
    duet_status st = redecode(a, &r, a->latents, err);
    close_run(&r);
    return st;
}
