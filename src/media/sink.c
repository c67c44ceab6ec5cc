/* sink.c - which sink a name means, and the parts both sinks share. */
#include "media/media_int.h"

#include <errno.h>
#include <libavutil/avstring.h>
#include <string.h>

#include "base/alloc.h"

duet_media_kind duet_media_kind_of(const char *path) {
    size_t n = path ? strlen(path) : 0;
    if (n > 0 && path[n - 1] == '/') return DUET_MEDIA_FOLDER;
    const char *slash = n ? strrchr(path, '/') : NULL;
    const char *name = slash ? slash + 1 : path;
    size_t name_bytes = name ? strlen(name) : 0;
    return name_bytes > 4 && strcmp(name + name_bytes - 4, ".mp4") == 0 ? DUET_MEDIA_MP4 : DUET_MEDIA_UNKNOWN;
}

double duet_media_crf(int32_t quality) {
    return 26.0 - 0.16 * quality;
}

static bool disk_full(int av_error) {
    return av_error == AVERROR(ENOSPC) || av_error == AVERROR(EDQUOT);
}

duet_status duet__av_fail(duet_error *err, int av_error, const char *what, const char *path) {
    char text[AV_ERROR_MAX_STRING_SIZE] = "";
    av_strerror(av_error, text, sizeof text);
    duet_status status = av_error == AVERROR(ENOMEM) ? DUET_E_MEMORY : DUET_E_IO;
    return duet_fail(err, status, "%s: %s: %s", path, what, disk_full(av_error) ? "the disk is full" : text);
}

int duet__mux_new(const char *path, const char *format, AVFormatContext **mux) {
    char *url = av_asprintf("file:%s", path);
    int rc = url ? avformat_alloc_output_context2(mux, NULL, format, url) : AVERROR(ENOMEM);
    av_free(url);
    return rc;
}

duet_status duet__media_poll(const duet__media_sink *sink, duet_error *err) {
    return sink->cancel && *sink->cancel ? duet_fail(err, DUET_E_CANCELLED, "cancelled") : DUET_OK;
}

duet_status duet__sound_keep(duet__media_sink *sink, const float *planar, int64_t n_samples,
                             duet_error *err) {
    if (n_samples != sink->format.samples)
        return duet_fail(err, DUET_E_INTERNAL, "sink: %lld samples announced, %lld given",
                         (long long)sink->format.samples, (long long)n_samples);
    size_t bytes = (size_t)n_samples * 2 * sizeof *planar;
    sink->sound = duet_alloc(bytes, DUET_MEM_MEDIA);
    if (!sink->sound)
        return duet_fail(err, DUET_E_MEMORY, "sink: out of memory for %zu bytes of sound", bytes);
    memcpy(sink->sound, planar, bytes);
    return DUET_OK;
}

duet_status duet_media_sink_new(const duet_media_options *options, duet_sink **out, duet_error *err) {
    duet_media_kind kind = duet_media_kind_of(options->path);
    if (kind == DUET_MEDIA_UNKNOWN)
        return duet_refuse(err, "output", "invalid_value", options->path, "clip.mp4",
                           "must end in .mp4 (one file) or / (a folder of PNG frames and a WAV)");
    duet__media_sink *sink = kind == DUET_MEDIA_MP4 ? duet__mp4_sink_new() : duet__folder_sink_new();
    if (!sink) return duet_fail(err, DUET_E_MEMORY, "sink: out of memory");
    *out = &sink->base;
    sink->quality = options->quality;
    sink->cancel = options->cancel;
    sink->keep_existing = options->keep_existing;
    sink->path = duet_strdup(options->path);
    bool ok = sink->path != NULL;
    for (int32_t i = 0; i < options->n_tags; i++)
        ok = av_dict_set(&sink->tags, options->tags[i].key, options->tags[i].value, 0) >= 0 && ok;
    if (ok) return DUET_OK;
    duet_media_sink_free(out);
    return duet_fail(err, DUET_E_MEMORY, "sink: out of memory");
}

void duet_media_sink_free(duet_sink **psink) {
    duet__media_sink *sink = (duet__media_sink *)*psink;
    if (!sink) return;
    *psink = NULL;
    sink->base.close(&sink->base, false, NULL);
    sink->dispose(sink);
    duet_free(sink->sound);
    duet_free(sink->path);
    av_dict_free(&sink->tags);
    duet_free(sink);
}

int64_t duet_media_bytes(const duet_clip_format *f, duet_media_kind kind) {
    int64_t pixels = (int64_t)f->width * f->height, sound = f->samples * 2 * (int64_t)sizeof(float);
    /* x264 at our preset keeps about 60 frames (look-ahead, references, threads) of 4:2:0 with
     * half-resolution copies and motion data. */
    return sound + (kind == DUET_MEDIA_MP4 ? pixels * 6 * 60 + (8 << 20) : pixels * 8);
}
