/* file_kind.c - see file_kind.h. */
#include "base/file_kind.h"

const char *duet_file_kind(mode_t mode) {
    return S_ISREG(mode)    ? "a file"
           : S_ISDIR(mode)  ? "a folder"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISLNK(mode)  ? "a symbolic link"
                            : "a device";
}

bool duet_file_look(const char *path, mode_t *mode) {
    struct stat st;
    if (stat(path, &st) != 0) return false;
    *mode = st.st_mode;
    return true;
}
