/* walled_test.c - the wall holds: each mistake it exists for is seen. */
#include "harness/harness.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/alloc.h"

static duet_device *dev;
static duet_stream *stream;
static duet_error err;

static void open_walled(int64_t scratch_bytes) {
    EXPECT_OK(duet_device_open(&(duet_device_options){.backend = "walled", .n_threads = 2}, &dev, &err), err);
    EXPECT_OK(duet_stream_open(dev, scratch_bytes, &stream, &err), err);
}

static float *room(int64_t n) {
    void *at = NULL;
    EXPECT_OK(duet_device_alloc(dev, n * 4, "room", &at, &err), err);
    return at;
}

static void close_walled(void) {
    duet_stream_close(&stream);
    EXPECT_EQ(duet_device_live_bytes(dev), 0);
    duet_device_close(&dev);
    EXPECT_EQ(duet_mem_live_total_bytes(), 0);
}

/* Does the access kill a process? Sanitizers report it in their own words and exit. */
static bool faults(const volatile float *address, bool write) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        if (write) *(volatile float *)address = 1;
        _exit(*address == 0.5f ? 1 : 0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) || WEXITSTATUS(status) > 1;
}

TEST(walled_memory_cannot_be_touched, 10000) {
    open_walled(0);
    float *x = room(16);
    EXPECT(faults(x, false));
    EXPECT(faults(x, true));
    float data[16] = {0.5f};
    duet_weight w = duet_weight_view("w", DUET_F32, DUET_SHAPE(16), data);
    EXPECT(!faults(w.piece[0].data, false));
    EXPECT_EQ(duet_weight_prepared_bytes(dev, &w), 64);
    EXPECT_OK(duet_weight_prepare(dev, &w, &err), err);
    EXPECT(faults(w.piece[0].data, false));
    duet_weight_unprepare(dev, &w);
    EXPECT(w.piece[0].data == data);
    duet_device_free(dev, x);
    close_walled();
}

TEST(walled_results_come_with_the_sync, 5000) {
    open_walled(0);
    float *x = room(100), host[100], back[100];
    for (int i = 0; i < 100; i++) host[i] = (float)i;
    duet_copy_in(stream, x, host, sizeof host);
    memset(host, 0, sizeof host); /* was read before the call returned */
    duet_axpby(stream, &(duet_axpby_args){.x = x, .y = x, .n = 100, .a = 2.0f, .b = 1.0f});
    duet_copy_out(stream, back, x, sizeof back);
    for (int i = 0; i < 100; i++) EXPECT(isnan(back[i])); /* too early */
    EXPECT_OK(duet_stream_sync(stream, &err), err);
    for (int i = 0; i < 100; i++) EXPECT(back[i] == 3.0f * (float)i);
    duet_device_free(dev, x);
    close_walled();
}

/* Many small commands that alternate between the queues: any lost event shows. */
TEST(walled_queues_keep_the_order_of_a_stream, 20000) {
    enum { ROUNDS = 3000 };
    static float back[ROUNDS];
    open_walled(0);
    float *x = room(1), *y = room(1);
    for (int i = 0; i < ROUNDS; i++) {
        float value = (float)i;
        duet_copy_in(stream, x, &value, sizeof value);
        duet_axpby(stream, &(duet_axpby_args){.x = x, .y = y, .n = 1, .a = 2.0f});
        if (i % 3 == 0) duet_fill_zero(stream, y, sizeof value);
        duet_copy_out(stream, &back[i], y, sizeof value);
    }
    EXPECT_OK(duet_stream_sync(stream, &err), err);
    for (int i = 0; i < ROUNDS; i++) EXPECT(back[i] == (i % 3 == 0 ? 0.0f : 2.0f * (float)i));
    duet_device_free(dev, x);
    duet_device_free(dev, y);
    close_walled();
}

TEST(walled_new_memory_is_garbage, 5000) {
    open_walled(0);
    for (int round = 0; round < 2; round++) {
        float *x = room(1000);
        float back[1000];
        duet_copy_out(stream, back, x, sizeof back);
        EXPECT_OK(duet_stream_sync(stream, &err), err);
        for (int i = 0; i < 1000; i++) EXPECT(isnan(back[i]));
        duet_fill_zero(stream, x, sizeof back);
        EXPECT_OK(duet_stream_sync(stream, &err), err);
        duet_device_free(dev, x);
    }
    close_walled();
}

static void expect_failure(const char *part) {
    duet_error seen = {0};
    EXPECT_EQ(duet_stream_sync(stream, &seen), DUET_E_INTERNAL);
    EXPECT_HAS(seen.message, part);
    duet_stream_close(&stream);
    EXPECT_OK(duet_stream_open(dev, 64, &stream, &err), err);
}

TEST(walled_names_what_was_done_wrong, 10000) {
    static float host[32];
    open_walled(0);
    float *x = room(32), *gone = room(32);
    duet_device_free(dev, gone);
    duet_silu(stream, &(duet_silu_args){.x = gone, .y = x, .n = 32});
    expect_failure("silu: an argument is not live device memory");
    duet_silu(stream, &(duet_silu_args){.x = host, .y = x, .n = 32});
    expect_failure("silu: an argument is not live device memory");
    duet_copy_in(stream, x + 1, host, sizeof host);
    expect_failure("128 bytes do not lie in live device memory");
    duet_weight w = duet_weight_view("some.weight", DUET_F32, DUET_SHAPE(1, 32), host);
    duet_linear_args linear = {
        .x = x, .y = x, .w = &w, .rows = 1, .cols_in = 32, .cols_out = 1, .x_stride = 32, .y_stride = 1};
    duet_linear(stream, &linear);
    expect_failure("weight some.weight is used without having been acquired");
    EXPECT_OK(duet_weight_prepare(dev, &w, &err), err);
    duet_linear(stream, &linear); /* the stream was opened with 64 bytes */
    expect_failure("linear needs 256 bytes of scratch");
    duet_weight_unprepare(dev, &w);
    duet_device_free(dev, x);
    close_walled();
}
