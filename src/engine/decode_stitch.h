/* decode_stitch.h - raw tiles in, the canvas of a chunk out: the buffers between network and pixels.
 *
 * Each chunk is decoded tile by tile, row by row. Of its raw frames two runs are kept, each with buffers of
 * its own: `main`, which is emitted, and `tail`, which fades into the next chunk (a third, `whole`, exists
 * for taps alone).
 *
 *             col 0     col 1    col 2
 *           +-------+--+----+--+-------+        above: bottom rows of every raw tile of the row before
 *     row 0 |       |//|    |//|       |        left:  right columns of the raw tile before
 *           +-------+--+----+--+-------+        canvas: what is finished
 *     row 1 |=======|xx|
 *
 * 1. Cross-fades read raw neighbours, never blended ones; the diagonal neighbour is never read.
 * 2. A tile is blended before its strips replace those of its neighbours.
 * 3. The strips are all that outlives a tile; the tail is all that outlives a chunk (two tail canvases take
 *    turns).
 *
 * Between files of this folder, and for the tests of blending. Thread rule: one thread, one stream. */
#ifndef DUET_ENGINE_DECODE_STITCH_H
#define DUET_ENGINE_DECODE_STITCH_H

#include "backend/backend.h"
#include "engine/geometry.h"

enum { DUET__MAIN, DUET__TAIL, DUET__WHOLE, DUET__N_PARTS };
enum { DUET__PIXEL_FRAMES = 4 }; /* frames converted to bytes at a time */

typedef struct duet__stitch_part {
    int64_t first, frames, planes; /* raw frames first .. first+frames-1 of 3 channels */
    float *tile;                   /* [planes, tile_h, tile_w]: the network writes here */
    float *above;                  /* tiles_x strips of [planes, overlap, tile_w] */
    float *left;                   /* [planes, tile_h, overlap] */
    float *canvas;                 /* [planes, height, width] */
} duet__stitch_part;

typedef struct duet__stitch {
    duet_axis_tiles y, x;
    duet_time_chunks time;
    int32_t width, height;
    int n_parts; /* 2, or 3 with `whole` */
    duet__stitch_part part[DUET__N_PARTS];
    float *previous_tail; /* [3, tail, height, width] of the chunk before */
    float *stats;         /* [3 * DUET__N_PARTS] */
    uint8_t *pixels;      /* [DUET__PIXEL_FRAMES, height, width, 3] */
    duet_device *dev;
    void *memory;
} duet__stitch;

/* false: sizes that cannot be tiled or chunked. Fills everything but memory; `bytes` is what open will
 * take. */
bool duet__stitch_plan(const duet_vvae_config *config, int64_t latents, int32_t latent_h, int32_t latent_w,
                       bool whole, duet__stitch *out, int64_t *bytes);
duet_status duet__stitch_open(duet__stitch *s, duet_device *dev, duet_error *err);
void duet__stitch_close(duet__stitch *s); /* the stream must be idle */

/* The raw tile of (row, col) lies in every part's `tile`: blend it in, keep its strips. Rows and columns in
 * order. */
void duet__stitch_tile(duet__stitch *s, duet_stream *stream, int row, int col);
/* Statistics of the raw tile into host[3 * n_parts] after the next sync. */
void duet__stitch_stats(duet__stitch *s, duet_stream *stream, float *host);
/* The canvas is complete: fade the previous chunk's tail into its head (not for the first), then keep its
 * tail. */
void duet__stitch_chunk(duet__stitch *s, duet_stream *stream, bool first);

#endif
