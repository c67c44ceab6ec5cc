/* cases_pixels.c - from patch rows to bytes. All exact. */
#include "checkop/checkop.h"

static void unpatch_build(checkop_case *c, duet_unpatch_args a, int64_t gap) {
    int64_t cols = a.channels * a.patch_t * a.patch_s * a.patch_s;
    a.x_stride = cols + gap;
    a.x = checkop_in(c, a.t * a.h * a.w * a.x_stride);
    a.y = checkop_out(c, a.channels * a.frames * a.h * a.patch_s * a.w * a.patch_s * 4);
    c->args.unpatch = a;
    c->bytes = 8.0 * (double)(a.t * a.h * a.w * cols);
    checkop_text(c, "unpatch grid %lldx%lldx%lld channels %lld patch %lldx%lld frames %lld+%lld gap %lld",
                 (long long)a.t, (long long)a.h, (long long)a.w, (long long)a.channels, (long long)a.patch_t,
                 (long long)a.patch_s, (long long)a.first_frame, (long long)a.frames, (long long)gap);
}

static void unpatch_make(checkop_case *c) {
    duet_unpatch_args a = {.t = checkop_pick(c, 1, 4),
                           .h = checkop_pick(c, 1, 5),
                           .w = checkop_pick(c, 1, 6),
                           .channels = checkop_pick(c, 1, 3),
                           .patch_t = checkop_pick(c, 1, 4),
                           .patch_s = checkop_pick(c, 1, 17)};
    a.first_frame = checkop_pick(c, 0, a.t * a.patch_t - 1);
    a.frames = checkop_pick(c, 1, a.t * a.patch_t - a.first_frame);
    unpatch_build(c, a, checkop_pick(c, 0, 5));
}

static void unpatch_bench(checkop_case *c) {
    unpatch_build(c,
                  (duet_unpatch_args){
                      .t = 7, .h = 16, .w = 16, .channels = 3, .patch_t = 4, .patch_s = 16, .frames = 28},
                  0);
}

const checkop_spec checkop_unpatch = {.n_bench = 1, .make = unpatch_make, .bench = unpatch_bench};

/* Neighbours, fades longer than what is kept, tiles that fill the canvas. */
static void blend_tile_build(checkop_case *c, duet_blend_tile_args a, bool above, bool left) {
    a.above_h = a.tile_h;
    a.left_w = a.tile_w;
    int64_t tile = a.planes * a.tile_h * a.tile_w;
    a.tile = checkop_in(c, tile);
    if (above) a.above = checkop_in(c, tile);
    if (left) a.left = checkop_in(c, tile);
    a.canvas = checkop_out(c, a.planes * a.canvas_h * a.canvas_w * 4);
    c->args.blend_tile = a;
    c->bytes = 8.0 * (double)tile;
    checkop_text(
        c,
        "blend_tile planes %lld tile %lldx%lld fade %lld,%lld keep %lld,%lld canvas %lldx%lld at %lld,%lld "
        "above %d left %d",
        (long long)a.planes, (long long)a.tile_h, (long long)a.tile_w, (long long)a.fade_rows,
        (long long)a.fade_cols, (long long)a.keep_rows, (long long)a.keep_cols, (long long)a.canvas_h,
        (long long)a.canvas_w, (long long)a.at_row, (long long)a.at_col, above, left);
}

static void blend_tile_make(checkop_case *c) {
    duet_blend_tile_args a = {
        .planes = checkop_pick(c, 1, 5), .tile_h = checkop_pick(c, 1, 40), .tile_w = checkop_pick(c, 1, 70)};
    a.fade_rows = checkop_pick(c, 0, a.tile_h);
    a.fade_cols = checkop_pick(c, 0, a.tile_w);
    a.keep_rows = checkop_pick(c, 1, a.tile_h);
    a.keep_cols = checkop_pick(c, 1, a.tile_w);
    a.at_row = checkop_pick(c, 0, 20);
    a.at_col = checkop_pick(c, 0, 20);
    a.canvas_h = a.at_row + a.keep_rows + checkop_pick(c, 0, 9);
    a.canvas_w = a.at_col + a.keep_cols + checkop_pick(c, 0, 9);
    blend_tile_build(c, a, a.fade_rows > 0 && checkop_pick(c, 0, 2),
                     a.fade_cols > 0 && checkop_pick(c, 0, 2));
}

static void blend_tile_bench(checkop_case *c) {
    duet_blend_tile_args a = {.planes = 3 * 20,
                              .tile_h = 256,
                              .tile_w = 256,
                              .fade_rows = 144,
                              .fade_cols = 112,
                              .keep_rows = 112,
                              .keep_cols = 160,
                              .canvas_h = 480,
                              .canvas_w = 864,
                              .at_row = 112,
                              .at_col = 144};
    blend_tile_build(c, a, true, true);
}

const checkop_spec checkop_blend_tile = {.n_bench = 1, .make = blend_tile_make, .bench = blend_tile_bench};

static void blend_seam_build(checkop_case *c, int64_t channels, int64_t frames, int64_t pixels, int64_t gap) {
    duet_blend_seam_args *a = &c->args.blend_seam;
    *a = (duet_blend_seam_args){.channels = channels, .frames = frames, .pixels = pixels};
    a->head_channel_stride = frames * pixels + gap;
    a->tail_channel_stride = frames * pixels + gap / 2;
    a->head = checkop_inout(c, channels * a->head_channel_stride);
    a->tail = checkop_in(c, channels * a->tail_channel_stride);
    c->bytes = 12.0 * (double)(channels * frames * pixels);
    checkop_text(c, "blend_seam channels %lld frames %lld pixels %lld gap %lld", (long long)channels,
                 (long long)frames, (long long)pixels, (long long)gap);
}

static void blend_seam_make(checkop_case *c) {
    blend_seam_build(c, checkop_pick(c, 1, 3), checkop_pick(c, 1, 6), checkop_pick(c, 1, 500),
                     checkop_pick(c, 0, 40));
}

static void blend_seam_bench(checkop_case *c) {
    blend_seam_build(c, 3, 5, 864 * 480, 0);
}

const checkop_spec checkop_blend_seam = {.n_bench = 1, .make = blend_seam_make, .bench = blend_seam_bench};

static void pixels_build(checkop_case *c, int64_t frames, int64_t pixels, int64_t gap) {
    static const float means[3] = {0.485f, 0.456f, 0.406f}, stds[3] = {0.229f, 0.224f, 0.225f};
    duet_pixels_u8_args *a = &c->args.pixels_u8;
    *a = (duet_pixels_u8_args){.frames = frames, .pixels = pixels, .x_channel_stride = frames * pixels + gap};
    a->x = checkop_in(c, 3 * a->x_channel_stride);
    a->y = checkop_out(c, frames * pixels * 3);
    memcpy(a->mean, means, sizeof means);
    memcpy(a->std, stds, sizeof stds);
    c->bytes = 15.0 * (double)(frames * pixels);
    checkop_text(c, "pixels_u8 frames %lld pixels %lld gap %lld", (long long)frames, (long long)pixels,
                 (long long)gap);
}

static void pixels_make(checkop_case *c) {
    pixels_build(c, checkop_pick(c, 1, 4), checkop_pick(c, 1, 700), checkop_pick(c, 0, 9));
}

static void pixels_bench(checkop_case *c) {
    pixels_build(c, 17, 864 * 480, 0);
}

const checkop_spec checkop_pixels_u8 = {.n_bench = 1, .make = pixels_make, .bench = pixels_bench};
