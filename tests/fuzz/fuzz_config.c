/* fuzz_config.c - arbitrary text as one of the JSON files of a model directory.
 *
 * The first byte (modulo the table) chooses the file, the rest replaces its content in a generated tree. What the
 * reader accepts must give a tensor table without overflow, truncated or equal names; an index may only name shards in
 * its own folder. */
#define _XOPEN_SOURCE 700
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/file.h"
#include "store/model_int.h"
#include "store/synth.h"

#define REQUIRE(cond)                                                                                        \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                                       \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

static const struct {
    const char *tree, *file;
    uint32_t components; /* what has to be opened for the file to be read */
} targets[] = {{"n/FL2VA", "transformer/config.json", 1u << DUET_COMPONENT_DIT},
               {"n/FL2VA", "text_encoder/config.json", 1u << DUET_COMPONENT_TEXT},
               {"n/FL2VA", "video_vae/config.json", 1u << DUET_COMPONENT_VVAE},
               {"n/FL2VA", "video_vae/source/config.json", 1u << DUET_COMPONENT_VVAE},
               {"n/FL2VA", "audio_vae/config.json", 1u << DUET_COMPONENT_AVAE},
               {"n/FL2VA", "audio_vae/metadata.json", 1u << DUET_COMPONENT_AVAE},
               {"n/FL2VA", "model_index.json", 1u << DUET_COMPONENT_AVAE},
               {"n/FL2VA", "transformer/model.safetensors.index.json", 1u << DUET_COMPONENT_DIT},
               {"d", "transformer/config.json", 1u << DUET_COMPONENT_DIT},
               {"d", "vae/config.json", 1u << DUET_COMPONENT_VVAE},
               {"d", "audio_vae/config.json", 1u << DUET_COMPONENT_AVAE},
               {"d", "modular_model_index.json", 1u << DUET_COMPONENT_AVAE},
               {"d", "scheduler/scheduler_config.json", 1u << DUET_COMPONENT_DIT}};
enum { N_TARGETS = sizeof targets / sizeof *targets };

static char root[256];
static char *good[N_TARGETS];
static size_t good_bytes[N_TARGETS];

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *walk) {
    (void)st, (void)type, (void)walk;
    return remove(path);
}

static void clean(void) {
    nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    for (int i = 0; i < N_TARGETS; i++) duet_free(good[i]);
}

static const char *path_of(int target) {
    static char path[600];
    snprintf(path, sizeof path, "%s/%s/%s", root, targets[target].tree, targets[target].file);
    return path;
}

static void make_trees(void) {
    const char *base = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/duet-fuzz-XXXXXX",
             base                            ? base
             : access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                                             : "/tmp");
    REQUIRE(mkdtemp(root) != NULL);
    for (int i = 0; i < 2; i++) {
        char out[300];
        snprintf(out, sizeof out, "%s/%s", root, i ? "d" : "n");
        duet_synth_options o = {.out_dir = out, .layout = i ? "diffusers" : "native", .partition = "fl2va"};
        REQUIRE(duet_synth(&o, NULL) == DUET_OK);
    }
    for (int i = 0; i < N_TARGETS; i++)
        REQUIRE(duet__read_file(path_of(i), 1 << 20, &good[i], &good_bytes[i], NULL) == DUET_OK);
    atexit(clean);
}

static void put(int target, const void *bytes, size_t n) {
    FILE *f = fopen(path_of(target), "wb");
    REQUIRE(f != NULL);
    REQUIRE(fwrite(bytes, 1, n, f) == n);
    fclose(f);
}

static void check_tables(const duet__place *place, const duet_model_config *c) {
    for (int k = 0; k < DUET_N_COMPONENTS; k++) {
        duet__spec_list specs;
        if (!(place->components >> k & 1)) continue;
        REQUIRE(duet__specs_build(c, (duet_component)k, &specs, NULL) == DUET_OK);
        for (int i = 0; i < specs.n; i++) {
            int64_t elems, bytes;
            duet__stored stored[3];
            const duet__spec *s = &specs.spec[i];
            REQUIRE(duet_shape_elems(&s->shape, &elems) && elems > 0);
            REQUIRE(!__builtin_mul_overflow(elems, 8, &bytes));
            REQUIRE(strlen(s->name) < DUET__NAME_BYTES - 1);
            REQUIRE(i == 0 || strcmp(specs.spec[i - 1].name, s->name) < 0);
            duet__layout_stored(place->layout, (duet_component)k, s, stored);
        }
        duet__specs_free(&specs);
    }
}

/* Used by libFuzzer alone: half of the mutations put another number in place of a number, so that what they make is
 * still JSON and reaches the rules behind the parser. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t n_bytes, size_t max_bytes) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n_bytes, size_t max_bytes, unsigned seed);

static bool is_number_byte(uint8_t c) {
    return (c >= '0' && c <= '9') || c == '-' || c == '.';
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n_bytes, size_t max_bytes, unsigned seed) {
    static const char *const values[] = {"0",     "-1",     "1",          "2",          "3",    "4",
                                         "6",     "8",      "16",         "17",         "24",   "64",
                                         "255",   "512",    "1000",       "1024",       "0.5",  "0.1",
                                         "65536", "262144", "2147483647", "4294967296", "1e-9", "1e30"};
    size_t at = n_bytes ? seed / 2 % n_bytes : 0;
    while (at < n_bytes && !(is_number_byte(data[at]) && at && data[at - 1] && strchr(":,[ ", data[at - 1])))
        at++;
    if (seed % 2 || at >= n_bytes) return LLVMFuzzerMutate(data, n_bytes, max_bytes);
    size_t end = at;
    while (end < n_bytes && is_number_byte(data[end])) end++;
    const char *value = values[seed / 7 % (sizeof values / sizeof *values)];
    size_t n = strlen(value), rest = n_bytes - end;
    if (at + n + rest > max_bytes) return n_bytes;
    memmove(data + at + n, data + end, rest);
    memcpy(data + at, value, n);
    return at + n + rest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    if (!root[0]) make_trees();
    if (!n_bytes) return 0;
    int target = data[0] % N_TARGETS;
    int64_t before = duet_mem_live_total_bytes();
    char dir[400];
    snprintf(dir, sizeof dir, "%s/%s", root, targets[target].tree);
    duet__place place = {.dir = dir,
                         .layout =
                             *targets[target].tree == 'n' ? &duet__layout_native : &duet__layout_diffusers,
                         .components = targets[target].components};
    duet_model_config config;
    duet__index index;
    duet_error err = {0};
    put(target, data + 1, n_bytes - 1);
    duet_status st = duet__config_read(&place, &config, &index, &err);
    if (st == DUET_OK) check_tables(&place, &config);
    REQUIRE(st == DUET_OK || err.status == st);
    duet_model_options o = {.path = dir, .components = place.components};
    duet_model *model = NULL;
    if (duet_model_open(&o, &model, NULL) == DUET_OK) duet_model_hash(model, &(duet_model_hashes){0}, NULL);
    duet_model_close(&model);
    put(target, good[target], good_bytes[target]);
    REQUIRE(duet_mem_live_total_bytes() == before);
    return 0;
}
