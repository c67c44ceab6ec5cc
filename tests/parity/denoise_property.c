/* denoise_property.c - what must hold of every denoise, whatever the weights: same bits for any thread
 * count, chunk or layout (P1), the announced bytes (P6), failures that name evaluation and tensor (P5), a
 * cancel that stops inside an evaluation. Tiny random checkpoints of all three dimension sets are made on
 * the spot. */
#include "parity/dit_case.h"

#include "store/synth.h"

enum { SETS = 3 };

static const char *make_model(uint64_t seed, const char *layout) {
    static char path[SETS][512];
    static int next;
    char *out = path[next++ % SETS];
    duet_error err = {0};
    snprintf(out, sizeof path[0], "%s/%s-%d", harness_tmp_dir(), layout, (int)seed);
    EXPECT_OK(duet_synth(
                  &(duet_synth_options){.out_dir = out, .layout = layout, .partition = "fl2va", .seed = seed},
                  &err),
              err);
    return out;
}

static dit_case small_case(const char *model, const char *backend) {
    return (dit_case){.model = model,
                      .backend = backend,
                      .threads = 2,
                      .width = 96,
                      .height = 64,
                      .frames = 22,
                      .points = 4,
                      .text_rows = 11,
                      .text_seed = 5,
                      .seed = 42};
}

static dit_result run_ok(const dit_case *c) {
    dit_result r = dit_run(c);
    if (r.status != DUET_OK) FAIL("%s", r.error.message);
    return r;
}

static void expect_same(dit_result *r, const dit_result *want) {
    EXPECT_EQ(r->n_video, want->n_video);
    EXPECT_SAME_F32(r->video, want->video, want->n_video);
    EXPECT_SAME_F32(r->audio, want->audio, want->n_audio);
    dit_result_free(r);
}

static void expect_other(dit_result *r, const dit_result *other) {
    EXPECT(memcmp(r->video, other->video, (size_t)other->n_video * sizeof(float)) != 0);
    dit_result_free(r);
}

TEST(denoise_gives_the_same_bits_for_any_threads_and_twice, 120000) {
    static const char *const backends[] = {"ref", "cpu"};
    for (uint64_t set = 0; set < SETS; set++)
        for (int b = 0; b < 2; b++) {
            dit_case c = small_case(make_model(set, b ? "diffusers" : "native"), backends[b]);
            dit_result first = run_ok(&c), again = run_ok(&c);
            expect_same(&again, &first);
            for (c.threads = 1; c.threads <= 3; c.threads += 2) {
                dit_result other = run_ok(&c);
                expect_same(&other, &first);
            }
            dit_result_free(&first);
        }
}

TEST(denoise_gives_the_same_bits_for_any_feed_forward_chunk, 120000) {
    static const char *const backends[] = {"ref", "cpu"};
    for (uint64_t set = 0; set < SETS; set++)
        for (int b = 0; b < 2; b++) {
            dit_case c = small_case(make_model(set + 3 * (uint64_t)b, "native"), backends[b]);
            c.frames = 39;
            dit_result whole = run_ok(&c);
            c.mlp_budget_bytes = 1; /* 64 rows */
            dit_result cut = run_ok(&c);
            expect_same(&cut, &whole);
            dit_result_free(&whole);
        }
}

/* No network and no stage may read device memory or assume that an op has run. */
TEST(denoise_on_walled_equals_ref, 60000) {
    for (uint64_t set = 0; set < SETS; set++) {
        dit_case c = small_case(make_model(set, "native"), "ref");
        dit_result ref = run_ok(&c);
        collector taps = collector_make();
        c.backend = "walled";
        c.taps = &taps; /* taps must not disturb either */
        dit_result walled = run_ok(&c);
        expect_same(&walled, &ref);
        dit_result_free(&ref);
        collector_free(&taps);
    }
}

TEST(layouts_of_the_same_weights_denoise_to_the_same_bits, 60000) {
    for (uint64_t set = 0; set < SETS; set++) {
        dit_case c = small_case(make_model(set, "native"), "cpu");
        dit_result native = run_ok(&c);
        c.model = make_model(set, "diffusers");
        dit_result other = run_ok(&c);
        expect_same(&other, &native);
        dit_result_free(&native);
    }
}

TEST(seed_prompt_and_canvas_change_the_result, 60000) {
    dit_case c = small_case(make_model(1, "native"), "cpu"), changed = c;
    dit_result base = run_ok(&c);
    changed.seed = 43;
    dit_result r = run_ok(&changed);
    expect_other(&r, &base);
    changed = c;
    changed.text_seed = 6; /* another prompt under the same noise */
    r = run_ok(&changed);
    expect_other(&r, &base);
    changed = c;
    changed.text_rows = 12; /* moves the media clock too */
    r = run_ok(&changed);
    expect_other(&r, &base);
    dit_result_free(&base);
}

/* The device's own accounting against what the plan was told, over shapes that make either side of each
 * maximum win. */
TEST(denoise_holds_exactly_the_announced_bytes, 60000) {
    static const struct {
        int64_t points, frames, text_rows;
        int32_t width, height;
    } shapes[] = {{2, 22, 1, 32, 32}, {50, 22, 3, 32, 32}, {3, 39, 40, 96, 64}, {4, 107, 5, 64, 32}};
    for (uint64_t set = 0; set < SETS; set++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            dit_case c = small_case(make_model(set + 3 * i, "native"), "cpu");
            c.points = shapes[i].points;
            c.frames = shapes[i].frames;
            c.text_rows = shapes[i].text_rows;
            c.width = shapes[i].width;
            c.height = shapes[i].height;
            dit_result r = run_ok(&c);
            EXPECT_EQ(r.peak_bytes, r.planned_bytes);
            dit_result_free(&r);
        }
}

/* Conditions are inputs: they change what is made, need their bytes and nothing else. */
TEST(condition_rows_reach_the_network, 20000) {
    static const duet_pack_condition key = {.kind = DUET_CONDITION_FIRST_FRAME};
    static const duet_pack_condition refs[] = {{.kind = DUET_CONDITION_IMAGE, .latent_h = 2, .latent_w = 4},
                                               {.kind = DUET_CONDITION_AUDIO, .audio_latents = 3}};
    float rows[6 * 4 * 6] = {0.5f}, sound[6 * 8] = {0.25f}; /* set 0: 24 and 8 features */
    dit_case c = small_case(make_model(0, "native"), "cpu");
    dit_result plain = run_ok(&c);
    c.conditions = &key;
    c.n_conditions = 1;
    c.video_conditions = rows;
    dit_result with_key = run_ok(&c), r;
    EXPECT_EQ(with_key.peak_bytes, with_key.planned_bytes);
    rows[7] = 2.0f;
    r = run_ok(&c);
    expect_other(&r, &with_key);
    expect_other(&with_key, &plain);
    c.conditions = refs;
    c.n_conditions = 2;
    c.audio_conditions = sound;
    r = run_ok(&c);
    EXPECT_EQ(r.peak_bytes, r.planned_bytes);
    expect_other(&r, &plain);
    c.audio_conditions = NULL;
    r = dit_run(&c);
    EXPECT_EQ(r.status, DUET_E_INTERNAL);
    dit_result_free(&r);
    dit_result_free(&plain);
}

/* ---- faults (P5) ---- */

static float spoiled[1 << 20];

/* Replace a weight by our own copy, all `value` or, at `at`, one bad element. */
static void replace(duet_weight *w, float value, int64_t at, float bad) {
    int64_t n = duet_weight_rows(w) * duet_weight_row_elems(w);
    EXPECT_LE(n, sizeof spoiled / sizeof *spoiled);
    if (at < 0)
        for (int64_t i = 0; i < n; i++) spoiled[i] = value;
    else
        for (int64_t r = 0; r < duet_weight_rows(w); r++)
            EXPECT(duet_widen_to_f32(w->dtype, duet_weight_row(w, r), duet_weight_row_elems(w),
                                     spoiled + r * duet_weight_row_elems(w)));
    if (at >= 0) spoiled[at] = bad;
    *w = duet_weight_view(w->name, DUET_F32, w->shape, spoiled);
}

static void one_nan_in_a_block(duet_dit *dit) {
    replace(&dit->blocks[1].fc2, 0, 17, NAN);
}

static void one_infinity_in_the_refiner(duet_dit *dit) {
    replace(&dit->refiner[0].out, 0, 3, INFINITY);
}

static void silent_audio_head(duet_dit *dit) {
    replace(&dit->audio_out.w, 0.0f, -1, 0);
    dit->audio_out.bias.n_pieces = 0;
}

static void expect_failure(void (*spoil)(duet_dit *), const char *where, const char *what) {
    dit_case c = small_case(make_model(2, "native"), "cpu");
    c.spoil = spoil;
    dit_result r = dit_run(&c);
    EXPECT_EQ(r.status, DUET_E_RUN);
    EXPECT_HAS(r.error.message, "denoise: evaluation 1 of 3: ");
    EXPECT_HAS(r.error.message, where);
    EXPECT_HAS(r.error.message, what);
    dit_result_free(&r);
}

TEST(a_nan_weight_fails_naming_evaluation_and_tensor, 20000) {
    expect_failure(one_nan_in_a_block, "video_velocity", "not finite");
}

TEST(an_infinite_refiner_weight_fails_naming_evaluation_and_tensor, 20000) {
    expect_failure(one_infinity_in_the_refiner, "video_velocity", "not finite");
}

TEST(a_silent_head_fails_naming_evaluation_and_tensor, 20000) {
    expect_failure(silent_audio_head, "audio_velocity", "equal");
}

/* ---- progress and cancel ---- */

typedef struct watcher {
    volatile int cancel;
    int64_t cancel_at, seen, total;
} watcher;

static void watch(void *ctx, duet_stage stage, int64_t done, int64_t total) {
    watcher *w = ctx;
    EXPECT_EQ(stage, DUET_STAGE_DENOISE);
    EXPECT(done >= w->seen);
    w->seen = done;
    w->total = total;
    if (done == w->cancel_at) w->cancel = 1;
}

TEST(progress_counts_evaluations_and_cancel_stops_between_them, 20000) {
    watcher w = {.cancel_at = -1};
    duet_progress progress = {.report = watch, .ctx = &w, .cancel = &w.cancel};
    dit_case c = small_case(make_model(0, "native"), "cpu");
    c.progress = &progress;
    dit_result r = run_ok(&c);
    EXPECT_EQ(w.seen, 3);
    EXPECT_EQ(w.total, 3);
    dit_result_free(&r);

    w = (watcher){.cancel_at = 2};
    progress.cancel = &w.cancel;
    r = dit_run(&c);
    EXPECT_EQ(r.status, DUET_E_CANCELLED);
    EXPECT_EQ(w.seen, 2);
    dit_result_free(&r);
}

/* Promise P4: a stop that comes when the last evaluation is done does not throw the latents away. */
TEST(cancel_after_the_last_evaluation_keeps_the_latents, 20000) {
    watcher w = {.cancel_at = 3};
    duet_progress progress = {.report = watch, .ctx = &w, .cancel = &w.cancel};
    dit_case c = small_case(make_model(0, "native"), "cpu");
    c.progress = &progress;
    dit_result r = run_ok(&c);
    EXPECT_EQ(w.seen, 3);
    EXPECT_EQ(w.cancel, 1);
    dit_result_free(&r);
}

/* A tap that cancels when it is offered a tensor of the middle of an evaluation. */
static volatile int stop;
static bool stop_inside(duet_tap *tap, const char *name) {
    (void)tap;
    if (strcmp(name, "dit.block_00.out") == 0) stop = 1;
    EXPECT(strcmp(name, "dit.block_01.out") != 0);
    return false;
}

TEST(cancel_stops_between_blocks, 20000) {
    collector c = collector_make();
    c.tap.wants = stop_inside;
    duet_progress progress = {.cancel = &stop};
    dit_case k = small_case(make_model(0, "native"), "cpu");
    k.taps = &c;
    k.progress = &progress;
    stop = 0;
    dit_result r = dit_run(&k);
    EXPECT_EQ(r.status, DUET_E_CANCELLED);
    dit_result_free(&r);
    collector_free(&c);
}
