/* noise.c - the initial noise of one output: the video tensor first, then the audio rows (spec
 * model-dit 10.1).
 *
 * The video is drawn in latent order [C, T, h, w] and patchified afterwards, because the position of a number
 * in the stream is part of what a seed means. Audio is drawn in row order. The `sglang` stream seeds a fresh
 * generator for the audio, so that both modalities begin with the same numbers; the `diffusers` stream goes
 * on where the video ended. */
#include "engine/noise.h"

#include "base/alloc.h"
#include "base/torch_rng.h"
#include "engine/pack.h"

duet_status duet_noise_draw(const duet_noise_args *a, duet_error *err) {
    duet_patch_shape shape = {.channels = a->channels,
                              .latent_h = a->latent_h,
                              .latent_w = a->latent_w,
                              .patch_h = a->patch_h,
                              .patch_w = a->patch_w,
                              .frames = a->video_latents};
    int64_t n_video = a->channels * a->video_latents * a->latent_h * a->latent_w;
    int64_t n_audio = 2 * a->audio_latents * a->audio_channels;
    float *latents = duet_calloc((size_t)n_video, sizeof *latents, DUET_MEM_ENGINE);
    if (!latents) return duet_fail(err, DUET_E_MEMORY, "no memory for %lld noise values", (long long)n_video);

    duet_torch_rng rng;
    duet_torch_rng_seed(&rng, a->seed);
    duet_torch_randn(&rng, latents, n_video);
    duet_patchify(&shape, latents, a->video_rows);
    duet_free(latents);

    if (a->stream == DUET_NOISE_SGLANG) duet_torch_rng_seed(&rng, a->seed);
    duet_torch_randn(&rng, a->audio_rows, n_audio);
    return DUET_OK;
}
