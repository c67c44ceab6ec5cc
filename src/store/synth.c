/* synth.c - writing a generated checkpoint: folders, shards, links; everything under a temporary name that is renamed
 * at the end. Where the values come from: synth_values.c; what stands in the configurations: synth_config.c. */
#define _XOPEN_SOURCE 700
#include "store/synth.h"

#include <errno.h>
#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/file.h"
#include "store/safetensors_write.h"
#include "store/synth_int.h"

enum { CHUNK_ELEMS = 1 << 16 };
static const int64_t SHARD_BYTES = 5000000000;
static const char *const partition_name[] = {"fl2va", "ref2va"};
static const char *const partition_dir[] = {"FL2VA", "Ref2VA"};

/* ---- one tensor ------------------------------------------------------------------------------------------------ */

typedef struct item {
    const duet__spec *spec, *v; /* v: the weight_v beside a weight_g */
    duet__stored stored;
    int group; /* shards never mix groups */
} item;

static duet_status put_values(duet_st_writer *w, const item *it, const duet__values *values, int64_t first,
                              int64_t n, float *wide, duet_error *err) {
    duet_status st = DUET_OK;
    for (int64_t at = 0; at < n && st == DUET_OK; at += CHUNK_ELEMS) {
        int64_t now = n - at < CHUNK_ELEMS ? n - at : CHUNK_ELEMS;
        duet__values_make(values, first + at, now, wide);
        if (it->spec->dtype == DUET_BF16) /* narrowed in place, front to back */
            for (int64_t i = 0; i < now; i++) {
                float value;
                memcpy(&value, (char *)wide + 4 * i, 4);
                uint16_t narrow = duet_f32_to_bf16(value);
                memcpy((char *)wide + 2 * i, &narrow, 2);
            }
        st = duet_st_writer_put(w, wide, (size_t)now * duet_dtype_bytes(it->spec->dtype), err);
    }
    return st;
}

/* Runs of stored rows that are consecutive canonical rows are made at once. */
static duet_status put_tensor(duet__synth_job *job, duet_st_writer *w, const item *it, const char *scope,
                              float *wide, duet_error *err) {
    duet__values values = duet__values_of(job->options->seed, scope, it->spec, it->v);
    int64_t rows = it->stored.shape.dim[0], elems = 1;
    for (int i = 1; i < it->stored.shape.rank; i++) elems *= it->stored.shape.dim[i];
    for (int64_t row = 0; row < rows;) {
        if (job->options->cancel && *job->options->cancel)
            return duet_fail(err, DUET_E_CANCELLED, "cancelled");
        int64_t first = duet__canonical_row(it->spec, &it->stored, row), n = 1;
        while (row + n < rows && duet__canonical_row(it->spec, &it->stored, row + n) == first + n) n++;
        duet_status st = put_values(w, it, &values, first * elems, n * elems, wide, err);
        if (st != DUET_OK) return st;
        row += n;
    }
    return DUET_OK;
}

/* ---- order and shards of one component --------------------------------------------------------------------------- */

static int natural(const char *a, const char *b) {
    while (*a && *b) {
        if (*a >= '0' && *a <= '9' && *b >= '0' && *b <= '9') {
            char *ea, *eb;
            long x = strtol(a, &ea, 10), y = strtol(b, &eb, 10);
            if (x != y) return x < y ? -1 : 1;
            a = ea;
            b = eb;
        } else if (*a != *b) {
            return (unsigned char)*a - (unsigned char)*b;
        } else {
            a++;
            b++;
        }
    }
    return (unsigned char)*a - (unsigned char)*b;
}

static int by_group_and_name(const void *a, const void *b) {
    const item *x = a, *y = b;
    if (x->group != y->group) return x->group - y->group;
    return natural(x->stored.name, y->stored.name);
}

/* As in the release, layers that no task reads share no shard with what is read. */
static int group_of(duet_component component, const duet__spec *spec) {
    if (component != DUET_COMPONENT_TEXT) return 0;
    bool layer = strstr(spec->name, "language_model.layers.") != NULL;
    if (strstr(spec->name, "embed_tokens")) return 0;
    return !layer ? 2 : spec->role == DUET__SKIP;
}

static item *make_items(const duet__synth_job *job, duet_component component, const duet__spec_list *specs,
                        int *n) {
    item *items = duet_calloc((size_t)specs->n * 3, sizeof *items, DUET_MEM_STORE);
    *n = 0;
    for (int i = 0; items && i < specs->n; i++) {
        const duet__spec *spec = &specs->spec[i];
        duet__stored stored[3];
        char v_name[DUET__NAME_BYTES];
        int parts = duet__layout_stored(job->layout, component, spec, stored);
        strcpy(v_name, spec->name);
        size_t bytes = strlen(v_name);
        if (spec->fill == DUET__FILL_WN_GAIN) v_name[bytes - 1] = 'v';
        const duet__spec *v = spec->fill == DUET__FILL_WN_GAIN ? duet__specs_find(specs, v_name) : NULL;
        for (int p = 0; p < parts; p++)
            items[(*n)++] =
                (item){.spec = spec, .v = v, .stored = stored[p], .group = group_of(component, spec)};
    }
    if (items) qsort(items, (size_t)*n, sizeof *items, by_group_and_name);
    return items;
}

static int64_t item_bytes(const item *it) {
    int64_t n = 0;
    duet_shape_elems(&it->stored.shape, &n);
    return n * (int64_t)duet_dtype_bytes(it->spec->dtype);
}

/* first[s] is the first item of shard s; returns the number of shards. */
static int cut_shards(const duet__synth_job *job, const item *items, int n, bool sharded, int *first) {
    int64_t total = 0, budget = SHARD_BYTES, held = 0;
    int shards = 1;
    for (int i = 0; i < n; i++) total += item_bytes(&items[i]);
    if (job->shape.shards) budget = total / job->shape.shards + 1;
    first[0] = 0;
    for (int i = 0; i < n; i++) {
        int64_t bytes = item_bytes(&items[i]);
        bool next = i && (held + bytes > budget || items[i].group != items[i - 1].group);
        if (sharded && next) {
            first[shards++] = i;
            held = 0;
        }
        held += bytes;
    }
    return shards;
}

/* ---- files of one component -------------------------------------------------------------------------------------- */

typedef struct target {
    const char *folder, *stem, *scope; /* folder below the root */
    bool sharded;
} target;

static duet_status put_shard(duet__synth_job *job, const target *t, const char *file, const item *items,
                             int n, duet_error *err) {
    char path[DUET__PATH_BYTES];
    duet_st_writer *w = NULL;
    duet_st_entry *entries = duet_calloc((size_t)n, sizeof *entries, DUET_MEM_STORE);
    float *wide = duet_alloc(CHUNK_ELEMS * sizeof *wide, DUET_MEM_STORE);
    duet_status st = DUET_E_MEMORY;
    if (!entries || !wide) goto done;
    for (int i = 0; i < n; i++) /* data carries the item through the sort */
        entries[i] =
            (duet_st_entry){items[i].stored.name, items[i].spec->dtype, items[i].stored.shape, &items[i]};
    duet_st_sort(entries, n);
    duet_st_meta meta = {"format", "pt"};
    duet__join(path, sizeof path, job->root, t->folder, file, NULL);
    TRY(st, done, duet_st_writer_open(path, entries, n, &meta, 1, &w, err));
    duet_st_writer_skip_flush(w);
    for (int i = 0; i < n; i++) {
        TRY(st, done, put_tensor(job, w, entries[i].data, t->scope, wide, err));
        job->done_bytes += item_bytes(entries[i].data);
        if (job->options->progress)
            job->options->progress(job->options->progress_arg, path, job->done_bytes, job->total_bytes);
    }
    st = duet_st_writer_commit(&w, err);
done:
    if (st == DUET_E_MEMORY) duet_fail(err, st, "%s: no memory", file);
    duet_st_writer_abort(&w);
    duet_free(entries);
    duet_free(wide);
    return st;
}

static void shard_name(const target *t, int shard, int shards, char *out, size_t bytes) {
    if (t->sharded)
        snprintf(out, bytes, "%s-%05d-of-%05d.safetensors", t->stem, shard + 1, shards);
    else
        snprintf(out, bytes, "%s.safetensors", t->stem);
}

static duet_status put_index(const duet__synth_job *job, const target *t, const item *items, const int *first,
                             int shards, int n, duet_error *err) {
    char file[128];
    int64_t total = 0;
    json_t *map = json_object();
    for (int shard = 0; shard < shards; shard++) {
        shard_name(t, shard, shards, file, sizeof file);
        for (int i = first[shard]; i < (shard + 1 < shards ? first[shard + 1] : n); i++) {
            json_object_set_new(map, items[i].stored.name, json_string(file));
            total += item_bytes(&items[i]);
        }
    }
    snprintf(file, sizeof file, "%s.safetensors.index.json", t->stem);
    return duet__synth_put_json(
        job, t->folder, file,
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map), err);
}

static duet_status put_component(duet__synth_job *job, duet_component component, const target *t,
                                 duet_error *err) {
    duet__spec_list specs;
    item *items = NULL;
    int *first = NULL, n = 0;
    duet_status st = duet__specs_build(&job->shape.config, component, &specs, err);
    if (st != DUET_OK) return st;
    st = DUET_E_MEMORY;
    if (!(items = make_items(job, component, &specs, &n)) ||
        !(first = duet_calloc((size_t)n + 1, sizeof *first, DUET_MEM_STORE)))
        goto done;
    int shards = cut_shards(job, items, n, t->sharded, first);
    first[shards] = n;
    st = DUET_OK;
    for (int s = 0; s < shards && st == DUET_OK; s++) {
        char file[128];
        shard_name(t, s, shards, file, sizeof file);
        st = put_shard(job, t, file, items + first[s], first[s + 1] - first[s], err);
    }
    if (st == DUET_OK && t->sharded) st = put_index(job, t, items, first, shards, n, err);
done:
    if (st == DUET_E_MEMORY) duet_fail(err, st, "%s: no memory", t->folder);
    duet_free(first);
    duet_free(items);
    duet__specs_free(&specs);
    return st;
}

/* ---- directories ------------------------------------------------------------------------------------------------- */

static duet_status make_dirs(const char *path, duet_error *err) {
    char part[DUET__PATH_BYTES];
    size_t n = strlen(path);
    if (n >= sizeof part) return duet_fail(err, DUET_E_IO, "%s: the path is too long", path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return duet_fail(err, DUET_E_IO, "%s: cannot create the directory: %s", part, strerror(errno));
    }
    return DUET_OK;
}

static duet_status make_below(const duet__synth_job *job, const char *base, const char *folder,
                              duet_error *err) {
    char path[DUET__PATH_BYTES];
    if (!duet__join(path, sizeof path, job->root, base, folder, NULL))
        return duet_fail(err, DUET_E_IO, "%s: the path is too long", job->root);
    return make_dirs(path, err);
}

static int remove_below(const char *path, const struct stat *st, int type, struct FTW *walk) {
    (void)st, (void)type;
    return walk->level ? remove(path) : 0;
}

static bool dir_is_empty(const char *path) {
    DIR *dir = opendir(path);
    int n = 0;
    while (dir && readdir(dir)) n++;
    if (dir) closedir(dir);
    return dir && n <= 2; /* . and .. */
}

/* A fresh OUT is made under a temporary name; an empty directory that exists (perhaps a mount point) is filled. */
static duet_status open_root(duet__synth_job *job, duet_error *err) {
    const char *given = job->options->out_dir;
    size_t n = strlen(given);
    struct stat there;
    while (n > 1 && given[n - 1] == '/') n--;
    job->out = duet_strndup(given, n);
    job->root = duet_alloc(n + 32, DUET_MEM_STRING);
    if (!job->out || !job->root) return duet_fail(err, DUET_E_MEMORY, "%s: no memory", given);
    if (lstat(job->out, &there) == 0) {
        strcpy(job->root, job->out);
        if (duet__is_dir(job->out) && dir_is_empty(job->out)) return DUET_OK;
        job->root[0] = '\0'; /* not ours to clean */
        return duet_refuse(err, "out", "output_exists", given, NULL,
                           "must not exist or be an empty directory");
    }
    snprintf(job->root, n + 32, "%s.%ld.tmp", job->out, (long)getpid());
    return make_dirs(job->root, err);
}

static duet_status close_root(duet__synth_job *job, duet_status st, duet_error *err) {
    if (!job->root || !job->out || !*job->root) goto done;
    bool temporary = strcmp(job->root, job->out) != 0;
    if (st == DUET_OK && temporary && rename(job->root, job->out) != 0)
        st = duet_fail(err, DUET_E_IO, "%s: cannot rename into place: %s", job->out, strerror(errno));
    if (st == DUET_OK) goto done;
    nftw(job->root, remove_below, 16, FTW_DEPTH | FTW_PHYS);
    if (temporary) rmdir(job->root);
done:
    duet_free(job->root);
    duet_free(job->out);
    job->root = job->out = NULL;
    return st;
}

/* ---- trees ------------------------------------------------------------------------------------------------------- */

static duet_status put_shared(duet__synth_job *job, const char *base, duet_error *err) {
    bool native = job->layout == &duet__layout_native;
    static const char *const folders[] = {"text_encoder", "tokenizer", "processor", "audio_vae"};
    duet_status st;
    for (int i = 0; i < 4; i++) TRY(st, fail, make_below(job, base, folders[i], err));
    TRY(st, fail, make_below(job, base, native ? "video_vae/source" : "vae", err));
    for (int i = 0; !native && i < 2; i++)
        TRY(st, fail, make_below(job, base, i ? "audio_scheduler" : "scheduler", err));
    TRY(st, fail, duet__synth_configs(job, base, err));
    static const char *const scope[] = {NULL, "text", "vvae", "avae"};
    for (int c = DUET_COMPONENT_TEXT; c < DUET_N_COMPONENTS; c++) {
        char folder[64];
        snprintf(folder, sizeof folder, "%s%s%s", base, *base ? "/" : "", job->layout->dir[c]);
        bool sharded = c == DUET_COMPONENT_TEXT || (!native && c == DUET_COMPONENT_VVAE);
        target t = {folder, job->layout->stem[c], scope[c], sharded};
        TRY(st, fail, put_component(job, (duet_component)c, &t, err));
    }
fail:
    return st;
}

static duet_status put_transformer(duet__synth_job *job, const char *base, duet_partition partition,
                                   duet_error *err) {
    const char *dir = partition == DUET_REF2VA ? job->layout->dir_ref : job->layout->dir[DUET_COMPONENT_DIT];
    char folder[64], scope[64];
    snprintf(folder, sizeof folder, "%s%s%s", base, *base ? "/" : "", dir);
    snprintf(scope, sizeof scope, "dit.%s", partition_name[partition]);
    target t = {folder, job->layout->stem[DUET_COMPONENT_DIT], scope, true};
    duet_status st;
    TRY(st, fail, make_below(job, base, dir, err));
    TRY(st, fail, duet__synth_transformer_config(job, folder, err));
    TRY(st, fail, put_component(job, DUET_COMPONENT_DIT, &t, err));
fail:
    return st;
}

static duet_status link_shared(const duet__synth_job *job, duet_error *err) {
    static const char *const folders[] = {"text_encoder", "tokenizer", "processor", "audio_vae", "video_vae"};
    for (int i = 0; i < 5; i++) {
        char from[DUET__PATH_BYTES], to[64];
        snprintf(to, sizeof to, "../FL2VA/%s", folders[i]);
        duet__join(from, sizeof from, job->root, "Ref2VA", folders[i], NULL);
        if (symlink(to, from) != 0)
            return duet_fail(err, DUET_E_IO, "%s: cannot link to %s: %s", from, to, strerror(errno));
    }
    return DUET_OK;
}

static duet_status put_native(duet__synth_job *job, duet_error *err) {
    duet_status st = DUET_OK;
    bool both = job->with[DUET_FL2VA] && job->with[DUET_REF2VA];
    for (int p = 0; p < DUET_N_PARTITIONS; p++) {
        if (!job->with[p]) continue;
        TRY(st, fail, put_transformer(job, partition_dir[p], (duet_partition)p, err));
        if (p == DUET_REF2VA && both && job->shape.share_by_link)
            st = link_shared(job, err);
        else
            st = put_shared(job, partition_dir[p], err);
        if (st == DUET_OK) st = duet__synth_index(job, partition_dir[p], (duet_partition)p, err);
        if (st != DUET_OK) goto fail;
    }
fail:
    return st;
}

static duet_status put_diffusers(duet__synth_job *job, duet_error *err) {
    duet_status st;
    for (int p = 0; p < DUET_N_PARTITIONS; p++)
        if (job->with[p]) TRY(st, fail, put_transformer(job, "", (duet_partition)p, err));
    TRY(st, fail, put_shared(job, "", err));
    TRY(st, fail, duet__synth_index(job, "", DUET_FL2VA, err));
fail:
    return st;
}

/* ---- options ------------------------------------------------------------------------------------------------------ */

static duet_status read_options(duet__synth_job *job, const duet_synth_options *o, duet_error *err) {
    *job = (duet__synth_job){.options = o};
    const char *layout = o->layout ? o->layout : "native", *partition = o->partition ? o->partition : "both";
    const char *shape = o->shape ? o->shape : "tiny";
    if (!(job->layout = duet__layout_find(layout)))
        return duet_refuse(err, "layout", "invalid_value", layout, "native", "must be native or diffusers");
    bool both = strcmp(partition, "both") == 0;
    for (int p = 0; p < DUET_N_PARTITIONS; p++)
        job->with[p] = both || strcmp(partition, partition_name[p]) == 0;
    if (!job->with[DUET_FL2VA] && !job->with[DUET_REF2VA])
        return duet_refuse(err, "partition", "invalid_value", partition, "both",
                           "must be fl2va, ref2va or both");
    duet_status st = duet__synth_shape_get(shape, o->seed, &job->shape, err);
    if (st != DUET_OK) return st;
    bool full = !job->shape.merges;
    if (full && !o->tokenizer_dir)
        return duet_refuse(err, "tokenizer", "missing", NULL, NULL, "is required with shape full");
    if (!full && o->tokenizer_dir)
        return duet_refuse(err, "tokenizer", "not_allowed", o->tokenizer_dir, NULL,
                           "goes with shape full only");
    return DUET_OK;
}

static duet_status open_tokenizer(duet__synth_job *job, duet_error *err) {
    duet_text_config *text = &job->shape.config.text;
    if (!job->shape.merges)
        return duet__synth_tokenizer_read(job->options->tokenizer_dir, &job->tokenizer, err);
    duet_status st = duet__synth_tokenizer_make(job->options->seed, job->shape.merges, &job->tokenizer, err);
    text->vocab = job->tokenizer.size + 13; /* a few rows that no token uses, as in the release */
    return st;
}

static duet_status count_bytes(duet__synth_job *job, duet_error *err) {
    int partitions = job->with[DUET_FL2VA] + job->with[DUET_REF2VA];
    bool copies = job->layout == &duet__layout_native && !job->shape.share_by_link;
    job->total_bytes = 0;
    for (int c = 0; c < DUET_N_COMPONENTS; c++) {
        duet__spec_list specs;
        int64_t bytes = 0;
        duet_status st = duet__specs_build(&job->shape.config, (duet_component)c, &specs, err);
        if (st != DUET_OK) return st;
        for (int i = 0; i < specs.n; i++) {
            duet__stored stored[3];
            if (duet__layout_stored(job->layout, (duet_component)c, &specs.spec[i], stored))
                bytes += duet__spec_bytes(&specs.spec[i]);
        }
        duet__specs_free(&specs);
        job->total_bytes += bytes * (c == DUET_COMPONENT_DIT || copies ? partitions : 1);
    }
    return DUET_OK;
}

/* Room for the weights and 2 % more, on the file system that OUT will be on. */
static duet_status check_disk(const duet__synth_job *job, duet_error *err) {
    struct statvfs fs;
    if (statvfs(job->root, &fs) != 0) return DUET_OK; /* cannot tell: the writes will */
    double have = (double)fs.f_bavail * (double)fs.f_frsize, need = 1.02 * (double)job->total_bytes;
    if (have >= need) return DUET_OK;
    return duet_fail(err, DUET_E_IO, "%s: needs %.1f MB, the disk has %.1f MB free", job->options->out_dir,
                     need / 1e6, have / 1e6);
}

duet_status duet_synth_bytes(const duet_synth_options *options, int64_t *bytes, duet_error *err) {
    duet__synth_job job;
    duet_status st = read_options(&job, options, err);
    if (st == DUET_OK && job.shape.merges)
        st = open_tokenizer(&job, err); /* decides the rows of the embedding */
    if (st == DUET_OK) st = count_bytes(&job, err);
    *bytes = job.total_bytes;
    duet__synth_tokenizer_free(&job.tokenizer);
    return st;
}

duet_status duet_synth(const duet_synth_options *options, duet_error *err) {
    duet__synth_job job;
    duet_status st;
    TRY(st, fail, read_options(&job, options, err));
    TRY(st, fail, count_bytes(&job, err));
    if (!job.shape.merges && !options->yes) {
        st = duet_refuse(err, "yes", "confirmation_required", NULL, NULL,
                         "shape full writes %.1f GB: repeat with --yes", (double)job.total_bytes / 1e9);
        goto fail;
    }
    TRY(st, fail, open_tokenizer(&job, err));
    TRY(st, fail, count_bytes(&job, err));
    TRY(st, fail, open_root(&job, err));
    TRY(st, fail, check_disk(&job, err));
    st = job.layout == &duet__layout_native ? put_native(&job, err) : put_diffusers(&job, err);
fail:
    st = close_root(&job, st, err);
    duet__synth_tokenizer_free(&job.tokenizer);
    return st;
}
