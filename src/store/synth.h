/* synth.h - random checkpoints with the real tensor names, files and rules, at tiny, small or released size.
 *
 * The same seed gives the same bytes on every machine: values come from an integer generator addressed by
 * (seed, tensor name, element), so a tensor can be made in pieces, in any layout, without being held in memory. Both
 * layouts of one seed hold the same weights.
 *
 *     native      OUT/FL2VA, OUT/Ref2VA: model_index.json, transformer, text_encoder, video_vae, audio_vae, tokenizer,
 *                 processor. In small and full, what both partitions share is stored once (relative links).
 *     diffusers   OUT/transformer, OUT/transformer_ref, text_encoder, vae, audio_vae, tokenizer, processor, schedulers,
 *                 modular_model_index.json
 *
 * OUT appears when everything is written; after a failure nothing is left. */
#ifndef DUET_STORE_SYNTH_H
#define DUET_STORE_SYNTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct duet_synth_options {
    const char *out_dir;   /* must not exist, or be an empty directory */
    const char *shape;     /* "tiny" (NULL), "small", "full" */
    const char *layout;    /* "native" (NULL), "diffusers" */
    const char *partition; /* "fl2va", "ref2va", "both" (NULL) */
    uint64_t seed;         /* tiny: seed modulo 3 also chooses the dimensions */
    const char
        *tokenizer_dir; /* full only, and required there: vocab.json, merges.txt, tokenizer_config.json */
    bool yes;           /* full refuses without it */
    void (*progress)(void *arg, const char *file, int64_t done_bytes, int64_t total_bytes); /* may be NULL */
    void *progress_arg;
    const volatile int *cancel; /* may be NULL; non-zero stops with DUET_E_CANCELLED */
} duet_synth_options;

/* Bytes of weights that duet_synth would write. */
duet_status duet_synth_bytes(const duet_synth_options *options, int64_t *bytes, duet_error *err);

/* DUET_E_REQUEST with `param` shape, layout, partition, tokenizer, yes or out for refusals; DUET_E_IO when the disk is
 * too small or a write fails. One thread. */
duet_status duet_synth(const duet_synth_options *options, duet_error *err);

#endif
