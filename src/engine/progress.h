/* progress.h - how a running stage tells where it is and hears that it should stop.
 *
 * Stages call duet_progress_step between evaluations and tiles: it reports and returns DUET_E_CANCELLED once `cancel` is non-zero.
 * `report` may be NULL. Stages pass `cancel` on to networks, which poll it between layers or blocks; the stream of a run watches it too
 * (duet_stream_watch), so that no op has to end first. */
#ifndef DUET_ENGINE_PROGRESS_H
#define DUET_ENGINE_PROGRESS_H

#include "base/status.h"
#include "engine/plan.h"

typedef struct duet_progress {
    void (*report)(void *ctx, duet_stage stage, int64_t done, int64_t total);
    void *ctx;
    const volatile int *cancel;
} duet_progress;

/* Tells only: where a stage is finished, a stop must not throw away what it made. */
static inline void duet_progress_tell(const duet_progress *p, duet_stage stage, int64_t done, int64_t total) {
    if (p && p->report) p->report(p->ctx, stage, done, total);
}

static inline duet_status duet_progress_step(const duet_progress *p, duet_stage stage, int64_t done,
                                             int64_t total, duet_error *err) {
    duet_progress_tell(p, stage, done, total);
    if (p && p->cancel && *p->cancel) return duet_fail(err, DUET_E_CANCELLED, "cancelled");
    return DUET_OK;
}

#endif
