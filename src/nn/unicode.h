/* unicode.h - the little Unicode that a prompt needs: strict UTF-8, three character classes, NFC.
 *
 * Each part is held to the version that the released tokenizer runs with (spec model-conditioning 3.4),
 * which is not one version: letters and numbers are those of Unicode 16.0, white space is a fixed list,
 * NFC is that of Unicode 9.0.
 *
 * Pure functions; any thread. */
#ifndef DUET_NN_UNICODE_H
#define DUET_NN_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Decode the scalar value at utf8[*at] and move *at behind it. False (and *at unmoved) at a byte sequence
 * that is not well-formed: truncated, overlong, surrogate, above U+10FFFF. Precondition: 0 <= *at <
 * n_bytes. */
bool duet_utf8_next(const char *utf8, int64_t n_bytes, int64_t *at, uint32_t *scalar);

/* Scalar values in the text, or -1 when it is not well-formed; *bad_at (may be NULL) is then the offset of
 * the first bad byte. */
int64_t duet_utf8_count(const char *utf8, int64_t n_bytes, int64_t *bad_at);

/* Encode one scalar value; returns the number of bytes written, 1 to 4. */
int duet_utf8_put(uint32_t scalar, char out[4]);

bool duet_unicode_is_letter(uint32_t scalar); /* Lu Ll Lt Lm Lo */
bool duet_unicode_is_number(uint32_t scalar); /* Nd Nl No */
bool duet_unicode_is_space(uint32_t scalar);  /* White_Space: what the pattern calls \s */

/* NFC. *out is allocated (duet_free) and holds *n_out scalars, at most 3 n. Time O(n) for any input, long
 * runs of combining marks included. */
duet_status duet_unicode_nfc(const uint32_t *scalars, int64_t n, uint32_t **out, int64_t *n_out,
                             duet_error *err);

#endif
