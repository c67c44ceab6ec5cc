/* model_int.h - an open model, as the files of the store see it. */
#ifndef DUET_STORE_MODEL_INT_H
#define DUET_STORE_MODEL_INT_H

#include <pthread.h>

#include "store/set.h"

/* One canonical tensor and where its bytes are. */
typedef struct duet__entry {
    const duet__spec *spec;
    int n_parts; /* 0: not stored, or its shard is missing */
    duet__arrangement arrangement;
    const duet_st_tensor *part[3];
    void *copy[3];     /* aligned or widened copies, made on first use, owned */
    float *folded;     /* weight_v only: g * v / ||v||, made on first use, owned */
    char *folded_name; /* "X.weight" */
} duet__entry;

typedef struct duet__bound { /* a component */
    bool open;
    duet__set set;
    duet__spec_list specs;
    duet__entry *entries; /* parallel to specs */
} duet__bound;

struct duet_model {
    char *path, *dir; /* as given; the partition directory or the tree itself */
    duet__place place;
    duet__index index;
    duet_model_config config;
    duet__bound part[DUET_N_COMPONENTS];
    pthread_mutex_t lock; /* guards copy, folded and folded_name of all entries */
    char *vocab, *merges, *tokenizer_config;
    size_t vocab_bytes, merges_bytes, tokenizer_config_bytes;
};

/* detect.c: fill place, including its directory (into dir, DUET__PATH_BYTES). */
duet_status duet__detect(const duet_model_options *options, duet__place *place, char *dir, duet_error *err);

/* bind.c: open the files of a component and hold every tensor against the canonical table. */
duet_status duet__bind(const duet__place *place, duet_component component, const duet_model_config *config,
                       duet__bound *out, duet_error *err);
void duet__bound_close(duet__bound *bound);
const duet__entry *duet__entry_find(const duet__bound *bound, const char *name);

/* weight.c */
extern const char *const duet__component_name[DUET_N_COMPONENTS];
/* dtype of the canonical tensor: F32 where the table says so, the stored one elsewhere. */
duet_dtype duet__entry_dtype(const duet__entry *entry);
/* Canonical bytes [first, first + n) into out, whatever the alignment and order in the file. n is a whole number of
 * elements. */
void duet__entry_read(const duet__entry *entry, int64_t first_elem, int64_t n_elems, void *out);
bool duet__entry_hashed(const duet__entry *entry);

#endif
