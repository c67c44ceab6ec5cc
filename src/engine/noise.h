/* noise.h - initial noise, bit-equal to torch's CPU generator (spec model-dit 10).
 *
 * Two streams: `sglang` reseeds for the audio rows, `diffusers` continues one stream. Rows come out in packed
 * order. */
#ifndef DUET_ENGINE_NOISE_H
#define DUET_ENGINE_NOISE_H

#include <stdint.h>

#include "base/status.h"

typedef enum duet_noise_stream { DUET_NOISE_SGLANG = 0, DUET_NOISE_DIFFUSERS = 1 } duet_noise_stream;

/* video_rows: [T*ph_rows*pw_cols, C*pt*ph*pw] patchified; audio_rows: [2*Ta, audio channels]. Host memory of
 * the caller. */
typedef struct duet_noise_args {
    uint64_t seed;
    duet_noise_stream stream;
    int32_t channels, latent_h, latent_w, patch_h, patch_w, audio_channels;
    int64_t video_latents, audio_latents;
    float *video_rows, *audio_rows;
} duet_noise_args;
duet_status duet_noise_draw(const duet_noise_args *args, duet_error *err);

#endif
