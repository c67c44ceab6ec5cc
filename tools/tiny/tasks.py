"""Requests of the three tasks over the toy world: what is asked, with which keyframes or references, and
what is right.

    t2va    a prompt
    fl2va   a prompt and the first frame, the last frame or both
    ref2va  a prompt that leaves something to a reference: looks to a picture, motion to a video, timbre to a
    sound

`make` draws requests; `presentation` turns one into the token ids, row tags and pictures of the conditioner,
each segment tokenised by itself and every row of a vision block tagged 0. Rendering and encoding belong to
the users (`text.py`, `frozen.py`).
"""

from __future__ import annotations

import dataclasses

import numpy as np

import grammar
import world

FRAMES = 107  # of every target clip, 4.5 s
VIDEO_REFERENCE_FRAMES = 56  # 2.3 s, 17 latent frames
AUDIO_REFERENCE_HOPS = 80  # 2 s
QWEN_STEP = 12  # frames between the samples the conditioner sees


@dataclasses.dataclass
class Reference:
    """One reference; `scene` is the little scene it shows or sounds."""

    kind: str  # "image", "video" or "audio"
    scene: world.Scenes


@dataclasses.dataclass
class Request:
    """One request. `scene` is the clip asked for; for ref2va it already wears the looks, motion and timbre
    referred to."""

    task: str
    prompt: str
    scene: world.Scenes
    keyframes: tuple[str, ...] = ()  # of "first", "last"
    references: tuple[Reference, ...] = ()


def _show(rng: np.random.Generator, scene: world.Scenes, k: int) -> world.Scenes:
    """A still of object `k` alone, elsewhere and on any backdrop."""
    one = world.sample_scenes(1, int(rng.integers(1 << 31)), pair_share=0.0, split="all")
    one.shape[0, 0], one.colour[0, 0] = scene.shape[0, k], scene.colour[0, k]
    one.size[0, 0], one.motion[0, 0] = 1 + int(rng.integers(2)), world.STILL
    return one


def _act(rng: np.random.Generator, scene: world.Scenes, k: int) -> world.Scenes:
    """Another shape that moves as object `k` does."""
    one = world.sample_scenes(1, int(rng.integers(1 << 31)), pair_share=0.0, split="all")
    one.motion[0, 0] = scene.motion[0, k]
    one.size[0, 0] = int(rng.integers(2))
    return one


def _sound(rng: np.random.Generator, timbre: int) -> world.Scenes:
    """A still source of one timbre."""
    one = world.sample_scenes(1, int(rng.integers(1 << 31)), pair_share=0.0, split="all")
    one.timbre[0, 0], one.motion[0, 0] = timbre, world.STILL
    return one


def _referred(rng: np.random.Generator, scene: world.Scenes, by_video: bool = False) -> Request:
    """A ref2va request for a scene: pictures for one or both objects, or a picture with a sound, or a
    video. `by_video`: one object alone takes its motion from a video for sure."""
    count = int(scene.count[0])
    way = int(rng.integers(3)) if count == 1 else 0
    way = 2 if count == 1 and by_video else way
    if way == 0:
        order = list(rng.permutation(count))
        references = tuple(Reference("image", _show(rng, scene, k)) for k in order)
        prompt = grammar.describe(rng, scene, pictures={k: i + 1 for i, k in enumerate(order)})
    elif way == 1:
        scene.timbre[0, 0] = int(rng.integers(len(world.SHAPES)))
        references = [
            Reference("image", _show(rng, scene, 0)),
            Reference("audio", _sound(rng, scene.timbre[0, 0])),
        ]
        references = tuple(references if rng.random() < 0.5 else references[::-1])
        prompt = grammar.describe(rng, scene, pictures={0: 1}, audios={0: 1})
    else:
        both = rng.random() < 0.5
        references = [Reference("video", _act(rng, scene, 0))] + (
            [Reference("image", _show(rng, scene, 0))] if both else []
        )
        references = tuple(references if rng.random() < 0.5 else references[::-1])
        prompt = grammar.describe(rng, scene, pictures={0: 1} if both else None, videos={0: 1})
    return Request("ref2va", prompt, scene, (), references)


def ask(scenes: world.Scenes, seed, task: str, videos: float = 0.0) -> list[Request]:
    """One request of a task for every scene, which it copies. `videos`: chance that a lone object takes its motion from a
    video for certain; of the others a third does."""
    rng = np.random.default_rng(seed)
    by_video = np.random.default_rng([*np.atleast_1d(seed).tolist(), 78]).random(len(scenes)) < videos
    out = []
    for i in range(len(scenes)):
        scene = scenes.take([i])
        if task == "ref2va":
            out.append(_referred(rng, scene, by_video[i]))
        else:
            keyframes = (
                (("first",), ("last",), ("first", "last"))[int(rng.integers(3))] if task == "fl2va" else ()
            )
            out.append(Request(task, grammar.describe(rng, scene), scene, keyframes))
    return out


def loosened(requests: list[Request], seed) -> list[Request]:
    """The requests, three in ten of them beginning with a small letter, as people write."""
    rng = np.random.default_rng(seed)
    small = rng.random(len(requests)) < 0.3
    return [
        dataclasses.replace(r, prompt=r.prompt[:1].lower() + r.prompt[1:]) if s else r
        for r, s in zip(requests, small)
    ]


def make(seed, n: int, task: str, split: str = "train", pair_share: float = 0.35) -> list[Request]:
    """`n` requests of one task for scenes of their own, so many of them of two objects."""
    scenes = world.sample_scenes(n, seed, pair_share, split=split)
    return ask(scenes, [*np.atleast_1d(seed).tolist(), 77], task)


def video_samples(frames: int) -> list[tuple[tuple[int, int], float]]:
    """Pairs of frames the conditioner sees of a reference video, each with its time stamp in seconds."""
    at = list(range(0, frames, QWEN_STEP))
    if len(at) % 2:
        at.append(at[-1])
    return [((a, b), (a + b) / (2.0 * world.FPS)) for a, b in zip(at[::2], at[1::2])]


@dataclasses.dataclass
class Presentation:
    """Token ids and tags, and the pictures of the vision blocks in order: (kind, source, frames)."""

    ids: list[int]
    tags: list[int]
    blocks: list[tuple[str, int, tuple[int, ...]]]  # source: index of the keyframe or reference


class Presenter:
    """Builds presentations with a tokenizer of the released kind."""

    def __init__(self, tokenizer, tokens_per_block: int = 64) -> None:
        self.tokenizer, self.tokens = tokenizer, tokens_per_block
        self.special = {
            n: tokenizer.convert_tokens_to_ids(f"<|{n}|>")
            for n in ("vision_start", "vision_end", "image_pad", "video_pad")
        }

    def _text(self, p: Presentation, text: str) -> None:
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        p.ids += ids
        p.tags += [1] * len(ids)

    def _block(self, p: Presentation, kind: str, source: int, frames: tuple[int, ...]) -> None:
        p.ids += (
            [self.special["vision_start"]]
            + [self.special[f"{kind}_pad"]] * self.tokens
            + [self.special["vision_end"]]
        )
        p.tags += [0] * (self.tokens + 2)
        p.blocks.append((kind, source, frames))

    def build(self, request: Request) -> Presentation:
        """The presentation of a request."""
        p = Presentation([], [], [])
        for i, _ in enumerate(request.keyframes):
            self._text(p, f"<Picture {i + 1}>: ")
            self._block(p, "image", i, (0,))
        numbers = {"image": 0, "video": 0, "audio": 0}
        for i, reference in enumerate(request.references):
            numbers[reference.kind] += 1
            number = numbers[reference.kind]
            if reference.kind == "image":
                self._text(p, f"<Picture {number}>: ")
                self._block(p, "image", i, (0,))
            elif reference.kind == "audio":
                self._text(p, f"<Audio {number}>: ")
            else:
                self._text(p, f"<Video {number}>: ")
                for pair, stamp in video_samples(VIDEO_REFERENCE_FRAMES):
                    self._text(p, f"<{stamp:.1f} seconds>")
                    self._block(p, "video", i, pair)
        self._text(p, request.prompt)
        return p
