/* levels.h - one entry per vector level. */
#ifndef DUET_CPU_LEVELS_H
#define DUET_CPU_LEVELS_H

#include "backend/device_int.h"

void duet__avx2_fill(duet_kernels *kernels);
void duet__avx512_fill(duet_kernels *kernels);

#endif
