/* media_test.c - real files out, read back with the same libraries a player uses: counts, colours, timing,
 * same bytes twice. */
#define _XOPEN_SOURCE 700
#include "harness/harness.h"

#include <dirent.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "media/media.h"

enum { W = 64, H = 96, FRAMES = 22, LATENTS = 37, RATE = 32000, SAMPLES = 800 * LATENTS };

static uint8_t rgb[FRAMES][H][W][3];
static float sound[2][SAMPLES];

static void make_clip(void) {
    for (int f = 0; f < FRAMES; f++)
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) {
                rgb[f][y][x][0] = (uint8_t)(200);
                rgb[f][y][x][1] = (uint8_t)(30 + 2 * f);
                rgb[f][y][x][2] = (uint8_t)(60);
            }
    for (int i = 0; i < SAMPLES; i++) {
        sound[0][i] = (float)(0.5 * sin(2 * M_PI * 440 * i / RATE));
        sound[1][i] = (float)(0.25 * sin(2 * M_PI * 880 * i / RATE));
    }
}

static void write_clip(const char *path, bool commit) {
    duet_error err = {0};
    duet_sink *sink = NULL;
    duet_media_tag tags[] = {{"seed", "42"}, {"duet_version", "0"}};
    duet_media_options options = {.path = path, .quality = 50, .tags = tags, .n_tags = 2};
    EXPECT_OK(duet_media_sink_new(&options, &sink, &err), err);
    duet_clip_format format = {W, H, 24, FRAMES, RATE, SAMPLES};
    EXPECT_OK(sink->open(sink, &format, &err), err);
    EXPECT_OK(sink->sound(sink, &sound[0][0], SAMPLES, &err), err);
    EXPECT_OK(sink->frames(sink, &rgb[0][0][0][0], 5, &err), err);
    EXPECT_OK(sink->frames(sink, &rgb[5][0][0][0], FRAMES - 5, &err), err);
    EXPECT_OK(sink->close(sink, commit, &err), err);
    duet_media_sink_free(&sink);
    EXPECT(sink == NULL);
}

typedef struct decoded {
    int frames;
    int64_t samples, presented_samples; /* decoded in whole AAC frames; inside the edit list */
    double energy[2], error[2];         /* of the sound we gave; of what came back against it */
    int first_y, first_cb, first_cr;
    enum AVColorSpace space;
    enum AVColorRange range;
    enum AVChromaLocation siting;
    char seed[16];
} decoded;

static void read_frame(decoded *d, const AVCodecContext *c, const AVFrame *f) {
    if (c->codec_type == AVMEDIA_TYPE_VIDEO) {
        if (d->frames++ == 0) {
            d->first_y = f->data[0][H / 2 * f->linesize[0] + W / 2];
            d->first_cb = f->data[1][H / 4 * f->linesize[1] + W / 4];
            d->first_cr = f->data[2][H / 4 * f->linesize[2] + W / 4];
        }
        return;
    }
    d->samples += f->nb_samples;
    int64_t first = d->samples - f->nb_samples;
    for (int ch = 0; ch < 2; ch++)
        for (int i = 0; i < f->nb_samples && first + i < SAMPLES; i++) {
            double want = sound[ch][first + i], diff = ((const float *)f->data[ch])[i] - want;
            d->energy[ch] += want * want;
            d->error[ch] += diff * diff;
        }
}

static void drain(decoded *d, AVCodecContext *c, const AVPacket *packet) {
    AVFrame *f = av_frame_alloc();
    EXPECT(avcodec_send_packet(c, packet) >= 0);
    while (avcodec_receive_frame(c, f) >= 0) read_frame(d, c, f);
    av_frame_free(&f);
}

static decoded read_clip(const char *path) {
    decoded d = {0};
    AVFormatContext *in = NULL;
    EXPECT(avformat_open_input(&in, path, NULL, NULL) >= 0);
    EXPECT(avformat_find_stream_info(in, NULL) >= 0);
    EXPECT_EQ(in->nb_streams, 2);
    AVCodecContext *codecs[2];
    for (int i = 0; i < 2; i++) {
        AVCodecParameters *par = in->streams[i]->codecpar;
        const AVCodec *codec = avcodec_find_decoder(par->codec_id);
        codecs[i] = avcodec_alloc_context3(codec);
        avcodec_parameters_to_context(codecs[i], par);
        codecs[i]->pkt_timebase = in->streams[i]->time_base;
        EXPECT(avcodec_open2(codecs[i], codec, NULL) >= 0);
        if (par->codec_type == AVMEDIA_TYPE_AUDIO)
            d.presented_samples =
                av_rescale_q(in->streams[i]->duration, in->streams[i]->time_base, (AVRational){1, RATE});
        if (par->codec_type == AVMEDIA_TYPE_VIDEO) {
            d.space = par->color_space;
            d.range = par->color_range;
            d.siting = par->chroma_location;
        }
    }
    AVPacket *packet = av_packet_alloc();
    while (av_read_frame(in, packet) >= 0) {
        drain(&d, codecs[packet->stream_index], packet);
        av_packet_unref(packet);
    }
    for (int i = 0; i < 2; i++) drain(&d, codecs[i], NULL);
    AVDictionaryEntry *tag = av_dict_get(in->metadata, "seed", NULL, 0);
    snprintf(d.seed, sizeof d.seed, "%s", tag ? tag->value : "");
    for (int i = 0; i < 2; i++) avcodec_free_context(&codecs[i]);
    av_packet_free(&packet);
    avformat_close_input(&in);
    return d;
}

static int entries(const char *dir) {
    DIR *d = opendir(dir);
    EXPECT(d != NULL);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

static char *slurp(const char *path, long *bytes) {
    FILE *f = fopen(path, "rb");
    EXPECT(f != NULL);
    fseek(f, 0, SEEK_END);
    *bytes = ftell(f);
    rewind(f);
    char *text = malloc((size_t)*bytes);
    EXPECT(fread(text, 1, (size_t)*bytes, f) == (size_t)*bytes);
    fclose(f);
    return text;
}

TEST(mp4_holds_every_frame_and_sample, 20000) {
    make_clip();
    char path[512];
    snprintf(path, sizeof path, "%s/clip.mp4", harness_tmp_dir());
    write_clip(path, true);
    EXPECT_EQ(entries(harness_tmp_dir()), 1); /* nothing half-written left beside it */
    decoded d = read_clip(path);
    EXPECT_EQ(d.frames, FRAMES);
    EXPECT_EQ(d.presented_samples, SAMPLES);
    EXPECT(d.samples >= SAMPLES &&
           d.samples < SAMPLES + 1024); /* priming is gone; FFmpeg keeps the last frame whole */
    for (int ch = 0; ch < 2; ch++)
        EXPECT_LE(d.error[ch] / d.energy[ch], 0.01); /* in time and on its own side, within 20 dB */
    EXPECT_EQ(d.space, AVCOL_SPC_BT709);
    EXPECT_EQ(d.range, AVCOL_RANGE_MPEG);
    EXPECT_EQ(d.siting, AVCHROMA_LOC_LEFT);
    EXPECT_STR(d.seed, "42");
    /* (200, 30, 60) by BT.709, limited: Y = 16 + 219*(0.2126 R + 0.7152 G + 0.0722 B) and so on */
    double r = 200 / 255.0, g = 30 / 255.0, b = 60 / 255.0, y = 0.2126 * r + 0.7152 * g + 0.0722 * b;
    EXPECT_LE(fabs(d.first_y - (16 + 219 * y)), 1.5);
    EXPECT_LE(fabs(d.first_cb - (128 + 224 * (b - y) / 1.8556)), 1.5);
    EXPECT_LE(fabs(d.first_cr - (128 + 224 * (r - y) / 1.5748)), 1.5);
}

TEST(mp4_same_clip_same_bytes, 20000) {
    make_clip();
    char a[512], b[512];
    snprintf(a, sizeof a, "%s/a.mp4", harness_tmp_dir());
    snprintf(b, sizeof b, "%s/b.mp4", harness_tmp_dir());
    write_clip(a, true);
    sleep(1); /* a time of day in the file would differ now */
    write_clip(b, true);
    long na, nb;
    char *ta = slurp(a, &na), *tb = slurp(b, &nb);
    EXPECT_EQ(na, nb);
    EXPECT(memcmp(ta, tb, (size_t)na) == 0);
    free(ta);
    free(tb);
}

TEST(mp4_thrown_away_leaves_nothing, 20000) {
    make_clip();
    char path[512];
    snprintf(path, sizeof path, "%s/clip.mp4", harness_tmp_dir());
    write_clip(path, false);
    EXPECT_EQ(entries(harness_tmp_dir()), 0);
}

/* Asked to stop when all frames are in: emptying the encoder ends early, and nothing is left. */
TEST(mp4_cancel_stops_the_flush, 20000) {
    make_clip();
    volatile int cancel = 0;
    char path[512];
    snprintf(path, sizeof path, "%s/clip.mp4", harness_tmp_dir());
    duet_error err = {0};
    duet_sink *sink = NULL;
    duet_media_options options = {.path = path, .quality = 50, .cancel = &cancel};
    EXPECT_OK(duet_media_sink_new(&options, &sink, &err), err);
    EXPECT_OK(sink->open(sink, &(duet_clip_format){W, H, 24, FRAMES, RATE, SAMPLES}, &err), err);
    EXPECT_OK(sink->sound(sink, &sound[0][0], SAMPLES, &err), err);
    EXPECT_OK(sink->frames(sink, &rgb[0][0][0][0], FRAMES, &err), err);
    cancel = 1;
    EXPECT_EQ(sink->close(sink, true, &err), DUET_E_CANCELLED);
    duet_media_sink_free(&sink);
    EXPECT_EQ(entries(harness_tmp_dir()), 0);
}

/* Two runs of one name: the second to finish does not take the first one's clip away. */
TEST(mp4_keeps_a_file_that_appeared_meanwhile, 20000) {
    make_clip();
    char path[512], text[16] = "";
    snprintf(path, sizeof path, "%s/clip.mp4", harness_tmp_dir());
    duet_error err = {0};
    duet_sink *sink = NULL;
    duet_media_options options = {.path = path, .quality = 50, .keep_existing = true};
    EXPECT_OK(duet_media_sink_new(&options, &sink, &err), err);
    EXPECT_OK(sink->open(sink, &(duet_clip_format){W, H, 24, FRAMES, RATE, SAMPLES}, &err), err);
    EXPECT_OK(sink->sound(sink, &sound[0][0], SAMPLES, &err), err);
    EXPECT_OK(sink->frames(sink, &rgb[0][0][0][0], FRAMES, &err), err);
    FILE *f = fopen(path, "wb");
    EXPECT(f && fputs("precious", f) >= 0 && fclose(f) == 0);
    EXPECT_EQ(sink->close(sink, true, &err), DUET_E_IO);
    EXPECT_HAS(err.message, "appeared");
    duet_media_sink_free(&sink);
    EXPECT_EQ(entries(harness_tmp_dir()), 1);
    f = fopen(path, "rb");
    EXPECT(f && fgets(text, sizeof text, f) && fclose(f) == 0);
    EXPECT_STR(text, "precious");
}

TEST(folder_holds_frames_and_sound, 20000) {
    make_clip();
    char path[512], file[600];
    snprintf(path, sizeof path, "%s/out/", harness_tmp_dir());
    EXPECT(mkdir(path, 0777) == 0);
    snprintf(file, sizeof file, "%sframe_00099.png", path); /* left over from a longer clip */
    fclose(fopen(file, "wb"));
    write_clip(path, true);
    EXPECT_EQ(entries(path), FRAMES + 1);
    snprintf(file, sizeof file, "%saudio.wav", path);
    struct stat st;
    EXPECT(stat(file, &st) == 0);
    EXPECT(st.st_size >= SAMPLES * 4 + 44 && st.st_size < SAMPLES * 4 + 200);
    snprintf(file, sizeof file, "%sframe_00021.png", path);
    EXPECT(stat(file, &st) == 0 && st.st_size > 60);
}

TEST(output_kinds_follow_the_name, 1000) {
    EXPECT_EQ(duet_media_kind_of("a/b.mp4"), DUET_MEDIA_MP4);
    EXPECT_EQ(duet_media_kind_of("a/b/"), DUET_MEDIA_FOLDER);
    EXPECT_EQ(duet_media_kind_of("a.mov"), DUET_MEDIA_UNKNOWN);
    EXPECT_EQ(duet_media_kind_of(".mp4"), DUET_MEDIA_UNKNOWN);
    EXPECT_EQ(duet_media_kind_of(""), DUET_MEDIA_UNKNOWN);
    duet_error err = {0};
    duet_sink *sink = NULL;
    EXPECT_EQ(duet_media_sink_new(&(duet_media_options){.path = "x.webm"}, &sink, &err), DUET_E_REQUEST);
    EXPECT_STR(err.param, "output");
}

TEST(mp4_unwritable_folder_is_an_error, 5000) {
    duet_error err = {0};
    duet_sink *sink = NULL;
    duet_media_options options = {.path = "/proc/nowhere/clip.mp4", .quality = 50};
    EXPECT_OK(duet_media_sink_new(&options, &sink, &err), err);
    EXPECT_EQ(sink->open(sink, &(duet_clip_format){W, H, 24, FRAMES, RATE, SAMPLES}, &err), DUET_E_IO);
    EXPECT_HAS(err.message, "/proc/nowhere/clip.mp4");
    duet_media_sink_free(&sink);
}
