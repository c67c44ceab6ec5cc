/* model_test.c - one canonical weight set: every layout of the same weights gives the same bits and the same hash,
 * however the files lie on the disk. */
#include "unit/store/fixture.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "store/model_int.h"
#include "store/synth_int.h"

/* All canonical tensors of two models, row by row. Returns how many were compared. */
static int expect_same_weights(duet_model *a, duet_model *b) {
    int n = 0;
    for (int c = 0; c < DUET_N_COMPONENTS; c++)
        for (int i = 0; i < a->part[c].specs.n; i++) {
            const duet__spec *s = &a->part[c].specs.spec[i];
            duet_weight x, y;
            duet_error err = {0};
            if (s->role != DUET__READ && s->role != DUET__OTHER) continue;
            EXPECT_OK(duet_model_weight(a, (duet_component)c, s->name, &x, &err), err);
            EXPECT_OK(duet_model_weight(b, (duet_component)c, s->name, &y, &err), err);
            EXPECT(x.dtype == y.dtype && duet_shape_equal(&x.shape, &y.shape));
            size_t row_bytes = (size_t)duet_weight_row_elems(&x) * duet_dtype_bytes(x.dtype);
            for (int64_t r = 0; r < duet_weight_rows(&x); r++)
                if (memcmp(duet_weight_row(&x, r), duet_weight_row(&y, r), row_bytes) != 0)
                    FAIL("%s differs in row %lld", s->name, (long long)r);
            for (int p = 0; p < y.n_pieces; p++)
                EXPECT_EQ((uintptr_t)y.piece[p].data % duet_dtype_bytes(y.dtype), 0);
            n++;
        }
    return n;
}

static void expect_same_hashes(duet_model *a, duet_model *b) {
    duet_model_hashes x, y;
    duet_error err = {0};
    EXPECT_OK(duet_model_hash(a, &x, &err), err);
    EXPECT_OK(duet_model_hash(b, &y, &err), err);
    for (int c = 0; c < DUET_N_COMPONENTS; c++) EXPECT_STR(x.component[c], y.component[c]);
    EXPECT_STR(x.tokenizer, y.tokenizer);
    EXPECT_STR(x.model, y.model);
    EXPECT_EQ(strlen(x.model), 64);
}

TEST(model_layouts_are_equal, 20000) {
    for (uint64_t seed = 0; seed < 3; seed++)
        for (int p = 0; p < DUET_N_PARTITIONS; p++) {
            const char *n = fixture_make(p ? "n" : "m", "native", "both", seed);
            const char *d = fixture_make(p ? "d" : "e", "diffusers", "both", seed);
            duet_model *a = fixture_open(n, (duet_partition)p), *b = fixture_open(d, (duet_partition)p);
            EXPECT_STR(duet_model_layout_name(a), "native");
            EXPECT_STR(duet_model_layout_name(b), "diffusers");
            EXPECT(expect_same_weights(a, b) > 500);
            expect_same_hashes(a, b);
            duet_model_config ca = *duet_model_config_get(a), cb = *duet_model_config_get(b);
            ca.dit.rope_theta = cb.dit.rope_theta =
                0; /* stored as a tensor in one layout, as a number in the other */
            EXPECT(memcmp(&ca, &cb, sizeof ca) == 0);
            duet_component_report ra[DUET_N_COMPONENTS], rb[DUET_N_COMPONENTS];
            EXPECT_EQ(duet_model_verify(a, NULL, ra, NULL), DUET_OK);
            EXPECT_EQ(duet_model_verify(b, NULL, rb, NULL), DUET_OK);
            for (int c = 0; c < DUET_N_COMPONENTS; c++) {
                EXPECT_STR(ra[c].sha256, rb[c].sha256);
                EXPECT_EQ(ra[c].nonfinite + rb[c].nonfinite, 0);
            }
            duet_model_close(&a);
            duet_model_close(&b);
            EXPECT_EQ(duet_mem_live_total_bytes(), 0);
            fixture_run("rm -r %s %s", n, d);
        }
}

/* The format of the hash is a contract (docs/formats.md): files written earlier name models by it. */
TEST(model_hash_is_pinned, 5000) {
    duet_model *m = fixture_open(fixture_make("n", "native", "fl2va", 42), DUET_FL2VA);
    duet_model_hashes h;
    EXPECT_EQ(duet_model_hash(m, &h, NULL), DUET_OK);
    duet_model_close(&m);
    h.model[16] = '\0';
    EXPECT_STR(h.model, "1104dfe9672ae7cc");
}

/* A change of one dimension constant, one sampled byte or one tokenizer byte changes the hash of its part alone. */
TEST(model_hash_sees_changes, 5000) {
    const char *n = fixture_make("n", "native", "fl2va", 0);
    static const struct {
        const char *file, *from, *to;
        int part;
    } cases[] = {
        {"video_vae/config.json", "\"vae_tile_overlap_min\": 64", "\"vae_tile_overlap_min\": 80",
         DUET_COMPONENT_VVAE},
        {"transformer/config.json", "\"qk_norm_eps\": 2e-5", "\"qk_norm_eps\": 3e-5", DUET_COMPONENT_DIT},
        {"model_index.json", "\"video\": 12.0", "\"video\": 11.0", DUET_COMPONENT_DIT},
        {"model_index.json", "\"text_encoder_layer\": 4", "\"text_encoder_layer\": 5", DUET_COMPONENT_TEXT},
        {"tokenizer/tokenizer_config.json", "\"errors\"", "\"error\"", DUET_N_COMPONENTS}};
    duet_model_hashes before, after;
    duet_model *m = fixture_open(n, DUET_FL2VA);
    EXPECT_EQ(duet_model_hash(m, &before, NULL), DUET_OK);
    duet_model_close(&m);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *file = fixture_path("n/FL2VA/%s", cases[i].file);
        fixture_copy(file, fixture_path("saved"));
        fixture_edit(file, cases[i].from, cases[i].to);
        m = fixture_open(n, DUET_FL2VA);
        EXPECT_EQ(duet_model_hash(m, &after, NULL), DUET_OK);
        duet_model_close(&m);
        for (int c = 0; c < DUET_N_COMPONENTS; c++)
            EXPECT_EQ(strcmp(before.component[c], after.component[c]) != 0, c == cases[i].part);
        EXPECT_EQ(strcmp(before.tokenizer, after.tokenizer) != 0, cases[i].part == DUET_N_COMPONENTS);
        EXPECT(strcmp(before.model, after.model) != 0);
        fixture_copy(fixture_path("saved"), file);
    }
}

/* Not against the other layout but against the values themselves: a mistake common to both would show here. */
TEST(model_rows_are_canonical, 5000) {
    duet_model *m = fixture_open(fixture_make("n", "native", "fl2va", 1), DUET_FL2VA);
    static const struct {
        duet_component component;
        const char *name, *scope;
    } cases[] = {{DUET_COMPONENT_DIT, "blocks.2.attn.qkv_proj.weight", "dit.fl2va"},
                 {DUET_COMPONENT_DIT, "token_refiner.blocks.0.attn.qkv_proj.weight", "dit.fl2va"},
                 {DUET_COMPONENT_DIT, "blocks.0.mlp.fc1.weight", "dit.fl2va"},
                 {DUET_COMPONENT_VVAE, "decoder.transformer_blocks.1.attn.to_qkv.weight", "vvae"},
                 {DUET_COMPONENT_VVAE, "decoder.transformer_blocks.1.attn.to_qkv.bias", "vvae"},
                 {DUET_COMPONENT_VVAE, "decoder.transformer_blocks.1.ff.w1.weight", "vvae"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const duet__entry *e = duet__entry_find(&m->part[cases[i].component], cases[i].name);
        duet__values v = duet__values_of(1, cases[i].scope, e->spec, NULL);
        duet_weight w;
        EXPECT_EQ(duet_model_weight(m, cases[i].component, cases[i].name, &w, NULL), DUET_OK);
        int64_t n = duet_weight_row_elems(&w);
        for (int64_t r = 0; r < duet_weight_rows(&w); r++) {
            float want, got;
            duet__values_make(&v, r * n, 1, &want);
            if (w.dtype == DUET_BF16) want = duet_bf16_to_f32(duet_f32_to_bf16(want));
            duet_widen_to_f32(w.dtype, duet_weight_row(&w, r), 1, &got);
            EXPECT(got == want);
        }
    }
    duet_model_close(&m);
}

TEST(model_misaligned_data_gives_the_same_bits, 20000) {
    const char *good = fixture_make("n", "native", "fl2va", 2);
    duet_model *a = fixture_open(good, DUET_FL2VA);
    EXPECT_EQ(duet_model_copied_bytes(a, DUET_COMPONENT_DIT), 0);
    for (int shift = 1; shift <= 7; shift++) {
        fixture_run("cp -r %s %s", good, fixture_path("s"));
        fixture_shift(fixture_path("s/FL2VA/transformer/model-00002-of-00004.safetensors"), shift);
        fixture_shift(fixture_path("s/FL2VA/text_encoder/model-00001-of-00005.safetensors"), shift);
        fixture_shift(fixture_path("s/FL2VA/video_vae/source/model.safetensors"), shift);
        fixture_shift(fixture_path("s/FL2VA/audio_vae/model.safetensors"), shift);
        duet_model *b = fixture_open(fixture_path("s"), DUET_FL2VA);
        EXPECT((duet_model_copied_bytes(b, DUET_COMPONENT_VVAE) > 0) == (shift % 4 != 0));
        expect_same_weights(a, b);
        expect_same_hashes(a, b);
        duet_model_close(&b);
        fixture_run("rm -r %s", fixture_path("s"));
    }
    duet_model_close(&a);
    EXPECT_EQ(duet_mem_live_total_bytes(), 0);
}

TEST(model_folds_weight_norm, 5000) {
    duet_model *m = fixture_open(fixture_make("n", "native", "fl2va", 0), DUET_FL2VA);
    duet_weight w, v, g, again;
    duet_error err = {0};
    static const char *const names[] = {"decoder.conv_pre", "decoder.ups.1.0", "encoder.block.2.block.4"};
    for (int i = 0; i < 3; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s.weight", names[i]);
        EXPECT(duet_model_has(m, DUET_COMPONENT_AVAE, name));
        EXPECT_OK(duet_model_weight(m, DUET_COMPONENT_AVAE, name, &w, &err), err);
        EXPECT_OK(duet_model_weight(m, DUET_COMPONENT_AVAE, name, &again, &err), err);
        EXPECT(w.piece[0].data == again.piece[0].data);
        EXPECT_STR(w.name, name);
        snprintf(name, sizeof name, "%s.weight_v", names[i]);
        EXPECT_OK(duet_model_weight(m, DUET_COMPONENT_AVAE, name, &v, &err), err);
        snprintf(name, sizeof name, "%s.weight_g", names[i]);
        EXPECT_OK(duet_model_weight(m, DUET_COMPONENT_AVAE, name, &g, &err), err);
        int64_t n = duet_weight_row_elems(&w);
        for (int64_t r = 0; r < duet_weight_rows(&w); r++) {
            const float *x = duet_weight_row(&w, r), *y = duet_weight_row(&v, r),
                        *gain = duet_weight_row(&g, r);
            double length = 0, dot = 0, size = 0;
            for (int64_t k = 0; k < n; k++) {
                length += (double)x[k] * x[k];
                dot += (double)x[k] * y[k];
                size += (double)y[k] * y[k];
            }
            EXPECT_LE(fabs(sqrt(length) - fabs((double)*gain)), 1e-6 * (1 + fabs((double)*gain)));
            EXPECT_LE(fabs(dot - sqrt(size) * (double)*gain), 1e-5 * (1 + fabs((double)*gain)));
        }
    }
    EXPECT(!duet_model_has(m, DUET_COMPONENT_AVAE, "decoder.absent.weight"));
    EXPECT_EQ(duet_model_weight(m, DUET_COMPONENT_AVAE, "decoder.absent.weight", &w, &err), DUET_E_MODEL);
    EXPECT_HAS(err.message, "decoder.absent.weight");
    EXPECT(duet_model_copied_bytes(m, DUET_COMPONENT_AVAE) > 0);
    duet_model_close(&m);
}

typedef struct reader {
    duet_model *model;
    const void *data[64];
} reader;

static void *read_all(void *arg) {
    reader *r = arg;
    for (int i = 0; i < 45; i++) {
        char name[64];
        duet_weight w;
        snprintf(name, sizeof name, "decoder.resblocks.%d.convs%d.%d.weight", i / 6, 1 + i % 2, i % 3);
        EXPECT_EQ(duet_model_weight(r->model, DUET_COMPONENT_AVAE, name, &w, NULL), DUET_OK);
        r->data[i] = w.piece[0].data;
    }
    return NULL;
}

TEST(model_lookups_may_run_in_parallel, 10000) {
    reader r[4];
    pthread_t thread[4];
    duet_model *m = fixture_open(fixture_make("n", "native", "fl2va", 0), DUET_FL2VA);
    for (int i = 0; i < 4; i++) {
        r[i].model = m;
        EXPECT_EQ(pthread_create(&thread[i], NULL, read_all, &r[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 45; i++) /* folded once, shared */
        EXPECT(r[0].data[i] && r[0].data[i] == r[1].data[i] && r[1].data[i] == r[2].data[i] &&
               r[2].data[i] == r[3].data[i]);
    duet_model_close(&m);
}

/* ---- what a path may be -------------------------------------------------------------------------------------------- */

TEST(model_partitions, 10000) {
    const char *n = fixture_make("n", "native", "both", 0);
    duet_model *m = fixture_open(n, DUET_REF2VA);
    EXPECT_EQ(duet_model_partition(m), DUET_REF2VA);
    EXPECT(duet_model_serves(m, "ref2va") && !duet_model_serves(m, "t2va"));
    duet_model_close(&m);
    m = fixture_open(fixture_path("n/Ref2VA"), DUET_FL2VA); /* the only one there */
    EXPECT_EQ(duet_model_partition(m), DUET_REF2VA);
    duet_model_close(&m);
    m = fixture_open(fixture_path("n/FL2VA/"), DUET_FL2VA);
    EXPECT(duet_model_serves(m, "t2va") && duet_model_serves(m, "fl2va"));
    duet_model_close(&m);
    fixture_run("rm -r %s/FL2VA", n);
    m = fixture_open(n, DUET_FL2VA);
    EXPECT_EQ(duet_model_partition(m), DUET_REF2VA);
    duet_model_close(&m);
    fixture_run("mv %s/Ref2VA %s/FL2VA", n, n);
    fixture_refuses(n, "FL2VA/model_index.json", "ref2va");
    const char *d = fixture_make("d", "diffusers", "ref2va", 0);
    m = fixture_open(d, DUET_FL2VA);
    EXPECT_EQ(duet_model_partition(m), DUET_REF2VA);
    EXPECT(!duet_model_serves(m, "t2va"));
    duet_model_close(&m);
}

TEST(model_root_index_does_not_mislead, 10000) {
    const char *n = fixture_make("n", "native", "fl2va", 1);
    fixture_run("echo '{\"_class_name\":\"MiniMaxH3ModularPipeline\",\"canvas_short_edge\":999}' > "
                "%s/model_index.json",
                n);
    duet_model *m = fixture_open(n, DUET_FL2VA);
    EXPECT_STR(duet_model_layout_name(m), "native");
    EXPECT_EQ(duet_model_config_get(m)->canvas_short_edge, 192);
    duet_model_close(&m);
    fixture_run("echo broken > %s/model_index.json", n);
    m = fixture_open(n, DUET_FL2VA);
    duet_model_close(&m);
}

TEST(model_both_layouts_in_one_root, 10000) {
    const char *n = fixture_make("n", "native", "fl2va", 1);
    fixture_make("d", "diffusers", "fl2va", 1);
    fixture_run("cp -r %s/* %s/", fixture_path("d"), n);
    duet_model *m = fixture_open(n, DUET_FL2VA);
    EXPECT_STR(duet_model_layout_name(m), "native");
    duet_model_close(&m);
    duet_model_options o = {.path = n, .layout = "diffusers"};
    duet_error err = {0};
    EXPECT_OK(duet_model_open(&o, &m, &err), err);
    EXPECT_STR(duet_model_layout_name(m), "diffusers");
    duet_model_close(&m);
    fixture_run("rm -r %s/FL2VA/audio_vae", n); /* an incomplete native half gives way */
    m = fixture_open(n, DUET_FL2VA);
    EXPECT_STR(duet_model_layout_name(m), "diffusers");
    duet_model_close(&m);
    fixture_run("rm -r %s/vae", n); /* with both incomplete, native names what it lacks */
    fixture_refuses(n, "FL2VA/audio_vae/config.json", "cannot open");
    o.layout = "gguf";
    EXPECT_EQ(duet_model_open(&o, &m, NULL), DUET_E_USAGE);
}

TEST(model_hub_snapshot_of_links, 10000) {
    const char *n = fixture_make("n", "native", "fl2va", 0);
    const char *hub = fixture_path("hub");
    EXPECT_EQ(fixture_run("cd %s && i=0; mkdir -p hub/blobs hub/refs; printf 0123abc > hub/refs/main; "
                          "(cd n && find . -type f) | while read f; do i=$((i+1)); mkdir -p "
                          "hub/snapshots/0123abc/$(dirname $f);"
                          " cp n/$f hub/blobs/$i; ln -s $PWD/hub/blobs/$i hub/snapshots/0123abc/$f; done",
                          harness_tmp_dir()),
              0);
    duet_model *a = fixture_open(n, DUET_FL2VA),
               *b = fixture_open(fixture_path("hub/snapshots/0123abc"), DUET_FL2VA);
    expect_same_hashes(a, b);
    duet_model_close(&b);
    b = fixture_open(hub, DUET_FL2VA); /* the cache entry stands for its snapshot */
    expect_same_hashes(a, b);
    duet_model_close(&b);
    duet_model_close(&a);
}

TEST(model_opens_chosen_components, 5000) {
    const char *d = fixture_make("d", "diffusers", "fl2va", 0);
    fixture_run("rm -r %s/transformer %s/text_encoder %s/tokenizer %s/scheduler", d, d, d, d);
    duet_model_options o = {.path = d, .components = 1u << DUET_COMPONENT_VVAE | 1u << DUET_COMPONENT_AVAE};
    duet_model *m;
    duet_error err = {0};
    EXPECT_OK(duet_model_open(&o, &m, &err), err);
    duet_model_hashes h;
    EXPECT_EQ(duet_model_hash(m, &h, NULL), DUET_OK);
    EXPECT_STR(h.component[DUET_COMPONENT_DIT], "");
    EXPECT_EQ(strlen(h.component[DUET_COMPONENT_AVAE]), 64);
    EXPECT_STR(h.model, "");
    EXPECT(!duet_model_has(m, DUET_COMPONENT_DIT, "blocks.0.norm1.weight"));
    duet_model_close(&m);
    fixture_refuses(harness_tmp_dir(), harness_tmp_dir(), "not a model directory");
    fixture_refuses(fixture_path("nowhere"), "nowhere", "no such directory");
}

TEST(model_text_prefixes, 10000) {
    static const char *const text[] = {"language_model.model.", "language_model.", "model."};
    for (int i = 0; i < 3; i++) {
        const char *n = fixture_make("n", "native", "fl2va", 0);
        duet_model *a = fixture_open(n, DUET_FL2VA);
        fixture_run("cp -r %s %s", n, fixture_path("p"));
        for (int s = 1; s <= 5; s++) {
            const char *file = fixture_path("p/FL2VA/text_encoder/model-0000%d-of-00005.safetensors", s);
            fixture_rename(file, "model.language_model.", text[i]);
            if (i) fixture_rename(file, "model.visual.", "visual.");
        }
        const char *index = fixture_path("p/FL2VA/text_encoder/model.safetensors.index.json");
        EXPECT_EQ(fixture_run("sed -i 's/model.language_model./%s/; %s' %s", text[i],
                              i ? "s/model.visual./visual./" : "", index),
                  0);
        duet_model *b = fixture_open(fixture_path("p"), DUET_FL2VA);
        expect_same_weights(a, b);
        expect_same_hashes(a, b);
        duet_model_close(&a);
        duet_model_close(&b);
        fixture_run("rm -r %s %s", n, fixture_path("p"));
    }
}

/* Truncated encoders circulate: without head, final norm and the layers past the tap. Single files instead of shards. */
TEST(model_single_files_and_short_encoders, 10000) {
    static const char *const unread[] = {"lm_head", "language_model.norm", "layers.4.", "layers.5.", NULL};
    static const char *const needed[] = {"layers.3.", NULL};
    const char *n = fixture_make("n", "native", "fl2va", 0), *d = fixture_make("d", "diffusers", "fl2va", 0);
    duet_model *a = fixture_open(n, DUET_FL2VA), *b;
    fixture_merge(fixture_path("d/transformer"), "diffusion_pytorch_model", NULL);
    fixture_merge(fixture_path("d/vae"), "diffusion_pytorch_model", NULL);
    fixture_merge(fixture_path("d/text_encoder"), "model", unread);
    b = fixture_open(d, DUET_FL2VA);
    expect_same_weights(a, b);
    expect_same_hashes(a, b);
    EXPECT(duet_model_has(a, DUET_COMPONENT_TEXT, "lm_head.weight"));
    EXPECT(!duet_model_has(b, DUET_COMPONENT_TEXT, "lm_head.weight"));
    duet_model_close(&a);
    duet_model_close(&b);
    fixture_merge(fixture_path("n/FL2VA/text_encoder"), "model", needed);
    fixture_refuses(n, "text_encoder/model.safetensors",
                    "tensor model.language_model.layers.3.input_layernorm.weight is missing");
}

TEST(model_open_survives_lost_memory, 60000) {
    const char *d = fixture_make("d", "diffusers", "fl2va", 1);
    for (int64_t nth = 0;; nth += 1 + nth / 40) { /* dense at the start, then thinning */
        duet_model_options o = {.path = d};
        duet_model *m;
        duet_error err = {0};
        duet_mem_fault_arm(nth);
        duet_status st = duet_model_open(&o, &m, &err);
        int fired = duet_mem_fault_fired();
        duet_mem_fault_arm(-1);
        duet_model_close(&m);
        EXPECT_EQ(duet_mem_live_total_bytes(), 0);
        if (!fired) {
            EXPECT_EQ(st, DUET_OK);
            break;
        }
        EXPECT(st != DUET_OK || nth > 0);
        if (st != DUET_OK) EXPECT(err.status == st);
    }
}
