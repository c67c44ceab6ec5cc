/* bench.c - duet bench: seconds of each stage, and how far that is from what this machine's own kernels can
 * do.
 *
 *     ceiling     the largest fp32 product and the largest copy, measured in the same process
 *     evaluation  one call of the transformer     video_decode, audio_decode  latents to pixels, to samples
 *
 * Each stage opens what it needs, runs once to warm up (mapped pages, packed weights) and then `runs` times;
 * reported are median and spread (largest less smallest). Loading is not timed. --dump writes the outputs of
 * a further run, so that a peer can be compared before it is raced (inputs: bench_stages.h). */
#include "cli/bench_stages.h"
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/request.h"

enum { MAX_RUNS = 100, DEFAULT_RUNS = 5, DEFAULT_EDGE = 256, DEFAULT_FRAMES = 22, DEFAULT_TEXT_ROWS = 256 };

typedef struct stage_row {
    const char *name;
    bench_fn open, run;
} stage_row;
static const stage_row STAGES[] = {{"evaluation", bench_open_evaluation, bench_evaluation},
                                   {"video_decode", bench_open_video, bench_video},
                                   {"audio_decode", bench_open_audio, bench_audio}};
enum { N_STAGES = sizeof STAGES / sizeof STAGES[0] };

typedef struct timing {
    int n;
    double seconds[MAX_RUNS]; /* ascending */
    double work;              /* FLOPs, or bytes */
} timing;

typedef struct bench_report {
    timing gemm, copy, stage[N_STAGES];
    bool measured[N_STAGES], ceilings;
} bench_report;

/* ---- measuring
 * ------------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const timing *t) {
    return t->n % 2 ? t->seconds[t->n / 2] : 0.5 * (t->seconds[t->n / 2 - 1] + t->seconds[t->n / 2]);
}

static duet_status measure(bench *b, bench_fn run, int runs, double work, timing *out, duet_error *err) {
    *out = (timing){.n = runs, .work = work};
    duet_status st = run(b, err);
    for (int i = 0; i < runs && st == DUET_OK; i++) {
        double start = duet_clock_s();
        st = run(b, err);
        out->seconds[i] = duet_clock_s() - start;
    }
    qsort(out->seconds, (size_t)runs, sizeof *out->seconds, ascending);
    return st;
}

static duet_status measure_stage(bench *b, int s, int runs, double work, duet_tap *tap, timing *out,
                                 duet_error *err) {
    duet_status st;
    TRY(st, done, duet_residency_open(b->device, &b->residency, err));
    TRY(st, done, STAGES[s].open(b, err));
    TRY(st, done, measure(b, STAGES[s].run, runs, work, out, err));
    b->tap = tap;
    if (tap) TRY(st, done, STAGES[s].run(b, err));
    if (tap) TRY(st, done, duet_stream_sync(b->stream, err));
done:
    b->tap = NULL;
    bench_close_stage(b);
    return st;
}

static duet_status measure_ceilings(bench *b, int runs, bench_report *report, duet_error *err) {
    duet_status st;
    TRY(st, done, bench_open_gemm(b, err));
    TRY(st, done, measure(b, bench_gemm, runs, BENCH_GEMM_FLOPS, &report->gemm, err));
    TRY(st, done, measure(b, bench_copy, runs, BENCH_COPY_BYTES, &report->copy, err));
    report->ceilings = true;
done:
    bench_close_stage(b);
    return st;
}

/* ---- what to measure
 * ------------------------------------------------------------------------------------------- */

static int64_t int_or(const opt_set *set, opt_id id, int64_t fallback) {
    return set->value[id].given ? set->value[id].integer : fallback;
}

/* The sizes of the measured clip, held to the same rules as a request's. FLOPs of one evaluation are the
 * difference between plans of two evaluations and of one. */
static duet_status plan_sizes(const opt_set *set, bench *b, double work[N_STAGES], duet_error *err) {
    static duet_resolved resolved;
    static duet_plan second;
    duet_request r;
    duet_plan_args args;
    char *unused = NULL;
    duet_status st = request_from_options(set, &r, &unused, err);
    if (st != DUET_OK) return st;
    r.assumed_text_rows = int_or(set, OPT_bench_text_rows, DEFAULT_TEXT_ROWS);
    r.any_length = true;
    if (!set->value[OPT_num_frames].given) r.num_frames = DEFAULT_FRAMES;
    if (!r.size && !set->value[OPT_width].given && !set->value[OPT_height].given)
        r.width = r.height = DEFAULT_EDGE;
    duet_request_model m = {.config = b->config, .serves_t2va = true, .prompt_tokens = r.assumed_text_rows};
    TRY(st, fail, duet_request_check(&r, err));
    TRY(st, fail, duet_request_resolve(&r, &m, &resolved, &args, err));
    args.points = 2;
    TRY(st, fail, duet_plan_build(&args, b->config, &b->plan, err));
    args.points = 3;
    TRY(st, fail, duet_plan_build(&args, b->config, &second, err));
    duet_decode_cost video = {0}, audio = {0};
    duet_decode_video_cost(&b->config->vvae, NULL, b->plan.video_latents, b->plan.latent_h, b->plan.latent_w,
                           &video);
    duet_decode_audio_cost(&b->config->avae, NULL, b->plan.audio_latents, &audio);
    work[0] = second.stage[DUET_STAGE_DENOISE].flops - b->plan.stage[DUET_STAGE_DENOISE].flops;
    work[1] = video.flops;
    work[2] = audio.flops;
fail:
    return st;
}

static duet_status check_words(const opt_set *set, duet_error *err) {
    static const opt_id own[] = {OPT_stage,  OPT_runs,    OPT_bench_text_rows,
                                 OPT_layout, OPT_backend, OPT_cpu_level};
    duet_status st = need_option(set, OPT_model, err);
    for (size_t i = 0; i < sizeof own / sizeof own[0] && st == DUET_OK; i++) st = opt_judge(set, own[i], err);
    return st;
}

static bool one_stage(const opt_set *set) {
    return set->value[OPT_stage].given && strcmp(set->value[OPT_stage].text, "all") != 0;
}

static bool wanted(const opt_set *set, int s) {
    return !one_stage(set) || !strcmp(set->value[OPT_stage].text, STAGES[s].name);
}

static duet_status open_all(const opt_set *set, bench *b, duet_error *err) {
    duet_engine_options o = engine_from_options(set);
    duet_device_options device = {.backend = o.backend, .n_threads = o.threads, .cpu_level = o.cpu_level};
    duet_model_options model = {.path = o.model, .layout = o.layout, .partition = DUET_FL2VA};
    duet_status st;
    TRY(st, fail, duet_device_open(&device, &b->device, err));
    TRY(st, fail, duet_model_open(&model, &b->model, err));
    b->config = duet_model_config_get(b->model);
    TRY(st, fail, duet_stream_open(b->device, 0, &b->stream, err));
fail:
    return st;
}

static duet_status run_all(const opt_set *set, bench *b, bench_report *report, duet_error *err) {
    double work[N_STAGES];
    int runs = (int)int_or(set, OPT_runs, DEFAULT_RUNS);
    duet_dump *dump = NULL;
    duet_status st;
    TRY(st, done, open_all(set, b, err));
    TRY(st, done, plan_sizes(set, b, work, err));
    if (set->value[OPT_dump].given) {
        duet_dump_depths depths = {b->config->dit.layers, b->config->text.tap_layer,
                                   b->config->vvae.vit_layers};
        TRY(st, done, duet_dump_open(set->value[OPT_dump].text, &depths, &dump, err));
    }
    if (!one_stage(set)) TRY(st, done, measure_ceilings(b, runs, report, err));
    for (int s = 0; s < N_STAGES; s++) {
        if (!wanted(set, s)) continue;
        TRY(st, done, measure_stage(b, s, runs, work[s], duet_dump_tap(dump), &report->stage[s], err));
        report->measured[s] = true;
    }
    static const char *const files[] = {"denoise", "decode", "deliver"};
    for (int i = 0; i < 3; i++) TRY(st, done, duet_dump_flush(dump, NULL, files[i], err));
done:
    duet_dump_close(&dump);
    return st;
}

/* ---- printing
 * -------------------------------------------------------------------------------------------------- */

static json_t *timing_json(const timing *t, const char *unit, const timing *ceiling) {
    json_t *o = json_object(), *all = json_array();
    double rate = t->work / median(t);
    for (int i = 0; i < t->n; i++) json_array_append_new(all, json_real(t->seconds[i]));
    json_object_set_new(o, "seconds", json_real(median(t)));
    json_object_set_new(o, "spread_seconds", json_real(t->seconds[t->n - 1] - t->seconds[0]));
    json_object_set_new(o, "runs", all);
    json_object_set_new(o, unit, json_real(t->work));
    char key[32];
    snprintf(key, sizeof key, "%s_per_second", unit);
    json_object_set_new(o, key, json_real(rate));
    if (ceiling && ceiling->n)
        json_object_set_new(o, "percent_of_product",
                            json_real(100 * rate / (ceiling->work / median(ceiling))));
    return o;
}

static void print_json_report(const bench *b, const bench_report *r) {
    json_t *root = json_object(), *stages = json_object();
    int only = -1, n = 0;
    json_object_set_new(root, "duet_version", json_string(duet_version()));
    json_object_set_new(root, "device", json_string(duet_device_kind(b->device)));
    json_object_set_new(root, "threads", json_integer(duet_device_threads(b->device)));
    json_object_set_new(root, "width", json_integer(b->plan.width));
    json_object_set_new(root, "height", json_integer(b->plan.height));
    json_object_set_new(root, "num_frames", json_integer(b->plan.frames));
    json_object_set_new(root, "rows", json_integer(b->plan.rows));
    if (r->ceilings) {
        json_object_set_new(root, "product", timing_json(&r->gemm, "flops", NULL));
        json_object_set_new(root, "copy", timing_json(&r->copy, "bytes", NULL));
    }
    for (int s = 0; s < N_STAGES; s++) {
        if (!r->measured[s]) continue;
        json_object_set_new(stages, STAGES[s].name,
                            timing_json(&r->stage[s], "flops", r->ceilings ? &r->gemm : NULL));
        only = s;
        n++;
    }
    if (n == 1) { /* one stage asked for: its figure at the top, for scripts */
        json_object_set_new(root, "stage", json_string(STAGES[only].name));
        json_object_set_new(root, "seconds", json_real(median(&r->stage[only])));
    }
    json_object_set_new(root, "stages", stages);
    print_json(root);
}

static void print_line(const char *name, const timing *t, const char *unit, const timing *ceiling) {
    printf("  %-13s %10.4f s  +- %8.4f  %9.2f G%s/s", name, median(t), t->seconds[t->n - 1] - t->seconds[0],
           t->work / median(t) * 1e-9, unit);
    if (ceiling && ceiling->n)
        printf("  %5.1f %%", 100 * t->work / median(t) / (ceiling->work / median(ceiling)));
    putchar('\n');
}

static void print_table(const bench *b, const bench_report *r) {
    printf("%s, %d threads, %dx%d, %lld frames, %lld rows; median and spread of %d runs\n",
           duet_device_kind(b->device), duet_device_threads(b->device), b->plan.width, b->plan.height,
           (long long)b->plan.frames, (long long)b->plan.rows,
           r->measured[0]   ? r->stage[0].n
           : r->measured[1] ? r->stage[1].n
                            : r->stage[2].n);
    if (r->ceilings) {
        print_line("product", &r->gemm, "FLOP", NULL);
        print_line("copy", &r->copy, "B", NULL);
    }
    for (int s = 0; s < N_STAGES; s++) {
        if (r->measured[s]) print_line(STAGES[s].name, &r->stage[s], "FLOP", r->ceilings ? &r->gemm : NULL);
    }
}

int cmd_bench(const opt_set *set) {
    static bench b; /* holds tile tables */
    static bench_report report;
    duet_error err = {0};
    bool json = is_on(set, OPT_json);
    int code = EXIT_DONE;
    duet_status st = check_words(set, &err);
    if (st == DUET_OK) st = run_all(set, &b, &report, &err);
    if (st != DUET_OK)
        code = report_failure(st, &err, PHASE_WORK, json, NULL);
    else if (json)
        print_json_report(&b, &report);
    else
        print_table(&b, &report);
    duet_stream_close(&b.stream);
    if (b.model) duet_model_close(&b.model);
    duet_device_close(&b.device);
    return code;
}
