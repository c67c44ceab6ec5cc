/* plan.h - every size that follows from a request and a model configuration, before any weight is touched.
 *
 *     resolved request + config -> frames, canvas, latent shapes -> rows -> chunks and tiles -> FLOPs (build)
 *     opened model + device     -> bytes of weights, activations, scratch, host memory by stage -> peak
 * (cost)
 *
 * Stages allocate only what the plan announced; `duet plan` prints it; progress and admission read it. No
 * I/O: build is pure, cost asks the store for byte counts and the networks' own byte functions. */
#ifndef DUET_ENGINE_PLAN_H
#define DUET_ENGINE_PLAN_H

#include "backend/backend.h"
#include "base/status.h"
#include "engine/geometry.h"
#include "store/config.h"
#include "store/model.h"

typedef struct duet_plan {
    /* geometry */
    int32_t width, height;
    int64_t frames, video_latents, audio_latents;    /* F, T, Ta */
    int32_t latent_h, latent_w;                      /* Hl, Wl */
    int32_t patch_rows, patch_cols;                  /* Hl/ph, Wl/pw */
    int64_t text_rows, audio_rows, video_rows, rows; /* L, 2*Ta, T*R, S */
    int64_t audio_samples;                           /* hop*Ta, per channel */
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

typedef struct duet_plan_args {
    int32_t width, height; /* multiples of config.canvas_multiple */
    int64_t frames;        /* 17n+5, at least 22 */
    int64_t text_rows;     /* at least 1 */
    int64_t points;        /* at least 2 */
    int64_t timesteps;     /* distinct timesteps of the schedule, one AdaLN table row each */
    int64_t outputs;       /* of the request: the latents of all are kept until decoded (cost only) */
    int64_t media_bytes;   /* what encoding will hold, as the media say (cost only) */
} duet_plan_args;

/* Geometry, rows, schedule, chunks and tiles; costs are zero but for the FLOPs of condition and denoise.
 * DUET_E_MODEL when the decoder's own constants cannot make these frames, DUET_E_REQUEST (width, height) when
 * an axis cannot be tiled. */
duet_status duet_plan_build(const duet_plan_args *args, const duet_model_config *config, duet_plan *out,
                            duet_error *err);

/* Bytes and the decoders' FLOPs by stage, and the predicted peak, for this model on this device. `base_bytes`
 * is what the process holds before work. `model` and `dev` are only read. */
void duet_plan_cost(duet_plan *plan, const duet_plan_args *args, const duet_model *model,
                    const duet_device *dev, int64_t base_bytes);

/* The public view of a plan. */
void duet_plan_info_fill(const duet_plan *plan, const duet_model_config *config, duet_plan_info *out);

#endif
