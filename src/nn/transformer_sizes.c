/* transformer_sizes.c - every byte the transformer will hold, from configuration and row counts alone.
 *
 * The plan prints these numbers before a weight is read and tests compare them with the device's own
 * accounting, so each sum stands beside the allocation that it predicts: change both. */
#include "nn/transformer_int.h"

enum { FLOAT_BYTES = 4, INDEX_BYTES = 4, CHUNK_STEP_ROWS = 64 };

const int64_t DUET__MLP_BUDGET_BYTES = 256ll << 20;

int64_t duet__dit_inner(const duet_dit_config *c) {
    return (int64_t)c->heads * c->head_dim;
}

int64_t duet__dit_video_width(const duet_dit_config *c) {
    return (int64_t)c->video_channels * c->patch_t * c->patch_h * c->patch_w;
}

/* Rows of the feed-forward done at once: a rule of shape alone. */
int64_t duet__dit_mlp_chunk_rows(const duet_dit_config *c, int64_t budget_bytes, int64_t rows) {
    int64_t fit = budget_bytes / (2 * (int64_t)c->ffn * FLOAT_BYTES) / CHUNK_STEP_ROWS * CHUNK_STEP_ROWS;
    if (fit < CHUNK_STEP_ROWS) fit = CHUNK_STEP_ROWS;
    return fit < rows ? fit : rows;
}

int64_t duet__dit_work_floats(const duet_dit_config *c, int64_t budget_bytes, int64_t rows) {
    int64_t qkv = rows * 3 * duet__dit_inner(c);
    int64_t mlp = duet__dit_mlp_chunk_rows(c, budget_bytes, rows) * 2 * c->ffn;
    return qkv > mlp ? qkv : mlp;
}

int64_t duet_dit_activation_bytes(const duet_dit_config *c, int64_t rows, int64_t text_rows) {
    int64_t floats = 2 * rows * c->hidden + text_rows * c->hidden + 2 * rows * 3 * c->rope_freqs +
                     duet__dit_work_floats(c, DUET__MLP_BUDGET_BYTES, rows);
    return floats * FLOAT_BYTES + 2 * rows * INDEX_BYTES;
}

int64_t duet_dit_table_bytes(const duet_dit_config *c, int64_t n_t) {
    int64_t per_block = DUET__MODALITIES * DUET__BLOCK_SLOTS * (int64_t)c->hidden;
    return n_t * (c->layers * per_block + 2 * c->hidden) * FLOAT_BYTES;
}

int64_t duet_dit_table_temp_bytes(const duet_dit_config *c, int64_t n_t) {
    return n_t * ((int64_t)c->time_sinusoid + c->time_hidden + c->time_dim) * FLOAT_BYTES;
}

/* ---- scratch: the largest need of any op; arguments as the passes make them, shapes only ---- */

static int64_t linear_scratch(const duet_device *dev, int64_t rows, int64_t cols_in, int64_t cols_out,
                              int64_t x_stride) {
    return (int64_t)duet_linear_scratch_bytes(dev, &(duet_linear_args){.rows = rows,
                                                                       .cols_in = cols_in,
                                                                       .cols_out = cols_out,
                                                                       .x_stride = x_stride,
                                                                       .y_stride = cols_out});
}

static int64_t rmsnorm_scratch(const duet_device *dev, int64_t rows, int64_t groups, int64_t cols,
                               int64_t stride) {
    return (int64_t)duet_rmsnorm_scratch_bytes(dev, &(duet_rmsnorm_args){.rows = rows,
                                                                         .groups = groups,
                                                                         .cols = cols,
                                                                         .x_stride = stride,
                                                                         .x_group_stride = cols,
                                                                         .y_stride = stride,
                                                                         .y_group_stride = cols});
}

static int64_t attention_scratch(const duet_dit_config *c, const duet_device *dev, int64_t rows) {
    int64_t inner = duet__dit_inner(c);
    return (int64_t)duet_attention_scratch_bytes(dev, &(duet_attention_args){.rows = rows,
                                                                             .heads = c->heads,
                                                                             .kv_heads = c->heads,
                                                                             .head_dim = c->head_dim,
                                                                             .q_stride = 3 * inner,
                                                                             .k_stride = 3 * inner,
                                                                             .v_stride = 3 * inner,
                                                                             .o_stride = 3 * inner,
                                                                             .q_head_stride = c->head_dim,
                                                                             .k_head_stride = c->head_dim,
                                                                             .v_head_stride = c->head_dim,
                                                                             .o_head_stride = c->head_dim});
}

static int64_t largest(const int64_t *bytes, int n) {
    int64_t best = 0;
    for (int i = 0; i < n; i++)
        if (bytes[i] > best) best = bytes[i];
    return best;
}

static int64_t block_scratch(const duet_dit_config *c, const duet_device *dev, int64_t rows) {
    int64_t inner = duet__dit_inner(c), chunk = duet__dit_mlp_chunk_rows(c, DUET__MLP_BUDGET_BYTES, rows);
    int64_t last = rows % chunk ? rows % chunk : chunk;
    const int64_t needs[] = {
        linear_scratch(dev, rows, c->hidden, 3 * inner, c->hidden),
        linear_scratch(dev, rows, inner, c->hidden, 3 * inner),
        linear_scratch(dev, chunk, c->hidden, 2 * (int64_t)c->ffn, c->hidden),
        linear_scratch(dev, chunk, c->ffn, c->hidden, 2 * (int64_t)c->ffn),
        linear_scratch(dev, last, c->hidden, 2 * (int64_t)c->ffn, c->hidden),
        linear_scratch(dev, last, c->ffn, c->hidden, 2 * (int64_t)c->ffn),
        rmsnorm_scratch(dev, rows, 1, c->hidden, c->hidden),
        rmsnorm_scratch(dev, rows, c->heads, c->head_dim, 3 * inner),
        attention_scratch(c, dev, rows),
    };
    return largest(needs, (int)(sizeof needs / sizeof *needs));
}

int64_t duet_dit_scratch_bytes(const duet_dit_config *c, const duet_device *dev, int64_t rows,
                               int64_t text_rows) {
    int64_t width = duet__dit_video_width(c);
    const int64_t needs[] = {
        block_scratch(c, dev, rows),
        block_scratch(c, dev, text_rows),
        linear_scratch(dev, text_rows, c->text_dim, c->hidden, c->text_dim),
        linear_scratch(dev, rows, width, c->hidden, width),
        linear_scratch(dev, rows, c->audio_channels, c->hidden, c->audio_channels),
        linear_scratch(dev, rows, c->hidden, width, c->hidden),
        linear_scratch(dev, rows, c->hidden, c->audio_channels, c->hidden),
    };
    return largest(needs, (int)(sizeof needs / sizeof *needs));
}

int64_t duet_dit_table_scratch_bytes(const duet_dit_config *c, const duet_device *dev, int64_t n_t) {
    int64_t features = DUET__MODALITIES * DUET__BLOCK_SLOTS * (int64_t)c->hidden;
    const int64_t needs[] = {
        linear_scratch(dev, n_t, c->time_sinusoid, c->time_hidden, c->time_sinusoid),
        linear_scratch(dev, n_t, c->time_hidden, c->time_dim, c->time_hidden),
        linear_scratch(dev, n_t, c->time_dim, features, c->time_dim),
        linear_scratch(dev, n_t, c->time_dim, 2 * (int64_t)c->hidden, c->time_dim),
    };
    return largest(needs, (int)(sizeof needs / sizeof *needs));
}
