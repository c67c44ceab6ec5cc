/* hold.c - see hold.h.
 *
 * The file is one line: who holds it, so that a refusal can name the process. Where locks work it is for people alone.
 * Between opening the file and locking it the holder may have removed it: whoever has the lock looks whether the name
 * still means the file it locked, and begins again if not. */
#define _GNU_SOURCE
#include "base/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

enum {
    MAX_TRIES = 200,
    LINE_BYTES = 512,
    WORD_BYTES = 96,
    EMPTY_WAIT_MS = 20,
    EMPTY_WAITS = 50,
    NAME_WAITS = 10,
    GUARD_SECONDS = 30
};

/* A process, as well as it can be told from all others. */
typedef struct holder {
    long pid;
    unsigned long long started; /* clock ticks after the machine's start; 0 = no such process */
    char boot[WORD_BYTES], space[WORD_BYTES], host[WORD_BYTES];
} holder;

/* ---- who ------------------------------------------------------------------------------------------------ */

static unsigned long long start_of(long pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *at = strrchr(text, ')'); /* the command before it may hold anything */
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

/* One word without blanks; "-" when it cannot be read. */
static void one_word(char word[WORD_BYTES], const char *text) {
    size_t n = strcspn(text, " \t\r\n");
    if (n >= WORD_BYTES) n = WORD_BYTES - 1;
    memcpy(word, text, n);
    word[n] = '\0';
    if (!n) strcpy(word, "-");
}

static void describe_self(holder *me) {
    char text[WORD_BYTES] = "";
    me->pid = (long)getpid();
    me->started = start_of(me->pid);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (f && !fgets(text, sizeof text, f)) text[0] = '\0';
    if (f) fclose(f);
    one_word(me->boot, text);
    ssize_t n = readlink("/proc/self/ns/pid", text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    one_word(me->space, text);
    if (gethostname(text, sizeof text) != 0) text[0] = '\0';
    text[sizeof text - 1] = '\0';
    one_word(me->host, text);
}

static bool write_holder(int fd) {
    holder me;
    char line[LINE_BYTES];
    describe_self(&me);
    int n = snprintf(line, sizeof line, "duet-run-1 pid %ld started %llu boot %s space %s host %s\n", me.pid,
                     me.started, me.boot, me.space, me.host);
    return ftruncate(fd, 0) == 0 && pwrite(fd, line, (size_t)n, 0) == n;
}

static bool read_holder(int fd, holder *h) {
    char line[LINE_BYTES];
    ssize_t n = pread(fd, line, sizeof line - 1, 0);
    if (n <= 0) return false;
    line[n] = '\0';
    return sscanf(line, "duet-run-1 pid %ld started %llu boot %95s space %95s host %95s", &h->pid,
                  &h->started, h->boot, h->space, h->host) == 5;
}

/* Just made, the file is empty for a moment; for ever if its maker died in that moment. */
static bool wait_for_holder(int fd, int waits, holder *h) {
    for (int i = 0; !read_holder(fd, h); i++) {
        if (i == waits) return false;
        nanosleep(&(struct timespec){.tv_nsec = EMPTY_WAIT_MS * 1000000L}, NULL);
    }
    return true;
}

static void name_holder(int fd, char who[DUET_HOLD_WHO_BYTES]) {
    holder h, me;
    describe_self(&me);
    if (!wait_for_holder(fd, NAME_WAITS, &h))
        snprintf(who, DUET_HOLD_WHO_BYTES, "another process");
    else if (strcmp(h.host, me.host) != 0)
        snprintf(who, DUET_HOLD_WHO_BYTES, "process %ld on %s", h.pid, h.host);
    else
        snprintf(who, DUET_HOLD_WHO_BYTES, "process %ld", h.pid);
}

/* Without locks: what the line in the file says about whoever wrote it. */
static duet_hold_state judge(int fd) {
    holder h, me;
    if (!wait_for_holder(fd, EMPTY_WAITS, &h)) return DUET_HOLD_FREE;
    describe_self(&me);
    bool same_boot = strcmp(h.boot, me.boot) == 0, same_host = strcmp(h.host, me.host) == 0;
    if (!same_boot) return same_host ? DUET_HOLD_FREE : DUET_HOLD_UNKNOWN;
    if (strcmp(h.space, me.space) != 0) return DUET_HOLD_UNKNOWN; /* another container's numbers */
    return h.started && start_of(h.pid) == h.started ? DUET_HOLD_OTHERS : DUET_HOLD_FREE;
}

/* ---- locks ---------------------------------------------------------------------------------------------- */

typedef enum lock_result { LOCKED, HELD, NO_LOCKS, NOT_OURS } lock_result;

static lock_result ask_lock(int fd) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_GETLK, &whole) != 0) return NO_LOCKS;
    return whole.l_type == F_UNLCK ? LOCKED : HELD;
}

static lock_result set_lock(int fd) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &whole) == 0) return LOCKED;
    if (errno == EBADF) return ask_lock(fd) == HELD ? HELD : NOT_OURS; /* opened for reading only */
    return errno == EAGAIN || errno == EACCES ? HELD : NO_LOCKS;
}

static bool still_named(int fd, const char *path) {
    struct stat mine, there;
    return fstat(fd, &mine) == 0 && lstat(path, &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev;
}

static int open_existing(const char *path) {
    const int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    struct stat st;
    int fd = open(path, O_RDWR | flags);
    if (fd < 0 && errno == EACCES)
        fd = open(path, O_RDONLY | flags); /* another user's: it can still be looked at */
    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))) return fd;
    close(fd);
    errno = EEXIST; /* something else of that name */
    return -1;
}

/* Without locks, two may find the same dead holder, and the slower one must not remove the file of the faster one: a
 * second file, made by one of them, guards looking again and removing. One that stays behind is removed when it is old. */
static void remove_dead(const char *path) {
    size_t bytes = strlen(path) + 8;
    char *guard = duet_alloc(bytes, DUET_MEM_STRING);
    if (!guard) return;
    snprintf(guard, bytes, "%s.old", path);
    int guard_fd = open(guard, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (guard_fd >= 0) {
        int fd = open_existing(path);
        if (fd >= 0 && judge(fd) == DUET_HOLD_FREE && still_named(fd, path)) unlink(path);
        if (fd >= 0) close(fd);
        unlink(guard);
        close(guard_fd);
    } else {
        struct stat st;
        if (stat(guard, &st) == 0 && time(NULL) - st.st_mtime > GUARD_SECONDS) unlink(guard);
        nanosleep(&(struct timespec){.tv_nsec = EMPTY_WAIT_MS * 1000000L}, NULL);
    }
    duet_free(guard);
}

/* ---- taking --------------------------------------------------------------------------------------------- */

/* OURS with the lock or where there are none; FREE: begin again. */
static duet_hold_state claim(int fd, const char *path, bool made, bool *stale, char *who) {
    lock_result lock = set_lock(fd);
    if (lock == HELD) {
        name_holder(fd, who);
        return DUET_HOLD_OTHERS;
    }
    if (lock == NOT_OURS) {
        errno = EACCES;
        return DUET_HOLD_CANNOT;
    }
    if (lock == LOCKED || made) return still_named(fd, path) ? DUET_HOLD_OURS : DUET_HOLD_FREE;
    duet_hold_state state = judge(fd);
    if (state != DUET_HOLD_FREE) {
        name_holder(fd, who);
        return state;
    }
    remove_dead(path);
    *stale = true;
    return state;
}

static duet_hold_state try_once(const char *path, duet_hold *out, char *who) {
    holder before;
    bool made = true;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST) {
        made = false;
        fd = open_existing(path);
        if (fd < 0 && errno == ENOENT) return DUET_HOLD_FREE; /* it ended in this moment */
    }
    if (fd < 0) return DUET_HOLD_CANNOT;
    duet_hold_state state = claim(fd, path, made, &out->stale, who);
    if (state == DUET_HOLD_OURS) {
        out->fd = fd;
        out->stale = read_holder(fd, &before) || out->stale;
        bool written = write_holder(fd);
        if (written && still_named(fd, path)) return state;
        int why = written ? EBUSY : errno;
        duet_hold_release(out);
        errno = why ? why : EIO;
        return DUET_HOLD_CANNOT;
    }
    close(fd);
    return state;
}

duet_hold_state duet_hold_take(const char *path, duet_hold *out, char who[DUET_HOLD_WHO_BYTES]) {
    *out = (duet_hold){.path = duet_strdup(path), .fd = -1};
    duet_hold_state state = DUET_HOLD_FREE;
    if (!out->path) {
        errno = ENOMEM;
        return DUET_HOLD_CANNOT;
    }
    errno = 0;
    for (int i = 0; i < MAX_TRIES && state == DUET_HOLD_FREE; i++) state = try_once(path, out, who);
    if (state == DUET_HOLD_OURS) return state;
    int why = errno;
    duet_hold_release(out);
    errno = state == DUET_HOLD_FREE ? EBUSY : why;
    return state == DUET_HOLD_FREE ? DUET_HOLD_CANNOT : state;
}

duet_hold_state duet_hold_look(const char *path, char who[DUET_HOLD_WHO_BYTES]) {
    int fd = open_existing(path);
    if (fd < 0) return DUET_HOLD_FREE; /* what is wrong with it shows when it is taken */
    lock_result lock = ask_lock(fd);
    duet_hold_state state = lock == HELD ? DUET_HOLD_OTHERS : lock == LOCKED ? DUET_HOLD_FREE : judge(fd);
    if (state != DUET_HOLD_FREE) name_holder(fd, who);
    close(fd);
    return state;
}

void duet_hold_release(duet_hold *hold) {
    if (!hold->path) return;
    if (hold->fd >= 0) {
        if (still_named(hold->fd, hold->path))
            unlink(hold->path); /* before the lock goes with the descriptor */
        close(hold->fd);
    }
    duet_free(hold->path);
    *hold = (duet_hold){0};
}
