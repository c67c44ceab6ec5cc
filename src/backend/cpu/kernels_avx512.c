/* kernels_avx512.c - the vector kernels at this instruction level; empty on other architectures. */
#include "backend/cpu/levels.h"

#if defined(__x86_64__)

#include "backend/cpu/attention_kernel.h"
#include "backend/cpu/conv_kernel.h"
#include "backend/cpu/linear_kernel.h"
#include "backend/cpu/pixels_kernel.h"
#include "backend/cpu/rows_kernel.h"
#include "backend/cpu/snake_kernel.h"

#include "backend/cpu/kernels_fill.h"

void duet__avx512_fill(duet_kernels *kernels) {
    fill(kernels);
}

#else

void duet__avx512_fill(duet_kernels *kernels) {
    (void)kernels;
}

#endif
