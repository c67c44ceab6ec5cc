/* vae_unit.h - a unit together with the weight handles it owns; between files of this folder.
 *
 * Handles are loaded in a fixed order and found again by their position, an enum of the network that owns
 * them. */
#ifndef DUET_NN_VAE_UNIT_H
#define DUET_NN_VAE_UNIT_H

#include "backend/unit.h"
#include "store/model.h"

typedef struct duet__vae_unit {
    duet_unit unit; /* what a residency policy sees */
    char name[32];
    duet_weight *weight; /* [capacity], the first unit.n_weights are loaded */
    duet_weight **list;
    int capacity;
} duet__vae_unit;

/* Room for `capacity` handles; close with duet__vae_unit_free also after a failure. */
duet_status duet__vae_unit_init(duet__vae_unit *u, int capacity, duet_error *err, const char *name_fmt, ...)
    DUET_PRINTF(4, 5);
/* Load the next handle by its canonical name. */
duet_status duet__vae_unit_load(duet__vae_unit *u, duet_model *model, duet_component component,
                                duet_error *err, const char *weight_fmt, ...) DUET_PRINTF(5, 6);
void duet__vae_unit_free(duet__vae_unit *u);

#endif
