/* detect.c - what kind of model directory a path is.
 *
 *     PATH/FL2VA, PATH/Ref2VA               native root: the wanted partition, or the only one there
 *     PATH/transformer of native class      one native partition
 *     PATH/transformer of diffusers class,  diffusers tree: the wanted transformer, or the only one there
 *          PATH/transformer_ref, PATH/vae
 *
 * The public repository is a native root and a diffusers tree at once. Component folders and the `_class_name` in
 * their config.json decide, never the root index (it describes one half only). When both kinds are there, native wins
 * if it is complete or the other is not; the caller may name one. A hub cache entry (refs/main, snapshots) stands for
 * its snapshot. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/file.h"
#include "store/model_int.h"

static bool is_dir_in(const char *dir, const char *name) {
    char path[DUET__PATH_BYTES];
    return duet__join(path, sizeof path, dir, name, NULL) && duet__is_dir(path);
}

/* `_class_name` of DIR/FOLDER/config.json equals `name`; unreadable files count as no. */
static bool has_class(const char *dir, const char *folder, const char *name) {
    char path[DUET__PATH_BYTES];
    duet__doc doc;
    if (!duet__join(path, sizeof path, dir, folder, "config.json", NULL) || !duet__is_file(path))
        return false;
    if (duet__doc_open(path, &doc, NULL) != DUET_OK) return false;
    const char *class_name = duet__doc_string(&doc, "_class_name");
    bool same = class_name && strcmp(class_name, name) == 0;
    duet__doc_close(&doc);
    return same;
}

static bool complete(const duet__place *place) {
    for (int c = 0; c < DUET_N_COMPONENTS; c++)
        if (place->components >> c & 1 && !duet__set_exists(place, (duet_component)c)) return false;
    return true;
}

/* Native candidate: place->dir is written into `dir`. */
static bool try_native(const char *path, duet__place *place, char *dir) {
    static const char *const names[] = {"FL2VA", "Ref2VA"};
    place->layout = &duet__layout_native;
    place->dir = dir;
    bool has[] = {is_dir_in(path, names[0]), is_dir_in(path, names[1])};
    if (has[0] || has[1]) {
        if (!has[place->partition]) place->partition = has[0] ? DUET_FL2VA : DUET_REF2VA;
        return duet__join(dir, DUET__PATH_BYTES, path, names[place->partition], NULL);
    }
    return (has_class(path, "transformer", "MiniMaxH3DiTModel") || is_dir_in(path, "video_vae")) &&
           duet__join(dir, DUET__PATH_BYTES, path, NULL);
}

static bool try_diffusers(const char *path, duet__place *place, char *dir) {
    static const char *const names[] = {"transformer", "transformer_ref"};
    place->layout = &duet__layout_diffusers;
    place->dir = dir;
    bool has[2];
    for (int i = 0; i < 2; i++) has[i] = has_class(path, names[i], "MiniMaxH3Transformer3DModel");
    if (!has[0] && !has[1] && !has_class(path, "vae", "AutoencoderKLMiniMaxH3")) return false;
    if ((has[0] || has[1]) && !has[place->partition]) place->partition = has[0] ? DUET_FL2VA : DUET_REF2VA;
    return duet__join(dir, DUET__PATH_BYTES, path, NULL);
}

/* A hub cache entry keeps the wanted commit's name in refs/main. */
static void enter_snapshot(char *path) {
    char ref[DUET__PATH_BYTES], *commit = NULL;
    size_t n;
    if (!is_dir_in(path, "snapshots") || !duet__join(ref, sizeof ref, path, "refs", "main", NULL) ||
        duet__read_file(ref, 128, &commit, &n, NULL) != DUET_OK)
        return;
    commit[strspn(commit, "0123456789abcdef")] = '\0';
    char inner[DUET__PATH_BYTES];
    if (*commit && duet__join(inner, sizeof inner, path, "snapshots", commit, NULL) && duet__is_dir(inner))
        strcpy(path, inner);
    duet_free(commit);
}

duet_status duet__detect(const duet_model_options *options, duet__place *place, char *dir, duet_error *err) {
    char path[DUET__PATH_BYTES], other_dir[DUET__PATH_BYTES];
    const uint32_t all = (1u << DUET_N_COMPONENTS) - 1;
    const duet__layout *wanted = options->layout ? duet__layout_find(options->layout) : NULL;
    if (options->layout && !wanted)
        return duet_fail(err, DUET_E_USAGE, "layout must be native or diffusers (got %.32s)",
                         options->layout);
    if (!options->path || !duet__join(path, sizeof path, options->path, NULL) || !duet__is_dir(path))
        return duet_fail(err, DUET_E_MODEL, "%s: %s", options->path ? options->path : "(no path)",
                         options->path && !access(options->path, F_OK) ? "is not a directory"
                                                                       : "no such directory");
    enter_snapshot(path);
    duet__place start = {.partition = options->partition, .components = options->components & all};
    if (!start.components) start.components = all;
    duet__place native = start, diffusers = start;
    bool is_native = wanted != &duet__layout_diffusers && try_native(path, &native, dir);
    bool is_diffusers = wanted != &duet__layout_native && try_diffusers(path, &diffusers, other_dir);
    if (is_native && is_diffusers && !complete(&native) && complete(&diffusers)) is_native = false;
    if (!is_native && !is_diffusers)
        return duet_fail(
            err, DUET_E_MODEL,
            "%s: not a%s%s model directory: there is neither FL2VA/ nor Ref2VA/, nor a transformer/ of a "
            "known class",
            path, wanted ? " " : "", wanted ? wanted->name : "");
    *place = is_native ? native : diffusers;
    if (!is_native) strcpy(dir, other_dir);
    place->dir = dir;
    return DUET_OK;
}
