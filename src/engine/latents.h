/* latents.h - the file that makes a finished denoise survive anything (promise P4).
 *
 * A safetensors file with `video_latents` [C,T,h,w] and `audio_latents` [2,C,Ta], normalised, fp32, and metadata: the resolved request
 * as JSON and the hashes of the model, so that decoding on its own can refuse latents of other decoders. Written atomically. */
#ifndef DUET_ENGINE_LATENTS_H
#define DUET_ENGINE_LATENTS_H

#include "base/status.h"
#include "store/model.h"

typedef struct duet_latents {
    int32_t video_channels, latent_h, latent_w, audio_channels;
    int64_t video_latents, audio_latents; /* T, Ta */
    float *video, *audio;                 /* [C,T,h,w], [2,C,Ta]; owned */
    char *resolved_json;                  /* owned; "" when the file had none */
    char hash_model[65], hash_vvae[65], hash_avae[65];
} duet_latents;

void duet_latents_free(duet_latents *latents);
/* Video and audio arrays for the shapes already set. */
duet_status duet_latents_alloc(duet_latents *latents, duet_error *err);
duet_status duet_latents_write(const duet_latents *latents, const char *path, duet_error *err);
/* Everything is checked: names, dtypes, shapes against the configuration, finite values, the two decoders' hashes. A file that breaks a
 * rule is DUET_E_REQUEST (param "latents"). */
duet_status duet_latents_read(const char *path, const duet_model_config *config,
                              const duet_model_hashes *hashes, duet_latents *out, duet_error *err);

#endif
