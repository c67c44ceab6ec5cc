/* noise_test.c - both noise streams of one request, row for row as the reference packs them. */
#include "harness/fixture.h"

#include "engine/noise.h"

enum { CHANNELS = 6, FRAMES = 7, HEIGHT = 4, WIDTH = 6, AUDIO = 37, AUDIO_CHANNELS = 8 };
enum { N_VIDEO = CHANNELS * FRAMES * HEIGHT * WIDTH, N_AUDIO = 2 * AUDIO * AUDIO_CHANNELS };

static void draw(uint64_t seed, int patch, duet_noise_stream stream, float *video, float *audio) {
    duet_error err = {0};
    duet_noise_args args = {.seed = seed,
                            .stream = stream,
                            .channels = CHANNELS,
                            .latent_h = HEIGHT,
                            .latent_w = WIDTH,
                            .patch_h = patch,
                            .patch_w = patch,
                            .audio_channels = AUDIO_CHANNELS,
                            .video_latents = FRAMES,
                            .audio_latents = AUDIO,
                            .video_rows = video,
                            .audio_rows = audio};
    EXPECT_OK(duet_noise_draw(&args, &err), err);
}

TEST(noise_rows_equal_the_reference_for_both_streams, 2000) {
    fixture f = fixture_open("golden/noise.safetensors");
    float video[N_VIDEO], audio[N_AUDIO];
    for (int patch = 1; patch <= 2; patch++) {
        char name[64];
        snprintf(name, sizeof name, "request.patch_%d.video", patch);
        const float *want = fixture_f32(&f, name, N_VIDEO);
        draw(7, patch, DUET_NOISE_SGLANG, video, audio);
        EXPECT_SAME_F32(video, want, N_VIDEO);
        snprintf(name, sizeof name, "request.patch_%d.audio_sglang", patch);
        EXPECT_SAME_F32(audio, fixture_f32(&f, name, N_AUDIO), N_AUDIO);

        draw(7, patch, DUET_NOISE_DIFFUSERS, video, audio);
        EXPECT_SAME_F32(video, want, N_VIDEO);
        snprintf(name, sizeof name, "request.patch_%d.audio_diffusers", patch);
        EXPECT_SAME_F32(audio, fixture_f32(&f, name, N_AUDIO), N_AUDIO);
    }
    fixture_close(&f);
}

TEST(noise_depends_on_the_low_32_bits_of_the_seed, 2000) {
    float a[N_VIDEO], b[N_VIDEO], audio[N_AUDIO];
    draw(3, 2, DUET_NOISE_SGLANG, a, audio);
    draw(3 + (1ull << 40), 2, DUET_NOISE_SGLANG, b, audio);
    EXPECT_SAME_F32(a, b, N_VIDEO);
    draw(4, 2, DUET_NOISE_SGLANG, b, audio);
    EXPECT(memcmp(a, b, sizeof a) != 0);
}
