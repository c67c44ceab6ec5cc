/* tokenizer_int.h - what the files of the tokenizer share.
 *
 *     tokenizer_load.c    vocab.json, merges.txt -> tables     tokenizer_map.c   the two hash tables
 *     tokenizer_added.c   tokenizer_config.json -> added tokens
 *     tokenizer_scan.c    scalars -> pre-tokens                tokenizer_bpe.c   bytes of a pre-token -> ids
 *     tokenizer.c         a segment of text -> ids, and the small public questions */
#ifndef DUET_NN_TOKENIZER_INT_H
#define DUET_NN_TOKENIZER_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "nn/tokenizer.h"

/* ---- growing arrays ---- */
typedef struct duet__ids {
    int32_t *id;
    int64_t n, room;
} duet__ids;

duet_status duet__ids_push(duet__ids *ids, int32_t id, duet_error *err);

/* ---- hash tables: open addressing, at most half full; fixed capacity ---- */

/* Bytes of a token -> id. The bytes stay where they are (the tokenizer's arena). */
typedef struct duet__token_text {
    const char *bytes; /* NULL: no token has this id */
    int32_t n_bytes;
} duet__token_text;

typedef struct duet__text_map {
    int32_t *slot; /* id or -1 */
    uint64_t mask;
} duet__text_map;

duet_status duet__text_map_open(duet__text_map *map, int64_t n_entries, duet_error *err);
void duet__text_map_close(duet__text_map *map);
int32_t duet__text_map_find(const duet__text_map *map, const duet__token_text *tokens, const char *bytes,
                            int64_t n_bytes);                                             /* -1: absent */
void duet__text_map_put(duet__text_map *map, const duet__token_text *tokens, int32_t id); /* must be absent */

/* Adjacent pair of ids -> rank of the merge and the id that replaces the pair. */
typedef struct duet__merge {
    int32_t left, right, rank, id; /* left -1: empty slot */
} duet__merge;

typedef struct duet__merge_map {
    duet__merge *slot;
    uint64_t mask;
} duet__merge_map;

duet_status duet__merge_map_open(duet__merge_map *map, int64_t n_entries, duet_error *err);
void duet__merge_map_close(duet__merge_map *map);
const duet__merge *duet__merge_map_find(const duet__merge_map *map, int32_t left, int32_t right);
bool duet__merge_map_put(duet__merge_map *map, duet__merge merge); /* false: the pair is already there */

/* ---- the tokenizer ---- */
enum {
    DUET__MAX_FILE_BYTES = 1 << 28,
    DUET__MAX_IDS = 1 << 20, /* also the bound on merges */
    DUET__MAX_ADDED_TOKENS = 4096
};

struct duet_tokenizer {
    char *arena; /* bytes of every token; room for all that the files can hold */
    int64_t arena_used, arena_room;
    duet__token_text *token; /* [n_tokens], by id */
    int32_t n_tokens;        /* highest id + 1 */
    int32_t byte_id[256];
    duet__text_map texts; /* ordinary tokens only */
    duet__merge_map merges;
    int64_t n_merges;
    bool rank_is_id; /* id(merge i) = 256 + i, as in the released files; nothing relies on it */
    int32_t *added;  /* ids of added tokens, by first byte, then longest first */
    int n_added;
    int added_start[257]; /* added[added_start[b] .. added_start[b+1]-1] begin with byte b */
};

/* Room for ids up to `id`; new ones have no text. */
duet_status duet__token_reserve(duet_tokenizer *tokenizer, int32_t id, duet_error *err);
/* Copy bytes into the arena; the caller guarantees that they come from one of the files. */
duet__token_text duet__token_text_copy(duet_tokenizer *tokenizer, const char *bytes, int64_t n_bytes);
/* Bytes that a spelling in byte symbols stands for, at most n_utf8 of them; -1 when it holds anything
 * else. */
int64_t duet__symbols_to_bytes(const char *utf8, int64_t n_utf8, char *bytes);
/* tokenizer_config.json -> added tokens. */
duet_status duet__added_tokens_load(duet_tokenizer *tokenizer, const char *json, int64_t n_bytes,
                                    duet_error *err);

/* End of the pre-token that begins at `at` (0 <= at < n). */
int64_t duet__scan_end(const uint32_t *scalars, int64_t n, int64_t at);

/* Merge the bytes of one pre-token and append the ids. The workspace grows as needed and is reused. */
typedef struct duet__bpe {
    struct duet__bpe_symbol *symbol;
    struct duet__bpe_candidate *heap;
    int64_t n_heap, room;
} duet__bpe;

duet_status duet__bpe_encode(duet__bpe *bpe, const duet_tokenizer *tokenizer, const char *bytes,
                             int64_t n_bytes, duet__ids *ids, duet_error *err);
void duet__bpe_close(duet__bpe *bpe);

#endif
