/* video_vae_parity.c - the video decoder of three tiny checkpoints against the reference implementation.
 *
 * Bounds are those of the chapter (model-vae 10.3: rel L2 1e-4 for a tile) made tighter where fp32 reaches
 * further, and those of whole clips: frames at 60 dB or more and no value more than 4 levels off, for a
 * wrong seam hides in a mean. */
#include "parity/vae_parity.h"

#include "nn/video_vae_int.h"

static const double TILE_BOUND = 1e-5;

/* Latents of a recording, decoded with every recorded tap compared; the frames are the caller's to free. */
static uint8_t *decode(int set, const char *layout, const char *backend, const fixture *f,
                       duet_shape *shape) {
    parity_rig r = parity_rig_open(set, layout, backend);
    fixture_tensor z = fixture_get(f, "video_latents");
    parity_ear ear = parity_listen(f);
    duet_video_vae *vae;
    duet_error e = {0};
    EXPECT_OK(duet_video_vae_open(r.model, r.dev, &vae, &e), e);
    duet_decode_video_args args = {.vae = vae,
                                   .residency = r.residency,
                                   .stream = r.stream,
                                   .config = &r.config->vvae,
                                   .latents = z.data,
                                   .latents_t = z.dim[1],
                                   .latent_h = (int32_t)z.dim[2],
                                   .latent_w = (int32_t)z.dim[3],
                                   .tap = &ear.base};
    EXPECT_OK(duet_decode_video(&args, &e), e);
    parity_expect_taps(&ear, TILE_BOUND);
    uint8_t *rgb = NULL;
    for (int i = 0; i < ear.n; i++) {
        if (strcmp(ear.tap[i].name, "frames") != 0) continue;
        *shape = ear.tap[i].shape;
        rgb = ear.tap[i].data;
        ear.tap[i].data = NULL;
    }
    EXPECT(rgb);
    parity_ear_free(&ear);
    parity_rig_idle(&r);
    duet_video_vae_close(&vae);
    parity_rig_close(&r);
    return rgb;
}

static void expect_means(const fixture *f, const duet_shape *shape, const uint8_t *rgb) {
    fixture_tensor t = fixture_get(f, "frames@mean");
    int64_t pixels = shape->dim[1] * shape->dim[2];
    EXPECT_EQ(t.dim[0], shape->dim[0]);
    for (int64_t i = 0; i < t.n; i++) {
        double sum = 0.0;
        for (int64_t p = 0; p < pixels; p++) sum += rgb[(i / 3 * pixels + p) * 3 + i % 3];
        EXPECT_LE(fabs(sum / (double)pixels - ((const double *)t.data)[i]), 0.02);
    }
}

static void expect_frames(int set, const char *recording, const char *backend, const fixture *f) {
    duet_shape shape;
    uint8_t *rgb = decode(set, "native", backend, f, &shape);
    parity_pixels p = parity_compare_frames(f, &shape, rgb);
    printf("     set %d %s on %s: %.1f dB, at most %d levels, %lld of %lld values differ\n", set, recording,
           backend, p.psnr, p.most, (long long)p.differing, (long long)p.values);
    EXPECT(p.values > 0 && p.psnr >= 60.0);
    EXPECT_LE(p.most, 4);
    /* Rounding moves 2 values in 100,000 across a level; tile weights at half samples move 6 in 10,000. */
    EXPECT_LE(p.differing, 2 + p.values / 5000);
    expect_means(f, &shape, rgb);
    duet_free(rgb);
}

static void expect_clip(int set, const char *recording, const char *backend) {
    fixture f = parity_recording(set, recording);
    expect_frames(set, recording, backend, &f);
    fixture_close(&f);
}

#define PARITY(set, recording)                                                                               \
    TEST(video_set##set##_##recording##_on_ref, 120000) {                                                    \
        expect_clip(set, #recording, "ref");                                                                 \
    }                                                                                                        \
    TEST(video_set##set##_##recording##_on_cpu, 60000) {                                                     \
        expect_clip(set, #recording, "cpu");                                                                 \
    }

PARITY(0, video_tile)
PARITY(0, video_chunks)
PARITY(0, video_tiles)
PARITY(0, video_480)
PARITY(1, video_tile)
PARITY(1, video_chunks)
PARITY(1, video_tiles)
PARITY(1, video_480)
PARITY(2, video_tile)
PARITY(2, video_chunks)
PARITY(2, video_tiles)
PARITY(2, video_464)
PARITY(2, video_480)
PARITY(2, video_496)

/* Latents that a whole request of the reference ended with, where the recording kept all of them: up to 124
 * frames. */
TEST(video_of_whole_requests, 60000) {
    static const struct {
        int set;
        const char *name;
    } request[] = {{1, "base1"},     {2, "base2"},  {1, "frames22"}, {2, "frames39"},
                   {1, "frames124"}, {0, "ladder"}, {1, "shifts"}};
    for (size_t i = 0; i < sizeof request / sizeof *request; i++) {
        char path[96];
        snprintf(path, sizeof path, "requests/%s.safetensors", request[i].name);
        fixture f = fixture_open(path);
        expect_frames(request[i].set, request[i].name, "cpu", &f);
        fixture_close(&f);
    }
}

/* The same numbers where reading device memory, or reading too early, cannot go unnoticed. */
TEST(video_tiles_behind_a_wall, 60000) {
    for (int set = 0; set < 3; set++) expect_clip(set, "video_tile", "walled");
}

/* The inside of a tile must really have been compared: every stage has a tap in the recording. */
TEST(video_recordings_hold_every_stage_of_a_tile, 5000) {
    static const char *const stage[] = {"post_quant",      "tokens",        "block_00.q_rope",
                                        "block_00.k_rope", "block_00.attn", "block_00.out",
                                        "norm_out",        "proj_out",      "raw"};
    for (int set = 0; set < 3; set++) {
        fixture f = parity_recording(set, "video_tile");
        for (size_t i = 0; i < sizeof stage / sizeof *stage; i++) {
            char name[96];
            snprintf(name, sizeof name, "vvae.chunk_0.tile_0_0.%s", stage[i]);
            if (!parity_recorded(&f, name)) FAIL("set %d records no %s", set, name);
        }
        EXPECT(parity_recorded(&f, "vvae.chunk_0.stitched"));
        fixture_close(&f);
    }
}

/* On ordinary values eps hides in rounding (4e-6); recorded once more with a large one in every norm of the decoder. */
TEST(video_norms_use_the_configured_eps, 60000) {
    for (int set = 0; set < 3; set++) {
        fixture f = parity_recording(set, "video_tile"), large = parity_recording(set, "large_eps");
        parity_rig r = parity_rig_open(set, "native", "ref");
        fixture_tensor z = fixture_get(&f, "video_latents");
        parity_ear ear = parity_listen(&large);
        duet_video_vae *vae;
        duet_error e = {0};
        EXPECT_OK(duet_video_vae_open(r.model, r.dev, &vae, &e), e);
        vae->dims.eps = fixture_f32(&large, "eps", 5)[4]; /* text, three of the transformer, video decoder */
        duet_decode_video_args args = {.vae = vae,
                                       .residency = r.residency,
                                       .stream = r.stream,
                                       .config = &r.config->vvae,
                                       .latents = z.data,
                                       .latents_t = z.dim[1],
                                       .latent_h = (int32_t)z.dim[2],
                                       .latent_w = (int32_t)z.dim[3],
                                       .tap = &ear.base};
        EXPECT_OK(duet_decode_video(&args, &e), e);
        EXPECT_EQ(ear.n, 1); /* norm_out */
        parity_expect_taps(&ear, TILE_BOUND);
        parity_ear_free(&ear);
        parity_rig_idle(&r);
        duet_video_vae_close(&vae);
        parity_rig_close(&r);
        fixture_close(&f);
        fixture_close(&large);
    }
}

TEST(video_layouts_decode_to_the_same_bytes, 60000) {
    for (int set = 0; set < 3; set++) {
        fixture f = parity_recording(set, "video_tile");
        duet_shape a_shape, b_shape;
        uint8_t *a = decode(set, "native", "cpu", &f, &a_shape),
                *b = decode(set, "diffusers", "cpu", &f, &b_shape);
        EXPECT(duet_shape_equal(&a_shape, &b_shape));
        EXPECT(!memcmp(a, b, (size_t)(a_shape.dim[0] * a_shape.dim[1] * a_shape.dim[2] * 3)));
        duet_free(a);
        duet_free(b);
        fixture_close(&f);
    }
}
