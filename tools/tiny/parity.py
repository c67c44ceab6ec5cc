#!/usr/bin/env python3
"""The whole way from prompt to frames and sound, duet beside the reference's own pipeline, on held-out
prompts.

    parity.py --converter convert_minimax_h3_to_diffusers.py [--count 5] [--work DIR]

Both sides get the prompt and draw the same noise; nothing else passes between them. The checkpoint is
converted with `tools/oracle/convert.py`, the reference runs in a process of its own (`run_reference.py`),
and every tensor of the request is compared by the rules of `tools/oracle/tolerances.json`, but for the two
that are delivered: frames must reach 50 dB PSNR, sound 1e-3 relative L2 (a trained model may lift a
rounding where a random one does not).

Run it with the Python that has the reference installed (docs/oracle.md). Each prompt counts as one test.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ORACLE = ROOT / "tools" / "oracle"
sys.path.insert(0, str(ORACLE))

import compare  # noqa: E402
import convert  # noqa: E402

import held_out  # noqa: E402
import options  # noqa: E402
import tasks  # noqa: E402

DELIVERED = [
    {"name": "frames", "psnr_db": 50.0, "required": True},
    {"name": "audio", "rel_l2": 1e-3, "required": True},
]
SHOWN = ("video_latents", "audio_latents", "frames", "audio")


def run(command: list, log: pathlib.Path) -> float:
    """Runs a command with its output in a log; seconds. Its last lines are the message when it fails."""
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as out:
        code = subprocess.run(
            [str(c) for c in command], stdout=out, stderr=subprocess.STDOUT, check=False
        ).returncode
    if code:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-6:])
        raise RuntimeError(f"{pathlib.Path(command[0]).name} exited {code}:\n{tail}")
    return time.monotonic() - began


def both(args: argparse.Namespace, number: int, prompt: str) -> tuple[dict, dict, str]:
    """Tensors of duet, tensors of the reference, and how long each took."""
    folder = args.work / f"prompt-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    text = folder / "prompt.txt"
    text.write_text(prompt + "\n", encoding="utf-8")
    common = ["--prompt-file", text, "--size", "256x256", "--num-frames", tasks.FRAMES]
    common += ["--num-inference-steps", args.points, "--seed", args.seed + number, "--noise", args.noise]
    reference = [sys.executable, ORACLE / "run_reference.py", args.work / "tree", *common, "--threads", 2]
    theirs = run([*reference, "--out", folder / "reference"], folder / "reference.log")
    mine = [args.duet, "generate", "--model", args.model, *common, "--output", folder / "clip.mp4"]
    ours = run([*mine, "--dump", folder / "duet", *args.more], folder / "duet.log")
    times = f"duet {ours:.0f} s, reference {theirs:.0f} s"
    return compare.load(str(folder / "duet")), compare.load(str(folder / "reference")), times


def judge(mine: dict, theirs: dict, rules: list[dict]) -> tuple[list[str], list[str]]:
    """(figures that are always shown, breaches) of one prompt."""
    rows = compare.compare(mine, theirs, rules, None, None)
    shown = [f"{n}: {text}" for _, n, text in rows if n in SHOWN]
    if "frames" in mine and mine["frames"].shape == theirs["frames"].shape:
        away = abs(mine["frames"].astype(int) - theirs["frames"].astype(int)).max()
        shown.append(f"worst pixel: {away} of 255 levels")
    return shown, [f"{n}: {text}" for status, n, text in rows if status == "FAIL"]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--converter", required=True, help="conversion script of the reference")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/duet-tiny")
    parser.add_argument("--duet", type=pathlib.Path, default=ROOT / "build/duet")
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--points", type=int, default=21, help="sigma points (default 21: 20 evaluations)")
    parser.add_argument("--seed", type=int, default=42, help="prompt K uses seed + K")
    parser.add_argument(
        "--noise", choices=("sglang", "diffusers"), default="sglang", help="whose stream of noise"
    )
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "out/parity", help="trees and dumps")
    parser.add_argument("more", nargs="*", help="more options of duet, after --")
    args = parser.parse_args()
    options.within(args, "count", 1, held_out.OF)
    options.within(args, "points", 2, 1000)
    options.within(args, "seed", 0, 10**9)
    options.check_there("model", args.model)
    options.check_folder("work", args.work)
    convert.check_converter(args.converter)
    held_out.check_duet(args.duet)
    if not held_out.trained(args.model):
        print(f"skip parity: nothing trained in {args.model}\n0 passed, 0 failed, 1 skipped")
        return 0
    args.work.mkdir(parents=True, exist_ok=True)
    convert.ensure(str(args.model), str(args.work / "tree"), args.converter)
    rules = DELIVERED + json.loads((ORACLE / "tolerances.json").read_text())["rules"]
    requests = tasks.make([held_out.SEED, 4242], held_out.OF, "t2va", split="test")[: args.count]
    failed = 0
    for i, request in enumerate(requests):
        try:
            mine, theirs, times = both(args, i, request.prompt)
            shown, bad = judge(mine, theirs, rules)
        except RuntimeError as problem:
            shown, bad, times = [], [str(problem)], ""
        print(f"{'FAILED' if bad else 'ok':6} {i}  {request.prompt}  ({times})")
        for line in shown + [f"breach: {b}" for b in bad[:12]]:
            print("         " + line, flush=True)
        failed += bool(bad)
    print(f"{len(requests) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
