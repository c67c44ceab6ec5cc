/* duet.h - the whole public interface of libduet.
 *
 * An engine holds one opened model. A request says what to make; `duet_resolve` answers what exactly would be
 * made (or which field breaks which rule) without touching weights; `duet_generate` makes it and reports
 * progress as it goes.
 *
 *     duet_request_defaults -> fill in -> duet_engine_open -> duet_resolve -> duet_generate ->
 * duet_engine_close
 *
 * Conventions. Every function that can fail returns a status and fills the optional error: message for
 * people; param (the request field, spelled as in the HTTP interface), code and type for programs. Strings
 * are UTF-8. Structs that callers fill are size-stamped by their `_defaults` function, so that a newer
 * library keeps serving an older caller. An engine may be used from one thread at a time; `duet_cancel` alone
 * may be called from any thread or signal handler. */
#ifndef DUET_DUET_H
#define DUET_DUET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status and error
 * ---------------------------------------------------------------------------------------------- */

typedef enum duet_status {
    DUET_OK = 0,
    DUET_E_USAGE,       /* the caller's own mistake: NULL, unknown size stamp, wrong order of calls */
    DUET_E_REQUEST,     /* a request field breaks a rule; `param`, `code` say which */
    DUET_E_MODEL,       /* the model directory is missing, damaged or of an unknown kind */
    DUET_E_RUN,         /* a stage failed; message names stage, step and tensor */
    DUET_E_IO,          /* the system refused a read, a write or a rename */
    DUET_E_MEMORY,      /* an allocation that the plan announced was refused */
    DUET_E_UNSUPPORTED, /* this build or this device cannot do it */
    DUET_E_CANCELLED,   /* duet_cancel was called */
    DUET_E_INTERNAL,    /* a broken invariant: please report */
} duet_status;

typedef struct duet_error {
    duet_status status;
    char message[640]; /* one line, no trailing newline */
    char param[64];    /* request field ("num_frames") or "" */
    char code[48];     /* stable word ("out_of_range") or "" */
    char value[96];    /* what was given, as text, or "" */
    char nearest[96];  /* the nearest value that would be accepted, or "" */
} duet_error;

const char *duet_status_name(duet_status status);
const char *duet_version(void);

#ifdef __cplusplus
}
#endif
#endif
