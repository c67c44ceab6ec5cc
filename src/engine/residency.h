/* residency.h - the first residency policy: everything that was used stays.
 *
 * acquire prepares a unit's weights on first use; release does nothing (nothing moves, so nothing must wait);
 * retire waits for the stream, gives the prepared forms back and lets mapped pages go; close does that for
 * every unit that is left.
 *
 * Lifetime: units are remembered by address, so a network must outlive the residency or its units must be
 * retired first: close the residency of a stage, then its network. Thread rule: one thread. */
#ifndef DUET_ENGINE_RESIDENCY_H
#define DUET_ENGINE_RESIDENCY_H

#include "backend/unit.h"

duet_status duet_residency_open(duet_device *dev, duet_residency **out, duet_error *err);
/* Streams that used the units must be idle (synced or closed). */
void duet_residency_close(duet_residency **residency);

/* Bytes of prepared forms now and at their peak (what duet_weight_prepare copied, mapped weights not
 * counted). */
int64_t duet_residency_prepared_bytes(const duet_residency *residency);
int64_t duet_residency_peak_bytes(const duet_residency *residency);

#endif
