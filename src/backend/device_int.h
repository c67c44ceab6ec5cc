/* device_int.h - between the files of this room: what a kind of device implements, and what all kinds share.
 *
 *     device.c   finds the class, owns the list of buffers (accounting, leak checks)
 *     stream.c   the public enqueue functions, one per row of ops.def, all ending in class->enqueue
 *     opinfo.c   everything that is known about an op without knowing it: name, size, pointers, weights
 *     host.c     class of `ref` and `cpu`: ops run at once, on the device's pool
 *     walled/    class of `walled`: ops run later, on another thread, behind a wall
 */
#ifndef DUET_BACKEND_DEVICE_INT_H
#define DUET_BACKEND_DEVICE_INT_H

#include <pthread.h>

#include "backend/backend.h"

typedef struct duet__buffer duet__buffer;

/* One kind of device. Everything here is called through device.c and stream.c, which have checked the
 * arguments. */
typedef struct duet__class {
    const char *name;
    duet_status (*open)(duet_device *dev, const duet_device_options *options, duet_error *err);
    void (*close)(duet_device *dev);              /* copes with a device whose open failed half-way */
    void *(*map)(duet_device *dev, size_t bytes); /* NULL: refused */
    void (*unmap)(duet_device *dev, void *address, size_t bytes);
    duet_status (*stream_open)(duet_device *dev, int64_t scratch_bytes, duet_stream **out, duet_error *err);
    void (*stream_close)(duet_stream *stream);
    duet_status (*sync)(duet_stream *stream, duet_error *err);
    void (*enqueue)(duet_stream *stream, duet_op op, const void *args);
    void (*copy_in)(duet_stream *stream, void *device_dst, const void *host_src, size_t bytes);
    void (*copy_out)(duet_stream *stream, void *host_dst, const void *device_src, size_t bytes);
    void (*fill_zero)(duet_stream *stream, void *device_dst, size_t bytes);
    /* NULL: weights are used where they lie. */
    duet_status (*weight_prepare)(duet_device *dev, duet_weight *weight, duet_error *err);
    void (*weight_unprepare)(duet_device *dev, duet_weight *weight);
    int64_t (*weight_prepared_bytes)(const duet_device *dev, const duet_weight *weight);
} duet__class;

struct duet_device {
    const duet__class *class;
    char kind[32];
    duet_pool *pool;
    duet_kernels kernels;
    pthread_mutex_t buffers_lock; /* guards the four below */
    duet__buffer *buffers;
    int64_t live_bytes, peak_bytes;
    pthread_mutex_t run_lock; /* a pool serves one caller at a time: held while a host op runs */
    void *own;                /* of the class */
};

/* First member of every class's stream. */
struct duet_stream {
    duet_device *dev;
    duet_error error;           /* first failure, sticky */
    const volatile int *cancel; /* of duet_stream_watch */
};

extern const duet__class duet__class_ref, duet__class_cpu, duet__class_walled;

/* Bytes from the address to the end of its live buffer (0 just behind it), or -1: not device memory. */
int64_t duet__device_find(duet_device *dev, const void *address);

/* ---- opinfo.c */
typedef struct duet__visitor duet__visitor;
struct duet__visitor {
    void *(*pointer)(duet__visitor *self, const void *address); /* called for non-NULL members only */
    const duet_weight *(*weight)(duet__visitor *self, const duet_weight *weight); /* present weights only */
};

typedef union duet__any_args {
#define DUET_OP(name, ptrs, weights) duet_##name##_args name;
#include "backend/ops.def"
#undef DUET_OP
} duet__any_args;

const char *duet__op_name(duet_op op);
size_t duet__op_args_bytes(duet_op op);
/* Replace every pointer and weight of `args` by what the visitor answers. */
void duet__op_visit(duet_op op, void *args, duet__visitor *visitor);
void duet__op_run(const duet_kernels *kernels, duet_op op, const duet_kernel_ctx *ctx, const void *args);
size_t duet__op_scratch_bytes(const duet_kernels *kernels, duet_op op, const void *args, int n_threads);

/* ---- kernels */
void duet__ref_fill(duet_kernels *kernels);
/* Overwrite what the level beats and answer its name; NULL = best. DUET_E_UNSUPPORTED: this processor lacks
 * it. */
duet_status duet__cpu_fill(duet_kernels *kernels, const char *wanted, const char **level, duet_error *err);

static inline bool duet__has(const duet_weight *w) {
    return w && w->n_pieces > 0;
}

#endif
