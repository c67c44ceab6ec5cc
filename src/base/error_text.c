/* error_text.c - one error as one line for people: "FIELD: RULE (got VALUE; nearest: VALUE)".
 *
 * Values come from requests and file names, so control characters (a newline would forge a second line, an
 * escape would speak to the terminal) are shown as '?'. A NUL-terminated result whatever the sizes. */
#include "duet/duet.h"

#include <stdio.h>
#include <string.h>

static void append(char *buf, size_t buf_bytes, const char *text) {
    size_t used = strlen(buf);
    if (used + 1 < buf_bytes) snprintf(buf + used, buf_bytes - used, "%s", text);
}

static void hide_controls(char *text) {
    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        if (*p < 0x20 || *p == 0x7f) *p = '?';
    }
}

const char *duet_error_text(const duet_error *e, char *buf, size_t buf_bytes) {
    if (!buf_bytes) return buf;
    buf[0] = '\0';
    if (e->param[0]) {
        append(buf, buf_bytes, e->param);
        append(buf, buf_bytes, ": ");
    }
    append(buf, buf_bytes, e->message[0] ? e->message : duet_status_name(e->status));
    const char *before = " (";
    if (e->value[0]) {
        append(buf, buf_bytes, " (got ");
        append(buf, buf_bytes, e->value);
        before = "; ";
    }
    if (e->nearest[0]) {
        append(buf, buf_bytes, before);
        append(buf, buf_bytes, "nearest: ");
        append(buf, buf_bytes, e->nearest);
    }
    if (e->value[0] || e->nearest[0]) append(buf, buf_bytes, ")");
    hide_controls(buf);
    return buf;
}
