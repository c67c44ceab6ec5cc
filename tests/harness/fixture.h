/* fixture.h - read committed golden tensors: the few lines of safetensors that a test needs, trusting the
 * file.
 *
 *     fixture f = fixture_open("golden/noise.safetensors");     relative to tests/fixtures; skips loudly when
 * absent fixture_tensor x = fixture_get(&f, "randn.42.16");        fails the test when absent
 *     fixture_close(&f); */
#ifndef DUET_FIXTURE_H
#define DUET_FIXTURE_H

#include <stdlib.h>

#include "harness/harness.h"

/* Aligned copies of tensors that the file does not align; a list behind a pointer, so that reading stays const. */
typedef struct fixture_copy {
    struct fixture_copy *next;
    double data[];
} fixture_copy;

typedef struct fixture {
    char path[1024], *header; /* JSON, NUL-terminated */
    const unsigned char *data;
    unsigned char *file;
    fixture_copy **copies;
} fixture;

typedef struct fixture_tensor {
    char dtype[8];
    int rank;
    int64_t dim[8], n;
    const void *data; /* 8-byte aligned; valid until the fixture is closed */
} fixture_tensor;

static inline unsigned char *fixture__read(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    unsigned char *data = size > 0 ? malloc((size_t)size) : NULL;
    bool ok = data && fread(data, 1, (size_t)size, file) == (size_t)size;
    fclose(file);
    *bytes = ok ? (size_t)size : 0;
    return ok ? data : NULL;
}

static inline fixture fixture_open_path(const char *path) {
    fixture f = {.file = NULL};
    size_t bytes;
    snprintf(f.path, sizeof f.path, "%s", path);
    f.file = fixture__read(path, &bytes);
    if (!f.file) SKIP("no fixture %s", path);
    uint64_t header_bytes;
    memcpy(&header_bytes, f.file, sizeof header_bytes);
    f.header = malloc(header_bytes + 1);
    if (!f.header || header_bytes + 8 > bytes) FAIL("%s: bad header", path);
    memcpy(f.header, f.file + 8, header_bytes);
    f.header[header_bytes] = '\0';
    f.data = f.file + 8 + header_bytes;
    f.copies = calloc(1, sizeof *f.copies);
    return f;
}

static inline fixture fixture_open(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/fixtures/%s", harness_source_dir(), name);
    return fixture_open_path(path);
}

static inline void fixture_close(fixture *f) {
    while (f->copies && *f->copies) {
        fixture_copy *copy = *f->copies;
        *f->copies = copy->next;
        free(copy);
    }
    free(f->copies);
    free(f->header);
    free(f->file);
    *f = (fixture){.file = NULL};
}

static inline const char *fixture__value(const fixture *f, const char *entry, const char *key) {
    const char *at = strstr(entry, key), *end = strchr(entry, '}');
    if (!at || at > end) FAIL("%s: no %s", f->path, key);
    return at + strlen(key);
}

static inline const void *fixture__aligned(const fixture *f, const unsigned char *data, size_t bytes) {
    if ((uintptr_t)data % sizeof(double) == 0) return data;
    fixture_copy *copy = malloc(sizeof *copy + bytes);
    if (!copy) FAIL("%s: no memory", f->path);
    memcpy(copy->data, data, bytes);
    copy->next = *f->copies;
    *f->copies = copy;
    return copy->data;
}

static inline bool fixture_has(const fixture *f, const char *name) {
    char key[256];
    snprintf(key, sizeof key, "\"%s\":{", name);
    return strstr(f->header, key) != NULL;
}

static inline fixture_tensor fixture_get(const fixture *f, const char *name) {
    char key[256];
    fixture_tensor t = {.n = 1};
    snprintf(key, sizeof key, "\"%s\":{", name);
    const char *entry = strstr(f->header, key);
    if (!entry) FAIL("%s: no tensor %s", f->path, name);
    sscanf(fixture__value(f, entry, "\"dtype\":"), " \"%7[^\"]", t.dtype);
    const char *at = strchr(fixture__value(f, entry, "\"shape\":"), '[') + 1;
    for (char *next; t.rank < 8 && *at != ']'; at = *next == ',' ? next + 1 : next) {
        t.dim[t.rank] = strtoll(at, &next, 10);
        t.n *= t.dim[t.rank++];
    }
    char *end;
    int64_t first = strtoll(strchr(fixture__value(f, entry, "\"data_offsets\":"), '[') + 1, &end, 10);
    t.data = fixture__aligned(f, f->data + first, (size_t)(strtoll(end + 1, NULL, 10) - first));
    return t;
}

static inline const float *fixture_f32(const fixture *f, const char *name, int64_t n) {
    fixture_tensor t = fixture_get(f, name);
    EXPECT_STR(t.dtype, "F32");
    if (n >= 0) EXPECT_EQ(t.n, n);
    return t.data;
}

/* "..." value of a metadata key. */
static inline bool fixture_meta(const fixture *f, const char *key, char *out, size_t out_bytes) {
    char quoted[256];
    snprintf(quoted, sizeof quoted, "\"%s\":\"", key);
    const char *at = strstr(f->header, quoted);
    if (!at) return false;
    at += strlen(quoted);
    size_t n = 0;
    while (*at && *at != '"' && n + 1 < out_bytes) {
        if (*at == '\\') at++;
        out[n++] = *at++;
    }
    out[n] = '\0';
    return true;
}

/* Bitwise equality of fp32 data, naming the first difference. */
#define EXPECT_SAME_F32(got, want, count)                                                                    \
    do {                                                                                                     \
        const float *got_ = (got), *want_ = (want);                                                          \
        for (int64_t i_ = 0; i_ < (int64_t)(count); i_++)                                                    \
            if (memcmp(&got_[i_], &want_[i_], sizeof(float)) != 0)                                           \
                FAIL("%s[%" PRId64 "]: got %.9g, want %.9g", #got, i_, (double)got_[i_], (double)want_[i_]); \
    } while (0)

/* ||got - want|| / ||want|| in double; infinite when got is not finite. */
static inline double fixture_rel_l2(const float *got, const float *want, int64_t n) {
    double diff = 0.0, norm = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        diff += d * d;
        norm += (double)want[i] * (double)want[i];
    }
    if (!isfinite(diff)) return INFINITY;
    return norm > 0.0 ? sqrt(diff / norm) : sqrt(diff);
}

#endif
