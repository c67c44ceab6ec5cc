/* safetensors.c - see safetensors.h. Header limits: 100 MB in all (as the reference library), 1 MiB of metadata,
 * 1 M tensors. The JSON is prescanned before it is parsed, so that a hostile header cannot ask for more memory than a
 * few times its own size. */
#include "store/safetensors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "store/file.h"
#include "store/json.h"

enum {
    HEADER_MAX_BYTES = 100 * 1000 * 1000,
    METADATA_MAX_BYTES = 1 << 20,
    NAME_MAX_BYTES = 512,
    HEADER_MAX_DEPTH = 3, /* file > tensor > list */
    HEADER_MAX_VALUES = 8 << 20
};

typedef struct pair {
    char *key, *value;
} pair;

struct duet_st_file {
    char *path;
    duet__map map; /* empty when parsed from memory */
    const uint8_t *section;
    int64_t section_bytes;
    duet_st_tensor *tensors;
    int n_tensors;
    pair *metadata;
    int n_metadata;
};

DUET_PRINTF(3, 4)
static duet_status damaged(const duet_st_file *f, duet_error *err, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return duet_fail(err, DUET_E_MODEL, "%s: %s", f->path, text);
}

static duet_status no_memory(const duet_st_file *f, duet_error *err) {
    return duet_fail(err, DUET_E_MEMORY, "%s: no memory for the header", f->path);
}

/* ---- header -------------------------------------------------------------------------------------------------- */

static bool printable(const char *name) {
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        if (*p < 0x20 || *p == 0x7f) return false;
    return true;
}

static duet_status read_shape(const duet_st_file *f, duet_st_tensor *t, const json_t *shape,
                              duet_error *err) {
    if (!json_is_array(shape)) return damaged(f, err, "tensor %s: shape is missing or not a list", t->name);
    if (json_array_size(shape) > DUET_MAX_RANK)
        return damaged(f, err, "tensor %s: %zu dimensions, at most %d", t->name, json_array_size(shape),
                       DUET_MAX_RANK);
    t->shape.rank = (int)json_array_size(shape);
    for (int i = 0; i < t->shape.rank; i++) {
        json_t *dim = json_array_get(shape, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return damaged(f, err, "tensor %s: dimension %d is not a whole number", t->name, i);
        t->shape.dim[i] = json_integer_value(dim);
    }
    return DUET_OK;
}

static duet_status read_range(const duet_st_file *f, duet_st_tensor *t, const json_t *range,
                              duet_error *err) {
    json_t *begin = json_array_get(range, 0), *end = json_array_get(range, 1);
    if (json_array_size(range) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return damaged(f, err, "tensor %s: data_offsets is not a pair of whole numbers", t->name);
    int64_t from = json_integer_value(begin), to = json_integer_value(end), want;
    if (from < 0 || to < from)
        return damaged(f, err, "tensor %s: data_offsets [%lld, %lld) is not a range", t->name,
                       (long long)from, (long long)to);
    if (!duet_shape_elems(&t->shape, &want) ||
        __builtin_mul_overflow(want, (int64_t)duet_dtype_bytes(t->dtype), &want))
        return damaged(f, err, "tensor %s: the product of its dimensions overflows", t->name);
    char shape[160];
    if (to - from != want)
        return damaged(f, err, "tensor %s: %s %s takes %lld bytes, but its range holds %lld", t->name,
                       duet_dtype_name(t->dtype), duet_shape_text(&t->shape, shape, sizeof shape),
                       (long long)want, (long long)(to - from));
    if (to > f->section_bytes)
        return damaged(f, err, "truncated: tensor %s ends at byte %lld of the data, the file holds %lld",
                       t->name, (long long)to, (long long)f->section_bytes);
    t->data = f->section + from;
    t->bytes = to - from;
    return DUET_OK;
}

static duet_status read_tensor(duet_st_file *f, const char *name, const json_t *value, duet_error *err) {
    if (!*name || strlen(name) > NAME_MAX_BYTES || !printable(name))
        return damaged(f, err, "a tensor name is empty, longer than %d bytes or not printable",
                       NAME_MAX_BYTES);
    duet_st_tensor t = {.name = name};
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    if (!dtype) return damaged(f, err, "tensor %s: dtype is missing", name);
    if (!duet_dtype_parse(dtype, &t.dtype))
        return damaged(f, err, "tensor %s: unknown dtype %.32s", name, printable(dtype) ? dtype : "?");
    duet_status st = read_shape(f, &t, json_object_get(value, "shape"), err);
    if (st == DUET_OK) st = read_range(f, &t, json_object_get(value, "data_offsets"), err);
    if (st != DUET_OK) return st;
    if (!(t.name = duet_strdup(name))) return no_memory(f, err);
    f->tensors[f->n_tensors++] = t;
    return DUET_OK;
}

static duet_status read_metadata(duet_st_file *f, json_t *object, duet_error *err) {
    const char *key;
    json_t *value;
    size_t bytes = 0;
    if (!json_is_object(object)) return damaged(f, err, "__metadata__ is not an object");
    f->metadata = duet_calloc(json_object_size(object) + 1, sizeof *f->metadata, DUET_MEM_STORE);
    if (!f->metadata) return no_memory(f, err);
    json_object_foreach(object, key, value) {
        if (!json_is_string(value))
            return damaged(f, err, "__metadata__ holds something that is not a string");
        bytes += strlen(key) + json_string_length(value);
        if (bytes > METADATA_MAX_BYTES)
            return damaged(f, err, "__metadata__ is larger than %d bytes", METADATA_MAX_BYTES);
        pair *p = &f->metadata[f->n_metadata++];
        *p = (pair){duet_strdup(key), duet_strdup(json_string_value(value))};
        if (!p->key || !p->value) return no_memory(f, err);
    }
    return DUET_OK;
}

static duet_status read_header(duet_st_file *f, json_t *root, duet_error *err) {
    const char *key;
    json_t *value;
    f->tensors = duet_calloc(json_object_size(root) + 1, sizeof *f->tensors, DUET_MEM_STORE);
    if (!f->tensors) return no_memory(f, err);
    json_object_foreach(root, key, value) {
        bool metadata = strcmp(key, "__metadata__") == 0;
        duet_status st = metadata ? read_metadata(f, value, err) : read_tensor(f, key, value, err);
        if (st != DUET_OK) return st;
    }
    return DUET_OK;
}

/* ---- coverage of the data section ---------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b) {
    const duet_st_tensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty tensors first */
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const duet_st_tensor *)a)->name, ((const duet_st_tensor *)b)->name);
}

static duet_status check_coverage(const duet_st_file *f, duet_error *err) {
    int64_t at = 0;
    for (int i = 0; i < f->n_tensors; i++) {
        const duet_st_tensor *t = &f->tensors[i];
        int64_t begin = t->data - f->section;
        if (begin < at)
            return damaged(f, err, "tensor %s overlaps tensor %s", t->name, f->tensors[i - 1].name);
        if (begin > at)
            return damaged(f, err, "%lld bytes before tensor %s belong to no tensor", (long long)(begin - at),
                           t->name);
        at = begin + t->bytes;
    }
    if (at < f->section_bytes)
        return damaged(f, err, "%lld trailing bytes after the last tensor",
                       (long long)(f->section_bytes - at));
    return DUET_OK;
}

/* ---- opening ------------------------------------------------------------------------------------------------- */

static duet_status find_header(duet_st_file *f, const uint8_t *data, size_t bytes, size_t *header_bytes,
                               duet_error *err) {
    if (bytes < 8) return damaged(f, err, "truncated: %zu bytes cannot be a safetensors file", bytes);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | data[i];
    if (n > HEADER_MAX_BYTES)
        return damaged(f, err, "header of %llu bytes, at most %d", (unsigned long long)n, HEADER_MAX_BYTES);
    if (n > bytes - 8)
        return damaged(f, err,
                       "truncated: the header should have %llu bytes, the file holds %zu after its length",
                       (unsigned long long)n, bytes - 8);
    if (n < 2 || data[8] != '{')
        return damaged(f, err, "not a safetensors file: the header is not a JSON object");
    *header_bytes = (size_t)n;
    f->section = data + 8 + n;
    f->section_bytes = (int64_t)(bytes - 8 - (size_t)n);
    return DUET_OK;
}

static duet_status parse(duet_st_file *f, const uint8_t *data, size_t bytes, duet_error *err) {
    size_t n = 0;
    duet_status st = find_header(f, data, bytes, &n, err);
    if (st != DUET_OK) return st;
    const char *text = (const char *)data + 8;
    const char *wrong = duet__json_prescan(text, n, HEADER_MAX_DEPTH, HEADER_MAX_VALUES);
    if (wrong) return damaged(f, err, "header %s", wrong);
    json_error_t e;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!root) return damaged(f, err, "header is not valid JSON: %.200s", printable(e.text) ? e.text : "?");
    st = json_is_object(root) ? read_header(f, root, err) : damaged(f, err, "header is not an object");
    json_decref(root);
    if (st != DUET_OK) return st;
    qsort(f->tensors, (size_t)f->n_tensors, sizeof *f->tensors, by_place);
    st = check_coverage(f, err);
    qsort(f->tensors, (size_t)f->n_tensors, sizeof *f->tensors, by_name);
    return st;
}

static duet_st_file *new_file(const char *path) {
    duet_st_file *f = duet_calloc(1, sizeof *f, DUET_MEM_STORE);
    if (f && !(f->path = duet_strdup(path))) duet_st_close(&f);
    return f;
}

duet_status duet_st_parse(const void *data, size_t bytes, const char *label, duet_st_file **out,
                          duet_error *err) {
    duet_st_file *f = *out = new_file(label);
    if (!f) return duet_fail(err, DUET_E_MEMORY, "%s: out of memory", label);
    duet_status st = parse(f, data, bytes, err);
    if (st != DUET_OK) duet_st_close(out);
    return st;
}

duet_status duet_st_open(const char *path, duet_st_file **out, duet_error *err) {
    duet_st_file *f = *out = new_file(path);
    if (!f) return duet_fail(err, DUET_E_MEMORY, "%s: out of memory", path);
    duet_status st = duet__map_open(path, &f->map, err);
    if (st == DUET_OK) st = parse(f, f->map.data, f->map.bytes, err);
    if (st != DUET_OK) duet_st_close(out);
    return st;
}

void duet_st_close(duet_st_file **file) {
    duet_st_file *f = *file;
    if (!f) return;
    *file = NULL;
    for (int i = 0; i < f->n_tensors; i++) duet_free((void *)(uintptr_t)f->tensors[i].name);
    for (int i = 0; i < f->n_metadata; i++) {
        duet_free(f->metadata[i].key);
        duet_free(f->metadata[i].value);
    }
    duet_free(f->tensors);
    duet_free(f->metadata);
    duet__map_close(&f->map);
    duet_free(f->path);
    duet_free(f);
}

/* ---- lookups ------------------------------------------------------------------------------------------------- */

const char *duet_st_path(const duet_st_file *file) {
    return file->path;
}
int duet_st_count(const duet_st_file *file) {
    return file->n_tensors;
}
const duet_st_tensor *duet_st_at(const duet_st_file *file, int i) {
    return &file->tensors[i];
}

const duet_st_tensor *duet_st_find(const duet_st_file *file, const char *name) {
    if (!file->n_tensors) return NULL;
    duet_st_tensor key = {.name = name};
    return bsearch(&key, file->tensors, (size_t)file->n_tensors, sizeof key, by_name);
}

const void *duet_st_mapping(const duet_st_file *file, size_t *bytes) {
    *bytes = file->map.bytes;
    return file->map.data;
}

int duet_st_metadata_count(const duet_st_file *file) {
    return file->n_metadata;
}
const char *duet_st_metadata_key(const duet_st_file *file, int i) {
    return file->metadata[i].key;
}

const char *duet_st_metadata(const duet_st_file *file, const char *key) {
    for (int i = 0; i < file->n_metadata; i++)
        if (strcmp(file->metadata[i].key, key) == 0) return file->metadata[i].value;
    return NULL;
}
