/* threads.c - a pool of sleeping workers and one shared task counter.
 *
 *     run:  publish (fn, arg, n), open the generation, wake workers -> everybody takes numbers from `next`
 * until they run out -> the caller closes the generation and waits for those workers that had joined it.
 *
 * A worker that wakes up late finds the generation closed and goes back to sleep: a short job never waits for the
 * scheduler to bring a sleeper in. The lock guards generation, open, job and `active`; `next` is atomic, taken
 * outside the lock. */
#define _GNU_SOURCE
#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"

typedef struct worker {
    pthread_t thread;
    duet_pool *pool;
    int index;
} worker;

struct duet_pool {
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    worker *workers;
    int n_workers; /* threads besides the caller that were really started */
    uint64_t generation;
    bool open; /* may still be joined */
    bool stop;
    int active; /* workers that joined and have not reported */
    duet_task_fn task;
    void *arg;
    int64_t n_tasks;
    _Atomic int64_t next;
    const volatile int *watched; /* NULL, or a flag that ends the handing out of tasks */
    atomic_bool skipped; /* once true, until the next watch, no task begins: nothing may be built on a gap */
};

/* Whether no more tasks may begin. */
static bool stopped(duet_pool *p) {
    if (!p->watched) return false;
    if (__atomic_load_n(p->watched, __ATOMIC_RELAXED))
        atomic_store_explicit(&p->skipped, true, memory_order_relaxed);
    return atomic_load_explicit(&p->skipped, memory_order_relaxed);
}

static void take_tasks(duet_pool *p, int thread) {
    for (;;) {
        int64_t i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (i >= p->n_tasks || stopped(p)) return;
        p->task(p->arg, i, thread);
    }
}

static void *worker_main(void *arg) {
    worker *w = arg;
    duet_pool *p = w->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->stop && (!p->open || p->generation == seen)) pthread_cond_wait(&p->wake, &p->lock);
        if (p->stop) break;
        seen = p->generation;
        p->active++;
        pthread_mutex_unlock(&p->lock);
        take_tasks(p, w->index);
        pthread_mutex_lock(&p->lock);
        if (--p->active == 0) pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* The quota of a cgroup v2, rounded up to whole processors; 0 if there is none. */
static int cgroup_cpus(void) {
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (!f) return 0;
    long quota = 0, period = 0;
    int n = fscanf(f, "%ld %ld", &quota, &period);
    fclose(f);
    return n == 2 && quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

int duet_cpu_count(void) {
    cpu_set_t set;
    int n =
        sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    int quota = cgroup_cpus();
    if (quota > 0 && quota < n) n = quota;
    return n > 0 ? n : 1;
}

duet_status duet_pool_open(int n_threads, duet_pool **out, duet_error *err) {
    if (n_threads <= 0) n_threads = duet_cpu_count();
    duet_pool *p = duet_calloc(1, sizeof *p, DUET_MEM_MISC);
    if (!p) return duet_fail(err, DUET_E_MEMORY, "thread pool: out of memory");
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    *out = p;
    if (n_threads == 1) return DUET_OK;
    p->workers = duet_calloc((size_t)n_threads - 1, sizeof *p->workers, DUET_MEM_MISC);
    if (!p->workers) {
        duet_pool_close(out);
        return duet_fail(err, DUET_E_MEMORY, "thread pool: out of memory");
    }
    for (int i = 0; i < n_threads - 1; i++) {
        p->workers[i] = (worker){.pool = p, .index = i + 1};
        if (pthread_create(&p->workers[i].thread, NULL, worker_main, &p->workers[i]) != 0) {
            duet_pool_close(out);
            return duet_fail(err, DUET_E_RUN, "thread pool: the system refused thread %d of %d", i + 2,
                             n_threads);
        }
        p->n_workers++;
    }
    return DUET_OK;
}

void duet_pool_close(duet_pool **pool) {
    duet_pool *p = *pool;
    if (!p) return;
    *pool = NULL;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_workers; i++) pthread_join(p->workers[i].thread, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->done);
    duet_free(p->workers);
    duet_free(p);
}

int duet_pool_threads(const duet_pool *p) {
    return p ? p->n_workers + 1 : 1;
}

void duet_pool_watch(duet_pool *p, const volatile int *stop) {
    p->watched = stop;
    atomic_store_explicit(&p->skipped, false, memory_order_relaxed);
}

bool duet_pool_skipped(const duet_pool *p) {
    return atomic_load_explicit(&p->skipped, memory_order_relaxed);
}

void duet_pool_run(duet_pool *p, int64_t n_tasks, duet_task_fn task, void *arg) {
    if (!p || p->n_workers == 0 || n_tasks <= 1) {
        for (int64_t i = 0; i < n_tasks && !(p && stopped(p)); i++) task(arg, i, 0);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->task = task;
    p->arg = arg;
    p->n_tasks = n_tasks;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    p->open = true;
    p->generation++;
    for (int64_t i = 1; i < n_tasks && i <= p->n_workers; i++) pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    take_tasks(p, 0);
    pthread_mutex_lock(&p->lock);
    p->open = false;
    while (p->active > 0) pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
