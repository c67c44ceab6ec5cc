/* tokenizer_parity.c - generated tokenizers, read through the store, against ids that the reference
 * library gave. */
#include "harness/fixture.h"

#include "base/alloc.h"
#include "nn/tokenizer.h"
#include "store/synth.h"

static duet_tokenizer *open_tokenizer(int seed) {
    char path[400];
    duet_model *model = NULL;
    duet_tokenizer *tokenizer = NULL;
    duet_tokenizer_files files;
    duet_error e = {0};
    snprintf(path, sizeof path, "%s/tiny%d", harness_tmp_dir(), seed);
    EXPECT_OK(
        duet_synth(&(duet_synth_options){.out_dir = path, .partition = "fl2va", .seed = (uint64_t)seed}, &e),
        e);
    EXPECT_OK(duet_model_open(&(duet_model_options){.path = path, .components = 1u << DUET_COMPONENT_TEXT},
                              &model, &e),
              e);
    EXPECT_OK(duet_model_tokenizer_files(model, &files, &e), e);
    EXPECT_OK(duet_tokenizer_open(&files, &tokenizer, &e), e);
    const duet_text_config *config = &duet_model_config_get(model)->text;
    EXPECT_EQ(duet_tokenizer_id(tokenizer, "<|image_pad|>"), config->image_pad_id);
    EXPECT_EQ(duet_tokenizer_id(tokenizer, "<|vision_start|>"), config->vision_start_id);
    EXPECT_LE(duet_tokenizer_size(tokenizer), config->vocab);
    duet_model_close(&model);
    return tokenizer;
}

static const int32_t *i32(const fixture *f, const char *name, int64_t *n) {
    fixture_tensor x = fixture_get(f, name);
    EXPECT_STR(x.dtype, "I32");
    *n = x.n;
    return x.data;
}

static void compare(int seed) {
    char path[64];
    snprintf(path, sizeof path, "tiny/set%d/tokenizer.safetensors", seed);
    fixture f = fixture_open(path);
    duet_tokenizer *tokenizer = open_tokenizer(seed);
    int64_t n, n_offsets;
    const int32_t *want = i32(&f, "ids", &n), *id_at = i32(&f, "ids_offsets", &n_offsets);
    const int32_t *text_at = i32(&f, "text_offsets", &n_offsets);
    const char *text = fixture_get(&f, "text").data;
    EXPECT(n_offsets > 100);
    for (int64_t i = 0; i + 1 < n_offsets; i++) {
        int32_t *ids = NULL;
        duet_error e = {0};
        EXPECT_OK(
            duet_tokenizer_encode(tokenizer, text + text_at[i], text_at[i + 1] - text_at[i], &ids, &n, &e),
            e);
        if (n != id_at[i + 1] - id_at[i] || (n && memcmp(ids, want + id_at[i], (size_t)n * 4) != 0))
            FAIL("seed %d, string %" PRId64 " \"%.*s\" differs", seed, i, (int)(text_at[i + 1] - text_at[i]),
                 text + text_at[i]);
        duet_free(ids);
    }
    duet_tokenizer_close(&tokenizer);
    fixture_close(&f);
}

TEST(tokenizers_of_checkpoints_equal_the_reference, 20000) {
    for (int seed = 0; seed < 3; seed++) compare(seed);
}
