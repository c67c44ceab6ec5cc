/* wav.c - 16-bit stereo PCM through FFmpeg's WAV writer. Samples are rounded to nearest; full scale is
 * +-32767. */
#include "media/media_int.h"

#include <libavutil/channel_layout.h>
#include <math.h>

static int16_t to_i16(float x) {
    if (!(x > -1.0f)) return -32767; /* also NaN, which the engine refuses before */
    if (x > 1.0f) x = 1.0f;
    return (int16_t)lrintf(32767.0f * x);
}

static int write_samples(AVFormatContext *mux, const float *planar, int64_t n_samples) {
    enum { CHUNK = 4096 };
    AVPacket *packet = av_packet_alloc();
    int rc = packet ? 0 : AVERROR(ENOMEM);
    for (int64_t at = 0; rc >= 0 && at < n_samples; at += CHUNK) {
        int64_t n = n_samples - at < CHUNK ? n_samples - at : CHUNK;
        rc = av_new_packet(packet, (int)(n * 4));
        if (rc < 0) break;
        int16_t *out = (int16_t *)packet->data;
        for (int64_t i = 0; i < n; i++)
            for (int ch = 0; ch < 2; ch++) out[2 * i + ch] = to_i16(planar[ch * n_samples + at + i]);
        packet->pts = packet->dts = at;
        packet->duration = n;
        rc = av_write_frame(mux, packet);
        av_packet_unref(packet);
    }
    av_packet_free(&packet);
    return rc;
}

duet_status duet__wav_write(const char *path, const float *planar, int64_t n_samples, int sample_rate,
                            duet_error *err) {
    AVFormatContext *mux = NULL;
    int rc = duet__mux_new(path, "wav", &mux);
    AVStream *stream = rc >= 0 ? avformat_new_stream(mux, NULL) : NULL;
    if (rc >= 0 && !stream) rc = AVERROR(ENOMEM);
    if (rc >= 0) {
        mux->flags |= AVFMT_FLAG_BITEXACT;
        AVCodecParameters *par = stream->codecpar;
        par->codec_type = AVMEDIA_TYPE_AUDIO;
        par->codec_id = AV_CODEC_ID_PCM_S16LE;
        par->format = AV_SAMPLE_FMT_S16;
        par->sample_rate = sample_rate;
        par->bits_per_coded_sample = 16;
        par->block_align = 4;
        par->bit_rate = (int64_t)sample_rate * 32;
        av_channel_layout_default(&par->ch_layout, 2);
        stream->time_base = (AVRational){1, sample_rate};
        rc = avio_open(&mux->pb, mux->url, AVIO_FLAG_WRITE);
    }
    if (rc >= 0) rc = avformat_write_header(mux, NULL);
    if (rc >= 0) rc = write_samples(mux, planar, n_samples);
    if (rc >= 0) rc = av_write_trailer(mux);
    if (rc >= 0 && mux->pb->error) rc = mux->pb->error;
    if (mux && mux->pb) {
        int closed = avio_closep(&mux->pb);
        if (rc >= 0) rc = closed;
    }
    avformat_free_context(mux);
    return rc < 0 ? duet__av_fail(err, rc, "cannot write the sound", path) : DUET_OK;
}
