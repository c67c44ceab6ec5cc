/* unicode_test.c - strict UTF-8, the frozen classes, and NFC of Unicode 9.0 on top of a newer library. */
#include "harness/harness.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "nn/unicode.h"

/* ---- UTF-8 ---- */

TEST(utf8_every_scalar_returns, 5000) {
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xd800 && c <= 0xdfff) continue;
        char bytes[4];
        int64_t n = duet_utf8_put(c, bytes), at = 0;
        uint32_t back = ~c;
        EXPECT(duet_utf8_next(bytes, n, &at, &back));
        EXPECT_EQ(back, c);
        EXPECT_EQ(at, n);
        if (n > 1) EXPECT_EQ(duet_utf8_count(bytes, n - 1, NULL), -1); /* truncated */
    }
}

TEST(utf8_refuses_what_is_not_well_formed, 1000) {
    static const char *const bad[] = {
        "\x80",             /* continuation alone */
        "\xc0\x80",         /* overlong NUL */
        "\xc1\xbf",         /* overlong U+007F */
        "\xe0\x80\x80",     /* overlong, 3 bytes */
        "\xe0\x9f\xbf",     /* overlong U+07FF */
        "\xf0\x8f\xbf\xbf", /* overlong U+FFFF */
        "\xed\xa0\x80",     /* surrogate U+D800 */
        "\xed\xbf\xbf",     /* surrogate U+DFFF */
        "\xf4\x90\x80\x80", /* U+110000 */
        "\xf8\x88\x80\x80\x80",
        "\xfe",
        "\xff",
        "\xc3(",
        "\xe2\x82(",
        "\xf0\x9f\x99(",
        "\xe2\x82", /* truncated */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[16];
        int64_t bad_at = -1;
        int n = snprintf(text, sizeof text, "ab%s", bad[i]);
        if (duet_utf8_count(text, n, &bad_at) != -1) FAIL("case %zu was accepted", i);
        EXPECT_EQ(bad_at, 2);
    }
    EXPECT_EQ(duet_utf8_count("a\0\xc2\x80\xf0\x9f\x99\x82", 8, NULL), 4);
    EXPECT_EQ(duet_utf8_count("", 0, NULL), 0);
}

/* ---- classes ---- */

TEST(classes_are_those_of_unicode_16, 5000) {
    int64_t letters = 0, numbers = 0, spaces = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        bool l = duet_unicode_is_letter(c), n = duet_unicode_is_number(c), s = duet_unicode_is_space(c);
        EXPECT(l + n + s <= 1);
        letters += l, numbers += n, spaces += s;
    }
    EXPECT_EQ(letters, 141028);
    EXPECT_EQ(numbers, 1911);
    EXPECT_EQ(spaces, 25);
}

TEST(class_spot_checks, 1000) {
    static const uint32_t letter[] = {'A',    'z',    0xaa,   0xdf,   0x17f,   0x2b0,
                                      0x1c89, 0x4e2d, 0xac00, 0xa7cb, 0x10d4a, 0x2ebf0};
    static const uint32_t number[] = {'0', '9', 0xb2, 0xbd, 0x663, 0x2167, 0x3007, 0x10d40, 0x1ccf0, 0x1e5f1};
    static const uint32_t neither[] = {'_',    0x1c,    0x301, 0x93f,  0x200b,  0x200d,
                                       0xfeff, 0x1f642, 0x897, 0xa7ce, 0x323b0, 0x33479};
    static const uint32_t space[] = {9,      10,     13,     32,     0x85,   0xa0,
                                     0x1680, 0x200a, 0x2029, 0x202f, 0x205f, 0x3000};
    for (size_t i = 0; i < sizeof letter / 4; i++) EXPECT(duet_unicode_is_letter(letter[i]));
    for (size_t i = 0; i < sizeof number / 4; i++) EXPECT(duet_unicode_is_number(number[i]));
    for (size_t i = 0; i < sizeof space / 4; i++) EXPECT(duet_unicode_is_space(space[i]));
    for (size_t i = 0; i < sizeof neither / 4; i++) {
        EXPECT(!duet_unicode_is_letter(neither[i]));
        EXPECT(!duet_unicode_is_number(neither[i]));
        EXPECT(!duet_unicode_is_space(neither[i]));
    }
}

/* ---- NFC ---- */

static void expect_nfc(const uint32_t *in, int64_t n, const uint32_t *want, int64_t n_want) {
    uint32_t *got = NULL;
    int64_t n_got = -1;
    duet_error e = {0};
    EXPECT_OK(duet_unicode_nfc(in, n, &got, &n_got, &e), e);
    if (n_got != n_want) FAIL("U+%04X...: %" PRId64 " scalars, want %" PRId64, n ? in[0] : 0, n_got, n_want);
    for (int64_t i = 0; i < n; i++)
        if (i < n_want && got[i] != want[i])
            FAIL("U+%04X...: [%" PRId64 "] is U+%04X, want U+%04X", in[0], i, got[i], want[i]);
    duet_free(got);
}

TEST(nfc_composes_orders_and_excludes, 1000) {
    static const struct {
        int64_t n, n_want;
        uint32_t in[6], want[6];
    } cases[] = {
        {0, 0, {0}, {0}},
        {3, 3, {'a', 0, 0xff}, {'a', 0, 0xff}},
        {2, 1, {'e', 0x301}, {0xe9}},
        {3, 2, {'a', 0x301, 0x323}, {0x1ea1, 0x301}}, /* marks ordered by class before composing */
        {3, 2, {'a', 0x301, 0x300}, {0xe1, 0x300}},   /* same class: blocked, order kept */
        {3, 1, {0x1100, 0x1161, 0x11a8}, {0xac01}},   /* Hangul */
        {2, 1, {0xac00, 0x11a8}, {0xac01}},
        {1, 1, {0x212b}, {0xc5}}, /* singletons */
        {1, 1, {0x2126}, {0x3a9}},
        {1, 2, {0x958}, {0x915, 0x93c}}, /* composition exclusion */
        {2, 2, {0x915, 0x93c}, {0x915, 0x93c}},
        {1, 3, {0x1d160}, {0x1d158, 0x1d165, 0x1d16e}}, /* grows threefold */
        {1, 1, {0xfb01}, {0xfb01}},                     /* compatibility ligature stays */
        {2, 2, {0x301, 'a'}, {0x301, 'a'}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_nfc(cases[i].in, cases[i].n, cases[i].want, cases[i].n_want);
}

/* The cut list of spec model-conditioning 3.4, word for word. */
static const char CUTS[] = "5C8-5C9 7FD 897-89F 8CA-8D3 9FE C3C D3B-D3C EBA 1715 1ABF-1AF0 1DF6-1DFA A82C "
                           "105C9 105D2 105DA 105E4 10D24-10D27 "
                           "10D69-10D6D 10EAB-10EAC 10ECB-10ECF 10EF0-10EFB 10EFD-10EFF 10F46-10F50 "
                           "10F82-10F85 11070 1133B 11382-11385 1138B 1138E "
                           "11390-11391 113B8 113BB 113C2 113C5 113C7-113C9 113CE-113D0 1145E 11839-1183A "
                           "11930 11935 11938 1193D-1193E 11943 119E0 "
                           "11A34 11A47 11A99 11D42 11D44-11D45 11D97 11F41-11F42 1611E-16129 1612F 16D63 "
                           "16D67-16D6A 16FF0-16FF1 1D127-1D128 "
                           "1D250-1D252 1D25B-1D25C 1D25F 1D280-1D281 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF "
                           "1E4EC-1E4EF 1E5EE-1E5EF 1E6E3 1E6E6 "
                           "1E6EE-1E6EF 1E6F5";

/* A code point assigned after 9.0 has class 0 for the tokenizer, whatever the library thinks: the mark of
 * low class behind it must not move in front of it, nor compose across it. */
TEST(nfc_knows_nothing_after_unicode_9, 5000) {
    int64_t seen = 0;
    for (const char *at = CUTS; *at; at += *at == ' ') {
        char *end;
        uint32_t first = (uint32_t)strtoul(at, &end, 16), last = first;
        if (*end == '-') last = (uint32_t)strtoul(end + 1, &end, 16);
        at = end;
        for (uint32_t c = first; c <= last; c++, seen++) {
            expect_nfc((uint32_t[]){'a', 0x301, c, 0x323, 'b'}, 5, (uint32_t[]){0xe1, c, 0x323, 'b'}, 4);
            expect_nfc((uint32_t[]){c, c, 0x334}, 3, (uint32_t[]){c, c, 0x334}, 3);
        }
    }
    EXPECT_EQ(seen, 227);
}

TEST(nfc_of_a_long_run_of_marks_takes_linear_time, 20000) {
    enum { N = 1000001 };
    uint32_t *in = calloc(N, sizeof *in), *got = NULL;
    int64_t n = 0;
    duet_error e = {0};
    in[0] = 'x'; /* classes 230 and 220 in turn; neither composes with x */
    for (int64_t i = 1; i < N; i++) in[i] = i % 2 ? 0x30d : 0x32e;
    EXPECT_OK(duet_unicode_nfc(in, N, &got, &n, &e), e);
    EXPECT_EQ(n, N);
    for (int64_t i = 1; i < N; i++) EXPECT_EQ(got[i], i <= N / 2 ? 0x32e : 0x30d);
    duet_free(got);
    free(in);
}

TEST(nfc_reports_missing_memory, 2000) {
    static const uint32_t text[] = {'e', 0x301};
    for (int64_t nth = 0;; nth++) {
        uint32_t *got = NULL;
        int64_t n = 0, before_bytes = duet_mem_live_total_bytes();
        duet_error e = {0};
        duet_mem_fault_arm(nth);
        duet_status st = duet_unicode_nfc(text, 2, &got, &n, &e);
        bool fired = duet_mem_fault_fired();
        duet_mem_fault_arm(-1);
        EXPECT_EQ(st, fired ? DUET_E_MEMORY : DUET_OK);
        if (st == DUET_OK) duet_free(got);
        EXPECT_EQ(duet_mem_live_total_bytes(), before_bytes);
        if (!fired) break;
    }
}
