/* residency.c - the "all resident" policy. See residency.h for the contract.
 *
 *     unit->state   0 = never used or given back, 1 = prepared
 *
 * 1. A unit in the list is prepared, and every prepared unit is in the list.
 * 2. Nothing is given back while a stream may still read it: retire waits, close may assume idleness.
 * 3. Accounting asks the device what a preparation copies, so it equals what the plan announced. */
#include "engine/residency.h"

#include "base/alloc.h"
#include "base/pages.h"

enum { UNIT_PREPARED = 1 };

typedef struct resident {
    duet_residency base; /* first: the interface */
    duet_device *dev;
    duet_unit **units;
    int n_units, capacity;
    int64_t prepared_bytes, peak_bytes;
} resident;

static int64_t unit_bytes(const resident *r, const duet_unit *unit) {
    int64_t sum = 0;
    for (int i = 0; i < unit->n_weights; i++) sum += duet_weight_prepared_bytes(r->dev, unit->weights[i]);
    return sum;
}

static void unprepare(resident *r, duet_unit *unit, int n_weights) {
    for (int i = 0; i < n_weights; i++) duet_weight_unprepare(r->dev, unit->weights[i]);
}

static duet_status remember(resident *r, duet_unit *unit, duet_error *err) {
    if (r->n_units == r->capacity) {
        int capacity = r->capacity ? 2 * r->capacity : 64;
        duet_unit **grown = duet_realloc(r->units, (size_t)capacity * sizeof *grown, DUET_MEM_WEIGHT);
        if (!grown) return duet_fail(err, DUET_E_MEMORY, "no memory for the list of units");
        r->units = grown;
        r->capacity = capacity;
    }
    r->units[r->n_units++] = unit;
    return DUET_OK;
}

static duet_status acquire(duet_residency *self, duet_unit *unit, duet_stream *stream, duet_error *err) {
    (void)stream; /* preparation is complete when it returns, on the host: no stream needs to wait for it */
    resident *r = (resident *)self;
    if (unit->state == UNIT_PREPARED) return DUET_OK;
    int done = 0;
    duet_status st;
    for (; done < unit->n_weights; done++)
        TRY(st, fail, duet_weight_prepare(r->dev, unit->weights[done], err));
    TRY(st, fail, remember(r, unit, err));
    unit->state = UNIT_PREPARED;
    r->prepared_bytes += unit_bytes(r, unit);
    if (r->prepared_bytes > r->peak_bytes) r->peak_bytes = r->prepared_bytes;
    return DUET_OK;
fail:
    unprepare(r, unit, done);
    duet_error_prefix(err, "%s", unit->name);
    return st;
}

static void release(duet_residency *self, duet_unit *unit, duet_stream *stream) {
    (void)self, (void)unit, (void)stream;
}

/* Only pages of files: a piece can also be a copy that the store made, and dropping that would lose it. */
static void let_pages_go(const duet_weight *w) {
    if (!w->mapped) return;
    size_t row_bytes = (size_t)duet_weight_row_elems(w) * duet_dtype_bytes(w->dtype);
    for (int i = 0; i < w->n_pieces; i++) {
        const duet_weight_piece *p = &w->piece[i];
        if (p->rows < 1) continue;
        int64_t blocks = p->rows / p->block_rows;
        duet_pages_drop(p->data, (size_t)((blocks - 1) * p->block_stride_rows + p->block_rows) * row_bytes);
    }
}

static void give_back(resident *r, duet_unit *unit) {
    r->prepared_bytes -= unit_bytes(r, unit);
    unprepare(r, unit, unit->n_weights);
    unit->state = 0;
    for (int i = 0; i < unit->n_weights; i++) let_pages_go(unit->weights[i]);
}

static void retire(duet_residency *self, duet_unit *unit, duet_stream *stream) {
    resident *r = (resident *)self;
    if (unit->state != UNIT_PREPARED) return;
    duet_stream_sync(stream, NULL); /* its error, if any, sticks and surfaces at the caller's next sync */
    for (int i = 0; i < r->n_units; i++)
        if (r->units[i] == unit) r->units[i--] = r->units[--r->n_units];
    give_back(r, unit);
}

duet_status duet_residency_open(duet_device *dev, duet_residency **out, duet_error *err) {
    *out = NULL;
    resident *r = duet_calloc(1, sizeof *r, DUET_MEM_WEIGHT);
    if (!r) return duet_fail(err, DUET_E_MEMORY, "residency: out of memory");
    r->base = (duet_residency){.acquire = acquire, .release = release, .retire = retire};
    r->dev = dev;
    *out = &r->base;
    return DUET_OK;
}

void duet_residency_close(duet_residency **residency) {
    resident *r = (resident *)*residency;
    if (!r) return;
    *residency = NULL;
    for (int i = 0; i < r->n_units; i++) give_back(r, r->units[i]);
    duet_free(r->units);
    duet_free(r);
}

int64_t duet_residency_prepared_bytes(const duet_residency *residency) {
    return ((const resident *)residency)->prepared_bytes;
}

int64_t duet_residency_peak_bytes(const duet_residency *residency) {
    return ((const resident *)residency)->peak_bytes;
}
