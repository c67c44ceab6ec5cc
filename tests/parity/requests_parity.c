/* requests_parity.c - whole requests up to their latents, against the reference pipeline with the same noise.
 *
 * Token ids come from the fixture; text states, layout, schedule, noise and every evaluation are ours.
 * What a fixture keeps in full or as samples is compared: integers, positions and noise exactly, sigmas
 * within one ulp, networks by relative L2. Decoding is compared by its own tests. */
#include <jansson.h>

#include "parity/dit_case.h"

#include "store/synth.h"

enum { MAX_POINTS = 64 };

typedef struct request {
    int set;
    dit_case c;
    double base[MAX_POINTS], video[MAX_POINTS], audio[MAX_POINTS];
} request;

static int64_t read_ladder(const json_t *list, double *out) {
    size_t n = json_array_size(list);
    EXPECT_LE(n, MAX_POINTS);
    for (size_t i = 0; i < n; i++) out[i] = json_number_value(json_array_get(list, i));
    return (int64_t)n;
}

static void read_schedule(const json_t *entry, request *r) {
    duet_schedule_spec *s = &r->c.ladder;
    s->points = json_integer_value(json_object_get(entry, "num-inference-steps"));
    s->video_shift = json_number_value(json_object_get(entry, "flow-shift"));
    s->audio_shift = json_number_value(json_object_get(entry, "audio-flow-shift"));
    s->n_base = read_ladder(json_object_get(entry, "base-schedule"), r->base);
    s->n_final = read_ladder(json_object_get(entry, "sigmas"), r->video);
    EXPECT_EQ(read_ladder(json_object_get(entry, "audio-sigmas"), r->audio), s->n_final);
    if (s->n_base) s->base = r->base;
    if (s->n_final) s->video = r->video, s->audio = r->audio;
}

static void find_request(const char *name, request *r) {
    char path[512];
    json_error_t error;
    snprintf(path, sizeof path, "%s/tests/fixtures/requests.json", harness_source_dir());
    json_t *root = json_load_file(path, 0, &error), *entry;
    if (!root) SKIP("no fixture %s", path);
    size_t i;
    *r = (request){.set = -1};
    json_array_foreach(json_object_get(root, "requests"), i, entry) {
        if (strcmp(json_string_value(json_object_get(entry, "name")), name) != 0) continue;
        const char *noise = json_string_value(json_object_get(entry, "noise"));
        r->set = (int)json_integer_value(json_object_get(entry, "set"));
        sscanf(json_string_value(json_object_get(entry, "size")), "%dx%d", &r->c.width, &r->c.height);
        r->c.frames = json_integer_value(json_object_get(entry, "num-frames"));
        r->c.seed = (uint64_t)json_integer_value(json_object_get(entry, "seed"));
        r->c.stream = noise && strcmp(noise, "diffusers") == 0 ? DUET_NOISE_DIFFUSERS : DUET_NOISE_SGLANG;
        r->c.threads = 2;
        read_schedule(entry, r);
    }
    EXPECT(r->set >= 0);
    json_decref(root);
}

/* Elements of `got` that the fixture kept of NAME, in its order: all, or the outer product of index
 * vectors. */
static fixture_tensor select_kept(const fixture *f, const char *name, const collected *got, void **kept) {
    char key[128];
    size_t size = duet_dtype_bytes(got->dtype);
    fixture_tensor want = fixture_get(f, name);
    *kept = malloc((size_t)want.n * size);
    const int32_t *axis[DUET_MAX_RANK] = {NULL};
    EXPECT_EQ(want.rank, got->shape.rank);
    for (int d = 0; d < want.rank; d++) {
        snprintf(key, sizeof key, "%s.axis%d", name, d);
        if (fixture_has(f, key)) axis[d] = fixture_get(f, key).data;
        if (!axis[d]) EXPECT_EQ(want.dim[d], got->shape.dim[d]);
    }
    for (int64_t i = 0; i < want.n; i++) {
        int64_t from = 0, rest = i, scale = 1;
        for (int d = want.rank - 1; d >= 0; d--) {
            int64_t at = rest % want.dim[d];
            rest /= want.dim[d];
            from += (axis[d] ? axis[d][at] : at) * scale;
            scale *= got->shape.dim[d];
        }
        memcpy((char *)*kept + (size_t)i * size, (const char *)got->data + (size_t)from * size, size);
    }
    return want;
}

static bool near_enough(const char *name, const collected *got, const void *kept, const fixture_tensor *want,
                        double *figure) {
    bool exact = got->dtype != DUET_F32 || strstr(name, "_noise");
    *figure = 0.0;
    if (exact) return memcmp(kept, want->data, (size_t)want->n * duet_dtype_bytes(got->dtype)) == 0;
    if (strncmp(name, "sigmas_", 7) == 0) {
        for (int64_t i = 0; i < want->n; i++) {
            float g = ((const float *)kept)[i], w = ((const float *)want->data)[i];
            if (g != w && nextafterf(g, w) != w) return false;
        }
        return true;
    }
    *figure = fixture_rel_l2(kept, want->data, want->n);
    return *figure <= (strncmp(name, "step_000", 8) == 0 && strstr(name, "velocity") ? 2e-5 : 1e-4);
}

static int compare_kept(const fixture *f, const collector *taps) {
    int compared = 0;
    for (const collected *x = taps->list; x; x = x->next) {
        char sampled[128];
        snprintf(sampled, sizeof sampled, "%s@grid.0", x->name);
        const char *name = fixture_has(f, x->name) ? x->name : fixture_has(f, sampled) ? sampled : NULL;
        if (!name) continue;
        void *kept;
        double figure;
        fixture_tensor want = select_kept(f, name, x, &kept);
        if (!near_enough(name, x, kept, &want, &figure)) FAIL("%s: differs, relative L2 %.3g", name, figure);
        free(kept);
        compared++;
    }
    return compared;
}

/* The final latents as the fixture names them, in latent layout. */
static void add_latents(collector *taps, const dit_case *c, const duet_dit_config *config,
                        const dit_result *r) {
    duet_patch_shape shape = {.channels = config->video_channels,
                              .latent_h = c->height / 16,
                              .latent_w = c->width / 16,
                              .patch_h = config->patch_h,
                              .patch_w = config->patch_w,
                              .frames = duet_video_latents_for_frames(c->frames)};
    int64_t sound = duet_audio_latents_for_frames(c->frames);
    collected *v = collector__add(taps, "video_latents", DUET_F32,
                                  &DUET_SHAPE(shape.channels, shape.frames, shape.latent_h, shape.latent_w));
    collected *a =
        collector__add(taps, "audio_latents", DUET_F32, &DUET_SHAPE(2, config->audio_channels, sound));
    duet_unpatchify(&shape, r->video, v->data);
    duet_audio_rows_to_latents(sound, config->audio_channels, r->audio, a->data);
}

/* Runs a request; returns relative L2 of its final video latents. */
static double check_request(const char *name, const char *backend) {
    request r;
    char path[512];
    duet_error err = {0};
    find_request(name, &r);
    snprintf(path, sizeof path, "requests/%s.safetensors", name);
    fixture f = fixture_open(path);
    snprintf(path, sizeof path, "%s/%s-%s", harness_tmp_dir(), name, backend);
    duet_synth_options synth = {.out_dir = path, .seed = (uint64_t)r.set, .partition = "fl2va"};
    EXPECT_OK(duet_synth(&synth, &err), err);
    fixture_tensor ids = fixture_get(&f, "input_ids");
    collector taps = collector_make();
    r.c.model = path;
    r.c.backend = backend;
    r.c.ids = ids.data;
    r.c.text_rows = ids.n;
    r.c.taps = &taps;
    dit_result result = dit_run(&r.c);
    if (result.status != DUET_OK) FAIL("%s: %s", name, result.error.message);

    duet_model *model;
    EXPECT_OK(duet_model_open(&(duet_model_options){.path = path}, &model, &err), err);
    add_latents(&taps, &r.c, &duet_model_config_get(model)->dit, &result);
    duet_model_close(&model);
    EXPECT_LE(13, compare_kept(&f, &taps)); /* 7 inputs, 4 velocities, 2 latents */

    const char *final = fixture_has(&f, "video_latents") ? "video_latents" : "video_latents@grid.0";
    void *kept;
    fixture_tensor want = select_kept(&f, final, collector_find(&taps, "video_latents"), &kept);
    double distance = fixture_rel_l2(kept, want.data, want.n);
    printf("    %s on %s: final video latents %.2e\n", name, backend, distance);
    free(kept);
    collector_free(&taps);
    dit_result_free(&result);
    fixture_close(&f);
    return distance;
}

TEST(requests_of_every_set_equal_the_reference_on_cpu, 60000) {
    check_request("base0", "cpu");
    check_request("base1", "cpu");
    check_request("base2", "cpu");
}

TEST(requests_equal_the_reference_on_ref, 120000) {
    check_request("frames22", "ref");
    check_request("frames39", "ref");
}

TEST(canvases_with_tiles_and_short_overlaps_equal_the_reference, 120000) {
    check_request("tiles", "cpu");
    check_request("short464", "cpu");
    check_request("short480", "cpu");
    check_request("short496", "cpu");
}

TEST(ladders_shifts_and_the_other_noise_stream_equal_the_reference, 60000) {
    check_request("ladder", "cpu");
    check_request("shifts", "cpu");
    check_request("base_schedule", "cpu");
    check_request("diffusers_noise", "cpu");
}

TEST(forty_nine_evaluations_equal_the_reference, 60000) {
    check_request("steps50", "cpu");
}

TEST(errors_do_not_grow_with_the_length_of_a_clip, 120000) {
    double shortest = check_request("frames22", "cpu");
    check_request("frames107", "cpu");
    check_request("frames124", "cpu");
    double longest = check_request("frames362", "cpu");
    EXPECT_LE(longest, 2.0 * shortest);
}
