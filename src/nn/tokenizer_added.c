/* tokenizer_added.c - added tokens: markup that is cut out of a text before anything else looks at it.
 *
 * Three sources in tokenizer_config.json, read in this order. `added_tokens_decoder` states ids. The named
 * tokens (`eos_token` and so on) and then `additional_special_tokens` give texts; those that are known
 * already keep their id, the others are appended after the highest id (that is how the released files
 * define <d>, </d> and the other markup of this model, which stands in no table).
 *
 * Matching is plain: on raw bytes, longest first, no stripping, no word boundaries. A file that asks for
 * anything else is refused. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "nn/tokenizer_int.h"

static const char FILE_NAME[] = "tokenizer_config.json";

static bool same_text(const duet__token_text *text, const char *content) {
    return (size_t)text->n_bytes == strlen(content) && memcmp(text->bytes, content, strlen(content)) == 0;
}

static int32_t find_added(const duet_tokenizer *t, const char *content) {
    for (int i = 0; i < t->n_added; i++)
        if (same_text(&t->token[t->added[i]], content)) return t->added[i];
    return -1;
}

/* Id of the ordinary token that vocab.json spells exactly like `content`, or -1. work: room for its bytes. */
static int32_t find_ordinary(const duet_tokenizer *t, const char *content, char *work) {
    int64_t n_bytes = duet__symbols_to_bytes(content, (int64_t)strlen(content), work);
    return n_bytes < 1 ? -1 : duet__text_map_find(&t->texts, t->token, work, n_bytes);
}

/* Make `content` an added token: under `id`, or (id -1) under the id it has, or a new one. */
static duet_status add(duet_tokenizer *t, const char *content, int32_t id, duet_error *err) {
    int32_t known = find_added(t, content);
    if (known >= 0 && id < 0) return DUET_OK;
    if (known < 0) known = find_ordinary(t, content, t->arena + t->arena_used);
    if (id < 0) id = known >= 0 ? known : t->n_tokens;
    if (known >= 0 && known != id)
        return duet_fail(err, DUET_E_MODEL, "%s: token \"%.64s\" has the id %d and cannot also be %d",
                         FILE_NAME, content, known, id);
    if (id >= DUET__MAX_IDS || t->n_added >= DUET__MAX_ADDED_TOKENS)
        return duet_fail(err, DUET_E_MODEL, "%s: too many added tokens", FILE_NAME);
    duet_status st = duet__token_reserve(t, id, err);
    if (st != DUET_OK) return st;
    if (known < 0 && t->token[id].bytes)
        return duet_fail(err, DUET_E_MODEL, "%s: token \"%.64s\": id %d belongs to another token", FILE_NAME,
                         content, id);
    /* Matching is on raw bytes, and so is the text, even where vocab.json spells bytes in symbols. */
    t->token[id] = duet__token_text_copy(t, content, (int64_t)strlen(content));
    t->added[t->n_added++] = id;
    return DUET_OK;
}

/* Ids are used as stated, and the reference library numbers on from the size of what it has: the two agree
 * only without gaps. Behind a gap a prompt would silently get other ids than its model was trained with. */
static duet_status check_gaps(const duet_tokenizer *t, duet_error *err) {
    for (int32_t id = 0; id < t->n_tokens; id++)
        if (!t->token[id].bytes)
            return duet_fail(err, DUET_E_MODEL,
                             "%s and vocab.json: ids go up to %d, but no token has the id %d", FILE_NAME,
                             t->n_tokens - 1, id);
    return DUET_OK;
}

static duet_status check_flag(const json_t *entry, const char *content, const char *flag, bool absent,
                              duet_error *err) {
    const json_t *value = json_object_get(entry, flag);
    if (value && !json_is_boolean(value))
        return duet_fail(err, DUET_E_MODEL, "%s: token \"%.64s\": %s must be true or false", FILE_NAME,
                         content, flag);
    if (value ? json_is_true(value) : absent)
        return duet_fail(err, DUET_E_MODEL, "%s: token \"%.64s\": %s is not supported", FILE_NAME, content,
                         flag);
    return DUET_OK;
}

/* Switches that would change every prompt's ids: what is not done here must not be asked for. */
static duet_status check_switches(const json_t *config, duet_error *err) {
    static const char *const names[] = {"add_prefix_space", "add_bos_token", "add_eos_token",
                                        "split_special_tokens"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *value = json_object_get(config, names[i]);
        if (value && !json_is_false(value) && !json_is_null(value))
            return duet_fail(err, DUET_E_MODEL, "%s: %s must be false", FILE_NAME, names[i]);
    }
    return DUET_OK;
}

/* A token as plain string or as object with flags. *content is borrowed from the entry. */
static duet_status parse_entry(const json_t *entry, const char *where, const char **content,
                               duet_error *err) {
    const json_t *text = json_is_object(entry) ? json_object_get(entry, "content") : entry;
    *content = json_string_value(text);
    if (!*content || !**content)
        return duet_fail(err, DUET_E_MODEL, "%s: %.64s: the token must be a string that is not empty",
                         FILE_NAME, where);
    if (!json_is_object(entry)) return DUET_OK;
    duet_status st;
    TRY(st, fail, check_flag(entry, *content, "single_word", false, err));
    TRY(st, fail, check_flag(entry, *content, "lstrip", false, err));
    TRY(st, fail, check_flag(entry, *content, "rstrip", false, err));
    /* The library's default: ordinary added tokens are normalised, special ones are not. */
    TRY(st, fail,
        check_flag(entry, *content, "normalized", !json_is_true(json_object_get(entry, "special")), err));
fail:
    return st;
}

static bool parse_id(const char *text, int32_t *id) {
    int64_t value = 0;
    if (!*text || (text[0] == '0' && text[1])) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        value = 10 * value + (*text - '0');
        if (value >= DUET__MAX_IDS) return false;
    }
    *id = (int32_t)value;
    return true;
}

static duet_status add_stated(duet_tokenizer *t, json_t *decoder, duet_error *err) {
    const char *key, *content;
    json_t *entry;
    int32_t id = -1;
    if (decoder && !json_is_object(decoder))
        return duet_fail(err, DUET_E_MODEL, "%s: added_tokens_decoder must be an object", FILE_NAME);
    json_object_foreach(decoder, key, entry) {
        duet_status st =
            parse_id(key, &id)
                ? DUET_OK
                : duet_fail(err, DUET_E_MODEL, "%s: added_tokens_decoder: \"%.64s\" is not an id below %d",
                            FILE_NAME, key, DUET__MAX_IDS);
        if (st == DUET_OK) st = parse_entry(entry, key, &content, err);
        if (st == DUET_OK) st = add(t, content, id, err);
        if (st != DUET_OK) return st;
    }
    return DUET_OK;
}

/* In the library's order: an unknown one takes the next id. */
static duet_status add_named(duet_tokenizer *t, const json_t *config, duet_error *err) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *entry = json_object_get(config, names[i]);
        const char *content;
        if (!entry || json_is_null(entry)) continue;
        duet_status st = parse_entry(entry, names[i], &content, err);
        if (st == DUET_OK) st = add(t, content, -1, err);
        if (st != DUET_OK) return st;
    }
    return DUET_OK;
}

static duet_status add_listed(duet_tokenizer *t, const json_t *list, duet_error *err) {
    const char *content;
    if (!list || json_is_null(list)) return DUET_OK;
    if (!json_is_array(list))
        return duet_fail(err, DUET_E_MODEL, "%s: additional_special_tokens must be a list", FILE_NAME);
    for (size_t i = 0; i < json_array_size(list); i++) {
        duet_status st = parse_entry(json_array_get(list, i), "additional_special_tokens", &content, err);
        if (st == DUET_OK) st = add(t, content, -1, err);
        if (st != DUET_OK) return st;
    }
    return DUET_OK;
}

/* ---- order for matching ---- */

typedef struct keyed {
    unsigned char first;
    int32_t n_bytes, id;
} keyed;

static int by_first_then_longest(const void *a, const void *b) {
    const keyed *x = a, *y = b;
    if (x->first != y->first) return x->first - y->first;
    if (x->n_bytes != y->n_bytes) return y->n_bytes < x->n_bytes ? -1 : 1;
    return x->id - y->id;
}

static duet_status sort_added(duet_tokenizer *t, duet_error *err) {
    keyed *k = duet_calloc((size_t)t->n_added + 1, sizeof *k, DUET_MEM_TOKENIZER);
    if (!k) return duet_fail(err, DUET_E_MEMORY, "no memory for the added tokens");
    for (int i = 0; i < t->n_added; i++) {
        const duet__token_text *text = &t->token[t->added[i]];
        k[i] = (keyed){(unsigned char)text->bytes[0], text->n_bytes, t->added[i]};
        t->added_start[k[i].first + 1]++;
    }
    qsort(k, (size_t)t->n_added, sizeof *k, by_first_then_longest);
    for (int i = 0; i < t->n_added; i++) t->added[i] = k[i].id;
    for (int b = 0; b < 256; b++) t->added_start[b + 1] += t->added_start[b];
    duet_free(k);
    return DUET_OK;
}

duet_status duet__added_tokens_load(duet_tokenizer *t, const char *json, int64_t n_bytes, duet_error *err) {
    json_error_t why;
    duet_status st = DUET_OK;
    json_t *config = json_loadb(json, (size_t)n_bytes, JSON_REJECT_DUPLICATES, &why);
    if (!config) return duet_fail(err, DUET_E_MODEL, "%s: line %d: %s", FILE_NAME, why.line, why.text);
    t->added = duet_calloc(DUET__MAX_ADDED_TOKENS, sizeof *t->added, DUET_MEM_TOKENIZER);
    if (!t->added)
        st = duet_fail(err, DUET_E_MEMORY, "no memory for the added tokens");
    else if (!json_is_object(config))
        st = duet_fail(err, DUET_E_MODEL, "%s: must be an object", FILE_NAME);
    if (st == DUET_OK) st = check_switches(config, err);
    if (st == DUET_OK) st = add_stated(t, json_object_get(config, "added_tokens_decoder"), err);
    if (st == DUET_OK) st = check_gaps(t, err);
    if (st == DUET_OK) st = add_named(t, config, err);
    if (st == DUET_OK) st = add_listed(t, json_object_get(config, "additional_special_tokens"), err);
    if (st == DUET_OK) st = sort_added(t, err);
    json_decref(config);
    return st;
}
