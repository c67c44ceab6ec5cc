/* bench.c - `duet_checkop --bench [--backend B] [--level L] [--threads N] [SUBSTRING...]`: the same table, timed.
 *
 * Ceilings are measured in the same run: fused multiply-adds on registers for products, a large copy for everything
 * that moves memory. Each line is the best of the runs that fit into a quarter of a second (at least 3): the time
 * that the op needs when nobody disturbs it, with buffers as warm as the shape allows. With
 * one thread the clock is processor time, so that a busy machine measures the same. */
#include "checkop/checkop.h"

#include <stdlib.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static clockid_t bench_clock = CLOCK_MONOTONIC;

static double now_s(void) {
    struct timespec t;
    clock_gettime(bench_clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { PEAK_LOOPS = 20000000, PEAK_CHAINS = 12 };

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static double fma_avx512(int64_t loops) {
    __m512 acc[PEAK_CHAINS], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
    for (int j = 0; j < PEAK_CHAINS; j++) acc[j] = _mm512_set1_ps((float)j);
    for (int64_t i = 0; i < loops; i++)
        for (int j = 0; j < PEAK_CHAINS; j++) acc[j] = _mm512_fmadd_ps(acc[j], a, b);
    float sum = 0;
    for (int j = 0; j < PEAK_CHAINS; j++) sum += _mm512_cvtss_f32(acc[j]);
    return sum == 12345.0f ? 0 : 2.0 * 16;
}

__attribute__((target("avx2,fma"))) static double fma_avx2(int64_t loops) {
    __m256 acc[PEAK_CHAINS], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
    for (int j = 0; j < PEAK_CHAINS; j++) acc[j] = _mm256_set1_ps((float)j);
    for (int64_t i = 0; i < loops; i++)
        for (int j = 0; j < PEAK_CHAINS; j++) acc[j] = _mm256_fmadd_ps(acc[j], a, b);
    float sum = 0;
    for (int j = 0; j < PEAK_CHAINS; j++) sum += _mm256_cvtss_f32(acc[j]);
    return sum == 12345.0f ? 0 : 2.0 * 8;
}
#endif

static double fma_scalar(int64_t loops) {
    float acc[PEAK_CHAINS];
    for (int j = 0; j < PEAK_CHAINS; j++) acc[j] = (float)j;
    for (int64_t i = 0; i < loops; i++)
        for (int j = 0; j < PEAK_CHAINS; j++) acc[j] = acc[j] * 0.999f + 0.001f;
    float sum = 0;
    for (int j = 0; j < PEAK_CHAINS; j++) sum += acc[j];
    return sum == 12345.0f ? 0 : 2.0;
}

/* GFLOP/s of one core at the level of the device. */
static double peak_gflops(const char *kind) {
    double (*loop)(int64_t) = fma_scalar;
#if defined(__x86_64__)
    if (strstr(kind, "avx512")) loop = fma_avx512;
    if (strstr(kind, "avx2")) loop = fma_avx2;
#endif
    (void)kind;
    double best = 0;
    for (int i = 0; i < 3; i++) {
        double start = now_s(), flops = loop(PEAK_LOOPS);
        double rate = flops * PEAK_LOOPS * PEAK_CHAINS / (now_s() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

/* Bytes read plus written per second, by one thread, far outside the caches. */
static double copy_gbytes(void) {
    size_t bytes = (size_t)128 << 20;
    char *a = malloc(bytes), *b = malloc(bytes);
    memset(a, 1, bytes), memset(b, 2, bytes);
    double best = 0;
    for (int i = 0; i < 5; i++) {
        double start = now_s();
        memcpy(b, a, bytes);
        *(volatile char *)a = b[bytes / 2]; /* or a clever compiler copies nothing */
        double rate = 2.0 * (double)bytes / (now_s() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    free(a), free(b);
    return best;
}

static void run_op(duet_stream *stream, duet_op op, const void *args) {
    switch (op) {
#define DUET_OP(name, ptrs, weights)                                                                         \
    case DUET_OP_##name:                                                                                     \
        duet_##name(stream, args);                                                                           \
        return;
#include "backend/ops.def"
#undef DUET_OP
    case DUET_N_OPS:
        return;
    }
}

static void bench_case(duet_device *dev, duet_op op, int index, double gflops, double gbytes) {
    checkop_case c;
    duet_stream *stream = NULL;
    duet_error err = {0};
    double s = 1e9;
    checkop_make(&c, op, index, 1, true);
    EXPECT_OK(duet_stream_open(dev, 0, &stream, &err), err);
    run_op(stream, op, &c.args); /* images serve as device memory: only host backends are benched here */
    double start = now_s();
    for (int n = 0; n < 3 || now_s() - start < 0.25; n++) {
        double from = now_s();
        run_op(stream, op, &c.args);
        s = fmin(s, now_s() - from);
    }
    EXPECT_OK(duet_stream_sync(stream, &err), err);
    double work = c.flops > 0 ? c.flops : c.bytes, rate = work / s * 1e-9;
    printf("%9.3f ms %8.1f %-7s %4.0f %%  %s\n", 1e3 * s, rate, c.flops > 0 ? "GFLOP/s" : "GB/s",
           100 * rate / (c.flops > 0 ? gflops : gbytes), c.text);
    duet_stream_close(&stream);
    checkop_free(&c);
}

static bool wanted(duet_op op, int argc, char **argv) {
    bool any = false;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) == 0) {
            i += strcmp(argv[i], "--bench") != 0; /* the others take a value */
            continue;
        }
        any = true;
        if (strstr(duet__op_name(op), argv[i])) return true;
    }
    return !any;
}

static const char *option(int argc, char **argv, const char *name) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return argv[i + 1];
    return NULL;
}

bool harness_other_main(int argc, char **argv, int *exit_code) {
    bool bench = false;
    for (int i = 1; i < argc; i++) bench |= strcmp(argv[i], "--bench") == 0;
    if (!bench) return false;
    const char *threads = option(argc, argv, "--threads");
    duet_device *dev = NULL;
    duet_error err = {0};
    duet_device_options options = {.backend = option(argc, argv, "--backend"),
                                   .cpu_level = option(argc, argv, "--level"),
                                   .n_threads = threads ? atoi(threads) : 0};
    if (duet_device_open(&options, &dev, &err) != DUET_OK) {
        printf("%s\n", err.message);
        *exit_code = 1;
        return true;
    }
    if (duet_device_threads(dev) == 1) bench_clock = CLOCK_PROCESS_CPUTIME_ID;
    double gflops = peak_gflops(duet_device_kind(dev)) * duet_device_threads(dev), gbytes = copy_gbytes();
    printf("%s, %d threads: ceiling %.1f GFLOP/s (fused multiply-adds, one core times threads), %.1f GB/s "
           "(one copy)\n",
           duet_device_kind(dev), duet_device_threads(dev), gflops, gbytes);
    for (duet_op op = 0; op < DUET_N_OPS; op++)
        for (int i = 0; wanted(op, argc, argv) && i < checkop_find(op)->n_bench; i++)
            bench_case(dev, op, i, gflops, gbytes);
    duet_device_close(&dev);
    *exit_code = 0;
    return true;
}
