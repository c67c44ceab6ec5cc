/* api_int.h - the engine behind duet.h, shared by the files of this folder. */
#ifndef DUET_API_API_INT_H
#define DUET_API_API_INT_H

#include "base/hold.h"
#include "engine/engine.h"
#include "nn/tokenizer.h"

struct duet_engine {
    duet_model *model;
    duet_device *device;
    duet_tokenizer *tokenizer; /* opened when the first prompt is resolved */
    duet_model_hashes hashes;  /* valid once hashed */
    bool hashed, decoders_only;
    volatile int cancel; /* the only member that another thread or a signal handler touches */
};

/* Everything that follows from a request: `ids` is owned. */
typedef struct duet__resolution {
    duet_resolved resolved;
    duet_plan plan;
    duet_plan_args plan_args;
    int32_t *ids;
    int64_t n_ids;
} duet__resolution;
duet_status duet__resolve_all(duet_engine *engine, const duet_request *request, duet__resolution *out,
                              duet_error *err);

duet_status duet__hash_model(duet_engine *engine, duet_error *err);

duet_status duet__check_writable(const char *output, duet_error *err);
/* That the disk of an output has room for `bytes` of latents; DUET_E_IO. True at that moment only. */
duet_status duet__check_space(const char *output, int64_t bytes, duet_error *err);
int64_t duet__bytes_on_disk(
    const char *path); /* of a file, or of the files in a folder; 0 when there is none */

/* ---- reserve.c: who may write under a name. `folder`: the name is one, with or without a slash at its end. */

/* That no run holds a name now (`param` is "output" or "dump"); touches nothing. */
duet_status duet__check_free(const char *param, const char *name, bool folder, duet_error *err);
/* A refusal of a name that is in use, with the nearest free one. */
duet_status duet__refuse_taken(const char *param, const char *name, duet_error *err, const char *rule);
/* Entries of a folder: a hold, of the folder or of a clip in it; what a killed run had not finished writing (base: "clip.mp4", or "" where the
 * folder is the output). */
bool duet__is_hold(const char *entry);
bool duet__is_leftover(const char *base, const char *entry);

typedef struct duet__reserved {
    duet_hold hold[DUET_MAX_OUTPUTS + 2];
    int n_holds;
    char **made; /* folders made for them, outermost first */
    int n_made;
} duet__reserved;
/* Hold every name of a run; what a killed run of a name left half-written is removed. On failure nothing is held. */
duet_status duet__reserve(const char *output, int32_t n_outputs, const char *dump_dir, duet__reserved *out,
                          duet_error *err);
/* Whether the entry of a folder is one that was made for the names of this run. NULL-safe. */
bool duet__made_for(const duet__reserved *reserved, int folder, const char *entry);
/* That the output of a decode replaces nothing unless overwrite, and then only its own kind; `own` may be NULL. */
duet_status duet__check_decode_output(const duet_decode_request *request, const duet__reserved *own,
                                      duet_error *err);
/* duet__reserve for a request, and that nothing came to stand under its names since duet_output_check. */
duet_status duet__reserve_request(const duet_request *request, duet__reserved *out, duet_error *err);
void duet__release(duet__reserved *reserved); /* idempotent on a zeroed struct */

/* The sinks of a run: media of the kind that the name says, tagged with where the clip came from. */
typedef struct duet__sinks {
    int32_t compression;
    int64_t seed; /* of output 0 */
    const char *prompt_sha256, *model_hash;
    const volatile int *cancel;
    bool overwrite;
} duet__sinks;
duet_status duet__sink_make(void *ctx, int32_t output, const char *path, duet_sink **out, duet_error *err);
void duet__sink_dispose(void *ctx, duet_sink **sink);

/* From the engine's events to the caller's. */
typedef struct duet__events {
    duet_event_fn fn;
    void *ctx;
    int32_t num_outputs;
} duet__events;
void duet__event_progress(void *ctx, int32_t output, duet_stage stage, int64_t done, int64_t total);
void duet__event_finished(void *ctx, int32_t output, const char *path);
void duet__event_kept(void *ctx, int32_t output, const char *latents_path);

/* What both kinds of run report at their end. */
void duet__result_finish(duet_engine *engine, const duet_run_result *run, double started_seconds,
                         duet_result *result);
int64_t duet__resident_bytes(void); /* of the process, now; 0 when the system does not say */

#endif
