/* ops.h - argument structs of the operations in ops.def, and the table a backend fills.
 *
 * Rules for every op:
 *  1. It enqueues on the stream and returns; it never waits. Pointers are device addresses: callers never
 * read through them. An error may surface at the next synchronisation.
 *  2. All values are fp32 unless a member says otherwise. A zeroed member means "not used" wherever NULL/0
 * makes sense.
 *  3. Weights are stored in any floating dtype and widened exactly; sums are at least fp32.
 *  4. Output tiles are cut by shape alone, each computed by one thread in a fixed order: same bits for any
 * thread count.
 *  5. Scratch comes from the stream's arena; duet_ops_scratch_bytes(op, args) is a pure function that the
 * plan adds up. Strides are in elements. Unless said otherwise outputs must not overlap inputs. */
#ifndef DUET_BACKEND_OPS_H
#define DUET_BACKEND_OPS_H

#include "tensor/weight.h"
#include "base/status.h"

typedef struct duet_stream duet_stream;

/* y[r, n] = sum_k x[r, k] * w[row0 + n, k] (+ bias[row0 + n]); n < cols_out. Column slices of w: k0 <= k < k0
 * + cols_in. */
typedef struct duet_linear_args {
    const float *x;          /* [rows, cols_in], row stride x_stride */
    float *y;                /* [rows, cols_out], row stride y_stride */
    const duet_weight *w;    /* [>= row0 + cols_out, cols_in]; trailing dimensions are flattened */
    const duet_weight *bias; /* [same rows as w] or NULL */
    int64_t rows, cols_in, cols_out;
    int64_t x_stride, y_stride;
    int64_t row0; /* first weight row used (slices of a fused weight) */
} duet_linear_args;

/* y[r, :] = table[ids[r], :] */
typedef struct duet_embed_args {
    const int32_t *ids;       /* [rows]; caller guarantees 0 <= id < table rows */
    float *y;                 /* [rows, cols] contiguous */
    const duet_weight *table; /* [vocab, cols] */
    int64_t rows, cols;
} duet_embed_args;

/* y = x * rsqrt(mean(x^2) + eps) * gain, over `cols` values at x[r*x_stride + g*x_group_stride]. y may equal
 * x. Per-head norms: groups = heads, group stride = head distance, gain shared by all groups. */
typedef struct duet_rmsnorm_args {
    const float *x;
    float *y;
    const duet_weight *gain; /* [cols] or NULL */
    int64_t rows, groups, cols;
    int64_t x_stride, x_group_stride, y_stride, y_group_stride;
    float eps;
} duet_rmsnorm_args;

/* y = (x - mean) * rsqrt(var + eps) * gain + bias, biased variance. y may equal x. */
typedef struct duet_layernorm_args {
    const float *x;
    float *y;
    const duet_weight *gain, *bias; /* [cols] */
    int64_t rows, cols, x_stride, y_stride;
    float eps;
} duet_layernorm_args;

/* y[r,:] = x[r,:] * (1 + scale[index[r]*table_stride + :]) + shift[index[r]*table_stride + :]. y may equal x.
 */
typedef struct duet_modulate_args {
    const float *x;
    float *y;
    const float *shift, *scale; /* slots inside one table row */
    const int32_t *index;       /* [rows] */
    int64_t rows, cols, x_stride, y_stride, table_stride;
} duet_modulate_args;

/* h[r,:] += g * x[r,:], g = gate[index[r]*table_stride + :], or channel_gate[:] (a learned vector), or 1 when
 * both are NULL. */
typedef struct duet_gated_add_args {
    float *h;
    const float *x;
    const float *gate;
    const int32_t *index;
    const duet_weight *channel_gate; /* [cols] */
    int64_t rows, cols, h_stride, x_stride, table_stride;
} duet_gated_add_args;

/* Rotate-half in place: for j < pairs: (x_j, x_{j+pairs}) -> (x_j c - x_{j+pairs} s, x_{j+pairs} c + x_j s).
 * Dimensions from 2*pairs on pass through. The tables are shared by all heads. Products and sum are rounded
 * one by one (no fused multiply-add). */
typedef struct duet_rope_args {
    float *x;               /* head h of row r at x[r*x_stride + h*head_stride] */
    const float *cos, *sin; /* [rows, pairs] contiguous */
    int64_t rows, heads, pairs, x_stride, head_stride;
} duet_rope_args;

/* o = softmax(scale * q k^T) v per head, within segments; scores never leave the chip.
 * Head h of row r at q[r*q_stride + h*q_head_stride]; key head = h / (heads / kv_heads).
 * causal: row i sees keys <= i of its own segment. q and kv rows are the same rows (self attention). */
typedef struct duet_attention_args {
    const float *q, *k, *v;
    float *o;                   /* may not alias k or v; may alias q */
    const int32_t *seg_end_row; /* [n_seg] ascending, last = rows; NULL: one segment of all rows */
    int64_t n_seg, rows, heads, kv_heads, head_dim;
    int64_t q_stride, k_stride, v_stride, o_stride;
    int64_t q_head_stride, k_head_stride, v_head_stride, o_head_stride;
    float scale;
    bool causal;
} duet_attention_args;

/* y = x * sigmoid(x) over n contiguous values. y may equal x. */
typedef struct duet_silu_args {
    const float *x;
    float *y;
    int64_t n;
} duet_silu_args;

/* y[r,c] = silu(gate[r,c]) * up[r,c]. y may equal gate. */
typedef struct duet_silu_mul_args {
    const float *gate, *up;
    float *y;
    int64_t rows, cols, gate_stride, up_stride, y_stride;
} duet_silu_mul_args;

/* y[r,:] = x[r,:] */
typedef struct duet_copy_rows_args {
    const float *x;
    float *y;
    int64_t rows, cols, x_stride, y_stride;
} duet_copy_rows_args;

/* One solver step in place (spec model-dit 11.2): d = x + st*v; x = ratio*x + (1 - ratio)*d; each operation
 * rounded on its own. */
typedef struct duet_euler_args {
    float *x;              /* [n] */
    const float *velocity; /* [n] */
    int64_t n;
    float st, ratio;
} duet_euler_args;

/* result[0] = number of non-finite values, [1] = minimum, [2] = maximum of the finite ones (0 when none). */
typedef struct duet_stats_args {
    const float *x;
    float *result; /* [3] */
    int64_t rows, cols, x_stride;
} duet_stats_args;

/* Patch rows to planar pixels: x [t*h*w, C*pt*ps*ps] with columns [C][pt][ps][ps] -> y [C, frames, h*ps,
 * w*ps]. Only raw frames first_frame <= f < first_frame + frames are written (raw frame = pt*t + dt). */
typedef struct duet_unpatch_args {
    const float *x;
    float *y;
    int64_t t, h, w, channels, patch_t, patch_s, x_stride;
    int64_t first_frame, frames;
} duet_unpatch_args;

/* Put one raw tile into the canvas of its chunk (spec model-vae 6): fade in from the raw tile above over
 * `fade_rows`, then from the raw tile to the left over `fade_cols`, weights k/E; write only the kept rows and
 * columns. tile, above, left: raw tiles [planes, tile_h, tile_w] of the same size; above/left NULL where
 * there is none. The bottom fade_rows of `above` and the right fade_cols of `left` are read. */
typedef struct duet_blend_tile_args {
    const float *tile, *above, *left;
    float *canvas; /* [planes, canvas_h, canvas_w] */
    int64_t planes, tile_h, tile_w, above_h, left_w;
    int64_t fade_rows, fade_cols, keep_rows, keep_cols;
    int64_t canvas_h, canvas_w, at_row, at_col; /* where the tile's (0,0) lands */
} duet_blend_tile_args;

/* head[c,k,:] = tail[c,k,:]*(1 - k/frames) + head[c,k,:]*(k/frames), in place. Planes of head are
 * head_plane_stride apart. */
typedef struct duet_blend_seam_args {
    float *head;                      /* [channels][frames..., pixels] */
    const float *tail;                /* [channels][frames, pixels] */
    int64_t channels, frames, pixels; /* pixels per frame */
    int64_t head_channel_stride, tail_channel_stride;
} duet_blend_seam_args;

/* Planar normalised floats to interleaved bytes: y[f, p, c] = round_half_even(255 * clamp(x[c,f,p]*std[c] +
 * mean[c], 0, 1)). */
typedef struct duet_pixels_u8_args {
    const float *x; /* [3][frames, pixels], channels x_channel_stride apart */
    uint8_t *y;     /* [frames, pixels, 3] */
    int64_t frames, pixels, x_channel_stride;
    float mean[3], std[3];
} duet_pixels_u8_args;

/* y[b,o,t] = bias[o] + sum_{i,k} w[o,i,k] * x[b,i, t*stride + k*dilation - pad] (zeros outside) (+
 * residual[b,o,t]). Layout [batch, channels, length]. y may equal residual. length_out = (length_in + 2*pad -
 * dilation*(kernel-1) - 1)/stride + 1. */
typedef struct duet_conv1d_args {
    const float *x;
    float *y;
    const float *residual;
    const duet_weight *w;    /* [channels_out, channels_in, kernel] */
    const duet_weight *bias; /* [channels_out] or NULL */
    int64_t batch, channels_in, channels_out, length_in, length_out, kernel, stride, dilation, pad;
} duet_conv1d_args;

/* Transposed convolution: y[b,o,t] = bias[o] + sum_{i,s} w[i,o, t + pad - s*stride] * x[b,i,s]; length_out =
 * stride*length_in. */
typedef struct duet_conv1d_up_args {
    const float *x;
    float *y;
    const duet_weight *w;    /* [channels_in, channels_out, kernel] */
    const duet_weight *bias; /* [channels_out] or NULL */
    int64_t batch, channels_in, channels_out, length_in, length_out, kernel, stride, pad;
} duet_conv1d_up_args;

/* Alias-free SnakeBeta (spec model-vae 7.4): 2x upsample with the 12-tap filter, u + sin(e^alpha u)^2 /
 * (e^beta + 1e-9), 2x downsample; edges replicate. [batch, channels, length] -> same. The 2x signal is never
 * stored. */
typedef struct duet_snake_aa_args {
    const float *x;
    float *y;
    const duet_weight *alpha, *beta;            /* [channels], log scale */
    const duet_weight *up_filter, *down_filter; /* 12 values each, any rank */
    int64_t batch, channels, length;
} duet_snake_aa_args;

/* y = a*x + b*y over n values (b = 0 ignores the old y). */
typedef struct duet_axpby_args {
    const float *x;
    float *y;
    int64_t n;
    float a, b;
} duet_axpby_args;

typedef struct duet_clamp_args {
    float *x;
    int64_t n;
    float lo, hi;
} duet_clamp_args;

/* ---- the table
 * -------------------------------------------------------------------------------------------------------- */

typedef enum duet_op {
#define DUET_OP(name, ptrs, weights) DUET_OP_##name,
#include "backend/ops.def"
#undef DUET_OP
    DUET_N_OPS
} duet_op;

/* Execute one op now, on the calling thread's pool, args already translated. `scratch` has
 * scratch_bytes(args, threads of the pool) bytes, 64-byte aligned. scratch_bytes reads shapes and strides
 * alone, never a pointer: the plan calls it before any weight is open. */
typedef struct duet_kernel_ctx {
    struct duet_pool *pool;
    void *scratch;
} duet_kernel_ctx;

#define DUET_OP(name, ptrs, weights)                                                                         \
    typedef void (*duet_##name##_fn)(const duet_kernel_ctx *, const duet_##name##_args *);
#include "backend/ops.def"
#undef DUET_OP

/* Host kernels (ref, cpu). `ref` fills every slot; `cpu` overwrites what it beats. Every slot is callable
 * after filling. */
typedef struct duet_kernels {
#define DUET_OP(name, ptrs, weights)                                                                         \
    duet_##name##_fn name;                                                                                   \
    size_t (*name##_scratch_bytes)(const duet_##name##_args *, int n_threads); /* NULL = none */
#include "backend/ops.def"
#undef DUET_OP
} duet_kernels;

#endif
