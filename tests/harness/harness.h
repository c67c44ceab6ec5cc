/* harness.h - tests that register themselves and run one process each.
 *
 *     TEST(pack_keeps_order, 1000) { EXPECT_EQ(rows, 42); }
 *
 * The second argument is a deadline in ms (scaled by DUET_TEST_SLOWDOWN, for sanitizers and emulators). A
 * failed EXPECT prints both values and ends the test. SKIP(reason) is loud and counted. The program prints "N
 * passed, N failed, N skipped". PROGRAM [--list] [SUBSTRING...] */
#ifndef DUET_HARNESS_H
#define DUET_HARNESS_H

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct harness_test {
    const char *name, *file;
    int deadline_ms;
    void (*run)(void);
    struct harness_test *next;
} harness_test;

void harness_register(harness_test *test);
_Noreturn void harness_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void harness_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *harness_source_dir(void);           /* root of the source tree */
const char *harness_tmp_dir(void);              /* fresh, removed afterwards; one per test */
const char *harness_need_env(const char *name); /* value, or a loud skip */

/* A program may define this to serve command lines of its own (a bench): true when it did, with its exit code. */
bool harness_other_main(int argc, char **argv, int *exit_code) __attribute__((weak));

#define TEST(name, deadline_ms)                                                                              \
    static void test_##name(void);                                                                           \
    __attribute__((constructor)) static void register_##name(void) {                                         \
        static harness_test t = {#name, __FILE__, deadline_ms, test_##name, NULL};                           \
        harness_register(&t);                                                                                \
    }                                                                                                        \
    static void test_##name(void)

#define SKIP(...) harness_skip(__VA_ARGS__)
#define FAIL(...) harness_fail(__FILE__, __LINE__, __VA_ARGS__)
#define EXPECT(cond)                                                                                         \
    do {                                                                                                     \
        if (!(cond)) FAIL("%s", #cond);                                                                      \
    } while (0)
#define EXPECT_EQ(got, want)                                                                                 \
    do {                                                                                                     \
        int64_t g_ = (int64_t)(got), w_ = (int64_t)(want);                                                   \
        if (g_ != w_) FAIL("%s: got %" PRId64 ", want %" PRId64, #got, g_, w_);                              \
    } while (0)
#define EXPECT_STR(got, want)                                                                                \
    do {                                                                                                     \
        const char *g_ = (got), *w_ = (want);                                                                \
        if (!g_ || strcmp(g_, w_) != 0) FAIL("%s: got \"%s\", want \"%s\"", #got, g_ ? g_ : "(null)", w_);   \
    } while (0)
#define EXPECT_HAS(text, part)                                                                               \
    do {                                                                                                     \
        const char *t_ = (text), *p_ = (part);                                                               \
        if (!t_ || !strstr(t_, p_))                                                                          \
            FAIL("%s: \"%s\" does not contain \"%s\"", #text, t_ ? t_ : "(null)", p_);                       \
    } while (0)
#define EXPECT_LE(got, bound)                                                                                \
    do {                                                                                                     \
        double g_ = (double)(got), b_ = (double)(bound);                                                     \
        if (!(g_ <= b_)) FAIL("%s: got %g, bound %g", #got, g_, b_);                                         \
    } while (0)
/* A duet call that must succeed; prints the error otherwise. `e` is the duet_error the call was given. */
#define EXPECT_OK(call, e)                                                                                   \
    do {                                                                                                     \
        if ((call) != 0) FAIL("%s: %s", #call, (e).message);                                                 \
    } while (0)

#endif
