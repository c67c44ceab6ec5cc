/* synth_tokenizer.c - a small byte-level BPE of the released kind: 256 byte symbols in the released order, merges with
 * id 256 + i, then the released added tokens in another order, then the seven that only the configuration lists.
 *
 * Merges are found as training would find them: take a word, apply the merges so far, join a neighbouring pair. So
 * ordinary English hits them at every depth; words with accents and CJK characters give merges across bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "store/file.h"
#include "store/json.h"
#include "store/synth_int.h"

enum { MAX_MERGES = 1000, MAX_SYMBOLS = 256 + MAX_MERGES, MAX_WORD = 24, MAX_TOKEN_BYTES = 16 };

static const char *const words[] = {" the",
                                    " a",
                                    " of",
                                    " and",
                                    " in",
                                    " on",
                                    " with",
                                    " is",
                                    " red",
                                    " green",
                                    " blue",
                                    " yellow",
                                    " fox",
                                    " dog",
                                    " cat",
                                    " bird",
                                    " horse",
                                    " runs",
                                    " running",
                                    " jumps",
                                    " over",
                                    " under",
                                    " slowly",
                                    " quickly",
                                    " camera",
                                    " light",
                                    " lights",
                                    " night",
                                    " morning",
                                    " water",
                                    " river",
                                    " ocean",
                                    " mountain",
                                    " city",
                                    " street",
                                    " rain",
                                    " snow",
                                    " wind",
                                    " music",
                                    " sound",
                                    " voice",
                                    " woman",
                                    " man",
                                    " child",
                                    " walks",
                                    " walking",
                                    " sings",
                                    " singing",
                                    " plays",
                                    " piano",
                                    " guitar",
                                    " door",
                                    " window",
                                    " opens",
                                    " closes",
                                    " close",
                                    "-up",
                                    " wide",
                                    " shot",
                                    " scene",
                                    " video",
                                    " audio",
                                    " bright",
                                    " dark",
                                    " golden",
                                    " silver",
                                    " small",
                                    " large",
                                    " moving",
                                    " left",
                                    " right",
                                    " through",
                                    " towards",
                                    " forest",
                                    " beach",
                                    "The",
                                    "A",
                                    "An",
                                    "It",
                                    "She",
                                    "He",
                                    "They",
                                    "user",
                                    "assistant",
                                    "system",
                                    "\n",
                                    "\n\n",
                                    ", ",
                                    ".\n",
                                    " caf\xc3\xa9",
                                    " na\xc3\xafve",
                                    "\xe4\xbd\xa0\xe5\xa5\xbd",
                                    "\xe4\xb8\x96\xe7\x95\x8c",
                                    " \xd0\xb4\xd0\xbe\xd0\xbc",
                                    "\xf0\x9f\xa6\x8a",
                                    "ing",
                                    "tion",
                                    "ness",
                                    "er",
                                    "est",
                                    "'s",
                                    "n't"};

static const struct {
    const char *content;
    bool special;
} added[] = {{"<|endoftext|>", true},      {"<|im_start|>", true},
             {"<|im_end|>", true},         {"<|object_ref_start|>", true},
             {"<|object_ref_end|>", true}, {"<|box_start|>", true},
             {"<|box_end|>", true},        {"<|quad_start|>", true},
             {"<|quad_end|>", true},       {"<|vision_start|>", true},
             {"<|vision_end|>", true},     {"<|vision_pad|>", true},
             {"<|image_pad|>", true},      {"<|video_pad|>", true},
             {"<tool_call>", false},       {"</tool_call>", false},
             {"<|fim_prefix|>", false},    {"<|fim_middle|>", false},
             {"<|fim_suffix|>", false},    {"<|fim_pad|>", false},
             {"<|repo_name|>", false},     {"<|file_sep|>", false},
             {"<tool_response>", false},   {"</tool_response>", false},
             {"<think>", false},           {"</think>", false}};
enum { N_ADDED = sizeof added / sizeof *added, FIRST_LISTED = 1, LAST_LISTED = 13 };

static const char *const listed_only[] = {"<d>",
                                          "</d>",
                                          "<|cutoff|>",
                                          "<|lyrics_start|>",
                                          "<|lyrics_end|>",
                                          "<|caption_start|>",
                                          "<|caption_end|>"};
enum { N_LISTED_ONLY = 7 };

/* ---- merges -------------------------------------------------------------------------------------------------- */

typedef struct bpe {
    uint8_t bytes[MAX_SYMBOLS][MAX_TOKEN_BYTES];
    int n_bytes[MAX_SYMBOLS];
    int left[MAX_SYMBOLS], right[MAX_SYMBOLS]; /* of merge i at 256 + i */
    int n;                                     /* symbols so far */
    uint64_t key, draws;
} bpe;

static int below(bpe *b, int n) {
    return (int)(duet__mix64(b->key + 0x9e3779b97f4a7c15u * b->draws++) % (uint64_t)n);
}

static bool visible(int byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* Ids 0..255: the 188 visible bytes ascending, then the 68 others. */
static void base_symbols(bpe *b) {
    for (int pass = 1; pass >= 0; pass--)
        for (int byte = 0; byte < 256; byte++)
            if (visible(byte) == pass) {
                b->bytes[b->n][0] = (uint8_t)byte;
                b->n_bytes[b->n++] = 1;
            }
}

static int symbol_of(const bpe *b, const uint8_t *bytes, int n) {
    for (int i = 0; i < b->n; i++)
        if (b->n_bytes[i] == n && memcmp(b->bytes[i], bytes, (size_t)n) == 0) return i;
    return -1;
}

static bool add_merge(bpe *b, int left, int right) {
    int n = b->n_bytes[left] + b->n_bytes[right];
    uint8_t joined[2 * MAX_TOKEN_BYTES];
    memcpy(joined, b->bytes[left], (size_t)b->n_bytes[left]);
    memcpy(joined + b->n_bytes[left], b->bytes[right], (size_t)b->n_bytes[right]);
    if (n > MAX_TOKEN_BYTES || symbol_of(b, joined, n) >= 0) return false;
    memcpy(b->bytes[b->n], joined, (size_t)n);
    b->n_bytes[b->n] = n;
    b->left[b->n] = left;
    b->right[b->n++] = right;
    return true;
}

/* Symbols of a word under the merges so far, earliest merge first. */
static int segment(const bpe *b, const char *word, int *out) {
    int n = 0;
    for (; word[n] && n < MAX_WORD; n++) out[n] = symbol_of(b, (const uint8_t *)word + n, 1);
    for (int merge = 256; merge < b->n; merge++)
        for (int i = 0; i + 1 < n; i++) {
            if (out[i] != b->left[merge] || out[i + 1] != b->right[merge]) continue;
            out[i] = merge;
            memmove(out + i + 1, out + i + 2, (size_t)(n - i - 2) * sizeof *out);
            n--;
        }
    return n;
}

/* When the words are used up, any two tokens that end and begin with letters. */
static bool join_any(bpe *b) {
    int left = below(b, b->n), right = below(b, b->n);
    int last = b->bytes[left][b->n_bytes[left] - 1], first = b->bytes[right][0];
    return last >= 'a' && last <= 'z' && first >= 'a' && first <= 'z' &&
           b->n_bytes[left] + b->n_bytes[right] <= 7 && add_merge(b, left, right);
}

static void find_merges(bpe *b, int merges) {
    for (int misses = 0; b->n < 256 + merges;) {
        int symbols[MAX_WORD], n = segment(b, words[below(b, sizeof words / sizeof *words)], symbols);
        int at = n > 1 ? below(b, n - 1) : 0;
        bool found = misses < 300 ? n > 1 && add_merge(b, symbols[at], symbols[at + 1]) : join_any(b);
        if (!found && misses < 300) misses++;
    }
}

/* ---- files --------------------------------------------------------------------------------------------------- */

/* UTF-8 of the token's symbols (spec model-conditioning 3.2). */
static char *spell(const bpe *b, int symbol, char *out) {
    char *p = out;
    for (int i = 0; i < b->n_bytes[symbol]; i++) {
        int code = b->bytes[symbol][i];
        if (!visible(code)) {
            int rank = 0;
            for (int byte = 0; byte < code; byte++) rank += !visible(byte);
            code = 0x100 + rank;
        }
        if (code < 0x80) {
            *p++ = (char)code;
        } else {
            *p++ = (char)(0xc0 | code >> 6);
            *p++ = (char)(0x80 | (code & 63));
        }
    }
    *p = '\0';
    return out;
}

static char *take_dump(json_t *json, size_t flags) {
    char *text = json ? json_dumps(json, flags | JSON_PRESERVE_ORDER) : NULL;
    char *copy = text ? duet_strdup(text) : NULL;
    free(text);
    json_decref(json);
    return copy;
}

static char *vocab_text(const bpe *b) {
    json_t *vocab = json_object();
    char text[4 * MAX_TOKEN_BYTES];
    for (int i = 0; i < b->n; i++) json_object_set_new(vocab, spell(b, i, text), json_integer(i));
    return take_dump(vocab, JSON_COMPACT);
}

static char *merges_text(const bpe *b) {
    char *text = duet_alloc((size_t)(b->n - 256) * 4 * MAX_TOKEN_BYTES + 1, DUET_MEM_STORE), *p = text;
    char left[4 * MAX_TOKEN_BYTES], right[4 * MAX_TOKEN_BYTES];
    for (int i = 256; text && i < b->n; i++)
        p += sprintf(p, "%s %s\n", spell(b, b->left[i], left), spell(b, b->right[i], right));
    return text;
}

static json_t *added_json(const int order[N_ADDED], int first_id) {
    json_t *decoder = json_object();
    for (int i = 0; i < N_ADDED; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d", first_id + i);
        json_object_set_new(decoder, id,
                            json_pack("{s:s, s:b, s:b, s:b, s:b, s:b}", "content", added[order[i]].content,
                                      "lstrip", 0, "normalized", 0, "rstrip", 0, "single_word", 0, "special",
                                      (int)added[order[i]].special));
    }
    return decoder;
}

static char *config_text(const int order[N_ADDED], int first_id) {
    json_t *listed = json_array();
    for (int i = FIRST_LISTED; i <= LAST_LISTED; i++)
        json_array_append_new(listed, json_string(added[i].content));
    for (int i = 0; i < N_LISTED_ONLY; i++) json_array_append_new(listed, json_string(listed_only[i]));
    json_t *config = json_pack("{s:b, s:b, s:o, s:o, s:n, s:b, s:s, s:s, s:i, s:s, s:b, s:s, s:n}",
                               "add_bos_token", 0, "add_prefix_space", 0, "added_tokens_decoder",
                               added_json(order, first_id), "additional_special_tokens", listed, "bos_token",
                               "clean_up_tokenization_spaces", 0, "eos_token", "<|im_end|>", "errors",
                               "replace", "model_max_length", 262144, "pad_token", "<|endoftext|>",
                               "split_special_tokens", 0, "tokenizer_class", "Qwen2Tokenizer", "unk_token");
    return take_dump(config, JSON_INDENT(2));
}

/* ---- ids of the tokens that configurations name --------------------------------------------------------------- */

static int32_t added_id(const duet__doc *config, const char *content) {
    const char *key;
    json_t *value;
    json_object_foreach(duet__doc_get(config, "added_tokens_decoder"), key, value) {
        const char *text = json_string_value(json_object_get(value, "content"));
        if (text && strcmp(text, content) == 0) return (int32_t)strtol(key, NULL, 10);
    }
    return -1;
}

static duet_status find_ids(duet__synth_tokenizer *t, const char *label, duet_error *err) {
    duet__doc config;
    duet_status st = duet__doc_parse(t->config, t->config_bytes, label, &config, err);
    if (st != DUET_OK) return st;
    const struct {
        const char *content;
        int32_t *id;
    } wanted[] = {{"<|vision_start|>", &t->vision_start}, {"<|vision_end|>", &t->vision_end},
                  {"<|image_pad|>", &t->image_pad},       {"<|video_pad|>", &t->video_pad},
                  {"<|endoftext|>", &t->end_of_text},     {"<|im_end|>", &t->im_end}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && st == DUET_OK; i++) {
        *wanted[i].id = added_id(&config, wanted[i].content);
        if (*wanted[i].id < 0)
            st = duet_fail(err, DUET_E_MODEL, "%s: added_tokens_decoder lacks %s", label, wanted[i].content);
    }
    duet__doc_close(&config);
    return st;
}

duet_status duet__synth_tokenizer_make(uint64_t seed, int merges, duet__synth_tokenizer *out,
                                       duet_error *err) {
    *out = (duet__synth_tokenizer){.size = 256 + merges + N_ADDED + N_LISTED_ONLY};
    bpe *b = duet_calloc(1, sizeof *b, DUET_MEM_STORE);
    if (!b) return duet_fail(err, DUET_E_MEMORY, "no memory for the tokenizer");
    b->key = duet__hash64(seed, "tokenizer");
    base_symbols(b);
    find_merges(b, merges);
    int order[N_ADDED];
    for (int i = 0; i < N_ADDED; i++) { /* inside-out shuffle */
        int j = below(b, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    out->vocab = vocab_text(b);
    out->merges = merges_text(b);
    out->config = config_text(order, b->n);
    duet_free(b);
    if (!out->vocab || !out->merges || !out->config) {
        duet__synth_tokenizer_free(out);
        return duet_fail(err, DUET_E_MEMORY, "no memory for the tokenizer");
    }
    out->vocab_bytes = strlen(out->vocab);
    out->merges_bytes = strlen(out->merges);
    out->config_bytes = strlen(out->config);
    return find_ids(out, "tokenizer_config.json", err);
}

duet_status duet__synth_tokenizer_read(const char *dir, duet__synth_tokenizer *out, duet_error *err) {
    char path[DUET__PATH_BYTES];
    *out = (duet__synth_tokenizer){0};
    const struct {
        const char *file;
        char **text;
        size_t *bytes;
    } files[] = {{"vocab.json", &out->vocab, &out->vocab_bytes},
                 {"merges.txt", &out->merges, &out->merges_bytes},
                 {"tokenizer_config.json", &out->config, &out->config_bytes}};
    duet_status st = DUET_OK;
    for (int i = 0; i < 3 && st == DUET_OK; i++) {
        if (!duet__join(path, sizeof path, dir, files[i].file, NULL))
            return duet_fail(err, DUET_E_IO, "%s: too long", dir);
        st = duet__read_file(path, 64u << 20, files[i].text, files[i].bytes, err);
    }
    if (st == DUET_OK) st = find_ids(out, path, err);
    if (st != DUET_OK) duet__synth_tokenizer_free(out);
    return st;
}

void duet__synth_tokenizer_free(duet__synth_tokenizer *t) {
    duet_free(t->vocab);
    duet_free(t->merges);
    duet_free(t->config);
    *t = (duet__synth_tokenizer){0};
}
