/* walled.h - a device for tests that makes two mistakes visible: touching device memory from the host, and assuming
 * that an op has finished.
 *
 *     host address space          region A (PROT_NONE)  ---- same pages ----  region B (read, write)
 *     networks, stages  ------->  addresses they see          worker threads use A + delta
 *
 *     stream: op, copy, op ...  ->  compute queue: one thread, the ref kernels
 *                               ->  copy queue: one thread, in and out
 *
 * Invariants:
 *  1. Every address handed out lies in A; reading or writing it from the host faults. The workers add the constant
 *     delta after checking that the address lies in a live buffer.
 *  2. Commands rest in their queues until somebody waits (sync, close) or a backlog has gathered: results that were
 *     read too early are garbage every time, not once in a while.
 *  3. A queue runs in order; a command names the command of the other queue that it has to follow (an event), which
 *     is the last one its own stream had put there. Streams are not ordered against each other otherwise.
 *  4. Memory is filled with signalling garbage at allocation and release, scratch before each op, the host side of a
 *     copy out until it has arrived.
 *  5. Results are those of `ref`, bit for bit. */
#ifndef DUET_BACKEND_WALLED_H
#define DUET_BACKEND_WALLED_H

#include "backend/device_int.h"

typedef struct walled_region walled_region;
typedef struct walled_stream walled_stream;
typedef struct walled_queues walled_queues;

typedef struct walled_device {
    walled_region *region;
    walled_queues *queues;
} walled_device;

static inline walled_device *duet__walled(duet_device *dev) {
    return dev->own;
}

/* ---- region.c: the two views and an allocator of whole pages */
duet_status duet__region_open(walled_region **out, duet_error *err);
void duet__region_close(walled_region **region);
void *duet__region_take(walled_region *region,
                        size_t bytes); /* address in A, contents garbage; NULL when full */
void duet__region_give(walled_region *region, void *address, size_t bytes);
char *duet__region_behind(const walled_region *region,
                          const void *address); /* address in B; NULL: not in A */
void duet__garbage(void *at, size_t bytes);

/* ---- queues.c: commands and the two threads that run them */
typedef enum walled_kind { WALLED_OP, WALLED_ZERO, WALLED_IN, WALLED_OUT } walled_kind;

enum { WALLED_MAX_WEIGHTS = 4 };

typedef struct walled_command {
    struct walled_command *next;
    walled_stream *stream;
    walled_kind kind;
    uint64_t follows; /* number of commands of the other queue that must be done first */
    duet_op op;
    duet__any_args args; /* as enqueued: addresses in A, weights pointing into `weight` */
    duet_weight weight[WALLED_MAX_WEIGHTS];
    int n_weights;
    void *device, *host; /* copies; for IN host is a copy of the caller's bytes, owned */
    size_t bytes;
} walled_command;

duet_status duet__queues_open(duet_device *dev, walled_queues **out, duet_error *err);
void duet__queues_close(walled_queues **queues);
void duet__queues_put(walled_queues *queues, walled_command *command); /* takes ownership */
void duet__queues_wait(walled_queues *queues,
                       walled_stream *stream); /* until all of the stream's commands are done */

/* ---- streams */
struct walled_stream {
    duet_stream base;
    void *scratch;
    size_t scratch_bytes;
    bool scratch_fixed;   /* the plan announced a size: an op that needs more fails */
    uint64_t last[2];     /* per queue: commands up to this number are this stream's latest */
    pthread_mutex_t lock; /* guards base.error */
};

void duet__walled_fail(walled_stream *stream, duet_status status, const char *fmt, ...) DUET_PRINTF(3, 4);
bool duet__walled_failed(walled_stream *stream);
void duet__walled_execute(walled_command *command); /* on a worker thread */

#endif
