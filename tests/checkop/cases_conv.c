/* cases_conv.c - convolutions of the audio decoder and the alias-free activation. */
#include "checkop/checkop.h"

typedef struct conv_shape {
    int64_t batch, in, out, length, kernel, stride, dilation, pad;
    bool residual;
} conv_shape;

/* The last one ends its second range of times exactly one sample inside the zeros. */
static const conv_shape conv_corners[] = {
    {1, 1, 1, 1, 1, 1, 1, 0, false},    {1, 1, 1, 1, 7, 1, 1, 3, true},
    {2, 3, 5, 33, 3, 1, 1, 1, false},   {1, 8, 1, 100, 7, 1, 1, 3, false},
    {2, 16, 8, 70, 11, 1, 5, 25, true}, {1, 5, 15, 64, 3, 1, 3, 3, false},
    {2, 4, 6, 41, 4, 2, 1, 1, false},   {1, 7, 13, 30, 5, 1, 2, 0, false},
    {1, 70, 29, 300, 7, 1, 3, 9, true}, {2, 2, 33, 520, 9, 3, 2, 4, false},
    {1, 6, 30, 530, 1, 1, 1, 0, false}, {1, 2, 3, 2048, 3, 1, 1, 1, false}};
static const conv_shape conv_shapes[] = {
    {2, 1024, 1024, 37, 7, 1, 1, 3, false}, {2, 512, 512, 185, 7, 1, 3, 9, false},
    {2, 256, 256, 925, 11, 1, 5, 25, true}, {2, 64, 64, 3700, 3, 1, 1, 1, true},
    {2, 16, 16, 14800, 7, 1, 3, 9, false},  {2, 8, 8, 29600, 11, 1, 5, 25, true},
    {2, 8, 1, 29600, 7, 1, 1, 3, false}};

static void conv_build(checkop_case *c, conv_shape s, bool plain) {
    duet_conv1d_args *a = &c->args.conv1d;
    int64_t out_length = (s.length + 2 * s.pad - s.dilation * (s.kernel - 1) - 1) / s.stride + 1;
    *a = (duet_conv1d_args){.batch = s.batch,
                            .channels_in = s.in,
                            .channels_out = s.out,
                            .length_in = s.length,
                            .length_out = out_length,
                            .kernel = s.kernel,
                            .stride = s.stride,
                            .dilation = s.dilation,
                            .pad = s.pad};
    a->x = checkop_in(c, s.batch * s.in * s.length);
    int64_t n = s.batch * s.out * out_length;
    if (s.residual && checkop_pick(c, 0, 1)) {
        a->y = checkop_inout(c, n);
        a->residual = a->y;
    } else {
        if (s.residual) a->residual = checkop_in(c, n);
        a->y = checkop_out(c, n * 4);
    }
    a->w = checkop_weight(c, "w", DUET_SHAPE(s.out, s.in, s.kernel), 1.0f / sqrtf((float)(s.in * s.kernel)),
                          !plain);
    if (plain || checkop_pick(c, 0, 2)) a->bias = checkop_weight(c, "bias", DUET_SHAPE(s.out), 1.0f, !plain);
    c->flops = 2.0 * (double)n * (double)(s.in * s.kernel);
    checkop_text(
        c,
        "conv1d batch %lld in %lld out %lld length %lld kernel %lld stride %lld dilation %lld pad %lld "
        "residual %d in place %d",
        (long long)s.batch, (long long)s.in, (long long)s.out, (long long)s.length, (long long)s.kernel,
        (long long)s.stride, (long long)s.dilation, (long long)s.pad, s.residual, a->residual == a->y);
}

static void conv_make(checkop_case *c) {
    conv_shape s = {.batch = checkop_pick(c, 1, 2),
                    .in = checkop_pick(c, 1, 40),
                    .out = checkop_pick(c, 1, 40),
                    .kernel = checkop_pick(c, 1, 11),
                    .stride = checkop_pick(c, 0, 3) ? 1 : checkop_pick(c, 2, 5),
                    .dilation = checkop_pick(c, 1, 5),
                    .residual = checkop_pick(c, 0, 1)};
    int64_t span = s.dilation * (s.kernel - 1);
    s.pad = checkop_pick(c, 0, 1) ? span / 2 : checkop_pick(c, 0, span);
    s.length = checkop_pick(c, span + 1 > 2 * s.pad ? span + 1 - 2 * s.pad : 1, 400);
    conv_build(c, c->index < (int)(sizeof conv_corners / sizeof *conv_corners) ? conv_corners[c->index] : s,
               false);
}

static void conv_bench(checkop_case *c) {
    conv_build(c, conv_shapes[c->index], true);
}

const checkop_spec checkop_conv1d = {.n_corners = sizeof conv_corners / sizeof *conv_corners,
                                     .n_bench = sizeof conv_shapes / sizeof *conv_shapes,
                                     .make = conv_make,
                                     .bench = conv_bench,
                                     .naive = naive_conv1d};

typedef struct up_shape {
    int64_t batch, in, out, length, kernel, stride, pad;
} up_shape;

static const up_shape up_corners[] = {
    {1, 1, 1, 1, 1, 1, 0},   {1, 1, 1, 1, 4, 2, 1},   {2, 3, 5, 17, 9, 5, 2}, {1, 16, 8, 33, 4, 2, 1},
    {2, 7, 15, 70, 9, 5, 2}, {1, 4, 3, 300, 6, 3, 1}, {1, 2, 2, 5, 2, 2, 0}};
static const up_shape up_shapes[] = {{2, 1024, 512, 37, 9, 5, 2},
                                     {2, 512, 256, 185, 9, 5, 2},
                                     {2, 64, 32, 3700, 4, 2, 1},
                                     {2, 16, 8, 14800, 4, 2, 1}};

static void up_build(checkop_case *c, up_shape s, bool plain) {
    duet_conv1d_up_args *a = &c->args.conv1d_up;
    *a = (duet_conv1d_up_args){.batch = s.batch,
                               .channels_in = s.in,
                               .channels_out = s.out,
                               .length_in = s.length,
                               .length_out = s.length * s.stride,
                               .kernel = s.kernel,
                               .stride = s.stride,
                               .pad = s.pad};
    a->x = checkop_in(c, s.batch * s.in * s.length);
    a->y = checkop_out(c, s.batch * s.out * a->length_out * 4);
    a->w = checkop_weight(c, "w", DUET_SHAPE(s.in, s.out, s.kernel), 1.0f / sqrtf((float)s.in), !plain);
    if (plain || checkop_pick(c, 0, 2)) a->bias = checkop_weight(c, "bias", DUET_SHAPE(s.out), 1.0f, !plain);
    c->flops = 2.0 * (double)(s.batch * s.out * s.in * s.length * s.kernel);
    checkop_text(c, "conv1d_up batch %lld in %lld out %lld length %lld kernel %lld stride %lld pad %lld",
                 (long long)s.batch, (long long)s.in, (long long)s.out, (long long)s.length,
                 (long long)s.kernel, (long long)s.stride, (long long)s.pad);
}

static void up_make(checkop_case *c) {
    up_shape s = {.batch = checkop_pick(c, 1, 2),
                  .in = checkop_pick(c, 1, 30),
                  .out = checkop_pick(c, 1, 30),
                  .length = checkop_pick(c, 1, 150),
                  .stride = checkop_pick(c, 1, 6)};
    s.kernel = s.stride + checkop_pick(c, 0, s.stride);
    s.pad = (s.kernel - s.stride) / 2;
    up_build(c, c->index < (int)(sizeof up_corners / sizeof *up_corners) ? up_corners[c->index] : s, false);
}

static void up_bench(checkop_case *c) {
    up_build(c, up_shapes[c->index], true);
}

const checkop_spec checkop_conv1d_up = {.n_corners = sizeof up_corners / sizeof *up_corners,
                                        .n_bench = sizeof up_shapes / sizeof *up_shapes,
                                        .make = up_make,
                                        .bench = up_bench,
                                        .naive = naive_conv1d_up};

/* ---- snake: the released filter, so that magnitudes are those of real use */

static const float FILTER[6] = {0.00202896645f, 0.00938946394f, -0.0255434641f,
                                -0.0576573755f, 0.128572609f,   0.4432098f};

static duet_weight *filter(checkop_case *c, const char *name, float tilt) {
    duet_weight *w = checkop_weight(c, name, DUET_SHAPE(1, 1, 12), 1.0f, false);
    float *f = c->weight_data[c->n_weights - 1];
    for (int i = 0; i < 12; i++) f[i] = FILTER[i < 6 ? i : 11 - i] * (1.0f + tilt * (float)i);
    return w;
}

static void snake_build(checkop_case *c, int64_t batch, int64_t channels, int64_t length) {
    duet_snake_aa_args *a = &c->args.snake_aa;
    *a = (duet_snake_aa_args){.batch = batch, .channels = channels, .length = length};
    float *x = checkop_in(c, batch * channels * length);
    if (c->index == 4) /* phases far outside the first period */
        for (int64_t i = 0; i < length; i++) x[i] *= 300.0f;
    a->x = x;
    a->y = checkop_out(c, batch * channels * length * 4);
    a->alpha = checkop_weight(c, "alpha", DUET_SHAPE(channels), 0.7f, true);
    a->beta = checkop_weight(c, "beta", DUET_SHAPE(channels), 0.7f, true);
    a->up_filter = filter(c, "up", 0.01f); /* tilted: a mirrored index cannot hide */
    a->down_filter = filter(c, "down", -0.02f);
    c->bytes = 8.0 * (double)(batch * channels * length);
    checkop_text(c, "snake_aa batch %lld channels %lld length %lld", (long long)batch, (long long)channels,
                 (long long)length);
}

static void snake_make(checkop_case *c) {
    static const int64_t lengths[] = {1, 2, 3, 7, 500, 16, 33};
    int64_t length = c->index < 7 ? lengths[c->index] : checkop_pick(c, 1, 2000);
    snake_build(c, checkop_pick(c, 1, 2), checkop_pick(c, 1, 4), length);
}

static void snake_bench(checkop_case *c) {
    snake_build(c, 2, c->index ? 8 : 256, c->index ? 29600 : 925);
}

const checkop_spec checkop_snake_aa = {
    .n_corners = 7, .n_bench = 2, .make = snake_make, .bench = snake_bench, .naive = naive_snake_aa};
