/* status.h - how failure travels.
 *
 * A function that can fail returns duet_status and takes a `duet_error *` (may be NULL). The first error
 * wins: the function that sees the fault fills the error once, everybody above only passes the status on:
 *
 *     TRY(st, fail, duet_buf_open(dev, bytes, &buf, err));
 *     ...
 *     fail: cleanup that copes with any half-built state; return st;
 */
#ifndef DUET_BASE_STATUS_H
#define DUET_BASE_STATUS_H

#include "duet/duet.h"

#if defined(__GNUC__)
#define DUET_PRINTF(fmt_index, first_arg) __attribute__((format(printf, fmt_index, first_arg)))
#else
#define DUET_PRINTF(fmt_index, first_arg)
#endif

/* Fill `err` (unless NULL or already holding an error) and return `status`. The message is truncated, never
 * overrun. */
duet_status duet_fail(duet_error *err, duet_status status, const char *fmt, ...) DUET_PRINTF(3, 4);

/* A broken request rule. `param` is the HTTP field name, `code` one of the codes of the HTTP interface;
 * `value` and `nearest` may be NULL; `fmt` states the rule ("must be between 96 and 362"). Returns
 * DUET_E_REQUEST. */
duet_status duet_refuse(duet_error *err, const char *param, const char *code, const char *value,
                        const char *nearest, const char *fmt, ...) DUET_PRINTF(6, 7);

/* Put "prefix: " before the message of an error that is already set (stage names on the way up). */
void duet_error_prefix(duet_error *err, const char *fmt, ...) DUET_PRINTF(2, 3);

#define TRY(st, label, expr)                                                                                 \
    do {                                                                                                     \
        (st) = (expr);                                                                                       \
        if ((st) != DUET_OK) goto label;                                                                     \
    } while (0)

#endif
