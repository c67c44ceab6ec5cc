/* resolve.c - a request against this engine's model: tokens, rules, plan. No weight is touched. */
#include "api_int.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/sha256.h"
#include "media/media.h"

int64_t duet__resident_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    long long total = 0, resident = 0;
    int n = fscanf(f, "%lld %lld", &total, &resident);
    fclose(f);
    return n == 2 ? (int64_t)resident * sysconf(_SC_PAGESIZE) : 0;
}

static duet_status open_tokenizer(duet_engine *e, duet_error *err) {
    if (e->tokenizer) return DUET_OK;
    duet_tokenizer_files files;
    duet_status st = duet_model_tokenizer_files(e->model, &files, err);
    if (st == DUET_OK) st = duet_tokenizer_open(&files, &e->tokenizer, err);
    if (st == DUET_OK) st = duet_tokenizer_check(e->tokenizer, &duet_model_config_get(e->model)->text, err);
    if (st == DUET_E_MODEL) duet_error_prefix(err, "%s/tokenizer", duet_model_dir(e->model));
    if (st != DUET_OK) duet_tokenizer_close(&e->tokenizer);
    return st;
}

/* Token ids, unless a vision token stands in the prompt: then they would mean something else. */
static duet_status read_prompt(duet_engine *e, const duet_request *r, duet_request_model *m,
                               duet__resolution *out, duet_error *err) {
    if (!r->prompt) {
        m->prompt_tokens = r->assumed_text_rows;
        return DUET_OK;
    }
    int64_t bytes = duet_request_prompt_bytes(r);
    duet_status st = open_tokenizer(e, err);
    if (st != DUET_OK) return st;
    m->vision_token = duet_tokenizer_find_vision_token(e->tokenizer, r->prompt, bytes);
    if (m->vision_token) return DUET_OK;
    st = duet_tokenizer_encode(e->tokenizer, r->prompt, bytes, &out->ids, &out->n_ids, err);
    m->prompt_tokens = out->n_ids;
    return st;
}

static void hash_prompt(const duet_request *r, char hex[65]) {
    duet_sha256 hash;
    duet_sha256_init(&hash);
    duet_sha256_add(&hash, r->prompt, (size_t)duet_request_prompt_bytes(r));
    duet_sha256_hex(&hash, hex);
}

static int64_t media_bytes(const duet_resolved *resolved, const duet_plan *p, const duet_model_config *config,
                           const char *output) {
    duet_clip_format format = {.width = resolved->width,
                               .height = resolved->height,
                               .fps = config->fps,
                               .frames = resolved->num_frames,
                               .sample_rate = config->avae.sample_rate,
                               .samples = p->audio_samples};
    return duet_media_bytes(&format, output ? duet_media_kind_of(output) : DUET_MEDIA_MP4);
}

duet_status duet__resolve_all(duet_engine *e, const duet_request *r, duet__resolution *out, duet_error *err) {
    *out = (duet__resolution){0};
    if (e->decoders_only) return duet_fail(err, DUET_E_USAGE, "the engine was opened for its decoders only");
    const duet_model_config *config = duet_model_config_get(e->model);
    duet_request_model m = {
        .config = config,
        .serves_t2va = duet_model_serves(e->model, "t2va"),
        .serves_fl2va = duet_model_serves(e->model, "fl2va"),
        .serves_ref2va = duet_model_serves(e->model, "ref2va"),
    };
    duet_status st;
    TRY(st, fail, duet_request_check(r, err));
    TRY(st, fail, read_prompt(e, r, &m, out, err));
    TRY(st, fail, duet_request_resolve(r, &m, &out->resolved, &out->plan_args, err));
    TRY(st, fail, duet_plan_build(&out->plan_args, config, &out->plan, err));
    out->plan_args.media_bytes = media_bytes(&out->resolved, &out->plan, config, r->output);
    duet_plan_cost(&out->plan, &out->plan_args, e->model, e->device, duet__resident_bytes());
    if (r->prompt) hash_prompt(r, out->resolved.prompt_sha256);
    return DUET_OK;
fail:
    duet_free(out->ids);
    out->ids = NULL;
    return st;
}

duet_status duet_resolve(duet_engine *engine, const duet_request *request, duet_resolved *resolved,
                         duet_plan_info *plan, duet_error *err) {
    if (!engine || !request) return duet_fail(err, DUET_E_USAGE, "duet_resolve: engine or request is NULL");
    duet__resolution *all = duet_calloc(1, sizeof *all, DUET_MEM_ENGINE);
    if (!all) return duet_fail(err, DUET_E_MEMORY, "resolve: out of memory");
    duet_status st = duet__resolve_all(engine, request, all, err);
    if (st == DUET_OK && resolved) *resolved = all->resolved;
    if (st == DUET_OK && plan) duet_plan_info_fill(&all->plan, duet_model_config_get(engine->model), plan);
    duet_free(all->ids);
    duet_free(all);
    return st;
}
