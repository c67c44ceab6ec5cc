/* request_prompt.c - the prompt as text: valid UTF-8, 1 to 7000 code points, not only white space.
 *
 * Code points are counted as they were sent, before any normalisation. Nothing is trimmed or replaced: a byte that is
 * not UTF-8 refuses the prompt. NUL is a code point like any other (a prompt file may hold one). */
#include "engine/request_int.h"

#include <stdio.h>

enum { MAX_PROMPT_CHARACTERS = 7000 };

/* One code point at text[*at]; advances. -1: overlong, surrogate, above U+10FFFF, cut off or a stray byte. */
static int32_t next_code_point(const unsigned char *text, int64_t bytes, int64_t *at) {
    static const int32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = text[*at];
    int length = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
    if (!length || *at + length > bytes) return -1;
    int32_t code = length == 1 ? first : first & (0x7f >> length);
    for (int i = 1; i < length; i++) {
        unsigned char next = text[*at + i];
        if (next >> 6 != 2) return -1;
        code = code << 6 | (next & 0x3f);
    }
    if (code < smallest[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return -1;
    *at += length;
    return code;
}

/* Unicode's White_Space, and the four separators 1C..1F that the reference's strip() takes for white space too. */
static bool is_white_space(int32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

typedef struct text_facts {
    int64_t characters, bad_byte; /* bad_byte: offset, or -1 */
    bool blank;
} text_facts;

static text_facts look_at(const char *text, int64_t bytes) {
    text_facts f = {.bad_byte = -1, .blank = true};
    for (int64_t at = 0; at < bytes; f.characters++) {
        int64_t here = at;
        int32_t c = next_code_point((const unsigned char *)text, bytes, &at);
        if (c < 0) {
            f.bad_byte = here;
            return f;
        }
        f.blank = f.blank && is_white_space(c);
    }
    return f;
}

int64_t duet__count_characters(const char *text, int64_t bytes) {
    text_facts f = look_at(text, bytes);
    return f.bad_byte < 0 ? f.characters : -1;
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
