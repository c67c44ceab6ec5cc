/* file.c - see file.h. */
#include "store/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file_kind.h"

static duet_status not_regular(const char *path, mode_t mode, duet_error *err) {
    return duet_fail(err, DUET_E_IO, "%s: is %s, not a regular file", path, duet_file_kind(mode));
}

/* Looked at before it is opened, because opening a device acts on it and a socket cannot be opened; and after,
 * because the name may have changed hands. A FIFO that slips between must not hang the program. */
static duet_status open_regular(const char *path, int *fd, size_t *bytes, duet_error *err) {
    struct stat st;
    mode_t mode;
    *fd = -1;
    if (duet_file_look(path, &mode) && !S_ISREG(mode)) return not_regular(path, mode, err);
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (*fd < 0) return duet_fail(err, DUET_E_IO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(*fd);
        return not_regular(path, st.st_mode, err);
    }
    *bytes = (size_t)st.st_size;
    return DUET_OK;
}

duet_status duet__map_open(const char *path, duet__map *out, duet_error *err) {
    int fd;
    *out = (duet__map){0};
    duet_status st = open_regular(path, &fd, &out->bytes, err);
    if (st != DUET_OK) return st;
    if (out->bytes) {
        void *data = mmap(NULL, out->bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED)
            st = duet_fail(err, DUET_E_IO, "%s: cannot map %zu bytes: %s", path, out->bytes, strerror(errno));
        else
            out->data = data;
    }
    close(fd);
    return st;
}

void duet__map_close(duet__map *map) {
    if (map->data) munmap((void *)(uintptr_t)map->data, map->bytes);
    *map = (duet__map){0};
}

static duet_status read_all(int fd, const char *path, char *text, size_t bytes, duet_error *err) {
    for (size_t at = 0; at < bytes;) {
        ssize_t n = read(fd, text + at, bytes - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return duet_fail(err, DUET_E_IO, "%s: cannot read: %s", path, strerror(errno));
        if (n == 0) return duet_fail(err, DUET_E_IO, "%s: ended after %zu of %zu bytes", path, at, bytes);
        at += (size_t)n;
    }
    text[bytes] = '\0';
    return DUET_OK;
}

duet_status duet__read_file(const char *path, size_t max_bytes, char **out, size_t *out_bytes,
                            duet_error *err) {
    int fd;
    *out = NULL;
    duet_status st = open_regular(path, &fd, out_bytes, err);
    if (st != DUET_OK) return st;
    if (*out_bytes > max_bytes)
        st = duet_fail(err, DUET_E_MODEL, "%s: %zu bytes, at most %zu expected", path, *out_bytes, max_bytes);
    else if (!(*out = duet_alloc(*out_bytes + 1, DUET_MEM_STORE)))
        st = duet_fail(err, DUET_E_MEMORY, "%s: no memory for %zu bytes", path, *out_bytes);
    else
        st = read_all(fd, path, *out, *out_bytes, err);
    close(fd);
    if (st != DUET_OK) {
        duet_free(*out);
        *out = NULL;
    }
    return st;
}

bool duet__is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool duet__is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool duet__is_absent(const char *path) {
    struct stat st;
    return stat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

bool duet__is_dangling(const char *path) {
    struct stat st;
    return duet__is_absent(path) && lstat(path, &st) == 0;
}

bool duet__join(char *buf, size_t buf_bytes, ...) {
    size_t used = 0;
    va_list ap;
    va_start(ap, buf_bytes);
    for (const char *part; (part = va_arg(ap, const char *));) {
        size_t n = strlen(part);
        bool slash = used && buf[used - 1] != '/';
        if (used + slash + n + 1 > buf_bytes) {
            va_end(ap);
            return false;
        }
        if (slash) buf[used++] = '/';
        memcpy(buf + used, part, n);
        used += n;
    }
    va_end(ap);
    buf[used] = '\0';
    return true;
}
