/* dit_case.h - one denoise of one request on one device, from host text embeddings to host rows: what
 * parity and property tests of the transformer share. Everything is opened and closed inside a run. */
#ifndef DUET_DIT_CASE_H
#define DUET_DIT_CASE_H

#include "harness/collect.h"
#include "harness/fixture.h"

#include "engine/condition.h"
#include "engine/denoise.h"
#include "engine/geometry.h"
#include "engine/noise.h"
#include "engine/residency.h"
#include "nn/transformer_int.h"

typedef struct dit_case {
    const char *model; /* directory */
    const char *backend, *cpu_level;
    int threads;
    int32_t width, height;
    int64_t frames, points, text_rows;
    const int32_t *text_tags;  /* NULL = all 1 */
    const float *text;         /* [text_rows, text_dim]; NULL: made from text_seed */
    const int32_t *ids;        /* [text_rows]: the text encoder makes the text states; then text is ignored */
    duet_schedule_spec ladder; /* replaces points and the model's shifts where set */
    duet_noise_stream stream;
    uint64_t text_seed, seed;               /* noise */
    const float *video_noise, *audio_noise; /* NULL: drawn */
    const duet_pack_condition *conditions;
    int n_conditions;
    const float *video_conditions, *audio_conditions; /* rows, as many as the conditions have */
    int64_t mlp_budget_bytes;                         /* 0 = as shipped */
    const duet_progress *progress;
    collector *taps;
    void (*spoil)(duet_dit *dit); /* called after open: fault injection */
} dit_case;

typedef struct dit_result {
    int64_t n_video, n_audio;
    float *video, *audio; /* final rows */
    duet_status status;
    duet_error error;
    int64_t planned_bytes, peak_bytes; /* device buffers, the text embeddings left out */
} dit_result;

static inline void dit_result_free(dit_result *r) {
    free(r->video);
    free(r->audio);
    *r = (dit_result){0};
}

/* Smooth-ish random text states of the size a text encoder gives. */
static inline float *dit_make_text(int64_t n, uint64_t seed) {
    uint64_t s = seed * 2654435761u + 88172645463325252u;
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (int k = 0; k < 4; k++) {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            sum += (double)(s >> 11) * 0x1p-53 - 0.5;
        }
        x[i] = (float)(6.0 * sum); /* std 3.5 */
    }
    return x;
}

typedef struct dit_parts {
    duet_model *model;
    duet_device *dev;
    duet_stream *stream;
    duet_residency *residency;
    duet_dit *dit;
    duet_denoiser *denoiser;
    duet_packed packed;
    duet_schedule schedule;
    float *text, *video_noise, *audio_noise;
} dit_parts;

static inline void dit_prepare(const dit_case *c, dit_parts *p) {
    duet_error err = {0};
    EXPECT_OK(duet_model_open(&(duet_model_options){.path = c->model}, &p->model, &err), err);
    const duet_model_config *config = duet_model_config_get(p->model);
    duet_device_options options = {.backend = c->backend, .n_threads = c->threads, .cpu_level = c->cpu_level};
    EXPECT_OK(duet_device_open(&options, &p->dev, &err), err);
    EXPECT_OK(duet_dit_open(p->model, p->dev, &p->dit, &err), err);
    if (c->mlp_budget_bytes) p->dit->mlp_budget_bytes = c->mlp_budget_bytes;
    if (c->spoil) c->spoil(p->dit);
    duet_schedule_spec spec = c->ladder;
    if (!spec.points) spec.points = c->points;
    if (spec.video_shift == 0.0) spec.video_shift = config->video_shift;
    if (spec.audio_shift == 0.0) spec.audio_shift = config->audio_shift;
    EXPECT_OK(duet_schedule_build(&spec, &p->schedule, &err), err);
    duet_pack_spec pack = {.text_rows = c->text_rows,
                           .text_tags = c->text_tags,
                           .conditions = c->conditions,
                           .n_conditions = c->n_conditions,
                           .video_latents = duet_video_latents_for_frames(c->frames),
                           .audio_latents = duet_audio_latents_for_frames(c->frames),
                           .latent_h = c->height / 16,
                           .latent_w = c->width / 16,
                           .patch_h = config->dit.patch_h,
                           .patch_w = config->dit.patch_w};
    EXPECT_OK(duet_pack_rows(&pack, &p->packed, &err), err);
    duet_noise_args noise = {.seed = c->seed,
                             .stream = c->stream,
                             .channels = config->dit.video_channels,
                             .latent_h = pack.latent_h,
                             .latent_w = pack.latent_w,
                             .patch_h = pack.patch_h,
                             .patch_w = pack.patch_w,
                             .audio_channels = config->dit.audio_channels,
                             .video_latents = pack.video_latents,
                             .audio_latents = pack.audio_latents};
    noise.video_rows = p->video_noise =
        calloc((size_t)(p->packed.target_video_rows * duet__dit_video_width(&config->dit)), sizeof(float));
    noise.audio_rows = p->audio_noise =
        calloc((size_t)(p->packed.target_audio_rows * config->dit.audio_channels), sizeof(float));
    EXPECT_OK(duet_noise_draw(&noise, &err), err);
}

static inline duet_denoise_sizes dit_sizes(const dit_parts *p) {
    duet_timestep_plan times;
    int64_t conditions = p->packed.condition_video_rows + p->packed.condition_audio_rows;
    EXPECT(duet_timestep_plan_build(&p->schedule, conditions > 0, &times, NULL) == DUET_OK);
    duet_denoise_sizes z = {.rows = p->packed.layout.rows,
                            .text_rows = p->packed.layout.text_rows,
                            .video_rows = p->packed.condition_video_rows + p->packed.target_video_rows,
                            .audio_rows = p->packed.condition_audio_rows + p->packed.target_audio_rows,
                            .target_video_rows = p->packed.target_video_rows,
                            .target_audio_rows = p->packed.target_audio_rows,
                            .n_distinct = times.n_distinct};
    duet_timestep_plan_free(&times);
    return z;
}

static inline void dit_make_states(const dit_case *c, dit_parts *p, int64_t text_bytes, duet_error *err) {
    if (c->ids) {
        EXPECT_OK(
            duet_condition_text(p->model, p->dev, p->stream, c->ids, c->text_rows, &p->text, NULL, NULL, err),
            *err);
        return;
    }
    EXPECT_OK(duet_device_alloc(p->dev, text_bytes, "text", (void **)&p->text, err), *err);
    float *made = c->text ? NULL : dit_make_text(text_bytes / 4, c->text_seed);
    duet_copy_in(p->stream, p->text, c->text ? c->text : made, text_bytes);
    free(made);
}

static inline void dit_denoise(const dit_case *c, dit_parts *p, dit_result *r) {
    const duet_dit_config *config = duet_dit_config_get(p->dit);
    int64_t text_bytes = c->text_rows * config->text_dim * (int64_t)sizeof(float);
    duet_denoise_sizes sizes = dit_sizes(p);
    duet_error *err = &r->error;
    r->planned_bytes = duet_denoise_activation_bytes(config, &sizes);
    EXPECT_OK(duet_stream_open(p->dev, duet_denoise_scratch_bytes(config, p->dev, &sizes), &p->stream, err),
              *err);
    EXPECT_OK(duet_residency_open(p->dev, &p->residency, err), *err);
    dit_make_states(c, p, text_bytes, err);
    duet_tap *tap = c->taps ? &c->taps->tap : NULL;
    const float *video_noise = c->video_noise ? c->video_noise : p->video_noise;
    const float *audio_noise = c->audio_noise ? c->audio_noise : p->audio_noise;
    r->status = duet_denoise_tap_inputs(config, &p->packed, &p->schedule, video_noise, audio_noise, tap, err);
    duet_denoise_setup setup = {.dit = p->dit,
                                .residency = p->residency,
                                .stream = p->stream,
                                .packed = &p->packed,
                                .schedule = &p->schedule,
                                .text = p->text,
                                .video_conditions = c->video_conditions,
                                .audio_conditions = c->audio_conditions,
                                .tap = tap,
                                .progress = c->progress};
    if (r->status == DUET_OK) r->status = duet_denoiser_open(&setup, &p->denoiser, err);
    if (r->status == DUET_OK)
        r->status = duet_denoiser_run(p->denoiser,
                                      &(duet_denoise_run){.video_noise = video_noise,
                                                          .audio_noise = audio_noise,
                                                          .video_rows = r->video,
                                                          .audio_rows = r->audio},
                                      err);
    r->peak_bytes = duet_device_peak_bytes(p->dev) - text_bytes;
}

/* Runs the case; r->status says how it ended. Nothing may be left on the device afterwards. */
static inline dit_result dit_run(const dit_case *c) {
    dit_parts p = {0};
    dit_result r = {0};
    dit_prepare(c, &p);
    const duet_dit_config *config = duet_dit_config_get(p.dit);
    r.n_video = p.packed.target_video_rows * duet__dit_video_width(config);
    r.n_audio = p.packed.target_audio_rows * config->audio_channels;
    r.video = calloc((size_t)r.n_video, sizeof(float));
    r.audio = calloc((size_t)r.n_audio, sizeof(float));
    dit_denoise(c, &p, &r);
    duet_denoiser_close(&p.denoiser);
    duet_residency_close(&p.residency);
    duet_device_free(p.dev, p.text);
    duet_stream_close(&p.stream);
    EXPECT_EQ(duet_device_live_bytes(p.dev), 0);
    duet_dit_close(&p.dit);
    duet_device_close(&p.dev);
    duet_model_close(&p.model);
    duet_packed_free(&p.packed);
    duet_schedule_free(&p.schedule);
    free(p.video_noise);
    free(p.audio_noise);
    return r;
}

#endif
