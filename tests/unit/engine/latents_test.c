/* latents_test.c - what duet_latents_read accepts is what duet_latents_write wrote, whole and of this model. */
#include "harness/harness.h"

#include "engine/latents.h"

static const duet_model_config config = {.vvae = {.latent_channels = 3}, .avae = {.latent_channels = 2}};
static const duet_model_hashes hashes = {
    .component = {[DUET_COMPONENT_VVAE] = "v", [DUET_COMPONENT_AVAE] = "a"}};

/* 7 latent frames are 22 frames, which have 37 audio latents. */
static duet_status round_trip(int64_t video_latents, int64_t audio_latents, float value, duet_error *err) {
    char path[512];
    snprintf(path, sizeof path, "%s/l.safetensors", harness_tmp_dir());
    duet_latents l = {.video_channels = 3,
                      .latent_h = 2,
                      .latent_w = 4,
                      .audio_channels = 2,
                      .video_latents = video_latents,
                      .audio_latents = audio_latents,
                      .hash_vvae = "v",
                      .hash_avae = "a"};
    duet_latents back = {0};
    EXPECT_OK(duet_latents_alloc(&l, err), *err);
    for (int64_t i = 0; i < 3 * video_latents * 8; i++) l.video[i] = (float)i;
    for (int64_t i = 0; i < 4 * audio_latents; i++) l.audio[i] = value;
    EXPECT_OK(duet_latents_write(&l, path, err), *err);
    duet_status st = duet_latents_read(path, &config, &hashes, &back, err);
    if (st == DUET_OK)
        EXPECT(memcmp(back.video, l.video, (size_t)(3 * video_latents * 8) * sizeof(float)) == 0);
    duet_latents_free(&back);
    duet_latents_free(&l);
    return st;
}

TEST(latents_round_trip, 5000) {
    duet_error err = {0};
    EXPECT_OK(round_trip(7, 37, 0.5f, &err), err);
    EXPECT_OK(round_trip(12, 65, 0.5f, &err), err);
}

TEST(latents_must_fit_each_other, 5000) {
    duet_error frames = {0}, sound = {0}, finite = {0};
    EXPECT_EQ(round_trip(8, 37, 0.5f, &frames), DUET_E_REQUEST);
    EXPECT_EQ(round_trip(7, 36, 0.5f, &sound), DUET_E_REQUEST);
    EXPECT_STR(sound.param, "latents");
    EXPECT_HAS(sound.message, "37 audio latents");
    EXPECT_EQ(round_trip(7, 37, NAN, &finite), DUET_E_REQUEST);
}
