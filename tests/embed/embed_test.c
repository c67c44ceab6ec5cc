/* embed_test.c - libduet as another program uses it: duet.h alone (and synth, to have a model). */
#include "harness/harness.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "duet/duet.h"
#include "store/synth.h"

static duet_error err;
static char path_buf[4][512];

static const char *in_tmp(int slot, const char *name) {
    snprintf(path_buf[slot], sizeof path_buf[slot], "%s/%s", harness_tmp_dir(), name);
    return path_buf[slot];
}

static duet_engine *open_tiny(uint64_t seed) {
    char dir[512];
    snprintf(dir, sizeof dir, "%s/tiny-%d", harness_tmp_dir(), (int)seed);
    duet_synth_options synth = {.out_dir = dir, .seed = seed, .partition = "fl2va"};
    EXPECT_OK(duet_synth(&synth, &err), err);
    duet_engine_options o;
    duet_engine_options_defaults(&o, sizeof o);
    o.model = dir;
    o.threads = 2;
    duet_engine *engine = NULL;
    EXPECT_OK(duet_engine_open(&o, &engine, &err), err);
    return engine;
}

static duet_request short_clip(const char *output) {
    duet_request r;
    duet_request_defaults(&r, sizeof r);
    r.prompt = "a lamp";
    r.width = r.height = 128;
    r.num_frames = 22;
    r.any_length = true;
    r.num_inference_steps = 3;
    r.output = output;
    return r;
}

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

/* ---- stamps and NULLs ---------------------------------------------------------------------------------------- */

TEST(embed_stamps_are_checked, 20000) {
    duet_engine *engine = NULL;
    duet_engine_options o = {.model = "x"};
    EXPECT_EQ(duet_engine_open(&o, &engine, NULL), DUET_E_USAGE);
    EXPECT_EQ(duet_engine_open(NULL, &engine, NULL), DUET_E_USAGE);
    duet_request r = {.prompt = "x"};
    EXPECT_EQ(duet_request_check(&r, NULL), DUET_E_USAGE);
    EXPECT_EQ(duet_request_check(NULL, NULL), DUET_E_USAGE);
    EXPECT_EQ(duet_output_check(&r, NULL), DUET_E_USAGE);
    duet_decode_request d = {.latents = "x"};
    EXPECT_EQ(duet_decode_check(&d, NULL), DUET_E_USAGE);
    EXPECT_EQ(duet_resolve(NULL, &r, NULL, NULL, NULL), DUET_E_USAGE);
    duet_engine_close(&engine); /* NULL-safe */
    duet_cancel(NULL);
    duet_result result = {0};
    duet_result_free(&result);
    duet_result_free(&result);
    duet_model_info info = {0};
    duet_model_info_free(&info);
    duet_string_free(NULL);
}

/* A caller built against a larger struct must not be half understood. */
TEST(embed_larger_struct_is_refused, 2000) {
    struct {
        duet_request r;
        char more[64];
    } newer;
    duet_request_defaults(&newer.r, sizeof newer);
    newer.r.prompt = "x";
    EXPECT_EQ(duet_request_check(&newer.r, NULL), DUET_E_USAGE);
}

/* ---- a run ----------------------------------------------------------------------------------------------------- */

typedef struct seen {
    int resolved, outputs, latents, progress;
    duet_stage last;
    int64_t evaluations;
    duet_engine *cancel_at_first_evaluation;
} seen;

static void listen(void *ctx, const duet_event *e) {
    seen *s = ctx;
    if (e->kind == DUET_EVENT_RESOLVED) {
        EXPECT(e->resolved && e->plan && s->progress == 0);
        s->resolved++;
    } else if (e->kind == DUET_EVENT_OUTPUT) {
        EXPECT(e->path && exists(e->path));
        s->outputs++;
    } else if (e->kind == DUET_EVENT_LATENTS) {
        EXPECT(e->path && exists(e->path) && s->outputs == 0);
        s->latents++;
    } else {
        EXPECT(e->stage >= s->last);
        EXPECT(e->done >= 0 && e->done <= e->total);
        s->last = e->stage;
        s->progress++;
        if (e->stage == DUET_STAGE_DENOISE && e->done > s->evaluations) s->evaluations = e->done;
        if (s->evaluations == 1) duet_cancel(s->cancel_at_first_evaluation);
    }
}

TEST(embed_generate_and_decode, 60000) {
    duet_engine *engine = open_tiny(0);
    duet_request r = short_clip(in_tmp(0, "clip.mp4"));
    r.keep_latents = true;
    seen s = {0};
    static duet_result result, again;
    EXPECT_OK(duet_generate(engine, &r, listen, &s, &result, &err), err);
    EXPECT_EQ(s.resolved, 1);
    EXPECT_EQ(s.outputs, 1);
    EXPECT_EQ(s.latents, 1);
    EXPECT_EQ(s.evaluations, 2);
    EXPECT_EQ(result.num_outputs, 1);
    EXPECT(result.output[0].finished && result.output[0].bytes > 1000);
    EXPECT_EQ(result.output[0].frames, 22);
    EXPECT_EQ(result.plan.evaluations, 2);
    EXPECT(result.seconds > 0 && result.stage_seconds[DUET_STAGE_DENOISE] > 0);
    EXPECT(exists(result.output[0].latents_path));

    duet_decode_request d;
    duet_decode_request_defaults(&d, sizeof d);
    d.latents = result.output[0].latents_path;
    d.output = in_tmp(1, "again.mp4");
    EXPECT_OK(duet_decode_latents(engine, &d, NULL, NULL, &again, &err), err);
    EXPECT_EQ(again.output[0].bytes, result.output[0].bytes);
    EXPECT_STR(again.model_hash, result.model_hash);
    duet_result_free(&again);
    duet_result_free(&result);
    EXPECT(result.output[0].path == NULL);
    duet_engine_close(&engine);
    EXPECT(engine == NULL);
}

TEST(embed_cancel, 60000) {
    duet_engine *engine = open_tiny(1);
    duet_request r = short_clip(in_tmp(0, "clip.mp4"));
    r.num_inference_steps = 20;
    static duet_result result;
    duet_cancel(engine); /* too early: stops the next run, once */
    EXPECT_EQ(duet_generate(engine, &r, NULL, NULL, &result, NULL), DUET_E_CANCELLED);
    duet_result_free(&result);

    seen s = {.cancel_at_first_evaluation = engine};
    EXPECT_EQ(duet_generate(engine, &r, listen, &s, &result, &err), DUET_E_CANCELLED);
    EXPECT_EQ(s.evaluations, 1);
    EXPECT(!result.output[0].finished && !exists(r.output));
    duet_result_free(&result);

    r.num_inference_steps = 3; /* the engine is as good as new */
    err = (duet_error){0};
    EXPECT_OK(duet_generate(engine, &r, NULL, NULL, &result, &err), err);
    duet_result_free(&result);
    duet_engine_close(&engine);
}

TEST(embed_two_engines, 60000) {
    duet_engine *a = open_tiny(0), *b = open_tiny(1);
    static duet_result ra, rb;
    duet_request r = short_clip(in_tmp(0, "a.mp4"));
    EXPECT_OK(duet_generate(a, &r, NULL, NULL, &ra, &err), err);
    r.output = in_tmp(1, "b.mp4");
    duet_cancel(a);
    EXPECT_OK(duet_generate(b, &r, NULL, NULL, &rb, &err), err); /* a's cancel is a's */
    EXPECT(strcmp(ra.model_hash, rb.model_hash) != 0);
    duet_result_free(&ra);
    duet_result_free(&rb);
    duet_engine_close(&a);
    duet_engine_close(&b);
}

TEST(embed_errors_name_the_field, 20000) {
    duet_engine *engine = open_tiny(2);
    duet_request r = short_clip(in_tmp(0, "clip.mp4"));
    static duet_result result;
    r.width = 131;
    EXPECT_EQ(duet_generate(engine, &r, NULL, NULL, &result, &err), DUET_E_REQUEST);
    EXPECT_STR(err.param, "width");
    EXPECT_STR(err.code, "invalid_value");
    EXPECT_EQ(result.num_outputs, 0);
    r.width = 128;
    r.output = NULL;
    err = (duet_error){0};
    EXPECT_EQ(duet_generate(engine, &r, NULL, NULL, &result, &err), DUET_E_REQUEST);
    EXPECT_STR(err.param, "output");
    duet_plan_info plan;
    duet_resolved resolved;
    err = (duet_error){0};
    EXPECT_OK(duet_resolve(engine, &r, &resolved, &plan, &err), err);
    EXPECT_EQ(plan.frames, 22);
    char *json = duet_resolved_json(&resolved, 2);
    EXPECT_HAS(json, "\"num_frames\": 22");
    duet_string_free(json);
    duet_engine_close(&engine);
}

/* ---- refused allocations --------------------------------------------------------------------------------------- */

static duet_status open_and_resolve(const char *dir) {
    duet_engine_options o;
    duet_engine_options_defaults(&o, sizeof o);
    o.model = dir;
    o.threads = 1;
    duet_request r = short_clip(NULL);
    duet_engine *engine = NULL;
    static duet_resolved resolved;
    static duet_plan_info plan;
    duet_status st = duet_engine_open(&o, &engine, NULL);
    if (st == DUET_OK) st = duet_resolve(engine, &r, &resolved, &plan, NULL);
    duet_engine_close(&engine);
    return st;
}

/* From opening to the plan, one refused allocation at a time (every 11th: there are thousands): an error, no leak. */
TEST(embed_refused_allocations, 120000) {
    duet_engine *engine = open_tiny(0);
    duet_engine_close(&engine);
    char dir[512];
    snprintf(dir, sizeof dir, "%s/tiny-0", harness_tmp_dir());
    EXPECT_EQ(open_and_resolve(dir), DUET_OK);
    int64_t before_bytes = duet_mem_live_total_bytes();
    int refused = 0;
    for (int64_t nth = 0;; nth += 11) {
        duet_mem_fault_arm(nth);
        duet_status st = open_and_resolve(dir);
        bool fired = duet_mem_fault_fired();
        duet_mem_fault_arm(-1);
        EXPECT_EQ(duet_mem_live_total_bytes(), before_bytes);
        if (!fired) {
            EXPECT_EQ(st, DUET_OK);
            break;
        }
        if (st != DUET_E_MEMORY)
            FAIL("allocation %lld refused: status %s", (long long)nth, duet_status_name(st));
        refused++;
    }
    EXPECT(refused > 50);
}
