/* alloc.c - tagged, counted, 64-byte aligned host memory.
 *
 * Each block starts with a 64-byte header that holds its size and tag; what the caller sees follows it.
 * Counters are relaxed atomics: they are statistics, nothing is ordered by them. */
#include "base/alloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 64 };

typedef struct header {
    size_t bytes;
    duet_mem_tag tag;
    uint32_t magic;
} header;

static const uint32_t MAGIC = 0x64756574u;
static _Atomic int64_t live_bytes[DUET_N_MEM_TAGS];
static _Atomic int64_t total_bytes, peak_bytes;
static _Atomic int64_t fault_countdown = -1;
static _Atomic int fault_fired;

static int fault_hits(void) {
    if (atomic_load_explicit(&fault_countdown, memory_order_relaxed) < 0) return 0;
    if (atomic_fetch_sub(&fault_countdown, 1) != 0) return 0;
    atomic_store(&fault_fired, 1);
    return 1;
}

static void count(duet_mem_tag tag, int64_t delta_bytes) {
    atomic_fetch_add_explicit(&live_bytes[tag], delta_bytes, memory_order_relaxed);
    int64_t now = atomic_fetch_add_explicit(&total_bytes, delta_bytes, memory_order_relaxed) + delta_bytes;
    int64_t peak = atomic_load_explicit(&peak_bytes, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now)) {}
}

static header *header_of(void *block) {
    return (header *)((char *)block - HEADER_BYTES);
}

void *duet_alloc(size_t bytes, duet_mem_tag tag) {
    if (bytes > SIZE_MAX / 2 || fault_hits()) return NULL;
    size_t padded = (bytes + HEADER_BYTES + 63) / 64 * 64;
    char *base = aligned_alloc(64, padded);
    if (!base) return NULL;
    *(header *)base = (header){.bytes = bytes, .tag = tag, .magic = MAGIC};
    count(tag, (int64_t)bytes);
    return base + HEADER_BYTES;
}

void *duet_calloc(size_t n, size_t size, duet_mem_tag tag) {
    if (size && n > SIZE_MAX / 2 / size) return NULL;
    void *block = duet_alloc(n * size, tag);
    if (block) memset(block, 0, n * size);
    return block;
}

void *duet_realloc(void *block, size_t bytes, duet_mem_tag tag) {
    if (!block) return duet_alloc(bytes, tag);
    void *bigger = duet_alloc(bytes, tag);
    if (!bigger) return NULL;
    size_t old = header_of(block)->bytes;
    memcpy(bigger, block, old < bytes ? old : bytes);
    duet_free(block);
    return bigger;
}

void duet_free(void *block) {
    if (!block) return;
    int saved = errno;
    header *h = header_of(block);
    if (h->magic != MAGIC) abort(); /* freeing what duet_alloc never gave: memory is already corrupt */
    h->magic = 0;
    count(h->tag, -(int64_t)h->bytes);
    free(h);
    errno = saved;
}

char *duet_strndup(const char *text, size_t bytes) {
    char *copy = duet_alloc(bytes + 1, DUET_MEM_STRING);
    if (!copy) return NULL;
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    return copy;
}

char *duet_strdup(const char *text) {
    return duet_strndup(text, strlen(text));
}

int64_t duet_mem_live_bytes(duet_mem_tag tag) {
    return atomic_load(&live_bytes[tag]);
}
int64_t duet_mem_live_total_bytes(void) {
    return atomic_load(&total_bytes);
}
int64_t duet_mem_peak_total_bytes(void) {
    return atomic_load(&peak_bytes);
}

const char *duet_mem_tag_name(duet_mem_tag tag) {
    static const char *const names[] = {
#define T(id, text) text,
        DUET_MEM_TAGS(T)
#undef T
    };
    return names[tag];
}

void duet_mem_fault_arm(int64_t nth) {
    atomic_store(&fault_fired, 0);
    atomic_store(&fault_countdown, nth);
}

int duet_mem_fault_fired(void) {
    return atomic_load(&fault_fired);
}
