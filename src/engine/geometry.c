/* geometry.c - frames, canvas, tiles and chunks: the rules that fix every size of a request.
 *
 * The rules look odd because they were fixed when the model was trained: a video of 17n+5 frames is encoded
 * in clips of 17 frames to 5 latents each, the last 3 latents are thrown away, and decoding has to mirror
 * that. None of them may be "repaired", not even the cross-fades that are cut short at 464, 480 and 496
 * pixels.
 *
 *  1. Everything is integer arithmetic, except the two places where the reference computes in fp64: seconds
 * to frames and the derived canvas. Both round half to even.
 *  2. Nothing here allocates, fails loudly or knows a model beyond the numbers it is given.
 */
#include "engine/geometry.h"

#include <math.h>

/* A clip of 17n + 5 frames has 5n + 2 latents. */
enum { CLIP = 17, REST = 5, CLIP_LATENTS = 5, REST_LATENTS = 2 };

static int64_t mod(int64_t a, int64_t m) {
    int64_t r = a % m;
    return r < 0 ? r + m : r;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Ties to even, whatever the floating-point environment's rounding mode says. */
static double round_half_even(double x) {
    double low = floor(x), rest = x - low;
    if (rest < 0.5) return low;
    if (rest > 0.5) return low + 1.0;
    return fmod(low, 2.0) == 0.0 ? low : low + 1.0;
}

/* ---- frames and latents ----------------------------------------------------------------------------------
 */

int64_t duet_frames_snap_up(int64_t frames) {
    if (frames <= REST) return REST;
    return frames + mod(REST - frames, CLIP);
}

int64_t duet_frames_snap_down(int64_t frames) {
    if (frames <= REST) return REST;
    return frames - mod(frames - REST, CLIP);
}

int64_t duet_frames_from_seconds(double seconds) {
    double frames = round_half_even(24.0 * seconds);
    if (!(frames > 0.0)) frames = 0.0; /* NaN too: limits are the request's business, totality is ours */
    if (frames > 1e15) frames = 1e15;
    return duet_frames_snap_up((int64_t)frames);
}

int64_t duet_video_latents_for_frames(int64_t frames) {
    if (frames <= REST) return REST_LATENTS;
    return (frames - REST) / CLIP * CLIP_LATENTS + REST_LATENTS;
}

int64_t duet_frames_for_video_latents(int64_t latents) {
    if (latents <= REST_LATENTS) return REST;
    return (latents - REST_LATENTS) / CLIP_LATENTS * CLIP + REST;
}

/* round(5F/3): the fraction is 0, 1/3 or 2/3, so there is no tie to break. */
int64_t duet_audio_latents_for_frames(int64_t frames) {
    return frames <= 0 ? 0 : (10 * frames + 3) / 6;
}

/* ---- canvas ----------------------------------------------------------------------------------------------
 */

static bool to_axis(double x, int32_t multiple, int32_t *out) {
    double px = round_half_even(x / multiple) * multiple;
    if (!(px <= 1 << 24)) return false;
    *out = px < multiple ? multiple : (int32_t)px;
    return true;
}

bool duet_canvas_resolve(double ratio_w, double ratio_h, double short_edge, double max_pixels,
                         int32_t multiple, int32_t *width, int32_t *height) {
    double ratio = ratio_w / ratio_h;
    if (!(ratio >= 0.25 && ratio <= 4.0) || !(short_edge > 0.0 && short_edge < 1e9) || !(max_pixels > 0.0) ||
        multiple < 1)
        return false;
    double w = ratio >= 1.0 ? short_edge * ratio : short_edge;
    double h = ratio >= 1.0 ? short_edge : short_edge / ratio;
    if (w * h > max_pixels) {
        double scale = sqrt(max_pixels / (w * h));
        w *= scale;
        h *= scale;
    }
    return to_axis(w, multiple, width) && to_axis(h, multiple, height);
}

/* ---- tiles -----------------------------------------------------------------------------------------------
 */

/* Fewest tiles that cover the length with at least min_overlap between neighbours. */
static int64_t tile_count(int64_t length, int64_t tile, int64_t min_overlap) {
    return ceil_div(length - min_overlap, tile - min_overlap);
}

bool duet_axis_split(int32_t length_px, int32_t tile_px, int32_t min_overlap_px, int32_t unit_px,
                     duet_axis_tiles *out) {
    *out = (duet_axis_tiles){0};
    if (length_px < 1 || tile_px < 1 || min_overlap_px < 0 || unit_px < 1 || length_px % unit_px)
        return false;
    if (tile_px >= length_px) {
        out->n = 1;
        out->tile_px = length_px;
        return true;
    }
    if (min_overlap_px >= tile_px || tile_px % unit_px || min_overlap_px % unit_px) return false;
    int64_t n = tile_count(length_px, tile_px, min_overlap_px);
    if (n > DUET_MAX_TILES) return false;
    out->n = (int32_t)n;
    out->tile_px = tile_px;
    /* What the tiles cover too much goes into the overlaps, one unit at a time, first overlap first. */
    int64_t gaps = n - 1, units = (tile_px * n - min_overlap_px * gaps - length_px) / unit_px;
    for (int64_t i = 0; i < gaps; i++) {
        int64_t extra = units / gaps + (i < units % gaps ? 1 : 0);
        out->overlap_px[i] = (int32_t)(min_overlap_px + extra * unit_px);
        out->start_px[i + 1] = out->start_px[i] + tile_px - out->overlap_px[i];
    }
    return true;
}

/* ---- chunks ----------------------------------------------------------------------------------------------
 */

/* Frames that the pad latents would have added: the first latent of every clip stands for clip mod ratio
 * frames. */
static int64_t pad_frames(const duet_vvae_config *c, int64_t latents, int64_t pad, int64_t stride) {
    int64_t first = c->clip_frames % c->time_ratio, n = 0;
    for (int64_t k = 0; k < pad; k++) n += first && (latents + k) % stride == 0 ? first : c->time_ratio;
    return n;
}

bool duet_time_split(const duet_vvae_config *config, int64_t latents, duet_time_chunks *out) {
    *out = (duet_time_chunks){0};
    int32_t clip = config->clip_frames, ratio = config->time_ratio, drop = config->token_drop;
    if (clip < 1 || ratio < 1 || drop < 1 || latents < 1 || latents > INT32_MAX) return false;
    int64_t head = mod(-clip, ratio), stride = ceil_div(clip, ratio), shared = mod(-drop, stride);
    int64_t tail = shared * ratio - head;
    if (tail < 1 || tail > clip) return false; /* nothing to fade, or a fade longer than the chunk */
    int64_t pad = mod(-(latents + drop), stride);
    int64_t chunks = (latents + drop + pad) / stride - 1;
    if (chunks < 1) return false;
    *out = (duet_time_chunks){
        .chunks = chunks,
        .frames = chunks * clip + tail - pad_frames(config, latents, pad, stride),
        .pad_latents = pad,
        .stride_latents = (int32_t)stride,
        .clip_latents = (int32_t)(stride + shared),
        .head = (int32_t)head,
        .main = clip,
        .tail_first = (int32_t)(stride * ratio + head),
        .tail = (int32_t)tail,
        .raw_frames = (int32_t)((stride + shared) * ratio),
    };
    return out->frames > 0;
}
