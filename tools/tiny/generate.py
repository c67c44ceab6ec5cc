"""Makes clips of the toy world with the reference modules from the shipped (native) files, and measures them.

    generate.py models/duet-tiny --task t2va --count 200 --json t2va.json        held-out requests, measured
    generate.py models/duet-tiny --task t2va --count 4 --out DIR                 also the clips: PNG frames,
    WAV, prompt

It samples as the reference does (sigma grid, shifts, Euler step), many requests of one layout at once, with
noise of its own seeds: a yardstick for training, not for parity (`reference.py`).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import os
import pathlib
import time
import wave

import numpy as np
import torch

import flow
import jsonfile
import native
import options
import packing
import tasks
import text
import world
from frozen import GRID, Frozen
from judge import asked, judge, table


class Model:
    """All components of a partition, read from the native files."""

    def __init__(self, root: pathlib.Path, partition: str, device: str) -> None:
        folder = root / partition
        self.device = device
        self.frozen = Frozen(folder, device)
        self.transformer = flow.build(0).to(device).eval()
        native.read_transformer(folder / "transformer", self.transformer)

    @torch.no_grad()
    def embed(self, requests: list[tasks.Request]):
        """Text states, presentations and conditions of requests."""
        batch = text.Batcher(self.frozen.encoder, self.device)(requests)
        return self.frozen.encoder(batch)[0], batch["shown"], self.frozen.conditions(requests)

    @torch.no_grad()
    def sample(self, rows: flow.Rows, states, video, audio, points: int, seed: int, guidance: float = 1.0):
        """Denoised target rows of a batch of one layout. `guidance` other than 1 extrapolates velocities from
        those without the prompt: what guided training would make of a model that has not had it."""
        n, layout = states.shape[0], rows.layout
        gen = torch.Generator(self.device).manual_seed(seed)
        cuda = self.device.startswith("cuda")

        def noise(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=gen, device=self.device)

        if video is not None:
            level = packing.VISUAL_LEVEL
            video = level * video + (1 - level) * noise(*video.shape)
        x = noise(n, len(layout.video) - layout.video_conditions, 4 * flow.CONFIG["in_channels"])
        a = noise(n, len(layout.audio) - layout.audio_conditions, flow.CONFIG["audio_in_channels"])
        u = torch.linspace(1, 0, points, device=self.device)
        for i in range(points - 1):
            pictures = x if video is None else torch.cat([video, x], 1)
            sounds = a if audio is None else torch.cat([audio, a], 1)
            inputs = (self.transformer, rows, pictures, sounds)
            times = flow.times_of(u[i].expand(n))
            with torch.autocast("cuda", torch.bfloat16, enabled=cuda):
                v, w = flow.forward(*inputs, states, times)
                if guidance != 1 and u[i] > flow.GUIDED:
                    free = flow.forward(
                        self.transformer, rows, *flow.untold(rows, pictures, sounds, states), times
                    )
                    v, w = (f + guidance * (told - f) for told, f in zip((v, w), free))
            step = [flow.shifted(u[i], s) - flow.shifted(u[i + 1], s) for s in flow.SHIFTS]
            x = x + step[0] * v[:, layout.video_conditions :]
            a = a + step[1] * w[:, layout.audio_conditions :]
        return x, a


def batches(model: Model, requests: list[tasks.Request], size: int):
    """(numbers, rows, states, video, audio) of requests of one layout."""
    groups: dict[tuple, list] = {}
    for start in range(0, len(requests), 32):
        part = requests[start : start + 32]
        states, shown, brought = model.embed(part)
        for j, (p, c) in enumerate(zip(shown, brought)):
            entry = (start + j, states[j, : len(p.ids)], c.rows(sound=False), c.rows(sound=True))
            groups.setdefault((tuple(p.tags), tuple(c.kinds)), []).append(entry)
    for (tags, kinds), entries in groups.items():
        rows = flow.Rows(packing.build(list(tags), list(kinds), tasks.FRAMES, GRID, GRID), model.device)
        for i in range(0, len(entries), size):
            numbers, *values = zip(*entries[i : i + size])
            yield numbers, rows, *(torch.stack(v).float() if v[0] is not None else None for v in values)


def save_clip(folder: pathlib.Path, frames: np.ndarray, sound: np.ndarray, request: tasks.Request) -> None:
    """PNG frames, WAV and prompt."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for i, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / f"{i:04d}.png")
    with wave.open(str(folder / "sound.wav"), "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(world.SAMPLE_RATE)
        out.writeframes((np.clip(sound.T, -1, 1) * 32767).round().astype("<i2").tobytes())
    (folder / "prompt.txt").write_text(request.prompt + "\n")


def run(model: Model, requests: list[tasks.Request], args: argparse.Namespace) -> list[dict]:
    """Clips of all requests, measured beside the generation by other processes."""
    began, done = time.monotonic(), 0
    jobs: list = [None] * len(requests)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(args.workers, mp_context=context) as workers:
        for numbers, rows, *inputs in batches(model, requests, args.batch):
            x, a = model.sample(rows, *inputs, args.points, args.seed + numbers[0], args.guidance)
            for j, number in enumerate(numbers):
                frames, sound = model.frozen.decode(x[j : j + 1], a[j : j + 1])
                jobs[number] = workers.submit(judge, requests[number], frames, sound)
                if args.out:
                    name = f"{requests[number].task}-{number:03d}"
                    save_clip(args.out / name, frames, sound, requests[number])
            done += len(numbers)
            print(f"{done} of {len(requests)} clips, {time.monotonic() - began:.0f} s", flush=True)
        return [job.result() for job in jobs]


def check_arguments(args: argparse.Namespace) -> None:
    """Refuses, in one line each, options that make no clips, before any is made."""
    for field, low in (("count", 1), ("points", 2), ("batch", 1), ("workers", 1), ("seed", 0)):
        options.within(args, field, low, 10**6)
    options.within(args, "guidance", 0, 100)
    options.check_device(args.device)
    options.check_model(args.root, f"{native.folder_of(args.task)}/transformer")
    if args.swap and args.task != "ref2va":
        options.refuse("swap", "", "is for --task ref2va only")
    options.check_folder("out", args.out)
    options.check_file("json", args.json)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=pathlib.Path, help="the model folder, as models/duet-tiny")
    parser.add_argument("--task", choices=("t2va", "fl2va", "ref2va"), default="t2va")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument(
        "--points", type=int, default=21, help="sigma points; evaluations are one fewer (default 21)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--guidance", type=float, default=1.0, help="two evaluations a step (default 1)")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes that measure")
    parser.add_argument("--split", choices=("train", "test", "all"), default="test")
    parser.add_argument(
        "--swap", action="store_true", help="ref2va: only requests with two pictures, exchanged"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=pathlib.Path, help="keep the clips there")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures there")
    args = parser.parse_args()
    check_arguments(args)
    requests = asked(args.seed, args.count, args.task, args.swap, args.split)
    model = Model(args.root, native.folder_of(args.task), args.device)
    clips = run(model, requests, args)
    summary, lines = table(clips)
    print(lines)
    if args.json:
        jsonfile.write(args.json, {"summary": summary, "clips": clips})


if __name__ == "__main__":
    main()
