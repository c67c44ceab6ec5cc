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
bool duet_axis_split(int32_t length_px, int32_t tile_px, int32_t min_overlap_px, int32_t unit_px,
                     duet_axis_tiles *out);

#endif
