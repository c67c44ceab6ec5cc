/* pipeline_test.c - whole requests: the same bits whatever runs them (promise P1), and failures that say where (P5). */
#include "support/pipeline.h"

#include "harness/harness.h"

/* Two tiles side by side, one chunk, three evaluations. */
static pipeline_spec small_request(void) {
    return (pipeline_spec){.width = 320, .height = 160, .frames = 22, .points = 4, .seed = 7};
}

/* One tile of half the size: the scalar reference takes seconds for it, not minutes. */
static pipeline_spec smallest_request(void) {
    return (pipeline_spec){.width = 160, .height = 128, .frames = 22, .points = 3, .seed = 7};
}

static void same_on(pipeline_spec s, uint64_t seed, const char *a_backend, int a_threads,
                    const char *b_backend, int b_threads) {
    pipeline_clip a, b;
    s.model = pipeline_model(seed, "native");
    s.backend = a_backend, s.threads = a_threads;
    pipeline_make(&s, &a);
    s.backend = b_backend, s.threads = b_threads;
    pipeline_make(&s, &b);
    char what[80];
    snprintf(what, sizeof what, "%s x%d against %s x%d", a_backend, a_threads, b_backend, b_threads);
    pipeline_expect_same(&a, &b, what);
    pipeline_free(&a), pipeline_free(&b);
}

TEST(request_twice_same_bits, 120000) {
    same_on(small_request(), 0, "cpu", 1, "cpu", 1);
}
TEST(request_threads_same_bits, 120000) {
    same_on(small_request(), 0, "cpu", 1, "cpu", 2);
    same_on(small_request(), 1, "cpu", 2, "cpu", 3);
}
TEST(request_ref_threads_same_bits, 120000) {
    same_on(smallest_request(), 1, "ref", 1, "ref", 3);
}
TEST(request_walled_equals_ref_set0, 120000) {
    same_on(smallest_request(), 0, "ref", 1, "walled", 1);
}
TEST(request_walled_equals_ref_set1, 120000) {
    same_on(smallest_request(), 1, "ref", 1, "walled", 1);
}
TEST(request_walled_equals_ref_set2, 120000) {
    same_on(smallest_request(), 2, "ref", 1, "walled", 1);
}

TEST(request_layouts_same_bits, 120000) {
    for (uint64_t seed = 0; seed < 3; seed++) {
        pipeline_clip a, b;
        pipeline_spec s = small_request();
        s.model = pipeline_model(seed, "native");
        pipeline_make(&s, &a);
        s.model = pipeline_model(seed, "diffusers");
        pipeline_make(&s, &b);
        pipeline_expect_same(&a, &b, "native against diffusers");
        pipeline_free(&a), pipeline_free(&b);
    }
}

TEST(request_cpu_close_to_ref, 120000) {
    for (uint64_t seed = 0; seed < 3; seed++) {
        pipeline_clip a, b;
        pipeline_spec s = smallest_request();
        s.model = pipeline_model(seed, "native");
        s.backend = "ref";
        pipeline_make(&s, &a);
        s.backend = "cpu";
        pipeline_make(&s, &b);
        EXPECT_LE(pipeline_rel_l2(b.video_latents, a.video_latents, a.n_video_latents), 1e-5);
        EXPECT_LE(pipeline_rel_l2(b.audio_latents, a.audio_latents, a.n_audio_latents), 1e-5);
        EXPECT_LE(pipeline_rel_l2(b.sound, a.sound, 2 * a.format.samples), 1e-4);
        pipeline_free(&a), pipeline_free(&b);
    }
}

TEST(request_prompts_and_seeds_matter, 120000) {
    pipeline_clip a, b, c;
    pipeline_spec s = small_request();
    s.model = pipeline_model(0, "native");
    pipeline_make(&s, &a);
    s.prompt = "another prompt";
    pipeline_make(&s, &b);
    s.seed = 8;
    pipeline_make(&s, &c);
    size_t bytes = (size_t)(a.format.frames * a.format.width * a.format.height * 3);
    EXPECT(memcmp(a.rgb, b.rgb, bytes) != 0);
    EXPECT(memcmp(b.rgb, c.rgb, bytes) != 0);
    pipeline_free(&a), pipeline_free(&b), pipeline_free(&c);
}

TEST(request_cancelled_says_so, 60000) {
    volatile int cancel = 1;
    pipeline_spec s = small_request();
    s.model = pipeline_model(0, "native");
    s.cancel = &cancel;
    pipeline_clip clip;
    duet_error err = {0};
    EXPECT_EQ(pipeline_try(&s, &clip, &err), DUET_E_CANCELLED);
    EXPECT(!clip.committed);
    pipeline_free(&clip);
}
