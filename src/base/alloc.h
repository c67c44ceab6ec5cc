/* alloc.h - host memory with an owner's name on it.
 *
 * Every allocation carries a tag, so that `duet info --memory` and the leak checks of the fault tests can say
 * who holds what. `duet_alloc` and friends return NULL on failure: sizes come from files and requests, so
 * refusal is an ordinary error (DUET_E_MEMORY), never an abort. All blocks are 64-byte aligned. Any thread.
 */
#ifndef DUET_BASE_ALLOC_H
#define DUET_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#define DUET_MEM_TAGS(T)                                                                                     \
    T(MISC, "misc")                                                                                          \
    T(STRING, "strings")                                                                                     \
    T(STORE, "store")                                                                                        \
    T(WEIGHT, "weights")                                                                                     \
    T(TENSOR, "tensors")                                                                                     \
    T(DEVICE, "device")                                                                                      \
    T(SCRATCH, "scratch")                                                                                    \
    T(TOKENIZER, "tokenizer")                                                                                \
    T(ENGINE, "engine")                                                                                      \
    T(MEDIA, "media")

typedef enum duet_mem_tag {
#define T(id, text) DUET_MEM_##id,
    DUET_MEM_TAGS(T)
#undef T
        DUET_N_MEM_TAGS
} duet_mem_tag;

void *duet_alloc(size_t bytes, duet_mem_tag tag);                /* uninitialised */
void *duet_calloc(size_t count, size_t size, duet_mem_tag tag);  /* zeroed, product checked */
void *duet_realloc(void *block, size_t bytes, duet_mem_tag tag); /* keeps block on failure */
void duet_free(void *block);                                     /* NULL-safe, keeps errno */
char *duet_strdup(const char *text);                             /* tag STRING */
char *duet_strndup(const char *text, size_t bytes);              /* tag STRING, NUL appended */

int64_t duet_mem_live_bytes(duet_mem_tag tag); /* bytes now held under a tag */
int64_t duet_mem_live_total_bytes(void);
int64_t duet_mem_peak_total_bytes(void);
const char *duet_mem_tag_name(duet_mem_tag tag);

/* Fault injection for tests: the nth allocation from now fails once (0 = the next). Negative disarms. */
void duet_mem_fault_arm(int64_t nth);
int duet_mem_fault_fired(void);

#endif
