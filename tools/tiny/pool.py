"""Encoded clips for flow training: requests, target rows, text states and condition rows, sorted by layout.

Everything frozen is computed before training, in stages that need different components:

    videos    target rows of every scene, shared by all partitions    video VAE
    strays    the same of its stray (`astray.py`), if asked for       video VAE
    prompts   text states and condition pictures of every request     text encoder, video VAE
    sounds    target rows, their strays and sound references          audio VAE

All but the last are kept in files if a folder is given (`flow.py --cache`), so that they can be made ahead, side by
side, by other processes (`flow.py --prepare`, also in parts); the last takes seconds. Clips of one layout
(tags and conditions) form a `Bucket`; a training step draws from one bucket.

Short clips (`--frames` below that of a whole clip) are the beginnings of whole clips, of scenes of their own. They
have no last frame, so they are not asked for by keyframes. NOT here: the networks (`frozen.py`), training
(`flow.py`).
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import pickle
import time
from typing import Callable

import numpy as np
import torch

import astray
import frozen
import grammar
import native
import packing
import tasks
import text
import world
from frozen import GRID, Frozen

PROGRESS_SECONDS = 20
SMALL = 2.0  # times as much errors count where a small object is; a medium one has 2.1 times its area
VIDEOS = 0.5  # chance that a lone object surely takes its motion from a video, of which no word tells


def kept(path: pathlib.Path | None, device: str, make: Callable):
    """The value in a file, or a new one, which is then kept there."""
    if path is not None and path.exists():
        try:
            return torch.load(path, weights_only=False, map_location=device)
        except (EOFError, RuntimeError, ValueError, OSError, pickle.UnpicklingError) as problem:
            raise SystemExit(f"{path}: damaged ({problem}); remove it") from None
    value = make()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        torch.save(value, part)
        os.replace(part, path)
    return value


def fingerprint(model: pathlib.Path, parts: tuple[str, ...]) -> str:
    """Tells the weights of some components, and the code that makes requests and encodes them, from others."""
    folders = {"video": ("video_vae",), "text": ("text_encoder", "tokenizer")}
    total = hashlib.sha256()
    for file in [__file__, *(m.__file__ for m in (astray, frozen, grammar, packing, tasks, text, world))]:
        total.update(pathlib.Path(file).read_bytes())
    for part in parts:
        for folder in folders[part]:
            for path in sorted(p for p in (model / folder).rglob("*") if p.is_file()):
                total.update(path.read_bytes())
    return total.hexdigest()[:12]


class Progress:
    """A line every few seconds."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total = what, total
        self.began = self.last = time.monotonic()

    def __call__(self, done: int) -> None:
        now, done = time.monotonic(), min(done, self.total)
        if now - self.last > PROGRESS_SECONDS or done >= self.total:
            self.last = now
            print(f"{self.what}: {done} of {self.total}, {now - self.began:.0f} s", flush=True)


def scenes_of(args) -> world.Scenes:
    """The scenes of a training: others for every length of clips. Bounces are `args.bounces` times as many as the world
    has, chosen from so many more scenes."""
    seed = [args.seed, 31] + [args.frames] * (args.frames < tasks.FRAMES)
    scenes = world.sample_scenes(args.clips * args.bounces, seed, pair_share=args.pairs)
    bounce = scenes.motion == world.BOUNCE
    bounce[:, 1] &= scenes.count == 2
    first = np.argsort(~bounce.any(1), kind="stable")[: args.clips]
    return scenes.take(np.sort(first))


def tasks_of(partition: str, frames: int) -> list[str]:
    """The tasks that clips of `frames` frames are asked for by."""
    return [t for t in native.PARTITIONS[partition] if t != "fl2va" or frames == tasks.FRAMES]


def starts_of(count: int, step: int, part: tuple[int, int]) -> list[int]:
    """Where the batches of `step` begin in part I of N of `count` things."""
    starts = list(range(0, count, step))
    return starts[len(starts) * part[0] // part[1] : len(starts) * (part[0] + 1) // part[1]]


def emphasis(scenes: world.Scenes) -> np.ndarray:
    """[N, rows of a latent frame]: how much the error of each row counts: SMALL in the box of a small object, else 1, over the mean
    of all. It depends on nothing but what the prompt tells (size, order and motions), so no learnt mean is off. Without it 13 to
    17 % of the small objects had a wrong colour or shape, of the medium ones 2 to 7 %, of the large ones 0 to 8 %.
    """
    changing = (scenes.motion == world.GROW) | (scenes.motion == world.SHRINK)
    weight = np.where((scenes.size == world.SIZES.index("small")) & ~changing, SMALL, 1.0)
    side = GRID // 2
    y, x = ((v.ravel() + 0.5) * world.CANVAS / side for v in np.mgrid[:side, :side])  # px, centres of rows
    # A second object's box is right of the first one's or below it.
    begins = world.boxes(scenes, world.CANVAS, world.CANVAS)[:, 1, :2]
    second = (scenes.count == 2)[:, None] & (x >= begins[:, :1]) & (y >= begins[:, 1:])
    rows = np.where(second, weight[:, 1:], weight[:, :1])
    return (rows / rows.mean()).astype(np.float32)


def encode_videos(
    models: Frozen, scenes: world.Scenes, seed: int, frames: int, part: tuple[int, int], what: str
) -> torch.Tensor:
    """Target rows [N, rows, 64] bf16 of the beginnings of scenes, `frames` frames each; of part I of N only. `what` names
    them in progress lines."""
    step = 8 * tasks.FRAMES // frames
    starts = starts_of(len(scenes), step, part)
    out, progress = [], Progress(what, sum(min(step, len(scenes) - i) for i in starts))
    for n, i in enumerate(starts):
        torch.manual_seed(seed * 1_000_003 + i)
        tracks = world.Tracks(world.Backend(models.device), scenes.take(slice(i, i + step)), tasks.FRAMES)
        rows = frozen.patchify(models.encode_video(world.render(tracks, 0, frames), None))
        out.append(rows.to(torch.bfloat16))
        progress((n + 1) * step)
    return torch.cat(out) if out else torch.empty(0, dtype=torch.bfloat16, device=models.device)


class Bucket:
    """Requests that share a layout: values on the device, bf16."""

    def __init__(self, layout: packing.Layout, kinds: list[tuple]) -> None:
        self.layout = layout
        self.kinds = [kind for kind, *_ in kinds]  # of the conditions
        self.scene: list[int] = []  # row of `Pool.video`
        self.request: list[int] = []  # row of `Pool.audio`
        self.states: list[torch.Tensor] = []
        self.video: list[torch.Tensor] = []  # condition rows
        self.audio: torch.Tensor | None = None

    def add(self, scene: int, request: int, states: torch.Tensor, video: torch.Tensor | None) -> None:
        """One more request."""
        self.scene.append(scene)
        self.request.append(request)
        self.states.append(states.to(torch.bfloat16))
        self.video.append(video)

    def close(self) -> None:
        """Stacks what was collected."""
        device = self.states[0].device
        self.scene, self.request = (torch.tensor(v, device=device) for v in (self.scene, self.request))
        self.states = torch.stack(self.states)
        self.video = torch.stack(self.video) if self.layout.video_conditions else None

    def join(self, other: "Bucket") -> None:
        """Takes another closed bucket of the same layout in."""
        for name in ("scene", "request", "states", "video"):
            mine = getattr(self, name)
            if mine is not None:
                setattr(self, name, torch.cat([mine, getattr(other, name)]))


def requests_of(
    scenes: world.Scenes, partition: str, seed: int, wordings: int, frames: int
) -> list[tasks.Request]:
    """All requests of a partition for clips of `frames` frames, `wordings` for every scene and task."""
    requests = [
        r
        for i, task in enumerate(tasks_of(partition, frames))
        for wording in range(wordings)
        for r in tasks.ask(scenes, [seed, 41 + i, len(partition), wording], task, VIDEOS)
    ]
    return tasks.loosened(requests, [seed, 43])


@torch.no_grad()
def embed_prompts(
    models: Frozen, scenes: world.Scenes, requests: list[tasks.Request], frames: int, part: tuple[int, int]
) -> dict[tuple, Bucket]:
    """The buckets of requests; of part I of N of them only."""
    step = 64
    starts = starts_of(len(requests), step, part)
    batcher = text.Batcher(models.encoder, models.device)
    progress = Progress("prompts", sum(min(step, len(requests) - i) for i in starts))
    found: dict[tuple, Bucket] = {}
    for n, i in enumerate(starts):
        mine = requests[i : i + step]
        batch = batcher(mine)
        states, _ = models.encoder(batch)
        brought = models.conditions(mine, sounds=False)
        for j, (shown, conditions) in enumerate(zip(batch["shown"], brought)):
            key = (tuple(shown.tags), tuple(conditions.kinds))
            if key not in found:
                layout = packing.build(shown.tags, conditions.kinds, frames, GRID, GRID)
                found[key] = Bucket(layout, conditions.kinds)
            found[key].add(
                (i + j) % len(scenes),
                i + j,
                states[j, : len(shown.ids)].clone(),
                conditions.rows(sound=False),
            )
        progress((n + 1) * step)
    for bucket in found.values():
        bucket.close()
    return found


class Pool:
    """What a training step draws from."""

    def __init__(
        self,
        video: torch.Tensor,
        strays: torch.Tensor | None,
        emphasis: torch.Tensor,
        buckets: list[Bucket],
        frames: int,
    ) -> None:
        self.video, self.video_strays, self.buckets, self.frames = video, strays, buckets, frames
        self.emphasis = emphasis  # [N, rows of a latent frame]
        self.audio, self.audio_strays = torch.empty(0), None
        self.sound_of = torch.empty(0)  # row of `audio` of every request

    @torch.no_grad()
    def add_sounds(
        self, models: Frozen, requests: list[tasks.Request], scenes: world.Scenes, strays_seed
    ) -> None:
        """Target rows [N, rows, 16] bf16, those of strays if there is a seed for them, and the rows of sound
        references."""
        own = requests[0].task == "ref2va"  # a request has its own sound
        heard = world.concatenate([r.scene for r in requests]) if own else scenes
        self.audio = self._sounds(models, heard)
        if strays_seed is not None:
            self.audio_strays = self._sounds(models, heard, strays_seed)
        self.sound_of = torch.arange(len(requests), device=self.audio.device) % len(heard)
        for bucket in self.buckets:
            if bucket.layout.audio_conditions:
                bucket.audio = self._references(models, [requests[i] for i in bucket.request.tolist()])

    def _sounds(self, models: Frozen, scenes: world.Scenes, strays_seed=None) -> torch.Tensor:
        """Rows of the sound of scenes' clips, or of strays of it."""
        out, step, progress = [], 32, Progress("sounds", len(scenes))
        for i in range(0, len(scenes), step):
            part = scenes.take(slice(i, i + step))
            tracks = world.Tracks(world.Backend(models.device), part, tasks.FRAMES)
            delay = None if strays_seed is None else astray.tick_delay(tracks, [*strays_seed, i])
            sound = world.synthesise(tracks, 0, world.frames_to_hops(self.frames), delay)
            out.append(models.encode_audio(sound).to(torch.bfloat16))
            progress(i + step)
        return torch.cat(out)

    @staticmethod
    def _references(models: Frozen, requests: list[tasks.Request]) -> torch.Tensor:
        """Sound references of requests of one layout, one after the other."""
        sounds = [r.scene for q in requests for r in q.references if r.kind == "audio"]
        rows = torch.cat([models.sounds(sounds[i : i + 64]) for i in range(0, len(sounds), 64)])
        return rows.reshape(len(requests), -1, rows.shape[-1])


def prepare(args, stage: str) -> list:
    """What a stage makes, one value a part, each from its file if that is there: rows of "videos" or "strays",
    buckets of "prompts". `args.part` asks for one part only."""
    needs = ("video", "text") if stage == "prompts" else ("video",)
    name = (
        f"{args.clips}x{args.frames}-{args.pairs}-{args.bounces}-{args.seed}-{fingerprint(args.model, needs)}"
    )
    name = f"{args.partition}-{args.wordings}x{name}" if stage == "prompts" else f"{stage}-{name}"

    def make(part: tuple[int, int]):
        models, scenes = Frozen(args.model, args.device, needs), scenes_of(args)
        if stage == "strays":
            scenes = astray.looks(scenes, [args.seed, 51])
        if stage != "prompts":
            return encode_videos(models, scenes, args.seed, args.frames, part, stage)
        requests = requests_of(scenes, args.partition, args.seed, args.wordings, args.frames)
        return embed_prompts(models, scenes, requests, args.frames, part)

    def value(i: int):
        path = args.cache and args.cache / f"{name}-{i}of{args.parts}.pt"
        return kept(path, args.device, lambda: make((i, args.parts)))

    return [value(i) for i in (range(args.parts) if args.part is None else [args.part])]


def load(args) -> Pool:
    """All stages."""
    video = torch.cat(prepare(args, "videos"))
    strays = torch.cat(prepare(args, "strays")) if args.astray else None
    scenes, found = scenes_of(args), {}
    for part in prepare(args, "prompts"):
        for key, bucket in part.items():
            if key in found:
                found[key].join(bucket)
            else:
                found[key] = bucket
    print(f"prompts: {len(found)} layouts", flush=True)
    counts = torch.from_numpy(emphasis(scenes)).to(args.device)
    pool = Pool(video, strays, counts, list(found.values()), args.frames)
    requests = requests_of(scenes, args.partition, args.seed, args.wordings, args.frames)
    models = Frozen(args.model, args.device, ("audio",))
    pool.add_sounds(models, requests, scenes, [args.seed, 52] if args.astray else None)
    return pool
