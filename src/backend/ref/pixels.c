/* pixels.c - from patch rows to bytes: unpatch, the two cross-fades, and the pixel inverse. All exact.
 *
 * Fade weights are k/E and 1 - k/E, formed in double and rounded once, as the reference implementation's
 * scalar arguments are. */
#include <math.h>

#include "backend/ref/ref.h"

/* One row of the input: token (t, y, x) holds channels x patch_t x patch_s x patch_s values. */
static void unpatch_token(void *arg, int64_t token, int thread) {
    (void)thread;
    const duet_unpatch_args *a = ((const ref_job *)arg)->args;
    int64_t t = token / (a->h * a->w), y = token / a->w % a->h, x = token % a->w, s = a->patch_s;
    const float *from = a->x + token * a->x_stride;
    for (int64_t c = 0; c < a->channels; c++) {
        for (int64_t dt = 0; dt < a->patch_t; dt++) {
            int64_t frame = t * a->patch_t + dt - a->first_frame;
            if (frame < 0 || frame >= a->frames) continue;
            for (int64_t dy = 0; dy < s; dy++) {
                const float *src = from + ((c * a->patch_t + dt) * s + dy) * s;
                float *dst = a->y + (((c * a->frames + frame) * a->h + y) * s + dy) * a->w * s + x * s;
                memcpy(dst, src, (size_t)s * sizeof(float));
            }
        }
    }
}

void duet__ref_unpatch(const duet_kernel_ctx *ctx, const duet_unpatch_args *a) {
    duet__ref_run(ctx, a, 0, a->t * a->h * a->w, unpatch_token);
}

/* Fade from `old` to `now`: k samples into a fade of `extent`. */
static float fade(float old, float now, int64_t k, int64_t extent) {
    double part = (double)k / (double)extent;
    float from_old = old * (float)(1.0 - part), from_new = now * (float)part;
    return from_old + from_new;
}

static void blend_tile_plane(void *arg, int64_t p, int thread) {
    (void)thread;
    const duet_blend_tile_args *a = ((const ref_job *)arg)->args;
    const float *tile = a->tile + p * a->tile_h * a->tile_w;
    const float *above = a->above ? a->above + p * a->above_h * a->tile_w : NULL;
    const float *left = a->left ? a->left + p * a->tile_h * a->left_w : NULL;
    float *canvas = a->canvas + p * a->canvas_h * a->canvas_w;
    for (int64_t y = 0; y < a->keep_rows; y++) {
        for (int64_t x = 0; x < a->keep_cols; x++) {
            float v = tile[y * a->tile_w + x];
            if (above && y < a->fade_rows)
                v = fade(above[(a->above_h - a->fade_rows + y) * a->tile_w + x], v, y, a->fade_rows);
            if (left && x < a->fade_cols)
                v = fade(left[y * a->left_w + a->left_w - a->fade_cols + x], v, x, a->fade_cols);
            canvas[(a->at_row + y) * a->canvas_w + a->at_col + x] = v;
        }
    }
}

void duet__ref_blend_tile(const duet_kernel_ctx *ctx, const duet_blend_tile_args *a) {
    duet__ref_run(ctx, a, 0, a->planes, blend_tile_plane);
}

void duet__ref_blend_seam(const duet_kernel_ctx *ctx, const duet_blend_seam_args *a) {
    (void)ctx;
    for (int64_t c = 0; c < a->channels; c++) {
        for (int64_t k = 0; k < a->frames; k++) {
            float *head = a->head + c * a->head_channel_stride + k * a->pixels;
            const float *tail = a->tail + c * a->tail_channel_stride + k * a->pixels;
            for (int64_t p = 0; p < a->pixels; p++) head[p] = fade(tail[p], head[p], k, a->frames);
        }
    }
}

static void pixels_frame(void *arg, int64_t f, int thread) {
    (void)thread;
    const duet_pixels_u8_args *a = ((const ref_job *)arg)->args;
    for (int64_t c = 0; c < 3; c++) {
        const float *x = a->x + c * a->x_channel_stride + f * a->pixels;
        uint8_t *y = a->y + f * a->pixels * 3 + c;
        for (int64_t p = 0; p < a->pixels; p++) {
            float scaled = x[p] * a->std[c];
            float v = scaled + a->mean[c];
            v = v > 0.0f ? v : 0.0f; /* a NaN becomes black here; the stage's own check has failed the job */
            v = v < 1.0f ? v : 1.0f;
            y[3 * p] = (uint8_t)lrintf(v * 255.0f);
        }
    }
}

void duet__ref_pixels_u8(const duet_kernel_ctx *ctx, const duet_pixels_u8_args *a) {
    duet__ref_run(ctx, a, 0, a->frames, pixels_frame);
}
