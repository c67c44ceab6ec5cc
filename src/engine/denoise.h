/* denoise.h - from noise to latents: the loop over evaluations and its solver (spec model-dit 11.2, 12).
 *
 *     open: AdaLN tables of the schedule, text refined      (once; several outputs share it)
 *     run:  noise rows -> evaluations x (begin, blocks, head, Euler) -> final rows
 *
 * 1. Every evaluation is checked (P5): velocities and latents that are not finite, or all equal, fail the run
 * naming stage, evaluation (counted from 1) and tensor.
 * 2. Cancellation is polled before every block; progress is counted in evaluations.
 * 3. The state is steppable: nothing of the network is known here but begin, block, head.
 * 4. Device memory is what duet_denoise_activation_bytes announced, exactly.
 * Not here: which rows are what (pack), where the noise comes from (noise), writing latents to disk (engine).
 */
#ifndef DUET_ENGINE_DENOISE_H
#define DUET_ENGINE_DENOISE_H

#include "engine/pack.h"
#include "engine/progress.h"

/* Everything is borrowed and must outlive the denoiser. */
typedef struct duet_denoise_setup {
    duet_dit *dit;
    duet_residency *residency;
    duet_stream *stream;
    const duet_packed *packed;
    const duet_schedule *schedule;
    const float
        *text; /* device [text_rows, text_dim]; not needed after open returned and the stream was synced */
    const float *video_conditions; /* host [condition_video_rows, width] or NULL */
    const float *audio_conditions; /* host [condition_audio_rows, audio channels] or NULL */
    duet_tap *tap;                 /* NULL = none */
    const duet_progress *progress; /* NULL = none */
} duet_denoise_setup;

typedef struct duet_denoiser duet_denoiser;

/* Waits for the stream once, so that errors of tables and refiner surface here. */
duet_status duet_denoiser_open(const duet_denoise_setup *setup, duet_denoiser **out, duet_error *err);
void duet_denoiser_close(duet_denoiser **denoiser); /* waits for the stream */

/* One output. Host memory: noise of the target rows in packed order (noise.h), final rows of the same shape
 * (may be the same memory). `tap`, `progress`: replace those of the setup for this run when not NULL. */
typedef struct duet_denoise_run {
    const float *video_noise, *audio_noise;
    float *video_rows, *audio_rows;
    duet_tap *tap;
    const duet_progress *progress;
} duet_denoise_run;
duet_status duet_denoiser_run(duet_denoiser *denoiser, const duet_denoise_run *run, duet_error *err);

/* Hand out what a run starts from, as far as `tap` wants it: position_ids, token_tags, timestep_indices,
 * sigmas_video, sigmas_audio, video_noise, audio_noise. Needs no device; the engine calls it before the
 * denoiser is opened. */
duet_status duet_denoise_tap_inputs(const duet_dit_config *config, const duet_packed *packed,
                                    const duet_schedule *schedule, const float *video_noise,
                                    const float *audio_noise, duet_tap *tap, duet_error *err);

/* For the plan. Rows count conditions too; n_distinct as in duet_timestep_plan. */
typedef struct duet_denoise_sizes {
    int64_t rows, text_rows, video_rows, audio_rows, target_video_rows, target_audio_rows, n_distinct;
} duet_denoise_sizes;
int64_t duet_denoise_activation_bytes(const duet_dit_config *config, const duet_denoise_sizes *sizes);
int64_t duet_denoise_scratch_bytes(const duet_dit_config *config, const duet_device *dev,
                                   const duet_denoise_sizes *sizes);
int64_t duet_denoise_host_bytes(const duet_dit_config *config, const duet_denoise_sizes *sizes);

#endif
