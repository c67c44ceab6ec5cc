/* unicode_nfc.c - NFC as of Unicode 9.0, made from a newer library.
 *
 * The tokenizer's normaliser knows Unicode 9.0: code points assigned later have combining class 0 and
 * neither decompose nor compose. A newer library gives the same result if it never sees those of them that
 * it would treat otherwise. So the text is cut at each one (the list below; it passes through unchanged)
 * and the pieces between are normalised on their own:
 *
 *     a U+0301 | U+0897 | U+0323 b   ->   NFC(a U+0301), U+0897, NFC(U+0323 b)
 *
 * From utf8proc we take the data (decompositions, classes) and the composition, and do the canonical
 * ordering ourselves: a counting sort, because the library's exchange sort takes quadratic time on a long
 * run of marks, which a prompt may hold. */
#include <string.h>

#include <utf8proc.h>

#include "base/alloc.h"
#include "nn/unicode.h"
#include "nn/unicode_int.h"

enum {
    MAX_DECOMPOSED = 4,    /* scalars that one scalar decomposes into canonically, at most */
    FIRST_UNSTABLE = 0x300 /* below, every scalar is a starter that NFC leaves alone */
};
static const utf8proc_option_t NFC_OPTIONS = (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

/* Code points assigned after Unicode 9.0 that have a combining class, decompose or compose (spec
 * model-conditioning 3.4). */
/* clang-format off */
static const duet__range cut_ranges[] = {
    {0x5C8, 0x5C9}, {0x7FD, 0x7FD}, {0x897, 0x89F}, {0x8CA, 0x8D3}, {0x9FE, 0x9FE},
    {0xC3C, 0xC3C}, {0xD3B, 0xD3C}, {0xEBA, 0xEBA}, {0x1715, 0x1715}, {0x1ABF, 0x1AF0},
    {0x1DF6, 0x1DFA}, {0xA82C, 0xA82C}, {0x105C9, 0x105C9}, {0x105D2, 0x105D2}, {0x105DA, 0x105DA},
    {0x105E4, 0x105E4}, {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10ECB, 0x10ECF},
    {0x10EF0, 0x10EFB}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070},
    {0x1133B, 0x1133B}, {0x11382, 0x11385}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x11391},
    {0x113B8, 0x113B8}, {0x113BB, 0x113BB}, {0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113C9},
    {0x113CE, 0x113D0}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11935, 0x11935},
    {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
    {0x11F41, 0x11F42}, {0x1611E, 0x16129}, {0x1612F, 0x1612F}, {0x16D63, 0x16D63}, {0x16D67, 0x16D6A},
    {0x16FF0, 0x16FF1}, {0x1D127, 0x1D128}, {0x1D250, 0x1D252}, {0x1D25B, 0x1D25C}, {0x1D25F, 0x1D25F},
    {0x1D280, 0x1D281}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}, {0x1E6E3, 0x1E6E3}, {0x1E6E6, 0x1E6E6}, {0x1E6EE, 0x1E6EF},
    {0x1E6F5, 0x1E6F5},
};
/* clang-format on */

static bool is_cut(uint32_t scalar) {
    return duet__in_ranges(cut_ranges, (int)(sizeof cut_ranges / sizeof *cut_ranges), scalar);
}

static int combining_class(int32_t scalar) {
    return utf8proc_get_property(scalar)->combining_class;
}

/* Stable sort of a run of marks by combining class. spare: at least n elements. */
static void sort_marks(int32_t *marks, int64_t n, int32_t *spare) {
    int64_t start[257] = {0};
    for (int64_t i = 0; i < n; i++) start[combining_class(marks[i]) + 1]++;
    for (int c = 0; c < 256; c++) start[c + 1] += start[c];
    for (int64_t i = 0; i < n; i++) spare[start[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, spare, (size_t)n * sizeof *marks);
}

static void order_marks(int32_t *text, int64_t n, int32_t *spare) {
    for (int64_t at = 0; at < n;) {
        int64_t end = at;
        while (end < n && combining_class(text[end]) != 0) end++;
        if (end - at > 1) sort_marks(text + at, end - at, spare);
        at = end + 1;
    }
}

/* NFC of a piece without cut points. out: room for n; work, spare: room for MAX_DECOMPOSED * n each. */
static int64_t normalize_piece(const uint32_t *in, int64_t n, int32_t *work, int32_t *spare) {
    int64_t length = 0;
    int last_boundary = 0; /* only read by the library when it marks grapheme boundaries */
    for (int64_t i = 0; i < n; i++)
        length += utf8proc_decompose_char((utf8proc_int32_t)in[i], work + length, MAX_DECOMPOSED, NFC_OPTIONS,
                                          &last_boundary);
    order_marks(work, length, spare);
    return utf8proc_normalize_utf32(work, length, NFC_OPTIONS);
}

static bool is_stable(const uint32_t *scalars, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (scalars[i] >= FIRST_UNSTABLE) return false;
    return true;
}

/* Normalise between cut points; work receives the whole text. Returns its length. */
static int64_t normalize(const uint32_t *in, int64_t n, int32_t *work, int32_t *spare) {
    int64_t length = 0;
    for (int64_t at = 0; at < n;) {
        int64_t end = at;
        while (end < n && !is_cut(in[end])) end++;
        length += normalize_piece(in + at, end - at, work + length, spare);
        if (end < n) work[length++] = (int32_t)in[end++];
        at = end;
    }
    return length;
}

duet_status duet_unicode_nfc(const uint32_t *scalars, int64_t n, uint32_t **out, int64_t *n_out,
                             duet_error *err) {
    bool stable = is_stable(scalars, n);
    int64_t room = n < 1 ? 1 : stable ? n : MAX_DECOMPOSED * n;
    int32_t *work = duet_calloc((size_t)room, sizeof *work, DUET_MEM_TOKENIZER);
    int32_t *spare = stable ? NULL : duet_calloc((size_t)room, sizeof *spare, DUET_MEM_TOKENIZER);
    if (!work || (!stable && !spare)) {
        duet_free(work);
        duet_free(spare);
        return duet_fail(err, DUET_E_MEMORY, "no memory to normalise a text of %lld characters",
                         (long long)n);
    }
    if (!stable)
        n = normalize(scalars, n, work, spare);
    else if (n > 0)
        memcpy(work, scalars, (size_t)n * sizeof *work);
    duet_free(spare);
    *out = (uint32_t *)work;
    *n_out = n;
    return DUET_OK;
}
