/* checkop_test.c - the verdicts: one test per op, over every backend and instruction level this machine has. */
#include "checkop/checkop.h"

#include <stdlib.h>

/* Rounding floor of the relative L2 error: three fp32 roundings. Below that nobody is better than luck. */
#define FLOOR 1.8e-7
enum { N_RANDOM = 40 };

typedef struct setup {
    const char *backend, *level;
} setup;

static const setup setups[] = {{"cpu", "scalar"}, {"cpu", "avx2"}, {"cpu", "avx512"}};
enum { N_SETUPS = sizeof setups / sizeof *setups };

/* NULL: this machine lacks the level (said on standard output). */
static duet_device *open_device(const char *backend, const char *level, int n_threads) {
    duet_device *dev = NULL;
    duet_error err = {0};
    duet_device_options options = {.backend = backend, .cpu_level = level, .n_threads = n_threads};
    duet_status st = duet_device_open(&options, &dev, &err);
    if (st == DUET_E_UNSUPPORTED) {
        printf("    skip part: %s\n", err.message);
        return NULL;
    }
    EXPECT_OK(st, err);
    return dev;
}

static uint32_t bits_of(const char *data, size_t i) {
    uint32_t bits;
    memcpy(&bits, data + 4 * i, 4);
    return bits;
}

static float value_of(const char *data, size_t i) {
    float value;
    memcpy(&value, data + 4 * i, 4);
    return value;
}

static void check_same_bits(const checkop_case *c, const char *what, const checkop_result *a,
                            const checkop_result *b) {
    for (int i = 0; i < c->n_buffers; i++) {
        if (!c->buffer[i].output) continue;
        for (size_t k = 0; k < c->buffer[i].bytes; k++)
            if (a->data[i][k] != b->data[i][k])
                FAIL("%s, case %d: %s: buffer %d differs at byte %zu", c->text, c->index, what, i, k);
    }
}

/* Exact ops: the same bits, but a NaN may be any NaN. */
static void check_exact(const checkop_case *c, const checkop_result *want, const checkop_result *got) {
    for (int i = 0; i < c->n_buffers; i++) {
        const checkop_buffer *b = &c->buffer[i];
        if (!b->output) continue;
        for (size_t k = 0; k < b->bytes / 4; k++) {
            bool poison = bits_of(want->data[i], k) == CHECKOP_POISON;
            bool both_nan = isnan(value_of(want->data[i], k)) && isnan(value_of(got->data[i], k));
            if (bits_of(want->data[i], k) != bits_of(got->data[i], k) && (poison || !both_nan))
                FAIL("%s, case %d: value %zu: got %.9g, want %.9g", c->text, c->index, k,
                     (double)value_of(got->data[i], k), (double)value_of(want->data[i], k));
        }
        for (size_t k = b->bytes / 4 * 4; k < b->bytes; k++)
            if (want->data[i][k] != got->data[i][k]) FAIL("%s, case %d: byte %zu", c->text, c->index, k);
    }
}

typedef struct distance {
    double relative_l2, relative_max; /* largest difference over the largest value */
    int64_t n;
} distance;

/* Squares over all cases of an op: the ratio that the budget is about. */
typedef struct pool_of_errors {
    double fast, naive;
} pool_of_errors;

static bool same_kind(float a, float b) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b)) return a == b;
    return true;
}

/* strict: non-finite values must agree in place and sign, unwritten elements must still be poison. */
static distance measure(const checkop_case *c, const checkop_result *want, const checkop_result *got,
                        bool strict) {
    double square = 0, total = 0, worst = 0, largest = 0;
    int64_t n = 0;
    for (int i = 0; i < c->n_buffers; i++) {
        for (size_t k = 0; c->buffer[i].output && k < c->buffer[i].bytes / 4; k++) {
            float w = value_of(want->data[i], k), g = value_of(got->data[i], k);
            bool poison = bits_of(want->data[i], k) == CHECKOP_POISON;
            if (strict && ((poison && bits_of(got->data[i], k) != CHECKOP_POISON) || !same_kind(w, g)))
                FAIL("%s, case %d: value %zu: got %.9g, want %.9g", c->text, c->index, k, (double)g,
                     (double)w);
            if (!isfinite(w) || !isfinite(g)) continue;
            n++;
            double d = fabs((double)g - (double)w);
            square += d * d;
            total += (double)w * (double)w;
            worst = fmax(worst, d);
            largest = fmax(largest, fabs((double)w));
        }
    }
    return (distance){sqrt(square / fmax(total, 1e-60)), worst / fmax(largest, 1e-30), n};
}

typedef struct copies {
    duet__visitor visitor;
    const checkop_case *c;
    checkop_result *to;
} copies;

static void *into_copy(duet__visitor *v, const void *address) {
    copies *m = (copies *)v;
    for (int i = 0; i < m->c->n_buffers; i++) {
        const checkop_buffer *b = &m->c->buffer[i];
        if ((const char *)address >= b->image && (const char *)address < b->image + b->bytes)
            return m->to->data[i] + ((const char *)address - b->image);
    }
    return NULL;
}

static const duet_weight *keep_weight(duet__visitor *v, const duet_weight *w) {
    (void)v;
    return w;
}

static void run_naive(const checkop_case *c, const checkop_spec *spec, duet_op op, checkop_result *out) {
    for (int i = 0; i < c->n_buffers; i++) {
        out->data[i] = malloc(c->buffer[i].bytes + 1);
        memcpy(out->data[i], c->buffer[i].image, c->buffer[i].bytes);
    }
    copies m = {{into_copy, keep_weight}, c, out};
    duet__any_args args = c->args;
    duet__op_visit(op, &args, &m.visitor);
    spec->naive(&args);
}

/* A case with few values may be unlucky, so it gets twice the budget; all cases together do not. */
static void check_budget(const checkop_case *c, const checkop_spec *spec, duet_op op,
                         const checkop_result *want, const checkop_result *got, pool_of_errors *pool) {
    checkop_result naive = {0};
    run_naive(c, spec, op, &naive);
    distance fast = measure(c, want, got, true), honest = measure(c, want, &naive, false);
    checkop_free_result(&naive);
    if (honest.relative_l2 > 1e-4) /* an independent text of the same op: ref itself would be wrong */
        FAIL("%s, case %d: ref and the naive form differ by %.3g", c->text, c->index, honest.relative_l2);
    double budget = fast.n >= 256 ? 2.0 : 4.0;
    if (fast.relative_l2 > budget * honest.relative_l2 + FLOOR)
        FAIL("%s, case %d: relative L2 %.3g, naive fp32 has %.3g", c->text, c->index, fast.relative_l2,
             honest.relative_l2);
    if (fast.relative_max > 2.0 * budget * honest.relative_max + 4.0 * FLOOR)
        FAIL("%s, case %d: largest error %.3g, naive fp32 has %.3g", c->text, c->index, fast.relative_max,
             honest.relative_max);
    pool->fast += fast.relative_l2 * fast.relative_l2;
    pool->naive += honest.relative_l2 * honest.relative_l2;
}

static void check_rows(checkop_case *c, const checkop_spec *spec, duet_op op, duet_device *dev,
                       const checkop_result *whole) {
    if (!spec->cut) return;
    int64_t rows = spec->rows(&c->args);
    if (rows < 2) return;
    checkop_result two = {0};
    checkop_run(c, spec, op, dev, checkop_pick(c, 1, rows - 1), &two);
    check_same_bits(c, "rows cut in two calls", whole, &two);
    checkop_free_result(&two);
}

/* The walled device runs the ref kernels: only the way there and back can differ. */
static void check_walled(duet_op op) {
    const checkop_spec *spec = checkop_find(op);
    duet_device *ref = open_device("ref", NULL, 1), *walled = open_device("walled", NULL, 2);
    for (int i = 0; i < spec->n_corners + N_RANDOM; i++) {
        checkop_case c;
        checkop_result want = {0}, got = {0};
        checkop_make(&c, op, i, checkop_seed(), false);
        checkop_run(&c, spec, op, ref, 0, &want);
        checkop_run(&c, spec, op, walled, 0, &got);
        check_same_bits(&c, "walled", &want, &got);
        checkop_free_result(&want);
        checkop_free_result(&got);
        checkop_free(&c);
    }
    duet_device_close(&walled);
    duet_device_close(&ref);
}

/* dev[0..2]: the same level with 1, 2 and 3 threads. */
static void check_case(checkop_case *c, const checkop_spec *spec, duet_op op, duet_device *ref,
                       duet_device **dev, pool_of_errors *pool) {
    checkop_result want = {0}, got = {0}, again = {0};
    checkop_run(c, spec, op, ref, 0, &want);
    checkop_run(c, spec, op, dev[0], 0, &got);
    if (spec->naive)
        check_budget(c, spec, op, &want, &got, pool);
    else
        check_exact(c, &want, &got);
    for (int t = 1; t < 3; t++) {
        checkop_run(c, spec, op, dev[t], 0, &again);
        check_same_bits(c, t == 1 ? "2 threads" : "3 threads", &got, &again);
        checkop_free_result(&again);
    }
    check_rows(c, spec, op, dev[1], &got);
    checkop_free_result(&want);
    checkop_free_result(&got);
}

static void check_setup(duet_op op, const setup *s) {
    const checkop_spec *spec = checkop_find(op);
    duet_device *dev[3] = {NULL}, *ref = open_device("ref", NULL, 1);
    pool_of_errors pool = {0, 0};
    for (int t = 0; t < 3; t++) {
        dev[t] = open_device(s->backend, s->level, t + 1);
        if (!dev[t]) return duet_device_close(&ref);
    }
    for (int i = 0; i < spec->n_corners + N_RANDOM; i++) {
        checkop_case c;
        checkop_make(&c, op, i, checkop_seed(), false);
        check_case(&c, spec, op, ref, dev, &pool);
        checkop_free(&c);
    }
    if (spec->naive) {
        double ratio = sqrt(pool.fast / pool.naive);
        printf("    %s on %s: %.2f times the error of naive fp32\n", duet__op_name(op), s->level, ratio);
        EXPECT_LE(ratio, 2.0);
    }
    for (int t = 0; t < 3; t++) duet_device_close(&dev[t]);
    duet_device_close(&ref);
}

#define DUET_OP(name, ptrs, weights)                                                                         \
    TEST(checkop_##name, 120000) {                                                                           \
        for (int i = 0; i < N_SETUPS; i++) check_setup(DUET_OP_##name, &setups[i]);                          \
        check_walled(DUET_OP_##name);                                                                        \
    }
#include "backend/ops.def"
#undef DUET_OP
