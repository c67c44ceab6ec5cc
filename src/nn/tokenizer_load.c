/* tokenizer_load.c - vocab.json and merges.txt, checked entry by entry, into the tables of a tokenizer.
 *
 * Both files spell bytes as visible "symbols" (byte 0x20 is U+0120, and so on); nothing else of the
 * program sees that spelling.
 *
 * 1. Ids come from vocab.json. The released files also satisfy id(merge i) = 256 + i; that is noted, never
 *    assumed.
 * 2. Every single byte has an id, so that any text can be encoded.
 * 3. Both parts of a merge and their concatenation are tokens. Text and id determine each other.
 * 4. Sizes are bounded before anything is allocated; what is wrong is named with its file and entry. */
#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "nn/tokenizer_int.h"
#include "nn/unicode.h"

/* ---- symbols ---- */

/* Visible bytes stand for themselves; the other 68, in ascending order, are U+0100..U+0143. */
static int symbol_to_byte(uint32_t symbol) {
    if ((symbol >= 0x21 && symbol <= 0x7e) || (symbol >= 0xa1 && symbol <= 0xac) ||
        (symbol >= 0xae && symbol <= 0xff))
        return (int)symbol;
    if (symbol < 0x100 || symbol > 0x143) return -1;
    int nth = (int)symbol - 0x100;
    if (nth <= 0x20) return nth;
    return nth < 67 ? 0x7f + nth - 0x21 : 0xad;
}

int64_t duet__symbols_to_bytes(const char *utf8, int64_t n_utf8, char *bytes) {
    int64_t n_bytes = 0;
    for (int64_t at = 0; at < n_utf8;) {
        uint32_t symbol;
        if (!duet_utf8_next(utf8, n_utf8, &at, &symbol)) return -1;
        int byte = symbol_to_byte(symbol);
        if (byte < 0) return -1;
        bytes[n_bytes++] = (char)byte;
    }
    return n_bytes;
}

/* ---- tokens ---- */

duet_status duet__token_reserve(duet_tokenizer *t, int32_t id, duet_error *err) {
    if (id < t->n_tokens) return DUET_OK;
    duet__token_text *grown = duet_realloc(t->token, ((size_t)id + 1) * sizeof *grown, DUET_MEM_TOKENIZER);
    if (!grown) return duet_fail(err, DUET_E_MEMORY, "no memory for a vocabulary of %d tokens", id + 1);
    memset(grown + t->n_tokens, 0, (size_t)(id + 1 - t->n_tokens) * sizeof *grown);
    t->token = grown;
    t->n_tokens = id + 1;
    return DUET_OK;
}

duet__token_text duet__token_text_copy(duet_tokenizer *t, const char *bytes, int64_t n_bytes) {
    char *copy = t->arena + t->arena_used;
    memcpy(copy, bytes, (size_t)n_bytes);
    t->arena_used += n_bytes;
    return (duet__token_text){copy, (int32_t)n_bytes};
}

/* ---- vocab.json ---- */

static duet_status vocab_id(const char *key, const json_t *value, int32_t *id, duet_error *err) {
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= DUET__MAX_IDS)
        return duet_fail(err, DUET_E_MODEL,
                         "vocab.json: entry \"%.64s\": the id must be an integer from 0 to %d", key,
                         DUET__MAX_IDS - 1);
    *id = (int32_t)json_integer_value(value);
    return DUET_OK;
}

static duet_status add_vocab_entry(duet_tokenizer *t, const char *key, int32_t id, duet_error *err) {
    duet__token_text *text = &t->token[id];
    if (text->bytes)
        return duet_fail(err, DUET_E_MODEL, "vocab.json: entry \"%.64s\": id %d is taken already", key, id);
    char *bytes = t->arena + t->arena_used; /* decoded in place: never longer than the key */
    int64_t n_bytes = duet__symbols_to_bytes(key, (int64_t)strlen(key), bytes);
    if (n_bytes < 1)
        return duet_fail(err, DUET_E_MODEL, "vocab.json: entry \"%.64s\" is not a spelling in byte symbols",
                         key);
    *text = (duet__token_text){bytes, (int32_t)n_bytes};
    t->arena_used += n_bytes;
    duet__text_map_put(&t->texts, t->token, id);
    return DUET_OK;
}

static duet_status fill_vocab(duet_tokenizer *t, json_t *vocab, duet_error *err) {
    const char *key;
    json_t *value;
    int32_t id = 0, highest = 0;
    duet_status st = duet__text_map_open(&t->texts, (int64_t)json_object_size(vocab), err);
    if (st != DUET_OK) return st;
    json_object_foreach(vocab, key, value) {
        if ((st = vocab_id(key, value, &id, err)) != DUET_OK) return st;
        if (id > highest) highest = id;
    }
    if ((st = duet__token_reserve(t, highest, err)) != DUET_OK) return st;
    json_object_foreach(vocab, key, value) {
        if ((st = add_vocab_entry(t, key, (int32_t)json_integer_value(value), err)) != DUET_OK) return st;
    }
    return DUET_OK;
}

static duet_status load_vocab(duet_tokenizer *t, const char *json, int64_t n_bytes, duet_error *err) {
    json_error_t why;
    json_t *vocab = json_loadb(json, (size_t)n_bytes, JSON_REJECT_DUPLICATES, &why);
    if (!vocab) return duet_fail(err, DUET_E_MODEL, "vocab.json: line %d: %s", why.line, why.text);
    duet_status st = json_is_object(vocab) && json_object_size(vocab) <= DUET__MAX_IDS
                         ? fill_vocab(t, vocab, err)
                         : duet_fail(err, DUET_E_MODEL, "vocab.json: must be an object of at most %d tokens",
                                     DUET__MAX_IDS);
    json_decref(vocab);
    return st;
}

static duet_status find_bytes(duet_tokenizer *t, duet_error *err) {
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        t->byte_id[b] = duet__text_map_find(&t->texts, t->token, &byte, 1);
        if (t->byte_id[b] < 0)
            return duet_fail(err, DUET_E_MODEL, "vocab.json: no entry for byte 0x%02x", (unsigned)b);
    }
    return DUET_OK;
}

/* ---- merges.txt ---- */

typedef struct line {
    const char *text;
    int64_t n;
    int number; /* from 1 */
} line;

/* Next line that is neither blank nor a "#version" heading; false at the end. */
static bool next_line(const char *text, int64_t n_bytes, int64_t *at, line *out) {
    while (*at < n_bytes) {
        const char *begin = text + *at, *stop = memchr(begin, '\n', (size_t)(n_bytes - *at));
        int64_t n = stop ? stop - begin : n_bytes - *at;
        *at += n + 1;
        out->number++;
        if (n > 0 && begin[n - 1] == '\r') n--;
        bool heading = out->number == 1 && n >= 8 && memcmp(begin, "#version", 8) == 0;
        out->text = begin;
        out->n = n;
        if (n > 0 && !heading) return true;
    }
    return false;
}

static duet_status bad_merge(const line *l, const char *rule, duet_error *err) {
    return duet_fail(err, DUET_E_MODEL, "merges.txt: line %d \"%.*s\": %s", l->number,
                     (int)(l->n < 64 ? l->n : 64), l->text, rule);
}

/* Spelling "left right" -> the three ids. bytes: room for the line. */
static duet_status parse_merge(const duet_tokenizer *t, const line *l, char *bytes, duet__merge *merge,
                               duet_error *err) {
    const char *space = memchr(l->text, ' ', (size_t)l->n);
    if (!space || memchr(space + 1, ' ', (size_t)(l->text + l->n - space - 1)))
        return bad_merge(l, "must be two spellings with one space between", err);
    int64_t n_left = duet__symbols_to_bytes(l->text, space - l->text, bytes);
    if (n_left < 1) return bad_merge(l, "the left part is not a spelling in byte symbols", err);
    int64_t n_right = duet__symbols_to_bytes(space + 1, l->text + l->n - space - 1, bytes + n_left);
    if (n_right < 1) return bad_merge(l, "the right part is not a spelling in byte symbols", err);
    merge->left = duet__text_map_find(&t->texts, t->token, bytes, n_left);
    merge->right = duet__text_map_find(&t->texts, t->token, bytes + n_left, n_right);
    merge->id = duet__text_map_find(&t->texts, t->token, bytes, n_left + n_right);
    if (merge->left < 0 || merge->right < 0) return bad_merge(l, "a part is not in vocab.json", err);
    if (merge->id < 0) return bad_merge(l, "the merged token is not in vocab.json", err);
    return DUET_OK;
}

static duet_status fill_merges(duet_tokenizer *t, const char *text, int64_t n_bytes, char *bytes,
                               duet_error *err) {
    line l = {0};
    duet__merge merge = {0};
    t->rank_is_id = true;
    for (int64_t at = 0; next_line(text, n_bytes, &at, &l); merge.rank++) {
        duet_status st = parse_merge(t, &l, bytes, &merge, err);
        if (st != DUET_OK) return st;
        if (!duet__merge_map_put(&t->merges, merge))
            return bad_merge(&l, "the same pair stands further up", err);
        if (merge.id != 256 + merge.rank) t->rank_is_id = false;
    }
    return DUET_OK;
}

static duet_status load_merges(duet_tokenizer *t, const char *text, int64_t n_bytes, duet_error *err) {
    line l = {0};
    int64_t longest = 0;
    for (int64_t at = 0; next_line(text, n_bytes, &at, &l); t->n_merges++)
        if (l.n > longest) longest = l.n;
    if (t->n_merges > DUET__MAX_IDS)
        return duet_fail(err, DUET_E_MODEL, "merges.txt: more than %d merges", DUET__MAX_IDS);
    char *bytes = duet_alloc((size_t)longest + 1, DUET_MEM_TOKENIZER);
    duet_status st = bytes ? duet__merge_map_open(&t->merges, t->n_merges, err)
                           : duet_fail(err, DUET_E_MEMORY, "no memory for a line of merges.txt");
    if (st == DUET_OK) st = fill_merges(t, text, n_bytes, bytes, err);
    duet_free(bytes);
    return st;
}

/* Byte-level BPE reaches every token longer than a byte by some merge. A merges.txt that was cut short at a line
 * would still be read, and would spell the same prompt in other ids without a word. */
static duet_status check_merges(const duet_tokenizer *t, duet_error *err) {
    int64_t longer = 0;
    for (int32_t id = 0; id < t->n_tokens; id++) longer += t->token[id].bytes && t->token[id].n_bytes > 1;
    for (int i = 0; i < t->n_added; i++) longer -= t->token[t->added[i]].n_bytes > 1;
    if (longer <= t->n_merges) return DUET_OK;
    return duet_fail(
        err, DUET_E_MODEL,
        "merges.txt: %lld merges cannot make the %lld tokens of vocab.json that are longer than a "
        "byte: is it cut short?",
        (long long)t->n_merges, (long long)longer);
}

/* ---- open and close ---- */

static duet_status check_file(const char *name, const char *data, int64_t n_bytes, duet_error *err) {
    if (!data || n_bytes < 1) return duet_fail(err, DUET_E_MODEL, "%s: missing or empty", name);
    if (n_bytes > DUET__MAX_FILE_BYTES)
        return duet_fail(err, DUET_E_MODEL, "%s: %lld bytes, at most %d are read", name, (long long)n_bytes,
                         DUET__MAX_FILE_BYTES);
    return DUET_OK;
}

static duet_status load(duet_tokenizer *t, const duet_tokenizer_files *f, duet_error *err) {
    duet_status st;
    TRY(st, fail, check_file("vocab.json", f->vocab_json, f->vocab_json_bytes, err));
    if (f->merges_txt_bytes > 0)
        TRY(st, fail, check_file("merges.txt", f->merges_txt, f->merges_txt_bytes, err));
    TRY(st, fail,
        check_file("tokenizer_config.json", f->tokenizer_config_json, f->tokenizer_config_json_bytes, err));
    t->arena_room = f->vocab_json_bytes + f->tokenizer_config_json_bytes;
    t->arena = duet_alloc((size_t)t->arena_room, DUET_MEM_TOKENIZER);
    if (!t->arena) return duet_fail(err, DUET_E_MEMORY, "no memory for the texts of the vocabulary");
    TRY(st, fail, load_vocab(t, f->vocab_json, f->vocab_json_bytes, err));
    TRY(st, fail, find_bytes(t, err));
    TRY(st, fail, load_merges(t, f->merges_txt, f->merges_txt_bytes, err));
    TRY(st, fail, duet__added_tokens_load(t, f->tokenizer_config_json, f->tokenizer_config_json_bytes, err));
    TRY(st, fail, check_merges(t, err));
fail:
    return st;
}

duet_status duet_tokenizer_open(const duet_tokenizer_files *files, duet_tokenizer **out, duet_error *err) {
    *out = NULL;
    duet_tokenizer *t = duet_calloc(1, sizeof *t, DUET_MEM_TOKENIZER);
    if (!t) return duet_fail(err, DUET_E_MEMORY, "no memory for the tokenizer");
    duet_status st = load(t, files, err);
    if (st == DUET_OK)
        *out = t;
    else
        duet_tokenizer_close(&t);
    return st;
}

void duet_tokenizer_close(duet_tokenizer **tokenizer) {
    duet_tokenizer *t = *tokenizer;
    if (!t) return;
    *tokenizer = NULL;
    duet__text_map_close(&t->texts);
    duet__merge_map_close(&t->merges);
    duet_free(t->token);
    duet_free(t->added);
    duet_free(t->arena);
    duet_free(t);
}
