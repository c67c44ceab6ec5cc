/* text_rope.h - rotary tables of the text model from three coordinates a token (spec model-conditioning
 * 4.3, 4.4).
 *
 * Pure host functions; any thread. */
#ifndef DUET_NN_TEXT_ROPE_H
#define DUET_NN_TEXT_ROPE_H

#include <stdint.h>

#include "store/config.h"

enum { DUET_TEXT_AXES = 3 }; /* t, h, w */

/* Axis whose coordinate turns rotary pair `pair` (0 <= pair < head_dim/2): the sections of h and w are
 * interleaved, t fills the rest. */
int duet_text_rope_axis(const duet_text_config *config, int64_t pair);

/* Coordinates of text without media: row j stands at (j, j, j). coordinates: [rows, 3]. */
void duet_text_positions(int64_t rows, int32_t *coordinates);

/* cos, sin: [rows, head_dim/2]. Inverse frequencies, angles and results are rounded to fp32 one by one, as
 * the reference does in fp32 (in bf16 it also rounds the tables; that belongs to the bf16 mode). */
void duet_text_rope_tables(const duet_text_config *config, const int32_t *coordinates, int64_t rows,
                           float *cos_table, float *sin_table);

#endif
