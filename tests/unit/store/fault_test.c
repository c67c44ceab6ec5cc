/* fault_test.c - model directories as users damage them: each refused when the model is opened, naming the file. */
#include "unit/store/fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/model_int.h"

static const char *const weight_files[] = {
    "transformer/model-00001-of-00004.safetensors", "transformer/model-00004-of-00004.safetensors",
    "text_encoder/model-00001-of-00005.safetensors", "video_vae/source/model.safetensors",
    "audio_vae/model.safetensors"};
enum { N_FILES = 5 };

static const char *fresh(const char *good) {
    const char *bad = fixture_path("bad");
    fixture_run("rm -rf %s; cp -r %s %s", bad, good, bad);
    return bad;
}

/* Overwrite the first bytes of a file. */
static void poke(const char *file, const char *bytes, size_t n) {
    FILE *f = fopen(file, "r+b");
    EXPECT(f != NULL);
    EXPECT_EQ(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void damage_sizes(const char *root, const char *file, const char *saved) {
    struct stat st;
    EXPECT_EQ(stat(file, &st), 0);
    const struct {
        int64_t bytes;
        const char *what;
    } cases[] = {{st.st_size - 1, "truncated"},
                 {st.st_size / 2, "truncated"},
                 {0, "truncated: 0 bytes"},
                 {7, "truncated"},
                 {100, "truncated"},
                 {st.st_size + 1, "1 trailing bytes"},
                 {st.st_size + 4096, "4096 trailing bytes"}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        EXPECT_EQ(truncate(file, cases[c].bytes), 0); /* growing appends zeros */
        fixture_refuses(root, file, cases[c].what);
        fixture_copy(saved, file);
    }
}

TEST(fault_damaged_weight_files, 30000) {
    const char *root = fixture_make("n", "native", "fl2va", 0), *saved = fixture_path("saved");
    for (int i = 0; i < N_FILES; i++) {
        const char *file = fixture_path("n/FL2VA/%s", weight_files[i]);
        fixture_copy(file, saved);
        damage_sizes(root, file, saved);
        poke(file, "\377\377\377\377", 4); /* the header's length lies */
        fixture_refuses(root, file, "header of 4294967295 bytes");
        fixture_copy(saved, file);
        poke(file, "\020\0\0", 3);
        fixture_refuses(root, file, "not valid JSON");
        EXPECT_EQ(unlink(file), 0);
        fixture_refuses(root, file,
                        strstr(file, "-of-") ? "this shard is missing: it holds tensor" : "no weights");
        fixture_copy(saved, file);
    }
    duet_model *m = fixture_open(root, DUET_FL2VA);
    duet_model_close(&m);
}

/* What is there is not "missing": it is named, and looking at it waits for nobody. */
TEST(fault_weights_that_are_no_files, 20000) {
    static const struct {
        const char *make, *what;
    } kinds[] = {{"mkfifo", "is a FIFO, not a regular file"},
                 {"mkdir", "is a folder, not a regular file"},
                 {"ln -s /dev/null", "is a device, not a regular file"},
                 {"ln -s nowhere", "a link to nothing"},
                 {"python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])'",
                  "is a socket, not a regular file"}};
    const char *root = fixture_make("n", "native", "fl2va", 0), *saved = fixture_path("saved");
    for (int i = 0; i < N_FILES; i++) {
        const char *file = fixture_path("n/FL2VA/%s", weight_files[i]);
        fixture_copy(file, saved);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            bool single = strstr(file, "-of-") == NULL, link = strstr(kinds[k].make, "nowhere") != NULL;
            EXPECT_EQ(fixture_run("rm -rf %s; %s %s", file, kinds[k].make, file), 0);
            fixture_refuses(root, file, single && link ? "cannot open: No such file" : kinds[k].what);
        }
        fixture_run("rm -rf %s", file);
        fixture_copy(saved, file);
    }
    const char *index = fixture_path("n/FL2VA/transformer/model.safetensors.index.json");
    fixture_run("rm %s; mkfifo %s", index, index);
    fixture_refuses(root, index, "is a FIFO, not a regular file");
    fixture_run("rm %s; ln -s nowhere %s", index, index);
    fixture_refuses(root, index, "cannot open: No such file");
    const char *tree = fixture_make("d", "diffusers", "fl2va", 0);
    index = fixture_path("d/modular_model_index.json"); /* optional, but not when something stands there */
    fixture_run("rm -f %s; mkfifo %s", index, index);
    fixture_refuses(tree, index, "is a FIFO, not a regular file");
    fixture_run("rm %s; ln -s nowhere %s", index, index);
    fixture_refuses(tree, index, "cannot open: No such file");
}

TEST(fault_missing_config_files, 20000) {
    static const char *const files[] = {"model_index.json",
                                        "transformer/config.json",
                                        "text_encoder/config.json",
                                        "video_vae/config.json",
                                        "video_vae/source/config.json",
                                        "audio_vae/config.json",
                                        "audio_vae/metadata.json",
                                        "tokenizer/vocab.json",
                                        "tokenizer/merges.txt",
                                        "tokenizer/tokenizer_config.json"};
    const char *root = fixture_make("n", "native", "fl2va", 1);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *file = fixture_path("n/FL2VA/%s", files[i]);
        fixture_copy(file, fixture_path("saved"));
        EXPECT_EQ(unlink(file), 0);
        fixture_refuses(root, file, "cannot open: No such file");
        EXPECT_EQ(mkdir(file, 0777), 0);
        fixture_refuses(root, file, "not a regular file");
        EXPECT_EQ(rmdir(file), 0);
        fixture_copy(fixture_path("saved"), file);
    }
}

TEST(fault_shard_that_nothing_reads, 10000) {
    const char *n = fixture_make("n", "native", "fl2va", 0);
    duet_model *a = fixture_open(n, DUET_FL2VA);
    duet_model_hashes x, y;
    EXPECT_EQ(duet_model_hash(a, &x, NULL), DUET_OK);
    duet_model_close(&a);
    EXPECT_EQ(unlink(fixture_path("n/FL2VA/text_encoder/model-00003-of-00005.safetensors")),
              0); /* layers past the tap */
    a = fixture_open(n, DUET_FL2VA);
    EXPECT_EQ(duet_model_hash(a, &y, NULL), DUET_OK);
    EXPECT_STR(x.model, y.model);
    EXPECT(!duet_model_has(a, DUET_COMPONENT_TEXT, "model.language_model.layers.5.input_layernorm.weight"));
    duet_component_report report[DUET_N_COMPONENTS];
    EXPECT_EQ(duet_model_verify(a, NULL, report, NULL), DUET_OK);
    EXPECT_EQ(report[DUET_COMPONENT_TEXT].missing_files, 1);
    duet_model_close(&a);
    EXPECT_EQ(unlink(fixture_path("n/FL2VA/text_encoder/model-00005-of-00005.safetensors")),
              0); /* vision tower */
    fixture_refuses(n, "model-00005-of-00005.safetensors",
                    "this shard is missing: it holds tensor model.visual.");
}

TEST(fault_index_against_shards, 20000) {
    static const struct {
        const char *from, *to, *file, *what;
    } cases[] = {
        {"\"total_size\": ", "\"total_size\": 1", "index.json", "total_size is 1"},
        {"\"blocks.0.norm1.weight\": \"model-00001", "\"blocks.0.norm1.weight\": \"model-00002",
         "model-00002-of-00004", "tensor blocks.0.norm1.weight is not in this file"},
        {"\"blocks.0.norm1.weight\"", "\"blocks.0.norm9.weight\"", "model-00001-of-00004",
         "tensor blocks.0.norm9.weight is not in this file"},
        {"    \"blocks.0.norm1.weight\": \"model-00001-of-00004.safetensors\",\n", "", "model-00001-of-00004",
         "tensor blocks.0.norm1.weight is not in the weight_map"},
        {"\"model-00001-of-00004.safetensors\"", "\"../transformer/model-00001-of-00004.safetensors\"",
         "index.json", "not a plain .safetensors name"},
        {"\"model-00001-of-00004.safetensors\"", "\"/etc/passwd\"", "index.json",
         "not a plain .safetensors name"},
        {"\"model-00001-of-00004.safetensors\"", "7", "index.json", "not a file name"},
        {"\"weight_map\"", "\"weights\"", "index.json", "weight_map is missing"},
    };
    const char *good = fixture_make("n", "native", "fl2va", 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *bad = fresh(good);
        fixture_edit(fixture_path("bad/FL2VA/transformer/model.safetensors.index.json"), cases[i].from,
                     cases[i].to);
        fixture_refuses(bad, cases[i].file, cases[i].what);
    }
}

TEST(fault_every_tensor_accounted_for, 20000) {
    const char *good = fixture_make("n", "native", "fl2va", 0);
    const char *bad = fresh(good), *audio = fixture_path("bad/FL2VA/audio_vae/model.safetensors");
    fixture_rename(audio, "mean_proj.weight", "mean_prod.weight");
    fixture_refuses(bad, audio, "tensor mean_proj.weight is missing: expected F32 [8, 8, 1]");
    bad = fresh(good);
    const char *video = fixture_path("bad/FL2VA/video_vae/source/model.safetensors");
    fixture_rename(video, "decoder.mask_token",
                   "decoder.mask"); /* never read, but an unknown name is not ignored */
    fixture_refuses(bad, video, "tensor decoder.mask is unexpected");
    bad = fresh(good);
    EXPECT_EQ(fixture_run("sed -i 's/\"BF16\",\"shape\":\\[52\\]/\"BF16\",\"shape\":[ 5]/' "
                          "%s/FL2VA/transformer/model-00001-of-00004.safetensors",
                          bad),
              0);
    fixture_refuses(bad, "model-00001-of-00004.safetensors", "takes 10 bytes");
    bad = fresh(good);
    fixture_edit(fixture_path("bad/FL2VA/transformer/config.json"), "\"ffn_hidden_size\": 76",
                 "\"ffn_hidden_size\": 78");
    fixture_refuses(bad, ".safetensors", "expected BF16 [156, 52], found BF16 [152, 52]");
    bad = fresh(good);
    EXPECT_EQ(fixture_run("sed -i 's/\"BF16\"/\"I16\"/; s/\":{\"dtype\":\"I16\"/&  /' "
                          "%s/FL2VA/text_encoder/model-00002-of-00005.safetensors",
                          bad),
              0);
    fixture_refuses(bad, "model-00002-of-00005.safetensors", "");
}

/* Half precision in the fp32 island is widened; integers and bytes anywhere are refused. */
TEST(fault_storage_types, 10000) {
    const char *n = fixture_make("n", "diffusers", "fl2va", 0);
    const char *file = fixture_path("n/transformer/diffusion_pytorch_model-00001-of-00004.safetensors");
    duet_model *m = fixture_open(n, DUET_FL2VA);
    duet_model_hashes before, after;
    duet_weight w;
    EXPECT_EQ(duet_model_hash(m, &before, NULL), DUET_OK);
    EXPECT_EQ(duet_model_weight(m, DUET_COMPONENT_DIT, "video_patch_proj.bias", &w, NULL), DUET_OK);
    EXPECT_EQ(w.dtype, DUET_F32);
    duet_model_close(&m);
    fixture_cast(file, "proj_in.bias", DUET_BF16);
    fixture_edit(fixture_path("n/modular_model_index.json"), "\"_minimax_h3\": {",
                 "\"_minimax_h3\": {\"base_schedule\": [1, 0.5, 0],"); /* total_size may be stale then */
    m = fixture_open(n, DUET_FL2VA);
    EXPECT_EQ(duet_model_weight(m, DUET_COMPONENT_DIT, "video_patch_proj.bias", &w, NULL), DUET_OK);
    EXPECT_EQ(w.dtype, DUET_F32);
    const float *bias = duet_weight_row(&w, 3);
    EXPECT(*bias != 0 && duet_bf16_to_f32(duet_f32_to_bf16(*bias)) == *bias);
    EXPECT_EQ(duet_model_hash(m, &after, NULL), DUET_OK);
    EXPECT(strcmp(before.model, after.model) != 0);
    duet_model_close(&m);
    fixture_cast(file, "proj_in.bias", DUET_I8);
    fixture_refuses(n, file, "expected F32, found I8: only F32, BF16 and F16 are read");
}

TEST(fault_nonfinite_values_are_counted, 10000) {
    const char *n = fixture_make("n", "native", "fl2va", 0);
    const char *file = fixture_path("n/FL2VA/audio_vae/model.safetensors");
    struct stat st;
    EXPECT_EQ(stat(file, &st), 0);
    fixture_run("printf '\\000\\000\\300\\177' | dd of=%s bs=1 seek=%lld conv=notrunc status=none", file,
                (long long)st.st_size - 4);
    duet_model *m = fixture_open(n, DUET_FL2VA);
    duet_component_report report[DUET_N_COMPONENTS];
    EXPECT_EQ(duet_model_verify(m, NULL, report, NULL), DUET_OK);
    EXPECT_EQ(report[DUET_COMPONENT_AVAE].nonfinite, 1);
    EXPECT_STR(report[DUET_COMPONENT_AVAE].first_nonfinite, "pre_block.proj.weight");
    EXPECT_EQ(report[DUET_COMPONENT_DIT].nonfinite, 0);
    volatile int cancel = 1;
    duet_verify_options o = {.cancel = &cancel};
    EXPECT_EQ(duet_model_verify(m, &o, report, NULL), DUET_E_CANCELLED);
    duet_model_close(&m);
}
