/* unicode.c - strict UTF-8 and the three character classes of the pre-tokenizer. NFC stands in
 * unicode_nfc.c. */
#include "nn/unicode.h"
#include "nn/unicode_int.h"

static bool is_continuation(unsigned char byte) {
    return (byte & 0xc0u) == 0x80u;
}

/* Length of the sequence that a lead byte announces, and its payload bits; 0 for a byte that cannot lead.
 * C0, C1 and F5..FF could only begin overlong forms or values above U+10FFFF. */
static int lead(unsigned char byte, uint32_t *bits) {
    if (byte < 0x80) return *bits = byte, 1;
    if (byte >= 0xc2 && byte <= 0xdf) return *bits = byte & 0x1fu, 2;
    if (byte >= 0xe0 && byte <= 0xef) return *bits = byte & 0x0fu, 3;
    if (byte >= 0xf0 && byte <= 0xf4) return *bits = byte & 0x07u, 4;
    return 0;
}

bool duet_utf8_next(const char *utf8, int64_t n_bytes, int64_t *at, uint32_t *scalar) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)utf8 + *at;
    uint32_t code;
    int length = lead(s[0], &code);
    if (length == 0 || n_bytes - *at < length) return false;
    for (int i = 1; i < length; i++) {
        if (!is_continuation(s[i])) return false;
        code = code << 6 | (s[i] & 0x3fu);
    }
    if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return false;
    *scalar = code;
    *at += length;
    return true;
}

int64_t duet_utf8_count(const char *utf8, int64_t n_bytes, int64_t *bad_at) {
    int64_t count = 0;
    for (int64_t at = 0; at < n_bytes; count++) {
        uint32_t scalar;
        if (duet_utf8_next(utf8, n_bytes, &at, &scalar)) continue;
        if (bad_at) *bad_at = at;
        return -1;
    }
    return count;
}

int duet_utf8_put(uint32_t scalar, char out[4]) {
    if (scalar < 0x80) {
        out[0] = (char)scalar;
        return 1;
    }
    int length = scalar < 0x800 ? 2 : scalar < 0x10000 ? 3 : 4;
    static const unsigned char mark[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80u | (scalar & 0x3fu));
        scalar >>= 6;
    }
    out[0] = (char)(mark[length] | scalar);
    return length;
}

bool duet__in_ranges(const duet__range *ranges, int n, uint32_t code) {
    int low = 0, high = n; /* the answer, if any, is in [low, high) */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (code > ranges[middle].last)
            low = middle + 1;
        else if (code < ranges[middle].first)
            high = middle;
        else
            return true;
    }
    return false;
}

bool duet_unicode_is_letter(uint32_t scalar) {
    if (scalar < 0x80) return (scalar | 0x20u) >= 'a' && (scalar | 0x20u) <= 'z';
    return duet__in_ranges(duet__letter_ranges, duet__n_letter_ranges, scalar);
}

bool duet_unicode_is_number(uint32_t scalar) {
    if (scalar < 0x80) return scalar >= '0' && scalar <= '9';
    return duet__in_ranges(duet__number_ranges, duet__n_number_ranges, scalar);
}

/* Trap: U+001C..001F are space for some libraries; the White_Space property, and so the tokenizer, says
 * no. Nor are the zero-width characters (U+200B, U+FEFF). */
bool duet_unicode_is_space(uint32_t scalar) {
    static const duet__range spaces[] = {
        {0x09, 0x0d},     {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
        {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
    };
    return duet__in_ranges(spaces, (int)(sizeof spaces / sizeof *spaces), scalar);
}
