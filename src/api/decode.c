/* decode.c - duet_decode_latents: a clip from the latents that a generate left behind (promise P4).
 *
 * Seed, prompt hash and compression are those of the run that made the latents, so the clip is the one that
 * it would have written, byte for byte. */
#include "api_int.h"

#include <jansson.h>
#include <string.h>

#include "base/clock.h"
#include "engine/latents.h"

/* What the stored resolved request says about the clip's tags; absent members leave the defaults. */
static void read_tags(const char *json_text, duet__sinks *sinks, char prompt_sha256[65]) {
    json_t *o = json_loads(json_text, 0, NULL);
    json_t *seed = json_object_get(o, "seed"), *compression = json_object_get(o, "output_compression");
    const char *hash = json_string_value(json_object_get(o, "prompt_sha256"));
    if (json_is_integer(seed)) sinks->seed = json_integer_value(seed);
    int64_t level = json_is_integer(compression) ? json_integer_value(compression) : 50;
    sinks->compression = level < 0 ? 0 : level > 100 ? 100 : (int32_t)level;
    if (hash) strncat(prompt_sha256, hash, 64);
    sinks->prompt_sha256 = prompt_sha256;
    json_decref(o);
}

static void fill_plan(const duet_latents *l, const duet_model_config *c, duet_result *result) {
    duet_plan_info *p = &result->plan;
    p->width = l->latent_w * c->vvae.space_ratio;
    p->height = l->latent_h * c->vvae.space_ratio;
    p->video_latents = l->video_latents;
    p->audio_latents = l->audio_latents;
    p->frames = duet_frames_for_video_latents(l->video_latents);
    p->audio_samples = l->audio_latents * c->avae.hop;
}

static duet_status redecode(duet_engine *engine, const duet_decode_request *d, const duet_latents *latents,
                            const duet__sinks *sinks, const duet__events *events, duet_run_result *out,
                            duet_error *err) {
    duet_sink_factory factory = {
        .make = duet__sink_make, .dispose = duet__sink_dispose, .ctx = (void *)sinks};
    duet_run_events run_events = {.progress = duet__event_progress,
                                  .finished = duet__event_finished,
                                  .ctx = (void *)events,
                                  .cancel = &engine->cancel};
    duet_redecode_args args = {.model = engine->model,
                               .device = engine->device,
                               .latents = latents,
                               .output = d->output,
                               .dump_dir = d->dump_dir,
                               .sinks = &factory,
                               .events = &run_events};
    return duet_redecode(&args, out, err);
}

duet_status duet_decode_latents(duet_engine *engine, const duet_decode_request *d, duet_event_fn on_event,
                                void *ctx, duet_result *result, duet_error *err) {
    if (!engine || !d || !result)
        return duet_fail(err, DUET_E_USAGE, "duet_decode_latents: an argument is NULL");
    double started = duet_clock_s();
    *result = (duet_result){0};
    duet_run_result run_result = {0};
    duet_latents latents = {0};
    char prompt_sha256[65] = "";
    duet__reserved names = {0};
    duet__sinks sinks = {.cancel = &engine->cancel, .overwrite = d->overwrite};
    duet__events events = {.fn = on_event, .ctx = ctx, .num_outputs = 1};
    duet_status st;
    TRY(st, done, duet_decode_check(d, err));
    TRY(st, done, duet__reserve(d->output, 1, d->dump_dir, &names, err));
    TRY(st, done,
        duet__check_decode_output(d, &names, err)); /* a run may have ended between the checks and this */
    TRY(st, done, duet__hash_model(engine, err));
    TRY(st, done,
        duet_latents_read(d->latents, duet_model_config_get(engine->model), &engine->hashes, &latents, err));
    read_tags(latents.resolved_json, &sinks, prompt_sha256);
    sinks.model_hash = latents.hash_model;
    fill_plan(&latents, duet_model_config_get(engine->model), result);
    result->resolved.seed = sinks.seed;
    result->num_outputs = 1;
    memcpy(result->model_hash, latents.hash_model, sizeof result->model_hash);
    strncpy(result->device_kind, duet_device_kind(engine->device), sizeof result->device_kind - 1);
    st = redecode(engine, d, &latents, &sinks, &events, &run_result, err);
    duet__release(&names);
    duet__result_finish(engine, &run_result, started, result);
done:
    duet__release(&names);
    if (st == DUET_E_CANCELLED) engine->cancel = 0;
    duet_latents_free(&latents);
    duet_run_result_free(&run_result);
    return st;
}
