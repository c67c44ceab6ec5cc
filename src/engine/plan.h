/* plan.h - every size that follows from a request and a model configuration, before any weight is touched.
 *
 *     request + config -> frames, canvas, latent shapes -> rows and segments -> chunks and tiles -> bytes and
 * FLOPs per stage
 *
 * Stages allocate only what the plan announced; `duet plan` prints it; progress and admission read it. Pure:
 * no I/O. */
#ifndef DUET_ENGINE_PLAN_H
#define DUET_ENGINE_PLAN_H

#include "base/status.h"
#include "engine/geometry.h"
#include "store/config.h"

typedef enum duet_stage {
    DUET_STAGE_LOAD,
    DUET_STAGE_CONDITION,
    DUET_STAGE_DENOISE,
    DUET_STAGE_DECODE_AUDIO,
    DUET_STAGE_DECODE_VIDEO,
    DUET_STAGE_DELIVER,
    DUET_N_STAGES
} duet_stage;

const char *duet_stage_name(duet_stage stage);

typedef struct duet_stage_cost {
    int64_t weights_mapped_bytes,
        weights_copied_bytes; /* weights used in place / copied or packed while the stage runs */
    int64_t activation_bytes; /* device buffers of the stage */
    int64_t scratch_bytes;    /* largest op scratch */
    int64_t host_bytes;       /* pixels, PCM, latents on the host */
    double flops;
} duet_stage_cost;

typedef struct duet_plan {
    /* geometry */
    int32_t width, height;
    int64_t frames, video_latents, audio_latents;    /* F, T, Ta */
    int32_t latent_h, latent_w;                      /* Hl, Wl */
    int32_t patch_rows, patch_cols;                  /* Hl/ph, Wl/pw */
    int64_t text_rows, audio_rows, video_rows, rows; /* L, 2*Ta, T*R, S */
    /* schedule */
    int64_t points, evaluations;
    /* decode */
    int64_t chunks;
    duet_axis_tiles tiles_y, tiles_x;
    /* costs */
    duet_stage_cost stage[DUET_N_STAGES];
    int64_t base_bytes, media_bytes; /* the process itself; the encoder */
    int64_t peak_bytes;              /* predicted peak resident size */
} duet_plan;

#endif
