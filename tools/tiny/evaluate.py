#!/usr/bin/env python3
"""Reads clips of the toy world, made by any engine, and says how well they fit their prompts, from pixels
and samples alone.

    evaluate.py clip.mp4 --prompt "A small red circle slides to the right over navy."
    evaluate.py clips.json

A manifest is a list of {"file": "a.mp4", "prompt": "...", "first": "k.png", "last": ..., "references": []}.

A clip is a video file or a folder with PNG frames and one WAV. References are {"kind": "image", "video" or
"audio", "file": ...}; what a prompt leaves to them is measured on the reference itself. Needs Python 3, NumPy
and the `ffmpeg` program.

How it measures
  picture   the backdrop is the known one that most pixels agree with; what differs from it falls into
            connected pieces; a piece's colour is the nearest of the palette, its shape the template of equal
            area with the best overlap, its motion a decision on its path and radius.
  sound     every window is explained by a pitch and a timbre together (the harmonic template that holds most
            energy); position is the angle of the channel levels; ticks are peaks around 3.2 kHz.
  together  stereo position against x, ticks against the moments of reflection seen in the path.

Objects of the picture are matched with those of the prompt by looks; the first named sounds in even turns
(`world.py`, rule 4). What a prompt does not name is not measured; a prompt that names nothing of the toy
world is refused in one line, with exit code 1, like a file that cannot be read.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import re
import subprocess
import sys

import numpy as np

import grammar
import jsonfile
import options
import world

PIECE_CELLS = 28  # smallest piece, in cells of 4 x 4 px
STEADY = 0.8  # share of frames that must show the same number of pieces
WINDOW = 3200  # samples of one sound window
PITCHES = 220.0 * 2.0 ** (np.arange(0, 12 * 1.75, 0.1) / 12)  # Hz, a tenth of a semitone apart
AREA = {
    0: math.pi,
    1: 4 * world.SQUARE_HALF**2,
    2: 0.75 * math.sqrt(3) * world.TRIANGLE_R**2,
    3: 5 * world.STAR_R**2 * world.STAR_INNER * math.sin(math.pi / 5),
}  # of a shape over its radius squared


# ---- reading -----------------------------------------------------------------------------------------


def _ffmpeg(*arguments: str) -> bytes:
    """What ffmpeg writes. RuntimeError if it fails, or reads what it says is damaged: a clip cut off is no shorter clip."""
    try:
        run = subprocess.run(
            ["ffmpeg", "-v", "error", "-nostdin", *arguments], capture_output=True, check=False
        )
    except FileNotFoundError:
        raise RuntimeError("the ffmpeg program is needed and not installed") from None
    said = re.sub(r"\[[^\]]* @ 0x[0-9a-f]+\] ", "", run.stderr.decode(errors="replace")).strip().splitlines()
    if run.returncode or said:
        raise RuntimeError(f"cannot be read whole: {said[0] if said else 'ffmpeg failed'}")
    return run.stdout


def _ppm_stream(data: bytes) -> np.ndarray:
    """Frames [F, H, W, 3] of concatenated binary PPM pictures of one size."""
    fields, at = [], 0
    while len(fields) < 4:
        end = at
        while data[end : end + 1] not in (b" ", b"\n"):
            end += 1
        fields.append(data[at:end])
        at = end + 1
    width, height = int(fields[1]), int(fields[2])
    size = at + width * height * 3
    count = len(data) // size
    raw = np.frombuffer(data, np.uint8, count * size).reshape(count, size)
    return raw[:, at:].reshape(count, height, width, 3)


def read_frames(path: pathlib.Path) -> np.ndarray:
    """Frames [F, H, W, 3] uint8 of a video, a picture or a folder of PNG files."""
    if path.is_dir():
        source = ["-pattern_type", "glob", "-framerate", str(world.FPS), "-i", str(path / "*.png")]
    else:
        source = ["-i", str(path)]
    return _ppm_stream(
        _ffmpeg(*source, "-an", "-fps_mode", "passthrough", "-f", "image2pipe", "-c:v", "ppm", "-")
    )


def read_sound(path: pathlib.Path) -> np.ndarray:
    """[2, samples] float32 at 32 kHz; empty if there is no sound. RuntimeError if there is one that cannot be read."""
    if path.is_dir():
        found = sorted(path.glob("*.wav"))
        if not found:
            return np.zeros((2, 0), np.float32)
        path = found[0]
    try:
        raw = _ffmpeg("-i", str(path), "-vn", "-ac", "2", "-ar", str(world.SAMPLE_RATE), "-f", "f32le", "-")
    except RuntimeError as problem:
        if "does not contain any stream" not in str(problem):
            raise
        raw = b""
    return np.frombuffer(raw, np.float32).reshape(-1, 2).T


# ---- picture -----------------------------------------------------------------------------------------


def backdrop_of(frames: np.ndarray) -> tuple[int | None, np.ndarray]:
    """The backdrop most pixels agree with (None if under a third do), and that backdrop [H, 1, 3]."""
    height = frames.shape[1]
    ramp = ((np.arange(height) + 0.5) / height)[:, None]
    some = frames[:: max(1, len(frames) // 4), :, ::4].astype(np.float32) / 255
    best, votes, plain = None, 0.34, None
    for i, (top, bottom) in enumerate(world.BACKGROUND_RGB):
        rows = (top + (bottom - top) * ramp)[:, None].astype(np.float32)
        share = float((np.abs(some - rows).max(-1) < 0.07).mean())
        if plain is None or share > votes:
            plain = rows
            if share > votes:
                best, votes = i, share
    return best, plain


def label_pieces(mask: np.ndarray) -> np.ndarray:
    """Connected pieces of each mask of a stack [F, h, w]: labels > 0, 0 outside (4-neighbourhood, numbers
    arbitrary)."""
    height, width = mask.shape[1:]
    labels = np.where(mask, np.arange(1, height * width + 1).reshape(height, width), 0)
    while True:
        before = labels
        grown = labels.copy()
        grown[:, 1:] = np.maximum(grown[:, 1:], labels[:, :-1])
        grown[:, :-1] = np.maximum(grown[:, :-1], labels[:, 1:])
        grown[:, :, 1:] = np.maximum(grown[:, :, 1:], grown[:, :, :-1])
        grown[:, :, :-1] = np.maximum(grown[:, :, :-1], grown[:, :, 1:])
        labels = np.where(mask, grown, 0)
        if np.array_equal(labels, before):
            return labels


def _pieces(mask: np.ndarray) -> list[list[np.ndarray]]:
    """Per frame the large pieces, largest first, as full-size boolean masks of cells."""
    f, h, w = mask.shape
    cells = mask[:, : h // 4 * 4, : w // 4 * 4].reshape(f, h // 4, 4, w // 4, 4).mean((2, 4)) > 0.5
    labels, out = label_pieces(cells), []
    for frame in labels:
        values, counts = np.unique(frame[frame > 0], return_counts=True)
        order = [v for c, v in sorted(zip(counts, values), reverse=True) if c >= PIECE_CELLS]
        out.append([frame == v for v in order])
    return out


class Track:
    """One object over the frames: centre, area and what it looks like."""

    def __init__(self, count: int) -> None:
        self.x, self.y, self.area = (np.full(count, np.nan) for _ in range(3))
        self.colour: int | None = None
        self.shape: int | None = None
        self.motion: int | None = None

    def radius(self) -> np.ndarray:
        """Radius by frame, by the area of its shape."""
        return np.sqrt(self.area / AREA[self.shape or 0])


def _near(cells: np.ndarray, height: int, width: int) -> tuple[slice, slice]:
    rows, cols = np.flatnonzero(cells.any(1)), np.flatnonzero(cells.any(0))
    return (
        slice(max(4 * rows[0] - 6, 0), min(4 * rows[-1] + 10, height)),
        slice(max(4 * cols[0] - 6, 0), min(4 * cols[-1] + 10, width)),
    )


def _best_shape(soft: np.ndarray, x: float, y: float, area: float) -> int:
    """The template of equal area that overlaps a soft mask best."""
    dx = np.arange(soft.shape[1])[None] + 0.5 - x
    dy = np.arange(soft.shape[0])[:, None] + 0.5 - y
    scores = []
    for shape in range(len(world.SHAPES)):
        r = math.sqrt(area / AREA[shape])
        template = world.coverage(np, world.signed_distances(np, dx + 0 * dy, dy + 0 * dx, r)[shape])
        scores.append(np.minimum(soft, template).sum() / np.maximum(soft, template).sum())
    return int(np.argmax(scores))


def _measure(
    track: Track, f: int, frame: np.ndarray, plain: np.ndarray, cells: np.ndarray, looks: list, inspect: bool
) -> None:
    """Centre and area of one piece, and now and then its colour and shape."""
    height, width = frame.shape[:2]
    ys, xs = _near(cells, height, width)
    # Other pieces in the box are cut off along the cells, grown by one.
    grown = np.pad(cells, 1)
    grown = grown[1:-1, 1:-1] | grown[:-2, 1:-1] | grown[2:, 1:-1] | grown[1:-1, :-2] | grown[1:-1, 2:]
    grown = np.kron(grown, np.ones((4, 4), bool))
    inside = np.zeros((height, width), bool)
    inside[: grown.shape[0], : grown.shape[1]] = grown
    pixels = frame[ys, xs].astype(np.float32) / 255
    contrast = np.linalg.norm(pixels - plain[ys], axis=-1) * inside[ys, xs]
    full = np.percentile(contrast[contrast > 0.1], 75) if (contrast > 0.1).any() else 1.0
    soft = np.clip(contrast / full, 0, 1)
    area = float(soft.sum())
    if area < 1:
        return
    track.area[f] = area
    cx = float((soft.sum(0) * (np.arange(soft.shape[1]) + 0.5)).sum() / area)
    cy = float((soft.sum(1) * (np.arange(soft.shape[0]) + 0.5)).sum() / area)
    track.x[f], track.y[f] = cx + xs.start, cy + ys.start
    if inspect:
        colour = np.median(pixels[soft > 0.95], axis=0) if (soft > 0.95).any() else np.zeros(3)
        distance = np.linalg.norm(world.COLOUR_RGB - colour, axis=1)
        looks.append(
            (int(distance.argmin()) if distance.min() < 0.22 else None, _best_shape(soft, cx, cy, area))
        )


def _vote(values: list):
    values = [v for v in values if v is not None]
    return max(set(values), key=values.count) if values else None


def analyse_frames(frames: np.ndarray) -> dict:
    """Backdrop, number of objects and tracks of a clip."""
    backdrop, plain = backdrop_of(frames)
    distance = np.abs(frames.astype(np.float32) / 255 - plain).max(-1)
    pieces = _pieces(distance > 0.12)
    counts = [len(p) for p in pieces]
    count = min(max(set(counts), key=counts.count), 2)
    tracks = [Track(len(frames)) for _ in range(count)]
    looks: list[list] = [[] for _ in range(count)]
    last: list[tuple[float, float] | None] = [None] * count
    for f, found in enumerate(pieces):
        centres = [tuple(4 * np.argwhere(c).mean(0) + 2) for c in found[:count]]
        order = list(range(len(centres)))
        if count == 2 and len(centres) == 2 and last[0] and last[1]:
            keep = math.dist(centres[0], last[0]) + math.dist(centres[1], last[1])
            swap = math.dist(centres[1], last[0]) + math.dist(centres[0], last[1])
            order = [0, 1] if keep <= swap else [1, 0]
        elif count == 2 and len(centres) != 2:
            continue
        for k, i in enumerate(order):
            last[k] = centres[i]
            _measure(tracks[k], f, frames[f], plain, found[i], looks[k], f % max(1, len(frames) // 8) == 0)
    for track, seen in zip(tracks, looks):
        track.colour, track.shape = _vote([c for c, _ in seen]), _vote([s for _, s in seen])
        if len(frames) > 1:
            track.motion = classify_motion(track)
    steady = counts.count(max(set(counts), key=counts.count)) / len(counts)
    return {
        "backdrop": backdrop,
        "count": max(set(counts), key=counts.count),
        "steady": steady,
        "tracks": tracks,
        "width": frames.shape[2],
    }


def _smooth(v: np.ndarray) -> np.ndarray:
    """Gaps filled, short median."""
    known = np.flatnonzero(~np.isnan(v))
    v = np.interp(np.arange(len(v)), known, v[known])
    return np.median(np.stack([v[np.clip(np.arange(len(v)) + d, 0, len(v) - 1)] for d in (-1, 0, 1)]), 0)


def _reversals(x: np.ndarray, least: float) -> list[int]:
    """Frames where x turns round by more than `least` px on both sides."""
    turns, extreme, at, way = [], x[0], 0, 0
    for f, v in enumerate(x):
        if way >= 0 and v > extreme or way <= 0 and v < extreme:
            if way == 0 and abs(v - x[0]) < least:
                continue
            way = way or (1 if v > x[0] else -1)
            extreme, at = v, f
        elif way and abs(v - extreme) > least:
            turns.append(at)
            way, extreme, at = -way, v, f
    return turns


def classify_motion(track: Track) -> int | None:
    """Which of the motions a path is."""
    if np.isnan(track.x).mean() > 0.3:
        return None
    x, y, r = _smooth(track.x), _smooth(track.y), _smooth(np.sqrt(track.area / math.pi))
    edge = max(2, len(x) // 10)
    change = (r[-edge:].mean() - r[:edge].mean()) / r.mean()
    wide, tall = np.ptp(x), np.ptp(y)
    if max(wide, tall) < 9:
        return world.STILL if abs(change) < 0.12 else (world.GROW if change > 0 else world.SHRINK)
    if min(wide, tall) > 0.5 * max(wide, tall):
        return world.ORBIT
    if wide > tall:
        if _reversals(x, 8):
            return world.BOUNCE
        return world.RIGHT if x[-edge:].mean() > x[:edge].mean() else world.LEFT
    return world.DOWN if y[-edge:].mean() > y[:edge].mean() else world.UP


def reflections(track: Track) -> list[float]:
    """Moments (in frames) at which x turns round, by where the lines before and after meet."""
    x, out = _smooth(track.x), []
    raw = np.where(np.isnan(track.x), x, track.x)
    for at in _reversals(x, 8):
        lo, hi = max(0, at - 7), min(len(x), at + 8)
        a, b = np.arange(lo, max(lo, at - 1)), np.arange(at + 2, hi)
        if len(a) < 3 or len(b) < 3:
            continue
        p, q = np.polyfit(a, raw[a], 1), np.polyfit(b, raw[b], 1)
        if abs(p[0] - q[0]) > 1e-3:
            out.append(float((q[1] - p[1]) / (p[0] - q[0])))
    return out


# ---- sound -------------------------------------------------------------------------------------------


def _templates() -> np.ndarray:
    """[timbre, 6] unit vectors of harmonic weights."""
    out = np.zeros((len(world.HARMONICS), 6))
    for i, weights in enumerate(world.HARMONICS):
        out[i, : len(weights)] = weights
    return out / np.linalg.norm(out, axis=1, keepdims=True)


class Sound:
    """What is heard in windows of a tenth of a second, and the ticks."""

    def __init__(self, sound: np.ndarray) -> None:
        self.sound, self.templates = sound, _templates()
        self.window = np.hanning(WINDOW)
        self.size = 4 * WINDOW
        harmonics = np.arange(1, 7)
        self.bins = np.round(PITCHES[:, None] * harmonics * self.size / world.SAMPLE_RATE).astype(int)
        self.top = int(2750 * self.size / world.SAMPLE_RATE)

    def note(self, at: int) -> tuple[float, int, float, float] | None:
        """(pitch in Hz, timbre, pan 0..1, level) of the window that starts at sample `at`; None if silent."""
        piece = self.sound[:, at : at + WINDOW]
        if piece.shape[1] < WINDOW:
            return None
        spectrum = np.abs(np.fft.rfft(piece * self.window, self.size)) / (WINDOW / 4)
        spectrum[:, self.top :] = 0  # ticks are no part of a note
        level = np.sqrt((spectrum**2).sum(1))
        if level.max() < 0.02:
            return None
        mono = np.sqrt((spectrum**2).sum(0))
        # A peak counts with the bins around it, so that small detuning costs nothing.
        energy = mono[self.bins] ** 2 @ np.eye(6)
        heights = np.sqrt(energy)
        score = (heights @ self.templates.T) ** 2  # [pitch, timbre]
        best, timbre = np.unravel_index(score.argmax(), score.shape)
        return (
            float(self._refine(score[:, timbre], best)),
            int(timbre),
            float(math.atan2(level[1], level[0]) / (math.pi / 2)),
            float(level.max()),
        )

    @staticmethod
    def _refine(score: np.ndarray, best: int) -> float:
        """Parabola through the best pitch and its neighbours."""
        if not 0 < best < len(score) - 1:
            return float(PITCHES[best])
        a, b, c = score[best - 1 : best + 2]
        shift = 0.5 * (a - c) / (a - 2 * b + c) if a - 2 * b + c < 0 else 0.0
        return float(PITCHES[best] * 2 ** (0.1 * shift / 12))

    def notes(self, turn: int | None) -> list[tuple[float, tuple]]:
        """(time of the window's middle in s, note) of all windows, or of those inside the turns of object
        `turn`."""
        turn_samples = world.TURN_HOPS * world.HOP
        total, out = self.sound.shape[1], []
        if turn is None:
            starts = range(0, total - WINDOW + 1, WINDOW)
        else:
            starts = range(
                turn * turn_samples + (turn_samples - WINDOW) // 2 + 400, total - WINDOW + 1, 2 * turn_samples
            )
        for at in starts:
            note = self.note(at)
            if note:
                out.append(((at + WINDOW / 2) / world.SAMPLE_RATE, note))
        return out

    def ticks(self) -> list[float]:
        """Times at which ticks begin, in seconds: peaks of the level around 3.2 kHz, above every harmonic."""
        size, hop, reach = 256, 16, 40
        if self.sound.shape[1] < size:
            return []
        views = np.lib.stride_tricks.sliding_window_view(self.sound, size, axis=1)[:, ::hop]
        spectra = np.abs(np.fft.rfft(views * np.hanning(size), axis=-1)) ** 2
        energy = spectra[:, :, 24:29].sum((0, 2)) / (size / 4) ** 2
        out = []
        for i in np.flatnonzero(energy > 0.02):
            if energy[i] >= energy[max(0, i - reach) : i + reach + 1].max():
                middle = (i * hop + size / 2) / world.SAMPLE_RATE
                if not out or middle - 0.5 / world.HOPS_PER_SECOND - out[-1] > 0.02:
                    out.append(float(middle - 0.5 / world.HOPS_PER_SECOND))
        return out


# ---- against the prompt ------------------------------------------------------------------------------


def expectation(prompt: str, references: list[dict] | None = None) -> dict:
    """What a prompt asks for; what it leaves to a reference is measured on the reference."""
    want = grammar.parse(prompt)
    kinds = {"picture": "image", "video": "video", "audio": "audio"}
    for thing in want["objects"]:
        for key, kind in kinds.items():
            number = thing[key]
            if number is None:
                continue
            files = [r["file"] for r in references or [] if r["kind"] == kind]
            if not 1 <= number <= len(files):
                raise ValueError(f"the prompt names {key} {number}, which is not given")
            path = pathlib.Path(files[number - 1])
            if key == "audio":
                thing["timbre"] = _vote([n[1] for _, n in Sound(read_sound(path)).notes(None)])
                continue
            tracks = analyse_frames(read_frames(path))["tracks"]
            if tracks and key == "picture":
                thing["shape"], thing["colour"] = tracks[0].shape, tracks[0].colour
            elif tracks:
                thing["motion"] = tracks[0].motion
    for thing in want["objects"]:
        if thing["motion"] in (world.GROW, world.SHRINK):
            thing["size"] = None  # it has none; what the prompt says of it is not judged
        thing.setdefault("timbre", None)
        if thing["timbre"] is None:
            thing["timbre"] = thing["shape"]
    return want


LOOKS = ("colour", "shape", "motion")  # what an object asked for can be recognised by


def names_anything(want: dict) -> bool:
    """Whether an expectation holds something that can be measured."""
    return want["background"] is not None or any(t[n] is not None for t in want["objects"] for n in LOOKS)


def match(tracks: list[Track], objects: list[dict]) -> list[Track | None]:
    """The track of each object asked for, by looks first and motion second."""

    def fit(track: Track, thing: dict) -> float:
        return (
            2.0 * (track.colour == thing["colour"])
            + 1.5 * (track.shape == thing["shape"])
            + (track.motion == thing["motion"])
        )

    if not objects:
        return []
    if len(tracks) < 2 or len(objects) < 2:
        if len(tracks) == 2:
            return [max(tracks, key=lambda t: fit(t, objects[0]))]
        if len(objects) == 2 and tracks:
            first = fit(tracks[0], objects[0]) >= fit(tracks[0], objects[1])
            return [tracks[0], None] if first else [None, tracks[0]]
        return [tracks[0] if tracks else None] + [None] * (len(objects) - 1)
    straight = fit(tracks[0], objects[0]) + fit(tracks[1], objects[1])
    crossed = fit(tracks[1], objects[0]) + fit(tracks[0], objects[1])
    return tracks[:2] if straight >= crossed else tracks[1::-1]


def _pitch_wanted(thing: dict, track: Track | None, seconds: float) -> float | None:
    """Hz at a time: by the size named, else by the radius seen."""
    if thing["size"] is not None:
        radius = float(world.RADIUS[thing["size"]])
    elif track is not None and not np.isnan(track.area).all():
        radius = float(np.interp(seconds * world.FPS, np.arange(len(track.area)), _smooth(track.radius())))
    else:
        return None
    return 40.0 * float(world.pitch_steps(np, np.float64(radius)))


def _stereo(notes: list, track: Track | None, width: int) -> tuple[float | None, float | None]:
    """Correlation of pan with x (None if x hardly moves) and mean distance of pan from x, both in shares of
    the width."""
    if track is None or not notes or np.isnan(track.x).all():
        return None, None
    x = np.interp([t * world.FPS for t, _ in notes], np.arange(len(track.x)), _smooth(track.x)) / width
    pan = np.array([n[2] for _, n in notes])
    error = float(np.abs(pan - x).mean())
    if len(x) < 4 or x.std() < 8 / 256:
        return None, error
    return (float(np.corrcoef(pan, x)[0, 1]) if pan.std() > 1e-6 else 0.0), error


def _object_figures(thing: dict, track: Track | None, sound: Sound, turn: int | None, width: int) -> dict:
    """Figures of one object asked for."""
    out = {
        name: int(track is not None and getattr(track, name) == thing[name])
        for name in LOOKS
        if thing[name] is not None
    }
    notes = sound.notes(turn)
    errors = []
    for seconds, note in notes:
        wanted = _pitch_wanted(thing, track, seconds)
        if wanted:
            errors.append(abs(12 * math.log2(note[0] / wanted)))
    out["pitch_error_semitones"] = float(np.median(errors)) if errors else None
    out["pitch"] = int(bool(errors) and float(np.median(errors)) < 1.0)
    if thing["timbre"] is not None:
        out["timbre"] = int(bool(notes) and _vote([n[1] for _, n in notes]) == thing["timbre"])
    out["stereo_correlation"], out["stereo_error"] = _stereo(notes, track, width)
    return out


def _tick_figures(tracks: list[Track | None], sound: Sound, frames: int) -> dict:
    """Ticks against reflections: how many frames off, and how many ms from the nearest hop boundary beside
    the reflection."""
    bounces = sorted(b for t in tracks if t is not None and t.motion == world.BOUNCE for b in reflections(t))
    ticks = sound.ticks()
    out: dict = {"bounces": len(bounces), "ticks": len(ticks)}
    if bounces:
        away = [sorted((abs(t * world.FPS - b), t) for t in ticks)[:1] or [(24.0, 0.0)] for b in bounces]
        out["tick_offset_frames"] = float(np.median([a[0][0] for a in away]))
        rate = world.HOPS_PER_SECOND
        hops = [
            (math.floor(b * rate / world.FPS) / rate, math.ceil(b * rate / world.FPS) / rate) for b in bounces
        ]
        out["tick_error_ms"] = float(
            np.median([1000 * min(abs(a[0][1] - h) for h in pair) for a, pair in zip(away, hops)])
        )
    # A reflection in the first or last third of a second may leave too little path on one side to be seen.
    inner = [t for t in ticks if 8 < t * world.FPS < frames - 8]
    out["stray_ticks"] = sum(
        1 for t in inner if min((abs(t * world.FPS - b) for b in bounces), default=99.0) > 2.5
    )
    return out


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    """dB between two uint8 pictures, 99 if equal."""
    error = float(((a.astype(np.float64) - b.astype(np.float64)) ** 2).mean())
    return 99.0 if error == 0 else float(10 * math.log10(255**2 / error))


def measure(
    frames: np.ndarray,
    sound: np.ndarray,
    want: dict,
    first: np.ndarray | None = None,
    last: np.ndarray | None = None,
) -> dict:
    """All figures of one clip. frames [F, H, W, 3] uint8, sound [2, samples], want from `expectation`."""
    seen = analyse_frames(frames)
    heard = Sound(sound)
    objects = [t for t in want["objects"] if any(t[n] is not None for n in LOOKS)]
    tracks = match(seen["tracks"], objects)
    each = [
        _object_figures(thing, track, heard, None if len(objects) == 1 else k, frames.shape[2])
        for k, (thing, track) in enumerate(zip(objects, tracks))
    ]
    # The right number in most frames is not enough: nothing may come and go.
    steady = seen["steady"] >= STEADY
    out: dict = {"count": int(seen["count"] == len(objects) and steady)} if objects else {}
    if want["background"] is not None:
        out["background"] = int(seen["backdrop"] == want["background"])
    for key in sorted(set().union(*each)):
        values = [e[key] for e in each if e.get(key) is not None]
        out[key] = float(np.mean(values)) if values else None
    out |= _tick_figures(tracks, heard, len(frames))
    for name, picture, frame in (("first", first, frames[0]), ("last", last, frames[-1])):
        if picture is not None:
            out[f"keyframe_{name}_psnr_db"] = psnr(picture, frame)
    out["objects"] = each
    return out


def measure_entry(entry: dict) -> dict:
    """All figures of a manifest entry."""
    path = pathlib.Path(entry["file"])
    want = expectation(entry["prompt"], entry.get("references"))
    if not names_anything(want):
        raise ValueError(
            "the prompt names no shape, colour, motion or backdrop of the toy world (see grammar.py)"
        )
    pictures = {k: read_frames(pathlib.Path(entry[k]))[0] for k in ("first", "last") if entry.get(k)}
    frames = read_frames(path)
    for name, picture in pictures.items():
        if picture.shape != frames.shape[1:]:
            (height, width), (high, wide) = picture.shape[:2], frames.shape[1:3]
            raise ValueError(
                f"the picture of the {name} frame is {width}x{height}, the clip is {wide}x{high}"
            )
    figures = measure(frames, read_sound(path), want, **pictures)
    return {"file": str(path), "prompt": entry["prompt"], **figures}


def read_manifest(path: pathlib.Path) -> list[dict]:
    """The entries of a manifest; ValueError names the first that is not as it should be."""
    entries = json.loads(path.read_text())
    if not isinstance(entries, list) or not entries:
        raise ValueError("must be a list of at least one entry")
    for i, entry in enumerate(entries):
        texts = [entry.get("file"), entry.get("prompt")] if isinstance(entry, dict) else [None]
        references = entry.get("references") or [] if isinstance(entry, dict) else []
        for r in references if isinstance(references, list) else [None]:
            texts += [r.get("kind"), r.get("file")] if isinstance(r, dict) else [None]
        if not all(isinstance(t, str) for t in texts):
            raise ValueError(
                f'entry {i}: needs "file" and "prompt" as texts, and "kind" and "file" in each of "references"'
            )
    return entries


SHARES = ("colour", "shape", "count", "background", "motion", "pitch", "timbre")
MEDIANS = (
    "pitch_error_semitones",
    "stereo_correlation",
    "stereo_error",
    "tick_offset_frames",
    "tick_error_ms",
    "keyframe_first_psnr_db",
    "keyframe_last_psnr_db",
)


def summarise(clips: list[dict]) -> dict:
    """Means of the shares, medians of the rest, over the clips that have the figure."""
    out: dict = {"clips": len(clips)}
    for names, mean in ((SHARES, np.mean), (MEDIANS, np.median)):
        for name in names:
            values = [c[name] for c in clips if c.get(name) is not None]
            if values:
                out[name] = round(float(mean(values)), 4)
    out["stray_ticks"] = sum(c["stray_ticks"] for c in clips)
    return out


def table(summary: dict) -> str:
    """The summary for people."""
    lines = [f"{summary['clips']} clip(s)"]
    for name, value in summary.items():
        if name in SHARES:
            lines.append(f"  {name:26s} {100 * value:6.1f} %")
        elif name != "clips":
            lines.append(
                f"  {name:26s} {value:8.3f}" if isinstance(value, float) else f"  {name:26s} {value:8d}"
            )
    return "\n".join(lines)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clip", help="a video, a folder with PNG frames and a WAV, or a .json manifest")
    parser.add_argument("--prompt", help="the prompt of a single clip")
    parser.add_argument("--first", help="picture the first frame should be")
    parser.add_argument("--last", help="picture the last frame should be")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures there")
    args = parser.parse_args()
    options.check_file("json", args.json)
    if args.clip.endswith(".json"):
        try:
            entries = read_manifest(pathlib.Path(args.clip))
        except (ValueError, OSError) as problem:
            print(f"evaluate: {args.clip}: {problem}", file=sys.stderr)
            return 1
    elif args.prompt is not None:
        entries = [{"file": args.clip, "prompt": args.prompt, "first": args.first, "last": args.last}]
    else:
        parser.error("a single clip needs --prompt")
    clips = []
    for entry in entries:
        try:
            clips.append(measure_entry(entry))
        except (ValueError, RuntimeError, OSError) as problem:
            print(f"evaluate: {entry['file']}: {problem}", file=sys.stderr)
            return 1
    summary = summarise(clips)
    print(table(summary))
    for entry in entries:
        for note in grammar.unread(entry["prompt"]):
            print(f"not judged: {note}" + (f" ({entry['file']})" if len(entries) > 1 else ""))
    if args.json:
        jsonfile.write(args.json, {"summary": summary, "clips": clips})
    return 0


if __name__ == "__main__":
    sys.exit(main())
