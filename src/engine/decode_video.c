/* decode_video.c - normalised video latents to frames, chunk by chunk (spec model-vae 5.4, 6).
 *
 *     for each chunk
 *         for each tile, row by row:  latents -> network -> check -> stitch        (cancelled here)
 *         seam with the chunk before -> emit `main` as bytes
 *     emit the last tail
 *
 *  1. Blending ends before anything becomes a byte: pixels are blended raw, then de-normalised, clamped,
 *     rounded.
 *  2. Latents beyond the last are copies of the last; the frames they add are never emitted.
 *  3. One stream, one order; a frame is given to the sink only after the sync that finished it. */
#include "engine/decode.h"

#include "base/alloc.h"
#include "engine/checks.h"
#include "engine/decode_stitch.h"

#include <math.h>
#include <stdio.h>

enum { RGB = 3 };

typedef struct run {
    const duet_decode_video_args *args;
    duet__stitch stitch;
    int64_t th, tw;     /* latents of a tile */
    float *tile_latent; /* host [clip * th * tw, C] */
    uint8_t *pixels;    /* host [DUET__PIXEL_FRAMES, height, width, 3] */
    uint8_t *clip;      /* host [frames, height, width, 3], only for the tap "frames" */
    int64_t emitted, done, total;
} run;

/* ---- cost ---------------------------------------------------------------------------------------------- */

static int64_t pixel_bytes(const duet__stitch *s) {
    return (int64_t)DUET__PIXEL_FRAMES * s->height * s->width * RGB;
}

static int64_t tile_latent_bytes(const duet_vvae_config *c, int64_t t, int64_t h, int64_t w) {
    return t * h * w * c->latent_channels * (int64_t)sizeof(float);
}

bool duet_decode_video_cost(const duet_vvae_config *c, const duet_device *dev, int64_t latents,
                            int32_t latent_h, int32_t latent_w, duet_decode_cost *out) {
    duet__stitch s;
    int64_t bytes;
    *out = (duet_decode_cost){0};
    if (!duet__stitch_plan(c, latents, latent_h, latent_w, false, &s, &bytes)) return false;
    int64_t t = s.time.clip_latents, h = s.y.tile_px / c->space_ratio, w = s.x.tile_px / c->space_ratio;
    out->calls = s.time.chunks * s.y.n * s.x.n;
    out->device_bytes = bytes + duet_video_vae_activation_bytes(c, t, h, w);
    out->scratch_bytes = duet_video_vae_scratch_bytes(c, dev, t, h, w);
    out->host_bytes = pixel_bytes(&s) + tile_latent_bytes(c, t, h, w) + duet_video_vae_host_bytes(c, t, h, w);
    out->flops = (double)out->calls * duet_video_vae_flops(c, t, h, w);
    return true;
}

/* ---- latents ------------------------------------------------------------------------------------------- */

/* Latents may come from a file: say so before the network turns one NaN into a grey clip. */
static duet_status check_latents(const duet_decode_video_args *a, duet_error *err) {
    int64_t n = a->config->latent_channels * a->latents_t * a->latent_h * a->latent_w, bad = 0;
    for (int64_t i = 0; i < n; i++) bad += !isfinite(a->latents[i]);
    if (!bad) return DUET_OK;
    return duet_fail(err, DUET_E_RUN, "video_latents: %lld of %lld values are not finite", (long long)bad,
                     (long long)n);
}

/* Tokens of one tile, de-normalised: product and sum are rounded one by one, as the reference does it. */
static void cut_tile(const run *r, int64_t chunk, int row, int col) {
    const duet_decode_video_args *a = r->args;
    const duet_vvae_config *c = a->config;
    const duet__stitch *s = &r->stitch;
    int64_t y0 = s->y.start_px[row] / c->space_ratio, x0 = s->x.start_px[col] / c->space_ratio;
    float *out = r->tile_latent;
    for (int64_t t = 0; t < s->time.clip_latents; t++) {
        int64_t at = chunk * s->time.stride_latents + t;
        if (at >= a->latents_t) at = a->latents_t - 1;
        for (int64_t y = 0; y < r->th; y++)
            for (int64_t x = 0; x < r->tw; x++)
                for (int64_t k = 0; k < c->latent_channels; k++) {
                    int64_t index = ((k * a->latents_t + at) * a->latent_h + y0 + y) * a->latent_w + x0 + x;
                    float scaled = a->latents[index] * c->latents_std[k];
                    *out++ = scaled + c->latents_mean[k];
                }
    }
}

/* ---- tiles --------------------------------------------------------------------------------------------- */

/* The parts of one raw tile are judged together: a still tail beside a moving main part is no fault. */
static duet_status check_tile(const duet__stitch *s, const float *stats, const char *name, duet_error *err) {
    float all[3] = {0.0f, stats[1], stats[2]};
    int64_t n_values = 0;
    for (int i = 0; i < s->n_parts; i++) {
        all[0] += stats[3 * i];
        all[1] = fminf(all[1], stats[3 * i + 1]);
        all[2] = fmaxf(all[2], stats[3 * i + 2]);
        n_values += s->part[i].planes * s->y.tile_px * s->x.tile_px;
    }
    return duet_check_stats(all, n_values, err, "%s.raw", name);
}

static void tap_raw(const run *r, const char *tile_name) {
    const duet_decode_video_args *a = r->args;
    const duet__stitch *s = &r->stitch;
    char name[96];
    if (s->n_parts <= DUET__WHOLE) return;
    snprintf(name, sizeof name, "%s.raw", tile_name);
    if (!duet_tap_wants(a->tap, name)) return;
    int64_t cols = (int64_t)s->y.tile_px * s->x.tile_px;
    a->tap->take_device(a->tap, a->stream, name, s->part[DUET__WHOLE].tile, s->part[DUET__WHOLE].planes, cols,
                        cols, &DUET_SHAPE(RGB, s->part[DUET__WHOLE].frames, s->y.tile_px, s->x.tile_px));
}

static duet_status decode_tile(run *r, int64_t chunk, int row, int col, duet_error *err) {
    const duet_decode_video_args *a = r->args;
    duet__stitch *s = &r->stitch;
    duet_raw_frames part[DUET__N_PARTS];
    float stats[3 * DUET__N_PARTS];
    char name[64];
    duet_status st;
    snprintf(name, sizeof name, "vvae.chunk_%lld.tile_%d_%d", (long long)chunk, row, col);
    for (int i = 0; i < s->n_parts; i++)
        part[i] =
            (duet_raw_frames){.first = s->part[i].first, .frames = s->part[i].frames, .raw = s->part[i].tile};
    duet_video_tile tile = {.latent = r->tile_latent,
                            .t = s->time.clip_latents,
                            .h = r->th,
                            .w = r->tw,
                            .parts = part,
                            .n_parts = s->n_parts,
                            .tap_prefix = name};
    const volatile int *cancel = a->progress ? a->progress->cancel : NULL;
    cut_tile(r, chunk, row, col);
    TRY(st, fail, duet_video_vae_decode_tile(a->vae, a->residency, a->stream, &tile, a->tap, cancel, err));
    tap_raw(r, name);
    duet__stitch_stats(s, a->stream, stats);
    TRY(st, fail, duet_stream_sync(a->stream, err));
    TRY(st, fail, check_tile(s, stats, name, err));
    duet__stitch_tile(s, a->stream, row, col);
    r->done++;
    st = duet_progress_step(a->progress, DUET_STAGE_DECODE_VIDEO, r->done, r->total, err);
fail:
    return st;
}

/* ---- frames -------------------------------------------------------------------------------------------- */

/* The first `frames` frames of a canvas [3, of_frames, height, width], as bytes, to sink and tap. */
static duet_status emit(run *r, const float *canvas, int64_t of_frames, duet_error *err) {
    const duet_decode_video_args *a = r->args;
    const duet__stitch *s = &r->stitch;
    int64_t pixels = (int64_t)s->height * s->width, left = s->time.frames - r->emitted;
    if (left > of_frames) left = of_frames; /* the rest of the canvas came from padding */
    duet_status st = DUET_OK;
    while (left > 0 && st == DUET_OK) {
        int64_t n = left < DUET__PIXEL_FRAMES ? left : DUET__PIXEL_FRAMES;
        duet_pixels_u8(a->stream, &(duet_pixels_u8_args){.x = canvas,
                                                         .y = s->pixels,
                                                         .frames = n,
                                                         .pixels = pixels,
                                                         .x_channel_stride = of_frames * pixels,
                                                         .mean = {0.485f, 0.456f, 0.406f},
                                                         .std = {0.229f, 0.224f, 0.225f}});
        duet_copy_out(a->stream, r->pixels, s->pixels, n * pixels * RGB);
        st = duet_stream_sync(a->stream, err);
        if (st == DUET_OK && a->sink) st = a->sink->frames(a->sink, r->pixels, n, err);
        if (st == DUET_OK && r->clip)
            memcpy(r->clip + r->emitted * pixels * RGB, r->pixels, (size_t)(n * pixels * RGB));
        canvas += n * pixels;
        r->emitted += n;
        left -= n;
    }
    return st;
}

static void tap_stitched(const run *r, int64_t chunk) {
    const duet_decode_video_args *a = r->args;
    const duet__stitch *s = &r->stitch;
    char name[64];
    if (s->n_parts <= DUET__WHOLE) return;
    snprintf(name, sizeof name, "vvae.chunk_%lld.stitched", (long long)chunk);
    if (!duet_tap_wants(a->tap, name)) return;
    int64_t cols = (int64_t)s->height * s->width;
    a->tap->take_device(a->tap, a->stream, name, s->part[DUET__WHOLE].canvas, s->part[DUET__WHOLE].planes,
                        cols, cols, &DUET_SHAPE(RGB, s->part[DUET__WHOLE].frames, s->height, s->width));
}

/* ---- the clip ------------------------------------------------------------------------------------------ */

static duet_status decode_chunks(run *r, duet_error *err) {
    const duet_decode_video_args *a = r->args;
    duet__stitch *s = &r->stitch;
    duet_status st;
    TRY(st, fail, duet_progress_step(a->progress, DUET_STAGE_DECODE_VIDEO, 0, r->total, err));
    for (int64_t chunk = 0; chunk < s->time.chunks; chunk++) {
        for (int row = 0; row < s->y.n; row++)
            for (int col = 0; col < s->x.n; col++) TRY(st, fail, decode_tile(r, chunk, row, col, err));
        tap_stitched(r, chunk);
        duet__stitch_chunk(s, a->stream, chunk == 0);
        TRY(st, fail, emit(r, s->part[DUET__MAIN].canvas, s->part[DUET__MAIN].frames, err));
    }
    TRY(st, fail, emit(r, s->previous_tail, s->part[DUET__TAIL].frames, err));
    if (r->clip)
        a->tap->take_host(a->tap, "frames", DUET_U8, &DUET_SHAPE(s->time.frames, s->height, s->width, RGB),
                          r->clip);
fail:
    return st;
}

/* Does a tap ask for all frames of a chunk or of a tile? */
static bool wants_whole(const duet_decode_video_args *a, const duet__stitch *s) {
    char name[96];
    for (int64_t chunk = 0; a->tap && chunk < s->time.chunks; chunk++) {
        snprintf(name, sizeof name, "vvae.chunk_%lld.stitched", (long long)chunk);
        if (a->tap->wants(a->tap, name)) return true;
        for (int tile = 0; tile < s->y.n * s->x.n; tile++) {
            snprintf(name, sizeof name, "vvae.chunk_%lld.tile_%d_%d.raw", (long long)chunk, tile / s->x.n,
                     tile % s->x.n);
            if (a->tap->wants(a->tap, name)) return true;
        }
    }
    return false;
}

static bool plan_run(const duet_decode_video_args *a, duet__stitch *s) {
    int64_t bytes;
    if (!duet__stitch_plan(a->config, a->latents_t, a->latent_h, a->latent_w, false, s, &bytes)) return false;
    return !wants_whole(a, s) ||
           duet__stitch_plan(a->config, a->latents_t, a->latent_h, a->latent_w, true, s, &bytes);
}

static duet_status open_run(run *r, duet_error *err) {
    const duet_decode_video_args *a = r->args;
    duet__stitch *s = &r->stitch;
    if (!plan_run(a, s))
        return duet_fail(err, DUET_E_RUN,
                         "video decoder: latents of %lld x %d x %d cannot be cut into chunks and tiles",
                         (long long)a->latents_t, a->latent_h, a->latent_w);
    r->th = s->y.tile_px / a->config->space_ratio;
    r->tw = s->x.tile_px / a->config->space_ratio;
    r->total = s->time.chunks * s->y.n * s->x.n;
    r->tile_latent =
        duet_alloc((size_t)tile_latent_bytes(a->config, s->time.clip_latents, r->th, r->tw), DUET_MEM_ENGINE);
    r->pixels = duet_alloc((size_t)pixel_bytes(s), DUET_MEM_ENGINE);
    bool keep_clip = duet_tap_wants(a->tap, "frames");
    if (keep_clip)
        r->clip = duet_alloc((size_t)(s->time.frames * s->height * s->width * RGB), DUET_MEM_ENGINE);
    if (!r->tile_latent || !r->pixels || (keep_clip && !r->clip))
        return duet_fail(err, DUET_E_MEMORY, "video decoder: out of memory for latents and pixels");
    return duet__stitch_open(s, duet_stream_device(a->stream), err);
}

duet_status duet_decode_video(const duet_decode_video_args *args, duet_error *err) {
    run r = {.args = args};
    duet_error ignored = {0};
    duet_status st;
    TRY(st, fail, check_latents(args, err));
    TRY(st, fail, open_run(&r, err));
    st = decode_chunks(&r, err);
fail:
    if (st != DUET_OK) duet_stream_sync(args->stream, &ignored); /* what was enqueued uses the buffers */
    duet__stitch_close(&r.stitch);
    duet_free(r.tile_latent);
    duet_free(r.pixels);
    duet_free(r.clip);
    return st;
}
