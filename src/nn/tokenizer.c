/* tokenizer.c - one segment of text into ids, and the small questions about tokens.
 *
 *     bytes -> [added tokens | pieces between] -> NFC of a piece -> pre-tokens -> BPE of their bytes -> ids
 *
 * Added tokens are found on the raw bytes, and NFC is taken of each piece by itself: a combining mark
 * right after a markup token does not combine with it. The order of the four steps is what makes the ids
 * those of the released tokenizer. */
#include "nn/tokenizer.h"

#include <string.h>

#include "base/alloc.h"
#include "nn/tokenizer_int.h"
#include "nn/unicode.h"

enum { MAX_TEXT_BYTES = 1 << 28 };

/* Working memory of one call. */
typedef struct encoder {
    const duet_tokenizer *tokenizer;
    duet__bpe bpe;
    duet__ids ids;
    uint32_t *scalars; /* of the whole text, at most; used piece by piece */
    char *word;        /* bytes of one pre-token */
    int64_t word_room;
} encoder;

/* Longest added token at the beginning of the text, or -1. */
static int32_t match_added(const duet_tokenizer *t, const char *text, int64_t n_bytes) {
    unsigned char first = (unsigned char)text[0];
    for (int i = t->added_start[first]; i < t->added_start[first + 1]; i++) {
        const duet__token_text *added = &t->token[t->added[i]];
        if (added->n_bytes <= n_bytes && memcmp(added->bytes, text, (size_t)added->n_bytes) == 0)
            return t->added[i];
    }
    return -1;
}

/* First added token at or after `at`: *begin is where, *id which; at the end of the text *id is -1. */
static void find_added(const duet_tokenizer *t, const char *text, int64_t n_bytes, int64_t at, int64_t *begin,
                       int32_t *id) {
    for (*id = -1; at < n_bytes; at++)
        if ((*id = match_added(t, text + at, n_bytes - at)) >= 0) break;
    *begin = at;
}

static duet_status encode_word(encoder *e, const uint32_t *scalars, int64_t n, duet_error *err) {
    if (4 * n > e->word_room) {
        int64_t room = 8 * n + 64;
        char *grown = duet_realloc(e->word, (size_t)room, DUET_MEM_TOKENIZER);
        if (!grown)
            return duet_fail(err, DUET_E_MEMORY, "no memory to encode a word of %lld characters",
                             (long long)n);
        e->word = grown;
        e->word_room = room;
    }
    int64_t n_bytes = 0;
    for (int64_t i = 0; i < n; i++) n_bytes += duet_utf8_put(scalars[i], e->word + n_bytes);
    return duet__bpe_encode(&e->bpe, e->tokenizer, e->word, n_bytes, &e->ids, err);
}

static duet_status encode_piece(encoder *e, const char *text, int64_t n_bytes, duet_error *err) {
    int64_t n = 0, n_normal = 0;
    uint32_t *normal = NULL;
    for (int64_t at = 0; at < n_bytes && duet_utf8_next(text, n_bytes, &at, &e->scalars[n]);) n++;
    duet_status st = duet_unicode_nfc(e->scalars, n, &normal, &n_normal, err);
    for (int64_t at = 0, end; st == DUET_OK && at < n_normal; at = end) {
        end = duet__scan_end(normal, n_normal, at);
        st = encode_word(e, normal + at, end - at, err);
    }
    duet_free(normal);
    return st;
}

static duet_status encode_text(encoder *e, const char *text, int64_t n_bytes, duet_error *err) {
    for (int64_t at = 0; at < n_bytes;) {
        int64_t begin;
        int32_t id;
        duet_status st = DUET_OK;
        find_added(e->tokenizer, text, n_bytes, at, &begin, &id);
        if (begin > at) st = encode_piece(e, text + at, begin - at, err);
        if (st == DUET_OK && id >= 0) st = duet__ids_push(&e->ids, id, err);
        if (st != DUET_OK) return st;
        at = begin + (id >= 0 ? e->tokenizer->token[id].n_bytes : 0);
    }
    return DUET_OK;
}

static duet_status check_text(const char *utf8, int64_t n_bytes, int64_t *n_scalars, duet_error *err) {
    int64_t bad_at = 0;
    if (n_bytes < 0 || n_bytes > MAX_TEXT_BYTES)
        return duet_refuse(err, "prompt", "too_long", NULL, NULL, "must be at most %d bytes", MAX_TEXT_BYTES);
    *n_scalars = duet_utf8_count(utf8, n_bytes, &bad_at);
    if (*n_scalars >= 0) return DUET_OK;
    return duet_refuse(err, "prompt", "invalid_encoding", NULL, NULL, "must be UTF-8; byte %lld is not",
                       (long long)bad_at);
}

duet_status duet_tokenizer_encode(const duet_tokenizer *tokenizer, const char *utf8, int64_t n_bytes,
                                  int32_t **ids, int64_t *n_ids, duet_error *err) {
    *ids = NULL;
    *n_ids = 0;
    encoder e = {.tokenizer = tokenizer};
    int64_t n_scalars = 0;
    duet_status st = check_text(utf8, n_bytes, &n_scalars, err);
    if (st != DUET_OK) return st;
    e.scalars = duet_calloc((size_t)n_scalars + 1, sizeof *e.scalars, DUET_MEM_TOKENIZER);
    st = e.scalars
             ? encode_text(&e, utf8, n_bytes, err)
             : duet_fail(err, DUET_E_MEMORY, "no memory for a text of %lld characters", (long long)n_scalars);
    duet__bpe_close(&e.bpe);
    duet_free(e.scalars);
    duet_free(e.word);
    if (st != DUET_OK) {
        duet_free(e.ids.id);
        return st;
    }
    *ids = e.ids.id;
    *n_ids = e.ids.n;
    return DUET_OK;
}

int32_t duet_tokenizer_size(const duet_tokenizer *tokenizer) {
    return tokenizer->n_tokens;
}

int32_t duet_tokenizer_id(const duet_tokenizer *tokenizer, const char *added_token) {
    size_t length = strlen(added_token);
    int32_t id = length ? match_added(tokenizer, added_token, (int64_t)length) : -1;
    return id >= 0 && (size_t)tokenizer->token[id].n_bytes == length ? id : -1;
}

duet_status duet_tokenizer_check(const duet_tokenizer *t, const duet_text_config *config, duet_error *err) {
    const struct {
        const char *name;
        int32_t id;
    } stated[] = {{"<|vision_start|>", config->vision_start_id},
                  {"<|vision_end|>", config->vision_end_id},
                  {"<|image_pad|>", config->image_pad_id},
                  {"<|video_pad|>", config->video_pad_id}};
    if (t->n_tokens > config->vocab)
        return duet_fail(err, DUET_E_MODEL,
                         "tokenizer: ids go up to %d, the text encoder's embedding has %d rows",
                         t->n_tokens - 1, config->vocab);
    for (size_t i = 0; i < sizeof stated / sizeof *stated; i++) {
        int32_t id = duet_tokenizer_id(t, stated[i].name);
        if (id >= 0 && id != stated[i].id)
            return duet_fail(err, DUET_E_MODEL,
                             "tokenizer: %s has the id %d, the text encoder's configuration says %d",
                             stated[i].name, id, stated[i].id);
    }
    return DUET_OK;
}

const char *duet_tokenizer_find_vision_token(const duet_tokenizer *t, const char *utf8, int64_t n_bytes) {
    static const char *const names[] = {"<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
                                        "<|image_pad|>", "<|video_pad|>"};
    for (int64_t at = 0; at < n_bytes;) {
        int32_t id;
        find_added(t, utf8, n_bytes, at, &at, &id);
        if (id < 0) break;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (duet_tokenizer_id(t, names[i]) == id) return names[i];
        at += t->token[id].n_bytes;
    }
    return NULL;
}

const char *duet_tokenizer_bytes(const duet_tokenizer *tokenizer, int32_t id, int64_t *n_bytes) {
    *n_bytes = 0;
    if (id < 0 || id >= tokenizer->n_tokens || !tokenizer->token[id].bytes) return NULL;
    *n_bytes = tokenizer->token[id].n_bytes;
    return tokenizer->token[id].bytes;
}
