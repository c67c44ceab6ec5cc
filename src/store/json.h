/* json.h - JSON documents from outside: bounded, duplicate keys refused, every message names file and key.
 *
 * Keys are dotted paths ("text_config.rope_scaling.mrope_section"). A getter fails with DUET_E_MODEL when the key
 * is absent, of another type or out of range; `duet__doc_has` asks first where a key is optional. */
#ifndef DUET_STORE_JSON_H
#define DUET_STORE_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"

typedef struct duet__doc {
    json_t *root;
    char *label; /* file name for messages */
} duet__doc;

enum { DUET__CONFIG_MAX_BYTES = 8 << 20 };

/* One pass over JSON text before it is parsed: strings skipped, nesting and number of values bounded, so that a
 * hostile file costs no more memory than a few times its size. Returns NULL or what is wrong. */
const char *duet__json_prescan(const char *text, size_t bytes, int max_depth, int64_t max_values);

duet_status duet__doc_parse(const char *text, size_t bytes, const char *label, duet__doc *out,
                            duet_error *err);
duet_status duet__doc_open(const char *path, duet__doc *out, duet_error *err);
void duet__doc_close(duet__doc *doc); /* idempotent */

json_t *duet__doc_get(const duet__doc *doc, const char *key); /* borrowed; NULL when absent */
bool duet__doc_has(const duet__doc *doc, const char *key);
const char *duet__doc_string(const duet__doc *doc, const char *key); /* NULL when absent or not a string */

duet_status duet__doc_i64(const duet__doc *doc, const char *key, int64_t lo, int64_t hi, int64_t *out,
                          duet_error *err);
duet_status duet__doc_f64(const duet__doc *doc, const char *key, double lo, double hi, double *out,
                          duet_error *err);
/* Lists of 1..max numbers, each in range. */
duet_status duet__doc_i32s(const duet__doc *doc, const char *key, int max, int64_t lo, int64_t hi,
                           int32_t *out, int32_t *n, duet_error *err);
duet_status duet__doc_f64s(const duet__doc *doc, const char *key, int max, double lo, double hi, double *out,
                           int32_t *n, duet_error *err);

#endif
