/* engine.h - one request from first to last stage, in the order of the picture:
 *
 *     plan ▶ condition ▶ pack ▶ denoise ▶ (latents on disk) ▶ decode ▶ deliver
 *
 * 1. All outputs of a request are denoised first, each leaving its latents file at once (promise P4); then each is decoded,
 *    so the transformer's memory is gone before the decoders need theirs.
 * 2. A latents file is removed only after its clip stands under its name, and kept then too if asked.
 * 3. Peak memory is that of the largest stage: a stage's networks, activations and prepared weights go before the next begins.
 * The engine knows no media: sinks come from the caller through a factory. Thread rule: one run at a time per device. */
#ifndef DUET_ENGINE_ENGINE_H
#define DUET_ENGINE_ENGINE_H

#include "engine/io.h"
#include "engine/latents.h"
#include "engine/plan.h"
#include "engine/progress.h"
#include "engine/request.h"
#include "store/model.h"

/* Opens nothing yet: returns a sink for output `output` that will write `path`. */
typedef struct duet_sink_factory {
    duet_status (*make)(void *ctx, int32_t output, const char *path, duet_sink **out, duet_error *err);
    void (*dispose)(void *ctx, duet_sink **sink);
    void *ctx;
} duet_sink_factory;

typedef struct duet_run_events {
    void (*progress)(void *ctx, int32_t output, duet_stage stage, int64_t done, int64_t total);
    void (*finished)(void *ctx, int32_t output, const char *path);
    void (*kept)(void *ctx, int32_t output, const char *latents_path); /* on disk now; NULL: not told */
    void *ctx;
    const volatile int *cancel;
} duet_run_events;

/* What a run leaves behind; filled as far as it came. Strings are duet_free'd by duet_run_result_free. */
typedef struct duet_run_output {
    char *path, *latents_path; /* latents_path: NULL when they were removed (or never written) */
    bool finished;
} duet_run_output;
typedef struct duet_run_result {
    duet_run_output output[DUET_MAX_OUTPUTS];
    double stage_seconds[DUET_N_STAGES];
} duet_run_result;
void duet_run_result_free(duet_run_result *result);

typedef struct duet_run_args {
    duet_model *model;
    duet_device *device;
    const duet_resolved *resolved;
    const duet_plan *plan;
    const duet_model_hashes *hashes;
    const int32_t *prompt_ids; /* token ids of the prompt */
    int64_t n_prompt_ids;
    const char *output;                /* as asked for; output k gets duet_output_name */
    const char *init_noise, *dump_dir; /* NULL = none */
    bool keep_latents;
    const duet_sink_factory *sinks;
    const duet_run_events *events;
} duet_run_args;
duet_status duet_run(const duet_run_args *args, duet_run_result *result, duet_error *err);

/* Finish one clip from latents that duet_latents_read accepted (promise P4). */
typedef struct duet_redecode_args {
    duet_model *model;
    duet_device *device;
    const duet_latents *latents;
    const char *output, *dump_dir; /* dump_dir: NULL = none */
    const duet_sink_factory *sinks;
    const duet_run_events *events;
} duet_redecode_args;
duet_status duet_redecode(const duet_redecode_args *args, duet_run_result *result, duet_error *err);

#endif
