/* pipeline.c - see pipeline.h. */
#include "support/pipeline.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "harness/harness.h"
#include "nn/tokenizer.h"
#include "store/safetensors.h"
#include "store/synth.h"

const char *pipeline_model(uint64_t seed, const char *layout) {
    static char path[512];
    snprintf(path, sizeof path, "%s/model-%s-%llu", harness_tmp_dir(), layout, (unsigned long long)seed);
    duet_synth_options options = {
        .shape = "tiny", .layout = layout, .partition = "fl2va", .seed = seed, .out_dir = path};
    duet_error err = {0};
    EXPECT_OK(duet_synth(&options, &err), err);
    return path;
}

/* ---- a sink that keeps everything ------------------------------------------------------------------------ */

typedef struct memory_sink {
    duet_sink base;
    pipeline_clip *clip;
} memory_sink;

static duet_status keep_open(duet_sink *self, const duet_clip_format *format, duet_error *err) {
    (void)err;
    pipeline_clip *c = ((memory_sink *)self)->clip;
    c->format = *format;
    c->rgb = malloc((size_t)(format->frames * format->width * format->height * 3));
    c->sound = malloc((size_t)format->samples * 2 * sizeof(float));
    return DUET_OK;
}

static duet_status keep_frames(duet_sink *self, const uint8_t *rgb, int64_t n_frames, duet_error *err) {
    (void)err;
    pipeline_clip *c = ((memory_sink *)self)->clip;
    int64_t frame_bytes = (int64_t)c->format.width * c->format.height * 3;
    EXPECT(c->frames_got + n_frames <= c->format.frames);
    memcpy(c->rgb + c->frames_got * frame_bytes, rgb, (size_t)(n_frames * frame_bytes));
    c->frames_got += n_frames;
    return DUET_OK;
}

static duet_status keep_sound(duet_sink *self, const float *planar, int64_t n_samples, duet_error *err) {
    (void)err;
    pipeline_clip *c = ((memory_sink *)self)->clip;
    EXPECT_EQ(n_samples, c->format.samples);
    memcpy(c->sound, planar, (size_t)n_samples * 2 * sizeof(float));
    return DUET_OK;
}

static duet_status keep_close(duet_sink *self, bool commit, duet_error *err) {
    (void)err;
    if (commit) ((memory_sink *)self)->clip->committed = true;
    return DUET_OK;
}

static duet_status make_sink(void *ctx, int32_t output, const char *path, duet_sink **out, duet_error *err) {
    (void)output, (void)path, (void)err;
    memory_sink *s = calloc(1, sizeof *s);
    *s = (memory_sink){{keep_open, keep_frames, keep_sound, keep_close}, ctx};
    *out = &s->base;
    return DUET_OK;
}

static void dispose_sink(void *ctx, duet_sink **sink) {
    (void)ctx;
    free(*sink);
    *sink = NULL;
}

/* ---- one request ----------------------------------------------------------------------------------------- */

typedef struct opened {
    duet_model *model;
    duet_device *device;
    duet_tokenizer *tokenizer;
    int32_t *ids;
    int64_t n_ids;
    duet_model_hashes hashes;
    duet_resolved resolved;
    duet_plan plan;
} opened;

static duet_status open_all(const pipeline_spec *s, opened *o, duet_error *err) {
    const char *prompt = s->prompt ? s->prompt : "a small test";
    duet_tokenizer_files files;
    duet_plan_args args;
    duet_request q;
    duet_request_defaults(&q, sizeof q);
    q.prompt = prompt;
    q.width = s->width, q.height = s->height;
    q.num_frames = s->frames, q.any_length = true;
    q.num_inference_steps = s->points, q.seed = s->seed;
    q.noise = s->noise;
    duet_status st;
    TRY(st, done, duet_request_check(&q, err));
    TRY(st, done, duet_model_open(&(duet_model_options){.path = s->model}, &o->model, err));
    TRY(st, done,
        duet_device_open(
            &(duet_device_options){.backend = s->backend, .n_threads = s->threads ? s->threads : 1},
            &o->device, err));
    TRY(st, done, duet_model_tokenizer_files(o->model, &files, err));
    TRY(st, done, duet_tokenizer_open(&files, &o->tokenizer, err));
    TRY(st, done,
        duet_tokenizer_encode(o->tokenizer, prompt, (int64_t)strlen(prompt), &o->ids, &o->n_ids, err));
    duet_request_model m = {
        .config = duet_model_config_get(o->model), .serves_t2va = true, .prompt_tokens = o->n_ids};
    TRY(st, done, duet_request_resolve(&q, &m, &o->resolved, &args, err));
    TRY(st, done, duet_plan_build(&args, m.config, &o->plan, err));
    TRY(st, done, duet_model_hash(o->model, &o->hashes, err));
done:
    return st;
}

static void close_all(opened *o) {
    duet_free(o->ids);
    duet_tokenizer_close(&o->tokenizer);
    duet_device_close(&o->device);
    duet_model_close(&o->model);
}

static void read_latents(const char *path, pipeline_clip *out) {
    duet_st_file *file = NULL;
    duet_error err = {0};
    EXPECT_OK(duet_st_open(path, &file, &err), err);
    const duet_st_tensor *v = duet_st_find(file, "video_latents"), *a = duet_st_find(file, "audio_latents");
    EXPECT(v && a);
    out->n_video_latents = v->bytes / 4;
    out->n_audio_latents = a->bytes / 4;
    out->video_latents = malloc((size_t)v->bytes);
    out->audio_latents = malloc((size_t)a->bytes);
    memcpy(out->video_latents, v->data, (size_t)v->bytes);
    memcpy(out->audio_latents, a->data, (size_t)a->bytes);
    duet_st_close(&file);
}

duet_status pipeline_try(const pipeline_spec *s, pipeline_clip *out, duet_error *err) {
    static int counter;
    char name[512];
    snprintf(name, sizeof name, "%s/clip%d.mp4", harness_tmp_dir(), counter++);
    *out = (pipeline_clip){0};
    opened o = {0};
    duet_run_result result = {0};
    duet_sink_factory sinks = {make_sink, dispose_sink, out};
    duet_run_events events = {.cancel = s->cancel};
    duet_status st = open_all(s, &o, err);
    if (st == DUET_OK)
        st = duet_run(&(duet_run_args){.model = o.model,
                                       .device = o.device,
                                       .resolved = &o.resolved,
                                       .plan = &o.plan,
                                       .hashes = &o.hashes,
                                       .prompt_ids = o.ids,
                                       .n_prompt_ids = o.n_ids,
                                       .output = name,
                                       .init_noise = s->init_noise,
                                       .dump_dir = s->dump_dir,
                                       .keep_latents = true,
                                       .sinks = &sinks,
                                       .events = &events},
                      &result, err);
    if (result.output[0].latents_path) read_latents(result.output[0].latents_path, out);
    duet_run_result_free(&result);
    if (o.device) EXPECT_EQ(duet_device_live_bytes(o.device), 0); /* also after a failure */
    close_all(&o);
    return st;
}

void pipeline_make(const pipeline_spec *s, pipeline_clip *out) {
    duet_error err = {0};
    EXPECT_OK(pipeline_try(s, out, &err), err);
    EXPECT(out->committed);
    EXPECT_EQ(out->frames_got, out->format.frames);
}

void pipeline_free(pipeline_clip *c) {
    free(c->rgb), free(c->sound), free(c->video_latents), free(c->audio_latents);
    *c = (pipeline_clip){0};
}

void pipeline_expect_same(const pipeline_clip *a, const pipeline_clip *b, const char *what) {
    int64_t rgb_bytes = a->format.frames * a->format.width * a->format.height * 3;
    if (memcmp(&a->format, &b->format, sizeof a->format) != 0) FAIL("%s: other format", what);
    if (memcmp(a->video_latents, b->video_latents, (size_t)a->n_video_latents * 4) != 0)
        FAIL("%s: other video latents", what);
    if (memcmp(a->audio_latents, b->audio_latents, (size_t)a->n_audio_latents * 4) != 0)
        FAIL("%s: other audio latents", what);
    if (memcmp(a->rgb, b->rgb, (size_t)rgb_bytes) != 0) FAIL("%s: other frames", what);
    if (memcmp(a->sound, b->sound, (size_t)a->format.samples * 8) != 0) FAIL("%s: other sound", what);
}

double pipeline_rel_l2(const float *got, const float *want, int64_t n) {
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        diff += d * d;
        norm += (double)want[i] * (double)want[i];
    }
    return norm > 0 ? sqrt(diff / norm) : diff > 0 ? INFINITY : 0;
}
