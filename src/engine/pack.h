/* pack.h - lay text, condition, audio and video rows into the one sequence the transformer sees (spec
 * model-dit 7, 8).
 *
 *     [ text | condition 1 ... condition n | audio target | video target ]
 *
 * 1. Segments never interleave; a video reference is its soundtrack rows followed by its video rows.
 * 2. Row counts depend on the geometry alone, so all evaluations share buffers.
 * 3. Positions are fp64 in media time (40 units a second), bit-equal to the reference: text rows advance the
 * clock by one each, audio and video targets start together where the last condition ended.
 * 4. This file and its inverse are the only ones that know the order of rows.
 * Not here: what the rows contain (condition, noise), how they change (denoise). Pure host code, any thread.
 */
#ifndef DUET_ENGINE_PACK_H
#define DUET_ENGINE_PACK_H

#include "engine/sigma.h"
#include "nn/transformer.h"

typedef enum duet_row_kind {
    DUET_ROWS_TEXT,
    DUET_ROWS_VIDEO_CONDITION, /* keyframes, reference images and videos */
    DUET_ROWS_AUDIO_CONDITION, /* reference audio, soundtracks of reference videos */
    DUET_ROWS_AUDIO_TARGET,
    DUET_ROWS_VIDEO_TARGET,
    DUET_N_ROW_KINDS
} duet_row_kind;

typedef enum duet_condition_kind {
    DUET_CONDITION_FIRST_FRAME, /* keyframes stand on the target grid and do not move the clock */
    DUET_CONDITION_LAST_FRAME,
    DUET_CONDITION_IMAGE, /* references advance it, in request order */
    DUET_CONDITION_VIDEO,
    DUET_CONDITION_AUDIO
} duet_condition_kind;

enum { DUET_MAX_CONDITIONS = 12, DUET_MAX_SEGMENTS = 2 * DUET_MAX_CONDITIONS + 3 };

/* What one condition brings: its own latent grid (images, videos), latent frames (videos; images and
 * keyframes have one) and audio latents per channel (audio, soundtracks). Members that a kind does not use
 * are ignored. */
typedef struct duet_pack_condition {
    duet_condition_kind kind;
    int32_t latent_h, latent_w;
    int64_t video_latents, audio_latents;
} duet_pack_condition;

typedef struct duet_pack_spec {
    int64_t text_rows;
    const int32_t *text_tags; /* [text_rows]: 1, or 0 for rows of vision blocks; NULL = all 1 */
    const duet_pack_condition *conditions;
    int n_conditions;
    int64_t video_latents, audio_latents; /* target: T, Ta per channel */
    int32_t latent_h, latent_w;           /* target Hl, Wl */
    int32_t patch_h, patch_w;
} duet_pack_spec;

typedef struct duet_segment {
    duet_row_kind kind;
    int64_t first, rows;
} duet_segment;

typedef struct duet_packed {
    duet_dit_layout layout; /* points into the two arrays below */
    int n_segments;
    duet_segment segment[DUET_MAX_SEGMENTS];
    int64_t condition_video_rows, condition_audio_rows, target_video_rows, target_audio_rows;
    double *position_ids; /* [rows, 3] */
    int32_t *token_tags;  /* [rows] */
} duet_packed;

/* Sizes are checked against overflow; a zeroed duet_packed is closable. */
duet_status duet_pack_rows(const duet_pack_spec *spec, duet_packed *out, duet_error *err);
void duet_packed_free(duet_packed *packed);

/* Timesteps t = 1 - sigma of every row kind in every evaluation (spec model-dit 8). Text rows and target
 * video share the video schedule; visual conditions stay at 0.999 or above, audio conditions at 1. */
typedef struct duet_timestep_plan {
    int64_t evaluations, n_distinct;
    float *timesteps; /* [n_distinct] ascending: the union over all evaluations, one AdaLN table row each */
    int32_t *kind_index; /* [evaluations, DUET_N_ROW_KINDS] into timesteps */
} duet_timestep_plan;

duet_status duet_timestep_plan_build(const duet_schedule *schedule, bool has_conditions,
                                     duet_timestep_plan *out, duet_error *err);
void duet_timestep_plan_free(duet_timestep_plan *plan);
/* Index of every row of one evaluation into plan->timesteps; out [rows]. */
void duet_timestep_rows(const duet_timestep_plan *plan, const duet_packed *packed, int64_t evaluation,
                        int32_t *out);
/* The same as the reference numbers them: into the sorted distinct values of this evaluation alone. For taps.
 */
void duet_timestep_rows_local(const duet_timestep_plan *plan, const duet_packed *packed, int64_t evaluation,
                              int32_t *out);

/* Rows and latents (spec model-dit 4.9). rows [T*(h/ph)*(w/pw), channels*ph*pw], columns (channel, dy, dx);
 * latents [channels, T, h, w]. The two are inverse; neither may overlap its input. */
typedef struct duet_patch_shape {
    int32_t channels, latent_h, latent_w, patch_h, patch_w;
    int64_t frames;
} duet_patch_shape;
void duet_patchify(const duet_patch_shape *shape, const float *latents, float *rows);
void duet_unpatchify(const duet_patch_shape *shape, const float *rows, float *latents);
/* Audio rows [2*Ta, channels], left channel first, to latents [2, channels, Ta]. */
void duet_audio_rows_to_latents(int64_t audio_latents, int32_t channels, const float *rows, float *latents);

#endif
