/* pack_times.c - which noise level each row is told about, in each evaluation (spec model-dit 8).
 *
 * All distinct levels of a schedule share one list, so that the AdaLN tables are built once; rows of one kind
 * always share a level. At the first evaluation of the usual grid video and audio coincide at 0. */
#include "engine/pack.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

static const float VISUAL_CONDITION_TIME = 0.999f, AUDIO_CONDITION_TIME = 1.0f;

static float time_of(const duet_schedule *s, int64_t evaluation, duet_row_kind kind) {
    float video = 1.0f - s->sigma_video[evaluation], audio = 1.0f - s->sigma_audio[evaluation];
    switch (kind) {
    case DUET_ROWS_AUDIO_TARGET:
        return audio;
    case DUET_ROWS_VIDEO_CONDITION:
        return fmaxf(video, VISUAL_CONDITION_TIME);
    case DUET_ROWS_AUDIO_CONDITION:
        return fmaxf(audio, AUDIO_CONDITION_TIME);
    default:
        return video;
    }
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static int64_t sort_distinct(float *values, int64_t n) {
    qsort(values, (size_t)n, sizeof *values, by_value);
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (kept == 0 || values[i] != values[kept - 1]) values[kept++] = values[i];
    return kept;
}

static bool is_condition(duet_row_kind kind) {
    return kind == DUET_ROWS_VIDEO_CONDITION || kind == DUET_ROWS_AUDIO_CONDITION;
}

duet_status duet_timestep_plan_build(const duet_schedule *schedule, bool has_conditions,
                                     duet_timestep_plan *out, duet_error *err) {
    int64_t evaluations = schedule->points - 1, n = 0;
    size_t cells = (size_t)evaluations * DUET_N_ROW_KINDS;
    *out = (duet_timestep_plan){.evaluations = evaluations};
    out->timesteps = duet_calloc(cells, sizeof(float), DUET_MEM_ENGINE);
    out->kind_index = duet_calloc(cells, sizeof(int32_t), DUET_MEM_ENGINE);
    if (!out->timesteps || !out->kind_index) {
        duet_timestep_plan_free(out);
        return duet_fail(err, DUET_E_MEMORY, "no memory for the timesteps of %lld evaluations",
                         (long long)evaluations);
    }
    for (int64_t e = 0; e < evaluations; e++)
        for (int kind = 0; kind < DUET_N_ROW_KINDS; kind++)
            if (has_conditions || !is_condition((duet_row_kind)kind))
                out->timesteps[n++] = time_of(schedule, e, (duet_row_kind)kind);
    out->n_distinct = sort_distinct(out->timesteps, n);

    for (int64_t e = 0; e < evaluations; e++)
        for (int kind = 0; kind < DUET_N_ROW_KINDS; kind++) {
            float t = time_of(schedule, e, (duet_row_kind)kind);
            const float *at = bsearch(&t, out->timesteps, (size_t)out->n_distinct, sizeof t, by_value);
            out->kind_index[e * DUET_N_ROW_KINDS + kind] = at ? (int32_t)(at - out->timesteps) : 0;
        }
    return DUET_OK;
}

void duet_timestep_plan_free(duet_timestep_plan *plan) {
    duet_free(plan->timesteps);
    duet_free(plan->kind_index);
    *plan = (duet_timestep_plan){0};
}

static void fill_rows(const duet_packed *packed, const int32_t *kind_value, int32_t *out) {
    for (int i = 0; i < packed->n_segments; i++) {
        const duet_segment *s = &packed->segment[i];
        for (int64_t r = 0; r < s->rows; r++) out[s->first + r] = kind_value[s->kind];
    }
}

void duet_timestep_rows(const duet_timestep_plan *plan, const duet_packed *packed, int64_t evaluation,
                        int32_t *out) {
    fill_rows(packed, plan->kind_index + evaluation * DUET_N_ROW_KINDS, out);
}

void duet_timestep_rows_local(const duet_timestep_plan *plan, const duet_packed *packed, int64_t evaluation,
                              int32_t *out) {
    const int32_t *global = plan->kind_index + evaluation * DUET_N_ROW_KINDS;
    bool used[DUET_N_ROW_KINDS] = {false};
    for (int i = 0; i < packed->n_segments; i++) used[packed->segment[i].kind] = true;

    int32_t local[DUET_N_ROW_KINDS] = {0}; /* rank of a kind's level among the distinct levels in use */
    for (int kind = 0; kind < DUET_N_ROW_KINDS; kind++)
        for (int other = 0; other < DUET_N_ROW_KINDS; other++) {
            bool first_of_its_level = used[other];
            for (int k = 0; k < other; k++)
                if (used[k] && global[k] == global[other]) first_of_its_level = false;
            if (first_of_its_level && global[other] < global[kind]) local[kind]++;
        }
    fill_rows(packed, local, out);
}
