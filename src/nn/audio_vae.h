/* audio_vae.h - the BigVGAN decoder of the audio VAE: stereo latents in, 32 kHz waveform out (spec
 * model-vae 7.4).
 *
 *     latents [2,C,n] -> in: project, convolve -> stages: upsample, then the mean of parallel residual blocks
 * -> out
 *
 * The network is mono; left and right are a batch of two and never mix. A clip is decoded whole: the widest
 * stage of the longest one (603 latents) takes 31 MB a buffer, five of them. Units: "in", "stages.i", "out".
 * Thread rule: one stream at a time. */
#ifndef DUET_NN_AUDIO_VAE_H
#define DUET_NN_AUDIO_VAE_H

#include "backend/unit.h"
#include "nn/tap.h"
#include "store/model.h"

typedef struct duet_audio_vae duet_audio_vae;

duet_status duet_audio_vae_open(duet_model *model, duet_device *dev, duet_audio_vae **out, duet_error *err);
void duet_audio_vae_close(duet_audio_vae **vae);

/* Of one clip; exact. dev may be NULL (scratch is then 0). */
int64_t duet_audio_vae_activation_bytes(const duet_avae_config *config, int64_t n_latents);
int64_t duet_audio_vae_scratch_bytes(const duet_avae_config *config, const duet_device *dev,
                                     int64_t n_latents);
double duet_audio_vae_flops(const duet_avae_config *config, int64_t n_latents);

/* latents: host [2, channels, n], de-normalised. samples: host [2, hop*n], clamped to [-1,1]; this call
 * syncs. Fails when the waveform has non-finite samples or only one value (P5). cancel (may be NULL) is
 * polled between residual blocks. Taps [2,channels,length]: avae.dec_in, .conv_pre, .stage_N.up,
 * .stage_N.block_J, .stage_N.out, .post; and avae.wave [2,hop*n], before the clamp. */
duet_status duet_audio_vae_decode(duet_audio_vae *vae, duet_residency *residency, duet_stream *stream,
                                  const float *latents, int64_t n_latents, float *samples, duet_tap *tap,
                                  const volatile int *cancel, duet_error *err);

#endif
