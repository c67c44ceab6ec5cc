/* config_int.h - reading configurations: what the files of the reader share. */
#ifndef DUET_STORE_CONFIG_INT_H
#define DUET_STORE_CONFIG_INT_H

#include <stddef.h>

#include "store/json.h"
#include "store/layout.h"

/* Where a model's files are and what is wanted of them. */
typedef struct duet__place {
    const char *dir; /* partition directory or root of a diffusers tree */
    const duet__layout *layout;
    duet_partition partition;
    uint32_t components; /* mask 1 << duet_component */
} duet__place;

enum { DUET__MAX_TASKS = 8 };

typedef struct duet__index {
    bool has_partition; /* native: as model_index.json says */
    duet_partition partition;
    char tasks[DUET__MAX_TASKS][16];
    int n_tasks;
    const char *file; /* name of the index that was read */
} duet__index;

/* Fill `out` (and `index`) for the wanted components; the others stay zero. Every value is checked for itself
 * (config_read.c, config_diffusers.c) and against the others (config_check.c). */
duet_status duet__config_read(const duet__place *place, duet_model_config *out, duet__index *index,
                              duet_error *err);
duet_status duet__config_check(const duet__place *place, const duet_model_config *c, const char *index_file,
                               duet_error *err);

/* Folder of the transformer in this place: "transformer" or "transformer_ref". */
const char *duet__dit_dir(const duet__place *place);

/* ---- tables of fields ---------------------------------------------------------------------------------------- */

typedef enum duet__kind { DUET__I32, DUET__F32, DUET__F64 } duet__kind;

typedef struct duet__field {
    const char *key;
    duet__kind kind;
    size_t at; /* offset in duet_model_config */
    double lo, hi;
} duet__field;

#define DUET__INT(member, key, lo, hi)                                                                       \
    { key, DUET__I32, offsetof(duet_model_config, member), lo, hi }
#define DUET__REAL(member, key, lo, hi)                                                                      \
    { key, DUET__F32, offsetof(duet_model_config, member), lo, hi }
#define DUET__WIDE(member, key, lo, hi)                                                                      \
    { key, DUET__F64, offsetof(duet_model_config, member), lo, hi }

/* What a key must say where it is present: this code does nothing else. `text` is compact JSON. */
typedef struct duet__must {
    const char *key, *text;
} duet__must;

enum { DUET__MAX_DIM = 1 << 18, DUET__MAX_LAYERS = 512, DUET__MAX_HEADS = 1024, DUET__MAX_HEAD_DIM = 1024 };

duet_status duet__read_fields(const duet__doc *doc, const duet__field *fields, int n, duet_model_config *out,
                              duet_error *err);
duet_status duet__read_musts(const duet__doc *doc, const duet__must *musts, int n, duet_error *err);
/* Exactly n numbers, as fp32. */
duet_status duet__read_f32s(const duet__doc *doc, const char *key, int32_t n, double lo, double hi,
                            float *out, duet_error *err);
/* Open place->dir/folder/file. */
duet_status duet__open_config(const duet__place *place, const char *folder, const char *file, duet__doc *out,
                              duet_error *err);
duet_status duet__read_patch(const duet__doc *doc, duet_dit_config *out, duet_error *err);

/* The parts that differ between the layouts. */
duet_status duet__diffusers_dit(const duet__place *place, duet_model_config *out, duet_error *err);
duet_status duet__diffusers_vvae(const duet__place *place, duet_model_config *out, duet_error *err);
duet_status duet__diffusers_avae(const duet__place *place, duet_model_config *out, duet_error *err);
duet_status duet__read_index(const duet__place *place, duet_model_config *out, duet__index *index,
                             duet_error *err);

/* Constants of the architecture that native files do not state. */
void duet__vvae_constants(duet_vvae_config *out);
void duet__avae_constants(duet_avae_config *out);

#define DUET__COUNT(table) (int)(sizeof(table) / sizeof *(table))

#endif
