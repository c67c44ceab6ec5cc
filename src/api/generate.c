/* generate.c - duet_generate: check, resolve, run, report.
 *
 *     request_check -> output_check -> resolve -> reserve -> hash -> RESOLVED event -> duet_run -> release -> result
 *
 * Nothing of the order of stages is here (engine.c), and nothing of what they do. */
#include "api_int.h"

#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/clock.h"

void duet__event_progress(void *ctx, int32_t output, duet_stage stage, int64_t done, int64_t total) {
    const duet__events *e = ctx;
    if (!e->fn) return;
    duet_event event = {.kind = DUET_EVENT_PROGRESS,
                        .output = output,
                        .num_outputs = e->num_outputs,
                        .stage = stage,
                        .done = done,
                        .total = total};
    e->fn(e->ctx, &event);
}

static void report_path(const duet__events *e, duet_event_kind kind, int32_t output, duet_stage stage,
                        const char *path) {
    if (!e->fn) return;
    duet_event event = {
        .kind = kind, .output = output, .num_outputs = e->num_outputs, .stage = stage, .path = path};
    e->fn(e->ctx, &event);
}

void duet__event_finished(void *ctx, int32_t output, const char *path) {
    report_path(ctx, DUET_EVENT_OUTPUT, output, DUET_STAGE_DELIVER, path);
}

void duet__event_kept(void *ctx, int32_t output, const char *latents_path) {
    report_path(ctx, DUET_EVENT_LATENTS, output, DUET_STAGE_DENOISE, latents_path);
}

static void report_resolved(const duet__events *e, const duet_result *result) {
    if (!e->fn) return;
    duet_event event = {.kind = DUET_EVENT_RESOLVED,
                        .num_outputs = e->num_outputs,
                        .resolved = &result->resolved,
                        .plan = &result->plan};
    e->fn(e->ctx, &event);
}

static char *copy_or_null(const char *text) {
    return text ? duet_strdup(text) : NULL;
}

void duet__result_finish(duet_engine *engine, const duet_run_result *run, double started_seconds,
                         duet_result *result) {
    for (int32_t k = 0; k < result->num_outputs; k++) {
        duet_output *o = &result->output[k];
        o->path = copy_or_null(run->output[k].path);
        o->latents_path = copy_or_null(run->output[k].latents_path);
        o->finished = run->output[k].finished;
        o->seed = result->resolved.seed + k;
        o->bytes = o->finished && o->path ? duet__bytes_on_disk(o->path) : 0;
        o->width = result->plan.width;
        o->height = result->plan.height;
        o->frames = result->plan.frames;
        o->audio_samples = result->plan.audio_samples;
    }
    memcpy(result->stage_seconds, run->stage_seconds, sizeof result->stage_seconds);
    result->seconds = duet_clock_s() - started_seconds;
    struct rusage usage;
    if (!getrusage(RUSAGE_SELF, &usage)) result->peak_resident_bytes = (int64_t)usage.ru_maxrss * 1024;
    result->device_peak_bytes = duet_device_peak_bytes(engine->device);
}

static duet_status run(duet_engine *engine, const duet_request *r, const duet__resolution *all,
                       const duet__events *events, duet_run_result *out, duet_error *err) {
    duet__sinks sinks = {.compression = all->resolved.output_compression,
                         .seed = all->resolved.seed,
                         .prompt_sha256 = all->resolved.prompt_sha256,
                         .model_hash = engine->hashes.model,
                         .cancel = &engine->cancel,
                         .overwrite = r->overwrite};
    duet_sink_factory factory = {.make = duet__sink_make, .dispose = duet__sink_dispose, .ctx = &sinks};
    duet_run_events run_events = {.progress = duet__event_progress,
                                  .finished = duet__event_finished,
                                  .kept = duet__event_kept,
                                  .ctx = (void *)events,
                                  .cancel = &engine->cancel};
    duet_run_args args = {
        .model = engine->model,
        .device = engine->device,
        .resolved = &all->resolved,
        .plan = &all->plan,
        .hashes = &engine->hashes,
        .prompt_ids = all->ids,
        .n_prompt_ids = all->n_ids,
        .output = r->output,
        .init_noise = r->init_noise,
        .dump_dir = r->dump_dir,
        .keep_latents = r->keep_latents,
        .sinks = &factory,
        .events = &run_events,
    };
    return duet_run(&args, out, err);
}

/* Of the files that keep the latents of every output until they are decoded. */
static int64_t latents_bytes(const duet_engine *engine, const duet__resolution *all) {
    const duet_model_config *c = duet_model_config_get(engine->model);
    const duet_plan *p = &all->plan;
    int64_t values = (int64_t)c->vvae.latent_channels * p->video_latents * p->latent_h * p->latent_w +
                     2 * (int64_t)c->avae.latent_channels * p->audio_latents;
    return values * (int64_t)sizeof(float) * all->resolved.num_outputs;
}

static duet_status prepare(duet_engine *engine, const duet_request *r, duet__resolution *all,
                           duet__reserved *names, duet_error *err) {
    duet_status st;
    TRY(st, fail, duet_request_check(r, err));
    if (!r->prompt)
        return duet_refuse(err, "prompt", "missing_required_parameter", NULL, NULL, "is required");
    TRY(st, fail, duet_output_check(r, err));
    TRY(st, fail, duet__resolve_all(engine, r, all, err));
    TRY(st, fail, duet__check_space(r->output, latents_bytes(engine, all), err));
    TRY(st, fail, duet__reserve_request(r, names, err));
    TRY(st, fail, duet__hash_model(engine, err));
fail:
    return st;
}

duet_status duet_generate(duet_engine *engine, const duet_request *r, duet_event_fn on_event, void *ctx,
                          duet_result *result, duet_error *err) {
    if (!engine || !r || !result)
        return duet_fail(err, DUET_E_USAGE, "duet_generate: engine, request or result is NULL");
    double started = duet_clock_s();
    *result = (duet_result){0};
    duet_run_result run_result = {0};
    duet__resolution *all = duet_calloc(1, sizeof *all, DUET_MEM_ENGINE);
    if (!all) return duet_fail(err, DUET_E_MEMORY, "generate: out of memory");
    duet__reserved names = {0};
    duet_status st = prepare(engine, r, all, &names, err);
    if (st == DUET_OK) {
        duet__events events = {.fn = on_event, .ctx = ctx, .num_outputs = all->resolved.num_outputs};
        result->num_outputs = all->resolved.num_outputs;
        result->resolved = all->resolved;
        duet_plan_info_fill(&all->plan, duet_model_config_get(engine->model), &result->plan);
        memcpy(result->model_hash, engine->hashes.model, sizeof result->model_hash);
        strncpy(result->device_kind, duet_device_kind(engine->device), sizeof result->device_kind - 1);
        report_resolved(&events, result);
        st = run(engine, r, all, &events, &run_result, err);
        duet__release(&names); /* what is counted below is the clip alone */
        duet__result_finish(engine, &run_result, started, result);
    }
    duet__release(&names);
    if (st == DUET_E_CANCELLED) engine->cancel = 0;
    duet_run_result_free(&run_result);
    duet_free(all->ids);
    duet_free(all);
    return st;
}

void duet_result_free(duet_result *result) {
    for (int k = 0; k < DUET_MAX_OUTPUTS; k++) {
        duet_free(result->output[k].path);
        duet_free(result->output[k].latents_path);
    }
    *result = (duet_result){0};
}
