/* files.c - what the file system says about a request, before any work.
 *
 * An output that exists is refused unless `overwrite`, and so are latents of an earlier run that stand where
 * this run would put its own: they may be the only trace of a finished denoise (promise P4). That a folder
 * can be written is found out by writing: permissions, read-only mounts and quotas all answer to that. */
#include "api_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file_kind.h"

static duet_status refuse(const char *param, const char *path, duet_error *err, const char *rule) {
    return duet_refuse(err, param, "invalid_value", path, NULL, "%s", rule);
}

/* The hold of a run is no content, nor is what a killed run that still holds it had half written.
 * except: an entry that does not count either, or NULL. own: folders that this run made for its names, or NULL (a dump
 * may lie in the output, or the output in the dump). */
static bool is_empty_folder(const char *path, const char *except, const duet__reserved *own) {
    DIR *d = opendir(path);
    if (!d) return false;
    bool held = false, leftovers = false, others = false;
    for (struct dirent *e; (e = readdir(d)) && !others;) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || (except && !strcmp(e->d_name, except)))
            continue;
        if (duet__is_hold(e->d_name))
            held = true;
        else if (duet__is_leftover("", e->d_name))
            leftovers = true;
        else if (!duet__made_for(own, dirfd(d), e->d_name))
            others = true;
    }
    closedir(d);
    return !others && (held || !leftovers);
}

int64_t duet__bytes_on_disk(const char *path) {
    struct stat st;
    if (stat(path, &st)) return 0;
    if (!S_ISDIR(st.st_mode)) return (int64_t)st.st_size;
    DIR *d = opendir(path);
    if (!d) return 0;
    int64_t bytes = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (!fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode))
            bytes += (int64_t)st.st_size;
    }
    closedir(d);
    return bytes;
}

/* The folder that a name stands in: "a/b.mp4" -> "a", "b.mp4" -> ".", "out/x/" -> "out". */
static bool parent_of(const char *path, char *buf, size_t buf_bytes) {
    size_t n = strlen(path);
    if (n + 2 > buf_bytes) return false;
    memcpy(buf, path, n + 1);
    while (n > 1 && buf[n - 1] == '/') buf[--n] = '\0';
    char *slash = strrchr(buf, '/');
    if (!slash)
        snprintf(buf, buf_bytes, ".");
    else if (slash == buf)
        buf[1] = '\0';
    else
        *slash = '\0';
    return true;
}

/* Where a folder of outputs does not exist yet, the nearest folder above it that does. */
static void climb_to_existing(char *dir, size_t dir_bytes) {
    struct stat st;
    while (stat(dir, &st) && errno == ENOENT && strcmp(dir, ".") && strcmp(dir, "/")) {
        char above[PATH_MAX];
        if (!parent_of(dir, above, sizeof above)) return;
        snprintf(dir, dir_bytes, "%s", above);
    }
}

static duet_status probe_folder(const char *param, const char *dir, const char *path, duet_error *err) {
    char name[PATH_MAX + 32];
    snprintf(name, sizeof name, "%s/.duet-probe-XXXXXX", dir);
    int fd = mkstemp(name);
    if (fd < 0) {
        int why = errno;
        return duet_refuse(err, param, "invalid_value", path, NULL, "cannot be written: %s", strerror(why));
    }
    bool full = write(fd, "x", 1) != 1;
    int why = errno;
    close(fd);
    unlink(name);
    if (full)
        return duet_refuse(err, param, "invalid_value", path, NULL, "cannot be written: %s", strerror(why));
    return DUET_OK;
}

/* lstat of a name without the slashes at its end, which would ask for a folder and hide a file. */
static bool look_up(const char *path, struct stat *st) {
    char name[PATH_MAX];
    size_t n = strlen(path);
    if (n + 1 > sizeof name) return false;
    memcpy(name, path, n + 1);
    while (n > 1 && name[n - 1] == '/') name[--n] = '\0';
    return lstat(name, st) == 0;
}

static duet_status check_existing(const char *output, const duet__reserved *own, duet_error *err) {
    struct stat st;
    bool folder = duet_output_is_folder(output);
    bool exists = look_up(output, &st) && !(folder && is_empty_folder(output, NULL, own));
    char *latents = duet_latents_name(output);
    if (!latents) return duet_fail(err, DUET_E_MEMORY, "out of memory");
    bool latents_stand = look_up(latents, &st);
    duet_free(latents);
    if (latents_stand && (folder || !exists))
        return duet__refuse_taken(
            "output", output, err,
            folder ? "holds latents of an earlier run; decode or remove them, or overwrite"
                   : "latents of an earlier run stand beside it; decode or remove them, or "
                     "overwrite");
    if (!exists) return DUET_OK;
    return duet__refuse_taken("output", output, err, "exists; give another name, or overwrite");
}

/* What overwrite may replace: a file by a file, a folder by a folder (a link counts as what it points to).
 * A pipe or a device is no clip: a rename would take it away from whoever waits at its other end. */
static duet_status check_kind(const char *output, duet_error *err) {
    struct stat st;
    char name[PATH_MAX + 2];
    bool folder = duet_output_is_folder(output);
    if (!look_up(output, &st)) return DUET_OK;
    snprintf(name, sizeof name, "%s/.", output);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode))
        return duet_refuse(err, "output", "invalid_value", output, NULL, "is %s, neither a file nor a folder",
                           duet_file_kind(st.st_mode));
    bool is_folder = stat(name, &st) == 0;
    if (is_folder == folder) return DUET_OK;
    return refuse("output", output, err, folder ? "is a file, not a folder" : "is a folder, not a file");
}

static duet_status check_output(const char *output, bool overwrite, const duet__reserved *own,
                                duet_error *err) {
    return overwrite ? check_kind(output, err) : check_existing(output, own, err);
}

duet_status duet__check_writable(const char *output, duet_error *err) {
    char parent[PATH_MAX];
    struct stat st;
    if (!parent_of(output, parent, sizeof parent)) return refuse("output", output, err, "is too long a name");
    duet_status status = probe_folder("output", parent, output, err);
    if (status == DUET_OK && duet_output_is_folder(output) && !stat(output, &st))
        status = probe_folder("output", output, output, err);
    return status;
}

/* The longest name that a run makes is that of the latents while they are written. That it fits is found out
 * here by making it: at the end of the denoise it would be too late (promise P4). */
static duet_status probe_longest_name(const char *output, duet_error *err) {
    char *latents = duet_latents_name(output);
    if (!latents) return duet_fail(err, DUET_E_MEMORY, "out of memory");
    char name[PATH_MAX];
    bool fits = snprintf(name, sizeof name, "%s.probe-XXXXXX", latents) < (int)sizeof name;
    duet_free(latents);
    int fd = fits ? mkstemp(name) : -1;
    if (fd >= 0) {
        close(fd);
        unlink(name);
    } else if (!fits || errno == ENAMETOOLONG) { /* a folder that does not exist yet is no fault */
        return refuse("output", output, err, "is too long a name for the files of a run");
    }
    return DUET_OK;
}

static duet_status check_dump(const char *dir, bool overwrite, const duet__reserved *own, duet_error *err) {
    struct stat st;
    char parent[PATH_MAX];
    if (!*dir || strlen(dir) + 2 > sizeof parent)
        return refuse("dump", dir, err, "is not a usable folder name");
    if (!stat(dir, &st) && !S_ISDIR(st.st_mode))
        return duet_refuse(err, "dump", "invalid_value", dir, NULL, "is %s, not a folder",
                           duet_file_kind(st.st_mode));
    if (!overwrite && !stat(dir, &st) && !is_empty_folder(dir, NULL, own))
        return refuse("dump", dir, err, "is a folder that holds something; give another one, or overwrite");
    snprintf(parent, sizeof parent, "%s", dir);
    climb_to_existing(parent, sizeof parent);
    return probe_folder("dump", parent, dir, err);
}

/* That what a run names is nobody's: asked before work, and again once the names are held. */
static duet_status check_names(const duet_request *r, const duet__reserved *held, duet_error *err) {
    int32_t n = r->num_outputs_per_prompt == DUET_UNSET ? 1 : (int32_t)r->num_outputs_per_prompt;
    bool folder = duet_output_is_folder(r->output);
    duet_status st = n > 1 && folder && !held ? duet__check_free("output", r->output, true, err) : DUET_OK;
    for (int32_t k = 0; k < n && st == DUET_OK; k++) {
        char *name = duet_output_name(r->output, k, n);
        if (!name) return duet_fail(err, DUET_E_MEMORY, "out of memory");
        if (!held) st = duet__check_free("output", name, folder, err);
        if (st == DUET_OK) st = check_output(name, r->overwrite, held, err);
        if (st == DUET_OK && !held) st = probe_longest_name(name, err);
        duet_free(name);
    }
    return st;
}

duet_status duet__reserve_request(const duet_request *r, duet__reserved *out, duet_error *err) {
    int32_t n = r->num_outputs_per_prompt == DUET_UNSET ? 1 : (int32_t)r->num_outputs_per_prompt;
    duet_status st = duet__reserve(r->output, n, r->dump_dir, out, err);
    if (st == DUET_OK) st = check_names(r, out, err); /* a run may have ended between the checks and this */
    if (st == DUET_OK && r->dump_dir) st = check_dump(r->dump_dir, r->overwrite, out, err);
    if (st != DUET_OK) duet__release(out);
    return st;
}

duet_status duet__check_space(const char *output, int64_t bytes, duet_error *err) {
    char parent[PATH_MAX];
    struct statvfs fs;
    if (!parent_of(output, parent, sizeof parent) || statvfs(parent, &fs) || !fs.f_blocks) return DUET_OK;
    double room = (double)fs.f_bavail * (double)fs.f_frsize;
    if (room >= (double)bytes) return DUET_OK;
    return duet_fail(err, DUET_E_IO, "%s: the disk has %.0f bytes free, the latents alone need %lld", output,
                     room, (long long)bytes);
}

static duet_status check_readable(const char *param, const char *path, duet_error *err) {
    mode_t mode;
    if (duet_file_look(path, &mode) && !S_ISREG(mode)) /* opening a FIFO would wait for a writer */
        return duet_refuse(err, param, "invalid_value", path, NULL, "is %s, not a file",
                           duet_file_kind(mode));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return duet_refuse(err, param, "invalid_value", path, NULL, "cannot be read: %s", strerror(errno));
    close(fd);
    return DUET_OK;
}

duet_status duet_output_check(const duet_request *r, duet_error *err) {
    duet_status st = duet_request_check(r, err); /* names are built from numbers and endings that it holds */
    if (st != DUET_OK) return st;
    if (!r->output)
        return duet_refuse(err, "output", "missing_required_parameter", NULL, NULL, "is required");
    st = check_names(r, NULL, err);
    if (st == DUET_OK) st = duet__check_writable(r->output, err);
    if (st == DUET_OK && r->init_noise) st = check_readable("init_noise", r->init_noise, err);
    if (st == DUET_OK && r->dump_dir) st = duet__check_free("dump", r->dump_dir, true, err);
    if (st == DUET_OK && r->dump_dir) st = check_dump(r->dump_dir, r->overwrite, NULL, err);
    return st;
}

void duet_decode_request_defaults(duet_decode_request *request, size_t struct_bytes) {
    memset(request, 0, struct_bytes);
    if (struct_bytes >= sizeof request->struct_bytes) request->struct_bytes = struct_bytes;
}

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

/* Latents beside the output, or in it where it is a folder, are what a decode is for: only the clip must not exist. */
duet_status duet__check_decode_output(const duet_decode_request *d, const duet__reserved *own,
                                      duet_error *err) {
    struct stat st;
    bool folder = duet_output_is_folder(d->output);
    char *beside = duet_latents_name(d->output);
    if (!beside) return duet_fail(err, DUET_E_MEMORY, "out of memory");
    const char *except = same_file(beside, d->latents) ? "latents.safetensors" : NULL;
    duet_free(beside);
    if (!folder && same_file(d->output, d->latents))
        return duet__refuse_taken("output", d->output, err, "is the latents themselves; give another name");
    if (d->overwrite || !look_up(d->output, &st) || (folder && is_empty_folder(d->output, except, own)))
        return check_kind(d->output, err);
    return duet__refuse_taken("output", d->output, err, "exists; give another name, or overwrite");
}

duet_status duet_decode_check(const duet_decode_request *d, duet_error *err) {
    duet_status status;
    if (!d || d->struct_bytes != sizeof *d)
        return duet_fail(err, DUET_E_USAGE,
                         "duet_decode_request: not filled by duet_decode_request_defaults");
    if (!d->latents)
        return duet_refuse(err, "latents", "missing_required_parameter", NULL, NULL, "is required");
    if (!d->output)
        return duet_refuse(err, "output", "missing_required_parameter", NULL, NULL, "is required");
    TRY(status, fail, duet_output_name_check(d->output, err));
    TRY(status, fail, duet__check_free("output", d->output, duet_output_is_folder(d->output), err));
    if (d->dump_dir) TRY(status, fail, duet__check_free("dump", d->dump_dir, true, err));
    TRY(status, fail, duet__check_decode_output(d, NULL, err));
    TRY(status, fail, duet__check_writable(d->output, err));
    TRY(status, fail, check_readable("latents", d->latents, err));
    if (d->dump_dir) TRY(status, fail, check_dump(d->dump_dir, d->overwrite, NULL, err));
fail:
    return status;
}
