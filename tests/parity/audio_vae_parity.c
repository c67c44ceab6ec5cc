/* audio_vae_parity.c - the audio decoder of three tiny checkpoints against the reference implementation.
 *
 * The chapter's bound is rel L2 1e-4 on the waveform (model-vae 10.3); fp32 against fp64 was measured at
 * 3e-7..2.5e-6. */
#include "parity/vae_parity.h"

static const double BOUND = 2e-5;

static float *decode(int set, const char *layout, const char *backend, const fixture *f, int64_t *n) {
    parity_rig r = parity_rig_open(set, layout, backend);
    fixture_tensor z = fixture_get(f, "audio_latents");
    parity_ear ear = parity_listen(f);
    duet_audio_vae *vae;
    duet_error e = {0};
    EXPECT_OK(duet_audio_vae_open(r.model, r.dev, &vae, &e), e);
    *n = 2 * z.dim[2] * r.config->avae.hop;
    float *samples = duet_alloc((size_t)*n * sizeof *samples, DUET_MEM_TENSOR);
    EXPECT(samples);
    duet_decode_audio_args args = {.vae = vae,
                                   .residency = r.residency,
                                   .stream = r.stream,
                                   .config = &r.config->avae,
                                   .latents = z.data,
                                   .n_latents = z.dim[2],
                                   .samples = samples,
                                   .tap = &ear.base};
    EXPECT_OK(duet_decode_audio(&args, &e), e);
    EXPECT(parity_expect_taps(&ear, BOUND) > 0);
    printf("     set %d on %s, %" PRId64 " latents: waveform rel L2 %.2g\n", set, backend, z.dim[2],
           parity_distance(f, "audio", &DUET_SHAPE(2, *n / 2), samples));
    parity_ear_free(&ear);
    parity_rig_idle(&r);
    duet_audio_vae_close(&vae);
    parity_rig_close(&r);
    return samples;
}

static void expect_sound(const char *recording, const char *backend) {
    for (int set = 0; set < 3; set++) {
        fixture f = parity_recording(set, recording);
        int64_t n;
        duet_free(decode(set, "native", backend, &f, &n));
        fixture_close(&f);
    }
}

TEST(audio_short_on_ref, 60000) {
    expect_sound("audio_short", "ref");
}
TEST(audio_short_on_cpu, 60000) {
    expect_sound("audio_short", "cpu");
}
TEST(audio_one_on_ref, 60000) {
    expect_sound("audio_one", "ref");
}
TEST(audio_one_on_cpu, 60000) {
    expect_sound("audio_one", "cpu");
}
TEST(audio_clip_on_ref, 60000) {
    expect_sound("audio_clip", "ref");
}
TEST(audio_clip_on_cpu, 60000) {
    expect_sound("audio_clip", "cpu");
}

/* The same numbers where reading device memory, or reading too early, cannot go unnoticed. */
TEST(audio_behind_a_wall, 60000) {
    expect_sound("audio_short", "walled");
}

TEST(audio_recordings_hold_every_stage, 5000) {
    for (int set = 0; set < 3; set++) {
        fixture f = parity_recording(set, "audio_short");
        static const char *const name[] = {"avae.dec_in", "avae.conv_pre", "avae.stage_0.out",
                                           "avae.post",   "avae.wave",     "audio"};
        for (size_t i = 0; i < sizeof name / sizeof *name; i++)
            if (!parity_recorded(&f, name[i])) FAIL("set %d records no %s", set, name[i]);
        fixture_close(&f);
    }
}

TEST(audio_layouts_decode_to_the_same_bytes, 60000) {
    for (int set = 0; set < 3; set++) {
        fixture f = parity_recording(set, "audio_clip");
        int64_t n, m;
        float *a = decode(set, "native", "cpu", &f, &n), *b = decode(set, "diffusers", "cpu", &f, &m);
        EXPECT_EQ(n, m);
        EXPECT(!memcmp(a, b, (size_t)n * sizeof *a));
        duet_free(a);
        duet_free(b);
        fixture_close(&f);
    }
}
