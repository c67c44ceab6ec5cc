/* region.c - one file in memory, mapped twice: once for looking at (nothing may be read), once for working on. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/walled/walled.h"
#include "base/alloc.h"

enum { PAGE = 4096 };
static const size_t REGION_BYTES = (size_t)32 << 30; /* of address space; pages appear when they are used */
static const uint32_t GARBAGE = 0x7fa0dea1u;         /* a signalling NaN, a wild index */

typedef struct extent {
    struct extent *next;
    size_t at, bytes;
} extent;

struct walled_region {
    int fd;
    char *seen, *real; /* A and B */
    extent *used;      /* ascending, a free page between neighbours */
    pthread_mutex_t lock;
};

void duet__garbage(void *at, size_t bytes) {
    size_t words = bytes / sizeof GARBAGE;
    for (size_t i = 0; i < words; i++) memcpy((char *)at + 4 * i, &GARBAGE, sizeof GARBAGE);
    memcpy((char *)at + 4 * words, &GARBAGE, bytes % sizeof GARBAGE);
}

static size_t pages(size_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

duet_status duet__region_open(walled_region **out, duet_error *err) {
    walled_region *r = duet_calloc(1, sizeof *r, DUET_MEM_DEVICE);
    *out = r;
    if (!r) return duet_fail(err, DUET_E_MEMORY, "walled device: out of memory");
    pthread_mutex_init(&r->lock, NULL);
    r->seen = r->real = MAP_FAILED;
    r->fd = memfd_create("duet-walled", MFD_CLOEXEC);
    if (r->fd >= 0 && ftruncate(r->fd, (off_t)REGION_BYTES) == 0) {
        r->seen = mmap(NULL, REGION_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, r->fd, 0);
        r->real = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, r->fd, 0);
    }
    if (r->seen == MAP_FAILED || r->real == MAP_FAILED)
        return duet_fail(err, DUET_E_MEMORY, "walled device: the system refused its address space");
    return DUET_OK;
}

void duet__region_close(walled_region **region) {
    walled_region *r = *region;
    if (!r) return;
    *region = NULL;
    while (r->used) {
        extent *next = r->used->next;
        duet_free(r->used);
        r->used = next;
    }
    if (r->seen != MAP_FAILED) munmap(r->seen, REGION_BYTES);
    if (r->real != MAP_FAILED) munmap(r->real, REGION_BYTES);
    if (r->fd >= 0) close(r->fd);
    pthread_mutex_destroy(&r->lock);
    duet_free(r);
}

/* First gap that holds `bytes` and a page of distance on its far side; NULL when there is none. */
static extent **find_gap(walled_region *r, size_t bytes, size_t *at) {
    *at = PAGE;
    extent **link = &r->used;
    while (*link && (*link)->at < *at + bytes + PAGE) {
        *at = (*link)->at + (*link)->bytes + PAGE;
        link = &(*link)->next;
    }
    return *at + bytes + PAGE <= REGION_BYTES ? link : NULL;
}

void *duet__region_take(walled_region *r, size_t bytes) {
    if (bytes > REGION_BYTES / 2) return NULL;
    size_t whole = pages(bytes ? bytes : 1), at = 0;
    extent *e = duet_alloc(sizeof *e, DUET_MEM_DEVICE);
    if (!e) return NULL;
    pthread_mutex_lock(&r->lock);
    extent **link = find_gap(r, whole, &at);
    if (link) {
        *e = (extent){.next = *link, .at = at, .bytes = whole};
        *link = e;
    }
    pthread_mutex_unlock(&r->lock);
    if (!link) {
        duet_free(e);
        return NULL;
    }
    duet__garbage(r->real + at, whole);
    return r->seen + at;
}

void duet__region_give(walled_region *r, void *address, size_t bytes) {
    size_t at = (size_t)((char *)address - r->seen), whole = pages(bytes ? bytes : 1);
    duet__garbage(r->real + at, whole); /* a worker that still reads it gets garbage until the pages go */
    if (fallocate(r->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)whole) != 0) {
        /* not supported: the pages stay, which costs memory and nothing else */
    }
    pthread_mutex_lock(&r->lock);
    extent **link = &r->used;
    while (*link && (*link)->at != at) link = &(*link)->next;
    extent *e = *link;
    if (e) *link = e->next;
    pthread_mutex_unlock(&r->lock);
    duet_free(e);
}

char *duet__region_behind(const walled_region *r, const void *address) {
    const char *a = address;
    return a >= r->seen && a < r->seen + REGION_BYTES ? r->real + (a - r->seen) : NULL;
}
