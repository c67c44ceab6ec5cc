/* spec.h - the canonical tensor table: every tensor a configuration implies, by native name.
 *
 * One builder per component turns the configuration into rows (name, shape, stored dtype, row order, role). The
 * reader checks files against the table, the hash walks it, and the generator fills it: what each tensor looks like
 * when it is random (`fill`, `gain`) stands beside its shape, because both follow from what the tensor is for.
 *
 * Shapes are canonical: one row per output, [q;k;v] and [gate;up] stacked. How a layout stores them is in layout.h. */
#ifndef DUET_STORE_SPEC_H
#define DUET_STORE_SPEC_H

#include "base/status.h"
#include "store/config.h"
#include "store/model.h"
#include "tensor/tensor.h"

typedef enum duet__role {
    DUET__READ,  /* text to video and sound reads it: must be there, is hashed */
    DUET__OTHER, /* only tasks with conditions read it (vision tower, encoders): must be there, is hashed */
    DUET__CONSTANT, /* follows from the configuration: must be there where the layout has it, is not hashed */
    DUET__SKIP      /* belongs to the checkpoint, is never read: may be absent, is not hashed */
} duet__role;

typedef enum duet__order {
    DUET__ROWS,  /* plain rows */
    DUET__QKV,   /* [q;k;v], each heads * block rows; layouts may interleave or split it */
    DUET__HALVES /* [gate;up]; layouts may swap the halves */
} duet__order;

/* How synthetic values are made; N is a bounded normal-like variable of unit variance. */
typedef enum duet__fill {
    DUET__FILL_WEIGHT,  /* gain * N / sqrt(row elements) */
    DUET__FILL_NORMAL,  /* gain * N */
    DUET__FILL_ABOUT_1, /* 1 + gain * N */
    DUET__FILL_SCALE,   /* 0.5 + gain * N */
    DUET__FILL_WN_GAIN, /* ||row of weight_v|| * gain * (1 + 0.2 N) */
    DUET__FILL_ZERO,
    DUET__FILL_FILTER, /* the twelve taps of the anti-aliasing filter */
    DUET__FILL_INV_FREQ
} duet__fill;

enum { DUET__NAME_BYTES = 96 };

typedef struct duet__spec {
    char name[DUET__NAME_BYTES]; /* canonical */
    duet_shape shape;
    duet_dtype dtype; /* F32: must end as F32 (half precision is widened); BF16: any float storage is kept */
    duet__role role;
    duet__order order;
    int32_t block; /* QKV: rows of one head */
    duet__fill fill;
    float gain;
} duet__spec;

typedef struct duet__spec_list {
    duet__spec *spec;
    int n, room;
    bool no_memory;
} duet__spec_list;

/* All tensors of a component, sorted by name. layers in the text encoder: config->text.layers_in_file. */
duet_status duet__specs_build(const duet_model_config *config, duet_component component, duet__spec_list *out,
                              duet_error *err);
void duet__specs_free(duet__spec_list *list);
const duet__spec *duet__specs_find(const duet__spec_list *list, const char *name);
int64_t duet__spec_bytes(const duet__spec *spec); /* at its own dtype */

/* Between the builders: name from a printf pattern; the returned row may be adjusted until the next call. Never NULL:
 * without memory a scratch row is returned and the list is marked. */
duet__spec *duet__spec_add(duet__spec_list *list, duet_dtype dtype, duet__fill fill, double gain,
                           duet_shape shape, const char *fmt, ...) DUET_PRINTF(6, 7);
/* weight (gain / sqrt(in)) and bias (0.2 N) of a linear or convolution; shape is the weight's, bias has dim[0]. */
void duet__spec_linear(duet__spec_list *list, duet_dtype dtype, double gain, duet_shape shape,
                       const char *prefix);
/* weight (1 + 0.3 N) and bias (0.2 N) of a norm. */
void duet__spec_norm(duet__spec_list *list, duet_dtype dtype, int64_t width, const char *prefix);

void duet__specs_dit(const duet_dit_config *c, duet__spec_list *out);
void duet__specs_text(const duet_text_config *t, const duet_vision_config *v, duet__spec_list *out);
void duet__specs_vvae(const duet_vvae_config *c, duet__spec_list *out);
void duet__specs_avae(const duet_avae_config *c, duet__spec_list *out);

extern const float duet__alias_filter[12];
/* Rotary frequency k of n: 1 / theta^(2k/2n) in the reference's fp32 arithmetic (power, then reciprocal). */
float duet__inv_freq_at(double theta, int64_t n, int64_t k);

#endif
