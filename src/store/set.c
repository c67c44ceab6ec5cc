/* set.c - see set.h. */
#include "store/set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "store/file.h"

enum { MAX_FILES = 4096, MAX_FILE_NAME = 255 };

static const char *folder_of(const duet__place *place, duet_component component) {
    return component == DUET_COMPONENT_DIT ? duet__dit_dir(place) : place->layout->dir[component];
}

static bool path_of(const duet__place *place, duet_component component, const char *suffix, char *path) {
    char file[128];
    snprintf(file, sizeof file, "%s%s", place->layout->stem[component], suffix);
    return duet__join(path, DUET__PATH_BYTES, place->dir, folder_of(place, component), file, NULL);
}

bool duet__set_exists(const duet__place *place, duet_component component) {
    char config[DUET__PATH_BYTES], index[DUET__PATH_BYTES], single[DUET__PATH_BYTES];
    bool ok =
        component == DUET_COMPONENT_DIT
            ? duet__join(config, sizeof config, place->dir, duet__dit_dir(place), "config.json", NULL)
            : duet__join(config, sizeof config, place->dir, place->layout->config_file[component], NULL);
    return ok && path_of(place, component, ".safetensors.index.json", index) &&
           path_of(place, component, ".safetensors", single) && duet__is_file(config) &&
           !(duet__is_absent(index) && duet__is_absent(single));
}

static duet_status no_memory(const duet__set *set, duet_error *err) {
    return duet_fail(err, DUET_E_MEMORY, "%s: no memory for the tensor table",
                     set->label ? set->label : "model");
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const duet__row *)a)->name, ((const duet__row *)b)->name);
}

duet__row *duet__set_find(const duet__set *set, const char *name) {
    duet__row key = {.name = name};
    return set->n_rows ? bsearch(&key, set->rows, (size_t)set->n_rows, sizeof key, by_name) : NULL;
}

/* ---- shards ------------------------------------------------------------------------------------------------------ */

static bool plain_name(const char *name) {
    size_t n = strlen(name), tail = strlen(".safetensors");
    if (n <= tail || n > MAX_FILE_NAME || name[0] == '.' || strcmp(name + n - tail, ".safetensors") != 0)
        return false;
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        if (*p < 0x20 || *p == 0x7f || *p == '/' || *p == '\\') return false;
    return true;
}

/* Index of the shard `name` (opening it when it is new), or -1 with an error. */
static int shard_of(duet__set *set, const char *folder, const char *name, duet_status *st, duet_error *err) {
    char path[DUET__PATH_BYTES];
    *st = DUET_OK;
    if (!plain_name(name) || !duet__join(path, sizeof path, folder, name, NULL)) {
        *st = duet_fail(err, DUET_E_MODEL,
                        "%s: weight_map names a file that is not a plain .safetensors name", set->label);
        return -1;
    }
    for (int i = set->n_files - 1; i >= 0; i--)
        if (strcmp(set->paths[i], path) == 0) return i;
    if (set->n_files == MAX_FILES) {
        *st = duet_fail(err, DUET_E_MODEL, "%s: more than %d shards", set->label, MAX_FILES);
        return -1;
    }
    int at = set->n_files;
    if (!(set->paths[at] = duet_strdup(path))) *st = no_memory(set, err);
    if (*st != DUET_OK) return -1;
    set->n_files++;
    if (duet__is_absent(path))
        set->n_missing++;
    else
        *st = duet_st_open(path, &set->files[at], err);
    return *st == DUET_OK ? at : -1;
}

static duet_status add_mapped(duet__set *set, int shard, const char *name, duet_error *err) {
    duet__row *row = &set->rows[set->n_rows];
    *row = (duet__row){.name = name, .file = set->paths[shard]};
    if (set->files[shard]) {
        row->t = duet_st_find(set->files[shard], name);
        if (!row->t)
            return duet_fail(err, DUET_E_MODEL, "%s: tensor %.120s is not in this file, but %s says so",
                             set->paths[shard], name, set->label);
        row->name = row->t->name;
    } else {
        char *copy = set->names[set->n_names] = duet_strdup(name);
        if (!copy) return no_memory(set, err);
        set->n_names++;
        row->name = copy;
    }
    set->n_rows++;
    return DUET_OK;
}

/* Each shard holds what is mapped to it and nothing else; sizes add up when all are there. */
static duet_status check_shards(const duet__set *set, const duet__doc *index, bool loose_size,
                                duet_error *err) {
    int64_t total = 0;
    for (int s = 0; s < set->n_files; s++) {
        if (!set->files[s]) continue;
        for (int i = 0; i < duet_st_count(set->files[s]); i++) {
            const duet_st_tensor *t = duet_st_at(set->files[s], i);
            const duet__row *row = duet__set_find(set, t->name);
            if (!row)
                return duet_fail(err, DUET_E_MODEL, "%s: tensor %.120s is not in the weight_map of %s",
                                 set->paths[s], t->name, set->label);
            if (row->t != t)
                return duet_fail(err, DUET_E_MODEL, "%s: tensor %.120s is mapped to %s, but is here too",
                                 set->paths[s], t->name, row->file);
            total += t->bytes;
        }
    }
    if (set->n_missing || loose_size || !duet__doc_has(index, "metadata.total_size")) return DUET_OK;
    int64_t want;
    duet_status st = duet__doc_i64(index, "metadata.total_size", 0, INT64_MAX, &want, err);
    if (st == DUET_OK && want != total)
        st = duet_fail(err, DUET_E_MODEL, "%s: total_size is %lld, the shards hold %lld bytes of tensors",
                       index->label, (long long)want, (long long)total);
    return st;
}

static duet_status open_sharded(duet__set *set, const char *folder, bool loose_size, duet_error *err) {
    duet__doc index;
    duet_status st = duet__doc_open(set->label, &index, err);
    if (st != DUET_OK) return st;
    json_t *map = duet__doc_get(&index, "weight_map"), *value;
    const char *name;
    size_t n = json_object_size(map);
    if (!n) st = duet_fail(err, DUET_E_MODEL, "%s: weight_map is missing or empty", set->label);
    set->rows = duet_calloc(n + 1, sizeof *set->rows, DUET_MEM_STORE);
    set->names = duet_calloc(n + 1, sizeof *set->names, DUET_MEM_STORE);
    set->files = duet_calloc(MAX_FILES, sizeof *set->files, DUET_MEM_STORE);
    set->paths = duet_calloc(MAX_FILES, sizeof *set->paths, DUET_MEM_STORE);
    if (!set->rows || !set->names || !set->files || !set->paths) st = no_memory(set, err);
    if (st == DUET_OK) json_object_foreach(map, name, value) {
            if (!json_is_string(value)) {
                st = duet_fail(err, DUET_E_MODEL, "%s: weight_map holds something that is not a file name",
                               set->label);
                break;
            }
            int shard = shard_of(set, folder, json_string_value(value), &st, err);
            if (shard >= 0) st = add_mapped(set, shard, name, err);
            if (st != DUET_OK) break;
        }
    if (set->n_rows) qsort(set->rows, (size_t)set->n_rows, sizeof *set->rows, by_name);
    if (st == DUET_OK) st = check_shards(set, &index, loose_size, err);
    duet__doc_close(&index);
    return st;
}

/* ---- one file ---------------------------------------------------------------------------------------------------- */

static duet_status open_single(duet__set *set, duet_error *err) {
    set->files = duet_calloc(1, sizeof *set->files, DUET_MEM_STORE);
    set->paths = duet_calloc(1, sizeof *set->paths, DUET_MEM_STORE);
    if (!set->files || !set->paths || !(set->paths[0] = duet_strdup(set->label))) return no_memory(set, err);
    set->n_files = 1;
    duet_status st = duet_st_open(set->label, &set->files[0], err);
    if (st != DUET_OK) return st;
    set->n_rows = duet_st_count(set->files[0]);
    set->rows = duet_calloc((size_t)set->n_rows + 1, sizeof *set->rows, DUET_MEM_STORE);
    if (!set->rows) return no_memory(set, err);
    for (int i = 0; i < set->n_rows; i++) {
        const duet_st_tensor *t = duet_st_at(set->files[0], i);
        set->rows[i] = (duet__row){.name = t->name, .t = t, .file = set->paths[0]};
    }
    return DUET_OK;
}

duet_status duet__set_open(const duet__place *place, duet_component component, bool loose_size,
                           duet__set *out, duet_error *err) {
    char index[DUET__PATH_BYTES], single[DUET__PATH_BYTES], folder[DUET__PATH_BYTES];
    *out = (duet__set){0};
    if (!path_of(place, component, ".safetensors.index.json", index) ||
        !path_of(place, component, ".safetensors", single) ||
        !duet__join(folder, sizeof folder, place->dir, folder_of(place, component), NULL))
        return duet_fail(err, DUET_E_MODEL, "%s: the path is too long", place->dir);
    bool sharded = !duet__is_absent(index) || duet__is_dangling(index);
    if (!sharded && duet__is_absent(single) && !duet__is_dangling(single))
        return duet_fail(err, DUET_E_MODEL, "%s: no weights: neither this file nor %s is there", single,
                         index);
    if (!(out->label = duet_strdup(sharded ? index : single))) return no_memory(out, err);
    duet_status st = sharded ? open_sharded(out, folder, loose_size, err) : open_single(out, err);
    if (st != DUET_OK) duet__set_close(out);
    return st;
}

void duet__set_close(duet__set *set) {
    for (int i = 0; i < set->n_files; i++) {
        duet_st_close(&set->files[i]);
        duet_free(set->paths[i]);
    }
    for (int i = 0; i < set->n_names; i++) duet_free(set->names[i]);
    duet_free(set->files);
    duet_free(set->paths);
    duet_free(set->rows);
    duet_free(set->names);
    duet_free(set->label);
    *set = (duet__set){0};
}
