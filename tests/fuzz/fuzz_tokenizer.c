/* fuzz_tokenizer.c - arbitrary text into a small tokenizer, and arbitrary bytes as tokenizer files.
 *
 * The first byte chooses:
 *     't'  the rest is text for a fixed tokenizer; what comes out must be right, not only safe
 *     'm'  merges.txt, then 0xFF, tokenizer_config.json: read beside the fixed vocabulary
 *     'v'  entries appended to the fixed vocab.json
 *     else vocab.json, 0xFF, merges.txt, 0xFF, tokenizer_config.json
 * What opens must also encode. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/nn/tiny_tokenizer.h"
#include "base/alloc.h"

#define REQUIRE(cond)                                                                                        \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                                       \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

enum { SEPARATOR = 0xff };

static tiny_files fixed;
static duet_tokenizer *fixed_tokenizer;

static void make_fixed(void) {
    static const char *const merges[] = {"a b", "ab c", "t h", "th e", "a a", "aa aa", "- -", "i n", "in g"};
    duet_error e = {0};
    tiny_files_make(&fixed, merges, (int)(sizeof merges / sizeof *merges), 0);
    duet_tokenizer_files view = tiny_files_view(&fixed);
    REQUIRE(duet_tokenizer_open(&view, &fixed_tokenizer, &e) == DUET_OK);
}

static bool is_added(const duet_tokenizer *t, int32_t id) {
    int64_t n;
    const char *bytes = duet_tokenizer_bytes(t, id, &n);
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)n, bytes);
    return duet_tokenizer_id(t, name) == id;
}

/* The text's NFC as UTF-8, allocated with malloc. */
static char *normal_form(const char *text, int64_t n_bytes, int64_t *n_out) {
    uint32_t *scalars = malloc(((size_t)n_bytes + 1) * sizeof *scalars), *normal = NULL;
    int64_t n = 0, n_normal = 0;
    duet_error e = {0};
    for (int64_t at = 0; at < n_bytes; n++) REQUIRE(duet_utf8_next(text, n_bytes, &at, &scalars[n]));
    REQUIRE(duet_unicode_nfc(scalars, n, &normal, &n_normal, &e) == DUET_OK);
    char *out = malloc(4 * (size_t)n_normal + 1);
    *n_out = 0;
    for (int64_t i = 0; i < n_normal; i++) *n_out += duet_utf8_put(normal[i], out + *n_out);
    free(scalars);
    duet_free(normal);
    return out;
}

/* Without markup, the bytes of the tokens spell the NFC of the text. */
static void check_round_trip(const duet_tokenizer *t, const char *text, int64_t n_bytes, const int32_t *ids,
                             int64_t n_ids) {
    int64_t n_want, at = 0, n;
    for (int64_t i = 0; i < n_ids; i++)
        if (is_added(t, ids[i])) return;
    char *want = normal_form(text, n_bytes, &n_want);
    for (int64_t i = 0; i < n_ids; i++, at += n) {
        const char *bytes = duet_tokenizer_bytes(t, ids[i], &n);
        REQUIRE(bytes && n <= n_want - at && memcmp(bytes, want + at, (size_t)n) == 0);
    }
    REQUIRE(at == n_want);
    free(want);
}

static void check_text(const duet_tokenizer *t, const char *text, int64_t n_bytes) {
    int32_t *ids = NULL;
    int64_t n_ids = 0;
    duet_error e = {0};
    bool valid = duet_utf8_count(text, n_bytes, NULL) >= 0;
    duet_status st = duet_tokenizer_encode(t, text, n_bytes, &ids, &n_ids, &e);
    REQUIRE(st == (valid ? DUET_OK : DUET_E_REQUEST));
    for (int64_t i = 0; i < n_ids; i++) REQUIRE(ids[i] >= 0 && ids[i] < duet_tokenizer_size(t));
    if (valid && t == fixed_tokenizer) check_round_trip(t, text, n_bytes, ids, n_ids);
    const char *vision = duet_tokenizer_find_vision_token(t, text, n_bytes);
    REQUIRE(!vision || duet_tokenizer_id(t, vision) >= 0);
    duet_free(ids);
}

static void try_files(duet_tokenizer_files files) {
    static const char sample[] = "abcab the <d>markup</d> <|image_pad|> caf\xc3\xa9 e\xcc\x81 123\n\n";
    duet_tokenizer *t = NULL;
    duet_error e = {0};
    int64_t before_bytes = duet_mem_live_total_bytes();
    if (duet_tokenizer_open(&files, &t, &e) == DUET_OK)
        check_text(t, sample, (int64_t)sizeof sample - 1);
    else
        REQUIRE(e.status != DUET_OK && e.message[0]);
    duet_tokenizer_close(&t);
    REQUIRE(duet_mem_live_total_bytes() == before_bytes);
}

/* Take bytes up to the next separator; the piece stays in the input. */
static const char *take_piece(const char **at, const char *end, int64_t *n_bytes) {
    const char *begin = *at, *stop = end > begin ? memchr(begin, SEPARATOR, (size_t)(end - begin)) : NULL;
    *n_bytes = (stop ? stop : end) - begin;
    *at = stop ? stop + 1 : end;
    return begin;
}

static void try_vocab_entries(const char *text, size_t n_bytes) {
    size_t base = strlen(fixed.vocab) - 1; /* without the closing brace */
    char *vocab = malloc(base + n_bytes + 2);
    memcpy(vocab, fixed.vocab, base);
    vocab[base] = ',';
    memcpy(vocab + base + 1, text, n_bytes);
    vocab[base + 1 + n_bytes] = '}';
    duet_tokenizer_files files = tiny_files_view(&fixed);
    files.vocab_json = vocab;
    files.vocab_json_bytes = (int64_t)(base + n_bytes + 2);
    try_files(files);
    free(vocab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    if (!fixed_tokenizer) make_fixed();
    if (n_bytes == 0) return 0;
    const char *at = (const char *)data + 1, *end = (const char *)data + n_bytes;
    duet_tokenizer_files files = tiny_files_view(&fixed);
    if (data[0] == 't') return check_text(fixed_tokenizer, at, end - at), 0;
    if (data[0] == 'v') return try_vocab_entries(at, n_bytes - 1), 0;
    if (data[0] != 'm') files.vocab_json = take_piece(&at, end, &files.vocab_json_bytes);
    files.merges_txt = take_piece(&at, end, &files.merges_txt_bytes);
    files.tokenizer_config_json = take_piece(&at, end, &files.tokenizer_config_json_bytes);
    try_files(files);
    return 0;
}
