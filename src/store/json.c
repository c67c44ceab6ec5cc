/* json.c - see json.h. */
#include "store/json.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "store/file.h"

const char *duet__json_prescan(const char *text, size_t bytes, int max_depth, int64_t max_values) {
    int depth = 0;
    int64_t values = 1;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (c == '\0') return "holds a NUL byte";
        if (in_string) {
            if (c == '\\' && i + 1 < bytes && text[i + 1] != '\0') i++;
            in_string = c != '"';
            continue;
        }
        in_string = c == '"';
        if ((c == '{' || c == '[') && ++depth > max_depth) return "is nested too deeply";
        if (c == '}' || c == ']') depth--;
        if (c == ',' && ++values > max_values) return "holds too many values";
    }
    return NULL;
}

duet_status duet__doc_parse(const char *text, size_t bytes, const char *label, duet__doc *out,
                            duet_error *err) {
    *out = (duet__doc){0};
    const char *wrong = duet__json_prescan(text, bytes, 32, 1 << 20);
    if (wrong) return duet_fail(err, DUET_E_MODEL, "%s: JSON %s", label, wrong);
    json_error_t e;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &e);
    if (!root) return duet_fail(err, DUET_E_MODEL, "%s: not valid JSON: %s (line %d)", label, e.text, e.line);
    if (!json_is_object(root)) {
        json_decref(root);
        return duet_fail(err, DUET_E_MODEL, "%s: JSON is not an object", label);
    }
    *out = (duet__doc){.root = root, .label = duet_strdup(label)};
    if (out->label) return DUET_OK;
    duet__doc_close(out);
    return duet_fail(err, DUET_E_MEMORY, "%s: out of memory", label);
}

duet_status duet__doc_open(const char *path, duet__doc *out, duet_error *err) {
    char *text;
    size_t bytes;
    *out = (duet__doc){0};
    duet_status st = duet__read_file(path, DUET__CONFIG_MAX_BYTES, &text, &bytes, err);
    if (st == DUET_OK) st = duet__doc_parse(text, bytes, path, out, err);
    duet_free(text);
    return st;
}

void duet__doc_close(duet__doc *doc) {
    if (doc->root) json_decref(doc->root);
    duet_free(doc->label);
    *doc = (duet__doc){0};
}

json_t *duet__doc_get(const duet__doc *doc, const char *key) {
    json_t *at = doc->root;
    while (at && *key) {
        char part[64];
        size_t n = strcspn(key, ".");
        if (n >= sizeof part) return NULL;
        memcpy(part, key, n);
        part[n] = '\0';
        at = json_object_get(at, part); /* NULL for anything but an object */
        key += n + (key[n] == '.');
    }
    return at;
}

bool duet__doc_has(const duet__doc *doc, const char *key) {
    json_t *value = duet__doc_get(doc, key);
    return value && !json_is_null(value);
}

const char *duet__doc_string(const duet__doc *doc, const char *key) {
    return json_string_value(duet__doc_get(doc, key));
}

static duet_status absent(const duet__doc *doc, const char *key, const char *kind, duet_error *err) {
    if (!duet__doc_has(doc, key))
        return duet_fail(err, DUET_E_MODEL, "%s: key %s is missing", doc->label, key);
    return duet_fail(err, DUET_E_MODEL, "%s: key %s must be %s", doc->label, key, kind);
}

static duet_status check_i64(const duet__doc *doc, const char *key, const json_t *value, int64_t lo,
                             int64_t hi, int64_t *out, duet_error *err) {
    if (!json_is_integer(value)) return absent(doc, key, "an integer", err);
    *out = json_integer_value(value);
    if (lo == hi && *out != lo)
        return duet_fail(err, DUET_E_MODEL, "%s: key %s must be %lld (got %lld)", doc->label, key,
                         (long long)lo, (long long)*out);
    if (*out < lo || *out > hi)
        return duet_fail(err, DUET_E_MODEL, "%s: key %s must be between %lld and %lld (got %lld)", doc->label,
                         key, (long long)lo, (long long)hi, (long long)*out);
    return DUET_OK;
}

static duet_status check_f64(const duet__doc *doc, const char *key, const json_t *value, double lo, double hi,
                             double *out, duet_error *err) {
    if (!json_is_number(value)) return absent(doc, key, "a number", err);
    *out = json_number_value(value);
    if (!(*out >= lo && *out <= hi))
        return duet_fail(err, DUET_E_MODEL, "%s: key %s must be between %g and %g (got %g)", doc->label, key,
                         lo, hi, *out);
    return DUET_OK;
}

duet_status duet__doc_i64(const duet__doc *doc, const char *key, int64_t lo, int64_t hi, int64_t *out,
                          duet_error *err) {
    return check_i64(doc, key, duet__doc_get(doc, key), lo, hi, out, err);
}

duet_status duet__doc_f64(const duet__doc *doc, const char *key, double lo, double hi, double *out,
                          duet_error *err) {
    return check_f64(doc, key, duet__doc_get(doc, key), lo, hi, out, err);
}

static duet_status open_list(const duet__doc *doc, const char *key, int max, json_t **list, int32_t *n,
                             duet_error *err) {
    *list = duet__doc_get(doc, key);
    *n = 0;
    if (!json_is_array(*list)) return absent(doc, key, "a list of numbers", err);
    size_t size = json_array_size(*list);
    if (size < 1 || size > (size_t)max)
        return duet_fail(err, DUET_E_MODEL, "%s: key %s must have 1 to %d entries (got %zu)", doc->label, key,
                         max, size);
    *n = (int32_t)size;
    return DUET_OK;
}

duet_status duet__doc_i32s(const duet__doc *doc, const char *key, int max, int64_t lo, int64_t hi,
                           int32_t *out, int32_t *n, duet_error *err) {
    json_t *list;
    duet_status st = open_list(doc, key, max, &list, n, err);
    for (int32_t i = 0; st == DUET_OK && i < *n; i++) {
        int64_t value = 0;
        st = check_i64(doc, key, json_array_get(list, (size_t)i), lo, hi, &value, err);
        out[i] = (int32_t)value;
    }
    return st;
}

duet_status duet__doc_f64s(const duet__doc *doc, const char *key, int max, double lo, double hi, double *out,
                           int32_t *n, duet_error *err) {
    json_t *list;
    duet_status st = open_list(doc, key, max, &list, n, err);
    for (int32_t i = 0; st == DUET_OK && i < *n; i++)
        st = check_f64(doc, key, json_array_get(list, (size_t)i), lo, hi, &out[i], err);
    return st;
}
