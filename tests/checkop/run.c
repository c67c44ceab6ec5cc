/* run.c - one case on one device: guard bands around every buffer, everything compared afterwards. */
#include "checkop/checkop.h"

#include <stdlib.h>

enum { GUARD_BYTES = 256, MAX_SHIFT = 15 };

typedef struct placed {
    duet__visitor visitor;
    const checkop_case *c;
    char *device[CHECKOP_BUFFERS]; /* where the image went */
    duet_weight weight[CHECKOP_WEIGHTS];
} placed;

static void *move_pointer(duet__visitor *v, const void *address) {
    placed *p = (placed *)v;
    const char *at = address;
    for (int i = 0; i < p->c->n_buffers; i++) {
        const checkop_buffer *b = &p->c->buffer[i];
        if (at >= b->image && at < b->image + b->bytes) return p->device[i] + (at - b->image);
    }
    FAIL("%s: a pointer outside every image", p->c->text);
}

static const duet_weight *move_weight(duet__visitor *v, const duet_weight *weight) {
    placed *p = (placed *)v;
    return &p->weight[weight - p->c->weight];
}

static uint8_t guard_byte(size_t i) {
    return (uint8_t)(0xa5u ^ (i * 37u));
}

/* Guard, some floats to break alignment, image, guard. */
static size_t padded_bytes(const checkop_buffer *b) {
    return b->bytes + 2 * GUARD_BYTES + MAX_SHIFT * 4;
}

static size_t shift_of(const checkop_case *c, int i) {
    return GUARD_BYTES + 4 * (size_t)((c->index + 5 * i) % (MAX_SHIFT + 1));
}

static void place(placed *p, const checkop_case *c, duet_device *dev, duet_stream *stream, void **base) {
    duet_error err = {0};
    *p = (placed){.visitor = {.pointer = move_pointer, .weight = move_weight}, .c = c};
    for (int i = 0; i < c->n_buffers; i++) {
        const checkop_buffer *b = &c->buffer[i];
        size_t bytes = padded_bytes(b);
        char *host = malloc(bytes);
        for (size_t k = 0; k < bytes; k++) host[k] = (char)guard_byte(k);
        memcpy(host + shift_of(c, i), b->image, b->bytes);
        EXPECT_OK(duet_device_alloc(dev, (int64_t)bytes, "checkop buffer", &base[i], &err), err);
        duet_copy_in(stream, base[i], host, (int64_t)bytes);
        p->device[i] = (char *)base[i] + shift_of(c, i);
        free(host);
    }
    for (int i = 0; i < c->n_weights; i++) {
        p->weight[i] = c->weight[i];
        EXPECT_OK(duet_weight_prepare(dev, &p->weight[i], &err), err);
    }
}

/* Everything outside the image must be as it was; inputs must be unchanged. */
static void check_damage(const checkop_case *c, int i, const char *host) {
    const checkop_buffer *b = &c->buffer[i];
    size_t first = shift_of(c, i), end = first + b->bytes;
    for (size_t k = 0; k < padded_bytes(b); k++) {
        if (k == first) k = end;
        if ((uint8_t)host[k] != guard_byte(k))
            FAIL("%s: buffer %d written %lld bytes outside", c->text, i,
                 (long long)(k < first ? (int64_t)k - (int64_t)first : (int64_t)(k - end) + 1));
    }
    if (!b->output && memcmp(host + first, b->image, b->bytes) != 0)
        FAIL("%s: input %d was changed", c->text, i);
}

static void enqueue(duet_stream *stream, duet_op op, const void *args) {
    switch (op) {
#define DUET_OP(name, ptrs, weights)                                                                         \
    case DUET_OP_##name:                                                                                     \
        duet_##name(stream, args);                                                                           \
        return;
#include "backend/ops.def"
#undef DUET_OP
    case DUET_N_OPS:
        return;
    }
}

void checkop_run(const checkop_case *c, const checkop_spec *spec, duet_op op, duet_device *dev,
                 int64_t cut_row, checkop_result *out) {
    placed p;
    void *base[CHECKOP_BUFFERS] = {0};
    duet_stream *stream = NULL;
    duet_error err = {0};
    EXPECT_OK(duet_stream_open(dev, 0, &stream, &err), err);
    place(&p, c, dev, stream, base);
    duet__any_args args = c->args;
    duet__op_visit(op, &args, &p.visitor);
    if (cut_row > 0) {
        duet__any_args head = args, tail = args;
        spec->cut(&head, 0, cut_row);
        spec->cut(&tail, cut_row, spec->rows(&args) - cut_row);
        enqueue(stream, op, &head);
        enqueue(stream, op, &tail);
    } else {
        enqueue(stream, op, &args);
    }
    char *host[CHECKOP_BUFFERS];
    for (int i = 0; i < c->n_buffers; i++) {
        host[i] = malloc(padded_bytes(&c->buffer[i]));
        duet_copy_out(stream, host[i], base[i], (int64_t)padded_bytes(&c->buffer[i]));
    }
    EXPECT_OK(duet_stream_sync(stream, &err), err);
    for (int i = 0; i < c->n_buffers; i++) {
        check_damage(c, i, host[i]);
        out->data[i] = malloc(c->buffer[i].bytes ? c->buffer[i].bytes : 1);
        memcpy(out->data[i], host[i] + shift_of(c, i), c->buffer[i].bytes);
        free(host[i]);
        duet_device_free(dev, base[i]);
    }
    for (int i = 0; i < c->n_weights; i++) duet_weight_unprepare(dev, &p.weight[i]);
    duet_stream_close(&stream);
    EXPECT_EQ(duet_device_live_bytes(dev), 0);
}

void checkop_free_result(checkop_result *r) {
    for (int i = 0; i < CHECKOP_BUFFERS; i++) free(r->data[i]);
    *r = (checkop_result){0};
}
