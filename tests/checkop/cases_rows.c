/* cases_rows.c - ops that work row by row or value by value: norms, modulation, gates, rope, activations, copies. */
#include "checkop/checkop.h"

#define ROWS_AND_CUT(op, body)                                                                               \
    static int64_t op##_rows(const void *args) {                                                             \
        return ((const duet_##op##_args *)args)->rows;                                                       \
    }                                                                                                        \
    static void op##_cut(void *args, int64_t first, int64_t n) {                                             \
        duet_##op##_args *a = args;                                                                          \
        a->rows = n;                                                                                         \
        body                                                                                                 \
    }

typedef struct row_shape {
    int64_t rows, cols;
} row_shape;

static const row_shape corners[] = {{1, 1},  {1, 15},  {1, 17},   {3, 16},
                                    {2, 33}, {5, 128}, {1, 5000}, {70, 63}};
enum { N_CORNERS = sizeof corners / sizeof *corners };

static row_shape pick_shape(checkop_case *c) {
    row_shape s = {checkop_pick(c, 1, 40), checkop_pick(c, 1, 600)};
    return c->index < N_CORNERS ? corners[c->index] : s;
}

static int64_t pick_stride(checkop_case *c, int64_t cols) {
    return cols + (checkop_pick(c, 0, 1) ? checkop_pick(c, 0, 9) : 0);
}

static void bandwidth(checkop_case *c, int64_t values_moved) {
    c->bytes = 4.0 * (double)values_moved;
}

/* ---- norms */

/* Every third case has values so small that eps decides the result: on ordinary ones a wrong eps hides in rounding. */
static void shrink(const checkop_case *c, const float *x, int64_t n) {
    float *values = (float *)(uintptr_t)x;
    for (int64_t i = 0; c->index % 3 == 1 && i < n; i++) values[i] *= 1e-3f;
}

static void rmsnorm_build(checkop_case *c, int64_t rows, int64_t groups, int64_t cols, int64_t gap,
                          bool in_place, bool plain) {
    int64_t group_stride = cols + gap, stride = groups * group_stride + gap, n = (rows - 1) * stride;
    n += (groups - 1) * group_stride + cols;
    duet_rmsnorm_args *a = &c->args.rmsnorm;
    *a = (duet_rmsnorm_args){.rows = rows, .groups = groups, .cols = cols, .x_stride = stride, .eps = 1e-5f};
    a->x_group_stride = a->y_group_stride = group_stride;
    a->y_stride = stride;
    a->y = in_place ? checkop_inout(c, n) : NULL;
    a->x = in_place ? a->y : checkop_in(c, n);
    if (!in_place) a->y = checkop_out(c, n * 4);
    shrink(c, a->x, n);
    if (plain || checkop_pick(c, 0, 3)) a->gain = checkop_weight(c, "gain", DUET_SHAPE(cols), 1.0f, !plain);
    bandwidth(c, 2 * rows * groups * cols);
    checkop_text(c, "rmsnorm rows %lld groups %lld cols %lld gap %lld in place %d gain %d", (long long)rows,
                 (long long)groups, (long long)cols, (long long)gap, in_place, a->gain != NULL);
}

static void rmsnorm_make(checkop_case *c) {
    row_shape s = pick_shape(c);
    int64_t groups = c->index < 4 ? 1 : checkop_pick(c, 1, 7);
    rmsnorm_build(c, s.rows, groups, s.cols, checkop_pick(c, 0, 5), checkop_pick(c, 0, 1), false);
}

static void rmsnorm_bench(checkop_case *c) {
    rmsnorm_build(c, 900, c->index ? 10 : 1, c->index ? 128 : 1024, 0, c->index, true);
}

ROWS_AND_CUT(rmsnorm, a->x += first * a->x_stride; a->y += first * a->y_stride;)
const checkop_spec checkop_rmsnorm = {.n_corners = N_CORNERS,
                                      .n_bench = 2,
                                      .make = rmsnorm_make,
                                      .bench = rmsnorm_bench,
                                      .naive = naive_rmsnorm,
                                      .rows = rmsnorm_rows,
                                      .cut = rmsnorm_cut};

static void layernorm_make(checkop_case *c) {
    row_shape s = pick_shape(c);
    bool in_place = checkop_pick(c, 0, 1);
    int64_t stride = pick_stride(c, s.cols), n = (s.rows - 1) * stride + s.cols;
    duet_layernorm_args *a = &c->args.layernorm;
    *a = (duet_layernorm_args){
        .rows = s.rows, .cols = s.cols, .x_stride = stride, .y_stride = stride, .eps = 1e-5f};
    a->y = in_place ? checkop_inout(c, n) : NULL;
    a->x = in_place ? a->y : checkop_in(c, n);
    if (!in_place) a->y = checkop_out(c, n * 4);
    shrink(c, a->x, n);
    a->gain = checkop_weight(c, "gain", DUET_SHAPE(s.cols), 1.0f, true);
    a->bias = checkop_weight(c, "bias", DUET_SHAPE(s.cols), 1.0f, true);
    bandwidth(c, 2 * s.rows * s.cols);
    checkop_text(c, "layernorm rows %lld cols %lld stride %lld in place %d", (long long)s.rows,
                 (long long)s.cols, (long long)stride, in_place);
}

ROWS_AND_CUT(layernorm, a->x += first * a->x_stride; a->y += first * a->y_stride;)
const checkop_spec checkop_layernorm = {.n_corners = N_CORNERS,
                                        .make = layernorm_make,
                                        .naive = naive_layernorm,
                                        .rows = layernorm_rows,
                                        .cut = layernorm_cut};

/* ---- modulation and gates */

static void modulate_build(checkop_case *c, row_shape s, int64_t stride, int64_t table_rows) {
    int64_t table_stride = 2 * s.cols + 3, n = (s.rows - 1) * stride + s.cols;
    duet_modulate_args *a = &c->args.modulate;
    *a = (duet_modulate_args){.rows = s.rows, .cols = s.cols, .x_stride = stride, .y_stride = stride};
    bool in_place = checkop_pick(c, 0, 1);
    a->y = in_place ? checkop_inout(c, n) : NULL;
    a->x = in_place ? a->y : checkop_in(c, n);
    if (!in_place) a->y = checkop_out(c, n * 4);
    a->shift = checkop_in(c, table_rows * table_stride);
    a->scale = a->shift + s.cols + 1;
    a->index = checkop_ids(c, s.rows, table_rows);
    a->table_stride = table_stride;
    bandwidth(c, 2 * s.rows * s.cols);
    checkop_text(c, "modulate rows %lld cols %lld stride %lld table %lld in place %d", (long long)s.rows,
                 (long long)s.cols, (long long)stride, (long long)table_rows, in_place);
}

static void modulate_make(checkop_case *c) {
    row_shape s = pick_shape(c);
    modulate_build(c, s, pick_stride(c, s.cols), checkop_pick(c, 1, 6));
}

static void modulate_bench(checkop_case *c) {
    modulate_build(c, (row_shape){900, 1024}, 1024, 3);
}

ROWS_AND_CUT(modulate, a->x += first * a->x_stride; a->y += first * a->y_stride; a->index += first;)
const checkop_spec checkop_modulate = {.n_corners = N_CORNERS,
                                       .n_bench = 1,
                                       .make = modulate_make,
                                       .bench = modulate_bench,
                                       .rows = modulate_rows,
                                       .cut = modulate_cut};

static void gated_add_build(checkop_case *c, row_shape s, int64_t stride, int64_t kind) {
    int64_t n = (s.rows - 1) * stride + s.cols, table_stride = s.cols + 7;
    duet_gated_add_args *a = &c->args.gated_add;
    *a = (duet_gated_add_args){.rows = s.rows, .cols = s.cols, .h_stride = stride, .x_stride = stride};
    a->x = checkop_in(c, n);
    a->h = checkop_inout(c, n);
    if (kind == 0) {
        a->gate = checkop_in(c, 4 * table_stride);
        a->index = checkop_ids(c, s.rows, 4);
        a->table_stride = table_stride;
    }
    if (kind == 1) a->channel_gate = checkop_weight(c, "gate", DUET_SHAPE(s.cols), 1.0f, true);
    bandwidth(c, 3 * s.rows * s.cols);
    checkop_text(c, "gated_add rows %lld cols %lld stride %lld gate %s", (long long)s.rows, (long long)s.cols,
                 (long long)stride,
                 kind == 0   ? "table"
                 : kind == 1 ? "channel"
                             : "none");
}

static void gated_add_make(checkop_case *c) {
    row_shape s = pick_shape(c);
    gated_add_build(c, s, pick_stride(c, s.cols), checkop_pick(c, 0, 2));
}

static void gated_add_bench(checkop_case *c) {
    gated_add_build(c, (row_shape){900, 1024}, 1024, c->index);
}

ROWS_AND_CUT(gated_add, a->x += first * a->x_stride; a->h += first * a->h_stride;
             if (a->index) a->index += first;)
const checkop_spec checkop_gated_add = {.n_corners = N_CORNERS,
                                        .n_bench = 3,
                                        .make = gated_add_make,
                                        .bench = gated_add_bench,
                                        .rows = gated_add_rows,
                                        .cut = gated_add_cut};

/* ---- rope */

static void rope_build(checkop_case *c, int64_t rows, int64_t heads, int64_t pairs, int64_t head_dim) {
    int64_t stride = heads * head_dim + checkop_pick(c, 0, 3);
    duet_rope_args *a = &c->args.rope;
    *a = (duet_rope_args){
        .rows = rows, .heads = heads, .pairs = pairs, .x_stride = stride, .head_stride = head_dim};
    a->x = checkop_inout(c, (rows - 1) * stride + heads * head_dim);
    a->cos = checkop_in(c, rows * pairs);
    a->sin = checkop_in(c, rows * pairs);
    bandwidth(c, 4 * rows * heads * pairs);
    checkop_text(c, "rope rows %lld heads %lld pairs %lld head_dim %lld", (long long)rows, (long long)heads,
                 (long long)pairs, (long long)head_dim);
}

static void rope_make(checkop_case *c) {
    int64_t pairs = c->index == 0 ? 1 : checkop_pick(c, 1, 70);
    int64_t rest = checkop_pick(c, 0, 1) ? checkop_pick(c, 1, 40) : 0;
    rope_build(c, c->index == 0 ? 1 : checkop_pick(c, 1, 30), checkop_pick(c, 1, 5), pairs, 2 * pairs + rest);
}

static void rope_bench(checkop_case *c) {
    rope_build(c, 900, 10, 48, 128);
}

ROWS_AND_CUT(rope, a->x += first * a->x_stride; a->cos += first * a->pairs; a->sin += first * a->pairs;)
const checkop_spec checkop_rope = {
    .n_corners = 1, .n_bench = 1, .make = rope_make, .bench = rope_bench, .rows = rope_rows, .cut = rope_cut};

/* ---- activations */

/* Values where exp over- and underflows, and the exact zeros. */
static void extremes(float *x, int64_t n) {
    static const float values[] = {0.0f,  -0.0f,  88.0f,  -88.0f,  104.0f, -104.0f,
                                   1e30f, -1e30f, 1e-38f, -1e-30f, 17.0f};
    for (int64_t i = 0; i < n && i < (int64_t)(sizeof values / sizeof *values); i++) x[i] = values[i];
}

static void silu_build(checkop_case *c, int64_t n, bool in_place) {
    duet_silu_args *a = &c->args.silu;
    a->n = n;
    float *x = in_place ? checkop_inout(c, n) : checkop_in(c, n);
    a->x = x;
    a->y = in_place ? x : checkop_out(c, n * 4);
    if (c->index == 2) extremes(x, n);
    bandwidth(c, 2 * n);
    checkop_text(c, "silu n %lld in place %d", (long long)n, in_place);
}

static void silu_make(checkop_case *c) {
    static const int64_t sizes[] = {1, 16, 31, 4099};
    silu_build(c, c->index < 4 ? sizes[c->index] : checkop_pick(c, 1, 3000), checkop_pick(c, 0, 1));
}

static void silu_bench(checkop_case *c) {
    silu_build(c, 900 * 1024, false);
}

const checkop_spec checkop_silu = {
    .n_corners = 4, .n_bench = 1, .make = silu_make, .bench = silu_bench, .naive = naive_silu};

static void silu_mul_build(checkop_case *c, row_shape s, int64_t stride, bool in_place) {
    int64_t n = (s.rows - 1) * stride + s.cols;
    duet_silu_mul_args *a = &c->args.silu_mul;
    *a = (duet_silu_mul_args){
        .rows = s.rows, .cols = s.cols, .gate_stride = stride, .up_stride = stride, .y_stride = stride};
    float *gate = in_place ? checkop_inout(c, n) : checkop_in(c, n);
    a->gate = gate;
    a->up = checkop_in(c, n);
    a->y = in_place ? gate : checkop_out(c, n * 4);
    if (c->index == 2) extremes(gate, s.cols);
    bandwidth(c, 3 * s.rows * s.cols);
    checkop_text(c, "silu_mul rows %lld cols %lld stride %lld in place %d", (long long)s.rows,
                 (long long)s.cols, (long long)stride, in_place);
}

static void silu_mul_make(checkop_case *c) {
    row_shape s = pick_shape(c);
    silu_mul_build(c, s, pick_stride(c, s.cols), checkop_pick(c, 0, 1));
}

static void silu_mul_bench(checkop_case *c) {
    silu_mul_build(c, (row_shape){900, 2816}, 2816, false);
}

ROWS_AND_CUT(silu_mul, a->gate += first * a->gate_stride; a->up += first * a->up_stride;
             a->y += first * a->y_stride;)
const checkop_spec checkop_silu_mul = {.n_corners = N_CORNERS,
                                       .n_bench = 1,
                                       .make = silu_mul_make,
                                       .bench = silu_mul_bench,
                                       .naive = naive_silu_mul,
                                       .rows = silu_mul_rows,
                                       .cut = silu_mul_cut};

/* ---- copies and small things */

static void copy_rows_make(checkop_case *c) {
    row_shape s = pick_shape(c);
    int64_t xs = pick_stride(c, s.cols), ys = pick_stride(c, s.cols);
    c->args.copy_rows = (duet_copy_rows_args){.x = checkop_in(c, (s.rows - 1) * xs + s.cols),
                                              .y = checkop_out(c, ((s.rows - 1) * ys + s.cols) * 4),
                                              .rows = s.rows,
                                              .cols = s.cols,
                                              .x_stride = xs,
                                              .y_stride = ys};
    checkop_text(c, "copy_rows rows %lld cols %lld strides %lld %lld", (long long)s.rows, (long long)s.cols,
                 (long long)xs, (long long)ys);
}

ROWS_AND_CUT(copy_rows, a->x += first * a->x_stride; a->y += first * a->y_stride;)
const checkop_spec checkop_copy_rows = {
    .n_corners = N_CORNERS, .make = copy_rows_make, .rows = copy_rows_rows, .cut = copy_rows_cut};

static void euler_make(checkop_case *c) {
    int64_t n = c->index == 0 ? 1 : checkop_pick(c, 1, 2000);
    float ratio = c->index == 1 ? 0.0f : fabsf(checkop_normal(c)), st = fabsf(checkop_normal(c));
    c->args.euler = (duet_euler_args){
        .x = checkop_inout(c, n), .velocity = checkop_in(c, n), .n = n, .st = st, .ratio = ratio};
    checkop_text(c, "euler n %lld st %g ratio %g", (long long)n, (double)st, (double)ratio);
}

const checkop_spec checkop_euler = {.n_corners = 2, .make = euler_make};

static void stats_make(checkop_case *c) {
    row_shape s = pick_shape(c);
    int64_t stride = pick_stride(c, s.cols);
    float *x = checkop_in(c, (s.rows - 1) * stride + s.cols);
    for (int64_t i = 0; c->index == 2 && i < s.cols; i++) x[i] = NAN; /* a whole row */
    c->args.stats = (duet_stats_args){
        .x = x, .result = checkop_out(c, 12), .rows = s.rows, .cols = s.cols, .x_stride = stride};
    bandwidth(c, s.rows * s.cols);
    checkop_text(c, "stats rows %lld cols %lld stride %lld", (long long)s.rows, (long long)s.cols,
                 (long long)stride);
}

const checkop_spec checkop_stats = {.n_corners = N_CORNERS, .make = stats_make};

static void axpby_make(checkop_case *c) {
    int64_t n = c->index == 0 ? 1 : checkop_pick(c, 1, 3000);
    float b = c->index % 3 == 1 ? 0.0f : checkop_normal(c);
    duet_axpby_args *a = &c->args.axpby;
    *a = (duet_axpby_args){.n = n, .a = checkop_normal(c), .b = b};
    a->x = checkop_in(c, n);
    a->y = b == 0.0f ? checkop_out(c, n * 4) : checkop_inout(c, n); /* b = 0 must not read the old y */
    checkop_text(c, "axpby n %lld a %g b %g", (long long)n, (double)a->a, (double)b);
}

const checkop_spec checkop_axpby = {.n_corners = 2, .make = axpby_make};

static void clamp_make(checkop_case *c) {
    int64_t n = c->index == 0 ? 1 : checkop_pick(c, 1, 3000);
    c->args.clamp = (duet_clamp_args){.x = checkop_inout(c, n), .n = n, .lo = -0.5f, .hi = 1.0f};
    checkop_text(c, "clamp n %lld", (long long)n);
}

const checkop_spec checkop_clamp = {.n_corners = 1, .make = clamp_make};
