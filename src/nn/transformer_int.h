/* transformer_int.h - between the files of the transformer.
 *
 *     transformer.c         weights, units, open and close
 *     transformer_sizes.c   bytes of everything, from the configuration alone
 *     transformer_tables.c  timesteps -> AdaLN tables
 *     transformer_block.c   one block; the refiner's are the same without modulation and rotation
 *     transformer_state.c   row layout on the device, text refined once
 *     transformer_eval.c    begin, block, head
 */
#ifndef DUET_NN_TRANSFORMER_INT_H
#define DUET_NN_TRANSFORMER_INT_H

#include "nn/transformer.h"

enum {
    DUET__MODALITIES = 3,    /* rows of one timestep in a block's table: video, text, audio */
    DUET__BLOCK_SLOTS = 6,   /* shift, scale, gate of attention; shift, scale, gate of feed-forward */
    DUET__BLOCK_WEIGHTS = 8, /* weights of duet__dit_block */
    DUET__EMBED_WEIGHTS = 12
};

/* A weight with its bias, as most projections outside the blocks come. */
typedef struct duet__dit_linear {
    duet_weight w, bias;
} duet__dit_linear;

typedef struct duet__dit_block {
    duet_weight norm1, norm2, qkv, q_norm, k_norm, out, fc1, fc2;
    duet_weight *weights[DUET__BLOCK_WEIGHTS];
    duet_unit unit;
    char name[24];
} duet__dit_block;

typedef struct duet__dit_adaln {
    duet__dit_linear proj[2]; /* only the time embedder has two */
    duet_weight *weights[4];
    duet_unit unit;
    char name[24];
} duet__dit_adaln;

struct duet_dit {
    duet_dit_config config;
    duet_device *dev;
    int64_t mlp_budget_bytes; /* how large the feed-forward's inner rows may become at once */
    float *inv_freq;          /* [rope_freqs] */

    duet__dit_linear video_in, audio_in, condition, video_out, audio_out;
    duet_weight refiner_norm, final_norm;
    duet_weight *embed_weights[DUET__EMBED_WEIGHTS];
    duet_unit embed;

    duet__dit_block *refiner, *blocks;   /* [refiner_layers], [layers] */
    duet__dit_adaln time, final, *adaln; /* [layers] */
    duet_unit **walk;                    /* units of one evaluation, in order */
    int n_walk;
};

struct duet_dit_tables {
    int64_t n_t;
    float *blocks; /* [layers, 3*n_t, 6*hidden] */
    float *final;  /* [n_t, 2*hidden]: shift, scale */
};

/* Device buffers of one request. `work` is qkv [S, 3*inner] during attention and the inner rows of the
 * feed-forward during that: the two are never alive together. */
struct duet_dit_state {
    duet_dit_layout layout; /* without its host arrays */
    int32_t *host_tags, *host_index;
    float *h, *n; /* [S, hidden]: residual stream; normed rows, later what is added to h */
    float *work;
    float *text;                       /* [L, hidden] refined */
    float *cos, *sin;                  /* [S, 3*rope_freqs] */
    int32_t *adaln_index, *time_index; /* [S] rows of a block's table, of the final table */
};

/* Names of per-block taps: "dit.block_07.attn". */
typedef struct duet__tap_name {
    char text[48];
} duet__tap_name;
duet__tap_name duet__dit_tap_name(const char *stem, int number, const char *leaf);
/* A device matrix under a name, if anybody wants it; `shape` NULL = [rows, cols]. */
void duet__dit_tap(duet_tap *tap, duet_stream *stream, const char *name, const float *x, int64_t rows,
                   int64_t cols, int64_t x_stride, const duet_shape *shape);

/* ---- sizes; floats unless the name says bytes */
int64_t duet__dit_inner(const duet_dit_config *c);
int64_t duet__dit_video_width(const duet_dit_config *c);
int64_t duet__dit_mlp_chunk_rows(const duet_dit_config *c, int64_t budget_bytes, int64_t rows);
int64_t duet__dit_work_floats(const duet_dit_config *c, int64_t budget_bytes, int64_t rows);
extern const int64_t DUET__MLP_BUDGET_BYTES;

/* ---- one block over rows 0..rows-1 of state->h. table NULL: refiner block (no modulation, no rotation). */
typedef struct duet__dit_pass {
    const duet_dit *dit;
    duet_stream *stream;
    duet_dit_state *state;
    int64_t rows;
    const float *table; /* [3*n_t, 6*hidden] */
    duet_tap *tap;
    int number; /* of the block, for taps */
} duet__dit_pass;
void duet__dit_run_block(const duet__dit_pass *pass, const duet__dit_block *block);

void duet__dit_linear_rows(duet_stream *stream, const duet__dit_linear *proj, const float *x, float *y,
                           int64_t rows, int64_t cols_in, int64_t cols_out);

#endif
