/* transformer_tables.c - from timesteps to modulation: everything that depends on noise levels alone.
 *
 *     t -> [cos, sin] -> time MLP -> temb -> silu -> projection of a block -> [3 modalities, 6 slots, hidden]
 *                                                \-> final projection      -> [2 slots, hidden]
 *
 * In the released model these projections are 39 % of all bytes and act on two new vectors per evaluation.
 * So the tables of all distinct timesteps of a schedule are built at once, and each projection is retired
 * when its table is done. */
#include "nn/transformer_int.h"

#include <math.h>

#include "base/alloc.h"

enum { FLOAT_BYTES = (int)sizeof(float) };

/* [cos(t f_0..), sin(t f_0..)], f_k = exp(-ln(10000) k / half): fp32, multiplied before divided, t
 * unscaled. An odd width ends with a zero. */
static void time_features(const float *t, int64_t n_t, int width, float *out) {
    int half = width / 2;
    for (int64_t i = 0; i < n_t; i++, out += width) {
        for (int k = 0; k < half; k++) {
            float frequency = expf((float)-9.210340371976184 * (float)k / (float)half);
            float angle = t[i] * frequency;
            out[k] = cosf(angle);
            out[half + k] = sinf(angle);
        }
        if (width % 2) out[width - 1] = 0.0f;
    }
}

typedef struct builder {
    duet_dit *dit;
    duet_residency *residency;
    duet_stream *stream;
    duet_tap *tap;
    int64_t n_t;
    float *features, *hidden, *temb; /* device, one buffer */
} builder;

static duet_status embed_times(builder *b, const float *timesteps, duet_error *err) {
    const duet_dit_config *c = &b->dit->config;
    int64_t n = b->n_t * c->time_sinusoid;
    float *host = duet_calloc((size_t)n, sizeof *host, DUET_MEM_TENSOR);
    if (!host) return duet_fail(err, DUET_E_MEMORY, "transformer: no memory for time features");
    time_features(timesteps, b->n_t, c->time_sinusoid, host);
    duet_copy_in(b->stream, b->features, host, n * FLOAT_BYTES);
    duet_free(host);
    if (duet_tap_wants(b->tap, "dit.timesteps"))
        b->tap->take_host(b->tap, "dit.timesteps", DUET_F32, &DUET_SHAPE(b->n_t), timesteps);
    duet__dit_tap(b->tap, b->stream, "dit.time_features", b->features, b->n_t, c->time_sinusoid,
                  c->time_sinusoid, NULL);

    const duet__dit_linear *proj = b->dit->time.proj;
    duet_status st = b->residency->acquire(b->residency, &b->dit->time.unit, b->stream, err);
    if (st != DUET_OK) return st;
    duet__dit_linear_rows(b->stream, &proj[0], b->features, b->hidden, b->n_t, c->time_sinusoid,
                          c->time_hidden);
    duet_silu(b->stream, &(duet_silu_args){.x = b->hidden, .y = b->hidden, .n = b->n_t * c->time_hidden});
    duet__dit_linear_rows(b->stream, &proj[1], b->hidden, b->temb, b->n_t, c->time_hidden, c->time_dim);
    b->residency->release(b->residency, &b->dit->time.unit, b->stream);
    b->residency->retire(b->residency, &b->dit->time.unit, b->stream);
    duet__dit_tap(b->tap, b->stream, "dit.temb", b->temb, b->n_t, c->time_dim, c->time_dim, NULL);
    duet_silu(b->stream, &(duet_silu_args){.x = b->temb, .y = b->temb, .n = b->n_t * c->time_dim});
    return DUET_OK;
}

/* table [n_t * rows_per_t, cols]: a projection's features cut into rows. */
static duet_status project(builder *b, duet__dit_adaln *a, float *table, int64_t rows_per_t, int64_t cols,
                           const char *tap_name, duet_error *err) {
    duet_status st = duet_stream_poll(b->stream, err);
    if (st == DUET_OK) st = b->residency->acquire(b->residency, &a->unit, b->stream, err);
    if (st != DUET_OK) return st;
    duet__dit_linear_rows(b->stream, &a->proj[0], b->temb, table, b->n_t, b->dit->config.time_dim,
                          rows_per_t * cols);
    b->residency->release(b->residency, &a->unit, b->stream);
    b->residency->retire(b->residency, &a->unit, b->stream);
    duet__dit_tap(b->tap, b->stream, tap_name, table, b->n_t * rows_per_t, cols, cols, NULL);
    return DUET_OK;
}

static duet_status build(builder *b, const float *timesteps, duet_dit_tables *tables, duet_error *err) {
    const duet_dit_config *c = &b->dit->config;
    int64_t cols = DUET__BLOCK_SLOTS * (int64_t)c->hidden, rows = b->n_t * DUET__MODALITIES;
    duet_status st;
    TRY(st, fail, embed_times(b, timesteps, err));
    for (int i = 0; i < c->layers; i++)
        TRY(st, fail,
            project(b, &b->dit->adaln[i], tables->blocks + i * rows * cols, DUET__MODALITIES, cols,
                    duet__dit_tap_name("adaln_block", i, "").text, err));
    TRY(st, fail,
        project(b, &b->dit->final, tables->final, 1, 2 * (int64_t)c->hidden, "dit.adaln_final", err));
fail:
    return st;
}

duet_status duet_dit_tables_build(duet_dit *dit, duet_residency *residency, duet_stream *stream,
                                  const float *timesteps, int64_t n_t, duet_dit_tables **out, duet_tap *tap,
                                  duet_error *err) {
    *out = NULL;
    const duet_dit_config *c = &dit->config;
    builder b = {.dit = dit, .residency = residency, .stream = stream, .tap = tap, .n_t = n_t};
    duet_dit_tables *t = duet_calloc(1, sizeof *t, DUET_MEM_TENSOR);
    if (!t) return duet_fail(err, DUET_E_MEMORY, "transformer: no memory for tables");
    t->n_t = n_t;
    duet_status st;
    TRY(st, done,
        duet_device_alloc(dit->dev, duet_dit_table_bytes(c, n_t), "AdaLN tables", (void **)&t->blocks, err));
    t->final = t->blocks + n_t * c->layers * DUET__MODALITIES * DUET__BLOCK_SLOTS * c->hidden;
    TRY(st, done,
        duet_device_alloc(dit->dev, duet_dit_table_temp_bytes(c, n_t), "time embedding", (void **)&b.features,
                          err));
    b.hidden = b.features + n_t * c->time_sinusoid;
    b.temb = b.hidden + n_t * c->time_hidden;
    TRY(st, done, build(&b, timesteps, t, err));
done:;
    duet_status synced = duet_stream_sync(stream, st == DUET_OK ? err : NULL); /* before the temporaries go */
    if (st == DUET_OK) st = synced;
    duet_device_free(dit->dev, b.features);
    if (st != DUET_OK) duet_dit_tables_free(dit, &t);
    *out = t;
    return st;
}

void duet_dit_tables_free(duet_dit *dit, duet_dit_tables **tables) {
    duet_dit_tables *t = *tables;
    if (!t) return;
    *tables = NULL;
    duet_device_free(dit->dev, t->blocks);
    duet_free(t);
}
