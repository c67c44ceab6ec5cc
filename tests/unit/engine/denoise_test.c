/* denoise_test.c - the solver against recorded runs of the reference, bit for bit, on every host backend. */
#include "harness/fixture.h"

#include "engine/denoise.c"

enum { WIDTH = 16 };

static void replay(const fixture *f, const char *run, const char *backend) {
    char name[64];
    duet_error err = {0};
    duet_denoiser d = {.setup = {.dit = NULL}};
    duet_device *dev;
    EXPECT_OK(duet_device_open(&(duet_device_options){.backend = backend, .n_threads = 1}, &dev, &err), err);
    EXPECT_OK(duet_stream_open(dev, 0, &d.setup.stream, &err), err);

    snprintf(name, sizeof name, "euler.%s.sigmas", run);
    fixture_tensor sigmas = fixture_get(f, name);
    snprintf(name, sizeof name, "euler.%s.velocity", run);
    const float *velocity = fixture_f32(f, name, (sigmas.n - 1) * WIDTH);
    snprintf(name, sizeof name, "euler.%s.samples", run);
    const float *samples = fixture_f32(f, name, sigmas.n * WIDTH);

    side s = {.name = "video", .width = WIDTH, .target_rows = 1, .sigma = sigmas.data};
    EXPECT_OK(duet_device_alloc(dev, WIDTH * FLOAT_BYTES, "x", (void **)&s.rows, &err), err);
    EXPECT_OK(duet_device_alloc(dev, WIDTH * FLOAT_BYTES, "v", (void **)&s.velocity, &err), err);
    duet_copy_in(d.setup.stream, s.rows, samples, WIDTH * FLOAT_BYTES);
    for (runner r = {.d = &d}; r.evaluation < sigmas.n - 1; r.evaluation++) {
        float got[WIDTH];
        duet_copy_in(d.setup.stream, s.velocity, velocity + r.evaluation * WIDTH, WIDTH * FLOAT_BYTES);
        solver_step(&r, &s);
        duet_copy_out(d.setup.stream, got, s.rows, WIDTH * FLOAT_BYTES);
        EXPECT_OK(duet_stream_sync(d.setup.stream, &err), err);
        EXPECT_SAME_F32(got, samples + (r.evaluation + 1) * WIDTH, WIDTH);
    }
    duet_device_free(dev, s.rows);
    duet_device_free(dev, s.velocity);
    duet_stream_close(&d.setup.stream);
    duet_device_close(&dev);
}

TEST(solver_equals_the_reference_over_whole_runs, 5000) {
    static const char *const runs[] = {"n5", "n9", "n50_video", "n50_audio", "given"};
    fixture f = fixture_open("golden/solver.safetensors");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        replay(&f, runs[i], "ref");
        replay(&f, runs[i], "cpu");
    }
    fixture_close(&f);
}
