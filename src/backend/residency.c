/* residency.c - the first policy: everything that was ever acquired stays resident until it is retired.
 *
 * unit->state: 0 = not prepared, 1 = prepared. retire waits for the stream, because memory must not go while
 * an enqueued op still reads it; an error that this sync sees stays in the stream and is reported by the
 * next. */
#include "backend/residency.h"

#include "base/alloc.h"

typedef struct all_resident {
    duet_residency base;
    duet_device *dev;
} all_resident;

static void unprepare(duet_device *dev, duet_unit *unit, int n) {
    for (int i = 0; i < n; i++)
        if (unit->weights[i]) duet_weight_unprepare(dev, unit->weights[i]);
    unit->state = 0;
}

static duet_status acquire(duet_residency *self, duet_unit *unit, duet_stream *stream, duet_error *err) {
    (void)stream;
    duet_device *dev = ((all_resident *)self)->dev;
    if (unit->state) return DUET_OK;
    for (int i = 0; i < unit->n_weights; i++) {
        duet_status st = unit->weights[i] ? duet_weight_prepare(dev, unit->weights[i], err) : DUET_OK;
        if (st == DUET_OK) continue;
        duet_error_prefix(err, "%s", unit->name);
        unprepare(dev, unit, i);
        return st;
    }
    unit->state = 1;
    return DUET_OK;
}

static void release(duet_residency *self, duet_unit *unit, duet_stream *stream) {
    (void)self, (void)unit, (void)stream;
}

static void retire(duet_residency *self, duet_unit *unit, duet_stream *stream) {
    if (!unit->state) return;
    if (stream) duet_stream_sync(stream, NULL);
    unprepare(((all_resident *)self)->dev, unit, unit->n_weights);
}

duet_status duet_residency_open(duet_device *dev, duet_residency **out, duet_error *err) {
    all_resident *r = duet_calloc(1, sizeof *r, DUET_MEM_ENGINE);
    *out = NULL;
    if (!r) return duet_fail(err, DUET_E_MEMORY, "residency: out of memory");
    r->base = (duet_residency){.acquire = acquire, .release = release, .retire = retire};
    r->dev = dev;
    *out = &r->base;
    return DUET_OK;
}

void duet_residency_close(duet_residency **residency) {
    duet_free(*residency);
    *residency = NULL;
}
