"""The toy world of duet-tiny: one or two coloured shapes that move, and the sound they make.

A *scene* is a handful of numbers; picture and sound are closed forms of (scene, time), so a clip of any
length can be rendered from any frame on, in batches, on a CPU or a GPU. One set of formulas serves NumPy and
PyTorch (`Backend`).

    Scenes -> tracks(t): x, y, radius          -> frames  [B, F, H, W, 3]  in 0..1
                         pitch, loudness, pan  -> audio   [B, 2, 800 * hops] at 32 kHz

Rules (the evaluator measures exactly these):
 1. Each object stays in its own *box*: the whole canvas, or one half of it when there are two objects. They
    never overlap. The one named first is on the left or, if one of the two moves left or right or bounces, on top; so words
    alone say where each is. (Where is not measured.) Orbits begin at the top and go clockwise.
 2. Timbre follows the shape (or a scene's `timbre` when a sound reference replaces it), pitch follows the
    radius. Pitches are multiples of 40 Hz, the latent rate of the audio VAE, and change only at its hop
    boundaries: a held note repeats exactly in every latent frame, so phase carries no information.
 3. Stereo position follows x (constant power), loudness falls with the distance from the centre of the
    picture.
 4. Two objects take turns of a quarter second, the first one named first. A lone object sounds all the time.
 5. Every bounce makes one tick, at the audio hop nearest to the moment of reflection (so at most 12.5 ms
    off), inside that hop.

Some combinations of shape, colour and motion are held out from training (`held_out`).
NOT here: words (`grammar.py`), files, networks.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

FPS = 24
SAMPLE_RATE = 32000
HOP = 800  # samples of one audio latent frame
HOPS_PER_SECOND = 40
CANVAS = 256  # px; side of the square every training clip uses

SHAPES = ("circle", "square", "triangle", "star")
COLOURS = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink")
BACKGROUNDS = ("black", "white", "grey", "navy", "sand", "forest")
SIZES = ("small", "medium", "large")
MOTIONS = ("right", "left", "up", "down", "bounce", "orbit", "grow", "shrink", "still")
RIGHT, LEFT, UP, DOWN, BOUNCE, ORBIT, GROW, SHRINK, STILL = range(9)

COLOUR_RGB = (
    np.array(
        [
            [222, 40, 40],
            [246, 140, 20],
            [250, 228, 50],
            [60, 200, 70],
            [50, 210, 222],
            [60, 110, 250],
            [150, 60, 212],
            [250, 130, 195],
        ],
        np.float32,
    )
    / 255
)
# Top and bottom colour of each backdrop.
BACKGROUND_RGB = (
    np.array(
        [
            [[12, 12, 14], [26, 26, 30]],
            [[246, 246, 246], [226, 226, 230]],
            [[116, 118, 122], [140, 142, 146]],
            [[18, 26, 64], [40, 54, 104]],
            [[204, 186, 148], [178, 158, 118]],
            [[16, 56, 36], [36, 88, 58]],
        ],
        np.float32,
    )
    / 255
)

RADIUS = np.array([22.0, 32.0, 48.0], np.float32)  # px by size
RADIUS_MAX_PAIR = 40.0  # px, growing shapes when two share the canvas
# Half extents over the radius, (x, y), by shape; radius is that of the circle.
EXTENT = np.array([[1.0, 1.0], [0.886, 0.886], [1.17, 1.35], [1.24, 1.30]], np.float32)
SQUARE_HALF, TRIANGLE_R, STAR_R, STAR_INNER = 0.886, 1.35, 1.30, 0.50
EDGE_PX = 2.0  # width of the soft edge

# Weights of harmonics 1.. by timbre; normalised to equal power in `wavetables`.
HARMONICS = ((1.0,), (1.0, 0.0, 0.6), (1.0, 0.75, 0.55, 0.4), (0.45, 1.0, 0.0, 0.7))
PITCH_MAX_STEP = 16  # 640 Hz / 40
TONE_RMS = 0.16
TICK_HZ, TICK_LEVEL = 3200.0, 0.6  # above every harmonic of every note; fades in and out within one hop
TURN_HOPS = 10  # a quarter second

ROWS_MOTIONS = (RIGHT, LEFT, BOUNCE, ORBIT, GROW, SHRINK, STILL)
SIDEWAYS = (RIGHT, LEFT, BOUNCE)  # need the whole width, so they are in ROWS_MOTIONS alone
COLS_MOTIONS = (UP, DOWN, ORBIT, GROW, SHRINK, STILL)
ORBIT_SECONDS = 2.5  # of one turn


def frames_to_hops(frames: int) -> int:
    """Audio latent frames that go with `frames` video frames (never a tie)."""
    return int(round(frames / FPS * HOPS_PER_SECOND))


class Backend:
    """NumPy or PyTorch behind one name. `xp` is the module; `const` puts a table where the data lives."""

    def __init__(self, device: str | None = None) -> None:
        if device is None:
            self.xp, self.device = np, None
        else:
            import torch

            self.xp, self.device = torch, device

    def const(self, value):
        """A float32 or int64 array on the device."""
        array = np.asarray(value)
        array = array.astype(np.int64 if array.dtype.kind in "iub" else np.float32)
        return array if self.device is None else self.xp.from_numpy(array).to(self.device)

    def arange(self, count: int):
        """0 .. count-1 as float32."""
        return self.const(np.arange(count, dtype=np.float32))


@dataclasses.dataclass
class Scenes:
    """A batch of scenes. Arrays are NumPy; per object ones are [B, 2], object 1 of a lone scene is
    ignored."""

    count: np.ndarray  # [B] 1 or 2
    background: np.ndarray  # [B]
    shape: np.ndarray
    colour: np.ndarray
    size: np.ndarray  # ignored by grow and shrink
    motion: np.ndarray
    timbre: np.ndarray  # = shape unless a sound reference says otherwise
    chance: np.ndarray  # [B, 2, 4] uniform in 0..1: start, cross position, speed; the last is not used

    def __len__(self) -> int:
        return len(self.count)

    def take(self, index) -> "Scenes":
        """The scenes at `index` (an index array or slice)."""
        return Scenes(*(getattr(self, f.name)[index] for f in dataclasses.fields(self)))

    def to_json(self, i: int) -> dict:
        """Scene `i` in words, for manifests."""
        objects = [
            {
                "shape": SHAPES[self.shape[i, k]],
                "colour": COLOURS[self.colour[i, k]],
                "size": SIZES[self.size[i, k]],
                "motion": MOTIONS[self.motion[i, k]],
                "timbre": SHAPES[self.timbre[i, k]],
            }
            for k in range(self.count[i])
        ]
        return {"background": BACKGROUNDS[self.background[i]], "objects": objects}


def concatenate(parts: list[Scenes]) -> Scenes:
    """One batch out of several."""
    return Scenes(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in dataclasses.fields(Scenes)))


def held_out(shape: np.ndarray, colour: np.ndarray, motion: np.ndarray) -> np.ndarray:
    """True for the one combination in eight that training never shows (every value of each attribute is
    still seen)."""
    return (3 * shape + colour + 5 * motion) % 8 == 1


def scene_held_out(scenes: Scenes) -> np.ndarray:
    """[B] True if any object of the scene has a held-out combination."""
    flags = held_out(scenes.shape, scenes.colour, scenes.motion)
    flags[:, 1] &= scenes.count == 2
    return flags.any(1)


def _draw(rng: np.random.Generator, n: int, pair_share: float) -> Scenes:
    """Unconstrained scenes."""
    count = 1 + (rng.random(n) < pair_share).astype(np.int64)
    rows = rng.integers(0, 2, n)  # which motions two objects may have
    single = rng.integers(0, 9, (n, 2))
    in_rows = np.array(ROWS_MOTIONS)[rng.integers(0, len(ROWS_MOTIONS), (n, 2))]
    in_cols = np.array(COLS_MOTIONS)[rng.integers(0, len(COLS_MOTIONS), (n, 2))]
    motion = np.where(count[:, None] == 1, single, np.where(rows[:, None] == 1, in_rows, in_cols))
    size = np.where(count[:, None] == 1, rng.integers(0, 3, (n, 2)), rng.integers(0, 2, (n, 2)))
    shape = rng.integers(0, 4, (n, 2))
    colour = rng.integers(0, 8, (n, 2))
    background = rng.integers(0, 6, n)
    rng.integers(0, 2, n)  # not used: a seed keeps the prompts that earlier tables are of
    return Scenes(
        count,
        background,
        shape,
        colour,
        size,
        motion,
        shape.copy(),
        rng.random((n, 2, 4)).astype(np.float32),
    )


def sample_scenes(n: int, seed, pair_share: float = 0.35, split: str = "train") -> Scenes:
    """`n` scenes of a split: 'train' (no held-out combination), 'test' (each object held out) or 'all'."""
    rng = np.random.default_rng(seed)
    kept, have = [], 0
    while have < n:
        scenes = _draw(rng, max(64, 2 * n), pair_share)
        flags = held_out(scenes.shape, scenes.colour, scenes.motion)
        lone = scenes.count == 1
        if split == "train":
            keep = ~scene_held_out(scenes)
        elif split == "test":
            keep = flags[:, 0] & (lone | flags[:, 1])
        else:
            keep = np.ones(len(scenes), bool)
        # Two objects of one colour and shape could not be told apart by words.
        keep &= lone | (scenes.colour[:, 0] != scenes.colour[:, 1])
        kept.append(scenes.take(np.flatnonzero(keep)))
        have += len(kept[-1])
    return concatenate(kept).take(slice(0, n))


def boxes(scenes: Scenes, width: int, height: int) -> np.ndarray:
    """[B, 2, 4] x0, y0, x1, y1 of each object's box, px. The second object's is right of the first one's or below it."""
    half, w, h = np.arange(2), float(width), float(height)
    box = np.zeros((len(scenes), 2, 4), np.float32)
    box[..., 2], box[..., 3] = w, h
    pair, rows = (scenes.count == 2)[:, None], np.isin(scenes.motion, SIDEWAYS).any(1, keepdims=True)
    box[..., 0] = np.where(pair & ~rows, half * w / 2, 0)
    box[..., 2] = np.where(pair & ~rows, (half + 1) * w / 2, w)
    box[..., 1] = np.where(pair & rows, half * h / 2, 0)
    box[..., 3] = np.where(pair & rows, (half + 1) * h / 2, h)
    return box


class Tracks:
    """Positions and radii of a batch of scenes as functions of time, for clips of `frames` frames."""

    def __init__(
        self, backend: Backend, scenes: Scenes, frames: int, width: int = CANVAS, height: int = CANVAS
    ) -> None:
        self.backend, self.scenes = backend, scenes
        self.frames, self.width, self.height = frames, width, height
        self.seconds = frames / FPS
        self._plan()

    def _plan(self) -> None:
        """Constants of the closed forms, [B, 2] each."""
        s, d = self.scenes, self.seconds
        u0, u1, u2, _ = np.moveaxis(s.chance, -1, 0)
        changing = (s.motion == GROW) | (s.motion == SHRINK)
        r_max = np.where(s.count[:, None] == 2, RADIUS_MAX_PAIR, RADIUS[2])
        rate = np.minimum(5.5, 0.98 * (r_max - RADIUS[0]) / d)  # px/s
        r_low = RADIUS[0] + u2 * (r_max - RADIUS[0] - rate * d)
        grows = s.motion == GROW
        r0 = np.where(changing, np.where(grows, r_low, r_low + rate * d), RADIUS[s.size])
        dr = np.where(changing, np.where(grows, rate, -rate), 0.0)
        widest = np.where(changing, np.maximum(r0, r0 + dr * d), r0)
        ext = EXTENT[s.shape] * widest[..., None]
        box = boxes(s, self.width, self.height)
        lo = box[..., 0:2] + ext + 1.0
        span = np.maximum(box[..., 2:4] - ext - 1.0 - lo, 1.0)  # free travel, [B, 2, (x, y)]
        along = np.minimum((32.0 + 8.0 * u2)[..., None], 0.98 * span / d)  # px/s of the straight motions
        start = lo + np.stack([u0, u1], -1) * span  # of what does not move along the axis
        begin = lo + u0[..., None] * (span - along * d)  # low end of a straight path
        centre = box[..., 0:2] + 0.5 * (box[..., 2:4] - box[..., 0:2])
        orbit = np.minimum(56.0, 0.5 * span.min(-1) * 0.95)
        slack = np.maximum(0.5 * span - orbit[..., None], 0.0)
        middle = centre + (2 * np.stack([u0, u1], -1) - 1) * slack * 0.8
        const = self.backend.const
        self.motion = const(s.motion)
        self.r0, self.dr, self.orbit = const(r0), const(dr), const(orbit)
        self.lo, self.span, self.along = const(lo), const(span), const(along)
        self.start, self.begin, self.middle = const(start), const(begin), const(middle)
        self.bounce_speed = const(100.0 + 20.0 * u2)
        self.bounce_start = const(u0 * 2.0 * span[..., 0])

    def radius(self, t):
        """[B, 2, T] px at times t [T] seconds."""
        return self.r0[..., None] + self.dr[..., None] * t

    def position(self, t):
        """x and y, each [B, 2, T] px."""
        xp, m = self.backend.xp, self.motion[..., None]
        zero = 0.0 * t
        ends = self.begin + self.along * self.seconds
        x, y = self.start[..., 0, None] + zero, self.start[..., 1, None] + zero
        x = xp.where(m == RIGHT, self.begin[..., 0, None] + self.along[..., 0, None] * t, x)
        x = xp.where(m == LEFT, ends[..., 0, None] - self.along[..., 0, None] * t, x)
        y = xp.where(m == DOWN, self.begin[..., 1, None] + self.along[..., 1, None] * t, y)
        y = xp.where(m == UP, ends[..., 1, None] - self.along[..., 1, None] * t, y)
        span = self.span[..., 0, None]
        way = xp.remainder(self.bounce_start[..., None] + self.bounce_speed[..., None] * t, 2 * span)
        x = xp.where(m == BOUNCE, self.lo[..., 0, None] + span - xp.abs(way - span), x)
        angle = (2 * math.pi / ORBIT_SECONDS) * t
        x = xp.where(m == ORBIT, self.middle[..., 0, None] + self.orbit[..., None] * xp.sin(angle), x)
        y = xp.where(m == ORBIT, self.middle[..., 1, None] - self.orbit[..., None] * xp.cos(angle), y)
        return x, y

    def bounces(self):
        """Ticks: (hop [B, 2, N] float, wall x [B, 2, N], valid [B, 2, N])."""
        xp = self.backend.xp
        span = self.span[..., 0, None]
        n = self.backend.arange(2 + int(120 * self.seconds / 60)) + 1.0
        first = xp.floor(self.bounce_start[..., None] / span)
        hit = ((first + n) * span - self.bounce_start[..., None]) / self.bounce_speed[..., None]
        hop = xp.floor(hit * HOPS_PER_SECOND + 0.5)
        right = xp.remainder(first + n, 2.0 + 0.0 * first) > 0.5
        wall = self.lo[..., 0, None] + xp.where(right, span + 0.0 * hit, 0.0 * hit)
        here = self.backend.const(np.arange(2)[None, :] < self.scenes.count[:, None])[..., None] > 0
        return hop, wall, (self.motion[..., None] == BOUNCE) & here & (hop < frames_to_hops(self.frames))


def _folded(xp, dx, dy, corners: int):
    """Polar coordinates folded into half a sector of a polygon with a corner upwards: radius, |angle| from a
    corner."""
    sector = 2 * math.pi / corners
    angle = xp.arctan2(dx, -dy)
    return xp.sqrt(dx * dx + dy * dy + 1e-6), xp.abs(xp.remainder(angle + sector / 2, sector) - sector / 2)


def signed_distances(xp, dx, dy, r):
    """Distance to each shape's outline, negative inside (four arrays in the order of SHAPES); r is the
    radius."""
    rho, a3 = _folded(xp, dx, dy, 3)
    _, a5 = _folded(xp, dx, dy, 5)
    outer, inner = STAR_R * r, STAR_R * STAR_INNER * r
    c5, s5 = math.cos(math.pi / 5), math.sin(math.pi / 5)
    length = math.hypot(STAR_R - STAR_R * STAR_INNER * c5, STAR_R * STAR_INNER * s5)
    ex, ey = (inner * c5 - outer) / (length * r), inner * s5 / (length * r)
    star = ey * (rho * xp.cos(a5) - outer) - ex * (rho * xp.sin(a5))
    triangle = rho * xp.cos(a3 - math.pi / 3) - 0.5 * TRIANGLE_R * r
    return rho - r, xp.maximum(xp.abs(dx), xp.abs(dy)) - SQUARE_HALF * r, triangle, star


def coverage(xp, distance):
    """Opacity of a pixel at `distance` px from the outline: a smooth step EDGE_PX wide."""
    u = xp.clip(0.5 - distance / EDGE_PX, 0.0, 1.0)
    return u * u * (3.0 - 2.0 * u)


def render(tracks: Tracks, first_frame: int = 0, frames: int | None = None):
    """Frames [B, F, H, W, 3] in 0..1, from `first_frame` on."""
    backend, xp, s = tracks.backend, tracks.backend.xp, tracks.scenes
    frames = tracks.frames - first_frame if frames is None else frames
    t = (backend.arange(frames) + float(first_frame)) / FPS
    x, y = tracks.position(t)
    r = tracks.radius(t)
    px, py = backend.arange(tracks.width) + 0.5, backend.arange(tracks.height) + 0.5
    ramp = (py / tracks.height)[None, None, :, None, None]
    shades = backend.const(BACKGROUND_RGB[s.background])
    top, bottom = shades[:, 0][:, None, None, None, :], shades[:, 1][:, None, None, None, :]
    image = (
        top + (bottom - top) * ramp + 0.0 * px[None, None, None, :, None] + 0.0 * t[None, :, None, None, None]
    )
    present = backend.const((np.arange(2)[None, :] < s.count[:, None]).astype(np.float32))
    kind = backend.const(s.shape)
    rgb = backend.const(COLOUR_RGB[s.colour])
    for k in range(2 if (s.count == 2).any() else 1):
        dx = px[None, None, None, :] - x[:, k, :, None, None]
        dy = py[None, None, :, None] - y[:, k, :, None, None]
        d = signed_distances(xp, dx + 0.0 * dy, dy + 0.0 * dx, r[:, k, :, None, None])
        which = kind[:, k][:, None, None, None]
        chosen = xp.where(which == 0, d[0], xp.where(which == 1, d[1], xp.where(which == 2, d[2], d[3])))
        alpha = (coverage(xp, chosen) * present[:, k][:, None, None, None])[..., None]
        image = image + alpha * (rgb[:, k][:, None, None, None, :] - image)
    return image


def paint(tracks: Tracks, first_frame: int = 0, frames: int | None = None) -> np.ndarray:
    """Frames [F, H, W, 3] uint8 of a batch of one scene, NumPy only: as `render` and rounded, but only near
    the shapes."""
    s, frames = tracks.scenes, tracks.frames - first_frame if frames is None else frames
    t = (np.arange(frames, dtype=np.float32) + first_frame) / FPS
    x, y = tracks.position(t)
    r = tracks.radius(t)
    top, bottom = BACKGROUND_RGB[s.background[0]]
    ramp = ((np.arange(tracks.height, dtype=np.float32) + 0.5) / tracks.height)[:, None, None]
    plain = np.broadcast_to(top + (bottom - top) * ramp, (tracks.height, tracks.width, 3))
    out = np.empty((frames, tracks.height, tracks.width, 3), np.uint8)
    for f in range(frames):
        image = plain.copy()
        for k in range(int(s.count[0])):
            reach = 1.4 * r[0, k, f] + 3.0
            x0, x1 = max(int(x[0, k, f] - reach), 0), min(int(x[0, k, f] + reach) + 1, tracks.width)
            y0, y1 = max(int(y[0, k, f] - reach), 0), min(int(y[0, k, f] + reach) + 1, tracks.height)
            dx = np.arange(x0, x1, dtype=np.float32)[None] + 0.5 - x[0, k, f]
            dy = np.arange(y0, y1, dtype=np.float32)[:, None] + 0.5 - y[0, k, f]
            d = signed_distances(np, dx + 0 * dy, dy + 0 * dx, r[0, k, f])[int(s.shape[0, k])]
            part = image[y0:y1, x0:x1]
            part += coverage(np, d)[..., None] * (COLOUR_RGB[s.colour[0, k]] - part)
        out[f] = np.floor(image * 255 + 0.5).astype(np.uint8)
    return out


def wavetables() -> np.ndarray:
    """[timbre, pitch step 0..16, 800] one hop of every note; step k is 40 k Hz."""
    time = np.arange(HOP) / HOP
    out = np.zeros((len(HARMONICS), PITCH_MAX_STEP + 1, HOP), np.float32)
    for i, weights in enumerate(HARMONICS):
        scale = TONE_RMS * math.sqrt(2.0) / math.sqrt(sum(w * w for w in weights))
        for step in range(1, PITCH_MAX_STEP + 1):
            for h, w in enumerate(weights):
                out[i, step] += scale * w * np.sin(2 * math.pi * step * (h + 1) * time)
    return out


def pitch_steps(xp, radius):
    """Pitch in units of 40 Hz: 16 (small), 10 (medium), 6 (large), between them by a power law."""
    return xp.clip(xp.floor(6.0 * (48.0 / radius) ** 1.257 + 0.5), 1, PITCH_MAX_STEP)


def loudness(xp, x, y, width: int, height: int):
    """1 at the centre of the picture, a half at the middle of an edge."""
    return 1.0 / (1.0 + ((x - width / 2) / (width / 2)) ** 2 + ((y - height / 2) / (height / 2)) ** 2)


def pan_gains(xp, x, width: int):
    """Left and right gain of a source at x: constant power."""
    angle = xp.clip(x / width, 0.0, 1.0) * (math.pi / 2)
    return xp.cos(angle), xp.sin(angle)


def turns(backend: Backend, scenes: Scenes, hops: int, first_hop: int = 0) -> np.ndarray:
    """[B, 2, hops] 1 where an object sounds."""
    turn = ((np.arange(hops) + first_hop) // TURN_HOPS) % 2
    mine = (turn[None, None, :] == np.arange(2)[None, :, None]).astype(np.float32)
    lone = np.array([1.0, 0.0], np.float32)[None, :, None]
    return backend.const(np.where((scenes.count == 2)[:, None, None], mine, lone))


def tick_wave() -> np.ndarray:
    """The 800 samples of a tick: whole periods under a bell, so that it is one latent frame and no more."""
    time = np.arange(HOP) / SAMPLE_RATE
    bell = 0.5 - 0.5 * np.cos(2 * math.pi * np.arange(HOP) / HOP)
    return (TICK_LEVEL * bell * np.sin(2 * math.pi * TICK_HZ * time)).astype(np.float32)


def synthesise(
    tracks: Tracks, first_hop: int = 0, hops: int | None = None, tick_delay: np.ndarray | None = None
):
    """Sound [B, 2, 800 * hops] in -1..1, from `first_hop` on. `tick_delay` [B, 2, N], in hops, makes ticks come at other
    times than their bounces."""
    backend, xp, s = tracks.backend, tracks.backend.xp, tracks.scenes
    hops = frames_to_hops(tracks.frames) - first_hop if hops is None else hops
    edge = (backend.arange(hops + 1) + float(first_hop)) / HOPS_PER_SECOND
    x, y = tracks.position(edge)
    gate = turns(backend, s, hops + 1, first_hop)
    level = loudness(xp, x, y, tracks.width, tracks.height) * gate
    gains = xp.stack([level * g for g in pan_gains(xp, x, tracks.width)], 2)  # [B, obj, ch, hops + 1]
    step = pitch_steps(xp, tracks.radius(edge[:-1]))
    step = step.astype(np.int64) if xp is np else step.long()
    note = backend.const(wavetables())[backend.const(s.timbre)[..., None], step]  # [B, obj, hops, 800]
    ramp = backend.arange(HOP) / HOP
    out = None
    for k in range(2):
        a, b = gains[:, k, :, :-1, None], gains[:, k, :, 1:, None]
        voice = note[:, k][:, None] * (a + (b - a) * ramp)
        out = voice if out is None else out + voice
    return _add_ticks(tracks, out.reshape(len(s), 2, hops * HOP), first_hop, tick_delay)


def _add_ticks(tracks: Tracks, audio, first_hop: int, delay: np.ndarray | None):
    """Adds the ticks of all bounces; they are few, so one at a time."""
    xp = tracks.backend.xp
    hop, wall, valid = tracks.bounces()
    if xp is not np:
        hop, wall, valid = (a.cpu().numpy() for a in (hop, wall, valid))
    hop = hop if delay is None else hop + delay
    wave, total = tracks.backend.const(tick_wave()), audio.shape[-1] // HOP
    for b, k, n in zip(*np.nonzero(valid)):
        at = int(hop[b, k, n]) - first_hop
        if 0 <= at < total:
            for c, gain in enumerate(pan_gains(np, wall[b, k, n], tracks.width)):
                audio[b, c, at * HOP : (at + 1) * HOP] += float(gain) * wave
    return audio
