/* weight.h - weights are handles, never pointers.
 *
 * A weight has a canonical shape and row order (`[q;k;v]`, `[gate;up]`), while its bytes may lie in the file
 * in another order or in several tensors. So storage is a short list of *pieces*: consecutive canonical rows,
 * each piece possibly with a block stride.
 *
 *     native qkv, rows interleaved per head (heads x 3 x d):  three pieces of heads*d rows;
 *         piece p: data = base + p*d rows, block_rows = d, block_stride_rows = 3*d
 *     diffusers fc1 [up;gate]:  piece 0 = second half, piece 1 = first half
 *     anything else:            one piece, block_rows = rows
 *
 * A row is everything but the first dimension (rank 1: one element). Kernels find a row with duet_weight_row,
 * or copy rows while packing; both cost nothing beside the product itself, and files stay mapped instead of
 * copied.
 *
 * Ownership: `pieces[].data` is borrowed from the store (mapped file) or from `owned`; `prepared` belongs to
 * the backend that made it. A handle is immutable while a unit that holds it is acquired. */
#ifndef DUET_TENSOR_WEIGHT_H
#define DUET_TENSOR_WEIGHT_H

#include "tensor/tensor.h"

enum { DUET_MAX_PIECES = 4 };

typedef struct duet_weight_piece {
    const void *data;          /* first row of the piece; aligned for its dtype */
    int64_t rows;              /* canonical rows in this piece */
    int64_t block_rows;        /* rows that lie next to each other */
    int64_t block_stride_rows; /* distance between the starts of blocks, in rows */
} duet_weight_piece;

typedef struct duet_weight {
    const char *name; /* canonical (native) name, for messages */
    duet_shape shape; /* canonical */
    duet_dtype dtype; /* storage type of all pieces */
    int n_pieces;     /* 0 = absent (optional weight) */
    bool
        mapped; /* every piece lies in a read-only mapping of a file: its pages may be dropped (base/pages.h) */
    duet_weight_piece piece[DUET_MAX_PIECES];
    void *prepared; /* backend's own form (packed panels, device copy) or NULL */
} duet_weight;

static inline int64_t duet_weight_rows(const duet_weight *w) {
    return w->shape.rank ? w->shape.dim[0] : 1;
}

/* Elements of one row: product of all dimensions but the first. */
static inline int64_t duet_weight_row_elems(const duet_weight *w) {
    int64_t n = 1;
    for (int i = 1; i < w->shape.rank; i++) n *= w->shape.dim[i];
    return n;
}

/* Address of canonical row `row` (0 <= row < rows). */
static inline const void *duet_weight_row(const duet_weight *w, int64_t row) {
    int p = 0;
    while (row >= w->piece[p].rows) row -= w->piece[p++].rows;
    const duet_weight_piece *piece = &w->piece[p];
    int64_t at = row / piece->block_rows * piece->block_stride_rows + row % piece->block_rows;
    return (const char *)piece->data + (size_t)(at * duet_weight_row_elems(w)) * duet_dtype_bytes(w->dtype);
}

/* A plain one-piece view of contiguous data. */
static inline duet_weight duet_weight_view(const char *name, duet_dtype dtype, duet_shape shape,
                                           const void *data) {
    duet_weight w = {.name = name, .shape = shape, .dtype = dtype, .n_pieces = 1};
    int64_t rows = shape.rank ? shape.dim[0] : 1;
    w.piece[0] =
        (duet_weight_piece){.data = data, .rows = rows, .block_rows = rows, .block_stride_rows = rows};
    return w;
}

#endif
