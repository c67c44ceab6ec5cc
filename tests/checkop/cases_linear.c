/* cases_linear.c - products and table look-ups. */
#include "checkop/checkop.h"

typedef struct linear_shape {
    int64_t rows, cols_in, cols_out;
} linear_shape;

/* One of everything, then the borders of register tiles and cache blocks. */
static const linear_shape corners[] = {{1, 1, 1},     {1, 7, 3},      {2, 64, 33},   {13, 31, 17},
                                       {14, 32, 32},  {15, 33, 31},   {6, 16, 16},   {7, 257, 129},
                                       {29, 256, 64}, {1, 1024, 96},  {3, 513, 47},  {64, 100, 160},
                                       {129, 40, 7},  {33, 1030, 65}, {300, 24, 200}};
static const linear_shape shapes[] = {{900, 1024, 3840}, {900, 1280, 1024},  {900, 1024, 5632},
                                      {900, 2816, 1024}, {1797, 1024, 3072}, {1797, 2048, 2048},
                                      {256, 1024, 1024}, {37, 1024, 1024},   {8, 1024, 6144},
                                      {1, 1024, 1024},   {900, 1024, 96},    {16, 64, 64}};

static void build(checkop_case *c, linear_shape s, bool plain) {
    int64_t extra_rows = plain ? 0 : checkop_pick(c, 0, 5), row0 = plain ? 0 : checkop_pick(c, 0, extra_rows);
    int64_t xs = s.cols_in + (plain ? 0 : checkop_pick(c, 0, 9)),
            ys = s.cols_out + (plain ? 0 : checkop_pick(c, 0, 9));
    float scale = 1.0f / sqrtf((float)s.cols_in);
    int64_t w_rows = s.cols_out + extra_rows;
    duet_linear_args *a = &c->args.linear;
    *a = (duet_linear_args){
        .rows = s.rows, .cols_in = s.cols_in, .cols_out = s.cols_out, .x_stride = xs, .y_stride = ys};
    a->row0 = row0;
    a->x = checkop_in(c, (s.rows - 1) * xs + s.cols_in);
    a->y = checkop_out(c, ((s.rows - 1) * ys + s.cols_out) * 4);
    a->w = checkop_weight(c, "w", DUET_SHAPE(w_rows, s.cols_in), scale, !plain);
    if (!plain && checkop_pick(c, 0, 1)) a->bias = checkop_weight(c, "bias", DUET_SHAPE(w_rows), 1.0f, true);
    c->flops = 2.0 * (double)s.rows * (double)s.cols_in * (double)s.cols_out;
    c->bytes = 4.0 * ((double)(s.rows * (s.cols_in + s.cols_out)) + (double)(s.cols_in * s.cols_out));
    checkop_text(
        c, "linear rows %lld in %lld out %lld strides %lld %lld row0 %lld of %lld dtype %s pieces %d bias %d",
        (long long)s.rows, (long long)s.cols_in, (long long)s.cols_out, (long long)xs, (long long)ys,
        (long long)row0, (long long)w_rows, duet_dtype_name(a->w->dtype), a->w->n_pieces, a->bias != NULL);
}

static void linear_make(checkop_case *c) {
    linear_shape s = {checkop_pick(c, 1, 70), checkop_pick(c, 1, 700), checkop_pick(c, 1, 150)};
    build(c, c->index < (int)(sizeof corners / sizeof *corners) ? corners[c->index] : s, false);
}

static void linear_bench(checkop_case *c) {
    build(c, shapes[c->index], true);
}

static int64_t linear_rows(const void *args) {
    return ((const duet_linear_args *)args)->rows;
}

static void linear_cut(void *args, int64_t first, int64_t rows) {
    duet_linear_args *a = args;
    a->x += first * a->x_stride;
    a->y += first * a->y_stride;
    a->rows = rows;
}

const checkop_spec checkop_linear = {.n_corners = sizeof corners / sizeof *corners,
                                     .n_bench = sizeof shapes / sizeof *shapes,
                                     .make = linear_make,
                                     .bench = linear_bench,
                                     .naive = naive_linear,
                                     .rows = linear_rows,
                                     .cut = linear_cut};

static void embed_make(checkop_case *c) {
    int64_t rows = c->index == 0 ? 1 : checkop_pick(c, 1, 50),
            cols = c->index == 0 ? 1 : checkop_pick(c, 1, 300);
    int64_t vocab = checkop_pick(c, 1, 99);
    c->args.embed =
        (duet_embed_args){.ids = checkop_ids(c, rows, vocab),
                          .y = checkop_out(c, rows * cols * 4),
                          .table = checkop_weight(c, "table", DUET_SHAPE(vocab, cols), 1.0f, true),
                          .rows = rows,
                          .cols = cols};
    checkop_text(c, "embed rows %lld cols %lld vocab %lld dtype %s", (long long)rows, (long long)cols,
                 (long long)vocab, duet_dtype_name(c->args.embed.table->dtype));
}

static int64_t embed_rows(const void *args) {
    return ((const duet_embed_args *)args)->rows;
}

static void embed_cut(void *args, int64_t first, int64_t rows) {
    duet_embed_args *a = args;
    a->ids += first;
    a->y += first * a->cols;
    a->rows = rows;
}

const checkop_spec checkop_embed = {.n_corners = 1, .make = embed_make, .rows = embed_rows, .cut = embed_cut};
