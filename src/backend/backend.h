/* backend.h - devices, memory, streams and how an op gets enqueued.
 *
 *     duet_device     one CPU or GPU: memory, kernels, weight preparation
 *      `- duet_stream an ordered queue of ops with its own scratch arena; streams are ordered against each
 * other by events only
 *
 * Invariants:
 *  1. Device addresses are opaque to everybody above: arithmetic is fine, reading is not (the `walled` device
 * makes reading fault).
 *  2. Enqueued work is ordered on its stream. Host memory named in duet_copy_in is read before the call
 * returns; host memory named in duet_copy_out is valid after duet_stream_sync returned DUET_OK.
 *  3. The first error of a stream sticks and is returned by every following sync until the stream is closed.
 *  4. Networks and stages use only this header, ops.h, weight.h and unit.h: no backend name, no #ifdef. */
#ifndef DUET_BACKEND_BACKEND_H
#define DUET_BACKEND_BACKEND_H

#include "backend/ops.h"
#include "base/threads.h"

typedef struct duet_device duet_device;

typedef struct duet_device_options {
    const char *backend; /* "cpu" (default), "ref"; "walled" in tests */
    int n_threads;       /* 0 = processors of this process */
    const char
        *cpu_level; /* NULL = best; "scalar", "avx2", "avx512": pins the instruction level (promise P1) */
} duet_device_options;

duet_status duet_device_open(const duet_device_options *options, duet_device **out, duet_error *err);
void duet_device_close(duet_device **dev); /* all streams, buffers and prepared weights must be gone */
const char *duet_device_kind(
    const duet_device *dev); /* "ref", "cpu-avx512" ...: the "device kind" of promise P1 */
int duet_device_threads(const duet_device *dev);
int64_t duet_device_live_bytes(const duet_device *dev);
int64_t duet_device_peak_bytes(const duet_device *dev);

/* ---- memory: 64-byte aligned, contents undefined (poisoned on `walled`)
 * ------------------------------------------------- */
duet_status duet_device_alloc(duet_device *dev, int64_t bytes, const char *what, void **out, duet_error *err);
void duet_device_free(duet_device *dev,
                      void *address); /* NULL-safe; the caller guarantees that no enqueued op still uses it */

/* ---- streams
 * ------------------------------------------------------------------------------------------------------------
 */
/* scratch_bytes: the largest op scratch the plan announced; grows on demand on hosts, fixed on devices. */
duet_status duet_stream_open(duet_device *dev, int64_t scratch_bytes, duet_stream **out, duet_error *err);
void duet_stream_close(duet_stream **stream); /* waits for enqueued work */
duet_device *duet_stream_device(duet_stream *stream);
duet_status duet_stream_sync(duet_stream *stream, duet_error *err);

/* From now on, once *cancel is non-zero, the stream leaves out work, down to the tasks of an op that is running, and
 * fails with DUET_E_CANCELLED; what it computed means nothing then. So a stage stops within a task however large its ops
 * are, and polls only between steps of its own. NULL = never. To be called before anything is enqueued. */
void duet_stream_watch(duet_stream *stream, const volatile int *cancel);
/* DUET_E_CANCELLED once the watched flag is set: for loops on the host, beside the stream or over its units. */
duet_status duet_stream_poll(const duet_stream *stream, duet_error *err);

void duet_copy_in(duet_stream *stream, void *device_dst, const void *host_src, int64_t bytes);
void duet_copy_out(duet_stream *stream, void *host_dst, const void *device_src, int64_t bytes);
void duet_fill_zero(duet_stream *stream, void *device_dst, int64_t bytes);

/* Enqueue one op: duet_linear(stream, &(duet_linear_args){...}). The struct is copied; weights it names must
 * stay acquired until a release enqueued later on the same stream. */
#define DUET_OP(name, ptrs, weights) void duet_##name(duet_stream *stream, const duet_##name##_args *args);
#include "backend/ops.def"
#undef DUET_OP

/* Scratch an op would need: pure function of the arguments' shapes (pointers and weights may be NULL) and the
 * device's thread count. */
#define DUET_OP(name, ptrs, weights)                                                                         \
    size_t duet_##name##_scratch_bytes(const duet_device *dev, const duet_##name##_args *args);
#include "backend/ops.def"
#undef DUET_OP

/* ---- weights
 * ------------------------------------------------------------------------------------------------------------
 */
/* Give the device its own form of a weight (upload, pack); a device that reads mapped files as they are does
 * nothing. A prepared weight's pieces may hold device addresses: host code must not read them until
 * duet_weight_unprepare has put the host pieces back. Prepare a handle for one device at a time, and unprepare it
 * only when no enqueued op uses it. */
duet_status duet_weight_prepare(duet_device *dev, duet_weight *weight, duet_error *err);
void duet_weight_unprepare(duet_device *dev, duet_weight *weight);
/* Bytes that duet_weight_prepare would copy (0 when the mapping is used as it is). */
int64_t duet_weight_prepared_bytes(const duet_device *dev, const duet_weight *weight);

#endif
