/* synth_test.c - generated checkpoints: same seed, same bytes; both layouts hold the same canonical values; nothing
 * stands at its initial value; a refused or failed run leaves nothing. */
#include "harness/harness.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/layout.h"
#include "store/safetensors.h"
#include "store/synth.h"
#include "store/synth_int.h"

static char out_path[400];

static duet_synth_options options(const char *name, const char *layout, uint64_t seed) {
    snprintf(out_path, sizeof out_path, "%s/%s", harness_tmp_dir(), name);
    return (duet_synth_options){.out_dir = out_path, .layout = layout, .seed = seed};
}

static void make(const char *name, const char *layout, uint64_t seed) {
    duet_synth_options o = options(name, layout, seed);
    duet_error err = {0};
    EXPECT_OK(duet_synth(&o, &err), err);
}

static int run(const char *fmt, ...) {
    char command[1200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    return system(command);
}

TEST(synth_same_seed_same_bytes, 10000) {
    make("a", "native", 4);
    make("b", "native", 4);
    make("c", "native", 7); /* the same dimensions, other values */
    const char *t = harness_tmp_dir();
    EXPECT_EQ(run("diff -r %s/a %s/b", t, t), 0);
    EXPECT(run("cmp -s %s/a/FL2VA/audio_vae/model.safetensors %s/c/FL2VA/audio_vae/model.safetensors", t,
               t) != 0);
    EXPECT(run("cmp -s %s/a/FL2VA/tokenizer/vocab.json %s/c/FL2VA/tokenizer/vocab.json", t, t) != 0);
    EXPECT_EQ(run("diff -r %s/a/FL2VA/text_encoder %s/a/Ref2VA/text_encoder", t, t), 0);
    EXPECT(run("cmp -s %s/a/FL2VA/transformer/model-00001-of-00004.safetensors "
               "%s/a/Ref2VA/transformer/model-00001-of-00004.safetensors",
               t, t) != 0);
    EXPECT_EQ(duet_mem_live_total_bytes(), 0);
}

/* The bytes are part of the contract: fixtures are re-made from a seed and proven by hash. */
TEST(synth_bytes_are_pinned, 10000) {
    make("p", "native", 42);
    EXPECT_EQ(run("cd %s/p && test \"$(find . -name '*.safetensors' | LC_ALL=C sort | xargs sha256sum | "
                  "sha256sum | cut -c1-16)\""
                  " = 03d561404596d853",
                  harness_tmp_dir()),
              0);
}

TEST(synth_every_value_is_finite_and_moved, 10000) {
    for (uint64_t seed = 0; seed < 3; seed++) {
        duet__synth_shape shape;
        EXPECT_EQ(duet__synth_shape_get("tiny", seed, &shape, NULL), DUET_OK);
        shape.config.text.vocab = 64;
        for (int c = 0; c < DUET_N_COMPONENTS; c++) {
            duet__spec_list specs;
            EXPECT_EQ(duet__specs_build(&shape.config, (duet_component)c, &specs, NULL), DUET_OK);
            for (int i = 0; i < specs.n; i++) {
                const duet__spec *s = &specs.spec[i];
                if (s->fill >= DUET__FILL_WN_GAIN) continue;
                duet__values v = duet__values_of(seed, "x", s, NULL);
                float value[2];
                duet__values_make(&v, 0, 2, value);
                EXPECT(isfinite(value[0]) && value[0] != 0.0f && value[0] != 1.0f && value[0] != value[1]);
                duet__values_make(&v, 1, 1, value); /* addressed by element, not by call */
                float again[2];
                duet__values_make(&v, 0, 2, again);
                EXPECT(value[0] == again[1]);
            }
            duet__specs_free(&specs);
        }
    }
}

TEST(synth_values_have_their_scale, 5000) {
    duet__spec spec = {.name = "w", .shape = DUET_SHAPE(64, 100), .fill = DUET__FILL_WEIGHT, .gain = 1.3f};
    duet__values v = duet__values_of(9, "x", &spec, NULL);
    static float values[6400];
    duet__values_make(&v, 0, 6400, values);
    double sum = 0, square = 0;
    for (int i = 0; i < 6400; i++) sum += values[i], square += values[i] * values[i];
    EXPECT_LE(fabs(sum / 6400), 0.13 * 4 / 80);
    EXPECT_LE(fabs(sqrt(square / 6400) - 0.13), 0.004);
}

TEST(synth_refuses_and_leaves_nothing, 5000) {
    duet_error err = {0};
    duet_synth_options o = options("r", "native", 1);
    o.shape = "huge";
    EXPECT_EQ(duet_synth(&o, &err), DUET_E_REQUEST);
    EXPECT_STR(err.param, "shape");
    o = options("r", "gguf", 1);
    EXPECT_EQ(duet_synth(&o, NULL), DUET_E_REQUEST);
    o = options("r", "native", 1);
    o.partition = "t2va";
    EXPECT_EQ(duet_synth(&o, NULL), DUET_E_REQUEST);
    o = options("r", "native", 1);
    o.shape = "full";
    EXPECT_EQ(duet_synth(&o, NULL), DUET_E_REQUEST); /* no tokenizer */
    o.tokenizer_dir = harness_tmp_dir();
    err = (duet_error){0};
    EXPECT_EQ(duet_synth(&o, &err), DUET_E_REQUEST);
    EXPECT_STR(err.param, "yes");
    volatile int cancel = 1;
    o = options("r", "native", 1);
    o.cancel = &cancel;
    EXPECT_EQ(duet_synth(&o, NULL), DUET_E_CANCELLED);
    EXPECT_EQ(run("test -z \"$(ls -A %s)\"", harness_tmp_dir()), 0);
    make("r", "diffusers", 1);
    err = (duet_error){0};
    o = options("r", "native", 1);
    EXPECT_EQ(duet_synth(&o, &err), DUET_E_REQUEST);
    EXPECT_STR(err.code, "output_exists");
    EXPECT_EQ(duet_mem_live_total_bytes(), 0);
}

/* A write that fails half way (as on a full disk) is reported with the file and leaves nothing. */
TEST(synth_full_disk, 5000) {
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {150000, 150000};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    duet_synth_options o = options("f", "native", 1);
    duet_error err = {0};
    EXPECT_EQ(duet_synth(&o, &err), DUET_E_IO);
    EXPECT_HAS(err.message, ".safetensors: cannot write: File too large");
    EXPECT_EQ(run("test -z \"$(ls -A %s)\"", harness_tmp_dir()), 0);
    EXPECT_EQ(mkdir(out_path, 0777), 0); /* an empty directory that was there stays, empty */
    EXPECT_EQ(duet_synth(&o, NULL), DUET_E_IO);
    EXPECT_EQ(run("test -d %s && test -z \"$(ls -A %s)\"", out_path, out_path), 0);
    EXPECT_EQ(duet_mem_live_total_bytes(), 0);
}

TEST(synth_survives_lost_memory, 60000) {
    int refused = 0;
    for (int64_t nth = 0;; nth += 1 + nth / 8) { /* dense at the start, then thinning */
        duet_synth_options o = options("m", nth % 2 ? "native" : "diffusers", 1);
        duet_error err = {0};
        o.partition = "fl2va";
        duet_mem_fault_arm(nth);
        duet_status st = duet_synth(&o, &err);
        int fired = duet_mem_fault_fired();
        duet_mem_fault_arm(-1);
        EXPECT_EQ(duet_mem_live_total_bytes(), 0);
        if (!fired) break;
        EXPECT(st != DUET_OK && err.status == st);
        EXPECT_EQ(run("test -z \"$(ls -A %s)\"", harness_tmp_dir()), 0);
        refused++;
    }
    EXPECT(refused > 20);
}

TEST(synth_fills_an_empty_directory, 5000) {
    duet_synth_options o = options("e", "diffusers", 2);
    EXPECT_EQ(mkdir(out_path, 0777), 0);
    duet_error err = {0};
    EXPECT_OK(duet_synth(&o, &err), err);
    EXPECT_EQ(run("test -f %s/modular_model_index.json", out_path), 0);
}

TEST(synth_full_has_the_released_size, 5000) {
    duet_synth_options o = options("f", "native", 0);
    o.shape = "full";
    o.tokenizer_dir = "unused";
    int64_t native = 0, one = 0, diffusers = 0;
    EXPECT_EQ(duet_synth_bytes(&o, &native, NULL), DUET_OK);
    o.partition = "fl2va";
    EXPECT_EQ(duet_synth_bytes(&o, &one, NULL), DUET_OK);
    EXPECT_EQ(native - one, 66280430144); /* the second transformer; the rest is linked */
    o.layout = "diffusers";
    EXPECT_EQ(duet_synth_bytes(&o, &diffusers, NULL), DUET_OK);
    EXPECT_EQ(one - diffusers, 64 + 4 * 2048); /* rope.inv_freq and decoder.mask_token */
}

TEST(synth_tokenizer_merges_are_reachable, 5000) {
    for (uint64_t seed = 0; seed < 6; seed++) {
        duet__synth_tokenizer t;
        duet_error err = {0};
        EXPECT_OK(duet__synth_tokenizer_make(seed, seed == 5 ? 1000 : 250, &t, &err), err);
        EXPECT_EQ(t.size, 256 + (seed == 5 ? 1000 : 250) + 33);
        json_t *vocab = json_loads(t.vocab, JSON_REJECT_DUPLICATES, NULL);
        EXPECT_EQ(json_object_size(vocab), 256 + (seed == 5 ? 1000 : 250));
        EXPECT_EQ(json_integer_value(json_object_get(vocab, "!")), 0);
        EXPECT_EQ(json_integer_value(json_object_get(vocab, "\xc4\xa0")), 220);
        char *line = t.merges;
        for (int i = 0; *line; i++) {
            char left[80], right[80], joined[160];
            EXPECT_EQ(sscanf(line, "%79s %79s\n", left, right), 2);
            snprintf(joined, sizeof joined, "%s%s", left, right);
            EXPECT_EQ(json_integer_value(json_object_get(vocab, joined)), 256 + i);
            EXPECT(json_object_get(vocab, left) && json_object_get(vocab, right));
            line = strchr(line, '\n') + 1;
        }
        EXPECT(t.vision_start >= 506 && t.vision_start < t.size && t.vision_start != t.vision_end);
        json_decref(vocab);
        duet__synth_tokenizer_free(&t);
    }
}
