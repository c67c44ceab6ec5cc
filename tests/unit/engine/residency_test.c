/* residency_test.c - the all-resident policy: prepared once, given back once, weights unharmed. */
#include "harness/fixture.h"

#include "base/alloc.h"
#include "engine/residency.h"

enum { ROWS = 48, COLS = 96 };

typedef struct bench {
    duet_device *dev;
    duet_stream *stream;
    duet_residency *residency;
    float *values;
    duet_weight weight[2];
    duet_weight *list[2][1];
    duet_unit unit[2];
} bench;

static void open_bench(bench *b) {
    duet_error err = {0};
    *b = (bench){0};
    EXPECT_OK(duet_device_open(&(duet_device_options){.n_threads = 1}, &b->dev, &err), err);
    EXPECT_OK(duet_stream_open(b->dev, 0, &b->stream, &err), err);
    EXPECT_OK(duet_residency_open(b->dev, &b->residency, &err), err);
    b->values = duet_calloc(2 * ROWS * COLS, sizeof(float), DUET_MEM_MISC);
    for (int i = 0; i < 2 * ROWS * COLS; i++) b->values[i] = (float)(i % 251) - 125.0f;
    for (int i = 0; i < 2; i++) {
        b->weight[i] = duet_weight_view("w", DUET_F32, DUET_SHAPE(ROWS, COLS), b->values + i * ROWS * COLS);
        b->list[i][0] = &b->weight[i];
        b->unit[i] = (duet_unit){.name = "unit", .weights = b->list[i], .n_weights = 1};
    }
}

static void close_bench(bench *b) {
    duet_residency_close(&b->residency);
    duet_stream_close(&b->stream);
    duet_device_close(&b->dev);
    duet_free(b->values);
}

static void acquire(bench *b, int i) {
    duet_error err = {0};
    EXPECT_OK(b->residency->acquire(b->residency, &b->unit[i], b->stream, &err), err);
}

TEST(resident_units_are_prepared_once_and_counted, 2000) {
    bench b;
    open_bench(&b);
    int64_t one = duet_weight_prepared_bytes(b.dev, &b.weight[0]);
    for (int round = 0; round < 3; round++) {
        acquire(&b, 0);
        b.residency->release(b.residency, &b.unit[0], b.stream);
        EXPECT_EQ(duet_residency_prepared_bytes(b.residency), one);
    }
    acquire(&b, 1);
    EXPECT_EQ(duet_residency_prepared_bytes(b.residency), 2 * one);
    b.residency->retire(b.residency, &b.unit[0], b.stream);
    EXPECT(!b.weight[0].prepared);
    EXPECT_EQ(duet_residency_prepared_bytes(b.residency), one);
    b.residency->retire(b.residency, &b.unit[0], b.stream); /* again: nothing happens */
    acquire(&b, 0);                                         /* and back */
    EXPECT_EQ(duet_residency_prepared_bytes(b.residency), 2 * one);
    EXPECT_EQ(duet_residency_peak_bytes(b.residency), 2 * one);
    close_bench(&b);
    EXPECT(!b.weight[0].prepared && !b.weight[1].prepared);
    EXPECT_EQ(b.unit[0].state + b.unit[1].state, 0);
}

/* Retired memory may be private (a copy the store made): the hint that lets pages go must keep it. */
TEST(retired_weights_keep_their_values, 2000) {
    bench b;
    open_bench(&b);
    acquire(&b, 0);
    b.residency->retire(b.residency, &b.unit[0], b.stream);
    for (int i = 0; i < 2 * ROWS * COLS; i++) EXPECT(b.values[i] == (float)(i % 251) - 125.0f);
    close_bench(&b);
}

TEST(a_closed_residency_and_a_zeroed_one_can_be_closed_again, 1000) {
    bench b;
    open_bench(&b);
    acquire(&b, 0);
    duet_residency_close(&b.residency);
    EXPECT(!b.residency);
    close_bench(&b);
}
