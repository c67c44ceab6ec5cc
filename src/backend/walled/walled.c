/* walled.c - the class: turning calls into commands, and commands into ref kernels behind the wall. */
#include "backend/walled/walled.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"

/* What duet_weight_prepare keeps aside. */
typedef struct walled_weight {
    duet_weight_piece piece[DUET_MAX_PIECES]; /* of the host */
    int n_pieces;
    void *device;
} walled_weight;

void duet__walled_fail(walled_stream *s, duet_status status, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&s->lock);
    duet_fail(&s->base.error, status, "%s", text); /* the first one sticks */
    pthread_mutex_unlock(&s->lock);
}

bool duet__walled_failed(walled_stream *s) {
    pthread_mutex_lock(&s->lock);
    bool failed = s->base.error.status != DUET_OK;
    pthread_mutex_unlock(&s->lock);
    return failed;
}

/* ---- on the workers */

typedef struct behind {
    duet__visitor visitor;
    walled_command *c;
} behind;

/* The address behind the wall; a message and NULL unless it lies in a live buffer. */
static void *reach(walled_command *c, const void *address, const char *what) {
    duet_device *dev = c->stream->base.dev;
    if (duet__device_find(dev, address) >= 0) return duet__region_behind(duet__walled(dev)->region, address);
    duet__walled_fail(c->stream, DUET_E_INTERNAL, "%s: an argument is not live device memory", what);
    return NULL;
}

static void *reach_pointer(duet__visitor *v, const void *address) {
    walled_command *c = ((behind *)v)->c;
    return reach(c, address, duet__op_name(c->op));
}

static const duet_weight *reach_weight(duet__visitor *v, const duet_weight *weight) {
    walled_command *c = ((behind *)v)->c;
    duet_weight *w = &c->weight[weight - c->weight];
    w->piece[0].data = reach(c, w->piece[0].data, w->name);
    return w;
}

/* Scratch of the size the plan announced, or grown when it announced none; garbage before each op. */
static bool provide_scratch(walled_stream *s, duet_op op, size_t need) {
    if (need > s->scratch_bytes) {
        if (s->scratch_fixed) {
            duet__walled_fail(s, DUET_E_INTERNAL,
                              "%s needs %zu bytes of scratch, the stream was opened with %zu",
                              duet__op_name(op), need, s->scratch_bytes);
            return false;
        }
        duet_free(s->scratch);
        s->scratch = duet_alloc(need, DUET_MEM_SCRATCH);
        s->scratch_bytes = s->scratch ? need : 0;
        if (!s->scratch) {
            duet__walled_fail(s, DUET_E_MEMORY, "%s: op scratch of %zu bytes refused", duet__op_name(op),
                              need);
            return false;
        }
    }
    if (need) duet__garbage(s->scratch, need);
    return true;
}

static void execute_op(walled_command *c) {
    duet_device *dev = c->stream->base.dev;
    behind b = {{reach_pointer, reach_weight}, c};
    duet__op_visit(c->op, &c->args, &b.visitor);
    size_t need = duet__op_scratch_bytes(&dev->kernels, c->op, &c->args, duet_pool_threads(dev->pool));
    if (duet__walled_failed(c->stream) || !provide_scratch(c->stream, c->op, need)) return;
    duet_kernel_ctx ctx = {.pool = dev->pool, .scratch = c->stream->scratch};
    duet__op_run(&dev->kernels, c->op, &ctx, &c->args);
}

void duet__walled_execute(walled_command *c) {
    if (duet__walled_failed(c->stream)) return;
    if (c->kind == WALLED_OP) {
        if (duet_stream_poll(&c->stream->base, NULL) != DUET_OK)
            duet__walled_fail(c->stream, DUET_E_CANCELLED, "cancelled");
        else
            execute_op(c);
        return;
    }
    if (duet__device_find(c->stream->base.dev, c->device) < (int64_t)c->bytes) {
        duet__walled_fail(c->stream, DUET_E_INTERNAL, "copy: %zu bytes do not lie in live device memory",
                          c->bytes);
        return;
    }
    char *at = reach(c, c->device, "copy");
    if (c->kind == WALLED_ZERO) memset(at, 0, c->bytes);
    if (c->kind == WALLED_IN) memcpy(at, c->host, c->bytes);
    if (c->kind == WALLED_OUT) memcpy(c->host, at, c->bytes);
}

/* ---- on the caller's thread */

static walled_command *new_command(duet_stream *stream, walled_kind kind, void *device, size_t bytes) {
    walled_stream *s = (walled_stream *)stream;
    walled_command *c = duet_calloc(1, sizeof *c, DUET_MEM_DEVICE);
    if (!c) {
        duet__walled_fail(s, DUET_E_MEMORY, "walled device: out of memory for a command");
        return NULL;
    }
    c->stream = s;
    c->kind = kind;
    c->device = device;
    c->bytes = bytes;
    return c;
}

static void put(walled_command *c) {
    duet__queues_put(duet__walled(c->stream->base.dev)->queues, c);
}

static void *keep_pointer(duet__visitor *v, const void *address) {
    (void)v;
    return (void *)(uintptr_t)address;
}

/* The handle may be gone when the op runs: the command carries its own. */
static const duet_weight *keep_weight(duet__visitor *v, const duet_weight *weight) {
    walled_command *c = ((behind *)v)->c;
    if (!weight->prepared)
        duet__walled_fail(c->stream, DUET_E_INTERNAL, "%s: weight %s is used without having been acquired",
                          duet__op_name(c->op), weight->name);
    c->weight[c->n_weights] = *weight;
    return &c->weight[c->n_weights++];
}

static void walled_enqueue(duet_stream *stream, duet_op op, const void *args) {
    walled_command *c = new_command(stream, WALLED_OP, NULL, 0);
    if (!c) return;
    c->op = op;
    memcpy(&c->args, args, duet__op_args_bytes(op));
    behind b = {{keep_pointer, keep_weight}, c};
    duet__op_visit(op, &c->args, &b.visitor);
    put(c);
}

static void walled_copy_in(duet_stream *stream, void *device_dst, const void *host_src, size_t bytes) {
    walled_command *c = new_command(stream, WALLED_IN, device_dst, bytes);
    if (!c) return;
    c->host = duet_alloc(bytes, DUET_MEM_DEVICE);
    if (!c->host) {
        duet__walled_fail(c->stream, DUET_E_MEMORY, "copy in: out of memory");
        duet_free(c);
        return;
    }
    memcpy(c->host, host_src, bytes);
    put(c);
}

static void walled_copy_out(duet_stream *stream, void *host_dst, const void *device_src, size_t bytes) {
    walled_command *c = new_command(stream, WALLED_OUT, (void *)(uintptr_t)device_src, bytes);
    if (!c) return;
    c->host = host_dst;
    duet__garbage(host_dst, bytes);
    put(c);
}

static void walled_fill_zero(duet_stream *stream, void *device_dst, size_t bytes) {
    walled_command *c = new_command(stream, WALLED_ZERO, device_dst, bytes);
    if (c) put(c);
}

static duet_status walled_sync(duet_stream *stream, duet_error *err) {
    walled_stream *s = (walled_stream *)stream;
    duet__queues_wait(duet__walled(stream->dev)->queues, s);
    pthread_mutex_lock(&s->lock);
    duet_status st = s->base.error.status;
    if (st != DUET_OK) duet_fail(err, st, "%s", s->base.error.message);
    pthread_mutex_unlock(&s->lock);
    return st;
}

static duet_status walled_stream_open(duet_device *dev, int64_t scratch_bytes, duet_stream **out,
                                      duet_error *err) {
    walled_stream *s = duet_calloc(1, sizeof *s, DUET_MEM_DEVICE);
    if (!s) return duet_fail(err, DUET_E_MEMORY, "stream: out of memory");
    s->base.dev = dev;
    if (scratch_bytes > 0) {
        s->scratch_fixed = true;
        s->scratch_bytes = (size_t)scratch_bytes;
        s->scratch = duet_alloc(s->scratch_bytes, DUET_MEM_SCRATCH);
        if (!s->scratch) {
            duet_free(s);
            return duet_fail(err, DUET_E_MEMORY, "op scratch: the device (walled) refused %lld bytes",
                             (long long)scratch_bytes);
        }
    }
    pthread_mutex_init(&s->lock, NULL);
    *out = &s->base;
    return DUET_OK;
}

static void walled_stream_close(duet_stream *stream) {
    walled_stream *s = (walled_stream *)stream;
    duet__queues_wait(duet__walled(stream->dev)->queues, s);
    pthread_mutex_destroy(&s->lock);
    duet_free(s->scratch);
    duet_free(s);
}

/* ---- device, memory and weights */

static duet_status walled_open(duet_device *dev, const duet_device_options *options, duet_error *err) {
    (void)options;
    duet__ref_fill(&dev->kernels);
    snprintf(dev->kind, sizeof dev->kind, "walled");
    walled_device *w = duet_calloc(1, sizeof *w, DUET_MEM_DEVICE);
    dev->own = w;
    if (!w) return duet_fail(err, DUET_E_MEMORY, "walled device: out of memory");
    duet_status st;
    TRY(st, fail, duet__region_open(&w->region, err));
    TRY(st, fail, duet__queues_open(dev, &w->queues, err));
fail:
    return st; /* duet_device_close undoes a half-open device */
}

static void walled_close(duet_device *dev) {
    walled_device *w = dev->own;
    if (!w) return;
    duet__queues_close(&w->queues);
    duet__region_close(&w->region);
    duet_free(w);
    dev->own = NULL;
}

static void *walled_map(duet_device *dev, size_t bytes) {
    return duet__region_take(duet__walled(dev)->region, bytes);
}

static void walled_unmap(duet_device *dev, void *address, size_t bytes) {
    duet__region_give(duet__walled(dev)->region, address, bytes);
}

static int64_t walled_weight_bytes(const duet_device *dev, const duet_weight *w) {
    (void)dev;
    return duet_weight_rows(w) * duet_weight_row_elems(w) * (int64_t)duet_dtype_bytes(w->dtype);
}

static duet_status walled_prepare(duet_device *dev, duet_weight *w, duet_error *err) {
    int64_t rows = duet_weight_rows(w), bytes = walled_weight_bytes(dev, w);
    walled_weight *kept = duet_calloc(1, sizeof *kept, DUET_MEM_WEIGHT);
    if (!kept) return duet_fail(err, DUET_E_MEMORY, "%s: out of memory", w->name);
    duet_status st = duet_device_alloc(dev, bytes, w->name, &kept->device, err);
    if (st != DUET_OK) {
        duet_free(kept);
        return st;
    }
    char *to = duet__region_behind(duet__walled(dev)->region, kept->device);
    size_t row_bytes = (size_t)(bytes / (rows ? rows : 1));
    for (int64_t r = 0; r < rows; r++) memcpy(to + (size_t)r * row_bytes, duet_weight_row(w, r), row_bytes);
    memcpy(kept->piece, w->piece, sizeof kept->piece);
    kept->n_pieces = w->n_pieces;
    w->n_pieces = 1;
    w->piece[0] = (duet_weight_piece){
        .data = kept->device, .rows = rows, .block_rows = rows, .block_stride_rows = rows};
    w->prepared = kept;
    return DUET_OK;
}

static void walled_unprepare(duet_device *dev, duet_weight *w) {
    walled_weight *kept = w->prepared;
    duet_device_free(dev, kept->device);
    memcpy(w->piece, kept->piece, sizeof kept->piece);
    w->n_pieces = kept->n_pieces;
    w->prepared = NULL;
    duet_free(kept);
}

const duet__class duet__class_walled = {.name = "walled",
                                        .open = walled_open,
                                        .close = walled_close,
                                        .map = walled_map,
                                        .unmap = walled_unmap,
                                        .stream_open = walled_stream_open,
                                        .stream_close = walled_stream_close,
                                        .sync = walled_sync,
                                        .enqueue = walled_enqueue,
                                        .copy_in = walled_copy_in,
                                        .copy_out = walled_copy_out,
                                        .fill_zero = walled_fill_zero,
                                        .weight_prepare = walled_prepare,
                                        .weight_unprepare = walled_unprepare,
                                        .weight_prepared_bytes = walled_weight_bytes};
