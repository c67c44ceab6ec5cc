/* layout.h - how a layout on disk spells the canonical tensors: tables of name rules, no code.
 *
 *     canonical name --rule--> one or three stored names and an arrangement of rows
 *
 *     PLAIN    stored rows are the canonical ones
 *     GROUPED  [q;k;v] interleaved per head: stored row h*3*d + s*d + i is canonical row s*heads*d + h*d + i
 *     SPLIT    three stored tensors, q, k and v
 *     SWAPPED  [up;gate] stored, [gate;up] canonical
 *     ABSENT   not stored in this layout: computed from the configuration, or never read
 *
 * A new layout is a new table. */
#ifndef DUET_STORE_LAYOUT_H
#define DUET_STORE_LAYOUT_H

#include "store/spec.h"

typedef enum duet__arrangement {
    DUET__PLAIN,
    DUET__GROUPED,
    DUET__SPLIT,
    DUET__SWAPPED,
    DUET__ABSENT
} duet__arrangement;

/* '#' stands for a number, a final '*' for any rest; both are carried over in order. First match wins; without a match
 * a tensor is PLAIN under its canonical name. */
typedef struct duet__rule {
    duet_component component;
    const char *canonical, *stored[3];
    duet__arrangement arrangement;
} duet__rule;

typedef struct duet__layout {
    const char *name; /* "native", "diffusers" */
    const duet__rule *rules;
    int n_rules;
    const char *dir[DUET_N_COMPONENTS];         /* folder of the weights; the transformer's for FL2VA */
    const char *dir_ref;                        /* folder of the Ref2VA transformer */
    const char *stem[DUET_N_COMPONENTS];        /* file name before .safetensors */
    const char *config_file[DUET_N_COMPONENTS]; /* states the structure; relative to the model */
} duet__layout;

extern const duet__layout duet__layout_native, duet__layout_diffusers;
const duet__layout *duet__layout_find(const char *name); /* NULL when unknown */

/* One tensor as it lies in a file. */
typedef struct duet__stored {
    char name[DUET__NAME_BYTES];
    duet_shape shape;
    duet__arrangement arrangement;
    int part; /* SPLIT: 0 q, 1 k, 2 v */
} duet__stored;

/* Stored form of a canonical tensor: 1 or 3 rows of `out`, 0 when ABSENT. */
int duet__layout_stored(const duet__layout *layout, duet_component component, const duet__spec *spec,
                        duet__stored out[3]);
/* Canonical row of stored row `row`. */
int64_t duet__canonical_row(const duet__spec *spec, const duet__stored *stored, int64_t row);

/* Other spellings of a component's name prefixes, seen in the wild; the first of each list is canonical. A component's
 * files use one of each list: the one under which `probe` exists. */
typedef struct duet__prefix {
    duet_component component;
    const char *spelling[5]; /* NULL-terminated */
    const char *probe;       /* name behind the prefix */
} duet__prefix;

extern const duet__prefix duet__prefixes[];
extern const int duet__n_prefixes;

/* true and the expansion of `to` when `name` matches `from`. */
bool duet__rule_apply(const char *from, const char *to, const char *name, char *out, size_t out_bytes);

#endif
