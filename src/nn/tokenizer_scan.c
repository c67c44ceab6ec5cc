/* tokenizer_scan.c - where does a pre-token end?
 *
 * A scanner equal to the released pattern, alternatives in its order:
 *
 *     (?i:'s|'t|'re|'ve|'m|'ll|'d)          contraction
 *     [^\r\n\p{L}\p{N}]?\p{L}+              word
 *     \p{N}                                 number
 *      ?[^\s\p{L}\p{N}]+[\r\n]*             symbols
 *     \s*[\r\n]+ | \s+(?!\S) | \s+          white space
 *
 * Every scalar begins some pre-token, so the scanner never fails. */
#include "nn/tokenizer_int.h"
#include "nn/unicode.h"

static bool is_line_end(uint32_t c) {
    return c == '\r' || c == '\n';
}

static bool is_letter_at(const uint32_t *s, int64_t n, int64_t at) {
    return at < n && duet_unicode_is_letter(s[at]);
}

/* Neither space, letter nor number: punctuation, symbols, marks, controls. */
static bool is_symbol_at(const uint32_t *s, int64_t n, int64_t at) {
    return at < n && !duet_unicode_is_space(s[at]) && !duet_unicode_is_letter(s[at]) &&
           !duet_unicode_is_number(s[at]);
}

/* Simple case folding as far as the contractions need it. Trap: the long s U+017F folds to s. */
static uint32_t fold_at(const uint32_t *s, int64_t n, int64_t at) {
    if (at >= n) return 0;
    if (s[at] == 0x17f) return 's';
    return s[at] >= 'A' && s[at] <= 'Z' ? s[at] + 32 : s[at];
}

/* Scalars of the contraction at `at`, apostrophe included; 0 when there is none. */
static int contraction(const uint32_t *s, int64_t n, int64_t at) {
    static const char forms[][3] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (s[at] != '\'') return 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (fold_at(s, n, at + 1) != (uint32_t)forms[i][0]) continue;
        if (!forms[i][1]) return 2;
        if (fold_at(s, n, at + 2) == (uint32_t)forms[i][1]) return 3;
    }
    return 0;
}

/* White space run from `at`: up to its last line end; else all of it at the end of the text; else all but
 * the last scalar, which goes to the next pre-token, unless that is the only one. */
static int64_t space_end(const uint32_t *s, int64_t n, int64_t at) {
    int64_t end = at, after_line_end = at;
    while (end < n && duet_unicode_is_space(s[end])) {
        end++;
        if (is_line_end(s[end - 1])) after_line_end = end;
    }
    if (after_line_end > at) return after_line_end;
    return end == n || end - at == 1 ? end : end - 1;
}

int64_t duet__scan_end(const uint32_t *s, int64_t n, int64_t at) {
    int contracted = contraction(s, n, at);
    if (contracted) return at + contracted;

    bool number = duet_unicode_is_number(s[at]);
    bool letter = is_letter_at(s, n, at);
    if (letter || (!number && !is_line_end(s[at]) && is_letter_at(s, n, at + 1))) {
        int64_t end = at + 1;
        while (is_letter_at(s, n, end)) end++;
        return end;
    }
    if (number) return at + 1;

    int64_t end = s[at] == ' ' ? at + 1 : at;
    if (is_symbol_at(s, n, end)) {
        while (is_symbol_at(s, n, end)) end++;
        while (end < n && is_line_end(s[end])) end++;
        return end;
    }
    return space_end(s, n, at);
}
