/* file_kind.h - what stands under a name, in the words of messages: a FIFO is not "missing". */
#ifndef DUET_BASE_FILE_KIND_H
#define DUET_BASE_FILE_KIND_H

#include <stdbool.h>
#include <sys/stat.h>

/* "a file", "a folder", "a FIFO", "a socket", "a device", "a symbolic link". Static. */
const char *duet_file_kind(mode_t mode);

/* stat without blocking on what it finds: true and *mode when something stands there, links followed. */
bool duet_file_look(const char *path, mode_t *mode);

#endif
