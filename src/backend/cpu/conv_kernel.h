/* conv_kernel.h - one-dimensional convolution and its transpose as register tiles, without an im2col matrix.
 *
 *     a tile: up to MR output channels x NR neighbouring times; the reduction walks input channels, then taps; a tap
 *     reads the signal shifted, so b's vectors are plain unaligned loads:
 *
 *         conv1d      y[o, t]          = sum_i sum_k w[o,i,k]   * x[i, t + k*dilation - pad]
 *         transposed  y[o, m*r + p']   = sum_i sum_j w[i,o,k_p + j*r] * x[i, m - j]      one sum per phase p
 *
 * A task is a range of times of one batch item (and a group of output channels where there are few ranges). Where its
 * window leaves the signal, or taps are strided, the task first lays the window out in its own room, with zeros. */
#ifndef DUET_CPU_CONV_KERNEL_H
#define DUET_CPU_CONV_KERNEL_H

#include "backend/cpu/tile_kernel.h"

enum { CONV_TASKS = 8, WINDOW_FLOATS = 131072 };

/* Output channels in panels of even size <= MR: 16 channels are 8 + 8, not 14 + 2. */
typedef struct channel_panels {
    int64_t channels, n, size;
} channel_panels;

INLINE channel_panels cut_channels(int64_t channels) {
    int64_t size = ceil_div(channels, ceil_div(channels, MR));
    return (channel_panels){channels, ceil_div(channels, size), size};
}

/* Times per task: the window of all input channels should stay in the L2 cache. */
INLINE int64_t times_per_task(int64_t channels_in) {
    return max_i64(2 * NR, min_i64(1024, WINDOW_FLOATS / channels_in / NR * NR));
}

typedef struct conv_plan {
    const void *args;
    channel_panels panels;
    float *w;          /* packed: [panel][reduction][panel size] */
    const float *bias; /* widened, or NULL */
    char *rooms;
    size_t room_bytes;
    int64_t times, ranges; /* per task; per batch item */
    int64_t groups, group_panels;
} conv_plan;

/* Few ranges: several tasks share one, each with its own channels. */
INLINE void group_panels(conv_plan *p, int64_t batch) {
    p->group_panels = ceil_div(p->panels.n, min_i64(p->panels.n, ceil_div(CONV_TASKS, batch * p->ranges)));
    p->groups = ceil_div(p->panels.n, p->group_panels);
}

INLINE int64_t panel_channels(const channel_panels *c, int64_t panel) {
    return min_i64(c->size, c->channels - panel * c->size);
}

/* ---- conv1d */

/* Bytes of a thread's window: [channels_in][taps or 1][times + span], rows rounded up to whole tiles. */
static int64_t window_row(const duet_conv1d_args *a, int64_t times) {
    return ceil_div(times, NR) * NR + (a->stride == 1 ? (a->kernel - 1) * a->dilation : 0);
}

static size_t window_bytes(const duet_conv1d_args *a) {
    int64_t times = min_i64(times_per_task(a->channels_in), ceil_div(a->length_out, NR) * NR);
    return round64(a->channels_in * (a->stride == 1 ? 1 : a->kernel) * window_row(a, times) * 4);
}

static size_t conv_w_bytes(const duet_conv1d_args *a) {
    channel_panels c = cut_channels(a->channels_out);
    return round64(c.n * c.size * a->channels_in * a->kernel * 4);
}

static size_t conv1d_scratch(const duet_conv1d_args *a, int n_threads) {
    return conv_w_bytes(a) + round64(a->channels_out * 4) + window_bytes(a) * (size_t)n_threads;
}

static void pack_conv_w(void *arg, int64_t panel, int thread) {
    (void)thread;
    const conv_plan *p = arg;
    const duet_conv1d_args *a = p->args;
    const void *rows[VL] = {NULL};
    int64_t taps = a->channels_in * a->kernel;
    for (int64_t i = 0; i < panel_channels(&p->panels, panel); i++)
        rows[i] = duet_weight_row(a->w, panel * p->panels.size + i);
    pack_rows(p->w + panel * p->panels.size * taps, p->panels.size, a->w->dtype, rows, taps);
}

/* x[at], x[at + step], ... n values, zeros outside the signal. */
static void copy_clipped(float *dst, const float *x, int64_t length, int64_t at, int64_t step, int64_t n) {
    int64_t lead = min_i64(n, at < 0 ? ceil_div(-at, step) : 0);
    int64_t inside = at >= length ? 0 : max_i64(0, min_i64(n, ceil_div(length - at, step)) - lead);
    memset(dst, 0, (size_t)lead * 4);
    if (step == 1)
        memcpy(dst + lead, x + at + lead, (size_t)inside * 4);
    else
        for (int64_t i = 0; i < inside; i++) dst[lead + i] = x[at + (lead + i) * step];
    memset(dst + lead + inside, 0, (size_t)(n - lead - inside) * 4);
}

/* Where a task reads its signal: channel i, tap k, time t of the task at base[i*channel + k*tap + t]. */
typedef struct signal_view {
    const float *base;
    int64_t channel, tap;
} signal_view;

static signal_view view_signal(const duet_conv1d_args *a, const float *x, int64_t first, int64_t times,
                               float *room) {
    int64_t at = first * a->stride - a->pad, row = window_row(a, times);
    if (a->stride == 1 && at >= 0 && at + row <= a->length_in)
        return (signal_view){x + at, a->length_in, a->dilation};
    int64_t taps = a->stride == 1 ? 1 : a->kernel;
    for (int64_t i = 0; i < a->channels_in; i++)
        for (int64_t k = 0; k < taps; k++)
            copy_clipped(room + (i * taps + k) * row, x + i * a->length_in, a->length_in,
                         at + k * a->dilation, a->stride, row);
    return (signal_view){room, taps * row, a->stride == 1 ? a->dilation : row};
}

static void conv_task(void *arg, int64_t task, int thread) {
    const conv_plan *p = arg;
    const duet_conv1d_args *a = p->args;
    int64_t group = task % p->groups, range = task / p->groups % p->ranges, b = task / p->groups / p->ranges;
    int64_t first = range * p->times, times = min_i64(p->times, a->length_out - first);
    const float *x = a->x + b * a->channels_in * a->length_in;
    float *room = (float *)(p->rooms + p->room_bytes * (size_t)thread);
    signal_view s = view_signal(a, x, first, times, room);
    int64_t end = min_i64((group + 1) * p->group_panels, p->panels.n);
    for (int64_t panel = group * p->group_panels; panel < end; panel++) {
        int64_t o = panel * p->panels.size, y = (b * a->channels_out + o) * a->length_out + first;
        for (int64_t t = 0; t < times; t += NR) {
            tile_args tile = {.a = p->w + o * a->channels_in * a->kernel,
                              .a_step = p->panels.size,
                              .b = s.base + t,
                              .n_outer = a->channels_in,
                              .n_inner = a->kernel,
                              .b_outer = s.channel,
                              .b_inner = s.tap,
                              .y = a->y + y + t,
                              .y_stride = a->length_out,
                              .cols = min_i64(NR, times - t),
                              .row_bias = p->bias ? p->bias + o : NULL,
                              .add = a->residual ? a->residual + y + t : NULL};
            tile_packed(panel_channels(&p->panels, panel), &tile);
        }
    }
}

static void conv1d_run(const duet_kernel_ctx *ctx, const duet_conv1d_args *a) {
    char *bias = (char *)ctx->scratch + conv_w_bytes(a);
    conv_plan p = {.args = a,
                   .panels = cut_channels(a->channels_out),
                   .w = ctx->scratch,
                   .rooms = bias + round64(a->channels_out * 4),
                   .room_bytes = window_bytes(a),
                   .times = times_per_task(a->channels_in)};
    if (duet__has(a->bias)) p.bias = vector_weight(a->bias, a->channels_out, (float *)bias);
    p.ranges = ceil_div(a->length_out, p.times);
    group_panels(&p, a->batch);
    duet_pool_run(ctx->pool, p.panels.n, pack_conv_w, &p);
    duet_pool_run(ctx->pool, a->batch * p.ranges * p.groups, conv_task, &p);
}

/* ---- transposed */

/* Taps of a phase: k = phase, phase + stride, ... */
INLINE int64_t phase_taps(const duet_conv1d_up_args *a, int64_t phase) {
    return phase < a->kernel ? ceil_div(a->kernel - phase, a->stride) : 0;
}

/* Positions m of the grid that t = m*stride + phase - pad runs over: up to length_in + pad/stride + 1. */
INLINE int64_t up_positions(const duet_conv1d_up_args *a) {
    return a->length_in + ceil_div(a->pad, a->stride);
}

static int64_t up_window_row(const duet_conv1d_up_args *a, int64_t times) {
    return ceil_div(times, NR) * NR + phase_taps(a, 0) - 1;
}

static size_t up_window_bytes(const duet_conv1d_up_args *a) {
    int64_t times = min_i64(times_per_task(a->channels_in), ceil_div(up_positions(a), NR) * NR);
    return round64(a->channels_in * up_window_row(a, times) * 4) + round64(MR * NR * 4);
}

static size_t up_w_bytes(const duet_conv1d_up_args *a) {
    channel_panels c = cut_channels(a->channels_out);
    return round64(c.n * c.size * a->channels_in * a->kernel * 4);
}

static size_t up_row_bytes(const duet_conv1d_up_args *a) {
    return round64(a->channels_out * a->kernel * 4);
}

static size_t conv1d_up_scratch(const duet_conv1d_up_args *a, int n_threads) {
    size_t room = up_window_bytes(a) > up_row_bytes(a) ? up_window_bytes(a) : up_row_bytes(a);
    return up_w_bytes(a) + round64(a->channels_out * 4) + room * (size_t)n_threads;
}

/* Packed weights: [panel][channel_in][tap][panel size]; a task is one input channel. */
static void pack_up_w(void *arg, int64_t i, int thread) {
    const conv_plan *p = arg;
    const duet_conv1d_up_args *a = p->args;
    const float *row = duet_weight_row(a->w, i);
    if (a->w->dtype != DUET_F32) {
        float *room = (float *)(p->rooms + p->room_bytes * (size_t)thread);
        duet_widen_to_f32(a->w->dtype, row, a->channels_out * a->kernel, room);
        row = room;
    }
    for (int64_t panel = 0; panel < p->panels.n; panel++) {
        const void *lanes[VL] = {NULL};
        for (int64_t o = 0; o < panel_channels(&p->panels, panel); o++)
            lanes[o] = row + (panel * p->panels.size + o) * a->kernel;
        pack_rows(p->w + (panel * a->channels_in + i) * a->kernel * p->panels.size, p->panels.size, DUET_F32,
                  lanes, a->kernel);
    }
}

/* One tile of one phase: computed aside, then spread over every stride-th output from t0 on. */
static void up_tile(const conv_plan *p, tile_args *tile, int64_t mr, float *y, int64_t t0, int64_t n) {
    const duet_conv1d_up_args *a = p->args;
    int64_t first = t0 < 0 ? ceil_div(-t0, a->stride) : 0;
    int64_t end = t0 >= a->length_out ? 0 : min_i64(n, ceil_div(a->length_out - t0, a->stride));
    tile->cols = n;
    tile_packed(mr, tile);
    for (int64_t r = 0; r < mr; r++) {
        float *to = y + r * a->length_out + t0;
        const float *from = tile->y + r * NR;
        for (int64_t m = first; m < end; m++) to[m * a->stride] = from[m];
    }
}

static void up_panel(const conv_plan *p, int64_t panel, const float *window, int64_t row, float *aside,
                     float *y, int64_t first, int64_t times) {
    const duet_conv1d_up_args *a = p->args;
    int64_t o = panel * p->panels.size, lead = phase_taps(a, 0) - 1;
    const float *w = p->w + o * a->channels_in * a->kernel;
    int64_t size = p->panels.size;
    for (int64_t phase = 0; phase < a->stride; phase++) {
        int64_t taps = phase_taps(a, phase);
        for (int64_t m = 0; m < times; m += NR) {
            tile_args tile = {.a = w + phase * size,
                              .a_step = a->stride * size,
                              .a_skip = (a->kernel - taps * a->stride) * size,
                              .b = window + lead + m,
                              .n_outer = a->channels_in,
                              .n_inner = taps,
                              .b_outer = row,
                              .b_inner = -1,
                              .y = aside,
                              .y_stride = NR,
                              .row_bias = p->bias ? p->bias + o : NULL};
            up_tile(p, &tile, panel_channels(&p->panels, panel), y + o * a->length_out,
                    (first + m) * a->stride + phase - a->pad, min_i64(NR, times - m));
        }
    }
}

static void up_task(void *arg, int64_t task, int thread) {
    const conv_plan *p = arg;
    const duet_conv1d_up_args *a = p->args;
    int64_t group = task % p->groups, range = task / p->groups % p->ranges, b = task / p->groups / p->ranges;
    int64_t first = range * p->times, times = min_i64(p->times, up_positions(a) - first);
    float *aside = (float *)(p->rooms + p->room_bytes * (size_t)thread), *window = aside + MR * NR;
    int64_t row = up_window_row(a, times), lead = phase_taps(a, 0) - 1;
    for (int64_t i = 0; i < a->channels_in; i++)
        copy_clipped(window + i * row, a->x + (b * a->channels_in + i) * a->length_in, a->length_in,
                     first - lead, 1, row);
    int64_t end = min_i64((group + 1) * p->group_panels, p->panels.n);
    for (int64_t panel = group * p->group_panels; panel < end; panel++)
        up_panel(p, panel, window, row, aside, a->y + b * a->channels_out * a->length_out, first, times);
}

static void conv1d_up_run(const duet_kernel_ctx *ctx, const duet_conv1d_up_args *a) {
    char *bias = (char *)ctx->scratch + up_w_bytes(a);
    conv_plan p = {.args = a,
                   .panels = cut_channels(a->channels_out),
                   .w = ctx->scratch,
                   .rooms = bias + round64(a->channels_out * 4),
                   .room_bytes = up_window_bytes(a) > up_row_bytes(a) ? up_window_bytes(a) : up_row_bytes(a),
                   .times = times_per_task(a->channels_in)};
    if (duet__has(a->bias)) p.bias = vector_weight(a->bias, a->channels_out, (float *)bias);
    p.ranges = ceil_div(up_positions(a), p.times);
    group_panels(&p, a->batch);
    duet_pool_run(ctx->pool, a->channels_in, pack_up_w, &p);
    duet_pool_run(ctx->pool, a->batch * p.ranges * p.groups, up_task, &p);
}

#endif
