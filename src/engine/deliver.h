/* deliver.h - from latents to a clip under its name: decode sound and frames into a sink, commit, account for the latents. */
#ifndef DUET_ENGINE_DELIVER_H
#define DUET_ENGINE_DELIVER_H

#include "engine/decode.h"
#include "engine/dump.h"
#include "engine/engine.h"
#include "engine/latents.h"

/* The two decoders, opened once for all outputs of a run. */
typedef struct duet_decoders {
    duet_model *model;
    duet_device *device;
    duet_stream *stream;
    duet_residency *residency;
    duet_video_vae *video;
    duet_audio_vae *audio;
} duet_decoders;

duet_status duet_decoders_open(duet_model *model, duet_device *device, duet_stream *stream,
                               duet_decoders *out, duet_error *err);
void duet_decoders_close(
    duet_decoders *decoders); /* idempotent on a zeroed struct; the stream is idle afterwards */

typedef struct duet_deliver_args {
    const duet_decoders *decoders;
    const duet_latents *latents;
    const char *path; /* final name, given to the sink factory */
    int32_t output;
    const duet_sink_factory *sinks;
    const duet_progress *progress;
    duet_dump *dump;       /* NULL = none */
    double *stage_seconds; /* [DUET_N_STAGES], added to */
} duet_deliver_args;
/* On failure nothing stands under `path` that did not stand there before. */
duet_status duet_deliver(const duet_deliver_args *args, duet_error *err);

#endif
