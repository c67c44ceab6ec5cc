/* text_rope.c - see text_rope.h. */
#include "nn/text_rope.h"

#include <math.h>

int duet_text_rope_axis(const duet_text_config *config, int64_t pair) {
    for (int axis = 1; axis < DUET_TEXT_AXES; axis++)
        if (pair % DUET_TEXT_AXES == axis && pair < (int64_t)DUET_TEXT_AXES * config->mrope_section[axis])
            return axis;
    return 0;
}

void duet_text_positions(int64_t rows, int32_t *coordinates) {
    for (int64_t r = 0; r < rows; r++)
        for (int axis = 0; axis < DUET_TEXT_AXES; axis++) coordinates[r * DUET_TEXT_AXES + axis] = (int32_t)r;
}

/* 1 / theta^(2 pair / head_dim): exponent, power and reciprocal in fp32. */
static float inverse_frequency(const duet_text_config *config, int64_t pair) {
    float exponent = (float)(2 * pair) / (float)config->head_dim;
    return 1.0f / (float)pow(config->rope_theta, (double)exponent);
}

void duet_text_rope_tables(const duet_text_config *config, const int32_t *coordinates, int64_t rows,
                           float *cos_table, float *sin_table) {
    int64_t pairs = config->head_dim / 2;
    for (int64_t pair = 0; pair < pairs; pair++) {
        float frequency = inverse_frequency(config, pair);
        int axis = duet_text_rope_axis(config, pair);
        for (int64_t r = 0; r < rows; r++) {
            float angle = (float)coordinates[r * DUET_TEXT_AXES + axis] * frequency;
            cos_table[r * pairs + pair] = (float)cos((double)angle);
            sin_table[r * pairs + pair] = (float)sin((double)angle);
        }
    }
}
