/* set.h - the files of one component: one safetensors file, or shards with an index.
 *
 * After open every stored tensor is in one sorted table, whichever file it lies in. What the index promises has been
 * checked: each mapped tensor is in its shard and nowhere else, listed shards hold nothing unmapped, sizes add up. A
 * shard that is not there leaves rows without a tensor: whether that matters is decided by who reads them. */
#ifndef DUET_STORE_SET_H
#define DUET_STORE_SET_H

#include "store/config_int.h"
#include "store/safetensors.h"

typedef struct duet__row {
    const char *name;        /* as stored */
    const duet_st_tensor *t; /* NULL: the shard is missing */
    const char *file;        /* path of the file it is in, or should be in */
    bool used;
} duet__row;

typedef struct duet__set {
    char *label;          /* path of the index, or of the single file */
    duet_st_file **files; /* NULL where missing */
    char **paths;
    int n_files, n_missing;
    duet__row *rows; /* sorted by name */
    int n_rows;
    char **names; /* owned names of rows whose shard is missing */
    int n_names;
} duet__set;

/* `loose_size`: total_size of the index may be stale (models with a fused schedule). */
duet_status duet__set_open(const duet__place *place, duet_component component, bool loose_size,
                           duet__set *out, duet_error *err);
void duet__set_close(duet__set *set); /* idempotent */
duet__row *duet__set_find(const duet__set *set, const char *name);

/* Are configuration and weight files of the component there at all? */
bool duet__set_exists(const duet__place *place, duet_component component);

#endif
