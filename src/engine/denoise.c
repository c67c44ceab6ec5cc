/* denoise.c - the loop over evaluations. See denoise.h for the picture and the invariants.
 *
 *     x (device) = [ condition rows | target rows ], per modality; only the target rows ever change
 *     evaluation: begin(x) -> blocks -> head = velocity -> x += Euler -> checks -> taps
 *
 * The solver is kept in the reference's form, x' = r x + (1 - r)(x + s v) with r from the sigmas and s
 * from the timestep that the network was told (spec model-dit 11.2): for sigma below 0.5 the two differ in
 * the last bit. */
#include "engine/denoise.h"

#include <stdio.h>

#include "base/alloc.h"
#include "engine/checks.h"

enum { FLOAT_BYTES = (int)sizeof(float), STATS = 3 };

/* One modality's side of the loop. */
typedef struct side {
    const char *name;
    int64_t width, condition_rows, target_rows;
    float *rows, *velocity; /* device: all rows, target rows */
    const float *sigma;     /* schedule */
} side;

enum { VIDEO, AUDIO, SIDES };

struct duet_denoiser {
    duet_denoise_setup setup;
    duet_device *dev;
    duet_timestep_plan times;
    duet_dit_tables *tables;
    duet_dit_state *state;
    side side[SIDES];
    float *stats;       /* device [SIDES, 2, STATS]: velocity, latents */
    int32_t *row_times; /* host [rows] */
};

static float *target_rows(const side *s) {
    return s->rows + s->condition_rows * s->width;
}

static int64_t target_values(const side *s) {
    return s->target_rows * s->width;
}

/* ---- opening ---- */

/* The sum of these is buffer_bytes. */
static duet_status allocate(duet_denoiser *d, duet_error *err) {
    duet_status st;
    for (int i = 0; i < SIDES; i++) {
        side *s = &d->side[i];
        int64_t row_bytes = s->width * FLOAT_BYTES;
        TRY(st, fail,
            duet_device_alloc(d->dev, (s->condition_rows + s->target_rows) * row_bytes, "latent rows",
                              (void **)&s->rows, err));
        TRY(st, fail,
            duet_device_alloc(d->dev, s->target_rows * row_bytes, "velocity", (void **)&s->velocity, err));
    }
    TRY(st, fail,
        duet_device_alloc(d->dev, SIDES * 2 * STATS * FLOAT_BYTES, "checks", (void **)&d->stats, err));
    d->row_times = duet_calloc((size_t)d->setup.packed->layout.rows, sizeof(int32_t), DUET_MEM_ENGINE);
    if (!d->row_times) st = duet_fail(err, DUET_E_MEMORY, "no memory for row times");
fail:
    return st;
}

static void upload_conditions(duet_denoiser *d) {
    const float *host[SIDES] = {d->setup.video_conditions, d->setup.audio_conditions};
    for (int i = 0; i < SIDES; i++) {
        const side *s = &d->side[i];
        duet_copy_in(d->setup.stream, s->rows, host[i], s->condition_rows * s->width * FLOAT_BYTES);
    }
}

static void describe_sides(duet_denoiser *d) {
    const duet_dit_config *c = duet_dit_config_get(d->setup.dit);
    const duet_packed *p = d->setup.packed;
    d->side[VIDEO] = (side){.name = "video",
                            .width = (int64_t)c->video_channels * c->patch_t * c->patch_h * c->patch_w,
                            .condition_rows = p->condition_video_rows,
                            .target_rows = p->target_video_rows,
                            .sigma = d->setup.schedule->sigma_video};
    d->side[AUDIO] = (side){.name = "audio",
                            .width = c->audio_channels,
                            .condition_rows = p->condition_audio_rows,
                            .target_rows = p->target_audio_rows,
                            .sigma = d->setup.schedule->sigma_audio};
}

static bool has_conditions(const duet_packed *packed) {
    return packed->condition_video_rows + packed->condition_audio_rows > 0;
}

static duet_status prepare(duet_denoiser *d, duet_error *err) {
    const duet_denoise_setup *s = &d->setup;
    duet_status st;
    describe_sides(d);
    if ((d->side[VIDEO].condition_rows && !s->video_conditions) ||
        (d->side[AUDIO].condition_rows && !s->audio_conditions))
        return duet_fail(err, DUET_E_INTERNAL, "condition rows without values");
    TRY(st, fail, duet_timestep_plan_build(s->schedule, has_conditions(s->packed), &d->times, err));
    TRY(st, fail, duet_progress_step(s->progress, DUET_STAGE_DENOISE, 0, d->times.evaluations, err));
    TRY(st, fail,
        duet_dit_tables_build(s->dit, s->residency, s->stream, d->times.timesteps, d->times.n_distinct,
                              &d->tables, s->tap, err));
    TRY(st, fail, allocate(d, err));
    upload_conditions(d);
    TRY(st, fail,
        duet_dit_state_open(s->dit, s->residency, s->stream, &s->packed->layout, s->text, s->tap, &d->state,
                            err));
    TRY(st, fail, duet_stream_sync(s->stream, err));
fail:
    return st;
}

/* Cancellation is no failure of the stage: its message stays as it is. */
static duet_status name_stage(duet_status st, duet_error *err) {
    if (st != DUET_OK && st != DUET_E_CANCELLED) duet_error_prefix(err, "denoise");
    return st;
}

duet_status duet_denoiser_open(const duet_denoise_setup *setup, duet_denoiser **out, duet_error *err) {
    *out = NULL;
    duet_denoiser *d = duet_calloc(1, sizeof *d, DUET_MEM_ENGINE);
    if (!d) return duet_fail(err, DUET_E_MEMORY, "denoise: out of memory");
    d->setup = *setup;
    d->dev = duet_stream_device(setup->stream);
    duet_status st = prepare(d, err);
    if (st != DUET_OK) duet_denoiser_close(&d);
    *out = d;
    return name_stage(st, err);
}

void duet_denoiser_close(duet_denoiser **denoiser) {
    duet_denoiser *d = *denoiser;
    if (!d) return;
    *denoiser = NULL;
    duet_stream_sync(d->setup.stream, NULL);
    duet_dit_state_close(d->setup.dit, &d->state);
    duet_dit_tables_free(d->setup.dit, &d->tables);
    for (int i = 0; i < SIDES; i++) {
        duet_device_free(d->dev, d->side[i].rows);
        duet_device_free(d->dev, d->side[i].velocity);
    }
    duet_device_free(d->dev, d->stats);
    duet_free(d->row_times);
    duet_timestep_plan_free(&d->times);
    duet_free(d);
}

/* ---- running ---- */

/* One output's run over an opened denoiser. */
typedef struct runner {
    duet_denoiser *d;
    duet_tap *tap;
    const duet_progress *progress;
    int64_t evaluation;
} runner;

static duet_status network(const runner *r, duet_error *err) {
    const duet_denoiser *d = r->d;
    const duet_denoise_setup *s = &d->setup;
    duet_status st;
    duet_timestep_rows(&d->times, s->packed, r->evaluation, d->row_times);
    TRY(st, fail,
        duet_dit_begin(s->dit, s->residency, s->stream, d->state, d->tables, d->row_times,
                       d->side[VIDEO].rows, d->side[AUDIO].rows, r->tap, err));
    for (int block = 0; block < duet_dit_config_get(s->dit)->layers; block++) {
        if (r->progress && r->progress->cancel && *r->progress->cancel)
            return duet_fail(err, DUET_E_CANCELLED, "cancelled");
        TRY(st, fail,
            duet_dit_block(s->dit, s->residency, s->stream, d->state, d->tables, block, r->tap, err));
    }
    TRY(st, fail,
        duet_dit_head(s->dit, s->residency, s->stream, d->state, d->tables, d->side[VIDEO].velocity,
                      d->side[AUDIO].velocity, r->tap, err));
fail:
    return st;
}

static void solver_step(const runner *r, const side *s) {
    float sigma = s->sigma[r->evaluation], next = s->sigma[r->evaluation + 1];
    float timestep = 1.0f - sigma;
    duet_euler(r->d->setup.stream, &(duet_euler_args){.x = target_rows(s),
                                                      .velocity = s->velocity,
                                                      .n = target_values(s),
                                                      .st = 1.0f - timestep,
                                                      .ratio = next / sigma});
}

static void look_at(const runner *r, const side *s, const char *what, const float *x, float *stats) {
    duet_stream *stream = r->d->setup.stream;
    char name[64];
    duet_stats(stream,
               &(duet_stats_args){
                   .x = x, .result = stats, .rows = s->target_rows, .cols = s->width, .x_stride = s->width});
    if (!r->tap) return;
    snprintf(name, sizeof name, "step_%03lld.%s_%s", (long long)r->evaluation, s->name, what);
    if (r->tap->wants(r->tap, name))
        r->tap->take_device(r->tap, stream, name, x, s->target_rows, s->width, s->width,
                            &DUET_SHAPE(s->target_rows, s->width));
}

/* Wait for the evaluation and judge what it made: the one synchronisation of a step (P5). */
static duet_status judge(const runner *r, duet_error *err) {
    static const char *const what[2] = {"velocity", "latents"};
    const duet_denoiser *d = r->d;
    float stats[SIDES][2][STATS];
    duet_copy_out(d->setup.stream, stats, d->stats, (int64_t)sizeof stats);
    duet_status st = duet_stream_sync(d->setup.stream, err);
    for (int k = 0; k < 2 && st == DUET_OK; k++)
        for (int i = 0; i < SIDES && st == DUET_OK; i++)
            st = duet_check_stats(stats[i][k], target_values(&d->side[i]), err,
                                  "evaluation %lld of %lld: %s_%s", (long long)r->evaluation + 1,
                                  (long long)d->times.evaluations, d->side[i].name, what[k]);
    return st;
}

static duet_status evaluate(const runner *r, duet_error *err) {
    duet_status st = network(r, err);
    if (st != DUET_OK) return st;
    for (int i = 0; i < SIDES; i++) {
        const side *s = &r->d->side[i];
        float *stats = r->d->stats + i * 2 * STATS;
        look_at(r, s, "velocity", s->velocity, stats);
        solver_step(r, s);
        look_at(r, s, "latents", target_rows(s), stats + STATS);
    }
    return judge(r, err);
}

static duet_status run_all(runner *r, const duet_denoise_run *run, duet_error *err) {
    duet_denoiser *d = r->d;
    duet_stream *stream = d->setup.stream;
    const float *noise[SIDES] = {run->video_noise, run->audio_noise};
    float *out[SIDES] = {run->video_rows, run->audio_rows};
    int64_t evaluations = d->times.evaluations;
    duet_status st;
    for (int i = 0; i < SIDES; i++)
        duet_copy_in(stream, target_rows(&d->side[i]), noise[i], target_values(&d->side[i]) * FLOAT_BYTES);
    for (; r->evaluation < evaluations; r->evaluation++) {
        TRY(st, fail, duet_progress_step(r->progress, DUET_STAGE_DENOISE, r->evaluation, evaluations, err));
        TRY(st, fail, evaluate(r, err));
    }
    for (int i = 0; i < SIDES; i++)
        duet_copy_out(stream, out[i], target_rows(&d->side[i]), target_values(&d->side[i]) * FLOAT_BYTES);
    TRY(st, fail, duet_stream_sync(stream, err));
    duet_progress_tell(r->progress, DUET_STAGE_DENOISE, evaluations, evaluations);
    return DUET_OK;
fail:
    duet_stream_sync(stream, NULL); /* the caller may free what it gave */
    return st;
}

duet_status duet_denoiser_run(duet_denoiser *denoiser, const duet_denoise_run *run, duet_error *err) {
    runner r = {.d = denoiser,
                .tap = run->tap ? run->tap : denoiser->setup.tap,
                .progress = run->progress ? run->progress : denoiser->setup.progress};
    return name_stage(run_all(&r, run, err), err);
}

/* ---- taps of the inputs ---- */

static void tap_host(duet_tap *tap, const char *name, duet_dtype dtype, duet_shape shape, const void *data) {
    if (data && duet_tap_wants(tap, name)) tap->take_host(tap, name, dtype, &shape, data);
}

static duet_status tap_row_times(const duet_packed *packed, const duet_schedule *schedule, duet_tap *tap,
                                 duet_error *err) {
    int64_t rows = packed->layout.rows, evaluations = schedule->points - 1;
    duet_timestep_plan times;
    duet_status st = duet_timestep_plan_build(schedule, has_conditions(packed), &times, err);
    if (st != DUET_OK) return st;
    int32_t *all = duet_calloc((size_t)evaluations, (size_t)rows * sizeof *all, DUET_MEM_ENGINE);
    if (all) {
        for (int64_t e = 0; e < evaluations; e++) duet_timestep_rows_local(&times, packed, e, all + e * rows);
        tap_host(tap, "timestep_indices", DUET_I32, DUET_SHAPE(evaluations, rows), all);
    } else {
        st = duet_fail(err, DUET_E_MEMORY, "no memory for timestep_indices");
    }
    duet_free(all);
    duet_timestep_plan_free(&times);
    return st;
}

duet_status duet_denoise_tap_inputs(const duet_dit_config *c, const duet_packed *packed,
                                    const duet_schedule *schedule, const float *video_noise,
                                    const float *audio_noise, duet_tap *tap, duet_error *err) {
    if (!tap) return DUET_OK;
    int64_t width = (int64_t)c->video_channels * c->patch_t * c->patch_h * c->patch_w,
            rows = packed->layout.rows;
    tap_host(tap, "position_ids", DUET_F64, DUET_SHAPE(rows, 3), packed->position_ids);
    tap_host(tap, "token_tags", DUET_I32, DUET_SHAPE(rows), packed->token_tags);
    tap_host(tap, "sigmas_video", DUET_F32, DUET_SHAPE(schedule->points), schedule->sigma_video);
    tap_host(tap, "sigmas_audio", DUET_F32, DUET_SHAPE(schedule->points), schedule->sigma_audio);
    tap_host(tap, "video_noise", DUET_F32, DUET_SHAPE(packed->target_video_rows, width), video_noise);
    tap_host(tap, "audio_noise", DUET_F32, DUET_SHAPE(packed->target_audio_rows, c->audio_channels),
             audio_noise);
    return duet_tap_wants(tap, "timestep_indices") ? tap_row_times(packed, schedule, tap, err) : DUET_OK;
}

/* ---- sizes ---- */

static int64_t buffer_bytes(const duet_dit_config *c, const duet_denoise_sizes *z) {
    int64_t width = (int64_t)c->video_channels * c->patch_t * c->patch_h * c->patch_w;
    int64_t video = (z->video_rows + z->target_video_rows) * width;
    int64_t audio = (z->audio_rows + z->target_audio_rows) * c->audio_channels;
    return (video + audio + SIDES * 2 * STATS) * FLOAT_BYTES;
}

int64_t duet_denoise_activation_bytes(const duet_dit_config *c, const duet_denoise_sizes *z) {
    int64_t building = duet_dit_table_temp_bytes(c, z->n_distinct);
    int64_t running = duet_dit_activation_bytes(c, z->rows, z->text_rows) + buffer_bytes(c, z);
    return duet_dit_table_bytes(c, z->n_distinct) + (building > running ? building : running);
}

int64_t duet_denoise_scratch_bytes(const duet_dit_config *c, const duet_device *dev,
                                   const duet_denoise_sizes *z) {
    int64_t building = duet_dit_table_scratch_bytes(c, dev, z->n_distinct);
    int64_t running = duet_dit_scratch_bytes(c, dev, z->rows, z->text_rows);
    return building > running ? building : running;
}

/* Row indices and, while the state is opened, one rotation table. Noise and final rows are the caller's. */
int64_t duet_denoise_host_bytes(const duet_dit_config *c, const duet_denoise_sizes *z) {
    return z->rows * (3 * (int64_t)sizeof(int32_t) + 3 * (int64_t)c->rope_freqs * FLOAT_BYTES);
}
