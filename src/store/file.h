/* file.h - reading files whole: mapped (weights) or copied (small texts); names in every message. */
#ifndef DUET_STORE_FILE_H
#define DUET_STORE_FILE_H

#include <stdbool.h>

#include "base/status.h"

typedef struct duet__map {
    const uint8_t *data; /* NULL for an empty file */
    size_t bytes;
} duet__map;

/* Map a regular file read-only; symbolic links are followed. The size is taken once, from the open file: a file
 * that shrinks afterwards is not supported (as with any mapped program). DUET_E_IO with the path otherwise. */
duet_status duet__map_open(const char *path, duet__map *out, duet_error *err);
void duet__map_close(duet__map *map); /* idempotent */

/* Whole file into memory (duet_free), NUL appended. More than max_bytes: DUET_E_MODEL. */
duet_status duet__read_file(const char *path, size_t max_bytes, char **out, size_t *out_bytes,
                            duet_error *err);

bool duet__is_dir(const char *path);
bool duet__is_file(const char *path);
/* Nothing stands there, or a link to nothing. Not the opposite of duet__is_file: what is there and is no file (or may
 * not be looked at) is to be opened, which says what it is. */
bool duet__is_absent(const char *path);
bool duet__is_dangling(const char *path); /* a link to nothing */
/* "a/b/c" of the parts up to NULL into buf; false when it does not fit. */
bool duet__join(char *buf, size_t buf_bytes, ...);

enum { DUET__PATH_BYTES = 4096 };

#endif
