/* reserve.c - the names of a run are its own from before its work until after it.
 *
 *     dir/clip.mp4   held by   dir/.clip.mp4.duet-run          out/   held by   out/.duet-run, inside the folder
 *
 * The holding file stands where the output will: so a name that reaches the same place through links, mounts or the
 * spelling rules of a file system is the same hold. Folders are made for it, and removed again if nothing came to stand
 * in them. A run that was killed leaves its hold, its half-written files and perhaps its latents: the next run of the
 * name takes the hold over and removes what is half-written; the latents are somebody's finished work and stay.
 *
 * Held together, in this order: every output, the folder of several folders, the dump. */
#include "api_int.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

static const char HOLD_NAME[] = ".duet-run";

enum { MAX_TRIES = 20, MAX_SUGGESTION = 99 };

/* ---- names ---------------------------------------------------------------------------------------------- */

/* "a/b.mp4": stem "a/", base "b.mp4". "out/", or "out" as a folder: stem "out/", base "". */
static bool split(const char *name, bool folder, char stem[PATH_MAX], const char **base) {
    size_t n = strlen(name);
    const char *slash = strrchr(name, '/');
    if (n + 2 > PATH_MAX) return false;
    if (folder) {
        snprintf(stem, PATH_MAX, "%s%s", name, n && name[n - 1] == '/' ? "" : "/");
        *base = "";
    } else {
        snprintf(stem, PATH_MAX, "%.*s", slash ? (int)(slash - name) + 1 : 0, name);
        *base = slash ? slash + 1 : name;
    }
    return true;
}

static bool hold_path(const char *name, bool folder, char path[PATH_MAX]) {
    char stem[PATH_MAX];
    const char *base;
    if (!split(name, folder, stem, &base)) return false;
    return snprintf(path, PATH_MAX, "%s%s%s%s", stem, *base ? "." : "", base, HOLD_NAME) < PATH_MAX;
}

static bool is_part(const char *text) {
    static const char begin[] = ".part-";
    size_t n = sizeof begin - 1;
    if (strncmp(text, begin, n) != 0 || strlen(text) != n + 6) return false;
    for (text += n; *text; text++)
        if (!isalnum((unsigned char)*text)) return false;
    return true;
}

/* "*.safetensors.4711.tmp" */
static bool is_half_written(const char *text) {
    static const char middle[] = "safetensors.";
    const char *at = strstr(text, middle);
    if (!at || (at > text && at[-1] != '.')) return false;
    at += sizeof middle - 1;
    size_t digits = strspn(at, "0123456789");
    return digits > 0 && strcmp(at + digits, ".tmp") == 0;
}

bool duet__is_hold(const char *entry) {
    size_t n = strlen(entry), end = sizeof HOLD_NAME - 1;
    return entry[0] == '.' && n >= end && strcmp(entry + n - end, HOLD_NAME) == 0;
}

bool duet__is_leftover(const char *base, const char *entry) {
    size_t n = strlen(base);
    if (strncmp(entry, base, n) != 0) return false;
    entry += n;
    if (is_part(entry)) return true;
    if (!is_half_written(entry)) return false;
    /* In a folder, latents named after a clip belong to the run of that clip, which may live. */
    return n ? !strncmp(entry, ".latents.", 9) : !strstr(entry, ".mp4.latents.");
}

/* "clip_2.mp4" or "out_2/": the first name of that form that nothing stands under. */
static const char *suggest(const char *name, char *text, size_t text_bytes) {
    bool folder = duet_output_is_folder(name);
    int stem = (int)(strlen(name) - strlen(folder ? "/" : ".mp4"));
    while (folder && stem > 1 && name[stem - 1] == '/') stem--;
    for (int k = 2; k <= MAX_SUGGESTION; k++) {
        char who[DUET_HOLD_WHO_BYTES], path[PATH_MAX];
        struct stat st;
        if (snprintf(text, text_bytes, "%.*s_%d", stem, name, k) + 5 > (int)text_bytes) return NULL;
        bool taken = folder && lstat(text, &st) == 0;
        strcat(text, folder ? "/" : ".mp4");
        char *latents = duet_latents_name(text);
        taken = taken || !latents || lstat(text, &st) == 0 || lstat(latents, &st) == 0 ||
                !hold_path(text, folder, path) || duet_hold_look(path, who) != DUET_HOLD_FREE;
        duet_free(latents);
        if (!taken) return text;
    }
    return NULL;
}

duet_status duet__refuse_taken(const char *param, const char *name, duet_error *err, const char *rule) {
    char text[96];
    const char *nearest = strcmp(param, "output") ? NULL : suggest(name, text, sizeof text);
    return duet_refuse(err, param, "invalid_value", name, nearest, "%s", rule);
}

/* ---- holding -------------------------------------------------------------------------------------------- */

static duet_status refuse_held(const char *param, const char *name, const char *path, duet_hold_state state,
                               const char *who, duet_error *err) {
    char rule[DUET_HOLD_WHO_BYTES + PATH_MAX + 160];
    if (state == DUET_HOLD_OTHERS)
        snprintf(rule, sizeof rule, "is being written by %s; wait for it, or give another name", who);
    else
        snprintf(rule, sizeof rule,
                 "is held by %s, which cannot be seen from here; if it has ended, remove %s", who, path);
    return duet__refuse_taken(param, name, err, rule);
}

duet_status duet__check_free(const char *param, const char *name, bool folder, duet_error *err) {
    char path[PATH_MAX], who[DUET_HOLD_WHO_BYTES] = "";
    if (!hold_path(name, folder, path))
        return duet_refuse(err, param, "invalid_value", name, NULL, "is too long a name");
    duet_hold_state state = duet_hold_look(path, who);
    return state == DUET_HOLD_FREE ? DUET_OK : refuse_held(param, name, path, state, who, err);
}

/* A name that this run holds already, through whatever spelling. */
static bool held_by_us(const duet__reserved *r, const char *path) {
    struct stat there, ours;
    if (lstat(path, &there) != 0) return false;
    for (int i = 0; i < r->n_holds; i++)
        if (fstat(r->hold[i].fd, &ours) == 0 && ours.st_ino == there.st_ino && ours.st_dev == there.st_dev)
            return true;
    return false;
}

static bool remember_folder(duet__reserved *r, const char *path) {
    char **more = duet_realloc(r->made, (size_t)(r->n_made + 1) * sizeof *more, DUET_MEM_STRING);
    if (!more) return false;
    r->made = more;
    r->made[r->n_made] = duet_strdup(path);
    return r->made[r->n_made] && ++r->n_made;
}

/* Every folder on the way to `stem` ("a/b/"), remembering those that were not there. */
static bool make_folders(duet__reserved *r, char *stem) {
    for (char *at = strchr(stem + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        bool made = mkdir(stem, 0777) == 0;
        bool ok = made ? remember_folder(r, stem) : errno == EEXIST;
        *at = '/';
        if (!ok) return false;
    }
    return true;
}

static void remove_tree(int dir, const char *name) {
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) unlinkat(fd, e->d_name, 0);
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    unlinkat(dir, name, AT_REMOVEDIR);
}

/* What a run that was killed had not finished writing. */
static void sweep(const char *stem, const char *base) {
    DIR *d = opendir(*stem ? stem : ".");
    for (struct dirent *e; d && (e = readdir(d));)
        if (duet__is_leftover(base, e->d_name) && unlinkat(dirfd(d), e->d_name, 0) != 0)
            remove_tree(dirfd(d), e->d_name);
    if (d) closedir(d);
}

static duet_status hold(duet__reserved *r, const char *param, const char *name, bool folder,
                        duet_error *err) {
    char stem[PATH_MAX], path[PATH_MAX], who[DUET_HOLD_WHO_BYTES] = "";
    const char *base;
    if (!split(name, folder, stem, &base) || !hold_path(name, folder, path))
        return duet_refuse(err, param, "invalid_value", name, NULL, "is too long a name");
    duet_hold *h = &r->hold[r->n_holds];
    duet_hold_state state = DUET_HOLD_CANNOT;
    errno = ENOENT; /* while a run that ends removes the folder that it had made */
    for (int i = 0; i < MAX_TRIES && state == DUET_HOLD_CANNOT && errno == ENOENT; i++) {
        if (folder && !make_folders(r, stem)) break;
        if (held_by_us(r, path))
            return strcmp(param, "output") ? DUET_OK
                                           : duet_refuse(err, param, "invalid_value", name, NULL,
                                                         "is another output of the same run, through a link");
        state = duet_hold_take(path, h, who);
    }
    if (state == DUET_HOLD_CANNOT)
        return duet_refuse(err, param, "invalid_value", name, NULL, "cannot be written: %s: %s", path,
                           strerror(errno));
    if (state != DUET_HOLD_OURS) return refuse_held(param, name, path, state, who, err);
    r->n_holds++;
    if (h->stale) sweep(stem, base);
    return DUET_OK;
}

duet_status duet__reserve(const char *output, int32_t n, const char *dump_dir, duet__reserved *out,
                          duet_error *err) {
    *out = (duet__reserved){0};
    bool folder = duet_output_is_folder(output);
    duet_status st = DUET_OK;
    for (int32_t k = 0; k < n && st == DUET_OK; k++) {
        char *name = duet_output_name(output, k, n);
        st = name ? hold(out, "output", name, folder, err) : duet_fail(err, DUET_E_MEMORY, "out of memory");
        duet_free(name);
    }
    if (st == DUET_OK && folder && n > 1) st = hold(out, "output", output, true, err);
    if (st == DUET_OK && dump_dir) st = hold(out, "dump", dump_dir, true, err);
    if (st != DUET_OK) duet__release(out);
    return st;
}

bool duet__made_for(const duet__reserved *r, int folder, const char *entry) {
    struct stat there, made;
    if (!r || fstatat(folder, entry, &there, AT_SYMLINK_NOFOLLOW) != 0) return false;
    for (int i = 0; i < r->n_made; i++)
        if (lstat(r->made[i], &made) == 0 && made.st_ino == there.st_ino && made.st_dev == there.st_dev)
            return true;
    return false;
}

void duet__release(duet__reserved *r) {
    for (int i = 0; i < r->n_holds; i++) duet_hold_release(&r->hold[i]);
    while (r->n_made > 0) { /* the innermost first; one that holds something stays */
        rmdir(r->made[--r->n_made]);
        duet_free(r->made[r->n_made]);
    }
    duet_free(r->made);
    *r = (duet__reserved){0};
}
