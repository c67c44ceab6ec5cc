/* transformer_state.c - what a request brings that no evaluation changes: tags, rotations, refined text.
 *
 * Rotation angles are fp32 products of a position (fp64, cast once) and a frequency; cosines and sines are
 * the full-precision library ones, because time positions reach 1,200 radians. */
#include "nn/transformer_int.h"

#include <math.h>

#include "base/alloc.h"

enum { FLOAT_BYTES = (int)sizeof(float), INDEX_BYTES = (int)sizeof(int32_t), POLL_ROWS = 64 };

static void rotation_row(const duet_dit *dit, const double *position, float (*turn)(float), float *out) {
    int n = dit->config.rope_freqs;
    for (int axis = 0; axis < 3; axis++)
        for (int k = 0; k < n; k++) out[axis * n + k] = turn((float)position[axis] * dit->inv_freq[k]);
}

/* Seconds of library cosines for a long clip: polled every few thousand. */
static duet_status turn_all(const duet_dit *dit, const duet_stream *stream, const duet_dit_layout *layout,
                            float (*turn)(float), float *out, duet_error *err) {
    int64_t pairs = 3 * (int64_t)dit->config.rope_freqs;
    for (int64_t r = 0; r < layout->rows; r++) {
        duet_status st = r % POLL_ROWS ? DUET_OK : duet_stream_poll(stream, err);
        if (st != DUET_OK) return st;
        rotation_row(dit, layout->position_ids + 3 * r, turn, out + r * pairs);
    }
    return DUET_OK;
}

static duet_status upload_rotations(const duet_dit *dit, duet_stream *stream, const duet_dit_layout *layout,
                                    duet_dit_state *s, duet_tap *tap, duet_error *err) {
    int64_t pairs = 3 * (int64_t)dit->config.rope_freqs, n = layout->rows * pairs;
    float *host = duet_calloc((size_t)n, sizeof *host, DUET_MEM_TENSOR);
    if (!host) return duet_fail(err, DUET_E_MEMORY, "transformer: no memory for rotation tables");
    duet_status st = turn_all(dit, stream, layout, cosf, host, err);
    if (st == DUET_OK) {
        duet_copy_in(stream, s->cos, host, n * FLOAT_BYTES);
        st = turn_all(dit, stream, layout, sinf, host, err);
    }
    if (st == DUET_OK) duet_copy_in(stream, s->sin, host, n * FLOAT_BYTES);
    duet_free(host);
    if (st != DUET_OK) return st;
    duet__dit_tap(tap, stream, "dit.rope_cos", s->cos, layout->rows, pairs, pairs, NULL);
    duet__dit_tap(tap, stream, "dit.rope_sin", s->sin, layout->rows, pairs, pairs, NULL);
    return DUET_OK;
}

/* The text rows pass through the refiner in the buffers that evaluations use later; only the result is
 * kept. */
static duet_status refine_text(duet_dit *dit, duet_residency *residency, duet_stream *stream,
                               duet_dit_state *s, const float *text, duet_tap *tap, duet_error *err) {
    const duet_dit_config *c = &dit->config;
    int64_t rows = s->layout.text_rows, hidden = c->hidden;
    duet_status st = duet_stream_poll(stream, err);
    if (st == DUET_OK) st = residency->acquire(residency, &dit->embed, stream, err);
    if (st != DUET_OK) return st;
    duet__dit_linear_rows(stream, &dit->condition, text, s->h, rows, c->text_dim, hidden);
    duet__dit_tap(tap, stream, "dit.refiner_in", s->h, rows, hidden, hidden, NULL);
    for (int i = 0; i < c->refiner_layers && st == DUET_OK; i++) {
        duet__dit_pass pass = {
            .dit = dit, .stream = stream, .state = s, .rows = rows, .tap = tap, .number = i};
        st = duet_stream_poll(stream, err);
        if (st == DUET_OK) st = residency->acquire(residency, &dit->refiner[i].unit, stream, err);
        if (st != DUET_OK) break;
        duet__dit_run_block(&pass, &dit->refiner[i]);
        residency->release(residency, &dit->refiner[i].unit, stream);
    }
    duet_rmsnorm(stream, &(duet_rmsnorm_args){.x = s->h,
                                              .y = s->text,
                                              .gain = &dit->refiner_norm,
                                              .rows = rows,
                                              .groups = 1,
                                              .cols = hidden,
                                              .x_stride = hidden,
                                              .y_stride = hidden,
                                              .eps = c->final_norm_eps});
    residency->release(residency, &dit->embed, stream);
    duet__dit_tap(tap, stream, "dit.refined_text", s->text, rows, hidden, hidden, NULL);
    return st;
}

/* The sum of these is duet_dit_activation_bytes. */
static duet_status allocate(duet_dit *dit, duet_dit_state *s, duet_error *err) {
    const duet_dit_config *c = &dit->config;
    int64_t rows = s->layout.rows, table = rows * 3 * c->rope_freqs * FLOAT_BYTES;
    const struct {
        int64_t bytes;
        const char *what;
        void **at;
    } buffers[] = {
        {rows * c->hidden * FLOAT_BYTES, "residual stream", (void **)&s->h},
        {rows * c->hidden * FLOAT_BYTES, "normed rows", (void **)&s->n},
        {duet__dit_work_floats(c, dit->mlp_budget_bytes, rows) * FLOAT_BYTES, "qkv and inner rows",
         (void **)&s->work},
        {s->layout.text_rows * c->hidden * FLOAT_BYTES, "refined text", (void **)&s->text},
        {table, "rotation cosines", (void **)&s->cos},
        {table, "rotation sines", (void **)&s->sin},
        {rows * INDEX_BYTES, "row indices", (void **)&s->adaln_index},
        {rows * INDEX_BYTES, "row times", (void **)&s->time_index},
    };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        duet_status st = duet_device_alloc(dit->dev, buffers[i].bytes, buffers[i].what, buffers[i].at, err);
        if (st != DUET_OK) return st;
    }
    s->host_tags = duet_calloc((size_t)rows, sizeof *s->host_tags, DUET_MEM_TENSOR);
    s->host_index = duet_calloc((size_t)rows, sizeof *s->host_index, DUET_MEM_TENSOR);
    if (!s->host_tags || !s->host_index)
        return duet_fail(err, DUET_E_MEMORY, "transformer: no memory for %lld row indices", (long long)rows);
    return DUET_OK;
}

duet_status duet_dit_state_open(duet_dit *dit, duet_residency *residency, duet_stream *stream,
                                const duet_dit_layout *layout, const float *text, duet_tap *tap,
                                duet_dit_state **out, duet_error *err) {
    *out = NULL;
    duet_dit_state *s = duet_calloc(1, sizeof *s, DUET_MEM_TENSOR);
    if (!s) return duet_fail(err, DUET_E_MEMORY, "transformer: no memory for a state");
    s->layout = *layout;
    duet_status st;
    TRY(st, fail, allocate(dit, s, err));
    for (int64_t r = 0; r < layout->rows; r++)
        s->host_tags[r] = layout->token_tags[r] > 0 ? layout->token_tags[r] : 0;
    s->layout.position_ids = NULL; /* the host arrays were borrowed for this call */
    s->layout.token_tags = NULL;
    TRY(st, fail, upload_rotations(dit, stream, layout, s, tap, err));
    TRY(st, fail, refine_text(dit, residency, stream, s, text, tap, err));
    *out = s;
    return DUET_OK;
fail:
    duet_stream_sync(stream, NULL);
    duet_dit_state_close(dit, &s);
    return st;
}

void duet_dit_state_close(duet_dit *dit, duet_dit_state **state) {
    duet_dit_state *s = *state;
    if (!s) return;
    *state = NULL;
    void *const buffers[] = {s->h, s->n, s->work, s->text, s->cos, s->sin, s->adaln_index, s->time_index};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) duet_device_free(dit->dev, buffers[i]);
    duet_free(s->host_tags);
    duet_free(s->host_index);
    duet_free(s);
}
