/* media_int.h - what the two sinks share: FFmpeg errors as ours, a private copy of the sound, scaled frames.
 */
#ifndef DUET_MEDIA_MEDIA_INT_H
#define DUET_MEDIA_MEDIA_INT_H

#include "media/media.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>

typedef struct duet__media_sink {
    duet_sink base; /* first: a duet_sink * is a duet__media_sink * */
    void (*dispose)(struct duet__media_sink *self);
    duet_clip_format format;
    char *path;
    int32_t quality;
    const volatile int *cancel;
    bool keep_existing;
    AVDictionary *tags;
    float *sound; /* [2, samples] planar */
    int64_t frames_done;
} duet__media_sink;

duet__media_sink *duet__mp4_sink_new(void);
duet__media_sink *duet__folder_sink_new(void);

/* Translate an FFmpeg error number. `what` says what was being done. */
duet_status duet__av_fail(duet_error *err, int av_error, const char *what, const char *path);
duet_status duet__sound_keep(duet__media_sink *sink, const float *planar, int64_t n_samples, duet_error *err);

/* A muxer for the file `path`, whose `url` is what avio_open takes. FFmpeg reads names as addresses ("12:30.mp4" has the
 * protocol "12", "http:a.mp4" asks the network), also when it opens the file a second time: the url says that it is a
 * file. Returns an FFmpeg error number. */
int duet__mux_new(const char *path, const char *format, AVFormatContext **mux);

/* DUET_E_CANCELLED once the caller asked to stop. */
duet_status duet__media_poll(const duet__media_sink *sink, duet_error *err);

/* Write the kept sound as 16-bit PCM WAV. */
duet_status duet__wav_write(const char *path, const float *planar, int64_t n_samples, int sample_rate,
                            duet_error *err);

#endif
