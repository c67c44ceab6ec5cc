/* transformer.h - the MiniMax-H3 diffusion transformer, steppable (spec model-dit 4).
 *
 *     open -> adaln tables for a schedule -> refine text (once per request) -> per evaluation: begin,
 * block(0..n-1), head
 *
 * The state is owned by `denoise`, so that caches can skip blocks and previews can look in. Rows are laid out
 * by engine/pack: this file never knows which rows are what, only tags, timestep indices and positions.
 * Units: "embed" (patch and condition projections, heads, norms outside blocks), "refiner.i", "blocks.i",
 * "adaln.time", "adaln.i", "adaln.final" (each retired as soon as its table is built).
 *
 * Tensors are fp32 without intermediate rounding (design 4). Names of taps: docs/oracle.md. Thread rule:
 * one stream at a time per state. */
#ifndef DUET_NN_TRANSFORMER_H
#define DUET_NN_TRANSFORMER_H

#include "backend/unit.h"
#include "nn/tap.h"
#include "store/model.h"

typedef struct duet_dit duet_dit;
typedef struct duet_dit_tables
    duet_dit_tables; /* AdaLN modulation of every distinct timestep of a schedule */
typedef struct duet_dit_state duet_dit_state;

duet_status duet_dit_open(duet_model *model, duet_device *dev, duet_dit **out, duet_error *err);
void duet_dit_close(duet_dit **dit);
const duet_dit_config *duet_dit_config_get(const duet_dit *dit);

/* Tables for n_t distinct timesteps (fp32, unscaled, ascending); AdaLN and time-embedder weights are retired
 * afterwards. */
duet_status duet_dit_tables_build(duet_dit *dit, duet_residency *residency, duet_stream *stream,
                                  const float *timesteps, int64_t n_t, duet_dit_tables **out, duet_tap *tap,
                                  duet_error *err);
void duet_dit_tables_free(duet_dit *dit, duet_dit_tables **tables);

/* Row layout of one request; host arrays, borrowed during the call that takes it. */
typedef struct duet_dit_layout {
    int64_t rows;                           /* S */
    int64_t text_first, text_rows;          /* consecutive */
    int64_t n_video_ranges, n_audio_ranges; /* condition ranges first, then the target */
    struct {
        int64_t first, rows;
    } video_range[16], audio_range[16];
    const double *position_ids; /* [rows, 3] t, h, w */
    const int32_t *token_tags;  /* [rows] 0 video, 1 text, 2 audio */
} duet_dit_layout;

int64_t duet_dit_activation_bytes(const duet_dit_config *config, int64_t rows, int64_t text_rows);
int64_t duet_dit_scratch_bytes(const duet_dit_config *config, const duet_device *dev, int64_t rows,
                               int64_t text_rows);
int64_t duet_dit_table_bytes(const duet_dit_config *config, int64_t n_t);
/* What duet_dit_tables_build holds besides the tables until it returns, and the largest op scratch it
 * uses. */
int64_t duet_dit_table_temp_bytes(const duet_dit_config *config, int64_t n_t);
int64_t duet_dit_table_scratch_bytes(const duet_dit_config *config, const duet_device *dev, int64_t n_t);

/* Allocate activations, upload positions (as cos/sin) and tags, project and refine the text rows. text:
 * device [text_rows, text_dim]. */
duet_status duet_dit_state_open(duet_dit *dit, duet_residency *residency, duet_stream *stream,
                                const duet_dit_layout *layout, const float *text, duet_tap *tap,
                                duet_dit_state **out, duet_error *err);
void duet_dit_state_close(duet_dit *dit, duet_dit_state **state); /* the stream must be idle */

/* One evaluation. video_rows, audio_rows: device, all rows of the modality in packed order, [*, C*pt*ph*pw]
 * and [*, audio channels]. row_timestep: host [rows], index into the tables' timesteps. */
duet_status duet_dit_begin(duet_dit *dit, duet_residency *residency, duet_stream *stream,
                           duet_dit_state *state, const duet_dit_tables *tables, const int32_t *row_timestep,
                           const float *video_rows, const float *audio_rows, duet_tap *tap, duet_error *err);
duet_status duet_dit_block(duet_dit *dit, duet_residency *residency, duet_stream *stream,
                           duet_dit_state *state, const duet_dit_tables *tables, int block, duet_tap *tap,
                           duet_error *err);
/* Velocities of the target rows (last range of each modality): device [rows, width], contiguous. */
duet_status duet_dit_head(duet_dit *dit, duet_residency *residency, duet_stream *stream,
                          duet_dit_state *state, const duet_dit_tables *tables, float *video_velocity,
                          float *audio_velocity, duet_tap *tap, duet_error *err);

#endif
