/* video_vae_int.h - what the two halves of the ViT decoder share: dimensions, weights, activation layout.
 *
 * The activations of a tile are one allocation, carved by duet__vvae_carve. The same function, given no
 * memory, tells how much it would take: what a plan announces and what a run uses cannot drift apart. */
#ifndef DUET_NN_VIDEO_VAE_INT_H
#define DUET_NN_VIDEO_VAE_INT_H

#include "nn/vae_unit.h"
#include "nn/video_vae.h"

enum { DUET__RGB = 3 };

typedef struct duet__vvae_dims {
    int64_t width, heads, head_dim, ffn; /* 2048, 32, 64, 8192 */
    int64_t channels, registers;         /* 24, 4 */
    int64_t freqs;                       /* rotary frequencies an axis; a head has 3 * freqs rotated pairs */
    int64_t patch_t, patch_s, patch;     /* 4, 16, 3*4*16*16 */
    float eps;
    double theta;
} duet__vvae_dims;

/* Rows of one tile: t*h*w patch tokens, then the registers, then the zero token. */
typedef struct duet__vvae_tile_rows {
    int64_t t, h, w, patches, rows;
} duet__vvae_tile_rows;

/* Positions of the handles in their units; the order is the order of loading. */
enum { VVAE_POST_QUANT_W, VVAE_POST_QUANT_B, VVAE_EMBED_W, VVAE_EMBED_B, VVAE_REGISTERS, VVAE_N_EMBED };
enum { VVAE_NORM_W, VVAE_NORM_B, VVAE_PROJ_W, VVAE_PROJ_B, VVAE_N_OUT };
#define DUET__VVAE_BLOCK_WEIGHTS(W)                                                                          \
    W(NORM1, "norm1.weight")                                                                                 \
    W(QKV_W, "attn.to_qkv.weight")                                                                           \
    W(QKV_B, "attn.to_qkv.bias")                                                                             \
    W(ATTN_OUT_W, "attn.to_out.weight")                                                                      \
    W(ATTN_OUT_B, "attn.to_out.bias")                                                                        \
    W(SCALE1, "scale1")                                                                                      \
    W(NORM2, "norm2.weight")                                                                                 \
    W(W1_W, "ff.w1.weight")                                                                                  \
    W(W1_B, "ff.w1.bias")                                                                                    \
    W(W2_W, "ff.w2.weight")                                                                                  \
    W(W2_B, "ff.w2.bias")                                                                                    \
    W(SCALE2, "scale2")
enum {
#define W(id, name) VVAE_##id,
    DUET__VVAE_BLOCK_WEIGHTS(W)
#undef W
        VVAE_N_BLOCK
};

typedef struct duet__vvae_buffers {
    float *x;              /* [rows, width] residual stream */
    float *n;              /* [rows, width] normed rows, then the branch's result */
    float *wide;           /* the largest of: q|k|v, gate|up, patches out, latents in twice */
    float *cos, *sin;      /* [rows, 3 * freqs] */
    int32_t *register_ids; /* 0, 1, ... */
} duet__vvae_buffers;

struct duet_video_vae {
    duet_device *dev;
    duet__vvae_dims dims;
    int layers;
    duet__vae_unit embed, out, *blocks;
    duet_unit **walk; /* embed, blocks, out */
    void *memory;     /* activations of the largest tile so far */
    int64_t memory_bytes;
    duet__vvae_tile_rows table_rows; /* the tile size whose cos, sin and ids lie in memory */
};

/* DUET_E_MODEL when head_dim and the rotary ratio give no whole number of frequencies an axis. */
duet_status duet__vvae_dims_of(const duet_vvae_config *config, duet__vvae_dims *out, duet_error *err);
duet__vvae_tile_rows duet__vvae_tile_rows_of(const duet__vvae_dims *d, int64_t t, int64_t h, int64_t w);
/* Carve `memory` (NULL: only count); returns the bytes. */
int64_t duet__vvae_carve(const duet__vvae_dims *d, const duet__vvae_tile_rows *r, void *memory,
                         duet__vvae_buffers *out);
/* cos and sin of all rows, host [rows, 3*freqs] each, from exact fp64 coordinates; angle 0 for the suffix
 * rows. */
void duet__vvae_rope_tables(const duet__vvae_dims *d, const duet__vvae_tile_rows *r, float *cos_out,
                            float *sin_out);

#endif
