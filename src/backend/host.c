/* host.c - the class of `ref` and `cpu`: device memory is host memory and an op runs while it is enqueued.
 *
 * That is allowed ("an op enqueues and never waits": it waits for nobody) and it is the fastest form on a
 * processor that would otherwise only hand work to itself. What it cannot show is a caller that forgets that
 * elsewhere ops run later: that is what `walled` is for.
 *
 * Scratch grows on demand; a refused growth fails the stream and skips the op, so that the next sync reports
 * it. Ops of several streams are serialised by run_lock, because the pool serves one caller at a time. */
#include "backend/device_int.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

typedef struct host_stream {
    duet_stream base;
    void *scratch;
    size_t scratch_bytes;
} host_stream;

static duet_status ref_open(duet_device *dev, const duet_device_options *options, duet_error *err) {
    (void)err, (void)options;
    duet__ref_fill(&dev->kernels);
    snprintf(dev->kind, sizeof dev->kind, "ref");
    return DUET_OK;
}

static duet_status cpu_open(duet_device *dev, const duet_device_options *options, duet_error *err) {
    const char *level = NULL;
    duet__ref_fill(&dev->kernels);
    duet_status st = duet__cpu_fill(&dev->kernels, options->cpu_level, &level, err);
    if (st == DUET_OK) snprintf(dev->kind, sizeof dev->kind, "cpu-%s", level);
    return st;
}

static void host_close(duet_device *dev) {
    (void)dev;
}

static void *host_map(duet_device *dev, size_t bytes) {
    (void)dev;
    return duet_alloc(bytes, DUET_MEM_DEVICE);
}

static void host_unmap(duet_device *dev, void *address, size_t bytes) {
    (void)dev, (void)bytes;
    duet_free(address);
}

static duet_status grow_scratch(host_stream *s, size_t bytes, duet_error *err) {
    if (bytes <= s->scratch_bytes) return DUET_OK;
    duet_free(s->scratch);
    s->scratch_bytes = 0;
    s->scratch = duet_alloc(bytes, DUET_MEM_SCRATCH);
    if (!s->scratch)
        return duet_fail(err, DUET_E_MEMORY, "op scratch: the device (%s) refused %zu bytes",
                         s->base.dev->kind, bytes);
    s->scratch_bytes = bytes;
    return DUET_OK;
}

static duet_status host_stream_open(duet_device *dev, int64_t scratch_bytes, duet_stream **out,
                                    duet_error *err) {
    host_stream *s = duet_calloc(1, sizeof *s, DUET_MEM_DEVICE);
    if (!s) return duet_fail(err, DUET_E_MEMORY, "stream: out of memory");
    s->base.dev = dev;
    duet_status st = grow_scratch(s, (size_t)(scratch_bytes > 0 ? scratch_bytes : 0), err);
    if (st != DUET_OK) {
        duet_free(s);
        return st;
    }
    *out = &s->base;
    return DUET_OK;
}

static void host_stream_close(duet_stream *stream) {
    host_stream *s = (host_stream *)stream;
    duet_free(s->scratch);
    duet_free(s);
}

static duet_status host_sync(duet_stream *stream, duet_error *err) {
    if (stream->error.status == DUET_OK) return DUET_OK;
    return duet_fail(err, stream->error.status, "%s", stream->error.message);
}

static void host_enqueue(duet_stream *stream, duet_op op, const void *args) {
    host_stream *s = (host_stream *)stream;
    duet_device *dev = stream->dev;
    if (stream->error.status != DUET_OK) return;
    size_t need = duet__op_scratch_bytes(&dev->kernels, op, args, duet_pool_threads(dev->pool));
    if (grow_scratch(s, need, &stream->error) != DUET_OK) {
        duet_error_prefix(&stream->error, "%s", duet__op_name(op));
        return;
    }
    if (duet_stream_poll(stream, &stream->error) != DUET_OK) return;
    pthread_mutex_lock(&dev->run_lock);
    duet_pool_watch(dev->pool, stream->cancel);
    duet__op_run(&dev->kernels, op, &(duet_kernel_ctx){.pool = dev->pool, .scratch = s->scratch}, args);
    if (duet_pool_skipped(dev->pool)) duet_fail(&stream->error, DUET_E_CANCELLED, "cancelled");
    duet_pool_watch(dev->pool, NULL);
    pthread_mutex_unlock(&dev->run_lock);
}

static void host_copy_in(duet_stream *stream, void *device_dst, const void *host_src, size_t bytes) {
    if (stream->error.status == DUET_OK) memcpy(device_dst, host_src, bytes);
}

static void host_copy_out(duet_stream *stream, void *host_dst, const void *device_src, size_t bytes) {
    if (stream->error.status == DUET_OK) memcpy(host_dst, device_src, bytes);
}

static void host_fill_zero(duet_stream *stream, void *device_dst, size_t bytes) {
    if (stream->error.status == DUET_OK) memset(device_dst, 0, bytes);
}

#define HOST_CLASS(class_name, opener)                                                                       \
    {                                                                                                        \
        .name = class_name, .open = opener, .close = host_close, .map = host_map, .unmap = host_unmap,       \
        .stream_open = host_stream_open, .stream_close = host_stream_close, .sync = host_sync,               \
        .enqueue = host_enqueue, .copy_in = host_copy_in, .copy_out = host_copy_out,                         \
        .fill_zero = host_fill_zero                                                                          \
    }

const duet__class duet__class_ref = HOST_CLASS("ref", ref_open);
const duet__class duet__class_cpu = HOST_CLASS("cpu", cpu_open);
