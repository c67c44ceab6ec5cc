/* tiny_tokenizer.h - the three tokenizer files of a small vocabulary, written in memory.
 *
 * 256 byte symbols in the released order (visible ones first), then one token a merge; `turn` rotates the
 * ids among them. Merges are spelled in visible ASCII ("a b"). */
#ifndef DUET_TEST_TINY_TOKENIZER_H
#define DUET_TEST_TINY_TOKENIZER_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "nn/tokenizer.h"
#include "nn/unicode.h"

typedef struct tiny_files {
    char vocab[65536], merges[65536], own_config[1024];
    const char *config; /* own_config, or what a test puts here */
} tiny_files;

/* %d: three ids behind the vocabulary */
#define TINY_CONFIG                                                                                          \
    "{\"added_tokens_decoder\":{"                                                                            \
    "\"%d\":{\"content\":\"<|vision_start|>\",\"special\":true,\"normalized\":false},"                       \
    "\"%d\":{\"content\":\"<|image_pad|>\",\"special\":true,\"normalized\":false},"                          \
    "\"%d\":{\"content\":\"<|image_pad|><x>\",\"special\":false,\"normalized\":false}},"                     \
    "\"eos_token\":\"<|end|>\",\"pad_token\":\"<|image_pad|>\",\"bos_token\":null,"                          \
    "\"additional_special_tokens\":[\"<d>\",\"<|vision_start|>\",\"</d>\"]}"

static inline bool tiny__visible(int byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static inline int tiny__symbol(int byte, char *out) {
    int hidden = 0;
    for (int b = 0; b < byte; b++) hidden += !tiny__visible(b);
    int n = duet_utf8_put(tiny__visible(byte) ? (uint32_t)byte : 0x100u + (uint32_t)hidden, out);
    out[n] = '\0';
    return n;
}

static inline void tiny_files_make(tiny_files *f, const char *const *merges, int n_merges, int turn) {
    char *v = f->vocab, *m = f->merges;
    int index = 0, n = 256 + n_merges;
    *v++ = '{';
    for (int visible = 1; visible >= 0; visible--)
        for (int b = 0; b < 256; b++) {
            char symbol[5];
            if (tiny__visible(b) != visible) continue;
            tiny__symbol(b, symbol);
            const char *escape = b == '"' || b == '\\' ? "\\" : "";
            v += sprintf(v, "%s\"%s%s\":%d", index ? "," : "", escape, symbol, (index + turn) % n);
            index++;
        }
    for (int i = 0; i < n_merges; i++, index++) {
        const char *space = strchr(merges[i], ' ');
        v += sprintf(v, ",\"%.*s%s\":%d", (int)(space - merges[i]), merges[i], space + 1, (index + turn) % n);
        m += sprintf(m, "%s\n", merges[i]);
    }
    strcpy(v, "}");
    *m = '\0';
    sprintf(f->own_config, TINY_CONFIG, n, n + 1, n + 2);
    f->config = f->own_config;
}

static inline duet_tokenizer_files tiny_files_view(const tiny_files *f) {
    return (duet_tokenizer_files){f->vocab,
                                  f->merges,
                                  f->config,
                                  (int64_t)strlen(f->vocab),
                                  (int64_t)strlen(f->merges),
                                  (int64_t)strlen(f->config)};
}

#endif
