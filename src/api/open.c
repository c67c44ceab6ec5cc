/* open.c - an engine: one opened model on one device, and the flag by which it hears that it should stop.
 *
 * The device is opened first, because what can be wrong with it is the caller's mistake, and those come
 * before faults of the model. The tokenizer waits for the first prompt: `decode` and `info` never need it. */
#include "api_int.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

void duet_engine_options_defaults(duet_engine_options *options, size_t struct_bytes) {
    memset(options, 0, struct_bytes);
    if (struct_bytes >= sizeof options->struct_bytes) options->struct_bytes = struct_bytes;
}

static duet_status check_word(const char *param, const char *got, const char *const *words, const char *rule,
                              duet_error *err) {
    if (!got) return DUET_OK;
    for (int i = 0; words[i]; i++) {
        if (!strcmp(got, words[i])) return DUET_OK;
    }
    return duet_refuse(err, param, "invalid_value", got, words[0], "%s", rule);
}

static duet_status check_options(const duet_engine_options *o, duet_error *err) {
    static const char *const layouts[] = {"native", "diffusers", NULL};
    static const char *const backends[] = {"cpu", "ref", "walled",
                                           NULL}; /* walled: tests only, not advertised */
    static const char *const levels[] = {"scalar", "avx2", "avx512", NULL};
    duet_status st;
    if (!o || o->struct_bytes != sizeof *o)
        return duet_fail(err, DUET_E_USAGE,
                         "duet_engine_options: not filled by duet_engine_options_defaults");
    if (!o->model || !*o->model)
        return duet_refuse(err, "model", "missing_required_parameter", NULL, NULL, "is required");
    if (o->task && !duet_task_find(o->task))
        return duet_refuse(err, "task", "invalid_value", o->task, "t2va", "must be t2va, fl2va or ref2va");
    TRY(st, fail, check_word("layout", o->layout, layouts, "must be native or diffusers", err));
    TRY(st, fail, check_word("backend", o->backend, backends, "must be cpu or ref", err));
    TRY(st, fail, check_word("cpu_level", o->cpu_level, levels, "must be scalar, avx2 or avx512", err));
    if (o->threads >= 0 && o->threads <= 1024) return DUET_OK;
    char value[32];
    snprintf(value, sizeof value, "%d", o->threads);
    return duet_refuse(err, "threads", "out_of_range", value, o->threads < 0 ? "1" : "1024",
                       "must be between 1 and 1024");
fail:
    return st;
}

duet_status duet_engine_open(const duet_engine_options *o, duet_engine **out, duet_error *err) {
    *out = NULL;
    duet_status st = check_options(o, err);
    if (st != DUET_OK) return st;
    duet_engine *e = duet_calloc(1, sizeof *e, DUET_MEM_ENGINE);
    if (!e) return duet_fail(err, DUET_E_MEMORY, "engine: out of memory");
    e->decoders_only = o->decoders_only;
    duet_device_options device = {.backend = o->backend, .n_threads = o->threads, .cpu_level = o->cpu_level};
    duet_model_options model = {
        .path = o->model,
        .layout = o->layout,
        .partition = o->task && !strcmp(duet_task_find(o->task), "ref2va") ? DUET_REF2VA : DUET_FL2VA,
        .components = o->decoders_only ? 1u << DUET_COMPONENT_VVAE | 1u << DUET_COMPONENT_AVAE : 0,
    };
    TRY(st, fail, duet_device_open(&device, &e->device, err));
    TRY(st, fail, duet_model_open(&model, &e->model, err));
    *out = e;
    return DUET_OK;
fail:
    if (st == DUET_E_IO) { /* a weight file that cannot be read is a fault of the model */
        st = DUET_E_MODEL;
        if (err) err->status = st;
    }
    duet_engine_close(&e);
    return st;
}

void duet_engine_close(duet_engine **engine) {
    duet_engine *e = *engine;
    if (!e) return;
    *engine = NULL;
    duet_tokenizer_close(&e->tokenizer);
    if (e->model) duet_model_close(&e->model);
    duet_device_close(&e->device);
    duet_free(e);
}

void duet_cancel(duet_engine *engine) {
    if (engine) __atomic_store_n(&engine->cancel, 1, __ATOMIC_RELAXED); /* workers of the pool watch it */
}

duet_status duet__hash_model(duet_engine *e, duet_error *err) {
    if (e->hashed) return DUET_OK;
    duet_status st = duet_model_hash(e->model, &e->hashes, err);
    e->hashed = st == DUET_OK;
    return st;
}
