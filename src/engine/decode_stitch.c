/* decode_stitch.c - see decode_stitch.h; the arithmetic itself is the ops blend_tile and blend_seam. */
#include "engine/decode_stitch.h"

enum { RGB = 3 };

/* ---- layout -------------------------------------------------------------------------------------------- */

static int32_t widest(const duet_axis_tiles *t) {
    int32_t most = 0;
    for (int i = 0; i + 1 < t->n; i++)
        if (t->overlap_px[i] > most) most = t->overlap_px[i];
    return most;
}

static void *take(char *base, int64_t *at, int64_t bytes) {
    void *p = base ? base + *at : NULL;
    *at += (bytes + 63) / 64 * 64;
    return p;
}

static float *take_planes(char *base, int64_t *at, int64_t planes, int64_t rows, int64_t cols) {
    return take(base, at, planes * rows * cols * (int64_t)sizeof(float));
}

/* Carve `base` (NULL: only count); returns the bytes. */
static int64_t carve(duet__stitch *s, char *base) {
    int64_t at = 0, strip_h = widest(&s->y), strip_w = widest(&s->x);
    for (int i = 0; i < s->n_parts; i++) {
        duet__stitch_part *p = &s->part[i];
        p->tile = take_planes(base, &at, p->planes, s->y.tile_px, s->x.tile_px);
        p->above = take_planes(base, &at, p->planes * s->x.n, strip_h, s->x.tile_px);
        p->left = take_planes(base, &at, p->planes, s->y.tile_px, strip_w);
        p->canvas = take_planes(base, &at, p->planes, s->height, s->width);
    }
    s->previous_tail = take_planes(base, &at, s->part[DUET__TAIL].planes, s->height, s->width);
    s->stats = take_planes(base, &at, 1, 3, DUET__N_PARTS);
    s->pixels = take(base, &at, (int64_t)DUET__PIXEL_FRAMES * s->height * s->width * RGB);
    return at;
}

static void set_part(duet__stitch *s, int i, int64_t first, int64_t frames) {
    s->part[i] = (duet__stitch_part){.first = first, .frames = frames, .planes = RGB * frames};
}

bool duet__stitch_plan(const duet_vvae_config *config, int64_t latents, int32_t latent_h, int32_t latent_w,
                       bool whole, duet__stitch *s, int64_t *bytes) {
    int64_t unit = config->space_ratio, height = latent_h * unit, width = latent_w * unit;
    *s = (duet__stitch){.n_parts = whole ? DUET__N_PARTS : DUET__WHOLE};
    if (height > 1 << 20 || width > 1 << 20 || !duet_time_split(config, latents, &s->time)) return false;
    s->height = (int32_t)height;
    s->width = (int32_t)width;
    if (!duet_axis_split(s->height, config->tile_px, config->tile_overlap_px, (int32_t)unit, &s->y) ||
        !duet_axis_split(s->width, config->tile_px, config->tile_overlap_px, (int32_t)unit, &s->x))
        return false;
    set_part(s, DUET__MAIN, s->time.head, s->time.main);
    set_part(s, DUET__TAIL, s->time.tail_first, s->time.tail);
    set_part(s, DUET__WHOLE, 0, s->time.raw_frames);
    *bytes = carve(s, NULL);
    return true;
}

duet_status duet__stitch_open(duet__stitch *s, duet_device *dev, duet_error *err) {
    duet_status st = duet_device_alloc(dev, carve(s, NULL), "canvas of a chunk", &s->memory, err);
    if (st != DUET_OK) return st;
    s->dev = dev;
    carve(s, s->memory);
    return DUET_OK;
}

void duet__stitch_close(duet__stitch *s) {
    if (s->memory) duet_device_free(s->dev, s->memory);
    *s = (duet__stitch){0};
}

/* ---- blending ------------------------------------------------------------------------------------------ */

static float *strip_above(const duet__stitch *s, const duet__stitch_part *p, int col) {
    return p->above + col * p->planes * widest(&s->y) * s->x.tile_px;
}

static void blend(const duet__stitch *s, duet_stream *stream, const duet__stitch_part *p, int row, int col) {
    duet_blend_tile_args args = {
        .tile = p->tile,
        .canvas = p->canvas,
        .planes = p->planes,
        .tile_h = s->y.tile_px,
        .tile_w = s->x.tile_px,
        .keep_rows = s->y.tile_px - (row + 1 < s->y.n ? s->y.overlap_px[row] : 0),
        .keep_cols = s->x.tile_px - (col + 1 < s->x.n ? s->x.overlap_px[col] : 0),
        .canvas_h = s->height,
        .canvas_w = s->width,
        .at_row = s->y.start_px[row],
        .at_col = s->x.start_px[col],
    };
    if (row > 0) {
        args.above = strip_above(s, p, col);
        args.above_h = args.fade_rows = s->y.overlap_px[row - 1];
    }
    if (col > 0) {
        args.left = p->left;
        args.left_w = args.fade_cols = s->x.overlap_px[col - 1];
    }
    duet_blend_tile(stream, &args);
}

static void keep_bottom(const duet__stitch *s, duet_stream *stream, const duet__stitch_part *p, int row,
                        int col) {
    int64_t plane = (int64_t)s->y.tile_px * s->x.tile_px, kept = (int64_t)s->y.overlap_px[row] * s->x.tile_px;
    duet_copy_rows(stream, &(duet_copy_rows_args){.x = p->tile + plane - kept,
                                                  .y = strip_above(s, p, col),
                                                  .rows = p->planes,
                                                  .cols = kept,
                                                  .x_stride = plane,
                                                  .y_stride = kept});
}

static void keep_right(const duet__stitch *s, duet_stream *stream, const duet__stitch_part *p, int col) {
    int64_t kept = s->x.overlap_px[col];
    duet_copy_rows(stream, &(duet_copy_rows_args){.x = p->tile + s->x.tile_px - kept,
                                                  .y = p->left,
                                                  .rows = p->planes * s->y.tile_px,
                                                  .cols = kept,
                                                  .x_stride = s->x.tile_px,
                                                  .y_stride = kept});
}

void duet__stitch_tile(duet__stitch *s, duet_stream *stream, int row, int col) {
    for (int i = 0; i < s->n_parts; i++) {
        const duet__stitch_part *p = &s->part[i];
        blend(s, stream, p, row, col);
        if (row + 1 < s->y.n) keep_bottom(s, stream, p, row, col);
        if (col + 1 < s->x.n) keep_right(s, stream, p, col);
    }
}

void duet__stitch_stats(duet__stitch *s, duet_stream *stream, float *host) {
    for (int i = 0; i < s->n_parts; i++) {
        int64_t n = s->part[i].planes * s->y.tile_px * s->x.tile_px;
        duet_stats(
            stream,
            &(duet_stats_args){
                .x = s->part[i].tile, .result = s->stats + 3 * i, .rows = 1, .cols = n, .x_stride = n});
    }
    duet_copy_out(stream, host, s->stats, 3 * s->n_parts * (int64_t)sizeof *host);
}

void duet__stitch_chunk(duet__stitch *s, duet_stream *stream, bool first) {
    duet__stitch_part *main = &s->part[DUET__MAIN], *tail = &s->part[DUET__TAIL];
    int64_t pixels = (int64_t)s->height * s->width;
    if (!first)
        duet_blend_seam(stream, &(duet_blend_seam_args){.head = main->canvas,
                                                        .tail = s->previous_tail,
                                                        .channels = RGB,
                                                        .frames = tail->frames,
                                                        .pixels = pixels,
                                                        .head_channel_stride = main->frames * pixels,
                                                        .tail_channel_stride = tail->frames * pixels});
    float *free_canvas = s->previous_tail;
    s->previous_tail = tail->canvas;
    tail->canvas = free_canvas;
}
