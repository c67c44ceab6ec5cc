#!/usr/bin/env python3
"""Asks duet for clips of held-out prompts, measures them, and holds the table against the floors.

    held_out.py                        20 prompts, models/duet-tiny, build/duet: three minutes on two cores
    held_out.py --count 2              what ./test.sh runs
    held_out.py --out DIR --json F     keeps the clips and every figure

Prompts are the first of the 200 that `generate.py --task t2va` asks for: combinations of shape, colour and
motion that training never shows. A clip goes the whole way: prompt, MP4, and back through the `ffmpeg`
program, so the compression of the file is in the figures. `floors.json` has a set of floors for each
number of clips it knows; they lie a few points below what was measured when the model was shipped, and one
clip more or less is several points of a share, so they guard against breakage, not against noise.

Needs Python 3, NumPy, `ffmpeg` and the program. Each floor counts as one test; exit code 1 if one does not
hold.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import evaluate
import jsonfile
import options
import tasks

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SEED, OF = 1, 200  # the requests of the table: `count` of them are taken from the front


def trained(model: pathlib.Path) -> bool:
    """Whether the model folder can be opened for t2va."""
    needed = ("model_index.json", "transformer/model.safetensors.index.json", "text_encoder/config.json")
    return all((model / "FL2VA" / name).exists() for name in needed)


def generate(args: argparse.Namespace, prompt: str, clip: pathlib.Path) -> None:
    """One clip of 107 frames."""
    command = [args.duet, "generate", "--model", args.model, "--prompt", prompt, "--size", "256x256"]
    command += ["--num-frames", tasks.FRAMES, "--num-inference-steps", args.points, "--output", clip]
    command += ["--overwrite", "--quiet", *args.more]
    run = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"duet exited {run.returncode}: {run.stderr.strip()}")


def clips(args: argparse.Namespace, folder: pathlib.Path) -> list[dict]:
    """Figures of every clip, with a line each while it goes."""
    out = []
    for i, request in enumerate(tasks.make([SEED, 4242], OF, "t2va", split="test")[: args.count]):
        began, clip = time.monotonic(), folder / f"t2va-{i:03d}.mp4"
        generate(args, request.prompt, clip)
        made = time.monotonic() - began
        out.append(evaluate.measure_entry({"file": str(clip), "prompt": request.prompt}))
        wrong = [k for k in evaluate.SHARES if out[-1].get(k) is not None and out[-1][k] < 1]
        print(
            f"{i:3d} {made:5.1f} s  {'wrong: ' + ' '.join(wrong) if wrong else 'right'}  {request.prompt}",
            flush=True,
        )
    return out


def hold(summary: dict, floors: dict) -> list[tuple[bool, str]]:
    """(holds, line) for every floor and ceiling. A figure that is missing does not hold."""
    out = []
    for key, sign in (("at_least", 1), ("at_most", -1)):
        for name, bound in floors.get(key, {}).items():
            value = summary.get(name)
            good = value is not None and sign * value >= sign * bound
            out.append((good, f"{name}: {value} ({key.replace('_', ' ')} {bound})"))
    return out


def check_duet(duet: pathlib.Path) -> None:
    """Refuses what cannot be run."""
    if not shutil.which(duet):
        options.refuse("duet", duet, "is no program; build it first (README.md)")


def floors_of(path: pathlib.Path, count: int) -> dict:
    """The floors for so many clips; none if the file has none."""
    with options.reading("floors", path):
        found = json.loads(path.read_text())
        if not isinstance(found, dict) or not all(isinstance(v, dict) for v in found.values()):
            raise ValueError("must be an object of objects, as floors.json")
        return found.get(str(count), {})


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/duet-tiny")
    parser.add_argument("--duet", type=pathlib.Path, default=ROOT / "build/duet")
    parser.add_argument("--count", type=int, default=20, help="how many of the 200 prompts (default 20)")
    parser.add_argument("--points", type=int, default=21, help="sigma points (default 21: 20 evaluations)")
    parser.add_argument("--floors", type=pathlib.Path, default=HERE / "floors.json")
    parser.add_argument("--out", type=pathlib.Path, help="keep the clips there")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures there")
    parser.add_argument("more", nargs="*", help="more options of duet, after --")
    args = parser.parse_args()
    options.within(args, "count", 1, OF)
    options.within(args, "points", 2, 1000)
    options.check_there("model", args.model)
    options.check_folder("out", args.out)
    options.check_file("json", args.json)
    floors = floors_of(args.floors, args.count)
    if not trained(args.model):
        print(f"skip held_out: no trained transformer and text encoder in {args.model}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    check_duet(args.duet)
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.out or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            measured = clips(args, folder)
        except (RuntimeError, OSError) as problem:
            print(f"FAILED {problem}\n0 passed, 1 failed, 0 skipped")
            return 1
        except KeyboardInterrupt:
            print("held_out: stopped", file=sys.stderr)
            return 130
    summary = evaluate.summarise(measured)
    print(evaluate.table(summary))
    if args.json:
        jsonfile.write(args.json, {"summary": summary, "clips": measured})
    verdicts = hold(summary, floors)
    for good, line in verdicts:
        print(("ok     " if good else "FAILED ") + line)
    if not verdicts:
        print(f"note: {args.floors.name} has no floors for {args.count} clips")
    failed = sum(not good for good, _ in verdicts)
    print(f"{len(verdicts) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
