/* threads.h - the one thread pool, and why it cannot change a result.
 *
 * Work is handed out as numbered tasks. What a task computes depends on its number alone; which thread runs
 * it, and when, does not matter. So the caller cuts work by a rule of shape, never of thread count (promise
 * P1). Tasks must not wait for each other. Idle threads sleep on a condition variable: no spinning beside
 * busy neighbours. */
#ifndef DUET_BASE_THREADS_H
#define DUET_BASE_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct duet_pool duet_pool;

/* n_threads counts the caller: 1 = no extra threads. 0 = the processors this process may use (affinity and
 * cgroup). */
duet_status duet_pool_open(int n_threads, duet_pool **out, duet_error *err);
void duet_pool_close(duet_pool **pool);
int duet_pool_threads(const duet_pool *pool);

/* Run task(arg, i, thread) for i in 0..n_tasks-1, thread in 0..threads-1; returns when all are done. One
 * caller at a time. pool NULL = serial. */
typedef void (*duet_task_fn)(void *arg, int64_t task, int thread);
void duet_pool_run(duet_pool *pool, int64_t n_tasks, duet_task_fn task, void *arg);

/* From now on tasks are no longer begun once *stop is non-zero (NULL: never). Not while a run is going on. */
void duet_pool_watch(duet_pool *pool, const volatile int *stop);
/* Whether a run since the last duet_pool_watch left out a task: what it computed is then incomplete. */
bool duet_pool_skipped(const duet_pool *pool);

int duet_cpu_count(void); /* processors usable by this process */

#endif
