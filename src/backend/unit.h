/* unit.h - units and residency: when weights are really in memory is nobody's business but the policy's.
 *
 * A component is a row of units (a transformer block, an encoder layer, the AdaLN projections). A network
 * acquires a unit before it enqueues ops that use its weights and releases it after; release is ordered on
 * the stream, not in host time. The policy behind the interface may keep everything, stream through a ring,
 * or drop after use: results never change (P1).
 *
 * Thread rule: one thread per residency. */
#ifndef DUET_BACKEND_UNIT_H
#define DUET_BACKEND_UNIT_H

#include "backend/backend.h"

typedef struct duet_unit {
    const char *name;      /* "blocks.7", for messages */
    duet_weight **weights; /* handles that belong to the unit */
    int n_weights;
    int state; /* the policy's own mark; starts 0 */
} duet_unit;

typedef struct duet_residency duet_residency;

struct duet_residency {
    /* Make the unit usable on the stream. Blocks at most for host work (mapping, packing). */
    duet_status (*acquire)(duet_residency *self, duet_unit *unit, duet_stream *stream, duet_error *err);
    /* The ops enqueued so far are the last that use it until the next acquire. */
    void (*release)(duet_residency *self, duet_unit *unit, duet_stream *stream);
    /* The unit will not be used again (AdaLN after its tables are built): its memory may go. */
    void (*retire)(duet_residency *self, duet_unit *unit, duet_stream *stream);
    /* Optional: the order in which units will be acquired, so that a policy can prefetch. */
    void (*declare_walk)(duet_residency *self, duet_unit *const *units, int n_units);
};

#endif
