/* mp4.c - H.264 and AAC in MP4.
 *
 *     rgb frame -> swscale (BT.709, limited range, left siting) -> x264 --\
 *                                                                          interleaved by time -> mov muxer
 * -> temp file kept sound -> 1024-sample frames -> AAC ----------------------------/ close(commit):
 * faststart, fsync, rename
 *
 * 1. Threads, preset and rate control are constants: x264's bytes change with its thread count.
 * 2. The file appears under its final name complete or not at all.
 * 3. AAC priming and the padding of its last frame lie outside the edit list, so players hear exactly the
 * samples that were given; the movie timescale counts both 1/24 s and 1/32000 s exactly. */
#define _GNU_SOURCE
#include "media/media_int.h"

#include <errno.h>
#include <fcntl.h>
#include <libavutil/channel_layout.h>
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

enum { ENCODER_THREADS = 4, AUDIO_BITS_PER_S = 192000, MOVIE_TIMESCALE = 96000 };

typedef struct mp4_sink {
    duet__media_sink common; /* first */
    char *temp_path;
    AVFormatContext *mux;
    AVCodecContext *video, *audio;
    AVStream *video_stream, *audio_stream;
    struct SwsContext *scale;
    AVFrame *picture, *chunk;
    AVPacket *packet;
    int64_t samples_done;
    bool header_written, closed;
} mp4_sink;

static duet_status fail(mp4_sink *s, duet_error *err, int av_error, const char *what) {
    return duet__av_fail(err, av_error, what, s->common.path);
}

/* ---- opening --------------------------------------------------------------------------------------------
 */

static duet_status open_temp(mp4_sink *s, duet_error *err) {
    size_t bytes = strlen(s->common.path) + 16;
    s->temp_path = duet_alloc(bytes, DUET_MEM_STRING);
    if (!s->temp_path) return duet_fail(err, DUET_E_MEMORY, "mp4: out of memory");
    snprintf(s->temp_path, bytes, "%s.part-XXXXXX", s->common.path);
    int fd = mkstemp(s->temp_path);
    if (fd < 0) {
        int saved = errno;
        duet_free(s->temp_path);
        s->temp_path = NULL;
        return fail(s, err, AVERROR(saved), "cannot create the file");
    }
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask);
    close(fd);
    return DUET_OK;
}

static duet_status open_video(mp4_sink *s, duet_error *err) {
    const AVCodec *codec = avcodec_find_encoder_by_name("libx264");
    if (!codec) return duet_fail(err, DUET_E_UNSUPPORTED, "mp4: this FFmpeg has no libx264 encoder");
    AVCodecContext *c = s->video = avcodec_alloc_context3(codec);
    if (!c) return fail(s, err, AVERROR(ENOMEM), "H.264 encoder");
    c->width = s->common.format.width;
    c->height = s->common.format.height;
    c->time_base = (AVRational){1, s->common.format.fps};
    c->framerate = (AVRational){s->common.format.fps, 1};
    c->pix_fmt = AV_PIX_FMT_YUV420P;
    c->color_primaries = AVCOL_PRI_BT709;
    c->color_trc = AVCOL_TRC_BT709;
    c->colorspace = AVCOL_SPC_BT709;
    c->color_range = AVCOL_RANGE_MPEG;
    c->chroma_sample_location = AVCHROMA_LOC_LEFT;
    c->thread_count = ENCODER_THREADS;
    c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    char crf[16];
    snprintf(crf, sizeof crf, "%d.%02d", (int)duet_media_crf(s->common.quality),
             (int)(duet_media_crf(s->common.quality) * 100) % 100);
    av_opt_set(c->priv_data, "preset", "medium", 0);
    av_opt_set(c->priv_data, "crf", crf, 0);
    int rc = avcodec_open2(c, codec, NULL);
    return rc < 0 ? fail(s, err, rc, "H.264 encoder") : DUET_OK;
}

static duet_status open_audio(mp4_sink *s, duet_error *err) {
    const AVCodec *codec = avcodec_find_encoder(AV_CODEC_ID_AAC);
    if (!codec) return duet_fail(err, DUET_E_UNSUPPORTED, "mp4: this FFmpeg has no AAC encoder");
    AVCodecContext *c = s->audio = avcodec_alloc_context3(codec);
    if (!c) return fail(s, err, AVERROR(ENOMEM), "AAC encoder");
    c->sample_rate = s->common.format.sample_rate;
    c->sample_fmt = AV_SAMPLE_FMT_FLTP;
    c->bit_rate = AUDIO_BITS_PER_S;
    c->time_base = (AVRational){1, c->sample_rate};
    c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER | AV_CODEC_FLAG_BITEXACT;
    av_channel_layout_default(&c->ch_layout, 2);
    /* The default coder starts with its rate control unsettled: the first 0.1 s of a steady tone come back 8
     * dB over the error (measured, 440 Hz, 192 kbit/s); "fast" keeps 35 dB and more everywhere. */
    av_opt_set(c->priv_data, "aac_coder", "fast", 0);
    int rc = avcodec_open2(c, codec, NULL);
    return rc < 0 ? fail(s, err, rc, "AAC encoder") : DUET_OK;
}

static duet_status add_stream(mp4_sink *s, AVCodecContext *c, AVStream **out, duet_error *err) {
    *out = avformat_new_stream(s->mux, NULL);
    if (!*out) return fail(s, err, AVERROR(ENOMEM), "new stream");
    (*out)->time_base = c->time_base;
    int rc = avcodec_parameters_from_context((*out)->codecpar, c);
    return rc < 0 ? fail(s, err, rc, "stream parameters") : DUET_OK;
}

static duet_status open_mux(mp4_sink *s, duet_error *err) {
    int rc = duet__mux_new(s->temp_path, "mp4", &s->mux);
    if (rc < 0) return fail(s, err, rc, "MP4 writer");
    s->mux->flags |= AVFMT_FLAG_BITEXACT; /* no creation time, no library version */
    s->mux->metadata = s->common.tags;
    s->common.tags = NULL;
    duet_status st = add_stream(s, s->video, &s->video_stream, err);
    if (st == DUET_OK) st = add_stream(s, s->audio, &s->audio_stream, err);
    if (st != DUET_OK) return st;
    s->video_stream->avg_frame_rate = s->video->framerate;
    rc = avio_open(&s->mux->pb, s->mux->url, AVIO_FLAG_WRITE);
    if (rc < 0) return fail(s, err, rc, "cannot write");
    AVDictionary *options = NULL;
    av_dict_set(&options, "movflags", "+faststart+use_metadata_tags", 0);
    av_dict_set_int(&options, "movie_timescale", MOVIE_TIMESCALE, 0);
    av_dict_set_int(&options, "video_track_timescale", s->common.format.fps * 512, 0);
    rc = avformat_write_header(s->mux, &options);
    av_dict_free(&options);
    if (rc < 0) return fail(s, err, rc, "MP4 header");
    s->header_written = true;
    return DUET_OK;
}

/* RGB to BT.709 limited 4:2:0 with chroma sited left, in swscale's exact-rounding mode so that every
 * processor gives the same bytes. */
static duet_status open_scale(mp4_sink *s, duet_error *err) {
    int w = s->common.format.width, h = s->common.format.height;
    s->scale = sws_alloc_context();
    if (!s->scale) return fail(s, err, AVERROR(ENOMEM), "colour conversion");
    av_opt_set_int(s->scale, "srcw", w, 0);
    av_opt_set_int(s->scale, "srch", h, 0);
    av_opt_set_int(s->scale, "src_format", AV_PIX_FMT_RGB24, 0);
    av_opt_set_int(s->scale, "dstw", w, 0);
    av_opt_set_int(s->scale, "dsth", h, 0);
    av_opt_set_int(s->scale, "dst_format", AV_PIX_FMT_YUV420P, 0);
    av_opt_set_int(s->scale, "dst_h_chr_pos", 0, 0);
    av_opt_set_int(s->scale, "dst_v_chr_pos", 128, 0);
    av_opt_set_int(s->scale, "sws_flags",
                   SWS_BICUBIC | SWS_ACCURATE_RND | SWS_BITEXACT | SWS_FULL_CHR_H_INP | SWS_FULL_CHR_H_INT,
                   0);
    const int *bt709 = sws_getCoefficients(SWS_CS_ITU709);
    sws_setColorspaceDetails(s->scale, bt709, 1, bt709, 0, 0, 1 << 16, 1 << 16);
    int rc = sws_init_context(s->scale, NULL, NULL);
    return rc < 0 ? fail(s, err, rc, "colour conversion") : DUET_OK;
}

static duet_status open_frames(mp4_sink *s, duet_error *err) {
    s->picture = av_frame_alloc();
    s->chunk = av_frame_alloc();
    s->packet = av_packet_alloc();
    if (!s->picture || !s->chunk || !s->packet) return fail(s, err, AVERROR(ENOMEM), "frames");
    s->picture->format = s->video->pix_fmt;
    s->picture->width = s->video->width;
    s->picture->height = s->video->height;
    s->picture->color_primaries = s->video->color_primaries;
    s->picture->color_trc = s->video->color_trc;
    s->picture->colorspace = s->video->colorspace;
    s->picture->color_range = s->video->color_range;
    s->picture->chroma_location = s->video->chroma_sample_location;
    s->chunk->format = s->audio->sample_fmt;
    s->chunk->nb_samples = s->audio->frame_size;
    s->chunk->sample_rate = s->audio->sample_rate;
    av_channel_layout_copy(&s->chunk->ch_layout, &s->audio->ch_layout);
    int rc = av_frame_get_buffer(s->picture, 0);
    if (rc >= 0) rc = av_frame_get_buffer(s->chunk, 0);
    return rc < 0 ? fail(s, err, rc, "frames") : DUET_OK;
}

static duet_status mp4_open(duet_sink *self, const duet_clip_format *format, duet_error *err) {
    mp4_sink *s = (mp4_sink *)self;
    s->common.format = *format;
    av_log_set_level(AV_LOG_ERROR); /* encoders chat on standard error otherwise */
    duet_status st;
    TRY(st, done, open_temp(s, err));
    TRY(st, done, open_video(s, err));
    TRY(st, done, open_audio(s, err));
    TRY(st, done, open_scale(s, err));
    TRY(st, done, open_frames(s, err));
    TRY(st, done, open_mux(s, err));
done:
    return st;
}

/* ---- writing --------------------------------------------------------------------------------------------
 */

/* Send a frame (NULL = flush) and write every packet that comes out. */
static duet_status encode(mp4_sink *s, AVCodecContext *c, AVStream *stream, const AVFrame *frame,
                          duet_error *err) {
    int rc = avcodec_send_frame(c, frame);
    if (rc < 0) return fail(s, err, rc, "encoder");
    while ((rc = avcodec_receive_packet(c, s->packet)) >= 0) {
        duet_status st =
            duet__media_poll(&s->common, err); /* emptying x264 takes seconds on large canvases */
        if (st != DUET_OK) return st;
        if (c == s->audio) { /* the last frame is padded: tell the muxer how much of it is sound */
            int64_t left = s->common.format.samples - s->packet->pts;
            if (left < s->packet->duration) s->packet->duration = left > 0 ? left : 0;
        }
        av_packet_rescale_ts(s->packet, c->time_base, stream->time_base);
        s->packet->stream_index = stream->index;
        rc = av_interleaved_write_frame(s->mux, s->packet);
        if (rc < 0) return fail(s, err, rc, "cannot write");
    }
    return rc == AVERROR(EAGAIN) || rc == AVERROR_EOF ? DUET_OK : fail(s, err, rc, "encoder");
}

static duet_status encode_sound_until(mp4_sink *s, int64_t sample, duet_error *err) {
    int64_t total = s->common.format.samples;
    while (s->samples_done < total && s->samples_done < sample) {
        int64_t n =
            total - s->samples_done < s->audio->frame_size ? total - s->samples_done : s->audio->frame_size;
        int rc = av_frame_make_writable(s->chunk);
        if (rc < 0) return fail(s, err, rc, "AAC encoder");
        for (int ch = 0; ch < 2; ch++)
            memcpy(s->chunk->data[ch], s->common.sound + ch * total + s->samples_done,
                   (size_t)n * sizeof(float));
        s->chunk->nb_samples = (int)n;
        s->chunk->pts = s->samples_done;
        duet_status st = encode(s, s->audio, s->audio_stream, s->chunk, err);
        if (st != DUET_OK) return st;
        s->samples_done += n;
    }
    return DUET_OK;
}

static duet_status mp4_sound(duet_sink *self, const float *planar, int64_t n_samples, duet_error *err) {
    return duet__sound_keep((duet__media_sink *)self, planar, n_samples, err);
}

static duet_status mp4_frames(duet_sink *self, const uint8_t *rgb, int64_t n_frames, duet_error *err) {
    mp4_sink *s = (mp4_sink *)self;
    const duet_clip_format *f = &s->common.format;
    int stride = 3 * f->width;
    for (int64_t i = 0; i < n_frames; i++) {
        duet_status st = DUET_OK;
        if (s->common.sound)
            st = encode_sound_until(s, (s->common.frames_done + 1) * f->sample_rate / f->fps, err);
        if (st != DUET_OK) return st;
        int rc = av_frame_make_writable(s->picture);
        if (rc < 0) return fail(s, err, rc, "H.264 encoder");
        const uint8_t *src = rgb + (size_t)i * (size_t)stride * (size_t)f->height;
        sws_scale(s->scale, &src, &stride, 0, f->height, s->picture->data, s->picture->linesize);
        s->picture->pts = s->common.frames_done++;
        st = encode(s, s->video, s->video_stream, s->picture, err);
        if (st != DUET_OK) return st;
    }
    return DUET_OK;
}

/* ---- closing --------------------------------------------------------------------------------------------
 */

/* Under its name, over what stands there only if it may. A file system that cannot say so in one step is asked
 * in two. */
static duet_status put_in_place(mp4_sink *s, duet_error *err) {
    const char *from = s->temp_path, *to = s->common.path;
    int rc = -1;
    errno = EINVAL;
    if (s->common.keep_existing) rc = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
    if (rc != 0 && (errno == EINVAL || errno == ENOSYS)) {
        struct stat st;
        bool taken = s->common.keep_existing && lstat(to, &st) == 0;
        rc = taken ? -1 : rename(from, to);
        if (taken) errno = EEXIST;
    }
    if (rc == 0) return DUET_OK;
    if (errno == EEXIST)
        return duet_fail(err, DUET_E_IO, "%s: appeared while this clip was made; it is left as it is", to);
    return fail(s, err, AVERROR(errno), "cannot rename into place");
}

/* The name itself must last before the latents may go. A file system that cannot do this has done what it could. */
static void flush_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    char *dir = slash == path ? duet_strdup("/")
                              : duet_strndup(slash ? path : ".", slash ? (size_t)(slash - path) : 1);
    int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    duet_free(dir);
}

static duet_status finish(mp4_sink *s, duet_error *err) {
    duet_status st;
    if (s->common.frames_done != s->common.format.frames || !s->common.sound)
        return duet_fail(err, DUET_E_INTERNAL, "mp4: %lld of %lld frames and %s sound were given",
                         (long long)s->common.frames_done, (long long)s->common.format.frames,
                         s->common.sound ? "the" : "no");
    TRY(st, done, encode_sound_until(s, s->common.format.samples, err));
    TRY(st, done, encode(s, s->audio, s->audio_stream, NULL, err));
    TRY(st, done, encode(s, s->video, s->video_stream, NULL, err));
    int rc = av_write_trailer(s->mux);
    if (rc >= 0 && s->mux->pb->error) rc = s->mux->pb->error;
    if (rc >= 0) rc = avio_closep(&s->mux->pb);
    if (rc < 0) return fail(s, err, rc, "cannot write");
    int fd = open(s->temp_path, O_RDONLY);
    rc = fd < 0 || fsync(fd) != 0 ? AVERROR(errno) : 0;
    if (fd >= 0 && close(fd) != 0 && rc == 0) rc = AVERROR(errno);
    if (rc < 0) return fail(s, err, rc, "cannot write");
    TRY(st, done, put_in_place(s, err));
    flush_folder(s->common.path);
    duet_free(s->temp_path);
    s->temp_path = NULL;
done:
    return st;
}

static void release(mp4_sink *s) {
    if (s->mux && s->mux->pb) avio_closep(&s->mux->pb);
    avformat_free_context(s->mux);
    avcodec_free_context(&s->video);
    avcodec_free_context(&s->audio);
    sws_freeContext(s->scale);
    av_frame_free(&s->picture);
    av_frame_free(&s->chunk);
    av_packet_free(&s->packet);
    if (s->temp_path) unlink(s->temp_path);
    duet_free(s->temp_path);
    s->mux = NULL;
    s->scale = NULL;
    s->temp_path = NULL;
}

static duet_status mp4_close(duet_sink *self, bool commit, duet_error *err) {
    mp4_sink *s = (mp4_sink *)self;
    if (s->closed) return DUET_OK;
    s->closed = true;
    duet_status st = commit ? finish(s, err) : DUET_OK;
    release(s);
    return st;
}

static void mp4_dispose(duet__media_sink *self) {
    (void)self;
}

duet__media_sink *duet__mp4_sink_new(void) {
    mp4_sink *s = duet_calloc(1, sizeof *s, DUET_MEM_MEDIA);
    if (!s) return NULL;
    s->common.base = (duet_sink){mp4_open, mp4_frames, mp4_sound, mp4_close};
    s->common.dispose = mp4_dispose;
    return &s->common;
}
