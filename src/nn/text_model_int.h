/* text_model_int.h - sizes and op arguments that the run and the plan of the text model share. */
#ifndef DUET_NN_TEXT_MODEL_INT_H
#define DUET_NN_TEXT_MODEL_INT_H

#include "nn/text_model.h"

/* Byte offsets of the activations in their one block; 64-byte aligned. */
typedef struct duet__text_layout {
    int64_t ids, cos, sin, n, q, k, v, gate, up; /* n: normed rows, then the output of a projection */
    int64_t bytes;
    int64_t chunk_rows; /* rows of the MLP at a time: a rule of shape alone (promise P1) */
} duet__text_layout;

duet__text_layout duet__text_layout_of(const duet_text_config *config, int64_t rows);

/* y [rows, cols_out] = x [rows, cols_in] w^T, both contiguous. */
duet_linear_args duet__text_product(const float *x, float *y, const duet_weight *w, int64_t rows,
                                    int64_t cols_in, int64_t cols_out);
/* Contiguous [rows, groups, cols]; one gain for all groups. */
duet_rmsnorm_args duet__text_norm(const duet_text_config *config, const float *x, float *y,
                                  const duet_weight *gain, int64_t rows, int64_t groups, int64_t cols);
/* Causal, one segment; the output takes the place of q. */
duet_attention_args duet__text_attention(const duet_text_config *config, float *q, const float *k,
                                         const float *v, int64_t rows);

#endif
