/* checks.c - one stats op, three floats back, a sentence if they are bad. */
#include "engine/checks.h"

#include <stdarg.h>
#include <stdio.h>

static duet_status judge(const float stats[3], int64_t n_values, duet_error *err, const char *what,
                         va_list ap) {
    if (stats[0] == 0.0f && (stats[1] < stats[2] || n_values <= 1)) return DUET_OK;
    char text[160];
    vsnprintf(text, sizeof text, what, ap);
    if (stats[0] != 0.0f)
        return duet_fail(err, DUET_E_RUN, "%s: %.0f of %lld values are not finite", text, (double)stats[0],
                         (long long)n_values);
    return duet_fail(err, DUET_E_RUN, "%s: all %lld values are equal (%g)", text, (long long)n_values,
                     (double)stats[1]);
}

duet_status duet_check_stats(const float stats[3], int64_t n_values, duet_error *err, const char *what, ...) {
    va_list ap;
    va_start(ap, what);
    duet_status st = judge(stats, n_values, err, what, ap);
    va_end(ap);
    return st;
}

static duet_status fetch_stats(duet_stream *stream, const float *x, int64_t rows, int64_t cols,
                               int64_t x_stride, float stats[3], duet_error *err) {
    duet_device *dev = duet_stream_device(stream);
    float *result = NULL;
    duet_status st = duet_device_alloc(dev, 3 * (int64_t)sizeof *result, "check", (void **)&result, err);
    if (st != DUET_OK) return st;
    duet_stats(stream, &(duet_stats_args){
                           .x = x, .result = result, .rows = rows, .cols = cols, .x_stride = x_stride});
    duet_copy_out(stream, stats, result, 3 * (int64_t)sizeof *result);
    st = duet_stream_sync(stream, err);
    duet_device_free(dev, result);
    return st;
}

duet_status duet_check_rows(duet_stream *stream, const float *x, int64_t rows, int64_t cols, int64_t x_stride,
                            duet_error *err, const char *what, ...) {
    float stats[3];
    duet_status st = fetch_stats(stream, x, rows, cols, x_stride, stats, err);
    if (st != DUET_OK) return st;
    va_list ap;
    va_start(ap, what);
    st = judge(stats, rows * cols, err, what, ap);
    va_end(ap);
    return st;
}
