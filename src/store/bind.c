/* bind.c - every tensor accounted for: the canonical table against what the files hold.
 *
 * Headers only. A tensor that is missing, unexpected, of another shape or of a storage type this build does not know
 * is one error that names file, tensor, expected and found. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "store/file.h"
#include "store/model_int.h"

/* ---- spelling ---------------------------------------------------------------------------------------------------- */

typedef struct spelling {
    const char *from[3], *to[3]; /* canonical prefix, the one of these files */
    int n;
} spelling;

static spelling find_spelling(const duet__set *set, duet_component component) {
    spelling s = {.n = 0};
    for (int i = 0; i < duet__n_prefixes; i++) {
        const duet__prefix *p = &duet__prefixes[i];
        if (p->component != component) continue;
        s.from[s.n] = s.to[s.n] = p->spelling[0];
        for (int j = 0; p->spelling[j]; j++) {
            char name[DUET__NAME_BYTES];
            snprintf(name, sizeof name, "%s%s", p->spelling[j], p->probe);
            if (!duet__set_find(set, name)) continue;
            s.to[s.n] = p->spelling[j];
            break;
        }
        s.n++;
    }
    return s;
}

static const char *spell(const spelling *s, const char *name, char *buf, size_t bytes) {
    for (int i = 0; i < s->n; i++) {
        size_t n = strlen(s->from[i]);
        if (strncmp(name, s->from[i], n) != 0) continue;
        snprintf(buf, bytes, "%s%s", s->to[i], name + n);
        return buf;
    }
    return name;
}

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

static bool is_float(duet_dtype dtype) {
    return dtype == DUET_F32 || dtype == DUET_BF16 || dtype == DUET_F16;
}

static duet_status check_tensor(const duet__spec *spec, const duet__stored *want, const duet__row *row,
                                duet_error *err) {
    char expected[160], found[160];
    const duet_st_tensor *t = row->t;
    if (!duet_shape_equal(&want->shape, &t->shape))
        return duet_fail(err, DUET_E_MODEL, "%s: tensor %s: expected %s %s, found %s %s", row->file,
                         row->name, duet_dtype_name(spec->dtype),
                         duet_shape_text(&want->shape, expected, sizeof expected), duet_dtype_name(t->dtype),
                         duet_shape_text(&t->shape, found, sizeof found));
    if (is_float(t->dtype)) return DUET_OK;
    return duet_fail(
        err, DUET_E_MODEL,
        "%s: tensor %s: expected %s, found %s: only F32, BF16 and F16 are read, no quantised weights",
        row->file, row->name, duet_dtype_name(spec->dtype), duet_dtype_name(t->dtype));
}

static duet_status missing(const duet__set *set, const char *name, const duet__row *row,
                           const duet__spec *spec, duet_error *err) {
    char shape[160];
    if (row)
        return duet_fail(err, DUET_E_MODEL, "%s: this shard is %s: it holds tensor %s", row->file,
                         duet__is_dangling(row->file) ? "a link to nothing" : "missing", name);
    return duet_fail(err, DUET_E_MODEL, "%s: tensor %s is missing: expected %s %s", set->label, name,
                     duet_dtype_name(spec->dtype), duet_shape_text(&spec->shape, shape, sizeof shape));
}

static duet_status bind_entry(const duet__set *set, const spelling *spelled, const duet__stored *stored,
                              int parts, duet__entry *entry, duet_error *err) {
    for (int p = 0; p < parts; p++) {
        char buf[DUET__NAME_BYTES + 32];
        const char *name = spell(spelled, stored[p].name, buf, sizeof buf);
        duet__row *row = duet__set_find(set, name);
        if (row) row->used = true;
        if (!row || !row->t) {
            entry->n_parts = 0;
            if (entry->spec->role != DUET__SKIP) return missing(set, name, row, entry->spec, err);
            continue;
        }
        duet_status st = check_tensor(entry->spec, &stored[p], row, err);
        if (st != DUET_OK) return st;
        if (p && row->t->dtype != entry->part[0]->dtype)
            return duet_fail(err, DUET_E_MODEL, "%s: tensor %s: expected %s as its neighbour, found %s",
                             row->file, name, duet_dtype_name(entry->part[0]->dtype),
                             duet_dtype_name(row->t->dtype));
        entry->part[p] = row->t;
    }
    return DUET_OK;
}

/* ---- a component --------------------------------------------------------------------------------------------------- */

static duet_status bind_all(const duet__place *place, duet_component component, duet__bound *b,
                            duet_error *err) {
    spelling spelled = find_spelling(&b->set, component);
    for (int i = 0; i < b->specs.n; i++) {
        duet__stored stored[3];
        duet__entry *entry = &b->entries[i];
        entry->spec = &b->specs.spec[i];
        entry->n_parts = duet__layout_stored(place->layout, component, entry->spec, stored);
        entry->arrangement = stored[0].arrangement;
        duet_status st = bind_entry(&b->set, &spelled, stored, entry->n_parts, entry, err);
        if (st != DUET_OK) return st;
    }
    for (int i = 0; i < b->set.n_rows; i++)
        if (!b->set.rows[i].used)
            return duet_fail(err, DUET_E_MODEL,
                             "%s: tensor %.160s is unexpected: the configuration has no place for it",
                             b->set.rows[i].file, b->set.rows[i].name);
    return DUET_OK;
}

duet_status duet__bind(const duet__place *place, duet_component component, const duet_model_config *config,
                       duet__bound *out, duet_error *err) {
    duet_status st;
    *out = (duet__bound){.open = true};
    TRY(st, fail, duet__set_open(place, component, config->n_base_schedule > 0, &out->set, err));
    TRY(st, fail, duet__specs_build(config, component, &out->specs, err));
    out->entries = duet_calloc((size_t)out->specs.n, sizeof *out->entries, DUET_MEM_STORE);
    if (!out->entries) {
        st = duet_fail(err, DUET_E_MEMORY, "no memory for the tensor table");
        goto fail;
    }
    TRY(st, fail, bind_all(place, component, out, err));
    return DUET_OK;
fail:
    duet__bound_close(out);
    return st;
}

void duet__bound_close(duet__bound *b) {
    for (int i = 0; b->entries && i < b->specs.n; i++) {
        for (int p = 0; p < 3; p++) duet_free(b->entries[i].copy[p]);
        duet_free(b->entries[i].folded);
        duet_free(b->entries[i].folded_name);
    }
    duet_free(b->entries);
    duet__specs_free(&b->specs);
    duet__set_close(&b->set);
    *b = (duet__bound){0};
}

const duet__entry *duet__entry_find(const duet__bound *b, const char *name) {
    const duet__spec *spec = b->open ? duet__specs_find(&b->specs, name) : NULL;
    return spec ? &b->entries[spec - b->specs.spec] : NULL;
}
