/* folder.c - numbered PNG frames and a WAV in a folder.
 *
 *     out/.part-XXXXXX/frame_00000.png ... audio.wav   --close(commit)-->   out/frame_00000.png ...
 * out/audio.wav
 *
 * Files are written into a hidden folder inside the target and renamed one by one at the end; frames that a
 * longer, older clip left behind are removed then, so that the folder always holds exactly one clip. */
#define _GNU_SOURCE
#include "media/media_int.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

enum { PATH_BYTES = 4096 };

typedef struct folder_sink {
    duet__media_sink common; /* first */
    char part[PATH_BYTES];   /* "" = not made */
    AVCodecContext *png;
    AVFrame *picture;
    AVPacket *packet;
    bool closed;
} folder_sink;

static duet_status sys_fail(folder_sink *s, duet_error *err, const char *what) {
    return duet__av_fail(err, AVERROR(errno), what, s->common.path);
}

static duet_status open_png(folder_sink *s, duet_error *err) {
    const AVCodec *codec = avcodec_find_encoder(AV_CODEC_ID_PNG);
    if (!codec) return duet_fail(err, DUET_E_UNSUPPORTED, "png: this FFmpeg has no PNG encoder");
    s->png = avcodec_alloc_context3(codec);
    s->picture = av_frame_alloc();
    s->packet = av_packet_alloc();
    if (!s->png || !s->picture || !s->packet) return duet_fail(err, DUET_E_MEMORY, "png: out of memory");
    s->png->width = s->picture->width = s->common.format.width;
    s->png->height = s->picture->height = s->common.format.height;
    s->png->pix_fmt = AV_PIX_FMT_RGB24;
    s->png->time_base = (AVRational){1, s->common.format.fps};
    s->png->thread_count = 1;
    s->png->compression_level = 6;
    s->png->flags |= AV_CODEC_FLAG_BITEXACT;
    s->picture->format = AV_PIX_FMT_RGB24;
    int rc = avcodec_open2(s->png, codec, NULL);
    if (rc >= 0) rc = av_frame_get_buffer(s->picture, 0);
    return rc < 0 ? duet__av_fail(err, rc, "PNG encoder", s->common.path) : DUET_OK;
}

static duet_status folder_open(duet_sink *self, const duet_clip_format *format, duet_error *err) {
    folder_sink *s = (folder_sink *)self;
    s->common.format = *format;
    av_log_set_level(AV_LOG_ERROR);
    if (mkdir(s->common.path, 0777) != 0 && errno != EEXIST)
        return sys_fail(s, err, "cannot create the folder");
    snprintf(s->part, sizeof s->part, "%s.part-XXXXXX", s->common.path);
    if (!mkdtemp(s->part)) {
        s->part[0] = '\0';
        return sys_fail(s, err, "cannot write into the folder");
    }
    return open_png(s, err);
}

static duet_status write_file(folder_sink *s, const char *name, const void *data, size_t bytes,
                              duet_error *err) {
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", s->part, name);
    FILE *f = fopen(path, "wb");
    if (!f) return sys_fail(s, err, name);
    bool ok = fwrite(data, 1, bytes, f) == bytes;
    ok = fclose(f) == 0 && ok;
    return ok ? DUET_OK : sys_fail(s, err, name);
}

static duet_status write_frame(folder_sink *s, const uint8_t *rgb, duet_error *err) {
    size_t row_bytes = 3 * (size_t)s->common.format.width;
    int rc = av_frame_make_writable(s->picture);
    if (rc < 0) return duet__av_fail(err, rc, "PNG encoder", s->common.path);
    for (int y = 0; y < s->common.format.height; y++)
        memcpy(s->picture->data[0] + (ptrdiff_t)y * s->picture->linesize[0], rgb + (size_t)y * row_bytes,
               row_bytes);
    s->picture->pts = s->common.frames_done;
    rc = avcodec_send_frame(s->png, s->picture);
    if (rc >= 0) rc = avcodec_receive_packet(s->png, s->packet);
    if (rc < 0) return duet__av_fail(err, rc, "PNG encoder", s->common.path);
    char name[32];
    snprintf(name, sizeof name, "frame_%05lld.png", (long long)s->common.frames_done++);
    duet_status st = write_file(s, name, s->packet->data, (size_t)s->packet->size, err);
    av_packet_unref(s->packet);
    return st;
}

static duet_status folder_frames(duet_sink *self, const uint8_t *rgb, int64_t n_frames, duet_error *err) {
    folder_sink *s = (folder_sink *)self;
    size_t frame_bytes = 3 * (size_t)s->common.format.width * (size_t)s->common.format.height;
    for (int64_t i = 0; i < n_frames; i++) {
        duet_status st = duet__media_poll(&s->common, err);
        if (st == DUET_OK) st = write_frame(s, rgb + (size_t)i * frame_bytes, err);
        if (st != DUET_OK) return st;
    }
    return DUET_OK;
}

static duet_status folder_sound(duet_sink *self, const float *planar, int64_t n_samples, duet_error *err) {
    folder_sink *s = (folder_sink *)self;
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/audio.wav", s->part);
    return duet__wav_write(path, planar, n_samples, s->common.format.sample_rate, err);
}

static bool is_frame_name(const char *name, long long *number) {
    char end = 0;
    return sscanf(name, "frame_%5lld.pn%c", number, &end) == 2 && end == 'g' &&
           strlen(name) == strlen("frame_00000.png");
}

/* Frames of an older, longer clip. */
static void remove_stale(folder_sink *s) {
    DIR *dir = opendir(s->common.path);
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));) {
        long long number;
        if (is_frame_name(e->d_name, &number) && number >= s->common.frames_done)
            unlinkat(dirfd(dir), e->d_name, 0);
    }
    closedir(dir);
}

static duet_status finish(folder_sink *s, duet_error *err) {
    if (s->common.frames_done != s->common.format.frames)
        return duet_fail(err, DUET_E_INTERNAL, "folder: %lld of %lld frames were given",
                         (long long)s->common.frames_done, (long long)s->common.format.frames);
    DIR *dir = opendir(s->part);
    if (!dir) return sys_fail(s, err, "cannot read back");
    duet_status st = DUET_OK;
    /* The latents go once the clip stands under its names, so it must stand there after a power cut, too: one flush for
     * all files, where a flush of each would cost a turn of the disk a frame. */
    if (syncfs(dirfd(dir)) != 0 && errno != ENOSYS) st = sys_fail(s, err, "cannot flush");
    for (struct dirent *e; st == DUET_OK && (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        char to[PATH_BYTES + 512];
        snprintf(to, sizeof to, "%s%s", s->common.path, e->d_name);
        if (renameat(dirfd(dir), e->d_name, -100 /* AT_FDCWD */, to) != 0)
            st = sys_fail(s, err, "cannot rename into place");
    }
    if (st == DUET_OK) syncfs(dirfd(dir));
    closedir(dir);
    if (st == DUET_OK) remove_stale(s);
    return st;
}

static void remove_part(folder_sink *s) {
    if (!s->part[0]) return;
    DIR *dir = opendir(s->part);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) unlinkat(dirfd(dir), e->d_name, 0);
    if (dir) closedir(dir);
    rmdir(s->part);
    s->part[0] = '\0';
}

static duet_status folder_close(duet_sink *self, bool commit, duet_error *err) {
    folder_sink *s = (folder_sink *)self;
    if (s->closed) return DUET_OK;
    s->closed = true;
    duet_status st = commit ? finish(s, err) : DUET_OK;
    remove_part(s);
    avcodec_free_context(&s->png);
    av_frame_free(&s->picture);
    av_packet_free(&s->packet);
    return st;
}

static void folder_dispose(duet__media_sink *self) {
    (void)self;
}

duet__media_sink *duet__folder_sink_new(void) {
    folder_sink *s = duet_calloc(1, sizeof *s, DUET_MEM_MEDIA);
    if (!s) return NULL;
    s->common.base = (duet_sink){folder_open, folder_frames, folder_sound, folder_close};
    s->common.dispose = folder_dispose;
    return &s->common;
}
