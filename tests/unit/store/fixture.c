/* fixture.c - see fixture.h. */
#include "unit/store/fixture.h"

#include <glob.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "store/file.h"
#include "store/safetensors.h"
#include "store/safetensors_write.h"
#include "store/synth.h"

enum { RING = 200 };

const char *fixture_path(const char *fmt, ...) {
    static char ring[RING][600];
    static int next;
    char *path = ring[next++ % RING], name[500];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    snprintf(path, sizeof ring[0], "%s/%.300s", harness_tmp_dir(), name);
    return path;
}

const char *fixture_make(const char *name, const char *layout, const char *partition, uint64_t seed) {
    const char *path = fixture_path("%s", name);
    duet_synth_options o = {.out_dir = path, .layout = layout, .partition = partition, .seed = seed};
    duet_error err = {0};
    EXPECT_OK(duet_synth(&o, &err), err);
    return path;
}

int fixture_run(const char *fmt, ...) {
    char command[2000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    return system(command);
}

duet_model *fixture_open(const char *path, duet_partition partition) {
    duet_model_options o = {.path = path, .partition = partition};
    duet_model *model;
    duet_error err = {0};
    EXPECT_OK(duet_model_open(&o, &model, &err), err);
    return model;
}

void fixture_refuses(const char *path, const char *file, const char *what) {
    duet_model_options o = {.path = path};
    duet_model *model;
    duet_error err = {0};
    duet_status st = duet_model_open(&o, &model, &err);
    if (st == DUET_OK) FAIL("%s: opened, although %s", file, what);
    EXPECT_EQ(st, DUET_E_MODEL);
    EXPECT_EQ(err.status, DUET_E_MODEL);
    EXPECT(model == NULL);
    EXPECT_HAS(err.message, file);
    EXPECT_HAS(err.message, what);
    EXPECT_EQ(duet_mem_live_total_bytes(), 0);
}

static void put_file(const char *path, const char *a, size_t na, const char *b, size_t nb) {
    FILE *f = fopen(path, "wb");
    EXPECT(f != NULL);
    EXPECT_EQ(fwrite(a, 1, na, f) + fwrite(b, 1, nb, f), na + nb);
    fclose(f);
}

void fixture_copy(const char *from, const char *to) {
    char *bytes;
    size_t n;
    duet_error err = {0};
    EXPECT_OK(duet__read_file(from, 1 << 28, &bytes, &n, &err), err);
    put_file(to, bytes, n, "", 0);
    duet_free(bytes);
}

void fixture_edit(const char *file, const char *from, const char *to) {
    char *text, out[1 << 17];
    size_t n;
    duet_error err = {0};
    EXPECT_OK(duet__read_file(file, sizeof out - 2000, &text, &n, &err), err);
    char *at = strstr(text, from);
    if (!at) FAIL("%s does not hold %s", file, from);
    snprintf(out, sizeof out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    put_file(file, out, strlen(out), "", 0);
    duet_free(text);
}

void fixture_shift(const char *file, int n) {
    char *text;
    size_t bytes;
    duet_error err = {0};
    EXPECT_OK(duet__read_file(file, 1 << 28, &text, &bytes, &err), err);
    uint64_t header;
    memcpy(&header, text, 8);
    size_t head = 8 + (size_t)header;
    char *wider = malloc(head + (size_t)n);
    memcpy(wider, text, head);
    memset(wider + head, ' ', (size_t)n);
    header += (uint64_t)n;
    memcpy(wider, &header, 8);
    put_file(file, wider, head + (size_t)n, text + head, bytes - head);
    free(wider);
    duet_free(text);
}

static void rewrite(const char *file, const char *from, const char *to, const char *cast, duet_dtype dtype) {
    static duet_st_entry entries[2048];
    static char names[2048][128], narrow[1 << 16];
    duet_st_file *f;
    duet_error err = {0};
    EXPECT_OK(duet_st_open(file, &f, &err), err);
    for (int i = 0; i < duet_st_count(f); i++) {
        const duet_st_tensor *t = duet_st_at(f, i);
        bool hit = from && strncmp(t->name, from, strlen(from)) == 0;
        snprintf(names[i], sizeof names[i], "%s%s", hit ? to : "", t->name + (hit ? strlen(from) : 0));
        entries[i] = (duet_st_entry){names[i], t->dtype, t->shape, t->data};
        if (!cast || strcmp(t->name, cast) != 0) continue;
        entries[i].dtype = dtype;
        entries[i].data = narrow;
        for (int64_t k = 0; dtype == DUET_BF16 && k < t->bytes / 4; k++) {
            float value;
            memcpy(&value, t->data + 4 * k, 4);
            uint16_t half = duet_f32_to_bf16(value);
            memcpy(narrow + 2 * k, &half, 2);
        }
    }
    EXPECT_OK(duet_st_write(file, entries, duet_st_count(f), NULL, 0, &err), err);
    duet_st_close(&f);
}

void fixture_rename(const char *file, const char *from, const char *to) {
    rewrite(file, from, to, NULL, DUET_F32);
}

void fixture_cast(const char *file, const char *name, duet_dtype dtype) {
    rewrite(file, NULL, NULL, name, dtype);
}

void fixture_merge(const char *folder, const char *stem, const char *const *drop) {
    static duet_st_entry entries[2048];
    duet_st_file *shards[16];
    duet_error err = {0};
    int n = 0, n_shards = 0, total = 0;
    char path[700];
    glob_t found;
    snprintf(path, sizeof path, "%s/%s-*.safetensors", folder, stem);
    EXPECT_EQ(glob(path, 0, NULL, &found), 0);
    total = (int)found.gl_pathc;
    for (; n_shards < total; n_shards++) {
        EXPECT_OK(duet_st_open(found.gl_pathv[n_shards], &shards[n_shards], &err), err);
        for (int i = 0; i < duet_st_count(shards[n_shards]); i++) {
            const duet_st_tensor *t = duet_st_at(shards[n_shards], i);
            bool keep = true;
            for (int d = 0; drop && drop[d]; d++) keep = keep && !strstr(t->name, drop[d]);
            if (keep) entries[n++] = (duet_st_entry){t->name, t->dtype, t->shape, t->data};
        }
    }
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, stem);
    EXPECT_OK(duet_st_write(path, entries, n, NULL, 0, &err), err);
    for (int i = 0; i < total; i++) {
        duet_st_close(&shards[i]);
        remove(found.gl_pathv[i]);
    }
    globfree(&found);
    snprintf(path, sizeof path, "%s/%s.safetensors.index.json", folder, stem);
    EXPECT_EQ(remove(path), 0);
}
