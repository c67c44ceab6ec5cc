/* text_model_int.h - the model's parts, and the sizes and op arguments that its run and its plan share. */
#ifndef DUET_NN_TEXT_MODEL_INT_H
#define DUET_NN_TEXT_MODEL_INT_H

#include "nn/text_model.h"

/* member, name below "model.language_model.layers.N." */
#define DUET__TEXT_LAYER_WEIGHTS(T)                                                                          \
    T(attention_norm, "input_layernorm.weight")                                                              \
    T(wq, "self_attn.q_proj.weight")                                                                         \
    T(wk, "self_attn.k_proj.weight")                                                                         \
    T(wv, "self_attn.v_proj.weight")                                                                         \
    T(q_norm, "self_attn.q_norm.weight")                                                                     \
    T(k_norm, "self_attn.k_norm.weight")                                                                     \
    T(wo, "self_attn.o_proj.weight")                                                                         \
    T(mlp_norm, "post_attention_layernorm.weight")                                                           \
    T(w_gate, "mlp.gate_proj.weight")                                                                        \
    T(w_up, "mlp.up_proj.weight")                                                                            \
    T(w_down, "mlp.down_proj.weight")

enum {
#define T(member, name) +1
    DUET__TEXT_N_LAYER_WEIGHTS = DUET__TEXT_LAYER_WEIGHTS(T),
#undef T
    DUET__TEXT_MLP_CHUNK_VALUES = 16 << 20 /* of one of the two intermediates: 64 MiB */
};

typedef struct duet__text_layer {
#define T(member, name) duet_weight member;
    DUET__TEXT_LAYER_WEIGHTS(T)
#undef T
    duet_weight *list[DUET__TEXT_N_LAYER_WEIGHTS];
    char name[24];
    duet_unit unit;
} duet__text_layer;

struct duet_text_model {
    duet_text_config config;
    duet_device *dev;
    duet_weight table, *table_list[1];
    duet_unit embed;
    duet__text_layer *layers;
    duet_unit **walk; /* embed, layers.0, ... */
    char *block;      /* device: activations */
    int64_t block_bytes;
    int64_t mlp_chunk_values; /* constant; tests make chunks small with it */
};

/* Byte offsets of the activations in their one block; 64-byte aligned. */
typedef struct duet__text_layout {
    int64_t ids, cos, sin, n, q, k, v, gate, up; /* n: normed rows, then the output of a projection */
    int64_t bytes;
    int64_t chunk_rows; /* rows of the MLP at a time: a rule of shape alone (promise P1) */
} duet__text_layout;

duet__text_layout duet__text_layout_of(const duet_text_config *config, int64_t mlp_chunk_values,
                                       int64_t rows);

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
