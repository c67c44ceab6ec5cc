/* pages.c - see pages.h. Whole pages only, rounded outwards: a mapping consists of whole pages. */
#define _DEFAULT_SOURCE /* madvise */
#include "base/pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

void duet_pages_drop(const void *data, size_t bytes) {
    if (!data || !bytes) return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)data / page * page;
    madvise((void *)first, (uintptr_t)data + bytes - first, MADV_DONTNEED);
}

void duet_pages_scattered(const void *mapping, size_t bytes, bool on) {
    if (mapping && bytes) madvise((void *)(uintptr_t)mapping, bytes, on ? MADV_RANDOM : MADV_NORMAL);
}
