/* pack.c - segments, positions, tags and timesteps of the packed sequence. See pack.h for the picture and the
 * invariants.
 *
 * Positions are computed in fp64 with the reference's own order of operations, down to which sums are
 * pairwise: a mathematically equal formula gives other last bits.
 *
 *     t axis   text row i: i          media: clock origin + prefix sum of 5/3 * (1,4,4,4,4)...   audio latent
 * k: origin + k h,w axes a latent grid h x w covers [-,+] around 16, 32 units per square root of its area;
 * audio sits on the outer columns of the grid it belongs to, left channel left. */
#include "engine/pack.h"

#include <math.h>

#include "base/alloc.h"

enum { TAG_VIDEO = 0, TAG_TEXT = 1, TAG_AUDIO = 2, MAX_AXIS = 1 << 16 };

static const double UNITS_PER_FRAME = 5.0 / 3.0; /* 40 units a second, 24 frames a second */

/* ---- clocks ---- */

/* Units that latent frame k lasts: five latents stand for 1 + 4 + 4 + 4 + 4 frames. */
static double latent_span(int64_t k) {
    return UNITS_PER_FRAME * (k % 5 == 0 ? 1.0 : 4.0);
}

static double span_sequential(int64_t latents) {
    double sum = 0.0;
    for (int64_t k = 0; k < latents; k++) sum += latent_span(k);
    return sum;
}

/* numpy's pairwise summation: eight running sums up to 128 terms, halves (cut at multiples of 8) above. */
static double span_pairwise(int64_t first, int64_t n) {
    if (n > 128) {
        int64_t half = n / 2 - n / 2 % 8;
        return span_pairwise(first, half) + span_pairwise(first + half, n - half);
    }
    double sum = 0.0;
    int64_t k = 0;
    if (n >= 8) {
        double r[8];
        for (; k < 8; k++) r[k] = latent_span(first + k);
        for (; k + 8 <= n; k += 8)
            for (int j = 0; j < 8; j++) r[j] += latent_span(first + k + j);
        sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    }
    for (; k < n; k++) sum += latent_span(first + k);
    return sum;
}

/* ---- space ---- */

typedef struct grid {
    int32_t latent_h, latent_w, rows, cols; /* patches */
    int32_t patch_h, patch_w;
} grid;

static grid make_grid(int32_t latent_h, int32_t latent_w, int32_t patch_h, int32_t patch_w) {
    return (grid){latent_h, latent_w, latent_h / patch_h, latent_w / patch_w, patch_h, patch_w};
}

/* Coordinate i of an axis of `length` latents cut into n patches. The step comes from right - left, which is
 * not the ratio it was made from, and is multiplied before the start is added. */
static double axis_at(int32_t length, double root_area, int32_t n, int32_t i) {
    double ratio = length / root_area;
    double left = (1.0 - ratio) / 2.0, right = left + ratio;
    double step = (right - left) / n;
    return (i * step + left) * 32.0;
}

static double grid_h(const grid *g, int32_t y) {
    return axis_at(g->latent_h, sqrt((double)g->latent_h * g->latent_w), g->rows, y);
}

static double grid_w(const grid *g, int32_t x) {
    return axis_at(g->latent_w, sqrt((double)g->latent_h * g->latent_w), g->cols, x);
}

/* ---- writing segments ---- */

typedef struct writer {
    duet_packed *out;
    int64_t at;   /* next row */
    double clock; /* media time */
} writer;

static void put_row(writer *w, double t, double h, double x, int32_t tag) {
    double *p = w->out->position_ids + 3 * w->at;
    p[0] = t;
    p[1] = h;
    p[2] = x;
    w->out->token_tags[w->at++] = tag;
}

static void put_text(writer *w, int64_t rows, const int32_t *tags) {
    for (int64_t i = 0; i < rows; i++) put_row(w, (double)i, 0.0, 0.0, tags ? tags[i] : TAG_TEXT);
}

static void put_frame(writer *w, const grid *g, double t) {
    for (int32_t y = 0; y < g->rows; y++)
        for (int32_t x = 0; x < g->cols; x++) put_row(w, t, grid_h(g, y), grid_w(g, x), TAG_VIDEO);
}

static void put_video(writer *w, const grid *g, int64_t latents, double origin) {
    double elapsed = 0.0;
    for (int64_t k = 0; k < latents; k++) {
        put_frame(w, g, origin + elapsed);
        elapsed += latent_span(k);
    }
}

static void put_audio(writer *w, const grid *g, int64_t latents, double origin) {
    for (int channel = 0; channel < 2; channel++) {
        double x = grid_w(g, channel == 0 ? 0 : g->cols - 1);
        for (int64_t i = 0; i < latents; i++) put_row(w, origin + (double)i, 0.0, x, TAG_AUDIO);
    }
}

static void put_condition(writer *w, const duet_pack_condition *c, const duet_pack_spec *spec,
                          const grid *target) {
    grid own = make_grid(c->latent_h, c->latent_w, spec->patch_h, spec->patch_w);
    double text_end = (double)spec->text_rows;
    switch (c->kind) {
    case DUET_CONDITION_FIRST_FRAME:
        put_frame(w, target, text_end);
        break;
    case DUET_CONDITION_LAST_FRAME: /* on the last pixel frame, which the last latent only begins before */
        put_frame(w, target, text_end + span_pairwise(0, spec->video_latents) - UNITS_PER_FRAME);
        break;
    case DUET_CONDITION_IMAGE:
        put_frame(w, &own, w->clock);
        w->clock += 1.0;
        break;
    case DUET_CONDITION_AUDIO:
        put_audio(w, target, c->audio_latents, w->clock);
        w->clock += (double)c->audio_latents;
        break;
    case DUET_CONDITION_VIDEO:
        put_audio(w, &own, c->audio_latents, w->clock);
        put_video(w, &own, c->video_latents, w->clock);
        w->clock += fmax((double)c->audio_latents, span_sequential(c->video_latents));
        break;
    }
}

/* ---- segments ---- */

static duet_status add_segment(duet_packed *p, duet_row_kind kind, int64_t per_unit, int64_t units,
                               duet_error *err) {
    if (units == 0) return DUET_OK;
    if (per_unit <= 0 || units < 0 || units > INT32_MAX / per_unit ||
        p->layout.rows > INT32_MAX - per_unit * units)
        return duet_fail(err, DUET_E_UNSUPPORTED, "the packed sequence has more than %d rows", INT32_MAX);
    int64_t rows = per_unit * units;
    p->segment[p->n_segments++] = (duet_segment){kind, p->layout.rows, rows};
    p->layout.rows += rows;
    return DUET_OK;
}

static bool grid_ok(const grid *g) {
    return g->rows > 0 && g->cols > 0 && g->latent_h <= MAX_AXIS && g->latent_w <= MAX_AXIS &&
           g->latent_h % g->patch_h == 0 && g->latent_w % g->patch_w == 0;
}

static duet_status add_condition(duet_packed *p, const duet_pack_condition *c, const duet_pack_spec *spec,
                                 int64_t target_per_frame, duet_error *err) {
    grid own = make_grid(c->latent_h, c->latent_w, spec->patch_h, spec->patch_w);
    bool visual = c->kind == DUET_CONDITION_IMAGE || c->kind == DUET_CONDITION_VIDEO;
    if (visual && !grid_ok(&own))
        return duet_fail(err, DUET_E_INTERNAL, "condition grid %d x %d does not fit the patch",
                         (int)c->latent_h, (int)c->latent_w);
    duet_status st = DUET_OK;
    if (c->kind == DUET_CONDITION_AUDIO || c->kind == DUET_CONDITION_VIDEO)
        TRY(st, fail, add_segment(p, DUET_ROWS_AUDIO_CONDITION, 2, c->audio_latents, err));
    if (visual) {
        int64_t frames = c->kind == DUET_CONDITION_IMAGE ? 1 : c->video_latents;
        TRY(st, fail, add_segment(p, DUET_ROWS_VIDEO_CONDITION, (int64_t)own.rows * own.cols, frames, err));
    } else if (c->kind != DUET_CONDITION_AUDIO) {
        TRY(st, fail, add_segment(p, DUET_ROWS_VIDEO_CONDITION, target_per_frame, 1, err));
    }
fail:
    return st;
}

static duet_status add_segments(const duet_pack_spec *spec, const grid *target, duet_packed *p,
                                duet_error *err) {
    int64_t per_frame = (int64_t)target->rows * target->cols;
    duet_status st;
    if (spec->n_conditions < 0 || spec->n_conditions > DUET_MAX_CONDITIONS)
        return duet_fail(err, DUET_E_UNSUPPORTED, "more than %d conditions", DUET_MAX_CONDITIONS);
    TRY(st, fail, add_segment(p, DUET_ROWS_TEXT, 1, spec->text_rows, err));
    for (int i = 0; i < spec->n_conditions; i++)
        TRY(st, fail, add_condition(p, &spec->conditions[i], spec, per_frame, err));
    TRY(st, fail, add_segment(p, DUET_ROWS_AUDIO_TARGET, 2, spec->audio_latents, err));
    TRY(st, fail, add_segment(p, DUET_ROWS_VIDEO_TARGET, per_frame, spec->video_latents, err));
fail:
    return st;
}

/* The network sees ranges per modality: conditions in packed order, the target last. */
static void describe_ranges(duet_packed *p) {
    duet_dit_layout *l = &p->layout;
    for (int i = 0; i < p->n_segments; i++) {
        const duet_segment *s = &p->segment[i];
        switch (s->kind) {
        case DUET_ROWS_TEXT:
            l->text_first = s->first;
            l->text_rows = s->rows;
            break;
        case DUET_ROWS_VIDEO_CONDITION:
        case DUET_ROWS_VIDEO_TARGET:
            l->video_range[l->n_video_ranges].first = s->first;
            l->video_range[l->n_video_ranges++].rows = s->rows;
            break;
        default:
            l->audio_range[l->n_audio_ranges].first = s->first;
            l->audio_range[l->n_audio_ranges++].rows = s->rows;
            break;
        }
        if (s->kind == DUET_ROWS_VIDEO_CONDITION) p->condition_video_rows += s->rows;
        if (s->kind == DUET_ROWS_AUDIO_CONDITION) p->condition_audio_rows += s->rows;
        if (s->kind == DUET_ROWS_VIDEO_TARGET) p->target_video_rows = s->rows;
        if (s->kind == DUET_ROWS_AUDIO_TARGET) p->target_audio_rows = s->rows;
    }
}

duet_status duet_pack_rows(const duet_pack_spec *spec, duet_packed *out, duet_error *err) {
    *out = (duet_packed){0};
    duet_status st;
    if (spec->patch_h < 1 || spec->patch_w < 1 || spec->text_rows < 1 || spec->video_latents < 1 ||
        spec->audio_latents < 1)
        return duet_fail(err, DUET_E_INTERNAL, "pack: empty segment or patch");
    grid target = make_grid(spec->latent_h, spec->latent_w, spec->patch_h, spec->patch_w);
    if (!grid_ok(&target))
        return duet_fail(err, DUET_E_INTERNAL, "target grid %d x %d does not fit the patch",
                         (int)spec->latent_h, (int)spec->latent_w);
    TRY(st, fail, add_segments(spec, &target, out, err));
    describe_ranges(out);

    out->position_ids = duet_calloc((size_t)out->layout.rows, 3 * sizeof(double), DUET_MEM_ENGINE);
    out->token_tags = duet_calloc((size_t)out->layout.rows, sizeof(int32_t), DUET_MEM_ENGINE);
    if (!out->position_ids || !out->token_tags) {
        st = duet_fail(err, DUET_E_MEMORY, "no memory for %lld packed rows", (long long)out->layout.rows);
        goto fail;
    }
    out->layout.position_ids = out->position_ids;
    out->layout.token_tags = out->token_tags;

    writer w = {.out = out, .clock = (double)spec->text_rows};
    put_text(&w, spec->text_rows, spec->text_tags);
    for (int i = 0; i < spec->n_conditions; i++) put_condition(&w, &spec->conditions[i], spec, &target);
    put_audio(&w, &target, spec->audio_latents, w.clock);
    put_video(&w, &target, spec->video_latents, w.clock);
    return DUET_OK;
fail:
    duet_packed_free(out);
    return st;
}

void duet_packed_free(duet_packed *packed) {
    duet_free(packed->position_ids);
    duet_free(packed->token_tags);
    *packed = (duet_packed){0};
}
