/* synth_values.c - the value of element i of a tensor, from integers alone.
 *
 *     key = hash(seed, scope, name);  r = mix(key + i * odd constant);  N = sum of r's four 16-bit words, centred
 *
 * N has unit variance after scaling and never leaves +-3.5, so no random checkpoint holds an outlier. The integer sum
 * is exact in fp32 and is scaled by one product and moved by one addition: the same bits on every IEEE machine
 * (contraction is off everywhere). */
#include <math.h>
#include <string.h>

#include "store/synth_int.h"

uint64_t duet__mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t duet__hash64(uint64_t seed, const char *text) {
    uint64_t h = duet__mix64(seed + 0x9e3779b97f4a7c15u);
    for (; *text; text++) h = duet__mix64(h ^ (uint8_t)*text) + 0x9e3779b97f4a7c15u;
    return h;
}

static float normal(uint64_t key, int64_t i, float scale) {
    uint64_t r = duet__mix64(key + (uint64_t)i * 0x9e3779b97f4a7c15u);
    int32_t sum = (int32_t)((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48)) - 2 * 65535;
    return (float)sum * scale;
}

/* Standard deviation of the sum: sqrt(4 * (65536^2 - 1) / 12). */
static double sum_sigma(void) {
    return sqrt(4294967295.0 / 3.0);
}

static int64_t row_elems(const duet__spec *spec) {
    int64_t n = 1;
    for (int i = 1; i < spec->shape.rank; i++) n *= spec->shape.dim[i];
    return n;
}

static float weight_scale(const duet__spec *spec) {
    return (float)(spec->gain / sqrt((double)row_elems(spec)) / sum_sigma());
}

duet__values duet__values_of(uint64_t seed, const char *scope, const duet__spec *spec, const duet__spec *v) {
    uint64_t base = duet__hash64(seed, scope);
    duet__values out = {.key = duet__hash64(base, spec->name), .fill = spec->fill};
    out.scale = (float)(spec->gain / sum_sigma());
    if (spec->fill == DUET__FILL_WEIGHT) out.scale = weight_scale(spec);
    if (spec->fill == DUET__FILL_ABOUT_1) out.offset = 1.0f;
    if (spec->fill == DUET__FILL_SCALE) out.offset = 0.5f;
    if (spec->fill == DUET__FILL_INV_FREQ) {
        out.theta = spec->gain;
        out.row_elems = spec->shape.dim[0];
    }
    if (spec->fill == DUET__FILL_WN_GAIN) {
        out.scale = (float)(0.2 / sum_sigma());
        out.offset = spec->gain;
        out.v_key = duet__hash64(base, v->name);
        out.v_scale = weight_scale(v);
        out.row_elems = row_elems(v);
    }
    return out;
}

/* ||v|| * gain * (1 + 0.2 N); v is made again, it is never stored. */
static float norm_gain(const duet__values *t, int64_t row) {
    double sum = 0.0;
    for (int64_t i = 0; i < t->row_elems; i++) {
        double v = normal(t->v_key, row * t->row_elems + i, t->v_scale);
        sum += v * v;
    }
    return (float)(sqrt(sum) * t->offset * (1.0 + (double)normal(t->key, row, t->scale)));
}

void duet__values_make(const duet__values *t, int64_t first, int64_t n, float *out) {
    switch (t->fill) {
    case DUET__FILL_ZERO:
        memset(out, 0, (size_t)n * sizeof *out);
        return;
    case DUET__FILL_FILTER:
        for (int64_t i = 0; i < n; i++) out[i] = duet__alias_filter[(first + i) % 12];
        return;
    case DUET__FILL_INV_FREQ:
        for (int64_t i = 0; i < n; i++) out[i] = duet__inv_freq_at(t->theta, t->row_elems, first + i);
        return;
    case DUET__FILL_WN_GAIN:
        for (int64_t i = 0; i < n; i++) out[i] = norm_gain(t, first + i);
        return;
    default:
        for (int64_t i = 0; i < n; i++) {
            float scaled = normal(t->key, first + i, t->scale);
            out[i] = scaled + t->offset;
        }
    }
}
