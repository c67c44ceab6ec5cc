/* sigma.h - schedules: base positions, shifted sigmas, timesteps (spec model-dit 11). Bit-equal to the
 * reference within 1 ulp. */
#ifndef DUET_ENGINE_SIGMA_H
#define DUET_ENGINE_SIGMA_H

#include <stdint.h>

#include "base/status.h"

typedef struct duet_schedule {
    int64_t points;                   /* sigma points; evaluations = points - 1 */
    float *sigma_video, *sigma_audio; /* [points], strictly decreasing, last 0 */
} duet_schedule;

typedef struct duet_schedule_spec {
    int64_t points;     /* linspace when no ladder is given; >= 2 */
    const double *base; /* unshifted ladder [n_base] or NULL */
    int64_t n_base;
    const double *video, *audio; /* final ladders [n_final] or NULL */
    int64_t n_final;
    double video_shift, audio_shift;
} duet_schedule_spec;

duet_status duet_schedule_build(const duet_schedule_spec *spec, duet_schedule *out, duet_error *err);
void duet_schedule_free(duet_schedule *schedule);
void duet_linspace_1_0(int64_t points, float *out); /* fp32, fused form */
void duet_sigma_shift(double shift, const float *u, int64_t n, float *sigma);

#endif
