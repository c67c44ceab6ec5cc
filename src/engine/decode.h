/* decode.h - latents in, frames and sound out: the last stage of a request, and all of `duet decode`.
 *
 *     video  [C,T,h,w] -> de-normalise -> chunks in time -> tiles in space -> network -> stitch -> seam ->
 * bytes -> sink audio  [2,C,Ta]  -> network -> PCM [2, hop*Ta]
 *
 * The order of chunks and tiles, and every buffer, follow from shapes alone (promise P1). Frames leave chunk
 * by chunk: a clip is never held whole. What a run allocates is what the cost functions announce, to the
 * byte. Every raw tile and the waveform are checked: a non-finite value, or nothing but one value, fails the
 * job with chunk, tile and tensor named (promise P5).
 *
 * Not here: opening and closing the sink, and the file of latents (P4). They belong to whoever owns the
 * request. Thread rule: one thread; it owns the stream while the call runs. */
#ifndef DUET_ENGINE_DECODE_H
#define DUET_ENGINE_DECODE_H

#include "engine/geometry.h"
#include "engine/io.h"
#include "engine/progress.h"
#include "nn/audio_vae.h"
#include "nn/video_vae.h"

typedef struct duet_decode_cost {
    int64_t device_bytes;  /* buffers of the stage and activations of the network */
    int64_t scratch_bytes; /* largest op scratch; 0 without a device */
    int64_t host_bytes;    /* host buffers of the stage; without the caller's latents and samples */
    int64_t calls;         /* network calls: tiles of all chunks; 1 for audio */
    double flops;
} duet_decode_cost;

/* Pure. dev may be NULL (scratch is then 0). false: latents that do not form a whole chunk, or a canvas that
 * cannot be tiled. */
bool duet_decode_video_cost(const duet_vvae_config *config, const duet_device *dev, int64_t latents,
                            int32_t latent_h, int32_t latent_w, duet_decode_cost *out);
void duet_decode_audio_cost(const duet_avae_config *config, const duet_device *dev, int64_t latents,
                            duet_decode_cost *out);

typedef struct duet_decode_video_args {
    duet_video_vae *vae;
    duet_residency *residency;
    duet_stream *stream;
    const duet_vvae_config *config;
    const float *latents; /* host [C, latents_t, latent_h, latent_w], normalised */
    int64_t latents_t;
    int32_t latent_h, latent_w;
    duet_sink *sink; /* already open; gets frames only; NULL: taps alone */
    duet_tap
        *tap; /* "frames" u8 [F,H,W,3]; vvae.chunk_C.stitched; vvae.chunk_C.tile_Y_X.raw and the network's */
    const duet_progress *progress; /* stage DECODE_VIDEO, one step a tile; NULL: none */
} duet_decode_video_args;
duet_status duet_decode_video(const duet_decode_video_args *args, duet_error *err);

typedef struct duet_decode_audio_args {
    duet_audio_vae *vae;
    duet_residency *residency;
    duet_stream *stream;
    const duet_avae_config *config;
    const float *latents; /* host [2, C, n_latents], normalised */
    int64_t n_latents;
    float *samples;                /* host [2, hop * n_latents], written */
    duet_tap *tap;                 /* "audio" f32 [2, hop * n_latents] and the network's taps */
    const duet_progress *progress; /* stage DECODE_AUDIO, one step; NULL: none */
} duet_decode_audio_args;
duet_status duet_decode_audio(const duet_decode_audio_args *args, duet_error *err);

#endif
