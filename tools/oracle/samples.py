"""Cut large tensors down to samples that a seam or a shift cannot hide from, in a form that compare.py reads.

    NAME@grid.K          values at the outer product of index vectors     NAME@grid.K.axisN   i32, one per axis
    NAME@mean            frames only: mean of each frame and channel, fp64

A picture is sampled on every 7th row and column of chosen frames, plus whole rows and columns around every place where
a tile begins or its fade ends; frames around every chunk seam are among the chosen ones.
"""

import numpy as np

STRIDE = 7


def grid(out, name, value, *axes):
    """Add one grid of samples of `value`; an axis that is None is taken whole."""
    k = sum(key.startswith(f"{name}@grid.") and ".axis" not in key for key in out)
    axes = [np.arange(n) if a is None else np.unique(np.asarray(a)) for a, n in zip(axes, value.shape)]
    axes = [a[(a >= 0) & (a < n)].astype(np.int32) for a, n in zip(axes, value.shape)]
    out[f"{name}@grid.{k}"] = np.ascontiguousarray(value[np.ix_(*axes)])
    for i, axis in enumerate(axes):
        out[f"{name}@grid.{k}.axis{i}"] = axis


def edges(length, split):
    """Pixels around every tile start and every end of a fade along one axis."""
    starts, sizes, overlaps = split(length, 256, 64)
    marks = []
    for i, overlap in enumerate(overlaps):
        start, cut = starts[i + 1], starts[i] + sizes[i] - overlap
        marks += [start, cut, start + overlap]
    return sorted({p for m in marks for p in (m - 2, m - 1, m, m + 1)})


def chosen_frames(count, limit):
    """Frames of every kind: around the first and the last chunk seam, and spread over the rest."""
    seams = range(17, count, 17)
    near = [s + d for s in ([seams[0], seams[-1]] if seams else []) for d in (-1, 0, 1, 4)]
    near = near[:limit]
    spread = np.linspace(0, count - 1, max(2, limit - len(near))).round().astype(int)
    return sorted({int(f) for f in [*near, *spread] if 0 <= f < count})


def frames(out, name, value, split):
    """Sample frames u8 [F, H, W, 3]; `split` is the reference's tile rule. The larger the picture, the fewer frames."""
    count, height, width, _ = value.shape
    limit = max(4, min(16, 400_000 // (height * width)))
    grid(
        out, name, value, chosen_frames(count, limit), range(0, height, STRIDE), range(0, width, STRIDE), None
    )
    strip = [0, min(18, count - 1)]
    rows, columns = edges(height, split), edges(width, split)
    if rows:
        grid(out, name, value, strip, rows, range(0, width, 3), None)
    if columns:
        grid(out, name, value, strip, range(0, height, 3), columns, None)
    out[f"{name}@mean"] = value.mean(axis=(1, 2), dtype=np.float64)


def sound(out, name, value, keep=8192):
    """Sample a waveform [2, n]: both ends and evenly between."""
    n = value.shape[1]
    if n <= keep:
        out[name] = value
        return
    between = np.linspace(0, n - 1, keep // 4).round().astype(int)
    grid(out, name, value, None, [*range(128), *range(n - 128, n), *between])


def spread(out, name, value, keep):
    """Sample any tensor by thinning its longest axes evenly until at most about `keep` elements are left."""
    if value.size <= keep:
        out[name] = value
        return
    steps = [1] * value.ndim
    size = list(value.shape)
    while np.prod([-(-n // s) for n, s in zip(size, steps)]) > keep:
        axis = max(range(value.ndim), key=lambda i: -(-size[i] // steps[i]))
        steps[axis] += 1
    grid(out, name, value, *[range(0, n, s) for n, s in zip(size, steps)])
