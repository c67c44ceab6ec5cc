/* pages.h - letting mapped pages go, so that resident memory follows what is in use. */
#ifndef DUET_BASE_PAGES_H
#define DUET_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>

/* [data, data + bytes) must lie in a read-only mapping of a file: its pages leave this process's memory,
 * stay in the system's cache, and come back when they are read. Never call it on memory that was written:
 * that would be lost. A hint: a system that does not know it keeps the pages. Any thread. */
void duet_pages_drop(const void *data, size_t bytes);

/* The next reads of this whole mapping will be scattered samples: no reading ahead. With false, back to the usual. */
void duet_pages_scattered(const void *mapping, size_t bytes, bool on);

#endif
