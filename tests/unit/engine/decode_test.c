/* decode_test.c - latents to frames and sound: what depends on what, what is delivered, and how it fails.
 *
 * Networks are real, with weights made by hand; a chunk is 17 + 5 frames as in the released model, tiles
 * are 32 pixels so that a small canvas has several in both directions. */
#include "unit/nn/hand_vae.h"

#include "engine/decode.h"
#include "engine/decode_stitch.h"

static const duet_vvae_config video = {.space_ratio = 4,
                                       .time_ratio = 4,
                                       .latent_channels = 3,
                                       .vit_layers = 1,
                                       .vit_heads = 2,
                                       .vit_head_dim = 8,
                                       .vit_ffn_mult = 2,
                                       .vit_registers = 2,
                                       .vit_norm_eps = 1e-5f,
                                       .vit_rope_ratio = 0.75f,
                                       .vit_rope_theta = 100.0f,
                                       .clip_frames = 17,
                                       .token_drop = 3,
                                       .tile_px = 32,
                                       .tile_overlap_px = 8,
                                       .latents_mean = {0.3f, -0.2f, 0.1f},
                                       .latents_std = {1.5f, 0.7f, 2.0f}};
static const duet_avae_config audio = {.latent_dim = 8,
                                       .latent_channels = 2,
                                       .decoder_dim = 4,
                                       .n_decoder_rates = 1,
                                       .decoder_rates = {4},
                                       .decoder_kernels = {8},
                                       .n_res_kernels = 2,
                                       .res_kernels = {3, 5},
                                       .n_res_dilations = 1,
                                       .res_dilations = {1},
                                       .hop = 4,
                                       .latents_mean = {0.5f, -1.0f},
                                       .latents_std = {2.0f, 0.5f}};
enum { LH = 11, LW = 9, HEIGHT = 4 * LH, WIDTH = 4 * LW, FRAME = HEIGHT * WIDTH * 3 }; /* 2 x 2 tiles */

/* ---- a sink that remembers ----------------------------------------------------------------------------- */

typedef struct memory_sink {
    duet_sink base;
    uint8_t *rgb;
    int64_t frames, fail_after; /* fail_after < 0: never */
} memory_sink;

static duet_status remember(duet_sink *self, const uint8_t *rgb, int64_t n, duet_error *err) {
    memory_sink *m = (memory_sink *)self;
    if (m->fail_after >= 0 && m->frames + n > m->fail_after) return duet_fail(err, DUET_E_IO, "disk full");
    m->rgb = duet_realloc(m->rgb, (size_t)((m->frames + n) * FRAME), DUET_MEM_TENSOR);
    EXPECT(m->rgb);
    memcpy(m->rgb + m->frames * FRAME, rgb, (size_t)(n * FRAME));
    m->frames += n;
    return DUET_OK;
}

/* ---- a run --------------------------------------------------------------------------------------------- */

typedef struct rig {
    hand_device h;
    duet_video_vae *vae;
    memory_sink sink;
    float *latents;
    duet_decode_video_args args;
} rig;

static rig setup(const char *backend, int threads, int64_t t) {
    rig r = {.h = hand_device_open(backend, threads),
             .sink = {.base = {.frames = remember}, .fail_after = -1}};
    int64_t n = video.latent_channels * t * LH * LW;
    r.vae = hand_vvae_open(&video, r.h.dev, 1);
    r.latents = duet_alloc((size_t)n * sizeof *r.latents, DUET_MEM_TENSOR);
    EXPECT(r.latents);
    for (int64_t i = 0; i < n; i++) r.latents[i] = 1.5f * hand_noise((uint64_t)i);
    r.args = (duet_decode_video_args){.vae = r.vae,
                                      .residency = r.h.residency,
                                      .stream = r.h.stream,
                                      .config = &video,
                                      .latents = r.latents,
                                      .latents_t = t,
                                      .latent_h = LH,
                                      .latent_w = LW};
    return r;
}

static void teardown(rig *r) {
    hand_device_idle(&r->h);
    hand_vvae_close(&r->vae);
    hand_device_close(&r->h);
    duet_free(r->latents);
    duet_free(r->sink.rgb);
}

static duet_status decode(rig *r, duet_error *e) {
    r->args.sink = &r->sink.base;
    r->sink.frames = 0;
    return duet_decode_video(&r->args, e);
}

static float *latent_at(rig *r, int64_t channel, int64_t t) {
    return r->latents + (channel * r->args.latents_t + t) * LH * LW;
}

/* ---- what is delivered --------------------------------------------------------------------------------- */

TEST(decode_delivers_every_frame_of_every_length, 30000) {
    static const int64_t row[][2] = {{3, 9},  {4, 13}, {5, 17},  {6, 18}, {7, 22},
                                     {8, 26}, {9, 30}, {10, 34}, {12, 39}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        duet_error e = {0};
        rig r = setup("cpu", 2, row[i][0]);
        EXPECT_OK(decode(&r, &e), e);
        EXPECT_EQ(r.sink.frames, row[i][1]);
        teardown(&r);
    }
}

/* Padding repeats the last latent: a clip of 9 is the beginning of one of 12 whose last three are copies. */
TEST(decode_pads_with_the_last_latent, 20000) {
    duet_error e = {0};
    rig a = setup("cpu", 2, 9), b = setup("cpu", 2, 12);
    for (int64_t c = 0; c < video.latent_channels; c++)
        for (int64_t t = 0; t < 12; t++)
            memcpy(latent_at(&b, c, t), latent_at(&a, c, t < 9 ? t : 8), LH * LW * sizeof(float));
    EXPECT_OK(decode(&a, &e), e);
    EXPECT_OK(decode(&b, &e), e);
    EXPECT(!memcmp(a.sink.rgb, b.sink.rgb, (size_t)(a.sink.frames * FRAME)));
    teardown(&a);
    teardown(&b);
}

/* Chunk i sees latents 5i .. 5i+6; frames 17i .. 17i+4 fade from chunk i-1, whose weight at 17i is one. */
TEST(frame_17i_depends_on_the_chunk_before_it_alone, 20000) {
    duet_error e = {0};
    rig a = setup("cpu", 2, 17), b = setup("cpu", 2, 17);
    for (int64_t c = 0; c < video.latent_channels; c++)
        for (int64_t t = 7; t < 17; t++)
            for (int64_t i = 0; i < LH * LW; i++)
                latent_at(&b, c, t)[i] += 0.5f * hand_noise((uint64_t)(t * 999 + i));
    EXPECT_OK(decode(&a, &e), e);
    EXPECT_OK(decode(&b, &e), e);
    for (int64_t f = 0; f < a.sink.frames; f++) {
        bool same = !memcmp(a.sink.rgb + f * FRAME, b.sink.rgb + f * FRAME, FRAME);
        EXPECT_EQ(same, f <= 17);
    }
    teardown(&a);
    teardown(&b);
}

/* A tile's latents reach no pixel outside the tile. */
TEST(pixels_depend_on_their_own_tiles_alone, 20000) {
    duet_error e = {0};
    rig a = setup("cpu", 2, 7), b = setup("cpu", 2, 7);
    for (int64_t c = 0; c < video.latent_channels; c++)
        for (int64_t t = 0; t < 7; t++)
            latent_at(&b, c, t)[0] += 1.0f; /* top left latent: tile (0,0) alone */
    EXPECT_OK(decode(&a, &e), e);
    EXPECT_OK(decode(&b, &e), e);
    bool changed = false;
    for (int64_t i = 0; i < a.sink.frames * FRAME; i++) {
        int64_t y = i / 3 / WIDTH % HEIGHT, x = i / 3 % WIDTH;
        if (a.sink.rgb[i] == b.sink.rgb[i]) continue;
        changed = true;
        EXPECT(y < 32 && x < 32);
    }
    EXPECT(changed);
    teardown(&a);
    teardown(&b);
}

TEST(decode_is_the_same_for_any_number_of_threads, 20000) {
    duet_error e = {0};
    rig first = setup("cpu", 1, 12);
    EXPECT_OK(decode(&first, &e), e);
    for (int threads = 2; threads <= 3; threads++) {
        rig r = setup("cpu", threads, 12);
        EXPECT_OK(decode(&r, &e), e);
        EXPECT(!memcmp(first.sink.rgb, r.sink.rgb, (size_t)(r.sink.frames * FRAME)));
        teardown(&r);
    }
    teardown(&first);
}

/* Nothing reads device memory, and nothing assumes that an op has finished. */
TEST(decode_behind_a_wall_gives_the_bytes_of_ref, 30000) {
    duet_error e = {0};
    rig a = setup("ref", 2, 12), b = setup("walled", 2, 12);
    EXPECT_OK(decode(&a, &e), e);
    EXPECT_OK(decode(&b, &e), e);
    EXPECT_EQ(b.sink.frames, 39);
    EXPECT(!memcmp(a.sink.rgb, b.sink.rgb, (size_t)(a.sink.frames * FRAME)));
    teardown(&a);
    teardown(&b);
}

/* ---- cost ---------------------------------------------------------------------------------------------- */

TEST(decode_takes_the_memory_it_announced, 10000) {
    duet_decode_cost cost;
    duet_error e = {0};
    rig r = setup("cpu", 2, 12);
    duet_residency *res = r.h.residency;
    EXPECT(duet_decode_video_cost(&video, r.h.dev, 12, LH, LW, &cost));
    EXPECT_EQ(cost.calls, 2 * 4);
    int64_t before = duet_mem_live_bytes(DUET_MEM_ENGINE);
    EXPECT_OK(decode(&r, &e), e);
    EXPECT_EQ(duet_device_peak_bytes(r.h.dev), cost.device_bytes + duet_residency_peak_bytes(res));
    EXPECT_EQ(duet_mem_live_bytes(DUET_MEM_ENGINE), before);
    EXPECT(cost.flops > 0.0 && cost.host_bytes > 0);
    EXPECT(!duet_decode_video_cost(&video, NULL, 2, LH, LW, &cost));
    EXPECT(!duet_decode_video_cost(&video, NULL, 7, 0, LW, &cost));
    teardown(&r);
}

/* A host stream grows its scratch to the largest op's need: exactly what was announced. Behind the wall an
 * announced size is a limit. */
TEST(decode_takes_the_scratch_it_announced, 20000) {
    static const char *const backends[] = {"ref", "cpu", "walled"};
    for (int b = 0; b < 3; b++) {
        duet_decode_cost cost;
        duet_error e = {0};
        rig r = setup(backends[b], 2, 7);
        EXPECT(duet_decode_video_cost(&video, r.h.dev, 7, LH, LW, &cost));
        if (b == 2) {
            duet_stream_close(&r.h.stream);
            EXPECT_OK(duet_stream_open(r.h.dev, cost.scratch_bytes, &r.h.stream, &e), e);
            r.args.stream = r.h.stream;
        }
        int64_t before = duet_mem_live_bytes(DUET_MEM_SCRATCH);
        EXPECT_OK(decode(&r, &e), e);
        if (b < 2) EXPECT_EQ(duet_mem_live_bytes(DUET_MEM_SCRATCH) - before, cost.scratch_bytes);
        teardown(&r);
    }
}

TEST(audio_takes_the_memory_it_announced, 20000) {
    enum { N = 9 };
    static const char *const backends[] = {"ref", "cpu", "walled"};
    float latents[2 * 2 * N], samples[2 * 4 * N];
    for (int i = 0; i < 2 * 2 * N; i++) latents[i] = hand_noise((uint64_t)i);
    for (int b = 0; b < 3; b++) {
        hand_device h = hand_device_open(backends[b], 2);
        duet_audio_vae *v = hand_avae_open(&audio, h.dev, 3);
        duet_decode_cost cost;
        duet_error e = {0};
        duet_decode_audio_cost(&audio, h.dev, N, &cost);
        if (b == 2) {
            duet_stream_close(&h.stream);
            EXPECT_OK(duet_stream_open(h.dev, cost.scratch_bytes, &h.stream, &e), e);
        }
        int64_t before = duet_mem_live_bytes(DUET_MEM_SCRATCH);
        duet_decode_audio_args args = {.vae = v,
                                       .residency = h.residency,
                                       .stream = h.stream,
                                       .config = &audio,
                                       .latents = latents,
                                       .n_latents = N,
                                       .samples = samples};
        EXPECT_OK(duet_decode_audio(&args, &e), e);
        if (b < 2) EXPECT_EQ(duet_mem_live_bytes(DUET_MEM_SCRATCH) - before, cost.scratch_bytes);
        EXPECT_EQ(duet_device_peak_bytes(h.dev), cost.device_bytes + duet_residency_peak_bytes(h.residency));
        hand_device_idle(&h);
        hand_avae_close(&v);
        hand_device_close(&h);
    }
}

/* ---- taps ---------------------------------------------------------------------------------------------- */

enum { MAX_TAPS = 64 };

typedef struct ear {
    duet_tap base;
    const char *only; /* NULL: everything */
    int n;
    char name[MAX_TAPS][96];
    duet_shape shape[MAX_TAPS];
    void *data[MAX_TAPS];
} ear;

static bool ear_wants(duet_tap *self, const char *name) {
    const ear *x = (const ear *)self;
    return !x->only || strstr(name, x->only);
}

static void *ear_slot(ear *x, const char *name, const duet_shape *shape, size_t bytes) {
    EXPECT(x->n < MAX_TAPS && strlen(name) < sizeof x->name[0]);
    memcpy(x->name[x->n], name, strlen(name) + 1);
    x->shape[x->n] = *shape;
    x->data[x->n] = duet_alloc(bytes, DUET_MEM_TENSOR);
    EXPECT(x->data[x->n]);
    return x->data[x->n++];
}

static void ear_take_device(duet_tap *self, duet_stream *stream, const char *name, const float *x,
                            int64_t rows, int64_t cols, int64_t stride, const duet_shape *shape) {
    float *out = ear_slot((ear *)self, name, shape, (size_t)(rows * cols) * sizeof *out);
    for (int64_t r = 0; r < rows; r++) duet_copy_out(stream, out + r * cols, x + r * stride, cols * 4);
}

static void ear_take_host(duet_tap *self, const char *name, duet_dtype dtype, const duet_shape *shape,
                          const void *data) {
    int64_t n;
    EXPECT(duet_shape_elems(shape, &n));
    memcpy(ear_slot((ear *)self, name, shape, (size_t)n * duet_dtype_bytes(dtype)), data,
           (size_t)n * duet_dtype_bytes(dtype));
}

static const ear deaf = {.base = {ear_wants, ear_take_device, ear_take_host}};

static int ear_find(const ear *x, const char *name) {
    for (int i = 0; i < x->n; i++)
        if (!strcmp(x->name[i], name)) return i;
    FAIL("tap %s is missing", name);
}

static void ear_free(ear *x) {
    for (int i = 0; i < x->n; i++) duet_free(x->data[i]);
}

static void expect_tap(const ear *x, const char *name, const char *shape) {
    char text[96];
    EXPECT_STR(duet_shape_text(&x->shape[ear_find(x, name)], text, sizeof text), shape);
}

TEST(taps_have_their_names_and_shapes_and_change_nothing, 20000) {
    duet_error e = {0};
    rig quiet = setup("walled", 2, 7), r = setup("walled", 2, 7);
    ear x = deaf;
    r.args.tap = &x.base;
    EXPECT_OK(decode(&quiet, &e), e);
    EXPECT_OK(decode(&r, &e), e);
    EXPECT(!memcmp(quiet.sink.rgb, r.sink.rgb, (size_t)(22 * FRAME)));
    expect_tap(&x, "vvae.chunk_0.tile_0_0.latent", "[3, 7, 8, 8]");
    expect_tap(&x, "vvae.chunk_0.tile_0_1.post_quant", "[3, 7, 8, 8]");
    expect_tap(&x, "vvae.chunk_0.tile_1_0.tokens", "[451, 16]");
    expect_tap(&x, "vvae.chunk_0.tile_1_1.block_00.q_rope", "[451, 2, 8]");
    expect_tap(&x, "vvae.chunk_0.tile_1_1.block_00.k_rope", "[451, 2, 8]");
    expect_tap(&x, "vvae.chunk_0.tile_1_1.block_00.attn", "[451, 16]");
    expect_tap(&x, "vvae.chunk_0.tile_1_1.block_00.out", "[451, 16]");
    expect_tap(&x, "vvae.chunk_0.tile_1_1.norm_out", "[451, 16]");
    expect_tap(&x, "vvae.chunk_0.tile_1_1.proj_out", "[448, 192]");
    expect_tap(&x, "vvae.chunk_0.tile_1_1.raw", "[3, 28, 32, 32]");
    expect_tap(&x, "vvae.chunk_0.stitched", "[3, 28, 44, 36]");
    expect_tap(&x, "frames", "[22, 44, 36, 3]");
    EXPECT(!memcmp(x.data[ear_find(&x, "frames")], r.sink.rgb, (size_t)(22 * FRAME)));

    /* De-normalised: product and sum, each rounded. */
    const float *latent = x.data[ear_find(&x, "vvae.chunk_0.tile_0_0.latent")];
    float scaled = latent_at(&r, 2, 6)[7 * LW + 5] * 2.0f;
    EXPECT_LE(fabsf(latent[((2 * 7 + 6) * 8 + 7) * 8 + 5] - (scaled + 0.1f)), 0.0);

    /* First frame of the clip: raw frame 3 of the stitched chunk, inverse of the pixel normalisation. */
    const float *stitched = x.data[ear_find(&x, "vvae.chunk_0.stitched")];
    static const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
    for (int64_t c = 0; c < 3; c++)
        for (int64_t p = 0; p < HEIGHT * WIDTH; p++) {
            double v = (double)stitched[(c * 28 + 3) * HEIGHT * WIDTH + p] * (double)std[c] + (double)mean[c];
            EXPECT_LE(fabs(fmin(fmax(v, 0.0), 1.0) * 255.0 - r.sink.rgb[p * 3 + c]), 0.5001);
        }
    ear_free(&x);
    teardown(&quiet);
    teardown(&r);
}

/* ---- faults -------------------------------------------------------------------------------------------- */

TEST(bad_weights_fail_naming_chunk_tile_and_tensor, 10000) {
    duet_error e = {0};
    rig r = setup("cpu", 2, 12);
    hand_values(&r.vae->blocks[0].weight[VVAE_SCALE2])[1] = NAN;
    EXPECT_EQ(decode(&r, &e), DUET_E_RUN);
    EXPECT_HAS(e.message, "vvae.chunk_0.tile_0_0.raw");
    EXPECT_HAS(e.message, "not finite");
    EXPECT_EQ(r.sink.frames, 0);
    teardown(&r);
}

TEST(a_grey_tile_is_not_a_success, 10000) {
    duet_error e = {0};
    rig r = setup("cpu", 2, 7);
    const duet_weight *out = r.vae->out.weight;
    memset(hand_values(&out[VVAE_PROJ_W]), 0, (size_t)hand_count(&out[VVAE_PROJ_W]) * sizeof(float));
    for (int64_t i = 0; i < hand_count(&out[VVAE_PROJ_B]); i++) hand_values(&out[VVAE_PROJ_B])[i] = 0.25f;
    EXPECT_EQ(decode(&r, &e), DUET_E_RUN);
    EXPECT_HAS(e.message, "vvae.chunk_0.tile_0_0.raw");
    EXPECT_HAS(e.message, "equal");
    teardown(&r);
}

/* Latents may come from a file. */
TEST(bad_latents_are_refused_before_the_network, 10000) {
    duet_error e = {0};
    rig r = setup("cpu", 2, 12);
    latent_at(&r, 1, 11)[0] = INFINITY;
    latent_at(&r, 2, 11)[1] = NAN;
    EXPECT_EQ(decode(&r, &e), DUET_E_RUN);
    EXPECT_HAS(e.message, "video_latents: 2 of");
    e = (duet_error){0};
    r.args.latents_t = 2;
    EXPECT_EQ(decode(&r, &e), DUET_E_RUN);
    teardown(&r);
}

TEST(a_failing_sink_ends_the_run_with_its_own_error, 10000) {
    for (int64_t after = 0; after < 39; after += 9) {
        duet_error e = {0};
        rig r = setup("cpu", 1, 12);
        r.sink.fail_after = after;
        EXPECT_EQ(decode(&r, &e), DUET_E_IO);
        EXPECT_STR(e.message, "disk full");
        teardown(&r); /* and nothing is left on the device */
    }
}

typedef struct watcher {
    volatile int cancel;
    int64_t last, total, cancel_at;
} watcher;

static void watch(void *ctx, duet_stage stage, int64_t done, int64_t total) {
    watcher *w = ctx;
    EXPECT_EQ(stage, DUET_STAGE_DECODE_VIDEO);
    EXPECT(done == w->last + 1 || done == 0);
    w->last = done;
    w->total = total;
    if (done == w->cancel_at) w->cancel = 1;
}

TEST(decode_reports_each_tile_and_stops_within_one, 20000) {
    for (int64_t at = -1; at < 8; at += 3) {
        duet_error e = {0};
        watcher w = {.cancel_at = at};
        duet_progress progress = {.report = watch, .ctx = &w, .cancel = &w.cancel};
        rig r = setup("cpu", 2, 12);
        r.args.progress = &progress;
        EXPECT_EQ(decode(&r, &e), at < 0 ? DUET_OK : DUET_E_CANCELLED);
        EXPECT_EQ(w.total, 8);
        EXPECT_EQ(w.last, at < 0 ? 8 : at);
        teardown(&r);
    }
}

/* The nth allocation fails: an ordinary error, and nothing left behind. */
TEST(decode_survives_every_refused_allocation, 30000) {
    for (int64_t nth = 0; nth < 200; nth++) {
        duet_error e = {0};
        rig r = setup("cpu", 1, 7);
        r.sink.rgb = duet_alloc(22 * FRAME, DUET_MEM_TENSOR); /* the sink's own growth is not under test */
        r.args.sink = NULL;
        duet_mem_fault_arm(nth);
        duet_status st = duet_decode_video(&r.args, &e);
        bool fired = duet_mem_fault_fired();
        duet_mem_fault_arm(-1);
        EXPECT_EQ(st, fired ? DUET_E_MEMORY : DUET_OK);
        teardown(&r);
        if (!fired) return;
    }
    FAIL("more than 200 allocations");
}

/* ---- audio --------------------------------------------------------------------------------------------- */

TEST(audio_is_denormalised_decoded_and_tapped, 10000) {
    enum { N = 9 };
    float latents[2 * 2 * N], plain[2 * 2 * N], got[2 * 4 * N], want[2 * 4 * N];
    hand_device h = hand_device_open("cpu", 2);
    duet_audio_vae *v = hand_avae_open(&audio, h.dev, 3);
    duet_error e = {0};
    ear x = deaf;
    for (int i = 0; i < 2 * 2 * N; i++) {
        latents[i] = hand_noise((uint64_t)i);
        float scaled = latents[i] * audio.latents_std[i / N % 2];
        plain[i] = scaled + audio.latents_mean[i / N % 2];
    }
    duet_decode_audio_args args = {.vae = v,
                                   .residency = h.residency,
                                   .stream = h.stream,
                                   .config = &audio,
                                   .latents = latents,
                                   .n_latents = N,
                                   .samples = got,
                                   .tap = &x.base};
    EXPECT_OK(duet_decode_audio(&args, &e), e);
    EXPECT_OK(duet_audio_vae_decode(v, h.residency, h.stream, plain, N, want, NULL, NULL, &e), e);
    EXPECT(!memcmp(got, want, sizeof got));
    expect_tap(&x, "avae.dec_in", "[2, 8, 9]");
    expect_tap(&x, "avae.conv_pre", "[2, 4, 9]");
    expect_tap(&x, "avae.stage_0.up", "[2, 2, 36]");
    expect_tap(&x, "avae.stage_0.block_0", "[2, 2, 36]");
    expect_tap(&x, "avae.stage_0.block_1", "[2, 2, 36]");
    expect_tap(&x, "avae.stage_0.out", "[2, 2, 36]");
    expect_tap(&x, "avae.post", "[2, 2, 36]");
    expect_tap(&x, "avae.wave", "[2, 36]");
    expect_tap(&x, "audio", "[2, 36]");
    EXPECT(!memcmp(x.data[ear_find(&x, "audio")], got, sizeof got));
    latents[3] = NAN;
    EXPECT_EQ(duet_decode_audio(&args, &e), DUET_E_RUN);
    EXPECT_HAS(e.message, "audio_latents: 1 of");
    ear_free(&x);
    hand_device_idle(&h);
    hand_avae_close(&v);
    hand_device_close(&h);
}
