/* decode_audio.c - normalised audio latents to PCM: de-normalise, decode the whole clip, hand out. */
#include "engine/decode.h"

#include "base/alloc.h"

#include <math.h>

enum { STEREO = 2 };

static int64_t latent_elems(const duet_avae_config *config, int64_t latents) {
    return STEREO * (int64_t)config->latent_channels * latents;
}

void duet_decode_audio_cost(const duet_avae_config *config, const duet_device *dev, int64_t latents,
                            duet_decode_cost *out) {
    *out = (duet_decode_cost){
        .device_bytes = duet_audio_vae_activation_bytes(config, latents),
        .scratch_bytes = duet_audio_vae_scratch_bytes(config, dev, latents),
        .host_bytes = latent_elems(config, latents) * (int64_t)sizeof(float),
        .calls = 1,
        .flops = duet_audio_vae_flops(config, latents),
    };
}

/* Product and sum are rounded one by one, as the reference does it. Returns the number of non-finite
 * values. */
static int64_t denormalise(const duet_avae_config *c, const float *in, int64_t n, float *out) {
    int64_t bad = 0;
    for (int64_t row = 0; row < STEREO * (int64_t)c->latent_channels; row++)
        for (int64_t i = 0; i < n; i++) {
            float scaled = in[row * n + i] * c->latents_std[row % c->latent_channels];
            out[row * n + i] = scaled + c->latents_mean[row % c->latent_channels];
            bad += !isfinite(in[row * n + i]);
        }
    return bad;
}

duet_status duet_decode_audio(const duet_decode_audio_args *a, duet_error *err) {
    const volatile int *cancel = a->progress ? a->progress->cancel : NULL;
    duet_status st;
    float *latents =
        duet_alloc((size_t)latent_elems(a->config, a->n_latents) * sizeof *latents, DUET_MEM_ENGINE);
    if (!latents) return duet_fail(err, DUET_E_MEMORY, "audio decoder: out of memory for latents");
    TRY(st, fail, duet_progress_step(a->progress, DUET_STAGE_DECODE_AUDIO, 0, 1, err));
    int64_t bad = denormalise(a->config, a->latents, a->n_latents, latents);
    if (bad) {
        st = duet_fail(err, DUET_E_RUN, "audio_latents: %lld of %lld values are not finite", (long long)bad,
                       (long long)latent_elems(a->config, a->n_latents));
        goto fail;
    }
    TRY(st, fail,
        duet_audio_vae_decode(a->vae, a->residency, a->stream, latents, a->n_latents, a->samples, a->tap,
                              cancel, err));
    int64_t n = a->n_latents * a->config->hop;
    if (duet_tap_wants(a->tap, "audio"))
        a->tap->take_host(a->tap, "audio", DUET_F32, &DUET_SHAPE(STEREO, n), a->samples);
    st = duet_progress_step(a->progress, DUET_STAGE_DECODE_AUDIO, 1, 1, err);
fail:
    duet_free(latents);
    return st;
}
