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

/* Of one tile; exact. dev may be NULL (scratch is then 0). */
int64_t duet_video_vae_activation_bytes(const duet_vvae_config *config, int64_t t, int64_t h, int64_t w);
int64_t duet_video_vae_scratch_bytes(const duet_vvae_config *config, const duet_device *dev, int64_t t,
                                     int64_t h, int64_t w);
double duet_video_vae_flops(const duet_vvae_config *config, int64_t t, int64_t h, int64_t w);

/* A run of raw frames that the caller wants, out of the time_ratio*t decoded ones. */
typedef struct duet_raw_frames {
    int64_t first, frames;
    float *raw; /* device [3, frames, h*s, w*s], s = space_ratio */
} duet_raw_frames;

typedef struct duet_video_tile {
    const float *latent; /* host [C, t, h, w] contiguous, de-normalised; read before the call returns */
    int64_t t, h, w;
    const duet_raw_frames *parts;
    int n_parts;
    const char *tap_prefix; /* names the tile: "vvae.chunk_0.tile_0_1" */
} duet_video_tile;

/* Enqueues; does not wait (with a tap that wants "raw" it does). cancel (may be NULL) is polled between
 * blocks. Activations are kept between calls and regrown, after a sync, only for a larger tile. Taps:
 * PREFIX.post_quant [P,C], .tokens [S,D], .block_NN [S,D], .proj_out [P,3*ratio*s*s], .raw
 * [3,ratio*t,h*s,w*s]. */
duet_status duet_video_vae_decode_tile(duet_video_vae *vae, duet_residency *residency, duet_stream *stream,
                                       const duet_video_tile *tile, duet_tap *tap, const volatile int *cancel,
                                       duet_error *err);

#endif
