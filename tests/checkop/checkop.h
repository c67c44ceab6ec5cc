/* checkop.h - one table of cases that tests and benches every op of every backend.
 *
 * A spec knows one op: how to make its cases (corner cases first, then seeded random ones), a straightforward fp32
 * implementation of it, and how to cut its rows. A case owns *images*: host copies of every buffer as it looks
 * before the run. Running a case on a device means: copy the images between guard bands, poison the outputs,
 * translate the arguments (as any device that moves addresses would), run, copy everything back.
 *
 *     exact ops     bits equal to ref
 *     rounded ops   error against ref (double inside) at most twice that of the naive fp32 implementation, plus a
 *                   floor of a few roundings; non-finite values in the same places
 *     all ops       guard bands and inputs untouched, elements between strides untouched, same bits for 1, 2 and 3
 *                   threads, same bits when the rows are cut in two calls */
#ifndef DUET_CHECKOP_H
#define DUET_CHECKOP_H

#include "harness/harness.h"

#include "backend/device_int.h"

enum { CHECKOP_BUFFERS = 8, CHECKOP_WEIGHTS = 4 };

typedef struct checkop_buffer {
    char *image; /* exact size: address sanitizer sees overruns */
    size_t bytes;
    bool output;
} checkop_buffer;

typedef struct checkop_case {
    uint64_t rng;
    int index;
    bool nonfinite; /* put a NaN and infinities into the first input */
    char text[256];
    duet__any_args args; /* pointers into images */
    checkop_buffer buffer[CHECKOP_BUFFERS];
    int n_buffers;
    duet_weight weight[CHECKOP_WEIGHTS];
    void *weight_data[CHECKOP_WEIGHTS];
    int n_weights;
    double flops, bytes; /* work of one run, for --bench */
} checkop_case;

typedef struct checkop_spec {
    int n_corners, n_bench;
    void (*make)(checkop_case *c);     /* c->index < n_corners: that corner; else random */
    void (*bench)(checkop_case *c);    /* c->index < n_bench: a shape that matters */
    void (*naive)(const void *args);   /* NULL: exact op */
    int64_t (*rows)(const void *args); /* NULL: rows cannot be cut */
    void (*cut)(void *args, int64_t first, int64_t rows);
} checkop_spec;

#define DUET_OP(name, ptrs, weights) extern const checkop_spec checkop_##name;
#include "backend/ops.def"
#undef DUET_OP

/* ---- for makers */
uint64_t checkop_random(checkop_case *c);
int64_t checkop_pick(checkop_case *c, int64_t lo, int64_t hi); /* inclusive */
float checkop_normal(checkop_case *c);
float *checkop_in(checkop_case *c, int64_t n);                 /* normal values, some outliers */
float *checkop_inout(checkop_case *c, int64_t n);              /* same, and compared afterwards */
void *checkop_out(checkop_case *c, int64_t bytes);             /* poisoned */
int32_t *checkop_ids(checkop_case *c, int64_t n, int64_t end); /* 0 <= id < end */
/* Random values in random storage: dtype, pieces and blocks vary with `vary`. scale: standard deviation. */
duet_weight *checkop_weight(checkop_case *c, const char *name, duet_shape shape, float scale, bool vary);
void checkop_text(checkop_case *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- naive.c: straightforward fp32, the honest baseline */
void naive_linear(const void *args);
void naive_rmsnorm(const void *args);
void naive_layernorm(const void *args);
void naive_attention(const void *args);
void naive_silu(const void *args);
void naive_silu_mul(const void *args);
void naive_conv1d(const void *args);
void naive_conv1d_up(const void *args);
void naive_snake_aa(const void *args);

/* ---- case.c, run.c: for the drivers */
extern const uint32_t CHECKOP_POISON;
const checkop_spec *checkop_find(duet_op op);
void checkop_make(checkop_case *c, duet_op op, int index, uint64_t seed, bool bench);
void checkop_free(checkop_case *c);

/* Copies of the case's output buffers after a run; free with checkop_free_result. */
typedef struct checkop_result {
    char *data[CHECKOP_BUFFERS];
} checkop_result;
void checkop_free_result(checkop_result *r);
/* Run on a device. cut_row > 0: as two calls, rows [0, cut_row) and the rest. Fails the test on any damage. */
void checkop_run(const checkop_case *c, const checkop_spec *spec, duet_op op, duet_device *dev,
                 int64_t cut_row, checkop_result *out);

uint64_t checkop_seed(void);

#endif
