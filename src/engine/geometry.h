/* geometry.h - pure integer and fp64 rules of a request: frames, canvas, latent shapes, tiles, chunks (spec
 * model-dit 6, model-vae 5.4, 6).
 *
 * No allocation, no I/O, no model: tables in, tables out. All functions are total over their stated domain.
 */
#ifndef DUET_ENGINE_GEOMETRY_H
#define DUET_ENGINE_GEOMETRY_H

#include "store/config.h"

#include <stdint.h>

int64_t duet_frames_snap_up(int64_t frames);            /* next 17n+5 */
int64_t duet_frames_snap_down(int64_t frames);          /* previous 17n+5, at least 5 */
int64_t duet_frames_from_seconds(double seconds);       /* round_half_even(24 s), then snapped up */
int64_t duet_video_latents_for_frames(int64_t frames);  /* 5n+2 */
int64_t duet_frames_for_video_latents(int64_t latents); /* 17n+5 */
int64_t duet_audio_latents_for_frames(int64_t frames);  /* round(5F/3) */

/* Derived canvas (spec model-dit 6.2): ratio = ratio_w / ratio_h. false: ratio outside 1:4..4:1. */
bool duet_canvas_resolve(double ratio_w, double ratio_h, double short_edge, double max_pixels,
                         int32_t multiple, int32_t *width, int32_t *height);

/* Tiles along one axis (spec model-vae 6). */
enum { DUET_MAX_TILES = 512 };
typedef struct duet_axis_tiles {
    int32_t n, tile_px; /* tile_px = min(tile, length) */
    int32_t start_px[DUET_MAX_TILES];
    int32_t overlap_px[DUET_MAX_TILES]; /* with the next tile; n-1 entries */
} duet_axis_tiles;
/* false: a length that the rule cannot cover exactly (not a multiple of unit_px, more than DUET_MAX_TILES
 * tiles, an overlap that leaves no progress). unit_px is the space ratio of the video VAE. */
bool duet_axis_split(int32_t length_px, int32_t tile_px, int32_t min_overlap_px, int32_t unit_px,
                     duet_axis_tiles *out);

/* Chunks along time (spec model-vae 5.4), all from clip_frames, token_drop and time_ratio:
 *
 *     latents  |0 1 2 3 4|5 6|           chunk i decodes latents stride*i .. stride*i + clip - 1
 *                        |0 1 2 3 4|5 6|
 *     raw frames of a chunk: [head, head + main) are emitted, [tail_first, tail_first + tail) fade into the
 * next
 */
typedef struct duet_time_chunks {
    int64_t chunks, frames, pad_latents;  /* frames emitted in all, after the padding's are dropped */
    int32_t stride_latents, clip_latents; /* 5, 7 */
    int32_t head, main, tail_first, tail; /* raw frames: 3, 17, 23, 5 */
    int32_t raw_frames;                   /* time_ratio * clip_latents: 28 */
} duet_time_chunks;
/* false: no whole chunk (fewer than 3 latents for the released sizes) or constants that do not chunk. */
bool duet_time_split(const duet_vvae_config *config, int64_t latents, duet_time_chunks *out);

#endif
