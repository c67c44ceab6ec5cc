/* weight.c - from a canonical name to pieces of mapped files.
 *
 * The pieces point into the file wherever it can be used as it is. Three reasons make a copy, once, on first use:
 * the data is misaligned for its type (the header's length decides), a tensor that must be fp32 is stored in half
 * precision, or a convolution is stored as direction and length and has to be folded. Copies are owned by the model and
 * live until it is closed; one lock guards their making. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/pages.h"
#include "store/model_int.h"

const char *const duet__component_name[DUET_N_COMPONENTS] = {"transformer", "text_encoder", "video_vae",
                                                             "audio_vae"};

static int64_t elems_of(const duet_shape *shape) {
    int64_t n = 0;
    duet_shape_elems(shape, &n); /* cannot overflow: checked against the file's size */
    return n;
}

duet_dtype duet__entry_dtype(const duet__entry *e) {
    return e->spec->dtype == DUET_F32 || !e->n_parts ? e->spec->dtype : e->part[0]->dtype;
}

bool duet__entry_hashed(const duet__entry *e) {
    return e->spec->role == DUET__READ || e->spec->role == DUET__OTHER;
}

/* Pieces over the stored data of each part (in the file or copied): the row orders of layout.h. */
static void make_pieces(const duet__entry *e, const void *const data[3], duet_dtype dtype, duet_weight *out) {
    int64_t rows = e->spec->shape.rank ? e->spec->shape.dim[0] : 1, row_bytes = 1, block = e->spec->block;
    for (int i = 1; i < e->spec->shape.rank; i++) row_bytes *= e->spec->shape.dim[i];
    row_bytes *= (int64_t)duet_dtype_bytes(dtype);
    *out = (duet_weight){.name = e->spec->name, .shape = e->spec->shape, .dtype = dtype};
    switch (e->arrangement) {
    case DUET__GROUPED:
        out->n_pieces = 3;
        for (int p = 0; p < 3; p++)
            out->piece[p] = (duet_weight_piece){(const char *)data[0] + p * block * row_bytes, rows / 3,
                                                block, 3 * block};
        return;
    case DUET__SPLIT:
        out->n_pieces = 3;
        for (int p = 0; p < 3; p++)
            out->piece[p] = (duet_weight_piece){data[p], rows / 3, rows / 3, rows / 3};
        return;
    case DUET__SWAPPED:
        out->n_pieces = 2;
        for (int p = 0; p < 2; p++)
            out->piece[p] = (duet_weight_piece){(const char *)data[0] + (1 - p) * (rows / 2) * row_bytes,
                                                rows / 2, rows / 2, rows / 2};
        return;
    default:
        out->n_pieces = 1;
        out->piece[0] = (duet_weight_piece){data[0], rows, rows, rows};
    }
}

/* ---- reading for hashes: no copy of the whole, no alignment needed ---------------------------------------------- */

void duet__entry_read(const duet__entry *e, int64_t first_elem, int64_t n_elems, void *out) {
    duet_weight raw;
    const void *data[3] = {0};
    for (int p = 0; p < e->n_parts; p++) data[p] = e->part[p]->data;
    duet_dtype stored = e->part[0]->dtype, dtype = duet__entry_dtype(e);
    make_pieces(e, data, stored, &raw);
    int64_t row_elems = duet_weight_row_elems(&raw);
    size_t from = duet_dtype_bytes(stored), to = duet_dtype_bytes(dtype);
    for (char *at = out; n_elems > 0;) {
        int64_t column = first_elem % row_elems,
                n = row_elems - column < n_elems ? row_elems - column : n_elems;
        const char *src = (const char *)duet_weight_row(&raw, first_elem / row_elems) + (size_t)column * from;
        if (stored == dtype)
            memcpy(at, src, (size_t)n * to);
        else
            duet_widen_to_f32(stored, src, n, (float *)(void *)at);
        at += (size_t)n * to;
        first_elem += n;
        n_elems -= n;
    }
}

/* ---- copies -------------------------------------------------------------------------------------------------------- */

static bool needs_copy(const duet__entry *e, int part) {
    const duet_st_tensor *t = e->part[part];
    return t->dtype != duet__entry_dtype(e) || (uintptr_t)t->data % duet_dtype_bytes(t->dtype) != 0;
}

static duet_status make_copy(duet__entry *e, int part, duet_error *err) {
    const duet_st_tensor *t = e->part[part];
    duet_dtype dtype = duet__entry_dtype(e);
    int64_t n = elems_of(&t->shape);
    void *copy = duet_alloc((size_t)n * duet_dtype_bytes(dtype), DUET_MEM_WEIGHT);
    if (!copy) return duet_fail(err, DUET_E_MEMORY, "no memory for a copy of tensor %s", t->name);
    if (t->dtype == dtype)
        memcpy(copy, t->data, (size_t)t->bytes);
    else
        duet_widen_to_f32(t->dtype, t->data, n, copy);
    e->copy[part] = copy;
    return DUET_OK;
}

static duet_status plain_weight(duet__entry *e, duet_weight *out, duet_error *err) {
    const void *data[3] = {0};
    bool mapped = true;
    for (int p = 0; p < e->n_parts; p++) {
        if (needs_copy(e, p) && !e->copy[p]) {
            duet_status st = make_copy(e, p, err);
            if (st != DUET_OK) return st;
        }
        data[p] = e->copy[p] ? e->copy[p] : e->part[p]->data;
        mapped = mapped && !e->copy[p];
    }
    make_pieces(e, data, duet__entry_dtype(e), out);
    out->mapped = mapped;
    return DUET_OK;
}

/* ---- weight norm ----------------------------------------------------------------------------------------------------- */

/* Entries of the weight_v and weight_g behind "X.weight", if that is how the convolution is stored. */
static duet__entry *find_pair(const duet__bound *b, const char *name, const duet__entry **g) {
    char buf[DUET__NAME_BYTES];
    size_t n = strlen(name);
    if (n < 8 || n + 3 > sizeof buf || strcmp(name + n - 7, ".weight") != 0) return NULL;
    memcpy(buf, name, n);
    memcpy(buf + n, "_g", 3);
    *g = duet__entry_find(b, buf);
    buf[n + 1] = 'v';
    const duet__entry *v = duet__entry_find(b, buf);
    return *g && v ? &b->entries[v - b->entries] : NULL;
}

/* W = v * (g / ||v||), the norm over everything but axis 0, accumulated in fp64. */
static duet_status fold(duet__entry *v, const duet__entry *g, const char *name, duet_error *err) {
    int64_t n = elems_of(&v->spec->shape), rows = v->spec->shape.dim[0], width = n / rows;
    float *w = duet_alloc((size_t)n * sizeof *w, DUET_MEM_WEIGHT);
    char *copy = duet_strdup(name);
    if (!w || !copy) {
        duet_free(w);
        duet_free(copy);
        return duet_fail(err, DUET_E_MEMORY, "no memory to fold %s", name);
    }
    duet__entry_read(v, 0, n, w);
    for (int64_t r = 0; r < rows; r++) {
        float *row = w + r * width, length;
        double sum = 0.0;
        for (int64_t i = 0; i < width; i++) sum += (double)row[i] * (double)row[i];
        duet__entry_read(g, r, 1, &length);
        float scale = length / (float)sqrt(sum);
        for (int64_t i = 0; i < width; i++) row[i] *= scale;
    }
    duet_pages_drop(v->part[0]->data, (size_t)v->part[0]->bytes);
    v->folded = w;
    v->folded_name = copy;
    return DUET_OK;
}

static duet_status folded_weight(duet__entry *v, const duet__entry *g, const char *name, duet_weight *out,
                                 duet_error *err) {
    duet_status st = v->folded ? DUET_OK : fold(v, g, name, err);
    if (st == DUET_OK) *out = duet_weight_view(v->folded_name, DUET_F32, v->spec->shape, v->folded);
    return st;
}

/* ---- interface ------------------------------------------------------------------------------------------------------- */

duet_status duet_model_weight(duet_model *model, duet_component component, const char *name, duet_weight *out,
                              duet_error *err) {
    duet__bound *b = &model->part[component];
    const duet__entry *e = duet__entry_find(b, name), *g = NULL;
    duet__entry *v = e ? NULL : find_pair(b, name, &g);
    *out = (duet_weight){0};
    if (!v && (!e || !e->n_parts))
        return duet_fail(err, DUET_E_MODEL, "%s: there is no tensor %s in the %s", model->dir, name,
                         duet__component_name[component]);
    pthread_mutex_lock(&model->lock);
    duet_status st =
        v ? folded_weight(v, g, name, out, err) : plain_weight(&b->entries[e - b->entries], out, err);
    pthread_mutex_unlock(&model->lock);
    return st;
}

bool duet_model_has(const duet_model *model, duet_component component, const char *name) {
    const duet__bound *b = &model->part[component];
    const duet__entry *e = duet__entry_find(b, name), *g;
    return e ? e->n_parts > 0 : find_pair(b, name, &g) != NULL;
}

/* Bytes that reading the tensors of text-to-video touches: in place, or in copies; of tensors whose name contains
 * `part`. */
static void count_bytes(const duet_model *model, duet_component component, const char *part, int64_t *mapped,
                        int64_t *copied) {
    const duet__bound *b = &model->part[component];
    *mapped = *copied = 0;
    for (int i = 0; b->open && i < b->specs.n; i++) {
        const duet__entry *e = &b->entries[i];
        if (e->spec->role != DUET__READ && e->spec->role != DUET__CONSTANT) continue;
        if (!strstr(e->spec->name, part)) continue;
        bool pair = e->spec->fill == DUET__FILL_WN_GAIN,
             direction = strstr(e->spec->name, ".weight_v") != NULL;
        if (direction) *copied += 4 * elems_of(&e->spec->shape);
        if (pair || direction) continue;
        for (int p = 0; p < e->n_parts; p++) {
            int64_t bytes = elems_of(&e->part[p]->shape) * (int64_t)duet_dtype_bytes(duet__entry_dtype(e));
            *(needs_copy(e, p) ? copied : mapped) += bytes;
        }
    }
}

int64_t duet_model_mapped_bytes(const duet_model *model, duet_component component) {
    int64_t mapped, copied;
    count_bytes(model, component, "", &mapped, &copied);
    return mapped;
}

int64_t duet_model_copied_bytes(const duet_model *model, duet_component component) {
    int64_t mapped, copied;
    count_bytes(model, component, "", &mapped, &copied);
    return copied;
}

int64_t duet_model_mapped_bytes_named(const duet_model *model, duet_component component, const char *part) {
    int64_t mapped, copied;
    count_bytes(model, component, part, &mapped, &copied);
    return mapped;
}
