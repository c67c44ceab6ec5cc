#!/usr/bin/env python3
"""Sends ground-truth clips through both VAEs of duet-tiny and measures what comes back.

    reconstruct.py models/duet-tiny                         16 clips on a CPU, a few minutes
    reconstruct.py models/duet-tiny --device cuda --clips 200 --wide 32

Held-out clips of 107 frames are encoded (the posterior's mean) and decoded by the reference's modules from
the shipped files, with their own chunks and tiles, and read by the evaluator like any other clip; a
quarter as many again bounce, because ticks are rare. Asked for:

    every share of the evaluator at least 98 %; pitch within 0.2 semitone, stereo correlation at least 0.98,
    ticks within 10 ms (medians); video at least 32 dB
    no seam: the error changes from frame to frame at multiples of 17, where chunks meet, at most 1.2 times as
    much as elsewhere; across columns where tiles meet likewise, on clips of 448 x 256

Needs no text encoder and no transformer. Each bound counts as one test; exit code 1 if one does not hold.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402

import audio_vae  # noqa: E402
import evaluate  # noqa: E402
import grammar  # noqa: E402
import jsonfile  # noqa: E402
import native  # noqa: E402
import options  # noqa: E402
import tasks  # noqa: E402
import video_vae  # noqa: E402
import world  # noqa: E402

WIDE, WIDE_FRAMES = 448, 56
BOUNDS = {
    **{name: (">=", 0.98) for name in evaluate.SHARES},
    "pitch_error_semitones": ("<=", 0.2),
    "stereo_correlation": (">=", 0.98),
    "tick_error_ms": ("<=", 10.0),
    "psnr_db": (">=", 32.0),
    "seam_ratio": ("<=", 1.2),
    "tile_ratio": ("<=", 1.2),
}


class Vaes:
    """Both networks from the native files."""

    def __init__(self, folder: pathlib.Path, device: str) -> None:
        self.device = device
        self.video, self.audio = (m.build(0).to(device).eval() for m in (video_vae, audio_vae))
        native.read_video_vae(folder / "video_vae", self.video)
        native.read_audio_vae(folder / "audio_vae", self.audio)

    @torch.no_grad()
    def frames(self, painted: np.ndarray) -> np.ndarray:
        """[F, H, W, 3] uint8 there and back."""
        x = video_vae.normalise(torch.tensor(painted, device=self.device)[None].float() / 255)
        y = video_vae.denormalise(video_vae.reconstruct(self.video, x))[0]
        return (y * 255).round().byte().cpu().numpy()

    @torch.no_grad()
    def sound(self, wave: np.ndarray) -> np.ndarray:
        """[2, samples] there and back; the network is mono, the channels are two items."""
        x = torch.tensor(np.ascontiguousarray(wave), dtype=torch.float32, device=self.device)[:, None]
        return self.audio.decode(self.audio.encode(x).latent_dist.mode()).sample[:, 0].cpu().numpy()


def scenes_of(args: argparse.Namespace) -> world.Scenes:
    """Held-out scenes, then a quarter as many that bounce."""
    plain = world.sample_scenes(args.clips, [args.seed, 4242], split="test")
    more = world.sample_scenes(32 * args.clips, [args.seed, 4243], split="test")
    bounces = np.flatnonzero((more.motion[:, 0] == world.BOUNCE) & (more.count == 1))
    return world.concatenate([plain, more.take(bounces[: (args.clips + 3) // 4])])


def changes(error: np.ndarray, axis: int) -> np.ndarray:
    """Mean absolute change of the error from each index of an axis to the next; entry k belongs to k + 1."""
    change = np.abs(np.diff(error, axis=axis))
    return change.mean(tuple(a for a in range(change.ndim) if a != axis))


def ratio(change: np.ndarray, at: np.ndarray) -> float:
    """Mean change at some indices over that at all others."""
    inside = np.isin(np.arange(1, len(change) + 1), at)
    return float(change[inside].mean() / change[~inside].mean())


def error_of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Signed error in shares of the full range."""
    return (a.astype(np.float32) - b.astype(np.float32)) / 255


def square(vaes: Vaes, args: argparse.Namespace) -> tuple[list[dict], list[dict], dict]:
    """Figures of the reconstructions, of the clips themselves, and of the error over time."""
    scenes, rng = scenes_of(args), np.random.default_rng(args.seed)
    clips, truth, mse, change, began = [], [], [], [], time.monotonic()
    for i in range(len(scenes)):
        scene = scenes.take(slice(i, i + 1))
        prompt = grammar.describe(rng, scene)
        tracks = world.Tracks(world.Backend(), scene, tasks.FRAMES)
        frames, sound = world.paint(tracks), world.synthesise(tracks)[0]
        back = vaes.frames(frames)
        want = evaluate.expectation(prompt)
        truth.append(evaluate.measure(frames, sound, want))
        clips.append({"prompt": prompt, **evaluate.measure(back, vaes.sound(sound), want)})
        error = error_of(back, frames)
        mse.append(float((error**2).mean()))
        clips[-1]["psnr_db"] = -10 * float(np.log10(mse[-1]))
        change.append(changes(error, 0))
        each = (time.monotonic() - began) / (i + 1)
        print(
            f"{i + 1}/{len(scenes)}  {each:.1f} s each, {each * (len(scenes) - i - 1):.0f} s left", flush=True
        )
    seams = np.arange(17, tasks.FRAMES, 17)
    video = {
        "psnr_db": -10 * float(np.log10(np.mean(mse))),
        "psnr_worst_db": min(c["psnr_db"] for c in clips),
        "seam_ratio": ratio(np.mean(change, 0), seams),
    }
    return clips, truth, video


def wide(vaes: Vaes, args: argparse.Namespace) -> dict:
    """The error across columns of clips that need two tiles."""
    scenes = world.sample_scenes(args.wide, [args.seed, 4244], split="test")
    columns, mse = [], []
    for i in range(args.wide):
        tracks = world.Tracks(world.Backend(), scenes.take(slice(i, i + 1)), tasks.FRAMES, width=WIDE)
        frames = world.paint(tracks, 0, WIDE_FRAMES)
        error = error_of(vaes.frames(frames), frames)
        columns.append(changes(error, 2))
        mse.append(float((error**2).mean()))
        print(f"wide {i + 1}/{args.wide}", flush=True)
    starts, lengths, _ = vaes.video._split_tiles(WIDE, 256, 64)
    edges = np.array(sorted({*starts[1:], *(s + n for s, n in zip(starts, lengths) if s + n < WIDE)}))
    change = np.mean(columns, 0)
    patches = np.setdiff1d(np.arange(16, WIDE, 16), edges)
    return {
        "wide_psnr_db": -10 * float(np.log10(np.mean(mse))),
        "tile_ratio": ratio(change, edges),
        "other_patch_border_ratio": float(change[patches - 1].mean() / np.delete(change, patches - 1).mean()),
        "tile_columns": edges.tolist(),
    }


def verdicts(figures: dict) -> list[tuple[bool, str]]:
    """(holds, line) for every bound; a figure that is missing does not hold."""
    out = []
    for name, (sign, bound) in BOUNDS.items():
        value = figures.get(name)
        holds = value is not None and (value >= bound if sign == ">=" else value <= bound)
        out.append((holds, f"{name}: {value if value is None else round(value, 4)} ({sign} {bound})"))
    return out


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=pathlib.Path, help="the model folder, as models/duet-tiny")
    parser.add_argument("--clips", type=int, default=16)
    parser.add_argument("--wide", type=int, default=4, help="clips of 448 x 256")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, help="write all figures there")
    args = parser.parse_args()
    for field in ("clips", "wide", "threads"):
        options.within(args, field, 1, 10**4)
    options.within(args, "seed", 0, 10**9)
    options.check_device(args.device)
    options.check_file("json", args.json)
    options.check_model(args.root, native.FIRST)
    torch.set_num_threads(args.threads)
    torch.backends.cudnn.allow_tf32 = False
    vaes = Vaes(args.root / native.FIRST, args.device)
    clips, truth, video = square(vaes, args)
    summary = {**evaluate.summarise(clips), **video, **wide(vaes, args)}
    print("ground truth, " + evaluate.table(evaluate.summarise(truth)))
    print("reconstructions, " + evaluate.table(evaluate.summarise(clips)))
    for name in ("psnr_worst_db", "wide_psnr_db", "other_patch_border_ratio", "tile_columns"):
        print(f"  {name:26s} {summary[name]}")
    if args.json:
        report = {"summary": summary, "truth": evaluate.summarise(truth), "clips": clips}
        jsonfile.write(args.json, report)
    rows = verdicts(summary)
    for holds, line in rows:
        print(("ok     " if holds else "FAILED ") + line)
    failed = sum(not holds for holds, _ in rows)
    print(f"{len(rows) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
