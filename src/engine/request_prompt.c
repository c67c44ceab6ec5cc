/* request_prompt.c - the prompt as text: valid UTF-8, 1 to 7000 code points, not only white space.
 *
 * Code points are counted as they were sent, before any normalisation. Nothing is trimmed or replaced: a
 * byte that is not UTF-8 refuses the prompt. NUL is a code point like any other (a prompt file may hold
 * one). */
#include "engine/request_int.h"

#include <stdio.h>

#include "nn/unicode.h"

enum { MAX_PROMPT_CHARACTERS = 7000 };

/* White space, and the four separators 1C..1F that the reference's strip() takes for white space too. */
static bool is_blank(uint32_t c) {
    return duet_unicode_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

typedef struct text_facts {
    int64_t characters, bad_byte; /* bad_byte: offset, or -1 */
    bool blank;
} text_facts;

static text_facts look_at(const char *text, int64_t bytes) {
    text_facts f = {.bad_byte = -1, .blank = true};
    for (int64_t at = 0; at < bytes; f.characters++) {
        uint32_t c;
        if (!duet_utf8_next(text, bytes, &at, &c)) {
            f.bad_byte = at;
            return f;
        }
        f.blank = f.blank && is_blank(c);
    }
    return f;
}

duet_status duet__check_prompt(const duet_request *r, duet_error *err) {
    char value[64], nearest[64];
    if (!r->prompt && r->assumed_text_rows > 0) return DUET_OK;
    if (!r->prompt)
        return duet_refuse(err, "prompt", "missing_required_parameter", NULL, NULL, "is required");
    int64_t bytes = duet_request_prompt_bytes(r);
    text_facts f = look_at(r->prompt, bytes);
    if (f.bad_byte >= 0) {
        snprintf(value, sizeof value, "byte 0x%02x at offset %lld", (unsigned char)r->prompt[f.bad_byte],
                 (long long)f.bad_byte);
        return duet_refuse(err, "prompt", "invalid_encoding", value, NULL, "must be UTF-8");
    }
    if (f.characters == 0)
        return duet_refuse(err, "prompt", "missing_required_parameter", "an empty text", NULL,
                           "must not be empty");
    if (f.blank)
        return duet_refuse(err, "prompt", "missing_required_parameter", "only white space", NULL,
                           "must not be only white space");
    if (f.characters > MAX_PROMPT_CHARACTERS) {
        snprintf(value, sizeof value, "%lld characters", (long long)f.characters);
        snprintf(nearest, sizeof nearest, "%d characters", MAX_PROMPT_CHARACTERS);
        return duet_refuse(err, "prompt", "string_above_max_length", value, nearest,
                           "must have at most %d characters", MAX_PROMPT_CHARACTERS);
    }
    return DUET_OK;
}
