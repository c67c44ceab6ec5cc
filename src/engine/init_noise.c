/* init_noise.c - see init_noise.h. */
#include "engine/init_noise.h"

#include <math.h>
#include <string.h>

#include "store/safetensors.h"

static duet_status take(const duet_st_file *file, const char *path, const char *name, int64_t rows,
                        int64_t width, float *out, duet_error *err) {
    const duet_st_tensor *t = duet_st_find(file, name);
    duet_shape want = DUET_SHAPE(rows, width);
    char text[64];
    if (!t || t->dtype != DUET_F32 || !duet_shape_equal(&t->shape, &want))
        return duet_refuse(err, "init_noise", "invalid_value", path, NULL,
                           "must hold %s as F32 %s for this request", name,
                           duet_shape_text(&want, text, sizeof text));
    memcpy(out, t->data, (size_t)t->bytes);
    for (int64_t i = 0; i < rows * width; i++)
        if (!isfinite(out[i]))
            return duet_refuse(err, "init_noise", "invalid_value", path, NULL,
                               "must be finite everywhere (%s is not)", name);
    return DUET_OK;
}

duet_status duet_init_noise_read(const char *path, int64_t video_rows, int64_t video_width,
                                 int64_t audio_rows, int64_t audio_width, float *video, float *audio,
                                 duet_error *err) {
    duet_st_file *file = NULL;
    duet_error why = {0};
    duet_status st = duet_st_open(path, &file, &why);
    if (st != DUET_OK)
        return duet_refuse(err, "init_noise", "invalid_value", path, NULL,
                           "must be a readable safetensors file: %s", why.message);
    st = take(file, path, "video_noise", video_rows, video_width, video, err);
    if (st == DUET_OK) st = take(file, path, "audio_noise", audio_rows, audio_width, audio, err);
    duet_st_close(&file);
    return st;
}
