/* video_vae.h - the ViT decoder of the video VAE: one latent clip tile in, raw pixels out (spec
 * model-vae 5.1, 5.2).
 *
 *     latent [C,t,h,w] -> one token a latent -> registers and a zero token appended -> blocks -> patches ->
 * pixels
 *
 * A tile of another size is another function (the rotary coordinates are relative to the tile), so tiling is
 * part of the model's contract; but it is engine/decode's business, as are chunking, blending and pixel
 * conversion. Units: "embed", "blocks.i", "out". Thread rule: one stream at a time. */
#ifndef DUET_NN_VIDEO_VAE_H
#define DUET_NN_VIDEO_VAE_H

#include "backend/unit.h"
#include "nn/tap.h"
#include "store/model.h"

typedef struct duet_video_vae duet_video_vae;

duet_status duet_video_vae_open(duet_model *model, duet_device *dev, duet_video_vae **out, duet_error *err);
/* Every stream that decoded with it must be idle. */
void duet_video_vae_close(duet_video_vae **vae);

/* Of one tile; exact. dev may be NULL (scratch is then 0). host: what the rotary tables take for a moment. */
int64_t duet_video_vae_activation_bytes(const duet_vvae_config *config, int64_t t, int64_t h, int64_t w);
int64_t duet_video_vae_scratch_bytes(const duet_vvae_config *config, const duet_device *dev, int64_t t,
                                     int64_t h, int64_t w);
int64_t duet_video_vae_host_bytes(const duet_vvae_config *config, int64_t t, int64_t h, int64_t w);
double duet_video_vae_flops(const duet_vvae_config *config, int64_t t, int64_t h, int64_t w);

/* A run of raw frames that the caller wants, out of the time_ratio*t decoded ones. */
typedef struct duet_raw_frames {
    int64_t first, frames;
    float *raw; /* device [3, frames, h*s, w*s], s = space_ratio */
} duet_raw_frames;

typedef struct duet_video_tile {
    const float *latent; /* host [t*h*w, C]: one token a row, de-normalised; read before the call returns */
    int64_t t, h, w;
    const duet_raw_frames *parts;
    int n_parts;
    const char *tap_prefix; /* names the tile: "vvae.chunk_0.tile_0_1"; may be NULL without a tap */
} duet_video_tile;

/* Enqueues; does not wait, except to regrow its activations for a larger tile (they are kept between calls)
 * and for the taps that are turned around on the host. cancel (may be NULL) is polled between blocks. Taps
 * under the prefix, N tokens, S = N + registers + 1 rows: .latent .post_quant [C,t,h,w]; .tokens
 * .block_NN.out .block_NN.attn .norm_out [S,width]; .block_NN.q_rope .block_NN.k_rope [S,heads,head_dim];
 * .proj_out [N,3*ratio*s*s]. */
duet_status duet_video_vae_decode_tile(duet_video_vae *vae, duet_residency *residency, duet_stream *stream,
                                       const duet_video_tile *tile, duet_tap *tap, const volatile int *cancel,
                                       duet_error *err);

#endif
