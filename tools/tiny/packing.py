"""The packed sequence of one request: order of rows, positions, tags and timestep classes (training side).

    text | conditions in order | audio target (left rows, then right) | video target (t, y, x)

Times on the rotary clock: text row i at i; a latent frame lasts 5/3 of its pixel frames (1, 4, 4, 4, 4); an
audio latent lasts 1. Keyframes sit on the clock of the target (first: its start, last: its last pixel
frame); references come one after the other before it. Spatial coordinates run over 32 units of the square
root of the latent area.

A row's AdaLN table entry is `timestep class * 3 + tag`, the classes being those of `CLASSES`.
"""

from __future__ import annotations

import dataclasses

import numpy as np

FRAME_UNITS = np.array([1.0, 4.0, 4.0, 4.0, 4.0]) * (5.0 / 3.0)
VIDEO, TEXT, AUDIO = 0, 1, 2
# Timestep classes: target video (and text), target audio, visual conditions, audio conditions.
T_VIDEO, T_AUDIO, T_VISUAL, T_SOUND = range(4)
VISUAL_LEVEL, SOUND_LEVEL = 0.999, 1.0


def latent_frames(frames: int) -> int:
    """Latent frames of 17n + 5 pixel frames; 1 for a still."""
    return 1 if frames == 1 else 5 * ((frames - 5) // 17) + 2


def audio_latents(frames: int) -> int:
    """Audio latent frames per channel that go with `frames` video frames."""
    return int(round(frames / 24 * 40))


def space_axis(size: int, area_root: float) -> np.ndarray:
    """Coordinates of the size / 2 patches along one axis of a latent grid."""
    ratio = size / area_root
    left = (1.0 - ratio) / 2.0
    right = left + ratio
    count = size // 2
    step = (right - left) / count
    return (np.arange(count) * step + left) * 32.0


def frame_positions(times: np.ndarray, height: int, width: int) -> np.ndarray:
    """[frames * rows, 3] of latent frames at `times` on a height x width latent grid."""
    root = float(np.sqrt(height * width))
    t, y, x = np.meshgrid(times, space_axis(height, root), space_axis(width, root), indexing="ij")
    return np.stack([t, y, x], -1).reshape(-1, 3)


def time_axis(count: int, origin: float) -> np.ndarray:
    """Times of `count` latent frames from `origin`."""
    spans = FRAME_UNITS[np.arange(count) % 5]
    return origin + np.concatenate([[0.0], np.cumsum(spans)[:-1]])


def audio_positions(count: int, origin: float, height: int, width: int) -> np.ndarray:
    """[2 * count, 3]: left rows at the first column of the grid, right rows at the last."""
    x = space_axis(width, float(np.sqrt(height * width)))
    out = np.zeros((2, count, 3))
    out[..., 0] = origin + np.arange(count)
    out[0, :, 2], out[1, :, 2] = x[0], x[-1]
    return out.reshape(-1, 3)


@dataclasses.dataclass
class Layout:
    """Everything about a packed sequence but its values."""

    positions: np.ndarray  # [S, 3] fp64
    tags: np.ndarray  # [S]
    classes: np.ndarray  # [S]
    text: np.ndarray  # row numbers
    video: np.ndarray  # condition rows in packed order, then target rows
    audio: np.ndarray
    video_conditions: int  # how many of `video` are conditions
    audio_conditions: int
    references: bool  # whether they are references (not keyframes)


class _Builder:
    def __init__(self) -> None:
        self.parts: list[tuple[np.ndarray, np.ndarray, int]] = []
        self.rows = 0

    def add(self, positions: np.ndarray, tags, step: int) -> np.ndarray:
        """Appends rows and returns their numbers."""
        n = len(positions)
        self.parts.append((positions, np.broadcast_to(np.asarray(tags), (n,)), step))
        self.rows += n
        return np.arange(self.rows - n, self.rows)


def build(text_tags: list[int], conditions: list[tuple], frames: int, height: int, width: int) -> Layout:
    """The layout of a request. `conditions` in packed order, each one of

    ("first",) ("last",)                       a keyframe on the target grid
    ("image", height, width)                   latent sizes
    ("video", latent frames, height, width)    without sound
    ("audio", latent frames)
    """
    b, count = _Builder(), len(text_tags)
    text_positions = np.zeros((count, 3))
    text_positions[:, 0] = np.arange(count)
    text = b.add(text_positions, text_tags, T_VIDEO)
    target_frames, target_audio = latent_frames(frames), audio_latents(frames)
    clock, video, audio = float(count), [], []
    for kind, *size in conditions:
        if kind in ("first", "last"):
            span = float(np.sum(FRAME_UNITS[np.arange(target_frames) % 5]))
            at = clock if kind == "first" else clock + span - 5.0 / 3.0
            video.append(b.add(frame_positions(np.array([at]), height, width), VIDEO, T_VISUAL))
        elif kind == "image":
            video.append(b.add(frame_positions(np.array([clock]), *size), VIDEO, T_VISUAL))
            clock += 1.0
        elif kind == "video":
            video.append(b.add(frame_positions(time_axis(size[0], clock), *size[1:]), VIDEO, T_VISUAL))
            clock += float(sum(FRAME_UNITS[k % 5] for k in range(size[0])))
        else:
            audio.append(b.add(audio_positions(size[0], clock, height, width), AUDIO, T_SOUND))
            clock += float(size[0])
    video_conditions, audio_conditions = sum(map(len, video)), sum(map(len, audio))
    audio.append(b.add(audio_positions(target_audio, clock, height, width), AUDIO, T_AUDIO))
    video.append(b.add(frame_positions(time_axis(target_frames, clock), height, width), VIDEO, T_VIDEO))
    return Layout(
        np.concatenate([p for p, _, _ in b.parts]),
        np.concatenate([t for _, t, _ in b.parts]),
        np.concatenate([np.full(len(p), s) for p, _, s in b.parts]),
        text,
        np.concatenate(video),
        np.concatenate(audio),
        video_conditions,
        audio_conditions,
        any(kind not in ("first", "last") for kind, *_ in conditions),
    )
