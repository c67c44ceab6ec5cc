/* tokenizer_test.c - the released vocabulary (when its files are at hand), small made ones, the scanner
 * against recorded splits, and every refusal. */
#include "harness/fixture.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "unit/nn/tiny_tokenizer.h"
#include "nn/tokenizer_int.h"
#include "nn/unicode.h"

/* ---- helpers ---- */

static duet_tokenizer *open_files(const duet_tokenizer_files *files) {
    duet_tokenizer *t = NULL;
    duet_error e = {0};
    EXPECT_OK(duet_tokenizer_open(files, &t, &e), e);
    return t;
}

static duet_tokenizer *open_tiny(const char *const *merges, int n_merges, int turn) {
    static tiny_files f;
    tiny_files_make(&f, merges, n_merges, turn);
    duet_tokenizer_files view = tiny_files_view(&f);
    return open_files(&view);
}

static char *read_all(const char *dir, const char *name, int64_t *n_bytes) {
    char path[1024];
    snprintf(path, sizeof path, "%s/FL2VA/tokenizer/%s", dir, name);
    size_t n;
    char *data = (char *)fixture__read(path, &n);
    if (!data) FAIL("cannot read %s", path);
    *n_bytes = (int64_t)n;
    return data;
}

static duet_tokenizer *open_released(void) {
    const char *dir = harness_need_env("DUET_H3_CONFIG");
    duet_tokenizer_files f;
    char *vocab = read_all(dir, "vocab.json", &f.vocab_json_bytes);
    char *merges = read_all(dir, "merges.txt", &f.merges_txt_bytes);
    char *config = read_all(dir, "tokenizer_config.json", &f.tokenizer_config_json_bytes);
    f.vocab_json = vocab;
    f.merges_txt = merges;
    f.tokenizer_config_json = config;
    duet_tokenizer *t = open_files(&f);
    free(vocab), free(merges), free(config); /* the tokenizer keeps nothing of them */
    return t;
}

static const char *ids_text(const int32_t *ids, int64_t n, char *out, size_t room) {
    size_t at = 0;
    out[0] = '\0';
    for (int64_t i = 0; i < n && at + 12 < room; i++)
        at += (size_t)snprintf(out + at, room - at, " %d", ids[i]);
    return out;
}

static void expect_ids(const duet_tokenizer *t, const char *text, int64_t n_bytes, const int32_t *want,
                       int64_t n_want) {
    int32_t *got = NULL;
    int64_t n = -1;
    duet_error e = {0};
    char a[512], b[512];
    EXPECT_OK(duet_tokenizer_encode(t, text, n_bytes, &got, &n, &e), e);
    if (n != n_want || (n && memcmp(got, want, (size_t)n * sizeof *got) != 0))
        FAIL("\"%.*s\": got%s, want%s", (int)n_bytes, text, ids_text(got, n, a, sizeof a),
             ids_text(want, n_want, b, sizeof b));
    duet_free(got);
}

#define IDS(...)                                                                                             \
    ((const int32_t[]){__VA_ARGS__}), (int64_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))
#define EXPECT_IDS(t, text, ...) expect_ids(t, text, (int64_t)sizeof(text) - 1, IDS(__VA_ARGS__))

/* ---- the released tokenizer ---- */

TEST(released_vectors, 10000) {
    duet_tokenizer *t = open_released();
#define VECTOR(text, ...) EXPECT_IDS(t, text, __VA_ARGS__);
#define VECTOR_EMPTY(text) expect_ids(t, text, 0, NULL, 0);
#include "unit/nn/tokenizer_vectors.h"
#undef VECTOR
#undef VECTOR_EMPTY
    duet_tokenizer_close(&t);
}

TEST(released_tables, 10000) {
    static const char *const added[] = {"<|endoftext|>",
                                        "<|im_start|>",
                                        "<|im_end|>",
                                        "<|object_ref_start|>",
                                        "<|object_ref_end|>",
                                        "<|box_start|>",
                                        "<|box_end|>",
                                        "<|quad_start|>",
                                        "<|quad_end|>",
                                        "<|vision_start|>",
                                        "<|vision_end|>",
                                        "<|vision_pad|>",
                                        "<|image_pad|>",
                                        "<|video_pad|>",
                                        "<tool_call>",
                                        "</tool_call>",
                                        "<|fim_prefix|>",
                                        "<|fim_middle|>",
                                        "<|fim_suffix|>",
                                        "<|fim_pad|>",
                                        "<|repo_name|>",
                                        "<|file_sep|>",
                                        "<tool_response>",
                                        "</tool_response>",
                                        "<think>",
                                        "</think>",
                                        "<d>",
                                        "</d>",
                                        "<|cutoff|>",
                                        "<|lyrics_start|>",
                                        "<|lyrics_end|>",
                                        "<|caption_start|>",
                                        "<|caption_end|>"};
    duet_tokenizer *t = open_released();
    EXPECT_EQ(duet_tokenizer_size(t), 151676);
    EXPECT_EQ(t->n_merges, 151387);
    EXPECT(t->rank_is_id);
    EXPECT_EQ(t->n_added, 33);
    for (int i = 0; i < 33; i++) EXPECT_EQ(duet_tokenizer_id(t, added[i]), 151643 + i);
    EXPECT_EQ(duet_tokenizer_id(t, "the"), -1); /* ordinary */
    EXPECT_EQ(duet_tokenizer_id(t, "<d"), -1);
    int id = 0;
    for (int visible = 1; visible >= 0; visible--)
        for (int b = 0; b < 256; b++)
            if (tiny__visible(b) == visible) EXPECT_EQ(t->byte_id[b], id++);
    int64_t n;
    EXPECT(memcmp(duet_tokenizer_bytes(t, 151669, &n), "<d>", 3) == 0 && n == 3);
    EXPECT(duet_tokenizer_bytes(t, 151676, &n) == NULL);
    EXPECT(duet_tokenizer_bytes(t, -1, &n) == NULL);
    duet_tokenizer_close(&t);
    EXPECT_EQ(duet_mem_live_bytes(DUET_MEM_TOKENIZER), 0);
}

/* Strings recorded with the ids of the reference library; the bytes of the tokens must also spell the
 * string's NFC. */
typedef struct recorded {
    fixture file;
    const unsigned char *text;
    const int32_t *text_offset, *value, *value_offset;
    int64_t n;
} recorded;

static const int32_t *get_i32(const fixture *f, const char *name, int64_t *n) {
    fixture_tensor x = fixture_get(f, name);
    EXPECT_STR(x.dtype, "I32");
    *n = x.n;
    return x.data;
}

static recorded open_recorded(const char *path, const char *values, const char *offsets) {
    recorded r = {.file = fixture_open(path)};
    int64_t n;
    r.text = fixture_get(&r.file, "text").data;
    r.value = get_i32(&r.file, values, &n);
    r.value_offset = get_i32(&r.file, offsets, &n);
    r.text_offset = get_i32(&r.file, "text_offsets", &n);
    r.n = n - 1;
    return r;
}

static bool has_added(const duet_tokenizer *t, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        for (int a = 0; a < t->n_added; a++)
            if (ids[i] == t->added[a]) return true;
    return false;
}

static void expect_round_trip(const duet_tokenizer *t, const char *text, int64_t n_bytes, const int32_t *ids,
                              int64_t n_ids) {
    static char want[65536], got[65536];
    static uint32_t scalars[65536];
    uint32_t *normal = NULL;
    int64_t n = 0, n_normal = 0, n_want = 0, n_got = 0;
    duet_error e = {0};
    for (int64_t at = 0; at < n_bytes; n++) EXPECT(duet_utf8_next(text, n_bytes, &at, &scalars[n]));
    EXPECT_OK(duet_unicode_nfc(scalars, n, &normal, &n_normal, &e), e);
    for (int64_t i = 0; i < n_normal; i++) n_want += duet_utf8_put(normal[i], want + n_want);
    for (int64_t i = 0; i < n_ids; i++) {
        int64_t k;
        const char *bytes = duet_tokenizer_bytes(t, ids[i], &k);
        memcpy(got + n_got, bytes, (size_t)k);
        n_got += k;
    }
    EXPECT_EQ(n_got, n_want);
    EXPECT(memcmp(got, want, (size_t)n_want) == 0);
    duet_free(normal);
}

TEST(released_recorded_strings, 20000) {
    duet_tokenizer *t = open_released();
    recorded r = open_recorded("golden/tokenizer_released.safetensors", "ids", "ids_offsets");
    EXPECT(r.n >= 2000);
    int64_t plain = 0;
    for (int64_t i = 0; i < r.n; i++) {
        const char *text = (const char *)r.text + r.text_offset[i];
        int64_t n_bytes = r.text_offset[i + 1] - r.text_offset[i],
                n_ids = r.value_offset[i + 1] - r.value_offset[i];
        const int32_t *ids = r.value + r.value_offset[i];
        expect_ids(t, text, n_bytes, ids, n_ids);
        if (has_added(t, ids, n_ids)) continue;
        expect_round_trip(t, text, n_bytes, ids, n_ids);
        plain++;
    }
    EXPECT(plain > r.n / 4);
    fixture_close(&r.file);
    duet_tokenizer_close(&t);
}

/* ---- scanner ---- */

TEST(scanner_cuts_like_the_pattern, 5000) {
    recorded r = open_recorded("golden/tokenizer_splits.safetensors", "split_ends", "split_offsets");
    EXPECT(r.n >= 2000);
    for (int64_t i = 0; i < r.n; i++) {
        const char *text = (const char *)r.text + r.text_offset[i];
        int64_t n_bytes = r.text_offset[i + 1] - r.text_offset[i], n = 0, at_byte[64];
        uint32_t scalars[64];
        for (int64_t at = 0; at < n_bytes; n++) {
            EXPECT(duet_utf8_next(text, n_bytes, &at, &scalars[n]));
            at_byte[n] = at; /* where the scalar ends */
        }
        const int32_t *want = r.value + r.value_offset[i], *stop = r.value + r.value_offset[i + 1];
        for (int64_t at = 0; at < n; want++) {
            at = duet__scan_end(scalars, n, at);
            if (want == stop || at_byte[at - 1] != *want)
                FAIL("string %" PRId64 " \"%.*s\": a piece ends at byte %" PRId64, i, (int)n_bytes, text,
                     at_byte[at - 1]);
        }
        EXPECT(want == stop);
    }
    fixture_close(&r.file);
}

/* Cases by hand, with the ends of their pieces. */
TEST(scanner_corner_cases, 1000) {
    static const struct {
        int64_t n, end[5];
        uint32_t text[8];
    } cases[] = {
        {4, {2, 4}, {'\'', 0x17f, 'o', 'x'}},     /* long s is a contraction's s */
        {4, {3, 4}, {'\'', 'L', 'l', 'x'}},       /* 'Ll, then x */
        {5, {4, 5}, {'\'', 'a', 'l', 'l', '\''}}, /* 'all is a word with its apostrophe */
        {3, {2, 3}, {'\'', '\'', 's'}},           /* '' and s: symbols come before the contraction */
        {3, {1, 3}, {' ', ' ', 'x'}},             /* the run's last space goes to the word */
        {5, {3, 5}, {' ', '\n', '\n', ' ', 'x'}}, /* up to the last line end */
        {4, {3, 4}, {' ', '!', '\n', '1'}},       /* symbols take the space before, line ends behind */
        {3, {1, 2, 3}, {'1', '2', 0xbd}},         /* numbers one by one */
        {3, {1, 3}, {0x915, 0x93f, 0x915}},       /* a mark is no letter, but leads a word */
        {2, {2}, {0xa0, 'x'}},
        {2, {2}, {' ', ' '}},
        {3, {2, 3}, {0x1c, 'b', 0x200b}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int64_t at = 0, piece = 0; at < cases[i].n; piece++) {
            at = duet__scan_end(cases[i].text, cases[i].n, at);
            if (at != cases[i].end[piece]) FAIL("case %zu: piece %" PRId64 " ends at %" PRId64, i, piece, at);
        }
}

/* ---- made tokenizers ---- */

TEST(merges_follow_rank_then_position, 1000) {
    static const char *const merges[] = {"b c", "a b", "a bc", "x x", "xx x"};
    duet_tokenizer *t = open_tiny(merges, 5, 0);
    EXPECT(t->rank_is_id);
    EXPECT_IDS(t, "abc", 258); /* b c first although a b stands further left */
    EXPECT_IDS(t, "ab", 257);
    EXPECT_IDS(t, "xxx", 260);        /* leftmost pair first: xx x */
    EXPECT_IDS(t, "xxxxx", 259, 260); /* xx xx x, then xx x at the only place where it stands */
    EXPECT_IDS(t, "cab", 66, 257);
    expect_ids(t, "", 0, NULL, 0);
    duet_tokenizer_close(&t);
}

TEST(ids_come_from_the_vocabulary_not_from_ranks, 1000) {
    static const char *const merges[] = {"a b", "ab c"};
    duet_tokenizer *t = open_tiny(merges, 2, 20);
    EXPECT(!t->rank_is_id);
    EXPECT_IDS(t, "abcd", 257 + 20 - 258, 20 + 'd' - '!');
    EXPECT_IDS(t, "\n", 218);
    duet_tokenizer_close(&t);
}

TEST(added_tokens_are_cut_first, 1000) {
    duet_tokenizer *t = open_tiny(NULL, 0, 0);
    EXPECT_EQ(duet_tokenizer_size(t), 262);
    EXPECT_EQ(duet_tokenizer_id(t, "<|end|>"), 259); /* unknown named token, before the listed ones */
    EXPECT_EQ(duet_tokenizer_id(t, "<d>"), 260);
    EXPECT_EQ(duet_tokenizer_id(t, "</d>"), 261);
    EXPECT_EQ(duet_tokenizer_id(t, ""), -1);
    EXPECT_IDS(t, "<d>a</d>", 260, 'a' - '!', 261);
    EXPECT_IDS(t, "<|image_pad|><x>", 258); /* longest */
    EXPECT_IDS(t, "<|image_pad|><|image_pad|>", 257, 257);
    EXPECT_IDS(t, "<|image_pad|", 27, 91, 72, 76, 64, 70, 68, 62, 79, 64, 67, 91);
    EXPECT_IDS(t, "e<d>\xcc\x81", 68, 260, 136, 223); /* the mark does not reach over the markup */
    EXPECT_IDS(t, "e\xcc\x81", 127, 102);             /* but composes otherwise */
    EXPECT_IDS(t, "a\0b", 64, 188, 65);
    duet_tokenizer_close(&t);
}

TEST(vision_tokens_are_found_as_they_would_be_encoded, 1000) {
    duet_tokenizer *t = open_tiny(NULL, 0, 0);
#define FIND(text) duet_tokenizer_find_vision_token(t, text, (int64_t)sizeof(text) - 1)
    EXPECT_STR(FIND("ab<|image_pad|>"), "<|image_pad|>");
    EXPECT_STR(FIND("\0<d><|vision_start|><|image_pad|>"), "<|vision_start|>");
    EXPECT(FIND("<|image_pad|") == NULL);
    EXPECT(FIND("<|image_pad|><x>") == NULL); /* a longer added token swallows it */
    EXPECT(FIND("<|video_pad|>") == NULL);    /* not a token of this vocabulary */
    EXPECT(FIND("") == NULL);
#undef FIND
    duet_tokenizer_close(&t);
}

TEST(a_tokenizer_must_belong_to_its_text_encoder, 1000) {
    duet_tokenizer *t = open_tiny(NULL, 0, 0); /* ids to 261; 256 and 257 are vision tokens */
    duet_text_config c = {.vocab = 262, .vision_start_id = 256, .image_pad_id = 257};
    duet_error e = {0}, e2 = {0}, e3 = {0};
    EXPECT_OK(duet_tokenizer_check(t, &c, &e), e);
    c.vocab = 261;
    EXPECT_EQ(duet_tokenizer_check(t, &c, &e2), DUET_E_MODEL);
    EXPECT_HAS(e2.message, "up to 261");
    c.vocab = 300;
    c.image_pad_id = 258;
    EXPECT_EQ(duet_tokenizer_check(t, &c, &e3), DUET_E_MODEL);
    EXPECT_HAS(e3.message, "<|image_pad|>");
    duet_tokenizer_close(&t);
}

TEST(invalid_utf8_is_refused, 1000) {
    static const char *const bad[] = {"a\x80", "\xc0\x80", "\xed\xa0\x80", "\xe2\x82", "<d>\xff"};
    duet_tokenizer *t = open_tiny(NULL, 0, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int32_t *ids = NULL;
        int64_t n = 0;
        duet_error e = {0};
        EXPECT_EQ(duet_tokenizer_encode(t, bad[i], (int64_t)strlen(bad[i]), &ids, &n, &e), DUET_E_REQUEST);
        EXPECT_STR(e.param, "prompt");
        EXPECT_STR(e.code, "invalid_encoding");
        EXPECT(ids == NULL);
    }
    duet_tokenizer_close(&t);
}

/* A megabyte of one letter is one pre-token: quadratic work would take hours. */
TEST(a_megabyte_of_one_letter, 20000) {
    enum { N = (1 << 20) + 3 };
    static const char *const merges[] = {"a a", "aa aa", "aaaa aaaa"};
    duet_tokenizer *t = open_tiny(merges, 3, 0);
    char *text = malloc(N);
    int32_t *ids = NULL;
    int64_t n = 0;
    duet_error e = {0};
    memset(text, 'a', N);
    EXPECT_OK(duet_tokenizer_encode(t, text, N, &ids, &n, &e), e);
    EXPECT_EQ(n, N / 8 + 2);
    for (int64_t i = 0; i < N / 8; i++) EXPECT_EQ(ids[i], 258);
    EXPECT_EQ(ids[n - 2], 256);
    EXPECT_EQ(ids[n - 1], 64);
    duet_free(ids);
    free(text);
    duet_tokenizer_close(&t);
}

/* ---- refusals ---- */

static void expect_refused(tiny_files *f, const char *part1, const char *part2) {
    duet_tokenizer_files view = tiny_files_view(f);
    duet_tokenizer *t = NULL;
    duet_error e = {0};
    EXPECT_EQ(duet_tokenizer_open(&view, &t, &e), DUET_E_MODEL);
    EXPECT(t == NULL);
    EXPECT_HAS(e.message, part1);
    EXPECT_HAS(e.message, part2);
    EXPECT_EQ(duet_mem_live_total_bytes(), 0);
}

static void refuse_vocab(const char *last_entry, const char *part) {
    static tiny_files f;
    static const char *const merges[] = {"a b"};
    tiny_files_make(&f, merges, 1, 0);
    sprintf(f.vocab + strlen(f.vocab) - 1, ",%s}", last_entry);
    expect_refused(&f, "vocab.json", part);
}

TEST(bad_vocabularies_are_refused, 2000) {
    static tiny_files f;
    refuse_vocab("\"a\":999", "duplicate");
    refuse_vocab("\"zz\":3", "\"zz\": id 3 is taken");
    refuse_vocab("\"zz\":-1", "\"zz\": the id");
    refuse_vocab("\"zz\":1048576", "\"zz\": the id");
    refuse_vocab("\"zz\":99999999999999999999", "vocab.json");
    refuse_vocab("\"zz\":1.5", "\"zz\"");
    refuse_vocab("\"zz\":\"7\"", "\"zz\"");
    refuse_vocab("\"a b\":999", "\"a b\" is not a spelling");
    refuse_vocab("\"\":999", "is not a spelling");
    refuse_vocab("\"\xc5\x84\":999", "is not a spelling"); /* U+0144: one past the last symbol */
    tiny_files_make(&f, NULL, 0, 0);
    strcpy(f.vocab, "[1]");
    expect_refused(&f, "vocab.json", "must be an object");
    strcpy(f.vocab, "{\"a\":0}");
    expect_refused(&f, "vocab.json", "no entry for byte 0x00");
    strcpy(f.vocab, "{\"a\":0");
    expect_refused(&f, "vocab.json", "line 1");
    strcpy(f.vocab, "");
    expect_refused(&f, "vocab.json", "missing");
}

static void refuse_merges(const char *text, const char *where, const char *rule) {
    static tiny_files f;
    static const char *const merges[] = {"a b", "ab c"};
    tiny_files_make(&f, merges, 2, 0);
    strcpy(f.merges, text);
    expect_refused(&f, where, rule);
}

TEST(bad_merges_are_refused, 2000) {
    refuse_merges("a b\nab c\na b\n", "merges.txt: line 3 \"a b\"", "further up");
    refuse_merges("#version: 0.2\n\na b c\n", "merges.txt: line 3", "one space");
    refuse_merges("ab\n", "merges.txt: line 1", "one space");
    refuse_merges("a \n", "merges.txt: line 1", "right part");
    refuse_merges(" b\n", "merges.txt: line 1", "left part");
    refuse_merges("a b\n#version 1\n", "merges.txt: line 2", "not in vocab.json");
    refuse_merges("b a\n", "merges.txt: line 1", "the merged token is not in");
    refuse_merges("qq a\n", "merges.txt: line 1", "a part is not in");
    refuse_merges("\x01 b\n", "merges.txt: line 1", "left part");
    refuse_merges("a b\n", "merges.txt: 1 merges", "cut short");
    refuse_merges("", "merges.txt: 0 merges", "cut short");
}

TEST(merges_headings_blanks_and_line_ends, 1000) {
    static tiny_files f;
    static const char *const merges[] = {"a b", "ab c"};
    static const char *const forms[] = {"#version: 0.2\na b\nab c", "\n\na b\r\n\nab c\r\n", "a b\nab c\n\n"};
    for (int i = 0; i < 3; i++) {
        tiny_files_make(&f, merges, 2, 0);
        strcpy(f.merges, forms[i]);
        duet_tokenizer_files view = tiny_files_view(&f);
        duet_tokenizer *t = open_files(&view);
        EXPECT_EQ(t->n_merges, 2);
        EXPECT_IDS(t, "abc", 257);
        duet_tokenizer_close(&t);
    }
}

static void refuse_config(const char *config, const char *part) {
    static tiny_files f;
    tiny_files_make(&f, NULL, 0, 0);
    f.config = config;
    expect_refused(&f, "tokenizer_config.json", part);
}

TEST(bad_added_tokens_are_refused, 2000) {
    refuse_config("", "missing");
    refuse_config("{", "line 1");
    refuse_config("[]", "must be an object");
    refuse_config("{\"added_tokens_decoder\":[]}", "added_tokens_decoder must be an object");
    refuse_config("{\"added_tokens_decoder\":{\"x\":{\"content\":\"q\"}}}", "\"x\" is not an id");
    refuse_config("{\"added_tokens_decoder\":{\"07\":{\"content\":\"q\"}}}", "\"07\" is not an id");
    refuse_config("{\"added_tokens_decoder\":{\"1048576\":{\"content\":\"q\"}}}", "is not an id");
    refuse_config("{\"added_tokens_decoder\":{\"256\":{\"content\":\"\"}}}", "256");
    refuse_config("{\"added_tokens_decoder\":{\"256\":{\"content\":7}}}", "256");
    refuse_config("{\"added_tokens_decoder\":{\"256\":{\"content\":\"<q>\"}}}",
                  "\"<q>\": normalized is not supported");
    refuse_config(
        "{\"added_tokens_decoder\":{\"256\":{\"content\":\"<q>\",\"special\":true,\"lstrip\":true}}}",
        "lstrip");
    refuse_config("{\"added_tokens_decoder\":{\"256\":{\"content\":\"<q>\",\"special\":true,\"rstrip\":1}}}",
                  "rstrip");
    refuse_config("{\"added_tokens_decoder\":{\"64\":{\"content\":\"<q>\",\"special\":true}}}",
                  "belongs to another");
    refuse_config("{\"added_tokens_decoder\":{\"256\":{\"content\":\"a\",\"special\":true}}}",
                  "has the id 64");
    refuse_config("{\"added_tokens_decoder\":{\"256\":{\"content\":\"<q>\",\"special\":true},"
                  "\"257\":{\"content\":\"<q>\",\"special\":true}}}",
                  "\"<q>\" has the id 25");
    refuse_config("{\"added_tokens_decoder\":{\"257\":{\"content\":\"<q>\",\"special\":true}}}",
                  "no token has the id 256");
    refuse_config("{\"additional_special_tokens\":{}}", "must be a list");
    refuse_config("{\"additional_special_tokens\":[3]}", "must be a string");
    refuse_config("{\"eos_token\":3}", "eos_token");
    refuse_config("{\"add_prefix_space\":true}", "add_prefix_space must be false");
    refuse_config("{\"add_bos_token\":true}", "add_bos_token must be false");
    refuse_config("{\"split_special_tokens\":1}", "split_special_tokens must be false");
}

/* An ordinary token that is listed as special keeps its id and is then cut out of words (measured with the
 * reference library). */
TEST(a_listed_ordinary_token_keeps_its_id, 1000) {
    static tiny_files f;
    static const char *const merges[] = {"t h", "th e"};
    tiny_files_make(&f, merges, 2, 0);
    f.config = "{\"additional_special_tokens\":[\"the\",{\"content\":\"<q>\",\"special\":true}]}";
    duet_tokenizer_files view = tiny_files_view(&f);
    duet_tokenizer *t = open_files(&view);
    EXPECT_EQ(duet_tokenizer_id(t, "the"), 257);
    EXPECT_EQ(duet_tokenizer_id(t, "<q>"), 258);
    EXPECT_EQ(duet_tokenizer_size(t), 259);
    EXPECT_IDS(t, "athe", 64, 257);
    duet_tokenizer_close(&t);
}

TEST(every_failed_allocation_is_reported_and_nothing_leaks, 20000) {
    static tiny_files f;
    static const char *const merges[] = {"a b", "ab c"};
    static const char text[] =
        "<d>abc e\xcc\x81 and a word that is longer than the first room of the list of ids</d>";
    tiny_files_make(&f, merges, 2, 0);
    duet_tokenizer_files view = tiny_files_view(&f);
    for (int64_t nth = 0;; nth++) {
        duet_tokenizer *t = NULL;
        int32_t *ids = NULL;
        int64_t n = 0;
        duet_error e = {0};
        duet_mem_fault_arm(nth);
        duet_status st = duet_tokenizer_open(&view, &t, &e);
        if (st == DUET_OK) st = duet_tokenizer_encode(t, text, (int64_t)sizeof text - 1, &ids, &n, &e);
        bool fired = duet_mem_fault_fired();
        duet_mem_fault_arm(-1);
        EXPECT_EQ(st, fired ? DUET_E_MEMORY : DUET_OK);
        duet_free(ids);
        duet_tokenizer_close(&t);
        duet_tokenizer_close(&t);
        EXPECT_EQ(duet_mem_live_total_bytes(), 0);
        if (!fired) break;
        EXPECT(nth < 1000);
    }
}
