/* tap.h - named intermediate tensors, handed out by every network and stage.
 *
 * A tap is an enqueued copy out of the device; when no tap is set (NULL) it costs one comparison. The
 * receiver collects until the next stream sync, after which its host copies are valid. Names:
 * docs/numerics.md. */
#ifndef DUET_NN_TAP_H
#define DUET_NN_TAP_H

#include "backend/backend.h"

typedef struct duet_tap duet_tap;

struct duet_tap {
    /* Does anybody want this name? Lets a network skip preparing it. */
    bool (*wants)(duet_tap *self, const char *name);
    /* Copy a strided fp32 matrix [rows, cols] from the device under a name; `shape` describes the contiguous
     * host copy. */
    void (*take_device)(duet_tap *self, duet_stream *stream, const char *name, const float *x, int64_t rows,
                        int64_t cols, int64_t x_stride, const duet_shape *shape);
    /* Host data, copied at once. */
    void (*take_host)(duet_tap *self, const char *name, duet_dtype dtype, const duet_shape *shape,
                      const void *data);
};

static inline bool duet_tap_wants(duet_tap *tap, const char *name) {
    return tap && tap->wants(tap, name);
}

#endif
