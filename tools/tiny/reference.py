#!/usr/bin/env python3
"""Makes clips of duet-tiny with the reference's own pipelines (diffusers), for all three tasks, and
measures them.

    reference.py models/duet-tiny --converter FILE --task t2va --count 200 --json t2va.json
    reference.py models/duet-tiny --converter FILE --task ref2va --swap    the roles of two pictures exchanged

The checkpoint is converted to the diffusers layout by `tools/oracle/convert.py`, the constants that a
small model needs otherwise come from `tools/oracle/overrides.py`, and everything else is diffusers as
shipped: the requests go in as media (8-bit pictures, 8-bit frames at 24 a second, 16-bit sound), so
presentation, conditions, packing and noise are the pipeline's, not ours. `agree.py` shows that they are
the ones that training used.

One request at a time, on a CPU (20 to 30 s each) or a GPU (0.6 s). With --json a run that was stopped goes on where it
was, and figures of another run are not written over. With --out the clips and their media stay as PNG and WAV files
beside a manifest that `evaluate.py` reads. Reference videos have no sound track: one would add rows that no training ever saw.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import pathlib
import sys
import tempfile
import time
import wave

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "oracle"))

import convert  # noqa: E402
import overrides  # noqa: E402

import jsonfile  # noqa: E402
import judge  # noqa: E402
import native  # noqa: E402
import options  # noqa: E402
import tasks  # noqa: E402
import world  # noqa: E402

SIDE = world.CANVAS


def paint(scene: world.Scenes, length: int, first: int = 0, frames: int | None = None) -> np.ndarray:
    """Frames of a scene, 8 bits."""
    return world.paint(world.Tracks(world.Backend(), scene, length), first, frames)


def media(request: tasks.Request) -> dict:
    """{"first", "last": picture [H, W, 3]; "references": [(kind, value)]}, as files would hold them."""
    out: dict = {}
    for at in request.keyframes:
        out[at] = paint(request.scene, tasks.FRAMES, 0 if at == "first" else tasks.FRAMES - 1, 1)[0]
    for reference in request.references:
        length = tasks.VIDEO_REFERENCE_FRAMES
        if reference.kind == "audio":
            tracks = world.Tracks(world.Backend(), reference.scene, length)
            sound = world.synthesise(tracks, 0, tasks.AUDIO_REFERENCE_HOPS)[0]
            value = np.round(np.clip(sound, -1, 1) * 32767).astype(np.int16)
        else:
            value = paint(reference.scene, length, 0, None if reference.kind == "video" else 1)
        out.setdefault("references", []).append(
            (reference.kind, value if reference.kind != "image" else value[0])
        )
    return out


class Pipeline:
    """The pipeline of one task over a converted tree."""

    def __init__(self, tree: pathlib.Path, task: str, device: str, threads: int) -> None:
        import torch
        from diffusers.modular_pipelines.minimax_h3 import MiniMaxH3Blocks

        torch.set_num_threads(threads)
        self.torch, self.task, tree = torch, task, tree.resolve()
        overrides.apply_to_pipeline(overrides.our_keys(overrides.read_json(tree, "modular_model_index.json")))
        overrides.apply_to_device(device)
        self.pipe = MiniMaxH3Blocks().get_workflow(task).init_pipeline(str(tree))
        self.pipe.load_components(dtype=torch.float32, pretrained_model_name_or_path=str(tree))
        self.pipe.to(device)
        self.pipe.set_progress_bar_config(disable=True)

    def _references(self, values: list[tuple[str, np.ndarray]]) -> list:
        from diffusers.modular_pipelines import minimax_h3 as h3
        from PIL import Image

        make = {
            "image": lambda v: h3.MiniMaxH3ImageReference(image=Image.fromarray(v)),
            "video": lambda v: h3.MiniMaxH3VideoReference(frames=v, fps=float(world.FPS)),
            "audio": lambda v: h3.MiniMaxH3AudioReference(
                audio=self.torch.tensor(v.astype(np.float32) / 32768), sample_rate=world.SAMPLE_RATE
            ),
        }
        return [make[kind](value) for kind, value in values]

    def run(self, prompt: str, given: dict, points: int, seed: int):
        """The state that the pipeline leaves behind, after decoding."""
        from PIL import Image

        inputs: dict = {"prompt": prompt, "height": SIDE, "width": SIDE, "num_frames": tasks.FRAMES}
        for name, argument in (("first", "image"), ("last", "last_image")):
            if name in given:
                inputs[argument] = Image.fromarray(given[name])
        if "references" in given:
            inputs["references"] = self._references(given["references"])
        generator = self.torch.Generator().manual_seed(seed)
        with self.torch.no_grad():
            return self.pipe(**inputs, num_inference_steps=points, generator=generator, output_type="pt")

    def clip(self, prompt: str, given: dict, points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Frames [F, H, W, 3] uint8 and sound [2, samples]."""
        state = self.run(prompt, given, points, seed)
        frames = state.get("videos")[0].permute(0, 2, 3, 1)
        return (frames * 255).round().byte().cpu().numpy(), state.get("audio")[0].float().cpu().numpy()


def write_wav(path: pathlib.Path, samples: np.ndarray) -> None:
    """int16 [2, n] as a WAV file."""
    with wave.open(str(path), "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(world.SAMPLE_RATE)
        out.writeframes(np.ascontiguousarray(samples.T).astype("<i2").tobytes())


def save(folder: pathlib.Path, prompt: str, given: dict, frames: np.ndarray, sound: np.ndarray) -> dict:
    """Writes a clip with its media; returns its entry of a manifest."""
    from PIL import Image

    def pictures(where: pathlib.Path, values: np.ndarray) -> str:
        where.mkdir(parents=True, exist_ok=True)
        for i, value in enumerate(values):
            Image.fromarray(value).save(where / f"{i:04d}.png")
        return str(where)

    entry: dict = {"file": pictures(folder / "clip", frames), "prompt": prompt, "references": []}
    write_wav(folder / "clip" / "sound.wav", np.round(np.clip(sound, -1, 1) * 32767).astype(np.int16))
    for at in ("first", "last"):
        if at in given:
            entry[at] = str(folder / f"{at}.png")
            Image.fromarray(given[at]).save(entry[at])
    for i, (kind, value) in enumerate(given.get("references", [])):
        stem = folder / f"reference-{i}"
        if kind == "audio":
            write_wav(stem.with_suffix(".wav"), value)
            entry["references"].append({"kind": kind, "file": str(stem.with_suffix(".wav"))})
        else:
            entry["references"].append(
                {"kind": kind, "file": pictures(stem, value if kind == "video" else value[None])}
            )
    return entry


def choose(args: argparse.Namespace) -> list[tasks.Request]:
    """The requests, the same as `generate.py` makes of the same options."""
    return judge.asked(args.seed, args.count, args.task, args.swap)


def resume(args: argparse.Namespace) -> tuple[dict, dict[int, dict]]:
    """What this run is, and the figures an earlier one of the same kind left in --json."""
    identity = {k: getattr(args, k) for k in ("task", "count", "points", "seed", "noise_seed", "swap")}
    identity["made_of"] = overrides.read_json(args.tree, convert.STAMP)
    if args.json is None or not args.json.exists():
        return identity, {}
    try:
        found = json.loads(args.json.read_text())
        run, clips = dict(found["run"]), {c["number"]: c for c in found["clips"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        reason = f"{type(problem).__name__}: {problem}"
        options.refuse("json", args.json, f"is there and holds no figures ({reason}); another file is needed")
    other = [k for k in identity if run.get(k) != identity[k]]
    if other:
        options.refuse(
            "json",
            args.json,
            f"holds figures of another run ({', '.join(other)} differ); another file is needed",
        )
    return identity, clips


def write(path: pathlib.Path | None, identity: dict, clips: dict[int, dict]) -> str:
    """Table of the clips so far; all figures also written to --json."""
    ordered = [clips[i] for i in sorted(clips)]
    summary, lines = judge.table(ordered)
    if path:
        jsonfile.write(path, {"summary": summary, "clips": ordered, "run": identity})
    return lines


def listed(out: pathlib.Path | None) -> dict[str, dict]:
    """The entries of the manifest of an earlier run, by the folder of the clip; of clips that are still there."""
    if out is None or not (out / "manifest.json").exists():
        return {}
    with options.reading("out", out):
        entries = json.loads((out / "manifest.json").read_text())
        places = [pathlib.Path(e["file"]).parent for e in entries]
        return {p.name: e for p, e in zip(places, entries) if p.is_dir()}


def make(args: argparse.Namespace, pool: concurrent.futures.Executor) -> str:
    """All clips, measured by the pool while the next one is made; the table."""
    identity, clips = resume(args)
    requests, waiting = choose(args), {}
    manifest = listed(args.out) if clips else {}
    pipeline, began, made = Pipeline(args.tree, args.task, args.device, args.threads), time.monotonic(), 0
    todo = [i for i in range(len(requests)) if i not in clips]
    for i in todo:
        request = requests[i]
        given = media(request)
        frames, sound = pipeline.clip(request.prompt, given, args.points, args.noise_seed + i)
        waiting[i] = pool.submit(judge.judge, request, frames, sound)
        if args.out:
            folder = args.out / f"{args.task}-{i:03d}"
            manifest[folder.name] = save(folder, request.prompt, given, frames, sound)
            entries = [manifest[name] for name in sorted(manifest)]
            jsonfile.write(args.out / "manifest.json", entries)
        made += 1
        each = (time.monotonic() - began) / made
        print(
            f"{i + 1}/{len(requests)}  {each:.1f} s each, {each * (len(todo) - made):.0f} s left", flush=True
        )
        for n in [n for n, figures in waiting.items() if figures.done() or made == len(todo)]:
            clips[n] = {"number": n, **waiting.pop(n).result()}
            write(args.json, identity, clips)
    return write(args.json, identity, clips)


def check_arguments(args: argparse.Namespace) -> None:
    """Refuses, in one line each, options that make no clips, before any is made."""
    lows = (("count", 1), ("points", 2), ("seed", 0), ("noise-seed", 0), ("threads", 1), ("workers", 1))
    for field, low in lows:
        options.within(args, field, low, 10**6)
    if args.swap and args.task != "ref2va":
        options.refuse("swap", f"with --task {args.task}", "is for --task ref2va only", "ref2va")
    options.check_device(args.device)
    convert.check_converter(args.converter)
    options.check_model(args.root, f"{native.folder_of(args.task)}/transformer")
    options.check_folder("out", args.out)
    options.check_file("json", args.json)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=pathlib.Path, help="the model folder, as models/duet-tiny")
    parser.add_argument(
        "--converter", required=True, help="conversion script of the reference (docs/oracle.md)"
    )
    parser.add_argument("--task", choices=("t2va", "fl2va", "ref2va"), default="t2va")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--points", type=int, default=21, help="sigma points (default 21: 20 evaluations)")
    parser.add_argument("--seed", type=int, default=1, help="of the requests, as in generate.py")
    parser.add_argument(
        "--noise-seed", type=int, default=1000, help="request K is given the noise of this + K"
    )
    parser.add_argument(
        "--swap", action="store_true", help="ref2va: only requests with two pictures, exchanged"
    )
    parser.add_argument(
        "--tree", type=pathlib.Path, help="where the converted checkpoint is kept (default: nowhere)"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1, help="processes that measure")
    parser.add_argument("--out", type=pathlib.Path, help="keep the clips and their media there")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures there, and go on from there")
    args = parser.parse_args()
    check_arguments(args)
    with tempfile.TemporaryDirectory() as scratch:
        args.tree = args.tree or pathlib.Path(scratch) / "tree"
        convert.ensure(str(args.root), str(args.tree), args.converter)
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(args.workers, mp_context=context) as pool:
            print(make(args, pool))


if __name__ == "__main__":
    main()
