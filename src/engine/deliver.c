/* deliver.c - see deliver.h. Sound first: the muxer interleaves it with the frames that then leave chunk by chunk. */
#include "engine/deliver.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/residency.h"

duet_status duet_decoders_open(duet_model *model, duet_device *device, duet_stream *stream,
                               duet_decoders *out, duet_error *err) {
    *out = (duet_decoders){.model = model, .device = device, .stream = stream};
    duet_status st;
    TRY(st, done, duet_residency_open(device, &out->residency, err));
    TRY(st, done, duet_video_vae_open(model, device, &out->video, err));
    TRY(st, done, duet_audio_vae_open(model, device, &out->audio, err));
done:
    if (st != DUET_OK) duet_decoders_close(out);
    return st;
}

void duet_decoders_close(duet_decoders *d) {
    if (d->stream) duet_stream_sync(d->stream, NULL);
    duet_residency_close(&d->residency);
    duet_video_vae_close(&d->video);
    duet_audio_vae_close(&d->audio);
}

static duet_clip_format clip_format(const duet_deliver_args *a) {
    const duet_model_config *c = duet_model_config_get(a->decoders->model);
    const duet_latents *l = a->latents;
    return (duet_clip_format){.width = l->latent_w * c->vvae.space_ratio,
                              .height = l->latent_h * c->vvae.space_ratio,
                              .fps = c->fps,
                              .frames = duet_frames_for_video_latents(l->video_latents),
                              .sample_rate = c->avae.sample_rate,
                              .samples = l->audio_latents * c->avae.hop};
}

static void offer_latents(duet_tap *tap, const duet_latents *l) {
    if (duet_tap_wants(tap, "video_latents"))
        tap->take_host(tap, "video_latents", DUET_F32,
                       &DUET_SHAPE(l->video_channels, l->video_latents, l->latent_h, l->latent_w), l->video);
    if (duet_tap_wants(tap, "audio_latents"))
        tap->take_host(tap, "audio_latents", DUET_F32, &DUET_SHAPE(2, l->audio_channels, l->audio_latents),
                       l->audio);
}

static duet_status decode_sound(const duet_deliver_args *a, float *samples, duet_error *err) {
    const duet_decoders *d = a->decoders;
    return duet_decode_audio(&(duet_decode_audio_args){.vae = d->audio,
                                                       .residency = d->residency,
                                                       .stream = d->stream,
                                                       .config = &duet_model_config_get(d->model)->avae,
                                                       .latents = a->latents->audio,
                                                       .n_latents = a->latents->audio_latents,
                                                       .samples = samples,
                                                       .tap = duet_dump_tap(a->dump),
                                                       .progress = a->progress},
                             err);
}

static duet_status decode_frames(const duet_deliver_args *a, duet_sink *sink, duet_error *err) {
    const duet_decoders *d = a->decoders;
    return duet_decode_video(&(duet_decode_video_args){.vae = d->video,
                                                       .residency = d->residency,
                                                       .stream = d->stream,
                                                       .config = &duet_model_config_get(d->model)->vvae,
                                                       .latents = a->latents->video,
                                                       .latents_t = a->latents->video_latents,
                                                       .latent_h = a->latents->latent_h,
                                                       .latent_w = a->latents->latent_w,
                                                       .sink = sink,
                                                       .tap = duet_dump_tap(a->dump),
                                                       .progress = a->progress},
                             err);
}

/* Seconds since *since go to a stage; *since becomes now. */
static void book(const duet_deliver_args *a, duet_stage stage, double *since) {
    double now = duet_clock_s();
    a->stage_seconds[stage] += now - *since;
    *since = now;
}

/* Name the stage of a failure that is no one's wish. */
static duet_status named(duet_status st, const char *stage, duet_error *err) {
    if (st != DUET_OK && st != DUET_E_CANCELLED) duet_error_prefix(err, "%s", stage);
    return st;
}

static duet_status flush_dump(const duet_deliver_args *a, duet_error *err) {
    duet_status st = duet_dump_flush(a->dump, a->decoders->stream, "decode", err);
    return st == DUET_OK ? duet_dump_flush(a->dump, a->decoders->stream, "deliver", err) : st;
}

duet_status duet_deliver(const duet_deliver_args *a, duet_error *err) {
    duet_clip_format format = clip_format(a);
    duet_sink *sink = NULL;
    double since = duet_clock_s();
    float *samples = duet_alloc((size_t)format.samples * 2 * sizeof *samples, DUET_MEM_ENGINE);
    if (!samples) return duet_fail(err, DUET_E_MEMORY, "decode: out of memory for the sound");
    duet_status st;
    offer_latents(duet_dump_tap(a->dump), a->latents);
    TRY(st, done, named(decode_sound(a, samples, err), "decode_audio", err));
    book(a, DUET_STAGE_DECODE_AUDIO, &since);
    TRY(st, done, a->sinks->make(a->sinks->ctx, a->output, a->path, &sink, err));
    TRY(st, done, sink->open(sink, &format, err));
    TRY(st, done, sink->sound(sink, samples, format.samples, err));
    TRY(st, done, named(decode_frames(a, sink, err), "decode_video", err));
    TRY(st, done, flush_dump(a, err));
    book(a, DUET_STAGE_DECODE_VIDEO, &since);
    TRY(st, done, duet_progress_step(a->progress, DUET_STAGE_DELIVER, 0, 1, err));
    TRY(st, done, sink->close(sink, true, err));
    book(a, DUET_STAGE_DELIVER, &since);
done:
    if (sink) a->sinks->dispose(a->sinks->ctx, &sink);
    duet_free(samples);
    return st;
}
