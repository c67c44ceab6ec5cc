/* media.h - finished clips go out: MP4 (H.264 + AAC) or a folder of PNG frames and a WAV.
 *
 * The kind follows the name: "x.mp4" is a file, "x/" a folder; anything else is refused. Encoder settings are
 * constants (threads, preset, rate control), no time of day is written, so the same frames give the same
 * bytes (promise P1). This room knows no model: it implements the sink of engine/io.h with the FFmpeg
 * libraries. One thread per sink. */
#ifndef DUET_MEDIA_MEDIA_H
#define DUET_MEDIA_MEDIA_H

#include "engine/io.h"

typedef enum duet_media_kind { DUET_MEDIA_UNKNOWN = 0, DUET_MEDIA_MP4, DUET_MEDIA_FOLDER } duet_media_kind;

duet_media_kind duet_media_kind_of(const char *path);

typedef struct duet_media_tag {
    const char *key, *value;
} duet_media_tag;

typedef struct duet_media_options {
    const char *path;           /* final name; borrowed for the life of the sink */
    int32_t quality;            /* 0..100 (50 = default), constant rate factor by duet_media_crf */
    const duet_media_tag *tags; /* written as metadata, in order; borrowed until open */
    int32_t n_tags;
    const volatile int
        *cancel; /* NULL = none; polled between frames and packets, also while the encoder is emptied */
    bool keep_existing; /* an MP4 that appeared under the name meanwhile is not replaced: DUET_E_IO */
} duet_media_options;

double duet_media_crf(int32_t quality); /* 100 -> 10, 50 -> 18, 0 -> 26 */

/* A sink that writes beside `path` and renames on close(commit). DUET_E_REQUEST (param "output") for an
 * unknown kind. */
duet_status duet_media_sink_new(const duet_media_options *options, duet_sink **out, duet_error *err);
void duet_media_sink_free(duet_sink **sink); /* closes without committing when still open */

/* Bytes that encoding holds at most (for the plan): frames in flight, look-ahead, the whole sound. */
int64_t duet_media_bytes(const duet_clip_format *format, duet_media_kind kind);

#endif
