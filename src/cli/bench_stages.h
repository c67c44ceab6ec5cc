/* bench_stages.h - the stages that duet bench measures, each as a function that does the work once and waits
 * for it.
 *
 * Inputs are torch.randn of a fixed seed each, so that a peer can make the same ones and compare outputs
 * first:
 *
 *     seed 101 text [text rows, text width]      seed 102 video rows      seed 103 audio rows
 *     seed 104 video latents [C, T, h, w]        seed 105 audio latents [2, C, Ta]
 *
 * Timesteps of the evaluation: 0.5 for text and video rows, 0.75 for audio rows. */
#ifndef DUET_CLI_BENCH_STAGES_H
#define DUET_CLI_BENCH_STAGES_H

#include "engine/decode.h"
#include "engine/dump.h"
#include "engine/pack.h"
#include "engine/plan.h"
#include "engine/residency.h"

enum { BENCH_TIMESTEPS = 2 };

typedef struct bench {
    duet_model *model;
    duet_device *device;
    duet_stream *stream;
    duet_residency *residency;
    const duet_model_config *config;
    duet_plan plan;
    duet_tap *tap; /* NULL while measuring */
    /* transformer evaluation */
    duet_dit *dit;
    duet_dit_tables *tables;
    duet_dit_state *state;
    duet_packed packed;
    int32_t *row_timestep;
    float *text, *video_rows, *audio_rows, *video_velocity, *audio_velocity; /* device */
    /* decoders */
    duet_video_vae *video;
    duet_audio_vae *audio;
    float *video_latents, *audio_latents, *samples; /* host */
    /* ceilings */
    float *gemm_x, *gemm_w, *gemm_y; /* gemm_w on the host */
    duet_weight gemm_weight;
} bench;

typedef duet_status (*bench_fn)(bench *b, duet_error *err);

duet_status bench_open_evaluation(bench *b, duet_error *err);
duet_status bench_evaluation(bench *b, duet_error *err);
duet_status bench_open_video(bench *b, duet_error *err);
duet_status bench_video(bench *b, duet_error *err);
duet_status bench_open_audio(bench *b, duet_error *err);
duet_status bench_audio(bench *b, duet_error *err);

/* The largest product of fp32 that this backend's own kernels make: [2048, 2048] by [4096, 2048]. */
duet_status bench_open_gemm(bench *b, duet_error *err);
duet_status bench_gemm(bench *b, duet_error *err);
extern const double BENCH_GEMM_FLOPS;
/* One copy of the product's output: bytes read plus bytes written. */
duet_status bench_copy(bench *b, duet_error *err);
extern const double BENCH_COPY_BYTES;

void bench_close_stage(bench *b); /* everything a bench_open_* made; idempotent */

#endif
