#!/usr/bin/env python3
"""Run one t2va request through the reference and write its taps, a safetensors file per stage.

    run_reference.py TREE --prompt TEXT --size 96x64 --num-frames 22 --out DIR [--tap 'dit.*' ...]

TREE is a diffusers tree made by convert.py. The files are those of `duet generate --dump`: condition, pack, denoise,
decode, deliver. The tensors of the request are always written; network taps by `--tap` (shell patterns).
"""

import argparse
import json
import os
import sys
from dataclasses import dataclass

import environment
import tensors

# Always recorded: the contract between duet and the oracle.
REQUEST_TAPS = ["video_noise", "audio_noise", "step_*"]


@dataclass
class Request:
    """A resolved request. Ladders replace points; noise is 'sglang' or 'diffusers' unless init_noise is given."""

    prompt: str
    width: int
    height: int
    frames: int
    points: int = 50
    seed: int = 42
    noise: str = "sglang"
    init_noise: tuple = None
    flow_shift: float = None
    audio_flow_shift: float = None
    sigmas: list = None
    audio_sigmas: list = None
    base_schedule: list = None


def numbers(text):
    return [float(x) for x in text.split(",")]


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tree")
    parser.add_argument("--out", required=True)
    parser.add_argument(
        "--request", help="file with one request of tests/fixtures/requests.json; excludes all others"
    )
    parser.add_argument("--prompt")
    parser.add_argument("--prompt-file")
    parser.add_argument("--size", help="WIDTHxHEIGHT")
    parser.add_argument("--num-frames", type=int)
    parser.add_argument("--num-inference-steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--noise", choices=("sglang", "diffusers"), default="sglang")
    parser.add_argument("--init-noise", help="file with video_noise and audio_noise rows")
    parser.add_argument("--flow-shift", type=float)
    parser.add_argument("--audio-flow-shift", type=float)
    parser.add_argument("--sigmas", type=numbers)
    parser.add_argument("--audio-sigmas", type=numbers)
    parser.add_argument("--base-schedule", type=numbers)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tap", action="append", default=[], help="pattern of further taps; may be repeated")
    args = parser.parse_args(argv)
    if args.request is None and (args.size is None or args.num_frames is None):
        parser.error("--size and --num-frames are needed")
    if sum(x is not None for x in (args.prompt, args.prompt_file, args.request)) != 1:
        parser.error("one of --prompt, --prompt-file and --request")
    return args


def request_of(args):
    if args.request is not None:
        with open(args.request, encoding="utf-8") as f:
            return request_of_entry(json.load(f))
    prompt = args.prompt
    if prompt is None:
        with open(args.prompt_file, encoding="utf-8", newline="") as f:
            prompt = f.read().removesuffix("\n")
    noise = None
    if args.init_noise:
        rows, _ = tensors.read(args.init_noise)
        noise = (rows["video_noise"].copy(), rows["audio_noise"].copy())
    width, height = (int(x) for x in args.size.split("x"))
    return Request(
        prompt=prompt,
        width=width,
        height=height,
        frames=args.num_frames,
        points=args.num_inference_steps,
        seed=args.seed,
        noise=args.noise,
        init_noise=noise,
        flow_shift=args.flow_shift,
        audio_flow_shift=args.audio_flow_shift,
        sigmas=args.sigmas,
        audio_sigmas=args.audio_sigmas,
        base_schedule=args.base_schedule,
    )


def request_of_entry(entry):
    """A request of tests/fixtures/requests.json, whose options are spelled as on the command line."""
    width, height = (int(x) for x in entry["size"].split("x"))
    return Request(
        prompt=entry["prompt"],
        width=width,
        height=height,
        frames=entry["num-frames"],
        seed=entry["seed"],
        points=entry.get("num-inference-steps", 50),
        noise=entry.get("noise", "sglang"),
        flow_shift=entry.get("flow-shift"),
        audio_flow_shift=entry.get("audio-flow-shift"),
        sigmas=entry.get("sigmas"),
        audio_sigmas=entry.get("audio-sigmas"),
        base_schedule=entry.get("base-schedule"),
    )


def write(out, files):
    meta = {"environment": environment.describe()}
    for stem, values in files.items():
        tensors.write(os.path.join(out, f"{stem}.safetensors"), values, meta)


def main():
    args = parse(sys.argv[1:])
    import reference
    import taps

    pipeline = reference.load(args.tree, args.threads)
    recorder = taps.Recorder(REQUEST_TAPS + args.tap)
    if args.tap:
        reference.attach(pipeline, recorder)
    write(args.out, reference.run(pipeline, request_of(args), recorder))


if __name__ == "__main__":
    main()
