/* model.c - opening a model: kind of directory, configuration, tokenizer files, tensor tables; and closing it. */
#include "store/model.h"

#include <string.h>

#include "base/alloc.h"
#include "store/file.h"
#include "store/model_int.h"

static const char *const partition_text[] = {"fl2va", "ref2va"};

/* A partition directory that says it is the other one is a mixed-up copy. Opened by itself, it decides. */
static duet_status check_partition(duet_model *m, duet_error *err) {
    if (!m->index.has_partition || m->index.partition == m->place.partition) return DUET_OK;
    const char *name = strrchr(m->dir, '/');
    name = name ? name + 1 : m->dir;
    if (strcmp(name, "FL2VA") == 0 || strcmp(name, "Ref2VA") == 0) {
        bool ref = *name == 'R';
        if (ref != (m->index.partition == DUET_REF2VA))
            return duet_fail(err, DUET_E_MODEL,
                             "%s/model_index.json: key _minimax_h3.partition is \"%s\" in a folder "
                             "named %s",
                             m->dir, partition_text[m->index.partition], name);
    }
    m->place.partition = m->index.partition;
    return DUET_OK;
}

static duet_status read_tokenizer(duet_model *m, duet_error *err) {
    const struct {
        const char *file;
        char **text;
        size_t *bytes;
    } files[] = {{"vocab.json", &m->vocab, &m->vocab_bytes},
                 {"merges.txt", &m->merges, &m->merges_bytes},
                 {"tokenizer_config.json", &m->tokenizer_config, &m->tokenizer_config_bytes}};
    for (int i = 0; i < 3; i++) {
        char path[DUET__PATH_BYTES];
        if (!duet__join(path, sizeof path, m->dir, "tokenizer", files[i].file, NULL))
            return duet_fail(err, DUET_E_MODEL, "%s: the path is too long", m->dir);
        duet_status st = duet__read_file(path, 64u << 20, files[i].text, files[i].bytes, err);
        if (st != DUET_OK) return st;
    }
    return DUET_OK;
}

static duet_status open_parts(duet_model *m, const duet_model_options *options, duet_error *err) {
    char dir[DUET__PATH_BYTES];
    duet_status st;
    TRY(st, fail, duet__detect(options, &m->place, dir, err));
    m->path = duet_strdup(options->path);
    m->dir = duet_strdup(dir);
    if (!m->path || !m->dir) return duet_fail(err, DUET_E_MEMORY, "no memory for the model");
    m->place.dir = m->dir;
    TRY(st, fail, duet__config_read(&m->place, &m->config, &m->index, err));
    TRY(st, fail, check_partition(m, err));
    for (int c = 0; c < DUET_N_COMPONENTS; c++)
        if (m->place.components >> c & 1)
            TRY(st, fail, duet__bind(&m->place, (duet_component)c, &m->config, &m->part[c], err));
    if (m->place.components >> DUET_COMPONENT_TEXT & 1) TRY(st, fail, read_tokenizer(m, err));
fail:
    return st;
}

duet_status duet_model_open(const duet_model_options *options, duet_model **out, duet_error *err) {
    duet_model *m = *out = duet_calloc(1, sizeof *m, DUET_MEM_STORE);
    if (!m) return duet_fail(err, DUET_E_MEMORY, "no memory for the model");
    pthread_mutex_init(&m->lock, NULL);
    duet_status st = open_parts(m, options, err);
    if (st == DUET_OK) return st;
    duet_model_close(out);
    if (st == DUET_E_IO) { /* a file that cannot be read is a bad model to the caller */
        st = DUET_E_MODEL;
        if (err) err->status = st;
    }
    return st;
}

void duet_model_close(duet_model **model) {
    duet_model *m = *model;
    if (!m) return;
    *model = NULL;
    for (int c = 0; c < DUET_N_COMPONENTS; c++) duet__bound_close(&m->part[c]);
    pthread_mutex_destroy(&m->lock);
    duet_free(m->vocab);
    duet_free(m->merges);
    duet_free(m->tokenizer_config);
    duet_free(m->path);
    duet_free(m->dir);
    duet_free(m);
}

const duet_model_config *duet_model_config_get(const duet_model *model) {
    return &model->config;
}
const char *duet_model_layout_name(const duet_model *model) {
    return model->place.layout->name;
}
const char *duet_model_path(const duet_model *model) {
    return model->path;
}
const char *duet_model_dir(const duet_model *model) {
    return model->dir;
}
duet_partition duet_model_partition(const duet_model *model) {
    return model->place.partition;
}

bool duet_model_serves(const duet_model *model, const char *task) {
    for (int i = 0; i < model->index.n_tasks; i++)
        if (strcmp(model->index.tasks[i], task) == 0) return true;
    return false;
}

duet_status duet_model_tokenizer_files(duet_model *model, duet_tokenizer_files *out, duet_error *err) {
    if (!model->tokenizer_config) return duet_fail(err, DUET_E_USAGE, "the text encoder was not opened");
    *out = (duet_tokenizer_files){.vocab_json = model->vocab,
                                  .merges_txt = model->merges,
                                  .tokenizer_config_json = model->tokenizer_config,
                                  .vocab_json_bytes = (int64_t)model->vocab_bytes,
                                  .merges_txt_bytes = (int64_t)model->merges_bytes,
                                  .tokenizer_config_json_bytes = (int64_t)model->tokenizer_config_bytes};
    return DUET_OK;
}
