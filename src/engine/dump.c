/* dump.c - collect taps, route them to a file by name, write the file when its stage is over. See dump.h.
 *
 * Host copies of device tensors are filled by enqueued copies: they are valid after the sync that every flush begins with.
 * A tap that cannot get memory remembers the error; the next flush returns it. */
#include "engine/dump.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "store/safetensors_write.h"

enum { NAME_BYTES = 96, PATH_BYTES = 4096 };

typedef struct entry {
    char name[NAME_BYTES];
    duet_dtype dtype;
    duet_shape shape;
    void *data; /* NULL once its file is written: the name stays taken */
    const char *file;
} entry;

struct duet_dump {
    duet_tap tap; /* first: a duet_tap * is a duet_dump * */
    char dir[PATH_BYTES];
    duet_dump_depths depths;
    entry *entries;
    int n_entries, capacity;
    duet_error error;
};

/* ---- which file, and whether at all --------------------------------------------------------------------- */

static const struct {
    const char *prefix, *file;
} routes[] = {
    {"input_ids", "condition"},  {"text", "condition"},        {"position_ids", "pack"},
    {"token_tags", "pack"},      {"timestep_indices", "pack"}, {"video_noise", "pack"},
    {"audio_noise", "pack"},     {"sigmas_", "pack"},          {"frames", "deliver"},
    {"video_latents", "decode"}, {"audio_latents", "decode"},  {"vvae.", "decode"},
    {"avae.", "decode"},         {"step_", "denoise"},         {"dit.", "denoise"},
};

static const char *route(const char *name) {
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (strncmp(name, routes[i].prefix, strlen(routes[i].prefix)) == 0) return routes[i].file;
    return "deliver"; /* audio, and whatever a stage may add */
}

static bool number_after(const char *name, const char *word, long *number) {
    const char *at = strstr(name, word);
    if (!at) return false;
    char *end;
    *number = strtol(at + strlen(word), &end, 10);
    return end != at + strlen(word);
}

static bool kept_block(long block, int32_t depth) {
    return block <= 1 || block == (depth - 1) / 2 || block >= depth - 1;
}

/* Rule 2 of dump.h: not every block of a deep network, one tile only. */
static bool kept(const duet_dump *d, const char *name) {
    long n, m;
    if (number_after(name, "dit.block_", &n)) return kept_block(n, d->depths.dit_layers);
    if (number_after(name, "text.layer_", &n)) return kept_block(n, d->depths.text_layers);
    if (strncmp(name, "vvae.", 5) != 0) return true;
    if (number_after(name, ".chunk_", &n) && n != 0) return false;
    if (number_after(name, ".tile_", &n)) {
        const char *x = strstr(name, ".tile_");
        bool first = sscanf(x, ".tile_%ld_%ld", &n, &m) == 2 && n == 0 && m == 0;
        if (!first) return false;
    }
    return !number_after(name, ".block_", &n) || kept_block(n, d->depths.vit_layers);
}

static bool taken(const duet_dump *d, const char *name) {
    for (int i = d->n_entries - 1; i >= 0; i--)
        if (strcmp(d->entries[i].name, name) == 0) return true;
    return false;
}

static bool dump_wants(duet_tap *self, const char *name) {
    duet_dump *d = (duet_dump *)self;
    return kept(d, name) && !taken(d, name);
}

/* ---- collecting ------------------------------------------------------------------------------------------ */

static bool grow(duet_dump *d) {
    if (d->n_entries < d->capacity) return true;
    int capacity = d->capacity ? 2 * d->capacity : 64;
    entry *bigger = duet_realloc(d->entries, (size_t)capacity * sizeof *bigger, DUET_MEM_ENGINE);
    if (!bigger) return false;
    d->entries = bigger;
    d->capacity = capacity;
    return true;
}

static void *add(duet_dump *d, const char *name, duet_dtype dtype, const duet_shape *shape, size_t *bytes) {
    int64_t elems;
    if (!dump_wants(&d->tap, name) || d->error.status != DUET_OK) return NULL;
    if (!duet_shape_elems(shape, &elems)) {
        duet_fail(&d->error, DUET_E_INTERNAL, "dump: %s: impossible shape", name);
        return NULL;
    }
    *bytes = (size_t)elems * duet_dtype_bytes(dtype);
    void *data = grow(d) ? duet_alloc(*bytes ? *bytes : 1, DUET_MEM_ENGINE) : NULL;
    if (!data) {
        duet_fail(&d->error, DUET_E_MEMORY, "dump: out of memory for %s (%zu bytes)", name, *bytes);
        return NULL;
    }
    entry *e = &d->entries[d->n_entries++];
    *e = (entry){.dtype = dtype, .shape = *shape, .data = data, .file = route(name)};
    snprintf(e->name, sizeof e->name, "%s", name);
    return data;
}

static void dump_take_device(duet_tap *self, duet_stream *stream, const char *name, const float *x,
                             int64_t rows, int64_t cols, int64_t x_stride, const duet_shape *shape) {
    size_t bytes;
    char *to = add((duet_dump *)self, name, DUET_F32, shape, &bytes);
    if (!to) return;
    int64_t row_bytes = cols * (int64_t)sizeof *x;
    if (x_stride == cols) {
        duet_copy_out(stream, to, x, rows * row_bytes);
        return;
    }
    for (int64_t r = 0; r < rows; r++) duet_copy_out(stream, to + r * row_bytes, x + r * x_stride, row_bytes);
}

static void dump_take_host(duet_tap *self, const char *name, duet_dtype dtype, const duet_shape *shape,
                           const void *data) {
    size_t bytes;
    void *to = add((duet_dump *)self, name, dtype, shape, &bytes);
    if (to) memcpy(to, data, bytes);
}

/* ---- life ------------------------------------------------------------------------------------------------ */

static bool make_folders(char *path) {
    for (char *at = path + 1; *at; at++) {
        if (*at != '/') continue;
        *at = '\0';
        bool ok = mkdir(path, 0777) == 0 || errno == EEXIST;
        *at = '/';
        if (!ok) return false;
    }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

duet_status duet_dump_open(const char *dir, const duet_dump_depths *depths, duet_dump **out,
                           duet_error *err) {
    duet_dump *d = duet_calloc(1, sizeof *d, DUET_MEM_ENGINE);
    if (!d) return duet_fail(err, DUET_E_MEMORY, "dump: out of memory");
    d->tap = (duet_tap){dump_wants, dump_take_device, dump_take_host};
    d->depths = *depths;
    if ((size_t)snprintf(d->dir, sizeof d->dir, "%s", dir) >= sizeof d->dir)
        errno = ENAMETOOLONG;
    else if (d->dir[0] && make_folders(d->dir)) {
        *out = d;
        return DUET_OK;
    }
    duet_status st = duet_fail(err, DUET_E_IO, "%s: cannot create the dump folder: %s", dir, strerror(errno));
    duet_free(d);
    return st;
}

void duet_dump_close(duet_dump **dump) {
    duet_dump *d = *dump;
    if (!d) return;
    *dump = NULL;
    for (int i = 0; i < d->n_entries; i++) duet_free(d->entries[i].data);
    duet_free(d->entries);
    duet_free(d);
}

duet_tap *duet_dump_tap(duet_dump *dump) {
    return dump ? &dump->tap : NULL;
}

static duet_status write_file(duet_dump *d, const char *file, duet_error *err) {
    duet_st_entry *list = duet_calloc((size_t)d->n_entries + 1, sizeof *list, DUET_MEM_ENGINE);
    if (!list) return duet_fail(err, DUET_E_MEMORY, "dump: out of memory");
    int n = 0;
    for (int i = 0; i < d->n_entries; i++) {
        const entry *e = &d->entries[i];
        if (e->data && strcmp(e->file, file) == 0)
            list[n++] =
                (duet_st_entry){.name = e->name, .dtype = e->dtype, .shape = e->shape, .data = e->data};
    }
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s.safetensors", d->dir, file);
    duet_status st = n ? duet_st_write(path, list, n, NULL, 0, err) : DUET_OK;
    duet_free(list);
    return st;
}

duet_status duet_dump_flush(duet_dump *d, duet_stream *stream, const char *file, duet_error *err) {
    if (!d) return DUET_OK;
    duet_status st = stream ? duet_stream_sync(stream, err) : DUET_OK;
    if (st == DUET_OK && d->error.status != DUET_OK)
        st = duet_fail(err, d->error.status, "%s", d->error.message);
    if (st == DUET_OK) st = write_file(d, file, err);
    for (int i = 0; i < d->n_entries; i++) {
        entry *e = &d->entries[i];
        if (strcmp(e->file, file) != 0) continue;
        duet_free(e->data);
        e->data = NULL;
    }
    return st;
}
