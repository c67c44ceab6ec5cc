/* stream.c - the public face of a stream: each call checks nothing but emptiness and hands on to the device's
 * class. */
#include "backend/device_int.h"

duet_status duet_stream_open(duet_device *dev, int64_t scratch_bytes, duet_stream **out, duet_error *err) {
    *out = NULL;
    return dev->class->stream_open(dev, scratch_bytes, out, err);
}

void duet_stream_close(duet_stream **stream) {
    if (!*stream) return;
    (*stream)->dev->class->stream_close(*stream);
    *stream = NULL;
}

duet_device *duet_stream_device(duet_stream *stream) {
    return stream->dev;
}

duet_status duet_stream_sync(duet_stream *stream, duet_error *err) {
    return stream->dev->class->sync(stream, err);
}

void duet_stream_watch(duet_stream *stream, const volatile int *cancel) {
    stream->cancel = cancel;
}

duet_status duet_stream_poll(const duet_stream *stream, duet_error *err) {
    return stream->cancel && __atomic_load_n(stream->cancel, __ATOMIC_RELAXED)
               ? duet_fail(err, DUET_E_CANCELLED, "cancelled")
               : DUET_OK;
}

void duet_copy_in(duet_stream *stream, void *device_dst, const void *host_src, int64_t bytes) {
    if (bytes > 0) stream->dev->class->copy_in(stream, device_dst, host_src, (size_t)bytes);
}

void duet_copy_out(duet_stream *stream, void *host_dst, const void *device_src, int64_t bytes) {
    if (bytes > 0) stream->dev->class->copy_out(stream, host_dst, device_src, (size_t)bytes);
}

void duet_fill_zero(duet_stream *stream, void *device_dst, int64_t bytes) {
    if (bytes > 0) stream->dev->class->fill_zero(stream, device_dst, (size_t)bytes);
}

#define DUET_OP(name, ptrs, weights)                                                                         \
    void duet_##name(duet_stream *stream, const duet_##name##_args *args) {                                  \
        stream->dev->class->enqueue(stream, DUET_OP_##name, args);                                           \
    }                                                                                                        \
    size_t duet_##name##_scratch_bytes(const duet_device *dev, const duet_##name##_args *args) {             \
        return duet__op_scratch_bytes(&dev->kernels, DUET_OP_##name, args, duet_pool_threads(dev->pool));    \
    }
#include "backend/ops.def"
#undef DUET_OP
