/* fuzz_safetensors.c - arbitrary bytes as a safetensors file. What opens must keep every promise of safetensors.h: the
 * tensors cover the data section exactly, names are sorted and unique, and every byte can be read. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "store/safetensors.h"

#define REQUIRE(cond)                                                                                        \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                                       \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

static volatile uint8_t sink;

static void check_file(const duet_st_file *f, const uint8_t *data, size_t n_bytes) {
    int64_t covered = 0;
    for (int i = 0; i < duet_st_count(f); i++) {
        const duet_st_tensor *t = duet_st_at(f, i);
        int64_t elems;
        REQUIRE(t->shape.rank <= DUET_MAX_RANK && duet_shape_elems(&t->shape, &elems));
        REQUIRE(elems * (int64_t)duet_dtype_bytes(t->dtype) == t->bytes);
        REQUIRE(t->data >= data + 8 && t->data + t->bytes <= data + n_bytes);
        REQUIRE(i == 0 || strcmp(duet_st_at(f, i - 1)->name, t->name) < 0);
        REQUIRE(duet_st_find(f, t->name) == t);
        for (int64_t b = 0; b < t->bytes; b++) sink ^= t->data[b];
        covered += t->bytes;
    }
    uint64_t header = 0;
    memcpy(&header, data, 8);
    REQUIRE(covered == (int64_t)(n_bytes - 8 - header));
    for (int i = 0; i < duet_st_metadata_count(f); i++)
        REQUIRE(duet_st_metadata(f, duet_st_metadata_key(f, i)) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    duet_st_file *f = NULL;
    duet_error err = {0};
    int64_t before = duet_mem_live_total_bytes();
    duet_status st = duet_st_parse(data, n_bytes, "input", &f, &err);
    if (st == DUET_OK) {
        REQUIRE(f != NULL);
        check_file(f, data, n_bytes);
    } else {
        REQUIRE(f == NULL && err.status == st && strncmp(err.message, "input: ", 7) == 0);
    }
    duet_st_close(&f);
    REQUIRE(duet_mem_live_total_bytes() == before);
    return 0;
}
