/* duet.h - the whole public interface of libduet.
 *
 * An engine holds one opened model. A request says what to make. `duet_request_check` holds it against every
 * rule that needs no model; `duet_resolve` answers what exactly would be made, and what it would cost,
 * without touching weights; `duet_generate` makes it and reports as it goes.
 *
 *     duet_request_defaults -> fill in -> duet_request_check -> duet_engine_open -> duet_resolve
 *                                      -> duet_generate -> duet_result_free -> duet_engine_close
 *
 * Conventions
 *  1. Every function that can fail returns a status and fills the optional error: message for people; param
 * (the request field, spelled as in the HTTP interface), code and type for programs.
 *  2. Strings are UTF-8. Strings in a request are borrowed until the call that reads it returns; strings in
 * what the library hands out live as long as the struct that holds them.
 *  3. Structs that callers fill are size-stamped by their `_defaults` function, so that a newer library keeps
 * serving an older caller. A struct without the stamp is refused (DUET_E_USAGE).
 *  4. An engine may be used from one thread at a time; `duet_cancel` alone may be called from any thread and
 * from a signal handler. Different engines are independent.
 *  5. Nothing here exits, aborts, writes to a terminal or installs a signal handler. */
#ifndef DUET_DUET_H
#define DUET_DUET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status and error -------------------------------------------------------------------------------- */

typedef enum duet_status {
    DUET_OK = 0,
    DUET_E_USAGE,       /* the caller's own mistake: NULL, unknown size stamp, wrong order of calls */
    DUET_E_REQUEST,     /* a request field breaks a rule; `param`, `code` say which */
    DUET_E_MODEL,       /* the model directory is missing, damaged or of an unknown kind */
    DUET_E_RUN,         /* a stage failed; message names stage, step and tensor */
    DUET_E_IO,          /* the system refused a read, a write or a rename */
    DUET_E_MEMORY,      /* an allocation that the plan announced was refused */
    DUET_E_UNSUPPORTED, /* this build or this device cannot do it */
    DUET_E_CANCELLED,   /* duet_cancel was called */
    DUET_E_INTERNAL,    /* a broken invariant: please report */
} duet_status;

typedef struct duet_error {
    duet_status status;
    char message[640]; /* one line, no trailing newline; for DUET_E_REQUEST the rule alone ("must be ...") */
    char param[64];    /* request field ("num_frames") or "" */
    char code[48];     /* stable word ("out_of_range") or "" */
    char value[96];    /* what was given, as text, or "" */
    char nearest[96];  /* the nearest value that would be accepted, or "" */
} duet_error;

const char *duet_status_name(duet_status status);
const char *duet_version(void);

/* "FIELD: RULE (got VALUE; nearest: VALUE)", or the bare message where no field is to blame. Always ends in
 * NUL; returns buf. 1024 bytes hold every error. Control characters are shown as '?'. */
const char *duet_error_text(const duet_error *error, char *buf, size_t buf_bytes);

/* ---- request ----------------------------------------------------------------------------------------- */

#define DUET_UNSET INT64_MIN         /* an integer field that was not given */
#define DUET_UNSET_NUMBER (-1.0e300) /* a number field that was not given */

enum { DUET_MAX_OUTPUTS = 10, DUET_MAX_POINTS = 256, DUET_MAX_WARNINGS = 16, DUET_WARNING_BYTES = 240 };

/* NULL, DUET_UNSET and DUET_UNSET_NUMBER mean "not given: take the default in brackets". */
typedef struct duet_request {
    size_t struct_bytes; /* set by duet_request_defaults */

    const char *prompt;   /* 1 to 7000 code points, not only white space, taken verbatim */
    int64_t prompt_bytes; /* -1 [default]: prompt ends at its NUL */
    const char *task;     /* "t2va" [t2va] */

    double seconds;     /* 4 to 15 [4]; not together with num_frames */
    int64_t num_frames; /* 96 to 362 at 24 frames/s; snapped up to the next 17n+5 */
    bool any_length;    /* admit 22 to 362 frames, with a warning */

    int64_t width, height;    /* pixels, both or neither */
    const char *size;         /* "WIDTHxHEIGHT"; instead of width and height */
    int64_t short_edge;       /* pixels [the model's own] */
    const char *aspect_ratio; /* "21:9" "16:9" "4:3" "1:1" "3:4" "9:16" "auto" "adaptive" [16:9] */

    int64_t num_inference_steps; /* 2 to 200 sigma points, or 1 to 200 evaluations [50 points] */
    const char *steps_unit;      /* "points" [default] or "evaluations" */
    const double *sigmas;        /* final video ladder, strictly decreasing from at most 1 to exactly 0 */
    const double *audio_sigmas;  /* final audio ladder, as many values; both ladders or neither */
    const double *base_schedule; /* unshifted ladder for both; not together with the two above */
    int32_t n_sigmas, n_audio_sigmas, n_base_schedule; /* 2 to 201 */
    double flow_shift, audio_flow_shift;               /* finite, > 0 [the model's: 12 and 3] */

    int64_t seed; /* 0 to 2^63-1, or -1: draw one and report it [42]; output k uses seed + k */
    int64_t num_outputs_per_prompt; /* 1 to 10 [1] */
    const char *noise;              /* "sglang" [default] or "diffusers": which stream of initial noise */
    const char *init_noise; /* safetensors file with video_noise and audio_noise rows, instead of drawing */
    const char *dtype;      /* "f32" [default] */
    const char *quality;    /* "exact" "lossless" "extra-high": all the same, exact, path */

    const char *output; /* "clip.mp4", or "dir/" for numbered PNG frames and a WAV; needed to generate */
    const char *output_quality; /* "default" "maximum" "high" "medium" "low" = 50 100 90 55 35 [default] */
    int64_t output_compression; /* 0 to 100; beats output_quality */
    bool overwrite;             /* replace an existing output (by rename, after success) */
    bool keep_latents;          /* keep the latents file after success too */
    const char *dump_dir;       /* write every tap as safetensors into this folder */

    int64_t
        assumed_text_rows; /* plan only: 0 [default] = from the prompt; N = plan for a prompt of N tokens */
} duet_request;

/* `struct_bytes` is sizeof(duet_request) as the caller knows it. */
void duet_request_defaults(duet_request *request, size_t struct_bytes);

/* Every rule that needs no model: ranges, exclusions, text. Pure; any thread. */
duet_status duet_request_check(const duet_request *request, duet_error *err);

/* That the files of the request can be used: every output can be written and would replace nothing (unless
 * `overwrite`) and is being written by no other run, init_noise can be read. Touches the file system: probes the
 * folder with a file of its own, which it removes. */
duet_status duet_output_check(const duet_request *request, duet_error *err);

/* ---- what was resolved (nothing is changed silently) ------------------------------------------------- */

typedef struct duet_resolved {
    const char *task; /* static string, as all strings here */
    int32_t width, height;
    const char *aspect_ratio; /* "" when width and height were given */
    int32_t short_edge;       /* 0 when width and height were given */
    int64_t num_frames;
    double seconds; /* num_frames / 24 */

    const char *schedule; /* "linspace", "base_schedule", "sigmas", "model" (pinned by the checkpoint) */
    int64_t points, evaluations;
    double flow_shift, audio_flow_shift; /* 0 for "sigmas" */
    float sigmas[DUET_MAX_POINTS], audio_sigmas[DUET_MAX_POINTS];

    int64_t seed; /* of output 0, drawn if it was -1 */
    int32_t num_outputs;
    const char *noise, *dtype, *quality;
    int32_t output_compression; /* after output_quality was looked up */

    int64_t prompt_characters, prompt_tokens; /* tokens: text rows, or those assumed */
    char prompt_sha256[65];                   /* of the prompt's bytes; "" when rows were assumed */
    bool text_rows_assumed;

    int32_t n_warnings;
    char warnings[DUET_MAX_WARNINGS][DUET_WARNING_BYTES]; /* "field: what and why" */
} duet_resolved;

/* The resolved request as a JSON object (documented in docs/cli.md), indented by `indent` spaces or on one
 * line (0). Free with duet_string_free; NULL when out of memory. */
char *duet_resolved_json(const duet_resolved *resolved, int indent);
void duet_string_free(char *text); /* NULL-safe */

/* ---- plan -------------------------------------------------------------------------------------------- */

typedef enum duet_stage {
    DUET_STAGE_LOAD,
    DUET_STAGE_CONDITION,
    DUET_STAGE_DENOISE,
    DUET_STAGE_DECODE_AUDIO,
    DUET_STAGE_DECODE_VIDEO,
    DUET_STAGE_DELIVER,
    DUET_N_STAGES
} duet_stage;

const char *duet_stage_name(duet_stage stage); /* "load" "condition" "denoise" "decode_audio" ... */

typedef struct duet_stage_cost {
    int64_t weights_mapped_bytes; /* weights used in place while the stage runs */
    int64_t weights_copied_bytes; /* weights copied or packed for it */
    int64_t activation_bytes;     /* device buffers of the stage */
    int64_t scratch_bytes;        /* largest op scratch */
    int64_t host_bytes;           /* pixels, PCM, latents on the host */
    double flops;                 /* multiply and add counted as two */
} duet_stage_cost;

/* One output of the request. Bytes are predictions of what becomes resident. */
typedef struct duet_plan_info {
    int32_t width, height;
    int64_t frames, video_latents, audio_latents; /* per channel */
    int32_t video_channels, audio_channels, latent_height, latent_width;
    int32_t patch_rows, patch_cols;                  /* rows per latent frame = patch_rows * patch_cols */
    int64_t text_rows, audio_rows, video_rows, rows; /* rows = the three together */
    int64_t points, evaluations;
    int64_t chunks;           /* temporal chunks of the video decoder */
    int32_t tiles_y, tiles_x; /* tiles of each chunk */
    int32_t tile_height, tile_width;
    int64_t audio_samples; /* per channel */
    duet_stage_cost stage[DUET_N_STAGES];
    int64_t base_bytes, media_bytes; /* the process itself; the encoder */
    int64_t peak_bytes;              /* predicted peak resident size */
    double flops;                    /* all stages */
} duet_plan_info;

/* ---- engine ------------------------------------------------------------------------------------------ */

typedef struct duet_engine duet_engine;

typedef struct duet_engine_options {
    size_t struct_bytes;
    const char *model; /* model root, one partition directory, a diffusers tree, or a hub snapshot of these */
    const char *layout;    /* NULL [default] = by rule; "native", "diffusers" */
    const char *task;      /* chooses the partition of a model root ["t2va"] */
    const char *backend;   /* "cpu" [default], "ref" */
    int32_t threads;       /* 0 [default] = the processors of this process */
    const char *cpu_level; /* NULL [default] = best; "scalar", "avx2", "avx512" pins the instruction level */
    bool decoders_only;    /* open the two decoders alone (duet_decode_latents) */
} duet_engine_options;

void duet_engine_options_defaults(duet_engine_options *options, size_t struct_bytes);

/* Read configuration and weight headers, check every tensor, map the files. No weight is read. On success
 * *out must be closed. DUET_E_MODEL names file and tensor. */
duet_status duet_engine_open(const duet_engine_options *options, duet_engine **out, duet_error *err);
void duet_engine_close(duet_engine **engine); /* NULL-safe; waits for nothing */

/* Ask the running duet_generate or duet_decode_latents to stop: it returns DUET_E_CANCELLED within one
 * evaluation or tile. Any thread, signal handlers included. Sticky: a cancel that comes too early
 * stops the next such call; it is used up by the call that returns DUET_E_CANCELLED. NULL-safe. */
void duet_cancel(duet_engine *engine);

/* Resolve a request against the engine's model. `resolved` and `plan` may be NULL. No weight is touched. */
duet_status duet_resolve(duet_engine *engine, const duet_request *request, duet_resolved *resolved,
                         duet_plan_info *plan, duet_error *err);

/* ---- generate ---------------------------------------------------------------------------------------- */

typedef enum duet_event_kind {
    DUET_EVENT_RESOLVED, /* `resolved` and `plan` are set; once, before work */
    DUET_EVENT_PROGRESS, /* `stage`, `done`, `total` of output `output` */
    DUET_EVENT_OUTPUT,   /* output `output` is complete under `path` */
    DUET_EVENT_LATENTS, /* the latents of output `output` stand under `path` until it is complete: duet_decode_latents
                            can finish it whatever happens to this process */
} duet_event_kind;

typedef struct duet_event {
    duet_event_kind kind;
    int32_t output, num_outputs;
    duet_stage stage;
    int64_t done, total;           /* evaluations, tiles, frames ...; total 0 = unknown */
    const duet_resolved *resolved; /* these three: NULL unless the kind says so; valid during the call */
    const duet_plan_info *plan;
    const char *path;
} duet_event;

/* Called on the thread that called duet_generate, between evaluations and tiles; should return soon. */
typedef void (*duet_event_fn)(void *ctx, const duet_event *event);

typedef struct duet_output {
    char *path;          /* as written, or as it would have been */
    char *latents_path;  /* of the latents that stand on disk, or NULL: duet_decode_latents can finish them */
    bool finished;       /* the clip stands under `path` */
    int64_t seed, bytes; /* size of the MP4, or of all files of a folder; 0 if not finished */
    int32_t width, height;
    int64_t frames, audio_samples; /* samples per channel, before the codec's padding */
} duet_output;

typedef struct duet_result {
    int32_t num_outputs; /* of the request; 0 when it failed before work */
    duet_output output[DUET_MAX_OUTPUTS];
    double stage_seconds[DUET_N_STAGES]; /* summed over outputs */
    double seconds;                      /* wall time of the call */
    int64_t peak_resident_bytes;         /* of the process, as the system counts it */
    int64_t device_peak_bytes;
    char device_kind[32];
    char model_hash[65];
    duet_resolved resolved;
    duet_plan_info plan;
} duet_result;

/* Make every output of the request. `result` is filled as far as the run came, also on failure, and must be
 * freed. On failure nothing stands under the names of outputs that were not finished, and what stood there
 * before still does. */
duet_status duet_generate(duet_engine *engine, const duet_request *request, duet_event_fn on_event, void *ctx,
                          duet_result *result, duet_error *err);
void duet_result_free(duet_result *result); /* idempotent on a zeroed struct */

/* Finish a clip from a latents file that a generate left behind. Refuses latents of another model's
 * decoders. */
typedef struct duet_decode_request {
    size_t struct_bytes;
    const char *latents, *output;
    bool overwrite;
    const char *dump_dir;
} duet_decode_request;
void duet_decode_request_defaults(duet_decode_request *request, size_t struct_bytes);
/* The rules that need no model: names, and that the output can be written. */
duet_status duet_decode_check(const duet_decode_request *request, duet_error *err);
duet_status duet_decode_latents(duet_engine *engine, const duet_decode_request *request,
                                duet_event_fn on_event, void *ctx, duet_result *result, duet_error *err);

/* ---- model information ------------------------------------------------------------------------------- */

enum { DUET_N_INFO_COMPONENTS = 4 };

typedef struct duet_component_info {
    const char *name;                   /* "transformer" "text_encoder" "video_vae" "audio_vae" */
    int64_t mapped_bytes, copied_bytes; /* readable tensors used in place; copies that loading makes */
    char hash[65];                      /* the quick hash that latents files carry */
    /* filled by verify only */
    int64_t tensors, bytes, nonfinite_values; /* as stored */
    int32_t files, missing_files;             /* missing: shards that hold nothing any task reads */
    char sha256[65];                          /* over every canonical byte of every readable tensor */
    char first_nonfinite[96];                 /* name of the first tensor that holds one, or "" */
} duet_component_info;

typedef struct duet_model_info {
    const char *path, *layout; /* valid until the engine is closed */
    bool serves_t2va, serves_fl2va, serves_ref2va;
    char model_hash[65], tokenizer_hash[65];
    duet_component_info component[DUET_N_INFO_COMPONENTS];
    char *config_json; /* every dimension that was read, as one JSON object */
    bool verified;
} duet_model_info;

/* verify: read every tensor (minutes for the released model). DUET_E_MODEL when a value is not finite: `out`
 * is filled all the same. */
duet_status duet_info(duet_engine *engine, bool verify, duet_model_info *out, duet_error *err);
void duet_model_info_free(duet_model_info *info); /* idempotent on a zeroed struct */

#ifdef __cplusplus
}
#endif
#endif
