/* pipeline.h - whole requests inside a test: a random checkpoint, duet_run, and a sink that keeps the clip in memory. */
#ifndef DUET_TESTS_PIPELINE_H
#define DUET_TESTS_PIPELINE_H

#include "engine/engine.h"

/* Make (once per test process) a tiny checkpoint in the test's own folder; "native" or "diffusers". Returns its path, static per layout. */
const char *pipeline_model(uint64_t seed, const char *layout);

typedef struct pipeline_spec {
    const char *model, *backend; /* backend NULL = "cpu" */
    int threads;                 /* 0 = 1 */
    const char *prompt;          /* NULL = "a small test" */
    int32_t width, height;
    int64_t frames, points, seed;
    const char *noise, *init_noise, *dump_dir;
    const volatile int *cancel;
} pipeline_spec;

typedef struct pipeline_clip {
    duet_clip_format format;
    uint8_t *rgb;                         /* [F,H,W,3] */
    float *sound;                         /* [2, samples] */
    float *video_latents, *audio_latents; /* as they entered decoding */
    int64_t n_video_latents, n_audio_latents;
    int64_t frames_got;
    bool committed;
} pipeline_clip;

/* Runs the request; returns the status (err filled) and what came out. Free the clip in either case. */
duet_status pipeline_try(const pipeline_spec *spec, pipeline_clip *out, duet_error *err);
void pipeline_make(const pipeline_spec *spec, pipeline_clip *out); /* fails the test on error */
void pipeline_free(pipeline_clip *clip);
void pipeline_expect_same(const pipeline_clip *a, const pipeline_clip *b, const char *what); /* every byte */

double pipeline_rel_l2(const float *got, const float *want, int64_t n);

#endif
