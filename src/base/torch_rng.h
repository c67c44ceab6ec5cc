/* torch_rng.h - the normal stream of torch.Generator on a CPU: MT19937 and the AVX2 form of Box-Muller (spec
 * model-dit 10.2). */
#ifndef DUET_BASE_TORCH_RNG_H
#define DUET_BASE_TORCH_RNG_H

#include <stdbool.h>
#include <stdint.h>

typedef struct duet_torch_rng {
    uint32_t state[624];
    int index;
    bool has_spare; /* left over by draws of fewer than 16 values */
    double spare;
} duet_torch_rng;

void duet_torch_rng_seed(duet_torch_rng *rng, uint64_t seed);
void duet_torch_randn(duet_torch_rng *rng, float *out, int64_t n); /* as torch.randn(n) */
uint32_t duet_torch_rng_next_u32(duet_torch_rng *rng);

#endif
