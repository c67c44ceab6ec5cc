/* safetensors_write.c - see safetensors_write.h.
 *
 *     open: temp file, header (padded with spaces to 8 bytes) -> put: buffered writes -> commit: flush, fsync, rename,
 *     fsync of the directory */
#include "store/safetensors_write.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

enum { BUFFER_BYTES = 1 << 20 };

struct duet_st_writer {
    char *path, *temp;
    int fd;
    char *buffer;
    size_t held;
    bool skip_flush;
    int64_t promised, written; /* bytes of tensor data */
};

int64_t duet_st_entry_bytes(const duet_st_entry *entry) {
    int64_t n;
    if (!duet_shape_elems(&entry->shape, &n)) return -1;
    return n * (int64_t)duet_dtype_bytes(entry->dtype);
}

static int by_size_and_name(const void *a, const void *b) {
    const duet_st_entry *x = a, *y = b;
    size_t m = duet_dtype_bytes(x->dtype), n = duet_dtype_bytes(y->dtype);
    if (m != n) return m > n ? -1 : 1;
    return strcmp(x->name, y->name);
}

void duet_st_sort(duet_st_entry *entries, int n_entries) {
    qsort(entries, (size_t)n_entries, sizeof *entries, by_size_and_name);
}

static duet_status io_error(const duet_st_writer *w, const char *what, duet_error *err) {
    return duet_fail(err, DUET_E_IO, "%s: cannot %s: %s", w->path, what, strerror(errno));
}

static duet_status write_all(const duet_st_writer *w, const char *bytes, size_t n, duet_error *err) {
    while (n) {
        ssize_t done = write(w->fd, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return io_error(w, "write", err);
        bytes += done;
        n -= (size_t)done;
    }
    return DUET_OK;
}

static duet_status put(duet_st_writer *w, const char *bytes, size_t n, duet_error *err) {
    duet_status st = DUET_OK;
    if (w->held + n > BUFFER_BYTES) {
        st = write_all(w, w->buffer, w->held, err);
        w->held = 0;
    }
    if (st == DUET_OK && n > BUFFER_BYTES) return write_all(w, bytes, n, err);
    if (st == DUET_OK && n) {
        memcpy(w->buffer + w->held, bytes, n);
        w->held += n;
    }
    return st;
}

static duet_status open_temp(const char *path, duet_st_writer **out, duet_error *err) {
    duet_st_writer *w = *out = duet_calloc(1, sizeof *w, DUET_MEM_STORE);
    if (!w) goto memory;
    w->fd = -1;
    size_t n = strlen(path) + 32;
    if (!(w->path = duet_strdup(path)) || !(w->temp = duet_alloc(n, DUET_MEM_STRING)) ||
        !(w->buffer = duet_alloc(BUFFER_BYTES, DUET_MEM_STORE)))
        goto memory;
    snprintf(w->temp, n, "%s.%ld.tmp", path, (long)getpid());
    w->fd = open(w->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd >= 0) return DUET_OK;
    duet_status st = io_error(w, "create", err);
    duet_st_writer_abort(out);
    return st;
memory:
    duet_st_writer_abort(out);
    return duet_fail(err, DUET_E_MEMORY, "%s: no memory to write it", path);
}

void duet_st_writer_abort(duet_st_writer **writer) {
    duet_st_writer *w = *writer;
    if (!w) return;
    *writer = NULL;
    if (w->fd >= 0) {
        close(w->fd);
        unlink(w->temp);
    }
    duet_free(w->path);
    duet_free(w->temp);
    duet_free(w->buffer);
    duet_free(w);
}

/* The rename itself must reach the disk too: flush the directory. Some file systems refuse that; the data is safe
 * already, so this is not an error. */
static void flush_directory(const char *path) {
    const char *slash = strrchr(path, '/');
    char *dir = slash == path ? duet_strdup("/")
                : slash       ? duet_strndup(path, (size_t)(slash - path))
                              : duet_strdup(".");
    int fd = dir ? open(dir, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    duet_free(dir);
}

static duet_status finish(duet_st_writer *w, duet_error *err) {
    duet_status st = write_all(w, w->buffer, w->held, err);
    if (st != DUET_OK) return st;
    if (!w->skip_flush && fsync(w->fd) != 0) return io_error(w, "flush", err);
    if (rename(w->temp, w->path) != 0) return io_error(w, "rename into place", err);
    close(w->fd);
    w->fd = -1;
    if (!w->skip_flush) flush_directory(w->path);
    return DUET_OK;
}

/* ---- header -------------------------------------------------------------------------------------------------- */

static json_t *entry_json(const duet_st_entry *e, int64_t *at) {
    json_t *shape = json_array();
    for (int i = 0; i < e->shape.rank; i++) json_array_append_new(shape, json_integer(e->shape.dim[i]));
    int64_t begin = *at;
    *at += duet_st_entry_bytes(e);
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", duet_dtype_name(e->dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)*at);
}

static json_t *header_json(const duet_st_entry *entries, int n_entries, const duet_st_meta *meta, int n_meta,
                           int64_t *data_bytes) {
    json_t *root = json_object(), *pairs = json_object();
    bool ok = root && pairs;
    for (int i = 0; i < n_meta; i++)
        ok = ok && !json_object_set_new(pairs, meta[i].key, json_string(meta[i].value));
    ok = ok && (!n_meta || !json_object_set(root, "__metadata__", pairs));
    for (int i = 0; i < n_entries; i++) {
        if (duet_st_entry_bytes(&entries[i]) < 0 || json_object_get(root, entries[i].name)) ok = false;
        ok = ok && !json_object_set_new(root, entries[i].name, entry_json(&entries[i], data_bytes));
    }
    json_decref(pairs);
    if (ok) return root;
    json_decref(root);
    return NULL;
}

static duet_status put_header(duet_st_writer *w, const json_t *root, duet_error *err) {
    char *text = json_dumps(root, JSON_COMPACT | JSON_PRESERVE_ORDER);
    if (!text) return duet_fail(err, DUET_E_MEMORY, "%s: no memory for the header", w->path);
    uint8_t length[8];
    size_t n = strlen(text), padded = (n + 7) / 8 * 8;
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)padded >> (8 * i));
    duet_status st = put(w, (const char *)length, 8, err);
    if (st == DUET_OK) st = put(w, text, n, err);
    if (st == DUET_OK) st = put(w, "       ", padded - n, err);
    free(text);
    return st;
}

duet_status duet_st_writer_open(const char *path, const duet_st_entry *entries, int n_entries,
                                const duet_st_meta *meta, int n_meta, duet_st_writer **out, duet_error *err) {
    *out = NULL;
    int64_t data_bytes = 0;
    json_t *root = header_json(entries, n_entries, meta, n_meta, &data_bytes);
    if (!root)
        return duet_fail(err, DUET_E_INTERNAL,
                         "%s: tensors or metadata cannot be described (duplicate name, overflow "
                         "or text that is not UTF-8)",
                         path);
    duet_status st = open_temp(path, out, err);
    if (st == DUET_OK) st = put_header(*out, root, err);
    json_decref(root);
    if (st != DUET_OK)
        duet_st_writer_abort(out);
    else
        (*out)->promised = data_bytes;
    return st;
}

duet_status duet_st_writer_put(duet_st_writer *writer, const void *bytes, size_t n_bytes, duet_error *err) {
    writer->written += (int64_t)n_bytes;
    if (writer->written > writer->promised)
        return duet_fail(err, DUET_E_INTERNAL, "%s: more bytes written than announced", writer->path);
    return put(writer, bytes, n_bytes, err);
}

duet_status duet_st_writer_commit(duet_st_writer **writer, duet_error *err) {
    duet_st_writer *w = *writer;
    duet_status st = DUET_OK;
    if (w->written != w->promised)
        st = duet_fail(err, DUET_E_INTERNAL, "%s: %lld of %lld bytes written", w->path, (long long)w->written,
                       (long long)w->promised);
    if (st == DUET_OK) st = finish(w, err);
    duet_st_writer_abort(writer);
    return st;
}

duet_status duet_st_write(const char *path, const duet_st_entry *entries, int n_entries,
                          const duet_st_meta *meta, int n_meta, duet_error *err) {
    duet_st_writer *w = NULL;
    size_t bytes = (size_t)n_entries * sizeof *entries;
    duet_st_entry *sorted = duet_alloc(bytes + 1, DUET_MEM_STORE);
    if (!sorted) return duet_fail(err, DUET_E_MEMORY, "%s: no memory to write it", path);
    memcpy(sorted, entries, bytes);
    duet_st_sort(sorted, n_entries);
    duet_status st = duet_st_writer_open(path, sorted, n_entries, meta, n_meta, &w, err);
    for (int i = 0; st == DUET_OK && i < n_entries; i++)
        st = duet_st_writer_put(w, sorted[i].data, (size_t)duet_st_entry_bytes(&sorted[i]), err);
    if (st == DUET_OK) st = duet_st_writer_commit(&w, err);
    duet_st_writer_abort(&w);
    duet_free(sorted);
    return st;
}

void duet_st_writer_skip_flush(duet_st_writer *writer) {
    writer->skip_flush = true;
}

duet_status duet_write_text(const char *path, const char *text, size_t n_bytes, bool flush, duet_error *err) {
    duet_st_writer *w = NULL;
    duet_status st = open_temp(path, &w, err);
    if (st == DUET_OK) w->skip_flush = !flush;
    if (st == DUET_OK) st = put(w, text, n_bytes, err);
    if (st == DUET_OK) st = finish(w, err);
    duet_st_writer_abort(&w);
    return st;
}
