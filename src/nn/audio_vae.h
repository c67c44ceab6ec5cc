/* audio_vae.h - the BigVGAN decoder of the audio VAE: stereo latents in, 32 kHz waveform out (spec
 * model-vae 7.4).
 *
 * The network is mono; left and right are a batch of two and never mix. Long clips are decoded in pieces with
 * exact margins, cut by a rule of length alone. Units: "in", "stages.i", "out". */
#ifndef DUET_NN_AUDIO_VAE_H
#define DUET_NN_AUDIO_VAE_H

#include "backend/unit.h"
#include "nn/tap.h"
#include "store/model.h"

typedef struct duet_audio_vae duet_audio_vae;

duet_status duet_audio_vae_open(duet_model *model, duet_device *dev, duet_audio_vae **out, duet_error *err);
void duet_audio_vae_close(duet_audio_vae **vae);

int64_t duet_audio_vae_activation_bytes(const duet_avae_config *config, int64_t n_latents);
int64_t duet_audio_vae_scratch_bytes(const duet_avae_config *config, const duet_device *dev,
                                     int64_t n_latents);

/* latents: host [2, channels, n] normalised. samples: host [2, hop*n], clamped to [-1,1], valid after the
 * next sync (this call syncs). */
duet_status duet_audio_vae_decode(duet_audio_vae *vae, duet_residency *residency, duet_stream *stream,
                                  const float *latents, int64_t n_latents, float *samples, duet_tap *tap,
                                  const volatile int *cancel, duet_error *err);

#endif
