/* collect.h - a tap that keeps everything it hears, for tests that compare intermediate tensors.
 *
 *     collector c = collector_make();     run with &c.tap, sync the stream
 *     const collected *x = collector_find(&c, "dit.temb");
 *     collector_free(&c);
 *
 * As in a dump, the first tensor of a name wins. */
#ifndef DUET_COLLECT_H
#define DUET_COLLECT_H

#include <stdlib.h>

#include "harness/harness.h"
#include "nn/tap.h"

typedef struct collected {
    struct collected *next;
    char name[96];
    duet_dtype dtype;
    duet_shape shape;
    int64_t n;
    void *data;
} collected;

typedef struct collector {
    duet_tap tap; /* first: the interface */
    collected *list;
    const char *only; /* prefix of wanted names, NULL = all */
} collector;

static inline const collected *collector_find(const collector *c, const char *name) {
    for (const collected *x = c->list; x; x = x->next)
        if (strcmp(x->name, name) == 0) return x;
    return NULL;
}

static inline bool collector__wants(duet_tap *tap, const char *name) {
    const collector *c = (const collector *)tap;
    return (!c->only || strncmp(name, c->only, strlen(c->only)) == 0) && !collector_find(c, name);
}

static inline collected *collector__add(collector *c, const char *name, duet_dtype dtype,
                                        const duet_shape *shape) {
    collected *x = calloc(1, sizeof *x);
    if (!x || !duet_shape_elems(shape, &x->n)) FAIL("tap %s: bad shape", name);
    snprintf(x->name, sizeof x->name, "%s", name);
    x->dtype = dtype;
    x->shape = *shape;
    x->data = calloc((size_t)x->n + 1, duet_dtype_bytes(dtype));
    x->next = c->list;
    c->list = x;
    return x;
}

static inline void collector__take_device(duet_tap *tap, duet_stream *stream, const char *name,
                                          const float *data, int64_t rows, int64_t cols, int64_t x_stride,
                                          const duet_shape *shape) {
    if (!collector__wants(tap, name)) return;
    collected *x = collector__add((collector *)tap, name, DUET_F32, shape);
    if (x->n != rows * cols)
        FAIL("tap %s: %" PRId64 " x %" PRId64 " does not fill its shape", name, rows, cols);
    for (int64_t r = 0; r < rows; r++)
        duet_copy_out(stream, (float *)x->data + r * cols, data + r * x_stride,
                      cols * (int64_t)sizeof(float));
}

static inline void collector__take_host(duet_tap *tap, const char *name, duet_dtype dtype,
                                        const duet_shape *shape, const void *data) {
    if (!collector__wants(tap, name)) return;
    collected *x = collector__add((collector *)tap, name, dtype, shape);
    memcpy(x->data, data, (size_t)x->n * duet_dtype_bytes(dtype));
}

static inline collector collector_make(void) {
    return (collector){.tap = {collector__wants, collector__take_device, collector__take_host}};
}

static inline void collector_free(collector *c) {
    while (c->list) {
        collected *x = c->list;
        c->list = x->next;
        free(x->data);
        free(x);
    }
}

#endif
