/* init_noise.h - initial noise from a file instead of the generator (`--init-noise`), for parity with other implementations. */
#ifndef DUET_ENGINE_INIT_NOISE_H
#define DUET_ENGINE_INIT_NOISE_H

#include <stdint.h>

#include "base/status.h"

/* Read `video_noise` [video_rows, video_width] and `audio_noise` [audio_rows, audio_width], fp32, target rows in packed order, into the
 * caller's arrays. Wrong names, dtypes, shapes or non-finite values are DUET_E_REQUEST (param "init_noise"). */
duet_status duet_init_noise_read(const char *path, int64_t video_rows, int64_t video_width,
                                 int64_t audio_rows, int64_t audio_width, float *video, float *audio,
                                 duet_error *err);

#endif
