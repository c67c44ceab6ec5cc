/* model.h - one canonical weight set, whatever the layout on disk.
 *
 * duet_model_open finds out what a path is (model root with FL2VA/ and Ref2VA/, one partition directory, a
 * diffusers tree, a hub snapshot of any of these made of symbolic links), reads the configuration, maps the
 * weight files and checks every tensor header against the configuration: missing, unexpected, wrong shape or
 * dtype are refused at once, naming file, tensor, expected and found. No weight bytes are read: that happens
 * when a unit is acquired.
 *
 *     path -> layout -> configuration -> expected tensor table (canonical names) -> pieces of mapped files
 *
 * Canonical names are the native ones. Every layout of the same weights gives bit-identical canonical
 * tensors, and the same model hash. Thread rule: open and close from one thread; lookups are read-only and
 * may run in parallel. */
#ifndef DUET_STORE_MODEL_H
#define DUET_STORE_MODEL_H

#include "tensor/weight.h"
#include "base/status.h"
#include "store/config.h"

typedef struct duet_model duet_model;

typedef enum duet_component {
    DUET_COMPONENT_DIT,  /* transformer of the chosen partition */
    DUET_COMPONENT_TEXT, /* text encoder with vision tower */
    DUET_COMPONENT_VVAE,
    DUET_COMPONENT_AVAE,
    DUET_N_COMPONENTS
} duet_component;

typedef struct duet_model_options {
    const char *path;
    const char *layout; /* NULL = by rule, "native", "diffusers" */
    duet_partition
        partition; /* which transformer to open, where the path has both; else the only one is opened and
                               * duet_model_serves tells what it can do */
    uint32_t components; /* bit mask 1 << duet_component to open; 0 = all */
} duet_model_options;

duet_status duet_model_open(const duet_model_options *options, duet_model **out, duet_error *err);
void duet_model_close(duet_model **model); /* all weights borrowed from it must be gone */

const duet_model_config *duet_model_config_get(const duet_model *model);
const char *duet_model_layout_name(const duet_model *model); /* "native", "diffusers" */
const char *duet_model_path(const duet_model *model);
const char *duet_model_dir(const duet_model *model); /* the folder below it that holds the components */
duet_partition duet_model_partition(
    const duet_model *model); /* the one opened: where only one is there, that */
bool duet_model_serves(const duet_model *model, const char *task); /* "t2va", "fl2va", "ref2va" */

/* Borrowed handle of canonical tensor `name`; pieces point into mapped files (or into aligned copies of
 * misaligned or folded data, made on first use and counted). DUET_E_MODEL when absent. The returned copy is
 * the caller's to prepare. */
duet_status duet_model_weight(duet_model *model, duet_component component, const char *name, duet_weight *out,
                              duet_error *err);
bool duet_model_has(const duet_model *model, duet_component component, const char *name);

/* Tokenizer files: whole text, borrowed until close. */
typedef struct duet_tokenizer_files {
    const char *vocab_json, *merges_txt, *tokenizer_config_json;
    int64_t vocab_json_bytes, merges_txt_bytes, tokenizer_config_json_bytes;
} duet_tokenizer_files;
duet_status duet_model_tokenizer_files(duet_model *model, duet_tokenizer_files *out, duet_error *err);

/* ---- hashes and accounting
 * ---------------------------------------------------------------------------------------------- */
typedef struct duet_model_hashes {
    char model[65], component[DUET_N_COMPONENTS][65], tokenizer[65]; /* lower-case hex SHA-256 */
} duet_model_hashes;
duet_status duet_model_hash(duet_model *model, duet_model_hashes *out, duet_error *err);

/* `duet info --verify`: every tensor read whole. sha256 covers all canonical bytes of what some task reads, with the
 * resolved configuration, so it is equal in every layout; the counts cover everything stored. Only opened components
 * are filled. Takes minutes at the released size: cancel is polled, progress called after each tensor. */
typedef struct duet_component_report {
    char sha256[65];
    int64_t tensors, bytes;   /* as stored */
    int64_t nonfinite;        /* values */
    char first_nonfinite[96]; /* canonical name, or "" */
    int files, missing_files; /* missing: shards that hold nothing any task reads */
} duet_component_report;

typedef struct duet_verify_options {
    void (*progress)(void *arg, const char *tensor, int64_t done_bytes,
                     int64_t total_bytes); /* may be NULL */
    void *progress_arg;
    const volatile int *cancel; /* may be NULL */
} duet_verify_options;

duet_status duet_model_verify(duet_model *model, const duet_verify_options *options,
                              duet_component_report report[DUET_N_COMPONENTS], duet_error *err);

/* What text-to-video touches (vision tower, encoders and never-read layers are not counted): bytes of tensors used in
 * place, and bytes of the copies that acquiring all of them makes. */
int64_t duet_model_mapped_bytes(const duet_model *model, duet_component component);
int64_t duet_model_copied_bytes(const duet_model *model, duet_component component);
/* The former, of tensors whose canonical name contains `part`. */
int64_t duet_model_mapped_bytes_named(const duet_model *model, duet_component component, const char *part);

#endif
