/* video_vae.h - the ViT decoder of the video VAE: one latent clip tile in, raw pixels out (spec
 * model-vae 5.1, 5.2).
 *
 * Tiling, chunking, blending and pixel conversion are engine/decode's business. Units: "embed", "blocks.i",
 * "out". */
#ifndef DUET_NN_VIDEO_VAE_H
#define DUET_NN_VIDEO_VAE_H

#include "backend/unit.h"
#include "nn/tap.h"
#include "store/model.h"

typedef struct duet_video_vae duet_video_vae;

duet_status duet_video_vae_open(duet_model *model, duet_device *dev, duet_video_vae **out, duet_error *err);
void duet_video_vae_close(duet_video_vae **vae);

int64_t duet_video_vae_activation_bytes(const duet_vvae_config *config, int64_t t, int64_t h, int64_t w);
int64_t duet_video_vae_scratch_bytes(const duet_vvae_config *config, const duet_device *dev, int64_t t,
                                     int64_t h, int64_t w);

/* latent: host [C, t, h, w] contiguous, de-normalised. raw: device [3, frames, h*s, w*s] for raw frames
 * first_frame.. of the 4t decoded ones. tap_prefix names the tile ("vvae.chunk_0.tile_0_1"); cancel polled
 * between blocks. Activations are kept between calls and regrown only for a larger tile. */
duet_status duet_video_vae_decode_tile(duet_video_vae *vae, duet_residency *residency, duet_stream *stream,
                                       const float *latent, int64_t t, int64_t h, int64_t w,
                                       int64_t first_frame, int64_t frames, float *raw, duet_tap *tap,
                                       const char *tap_prefix, const volatile int *cancel, duet_error *err);

#endif
