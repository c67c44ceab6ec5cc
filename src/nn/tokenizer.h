/* tokenizer.h - byte-level BPE exactly as the released tokenizer runs it (spec model-conditioning 3).
 *
 * Text in, token ids out; no special tokens are added, nothing is stripped. Thread rule: immutable after
 * open. */
#ifndef DUET_NN_TOKENIZER_H
#define DUET_NN_TOKENIZER_H

#include "base/status.h"
#include "store/model.h"

typedef struct duet_tokenizer duet_tokenizer;

duet_status duet_tokenizer_open(const duet_tokenizer_files *files, duet_tokenizer **out, duet_error *err);
void duet_tokenizer_close(duet_tokenizer **tokenizer);

/* Encode one segment. *ids is allocated (duet_free; NULL when the segment is empty); it may contain NULs.
 * Invalid UTF-8 is refused (param "prompt", code invalid_encoding). */
duet_status duet_tokenizer_encode(const duet_tokenizer *tokenizer, const char *utf8, int64_t n_bytes,
                                  int32_t **ids, int64_t *n_ids, duet_error *err);
/* Does it belong to this text encoder: every id has an embedding row, and the vision tokens have the ids
 * that the configuration states. DUET_E_MODEL names what differs. */
duet_status duet_tokenizer_check(const duet_tokenizer *tokenizer, const duet_text_config *config,
                                 duet_error *err);
int32_t duet_tokenizer_size(const duet_tokenizer *tokenizer);                        /* highest id + 1 */
int32_t duet_tokenizer_id(const duet_tokenizer *tokenizer, const char *added_token); /* -1 when unknown */
/* First of the vision tokens contained in the text as literal markup, or NULL; points into the tokenizer. */
const char *duet_tokenizer_find_vision_token(const duet_tokenizer *tokenizer, const char *utf8,
                                             int64_t n_bytes);
/* Bytes of a token (for round trips); NULL when id is out of range. */
const char *duet_tokenizer_bytes(const duet_tokenizer *tokenizer, int32_t id, int64_t *n_bytes);

#endif
