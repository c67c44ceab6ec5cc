/* status.c - filling error objects. See status.h for the rules. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *duet_status_name(duet_status status) {
    switch (status) {
    case DUET_OK:
        return "ok";
    case DUET_E_USAGE:
        return "usage";
    case DUET_E_REQUEST:
        return "request";
    case DUET_E_MODEL:
        return "model";
    case DUET_E_RUN:
        return "run";
    case DUET_E_IO:
        return "io";
    case DUET_E_MEMORY:
        return "memory";
    case DUET_E_UNSUPPORTED:
        return "unsupported";
    case DUET_E_CANCELLED:
        return "cancelled";
    case DUET_E_INTERNAL:
        return "internal";
    }
    return "unknown";
}

static void copy_text(char *dst, size_t dst_bytes, const char *src) {
    snprintf(dst, dst_bytes, "%s", src ? src : "");
}

duet_status duet_fail(duet_error *err, duet_status status, const char *fmt, ...) {
    if (!err || err->status != DUET_OK) return status;
    err->status = status;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    return status;
}

duet_status duet_refuse(duet_error *err, const char *param, const char *code, const char *value,
                        const char *nearest, const char *fmt, ...) {
    if (!err || err->status != DUET_OK) return DUET_E_REQUEST;
    err->status = DUET_E_REQUEST;
    copy_text(err->param, sizeof err->param, param);
    copy_text(err->code, sizeof err->code, code);
    copy_text(err->value, sizeof err->value, value);
    copy_text(err->nearest, sizeof err->nearest, nearest);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    return DUET_E_REQUEST;
}

void duet_error_prefix(duet_error *err, const char *fmt, ...) {
    if (!err || err->status == DUET_OK) return;
    char old[sizeof err->message];
    memcpy(old, err->message, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof err->message) return;
    snprintf(err->message + n, sizeof err->message - (size_t)n, ": %s", old);
}
