/* synth_int.h - what the files of the generator share. */
#ifndef DUET_STORE_SYNTH_INT_H
#define DUET_STORE_SYNTH_INT_H

#include <jansson.h>

#include "store/layout.h"
#include "store/synth.h"

/* ---- synth_values.c: counter-based values -------------------------------------------------------------------- */

typedef struct duet__values {
    uint64_t key; /* of this tensor */
    float offset, scale;
    duet__fill fill;
    float theta;       /* INV_FREQ */
    int64_t row_elems; /* WN_GAIN: of the weight_v it measures */
    uint64_t v_key;
    float v_scale;
} duet__values;

/* `scope` keeps equal names of different components (and of the two transformers) apart. `v`: the weight_v beside a
 * weight_g, else NULL. */
duet__values duet__values_of(uint64_t seed, const char *scope, const duet__spec *spec, const duet__spec *v);
void duet__values_make(const duet__values *values, int64_t first, int64_t n, float *out);
uint64_t duet__hash64(uint64_t seed, const char *text);
uint64_t duet__mix64(uint64_t x);

/* ---- synth_shapes.c ------------------------------------------------------------------------------------------ */

typedef struct duet__synth_shape {
    duet_model_config config;
    int merges;         /* of the generated tokenizer; 0 = files are copied */
    int shards;         /* per sharded component; 0 = cut at 5 GB */
    bool share_by_link; /* Ref2VA links to FL2VA */
} duet__synth_shape;

duet_status duet__synth_shape_get(const char *name, uint64_t seed, duet__synth_shape *out, duet_error *err);

/* ---- synth_tokenizer.c --------------------------------------------------------------------------------------- */

typedef struct duet__synth_tokenizer {
    char *vocab, *merges, *config; /* file texts, duet_free */
    size_t vocab_bytes, merges_bytes, config_bytes;
    int32_t size; /* highest id + 1 */
    int32_t vision_start, vision_end, image_pad, video_pad, end_of_text, im_end;
} duet__synth_tokenizer;

duet_status duet__synth_tokenizer_make(uint64_t seed, int merges, duet__synth_tokenizer *out,
                                       duet_error *err);
duet_status duet__synth_tokenizer_read(const char *dir, duet__synth_tokenizer *out, duet_error *err);
void duet__synth_tokenizer_free(duet__synth_tokenizer *tokenizer);

/* ---- synth_config.c: configuration files of both layouts ----------------------------------------------------- */

typedef struct duet__synth_job {
    const duet_synth_options *options;
    const duet__layout *layout;
    duet__synth_shape shape;
    duet__synth_tokenizer tokenizer;
    bool with[DUET_N_PARTITIONS];
    char *out, *root; /* OUT, and where files are written: OUT or its temporary name */
    int64_t done_bytes, total_bytes;
} duet__synth_job;

duet_status duet__synth_put_text(const duet__synth_job *job, const char *folder, const char *file,
                                 const char *text, size_t bytes, duet_error *err);
/* Steals the reference. NULL (no memory) is an error. */
duet_status duet__synth_put_json(const duet__synth_job *job, const char *folder, const char *file,
                                 json_t *json, duet_error *err);
/* The shared folders' configurations below `base` ("FL2VA" or ""), and those of one transformer. */
duet_status duet__synth_configs(const duet__synth_job *job, const char *base, duet_error *err);
duet_status duet__synth_transformer_config(const duet__synth_job *job, const char *folder, duet_error *err);
duet_status duet__synth_index(const duet__synth_job *job, const char *base, duet_partition partition,
                              duet_error *err);

#endif
