/* bench_stages.c - see bench_stages.h. Each stage holds its own networks and buffers, and lets go of all of
 * them. */
#include "cli/bench_stages.h"

#include <string.h>

#include "base/alloc.h"
#include "base/torch_rng.h"
#include "engine/progress.h"

enum { GEMM_ROWS = 2048, GEMM_INNER = 2048, GEMM_COLS = 4096 };
const double BENCH_GEMM_FLOPS = 2.0 * GEMM_ROWS * GEMM_INNER * GEMM_COLS;
const double BENCH_COPY_BYTES = 2.0 * GEMM_ROWS * GEMM_COLS * sizeof(float);

static float *host_randn(uint64_t seed, int64_t n) {
    float *x = duet_alloc((size_t)n * sizeof *x, DUET_MEM_ENGINE);
    duet_torch_rng rng;
    if (!x) return NULL;
    duet_torch_rng_seed(&rng, seed);
    duet_torch_randn(&rng, x, n);
    return x;
}

static duet_status device_floats(bench *b, int64_t n, const char *what, float **out, duet_error *err) {
    return duet_device_alloc(b->device, n * (int64_t)sizeof(float), what, (void **)out, err);
}

static duet_status device_randn(bench *b, uint64_t seed, int64_t n, const char *what, float **out,
                                duet_error *err) {
    float *host = host_randn(seed, n);
    if (!host) return duet_fail(err, DUET_E_MEMORY, "bench: out of memory");
    duet_status st = device_floats(b, n, what, out, err);
    if (st == DUET_OK) duet_copy_in(b->stream, *out, host, n * (int64_t)sizeof(float));
    duet_free(host);
    return st;
}

/* ---- transformer evaluation
 * -------------------------------------------------------------------------------- */

static duet_status pack(bench *b, duet_error *err) {
    const duet_plan *p = &b->plan;
    const duet_dit_config *d = &b->config->dit;
    duet_status st = duet_pack_rows(&(duet_pack_spec){.text_rows = p->text_rows,
                                                      .video_latents = p->video_latents,
                                                      .audio_latents = p->audio_latents,
                                                      .latent_h = p->latent_h,
                                                      .latent_w = p->latent_w,
                                                      .patch_h = d->patch_h,
                                                      .patch_w = d->patch_w},
                                    &b->packed, err);
    if (st != DUET_OK) return st;
    b->row_timestep = duet_calloc((size_t)p->rows, sizeof *b->row_timestep, DUET_MEM_ENGINE);
    if (!b->row_timestep) return duet_fail(err, DUET_E_MEMORY, "bench: out of memory");
    for (int s = 0; s < b->packed.n_segments; s++) {
        const duet_segment *segment = &b->packed.segment[s];
        for (int64_t i = 0; i < segment->rows; i++)
            b->row_timestep[segment->first + i] = segment->kind == DUET_ROWS_AUDIO_TARGET;
    }
    return DUET_OK;
}

duet_status bench_open_evaluation(bench *b, duet_error *err) {
    static const float timesteps[BENCH_TIMESTEPS] = {0.5f, 0.75f};
    const duet_plan *p = &b->plan;
    const duet_dit_config *d = &b->config->dit;
    int64_t width = (int64_t)d->video_channels * d->patch_t * d->patch_h * d->patch_w;
    duet_status st;
    TRY(st, fail, pack(b, err));
    TRY(st, fail, device_randn(b, 101, p->text_rows * d->text_dim, "bench text", &b->text, err));
    TRY(st, fail, device_randn(b, 102, p->video_rows * width, "bench video rows", &b->video_rows, err));
    TRY(st, fail,
        device_randn(b, 103, p->audio_rows * d->audio_channels, "bench audio rows", &b->audio_rows, err));
    TRY(st, fail, device_floats(b, p->video_rows * width, "bench velocity", &b->video_velocity, err));
    TRY(st, fail,
        device_floats(b, p->audio_rows * d->audio_channels, "bench velocity", &b->audio_velocity, err));
    TRY(st, fail, duet_dit_open(b->model, b->device, &b->dit, err));
    TRY(st, fail,
        duet_dit_tables_build(b->dit, b->residency, b->stream, timesteps, BENCH_TIMESTEPS, &b->tables, NULL,
                              err));
    TRY(st, fail,
        duet_dit_state_open(b->dit, b->residency, b->stream, &b->packed.layout, b->text, NULL, &b->state,
                            err));
    TRY(st, fail, duet_stream_sync(b->stream, err));
fail:
    return st;
}

static void tap_velocities(bench *b) {
    const duet_plan *p = &b->plan;
    const duet_dit_config *d = &b->config->dit;
    int64_t width = (int64_t)d->video_channels * d->patch_t * d->patch_h * d->patch_w,
            audio = d->audio_channels;
    if (duet_tap_wants(b->tap, "step_000.video_velocity"))
        b->tap->take_device(b->tap, b->stream, "step_000.video_velocity", b->video_velocity, p->video_rows,
                            width, width, &DUET_SHAPE(p->video_rows, width));
    if (duet_tap_wants(b->tap, "step_000.audio_velocity"))
        b->tap->take_device(b->tap, b->stream, "step_000.audio_velocity", b->audio_velocity, p->audio_rows,
                            audio, audio, &DUET_SHAPE(p->audio_rows, audio));
}

duet_status bench_evaluation(bench *b, duet_error *err) {
    duet_status st;
    TRY(st, fail,
        duet_dit_begin(b->dit, b->residency, b->stream, b->state, b->tables, b->row_timestep, b->video_rows,
                       b->audio_rows, NULL, err));
    for (int i = 0; i < b->config->dit.layers; i++)
        TRY(st, fail, duet_dit_block(b->dit, b->residency, b->stream, b->state, b->tables, i, NULL, err));
    TRY(st, fail,
        duet_dit_head(b->dit, b->residency, b->stream, b->state, b->tables, b->video_velocity,
                      b->audio_velocity, NULL, err));
    tap_velocities(b);
    TRY(st, fail, duet_stream_sync(b->stream, err));
fail:
    return st;
}

/* ---- decoders
 * -------------------------------------------------------------------------------------------------- */

duet_status bench_open_video(bench *b, duet_error *err) {
    const duet_plan *p = &b->plan;
    int64_t n = (int64_t)b->config->vvae.latent_channels * p->video_latents * p->latent_h * p->latent_w;
    b->video_latents = host_randn(104, n);
    if (!b->video_latents) return duet_fail(err, DUET_E_MEMORY, "bench: out of memory");
    return duet_video_vae_open(b->model, b->device, &b->video, err);
}

duet_status bench_video(bench *b, duet_error *err) {
    return duet_decode_video(&(duet_decode_video_args){.vae = b->video,
                                                       .residency = b->residency,
                                                       .stream = b->stream,
                                                       .config = &b->config->vvae,
                                                       .latents = b->video_latents,
                                                       .latents_t = b->plan.video_latents,
                                                       .latent_h = b->plan.latent_h,
                                                       .latent_w = b->plan.latent_w,
                                                       .tap = b->tap},
                             err);
}

duet_status bench_open_audio(bench *b, duet_error *err) {
    int64_t n = 2 * (int64_t)b->config->avae.latent_channels * b->plan.audio_latents;
    b->audio_latents = host_randn(105, n);
    b->samples = duet_alloc((size_t)(2 * b->plan.audio_samples) * sizeof(float), DUET_MEM_ENGINE);
    if (!b->audio_latents || !b->samples) return duet_fail(err, DUET_E_MEMORY, "bench: out of memory");
    return duet_audio_vae_open(b->model, b->device, &b->audio, err);
}

duet_status bench_audio(bench *b, duet_error *err) {
    return duet_decode_audio(&(duet_decode_audio_args){.vae = b->audio,
                                                       .residency = b->residency,
                                                       .stream = b->stream,
                                                       .config = &b->config->avae,
                                                       .latents = b->audio_latents,
                                                       .n_latents = b->plan.audio_latents,
                                                       .samples = b->samples,
                                                       .tap = b->tap},
                             err);
}

/* ---- ceilings
 * -------------------------------------------------------------------------------------------------- */

duet_status bench_open_gemm(bench *b, duet_error *err) {
    duet_status st;
    b->gemm_w = host_randn(107, (int64_t)GEMM_COLS * GEMM_INNER);
    if (!b->gemm_w) return duet_fail(err, DUET_E_MEMORY, "bench: out of memory");
    TRY(st, fail, device_randn(b, 106, (int64_t)GEMM_ROWS * GEMM_INNER, "bench product", &b->gemm_x, err));
    TRY(st, fail, device_floats(b, (int64_t)GEMM_ROWS * GEMM_COLS * 2, "bench product", &b->gemm_y, err));
    b->gemm_weight = duet_weight_view("bench", DUET_F32, DUET_SHAPE(GEMM_COLS, GEMM_INNER), b->gemm_w);
    TRY(st, fail, duet_weight_prepare(b->device, &b->gemm_weight, err));
fail:
    return st;
}

duet_status bench_gemm(bench *b, duet_error *err) {
    duet_linear(b->stream, &(duet_linear_args){.x = b->gemm_x,
                                               .y = b->gemm_y,
                                               .w = &b->gemm_weight,
                                               .rows = GEMM_ROWS,
                                               .cols_in = GEMM_INNER,
                                               .cols_out = GEMM_COLS,
                                               .x_stride = GEMM_INNER,
                                               .y_stride = GEMM_COLS});
    return duet_stream_sync(b->stream, err);
}

duet_status bench_copy(bench *b, duet_error *err) {
    float *to = b->gemm_y + (int64_t)GEMM_ROWS * GEMM_COLS;
    duet_copy_rows(b->stream, &(duet_copy_rows_args){.x = b->gemm_y,
                                                     .y = to,
                                                     .rows = GEMM_ROWS,
                                                     .cols = GEMM_COLS,
                                                     .x_stride = GEMM_COLS,
                                                     .y_stride = GEMM_COLS});
    return duet_stream_sync(b->stream, err);
}

/* ---- letting go
 * ------------------------------------------------------------------------------------------------ */

static void free_device(bench *b, float **address) {
    duet_device_free(b->device, *address);
    *address = NULL;
}

void bench_close_stage(bench *b) {
    if (b->stream) duet_stream_sync(b->stream, NULL);
    if (b->state) duet_dit_state_close(b->dit, &b->state);
    if (b->tables) duet_dit_tables_free(b->dit, &b->tables);
    duet_residency_close(&b->residency); /* before the networks whose units it remembers */
    duet_dit_close(&b->dit);
    duet_video_vae_close(&b->video);
    duet_audio_vae_close(&b->audio);
    if (b->gemm_weight.name) duet_weight_unprepare(b->device, &b->gemm_weight);
    b->gemm_weight = (duet_weight){0};
    duet_packed_free(&b->packed);
    float **device[] = {&b->text,           &b->video_rows, &b->audio_rows, &b->video_velocity,
                        &b->audio_velocity, &b->gemm_x,     &b->gemm_y};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++) free_device(b, device[i]);
    float **host[] = {&b->video_latents, &b->audio_latents, &b->samples, &b->gemm_w};
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++) {
        duet_free(*host[i]);
        *host[i] = NULL;
    }
    duet_free(b->row_timestep);
    b->row_timestep = NULL;
}
