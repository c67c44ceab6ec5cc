/* request_int.h - what the files of the request share: one function per group of fields, in the order of
 * checks.
 *
 * Each returns DUET_OK or DUET_E_REQUEST with field, code, value and nearest filled by duet_refuse. `r` is
 * complete (defaults filled by size stamp), so no function here looks at struct_bytes. */
#ifndef DUET_ENGINE_REQUEST_INT_H
#define DUET_ENGINE_REQUEST_INT_H

#include "engine/request.h"

/* ---- rules that need no model ---- */
duet_status duet__check_prompt(const duet_request *r, duet_error *err);
duet_status duet__check_task(const duet_request *r, duet_error *err);
duet_status duet__check_duration(const duet_request *r, duet_error *err);
duet_status duet__check_canvas(const duet_request *r, duet_error *err);
duet_status duet__check_schedule(const duet_request *r, duet_error *err);
duet_status duet__check_outputs(const duet_request *r, duet_error *err);
duet_status duet__check_words(const duet_request *r, duet_error *err);

/* ---- rules that need the configuration; fill their part of `out` ---- */
duet_status duet__resolve_canvas(const duet_request *r, const duet_model_config *config, duet_resolved *out,
                                 duet_error *err);
duet_status duet__resolve_schedule(const duet_request *r, const duet_model_config *config, duet_resolved *out,
                                   duet_error *err);
void duet__resolve_duration(const duet_request *r, duet_resolved *out);
duet_status duet__resolve_outputs(const duet_request *r, duet_resolved *out, duet_error *err);

/* ---- helpers ---- */
void duet__warn(duet_resolved *out, const char *fmt, ...) DUET_PRINTF(2, 3);
/* Number as people write it: "4.5", "1e+30"; into buf, returns buf. */
const char *duet__number_text(double value, char *buf, size_t buf_bytes);

static inline bool duet__given(int64_t value) {
    return value != DUET_UNSET;
}

static inline bool duet__number_given(double value) {
    return value != DUET_UNSET_NUMBER;
}

#endif
