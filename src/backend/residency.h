/* residency.h - the policies that exist. */
#ifndef DUET_BACKEND_RESIDENCY_H
#define DUET_BACKEND_RESIDENCY_H

#include "backend/unit.h"

/* "All resident": a unit is prepared when first acquired and stays until it is retired. The policy keeps no
 * list: who opened the units calls retire for each before closing the model. */
duet_status duet_residency_open(duet_device *dev, duet_residency **out, duet_error *err);
void duet_residency_close(duet_residency **residency);

#endif
