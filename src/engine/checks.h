/* checks.h - no stage hands on values that are not finite or all equal (promise P5). */
#ifndef DUET_ENGINE_CHECKS_H
#define DUET_ENGINE_CHECKS_H

#include "backend/backend.h"

/* Wait for the stream and look at x [rows, cols]. Fails with "<what>: 3 values are not finite" or "<what>: all N values are equal", what
 * given printf-like. A single value is never "all equal". */
duet_status duet_check_rows(duet_stream *stream, const float *x, int64_t rows, int64_t cols, int64_t x_stride,
                            duet_error *err, const char *what, ...) DUET_PRINTF(7, 8);

/* The same rule for results of a stats op that are already on the host. */
duet_status duet_check_stats(const float stats[3], int64_t n_values, duet_error *err, const char *what, ...)
    DUET_PRINTF(4, 5);

#endif
