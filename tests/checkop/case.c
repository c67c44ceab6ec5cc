/* case.c - making cases: seeded values, images of buffers, weights in every kind of storage. */
#include "checkop/checkop.h"

#include <stdarg.h>
#include <stdlib.h>

const uint32_t CHECKOP_POISON = 0x7fbadbadu; /* a NaN that no computation makes */

static const checkop_spec *const specs[] = {
#define DUET_OP(name, ptrs, weights) &checkop_##name,
#include "backend/ops.def"
#undef DUET_OP
};

const checkop_spec *checkop_find(duet_op op) {
    return specs[op];
}

uint64_t checkop_seed(void) {
    const char *text = getenv("DUET_CHECKOP_SEED");
    return text ? strtoull(text, NULL, 0) : 1;
}

uint64_t checkop_random(checkop_case *c) {
    uint64_t z = (c->rng += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t checkop_pick(checkop_case *c, int64_t lo, int64_t hi) {
    return lo + (int64_t)(checkop_random(c) % (uint64_t)(hi - lo + 1));
}

/* Sum of uniforms: near enough to normal, and cheap. One value in 200 is an outlier. */
float checkop_normal(checkop_case *c) {
    uint64_t bits = checkop_random(c);
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)((bits >> (16 * i)) & 0xffffu) / 65536.0f;
    float value = (sum - 2.0f) * 1.7320508f;
    return checkop_random(c) % 200 ? value : 8.0f * value;
}

static checkop_buffer *add_buffer(checkop_case *c, size_t bytes, bool output) {
    checkop_buffer *b = &c->buffer[c->n_buffers++];
    *b = (checkop_buffer){.image = malloc(bytes ? bytes : 1), .bytes = bytes, .output = output};
    return b;
}

static float *values(checkop_case *c, int64_t n, bool output) {
    float *x = (float *)add_buffer(c, (size_t)n * sizeof *x, output)->image;
    for (int64_t i = 0; i < n; i++) x[i] = checkop_normal(c);
    if (c->nonfinite && c->n_buffers == 1 && n > 0) {
        x[checkop_pick(c, 0, n - 1)] = INFINITY;
        x[checkop_pick(c, 0, n - 1)] = -INFINITY;
        x[checkop_pick(c, 0, n - 1)] = NAN;
    }
    return x;
}

float *checkop_in(checkop_case *c, int64_t n) {
    return values(c, n, false);
}

float *checkop_inout(checkop_case *c, int64_t n) {
    return values(c, n, true);
}

static void poison(void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) ((uint8_t *)data)[i] = (uint8_t)(CHECKOP_POISON >> (8 * (i % 4)));
}

void *checkop_out(checkop_case *c, int64_t bytes) {
    checkop_buffer *b = add_buffer(c, (size_t)bytes, true);
    poison(b->image, b->bytes);
    return b->image;
}

int32_t *checkop_ids(checkop_case *c, int64_t n, int64_t end) {
    int32_t *ids = (int32_t *)add_buffer(c, (size_t)n * sizeof *ids, false)->image;
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)checkop_pick(c, 0, end - 1);
    return ids;
}

static void store_value(void *data, duet_dtype dtype, int64_t at, float value) {
    uint16_t half = dtype == DUET_BF16 ? duet_f32_to_bf16(value) : duet_f32_to_f16(value);
    double wide = (double)value;
    size_t bytes = duet_dtype_bytes(dtype);
    const void *from = dtype == DUET_F32   ? (const void *)&value
                       : dtype == DUET_F64 ? (const void *)&wide
                                           : &half;
    memcpy((char *)data + (size_t)at * bytes, from, bytes);
}

/* Cut the rows into pieces whose blocks interleave, as a fused projection stored per head does. */
static void vary_pieces(checkop_case *c, duet_weight *w, const void *data) {
    int64_t rows = duet_weight_rows(w), pieces = checkop_pick(c, 1, 3);
    size_t row_bytes = (size_t)duet_weight_row_elems(w) * duet_dtype_bytes(w->dtype);
    if (rows % pieces != 0) return;
    int64_t each = rows / pieces, block = checkop_pick(c, 1, each);
    while (each % block != 0) block--;
    w->n_pieces = (int)pieces;
    for (int64_t p = 0; p < pieces; p++) {
        int64_t slot = pieces - 1 - p; /* reversed, so that order matters */
        w->piece[p] = (duet_weight_piece){.data = (const char *)data + (size_t)(slot * block) * row_bytes,
                                          .rows = each,
                                          .block_rows = block,
                                          .block_stride_rows = block * pieces};
    }
}

duet_weight *checkop_weight(checkop_case *c, const char *name, duet_shape shape, float scale, bool vary) {
    static const duet_dtype dtypes[] = {DUET_F32, DUET_BF16, DUET_F16, DUET_F32, DUET_F64};
    duet_dtype dtype = vary ? dtypes[checkop_pick(c, 0, 4)] : DUET_F32;
    int64_t n = 0;
    EXPECT(duet_shape_elems(&shape, &n));
    void *data = malloc((size_t)n * duet_dtype_bytes(dtype));
    for (int64_t i = 0; i < n; i++) store_value(data, dtype, i, scale * checkop_normal(c));
    duet_weight *w = &c->weight[c->n_weights];
    *w = duet_weight_view(name, dtype, shape, data);
    if (vary) vary_pieces(c, w, data);
    c->weight_data[c->n_weights++] = data;
    return w;
}

void checkop_text(checkop_case *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->text, sizeof c->text, fmt, ap);
    va_end(ap);
}

void checkop_make(checkop_case *c, duet_op op, int index, uint64_t seed, bool bench) {
    *c = (checkop_case){.index = index, .rng = seed * 1000003u + (uint64_t)index * 7919u + (uint64_t)op};
    c->nonfinite = !bench && index % 8 == 7;
    (bench ? specs[op]->bench : specs[op]->make)(c);
}

void checkop_free(checkop_case *c) {
    for (int i = 0; i < c->n_buffers; i++) free(c->buffer[i].image);
    for (int i = 0; i < c->n_weights; i++) free(c->weight_data[i]);
}
