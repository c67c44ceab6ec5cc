/* device_test.c - devices, buffers, streams and weights through the public header, on every backend. */
#include "harness/harness.h"

#include "backend/backend.h"
#include "base/alloc.h"

static duet_device *open_device(const char *backend, int n_threads) {
    duet_device *dev = NULL;
    duet_error err = {0};
    EXPECT_OK(
        duet_device_open(&(duet_device_options){.backend = backend, .n_threads = n_threads}, &dev, &err),
        err);
    return dev;
}

static const char *const backends[] = {"ref", "cpu", "walled"};
enum { N_BACKENDS = sizeof backends / sizeof *backends };

TEST(device_counts_its_buffers, 5000) {
    for (int i = 0; i < N_BACKENDS; i++) {
        duet_device *dev = open_device(backends[i], 1);
        duet_error err = {0};
        void *a = NULL, *b = NULL;
        EXPECT_OK(duet_device_alloc(dev, 1000, "a", &a, &err), err);
        EXPECT_OK(duet_device_alloc(dev, 500, "b", &b, &err), err);
        EXPECT_EQ((uintptr_t)a % 64, 0);
        EXPECT_EQ(duet_device_live_bytes(dev), 1500);
        duet_device_free(dev, a);
        EXPECT_EQ(duet_device_live_bytes(dev), 500);
        EXPECT_EQ(duet_device_peak_bytes(dev), 1500);
        duet_device_free(dev, b);
        duet_device_free(dev, NULL);
        EXPECT_EQ(duet_device_live_bytes(dev), 0);
        duet_device_close(&dev);
        EXPECT(dev == NULL);
        duet_device_close(&dev);
        EXPECT_EQ(duet_mem_live_total_bytes(), 0);
    }
}

TEST(device_refuses_unknown_names, 2000) {
    duet_device *dev = NULL;
    duet_error err = {0};
    EXPECT_EQ(duet_device_open(&(duet_device_options){.backend = "abacus"}, &dev, &err), DUET_E_UNSUPPORTED);
    EXPECT_HAS(err.message, "abacus");
    EXPECT(dev == NULL);
    err = (duet_error){0};
    EXPECT_EQ(duet_device_open(&(duet_device_options){.cpu_level = "mmx"}, &dev, &err), DUET_E_UNSUPPORTED);
    EXPECT_HAS(err.message, "mmx");
    EXPECT_EQ(duet_mem_live_total_bytes(), 0);
}

TEST(stream_runs_in_order, 5000) {
    static const float w_data[6] = {1, 2, 3, 4, 5, 6}, x_data[4] = {1, 10, 100, 1000};
    static const float want[6] = {21, 43, 65, 2100, 4300, 6500};
    for (int i = 0; i < N_BACKENDS; i++) {
        duet_device *dev = open_device(backends[i], 2);
        duet_stream *stream = NULL;
        duet_error err = {0};
        duet_weight w = duet_weight_view("w", DUET_F32, DUET_SHAPE(3, 2), w_data);
        float *x = NULL, *y = NULL, got[6];
        EXPECT_OK(duet_stream_open(dev, 0, &stream, &err), err);
        EXPECT_OK(duet_device_alloc(dev, sizeof x_data, "x", (void **)&x, &err), err);
        EXPECT_OK(duet_device_alloc(dev, sizeof got, "y", (void **)&y, &err), err);
        duet_copy_in(stream, x, x_data, sizeof x_data);
        EXPECT_OK(duet_weight_prepare(dev, &w, &err), err);
        duet_linear(stream, &(duet_linear_args){.x = x,
                                                .y = y,
                                                .w = &w,
                                                .rows = 2,
                                                .cols_in = 2,
                                                .cols_out = 3,
                                                .x_stride = 2,
                                                .y_stride = 3});
        duet_copy_out(stream, got, y, sizeof got);
        EXPECT_OK(duet_stream_sync(stream, &err), err);
        for (int j = 0; j < 6; j++) EXPECT(got[j] == want[j]);
        duet_weight_unprepare(dev, &w);
        EXPECT(w.prepared == NULL && w.piece[0].data == w_data);
        duet_stream_close(&stream);
        duet_device_free(dev, x);
        duet_device_free(dev, y);
        EXPECT_EQ(duet_device_live_bytes(dev), 0);
        duet_device_close(&dev);
        EXPECT_EQ(duet_mem_live_total_bytes(), 0);
    }
}

/* A small job from open to sync, with whatever it managed to open left in place. */
typedef struct small_job {
    duet_device *dev;
    duet_stream *stream;
    duet_weight w;
    void *x;
    const char *step; /* the one that was tried last */
} small_job;

static duet_status run_small_job(small_job *j, const char *backend, duet_error *err) {
    static const float w_data[64 * 64], x_data[64];
    duet_status st;
    j->w = duet_weight_view("weight of the test", DUET_F32, DUET_SHAPE(64, 64), w_data);
    j->step = "open";
    TRY(st, fail, duet_device_open(&(duet_device_options){.backend = backend, .n_threads = 2}, &j->dev, err));
    TRY(st, fail, duet_stream_open(j->dev, 0, &j->stream, err));
    j->step = "alloc";
    TRY(st, fail, duet_device_alloc(j->dev, 512, "activations of the test", &j->x, err));
    j->step = "prepare";
    TRY(st, fail, duet_weight_prepare(j->dev, &j->w, err));
    j->step = "run";
    duet_copy_in(j->stream, j->x, x_data, sizeof x_data);
    duet_linear(j->stream, &(duet_linear_args){.x = j->x,
                                               .y = (float *)j->x + 64,
                                               .w = &j->w,
                                               .rows = 1,
                                               .cols_in = 64,
                                               .cols_out = 64,
                                               .x_stride = 64,
                                               .y_stride = 64});
    st = duet_stream_sync(j->stream, err);
    EXPECT_EQ(duet_stream_sync(j->stream, NULL), st); /* it sticks */
fail:
    return st;
}

static void close_small_job(small_job *j) {
    duet_stream_close(&j->stream);
    if (j->dev) {
        duet_weight_unprepare(j->dev, &j->w);
        duet_device_free(j->dev, j->x);
        EXPECT_EQ(duet_device_live_bytes(j->dev), 0);
    }
    duet_device_close(&j->dev);
    EXPECT_EQ(duet_mem_live_total_bytes(), 0);
}

/* Fail every allocation in turn: what was refused is named, the error sticks, nothing stays behind. */
TEST(device_survives_refused_memory, 20000) {
    for (int b = 0; b < N_BACKENDS; b++) {
        int refused = 0, refused_alloc = 0;
        for (int64_t nth = 0;; nth++) {
            small_job j = {0};
            duet_error err = {0};
            duet_mem_fault_arm(nth);
            duet_status st = run_small_job(&j, backends[b], &err);
            int fired = duet_mem_fault_fired();
            duet_mem_fault_arm(-1);
            close_small_job(&j);
            if (!fired) break;
            EXPECT_EQ(st, DUET_E_MEMORY);
            EXPECT(err.message[0] != '\0');
            if (strcmp(j.step, "alloc") == 0) {
                EXPECT_HAS(err.message, "activations of the test");
                refused_alloc++;
            }
            if (strcmp(j.step, "prepare") == 0) EXPECT_HAS(err.message, "weight of the test");
            refused++;
        }
        EXPECT(refused_alloc >= 1);
        EXPECT(refused > refused_alloc);
    }
}

TEST(stream_leaves_out_work_once_cancelled, 5000) {
    static const float data[4] = {1, 2, 3, 4};
    for (int i = 0; i < N_BACKENDS; i++) {
        duet_device *dev = open_device(backends[i], 2);
        duet_stream *stream = NULL;
        duet_error err = {0};
        volatile int cancel = 0;
        float *x = NULL, got[4];
        EXPECT_OK(duet_stream_open(dev, 0, &stream, &err), err);
        duet_stream_watch(stream, &cancel);
        EXPECT_OK(duet_device_alloc(dev, sizeof data, "x", (void **)&x, &err), err);
        duet_copy_in(stream, x, data, sizeof data);
        duet_silu(stream, &(duet_silu_args){.x = x, .y = x, .n = 4});
        duet_copy_out(stream, got, x, sizeof got);
        EXPECT_OK(duet_stream_sync(stream, &err), err);
        EXPECT_OK(duet_stream_poll(stream, &err), err);
        __atomic_store_n(&cancel, 1, __ATOMIC_RELAXED);
        duet_silu(stream, &(duet_silu_args){.x = x, .y = x, .n = 4});
        EXPECT_EQ(duet_stream_sync(stream, &err), DUET_E_CANCELLED);
        EXPECT_EQ(duet_stream_poll(stream, NULL), DUET_E_CANCELLED);
        cancel = 0; /* too late: what is missing stays missing */
        EXPECT_EQ(duet_stream_sync(stream, NULL), DUET_E_CANCELLED);
        duet_stream_close(&stream);
        EXPECT_OK(duet_stream_open(dev, 0, &stream, &err), (duet_error){0}); /* the device is not spoilt */
        duet_silu(stream, &(duet_silu_args){.x = x, .y = x, .n = 4});
        EXPECT_EQ(duet_stream_sync(stream, NULL), DUET_OK);
        duet_stream_close(&stream);
        duet_device_free(dev, x);
        duet_device_close(&dev);
        EXPECT_EQ(duet_mem_live_total_bytes(), 0);
    }
}
