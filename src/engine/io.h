/* io.h - the two tables by which media come in and go out; the only engine header that src/media includes.
 *
 * A sink takes finished frames and sound of one clip, in order: open, then frames in display order (in
 * pieces), sound once, then close(commit). Nothing appears under the final name until close was called with
 * commit = true (written beside it, renamed). */
#ifndef DUET_ENGINE_IO_H
#define DUET_ENGINE_IO_H

#include "base/status.h"

typedef struct duet_clip_format {
    int32_t width, height, fps; /* fps 24 */
    int64_t frames;             /* total frames that will be given */
    int32_t sample_rate;        /* 32000 */
    int64_t samples;            /* per channel, stereo */
} duet_clip_format;

typedef struct duet_sink duet_sink;

struct duet_sink {
    duet_status (*open)(duet_sink *self, const duet_clip_format *format, duet_error *err);
    /* rgb: [n_frames, height, width, 3] bytes; borrowed during the call. */
    duet_status (*frames)(duet_sink *self, const uint8_t *rgb, int64_t n_frames, duet_error *err);
    /* planar: [2, n] floats in -1..1; the whole sound, given before the first frame. */
    duet_status (*sound)(duet_sink *self, const float *planar, int64_t n_samples, duet_error *err);
    /* Finish (commit) or throw away. Idempotent; always called, also after a failure. */
    duet_status (*close)(duet_sink *self, bool commit, duet_error *err);
};

#endif
