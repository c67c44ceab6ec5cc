/* cpu.c - choosing the instruction level, once, when a device is opened.
 *
 * `ref` has filled every slot before; each level overwrites what it beats. Levels form a chain (avx512
 * contains avx2), and the chosen one is part of the device kind: other levels may round sums differently, so
 * it can be pinned (promise P1). Other architectures than x86-64 have the scalar level alone. */
#include <string.h>

#include "backend/device_int.h"

static int best_level(void) {
    return 0;
}

duet_status duet__cpu_fill(duet_kernels *kernels, const char *wanted, const char **level, duet_error *err) {
    static const char *const names[] = {"scalar", "avx2", "avx512"};
    int best = best_level(), use = best;
    (void)kernels;
    if (wanted) {
        for (use = 0; use < 3 && strcmp(names[use], wanted) != 0;) use++;
        if (use == 3)
            return duet_fail(err, DUET_E_UNSUPPORTED, "unknown cpu level \"%s\" (scalar, avx2, avx512)",
                             wanted);
        if (use > best)
            return duet_fail(err, DUET_E_UNSUPPORTED, "cpu level %s: this processor has no more than %s",
                             wanted, names[best]);
    }
    *level = names[use];
    return DUET_OK;
}
