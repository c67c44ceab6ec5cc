/* threads_test.c - every task runs exactly once, for any thread count, many times over. */
#include "harness/harness.h"

#include <stdatomic.h>

#include "base/threads.h"

static _Atomic int hits[1000];

static void count_hit(void *arg, int64_t task, int thread) {
    (void)arg, (void)thread;
    atomic_fetch_add(&hits[task], 1);
}

TEST(pool_runs_each_task_once, 5000) {
    for (int threads = 1; threads <= 5; threads++) {
        duet_pool *pool = NULL;
        duet_error err = {0};
        EXPECT_OK(duet_pool_open(threads, &pool, &err), err);
        EXPECT_EQ(duet_pool_threads(pool), threads);
        for (int round = 0; round < 50; round++) {
            memset((void *)hits, 0, sizeof hits);
            duet_pool_run(pool, 1000, count_hit, NULL);
            for (int i = 0; i < 1000; i++) EXPECT_EQ(hits[i], 1);
        }
        duet_pool_close(&pool);
        EXPECT(pool == NULL);
    }
}

static volatile int stop;

static void stop_at_the_fourth(void *arg, int64_t task, int thread) {
    count_hit(arg, task, thread);
    if (task == 3) __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
}

static int total_hits(void) {
    int sum = 0;
    for (int i = 0; i < 1000; i++) sum += hits[i];
    return sum;
}

TEST(pool_begins_no_task_after_the_watched_flag, 5000) {
    for (int threads = 1; threads <= 5; threads++) {
        duet_pool *pool = NULL;
        duet_error err = {0};
        EXPECT_OK(duet_pool_open(threads, &pool, &err), err);
        memset((void *)hits, 0, sizeof hits);
        stop = 0;
        duet_pool_watch(pool, &stop);
        duet_pool_run(pool, 1000, stop_at_the_fourth, NULL);
        EXPECT(duet_pool_skipped(pool));
        if (threads == 1) EXPECT_EQ(total_hits(), 4);
        stop = 0; /* taken back too late: the next run would build on the gap */
        int before = total_hits();
        duet_pool_run(pool, 1000, count_hit, NULL);
        EXPECT_EQ(total_hits(), before);
        duet_pool_watch(pool, &stop);
        duet_pool_run(pool, 1000, count_hit, NULL);
        EXPECT_EQ(total_hits(), before + 1000);
        EXPECT(!duet_pool_skipped(pool));
        duet_pool_close(&pool);
    }
}
