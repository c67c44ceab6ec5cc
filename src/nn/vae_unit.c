/* vae_unit.c - see vae_unit.h. */
#include "nn/vae_unit.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>

duet_status duet__vae_unit_init(duet__vae_unit *u, int capacity, duet_error *err, const char *name_fmt, ...) {
    va_list args;
    va_start(args, name_fmt);
    vsnprintf(u->name, sizeof u->name, name_fmt, args);
    va_end(args);
    u->weight = duet_calloc((size_t)capacity, sizeof *u->weight, DUET_MEM_WEIGHT);
    u->list = duet_calloc((size_t)capacity, sizeof *u->list, DUET_MEM_WEIGHT);
    if (!u->weight || !u->list) return duet_fail(err, DUET_E_MEMORY, "out of memory for unit %s", u->name);
    for (int i = 0; i < capacity; i++) u->list[i] = &u->weight[i];
    u->capacity = capacity;
    u->unit.name = u->name;
    u->unit.weights = u->list;
    return DUET_OK;
}

duet_status duet__vae_unit_load(duet__vae_unit *u, duet_model *model, duet_component component,
                                duet_error *err, const char *weight_fmt, ...) {
    char name[128];
    va_list args;
    va_start(args, weight_fmt);
    vsnprintf(name, sizeof name, weight_fmt, args);
    va_end(args);
    if (u->unit.n_weights == u->capacity)
        return duet_fail(err, DUET_E_INTERNAL, "unit %s has no room for %s", u->name, name);
    duet_status st = duet_model_weight(model, component, name, &u->weight[u->unit.n_weights], err);
    if (st == DUET_OK) u->unit.n_weights++;
    return st;
}

void duet__vae_unit_free(duet__vae_unit *u) {
    duet_free(u->weight);
    duet_free(u->list);
    *u = (duet__vae_unit){0};
}
