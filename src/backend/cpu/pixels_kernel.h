/* pixels_kernel.h - cross-fades and the pixel inverse. Exact ops: the same operations as ref/pixels.c, in the same
 * order, VL at a time. */
#ifndef DUET_CPU_PIXELS_KERNEL_H
#define DUET_CPU_PIXELS_KERNEL_H

#include "backend/cpu/tile_kernel.h"

/* Fade weights of sample k of an extent, as ref forms them. */
INLINE void fade_weights(int64_t k, int64_t extent, float *from_old, float *from_new) {
    double part = (double)k / (double)extent;
    *from_old = (float)(1.0 - part);
    *from_new = (float)part;
}

INLINE vf fade(vf old, vf now, vf from_old, vf from_new) {
    return vf_add(vf_mul(old, from_old), vf_mul(now, from_new));
}

/* Scratch: the two rows of column weights. */
static size_t blend_tile_scratch(const duet_blend_tile_args *a, int n_threads) {
    (void)n_threads;
    return 2 * round64(a->fade_cols * 4);
}

static void blend_tile_plane(void *arg, int64_t plane, int thread) {
    (void)thread;
    const job *work = arg;
    const duet_blend_tile_args *a = work->args;
    const float *col_old = (const float *)work->scratch;
    const float *col_new = (const float *)(work->scratch + round64(a->fade_cols * 4));
    int64_t fading = a->left ? min_i64(a->fade_cols, a->keep_cols) : 0;
    for (int64_t y = 0; y < a->keep_rows; y++) {
        const float *tile = a->tile + (plane * a->tile_h + y) * a->tile_w;
        bool fade_row = a->above && y < a->fade_rows;
        const float *above =
            fade_row ? a->above + (plane * a->above_h + a->above_h - a->fade_rows + y) * a->tile_w : NULL;
        const float *left =
            a->left ? a->left + (plane * a->tile_h + y) * a->left_w + a->left_w - a->fade_cols : NULL;
        float *out = a->canvas + (plane * a->canvas_h + a->at_row + y) * a->canvas_w + a->at_col;
        float row_old = 0, row_new = 0;
        if (fade_row) fade_weights(y, a->fade_rows, &row_old, &row_new);
        for (int64_t x = 0; x < a->keep_cols; x += VL) {
            int64_t n = min_i64(VL, a->keep_cols - x), mixed = min_i64(n, fading - x);
            vf v = load_cols(tile + x, n);
            if (fade_row) v = fade(load_cols(above + x, n), v, vf_set(row_old), vf_set(row_new));
            store_cols(out + x, v, n);
            if (mixed > 0)
                store_cols(out + x,
                           fade(load_cols(left + x, mixed), v, load_cols(col_old + x, mixed),
                                load_cols(col_new + x, mixed)),
                           mixed);
        }
    }
}

static void blend_tile_run(const duet_kernel_ctx *ctx, const duet_blend_tile_args *a) {
    job work = {.args = a, .scratch = ctx->scratch};
    float *col_old = ctx->scratch, *col_new = (float *)((char *)ctx->scratch + round64(a->fade_cols * 4));
    for (int64_t x = 0; a->left && x < a->fade_cols; x++)
        fade_weights(x, a->fade_cols, &col_old[x], &col_new[x]);
    duet_pool_run(ctx->pool, a->planes, blend_tile_plane, &work);
}

static void blend_seam_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const duet_blend_seam_args *a = ((const job *)arg)->args;
    int64_t c = task / a->frames, k = task % a->frames;
    float *head = a->head + c * a->head_channel_stride + k * a->pixels, from_old, from_new;
    const float *tail = a->tail + c * a->tail_channel_stride + k * a->pixels;
    fade_weights(k, a->frames, &from_old, &from_new);
    for (int64_t p = 0; p < a->pixels; p += VL) {
        int64_t n = min_i64(VL, a->pixels - p);
        store_cols(head + p,
                   fade(load_cols(tail + p, n), load_cols(head + p, n), vf_set(from_old), vf_set(from_new)),
                   n);
    }
}

static void blend_seam_run(const duet_kernel_ctx *ctx, const duet_blend_seam_args *a) {
    duet_pool_run(ctx->pool, a->channels * a->frames, blend_seam_task, &(job){.args = a});
}

/* 255 * clamp(x * std + mean, 0, 1) as fp32; a NaN becomes 0, as in ref. */
INLINE vf pixel_level(const float *x, int64_t n, float std, float mean) {
    vf v = vf_add(vf_mul(load_cols(x, n), vf_set(std)), vf_set(mean));
    return vf_mul(vf_min(vf_max(v, vf_zero()), vf_set(1.0f)), vf_set(255.0f));
}

enum { PIXEL_LINE = 8192 };

static void pixels_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const duet_pixels_u8_args *a = ((const job *)arg)->args;
    int64_t first = task * PIXEL_LINE, n = min_i64(PIXEL_LINE, a->frames * a->pixels - first);
    int32_t level[3][VL];
    for (int64_t p = 0; p < n; p += VL) {
        int64_t some = min_i64(VL, n - p);
        for (int c = 0; c < 3; c++) {
            vf v = pixel_level(a->x + c * a->x_channel_stride + first + p, some, a->std[c], a->mean[c]);
            vf_store_i32(level[c], v);
        }
        uint8_t *y = a->y + 3 * (first + p);
        for (int64_t i = 0; i < some; i++)
            for (int c = 0; c < 3; c++) y[3 * i + c] = (uint8_t)level[c][i];
    }
}

static void pixels_run(const duet_kernel_ctx *ctx, const duet_pixels_u8_args *a) {
    duet_pool_run(ctx->pool, ceil_div(a->frames * a->pixels, PIXEL_LINE), pixels_task, &(job){.args = a});
}

#endif
