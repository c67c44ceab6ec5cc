/* cpu.c - choosing the instruction level, once, when a device is opened.
 *
 * `ref` has filled every slot before; a level overwrites what it beats. The chosen level is part of the device
 * kind: another may round sums differently, so it can be pinned (promise P1). `scalar` is ref itself, and all that
 * architectures other than x86-64 have. */
#include <string.h>

#include "backend/cpu/levels.h"

enum { SCALAR, AVX2, AVX512, N_LEVELS };

static const char *const names[N_LEVELS] = {"scalar", "avx2", "avx512"};

static int best_level(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    /* F16C came with AVX, so it need not be asked for (and clang 14 does not know its name here). */
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return AVX512;
    if (avx2) return AVX2;
#endif
    return SCALAR;
}

duet_status duet__cpu_fill(duet_kernels *kernels, const char *wanted, const char **level, duet_error *err) {
    int best = best_level(), use = best;
    if (wanted) {
        for (use = 0; use < N_LEVELS && strcmp(names[use], wanted) != 0;) use++;
        if (use == N_LEVELS)
            return duet_fail(err, DUET_E_UNSUPPORTED, "unknown cpu level \"%s\" (scalar, avx2, avx512)",
                             wanted);
        if (use > best)
            return duet_fail(err, DUET_E_UNSUPPORTED, "cpu level %s: this processor has no more than %s",
                             wanted, names[best]);
    }
    if (use == AVX2) duet__avx2_fill(kernels);
    if (use == AVX512) duet__avx512_fill(kernels);
    *level = names[use];
    return DUET_OK;
}
