#!/usr/bin/env python3
"""Time torch on the work that `duet bench` times, on the same weights, the two sides taking turns.

    bench_peer.py --duet build/duet --converter FILE [--threads 2] [--rounds 5] [--size 256x256] [--num-frames 22]

    evaluation     one forward of the transformer, fp32, 256 text rows (shape small)
    video_decode   normalised latents to pixels, fp32 (shape small)
    process        the whole command, from start to a written clip (shape tiny)

Before anything is timed, both sides run the request and their outputs are compared by tolerances.json: a fast wrong
answer is no answer. Each side of the first two is a process that loads once, warms up once and then waits for its
turn, so that the other side never runs beside it. Reported: median and spread (max - min) of the rounds, and the ratio.

The torch side is this file with --torch TREE: it reads a stage a line and answers {"stage", "seconds"} a line. duet
answers the same questions as `duet bench --stage S --json`, one round a process; it times the stage, not the loading.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import compare
import convert

HERE = os.path.dirname(os.path.abspath(__file__))
STAGES = ("evaluation", "video_decode")
TEXT_ROWS = 256
# Two sigma points are one evaluation.
POINTS = 2


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--duet")
    parser.add_argument("--converter")
    parser.add_argument("--torch", metavar="TREE", help="be the torch side of a tree")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", default="256x256")
    parser.add_argument("--num-frames", type=int, default=22)
    parser.add_argument("--work", default="/tmp/duet-oracle-bench")
    parser.add_argument("--only", action="append", choices=(*STAGES, "process"))
    return parser.parse_args(argv)


def torch_side(args):
    """Load once; then answer one line per stage asked for on standard input."""
    import torch

    import reference
    import run_reference

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    pipeline = reference.load(args.torch, args.threads)
    width, height = (int(x) for x in args.size.split("x"))
    request = run_reference.Request(
        prompt="", width=width, height=height, frames=args.num_frames, points=POINTS
    )
    work = {"evaluation": evaluation(pipeline, request), "video_decode": video_decode(pipeline, request)}
    with torch.inference_mode():
        for line in sys.stdin:
            stage = line.strip()
            started = time.perf_counter()
            work[stage]()
            seconds = time.perf_counter() - started
            print(json.dumps({"stage": stage, "seconds": seconds}), file=answers, flush=True)


def evaluation(pipeline, request):
    """A call of the transformer with the rows of a t2va request, as the pipeline packs them."""
    import torch
    from diffusers.modular_pipelines.minimax_h3.before_denoise import (
        MiniMaxH3PrepareLayoutStep,
        MiniMaxH3SetTimestepsStep,
    )

    import reference

    dit = pipeline.transformer
    t, h, w, ta = reference.latent_shape(pipeline, request)
    tags = torch.ones(TEXT_ROWS, dtype=torch.long)
    packed = MiniMaxH3PrepareLayoutStep.build_packed_sequence(tags, t, h, w, ta, pipeline.patch_size, 2, 2, 0)
    position_ids, token_tags, video_rows, audio_rows, text_rows, _, _ = packed
    times, rows = MiniMaxH3SetTimestepsStep.build_row_timesteps(
        video_rows, audio_rows, 0, 0, TEXT_ROWS, 0.25, 0.5, 0.999, 1.0
    )
    video = torch.randn(1, len(video_rows), dit.proj_in.in_features)
    audio = torch.randn(1, len(audio_rows), dit.audio_proj_in.in_features)
    text = torch.randn(1, TEXT_ROWS, dit.context_embedder.in_features)
    return lambda: dit(
        video,
        audio,
        text,
        times,
        rows,
        token_tags,
        position_ids,
        video_rows,
        audio_rows,
        text_rows,
        return_dict=False,
    )


def video_decode(pipeline, request):
    import torch

    import reference

    t, h, w, _ = reference.latent_shape(pipeline, request)
    latents = torch.randn(1, pipeline.vae_latent_channels, t, h, w)
    return lambda: pipeline.vae.decode(latents, return_dict=False)


class TorchSide:
    """The other process; `round` asks it for one stage and waits."""

    def __init__(self, args, tree):
        command = [
            sys.executable,
            __file__,
            "--torch",
            tree,
            "--threads",
            str(args.threads),
            "--size",
            args.size,
        ]
        command += ["--num-frames", str(args.num_frames)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def round(self, stage):
        self.process.stdin.write(stage + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def duet_round(args, model, stage):
    command = [
        args.duet,
        "bench",
        "--model",
        model,
        "--stage",
        stage,
        "--size",
        args.size,
        "--json",
        "--runs",
        "1",
    ]
    command += [
        "--num-frames",
        str(args.num_frames),
        "--text-rows",
        str(TEXT_ROWS),
        "--threads",
        str(args.threads),
    ]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["seconds"]


def checkpoints(args, shape):
    """(native root, tree) of one shape, in the work folder."""
    native, tree = (os.path.join(args.work, f"{shape}-{kind}") for kind in ("native", "tree"))
    shutil.rmtree(native, ignore_errors=True)
    synth = [args.duet, "synth", "--shape", shape, "--layout", "native", "--partition", "fl2va"]
    subprocess.run([*synth, "--seed", "0", "--out", native], check=True, stdout=subprocess.DEVNULL)
    convert.ensure(native, tree, args.converter)
    return native, tree


def whole_runs(args, native, tree, size, frames, out):
    """The two commands that make the same clip from the same prompt."""
    common = [
        "--size",
        size,
        "--num-frames",
        str(frames),
        "--num-inference-steps",
        str(POINTS),
        "--seed",
        "1",
    ]
    common += ["--threads", str(args.threads), "--prompt", "a red fox walks through the snow at night"]
    duet = [args.duet, "generate", "--model", native, *common, "--any-length", "--overwrite", "--quiet"]
    duet += ["--dump", os.path.join(out, "duet"), "--output", os.path.join(out, "clip") + "/"]
    torch = [
        sys.executable,
        os.path.join(HERE, "run_reference.py"),
        tree,
        *common,
        "--out",
        os.path.join(out, "torch"),
    ]
    return duet, torch


def require_equal(args, native, tree, size, frames):
    """Both sides on one request, compared; ends the program when they differ."""
    out = tempfile.mkdtemp(dir=args.work)
    for command in whole_runs(args, native, tree, size, frames, out):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(os.path.join(HERE, "tolerances.json"), encoding="utf-8") as f:
        rules = json.load(f)["rules"]
    a, b = (compare.load(os.path.join(out, side)) for side in ("duet", "torch"))
    bad = [row for row in compare.compare(a, b, rules, None, None) if row[0] == "FAIL"]
    shutil.rmtree(out)
    if bad:
        raise SystemExit(f"error: outputs differ, nothing was timed: {bad[:5]}")


def figures(seconds):
    return {"median": statistics.median(seconds), "spread": max(seconds) - min(seconds), "rounds": seconds}


def bench_stages(args, stages):
    native, tree = checkpoints(args, "small")
    require_equal(args, native, tree, args.size, args.num_frames)
    side, result = TorchSide(args, tree), {}
    for stage in stages:
        side.round(stage)
        torch, duet = [], []
        for _ in range(args.rounds):
            torch.append(side.round(stage))
            duet.append(duet_round(args, native, stage))
        result[stage] = {"torch": figures(torch), "duet": figures(duet)}
    side.close()
    return result


def bench_process(args):
    """Whole processes, from start to exit, for a clip too small to matter."""
    native, tree = checkpoints(args, "tiny")
    size, frames = "128x128", 22
    require_equal(args, native, tree, size, frames)
    out, times = tempfile.mkdtemp(dir=args.work), {"duet": [], "torch": []}
    commands = dict(zip(("duet", "torch"), whole_runs(args, native, tree, size, frames, out)))
    for _ in range(args.rounds):
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - started)
    shutil.rmtree(out)
    return {name: figures(values) for name, values in times.items()}


def main():
    args = parse(sys.argv[1:])
    if args.torch:
        torch_side(args)
        return
    if not args.duet or not args.converter:
        raise SystemExit("error: --duet and --converter are needed")
    os.makedirs(args.work, exist_ok=True)
    wanted = args.only or [*STAGES, "process"]
    result = bench_stages(args, [s for s in STAGES if s in wanted]) if set(STAGES) & set(wanted) else {}
    if "process" in wanted:
        result["process"] = bench_process(args)
    for stage, sides in result.items():
        sides["ratio"] = sides["duet"]["median"] / sides["torch"]["median"]
        figure = {k: f"{v['median']:.4f} s +- {v['spread']:.4f}" for k, v in sides.items() if k != "ratio"}
        print(
            f"{stage:14} duet {figure['duet']}   torch {figure['torch']}   ratio {sides['ratio']:.2f}",
            file=sys.stderr,
        )
    print(
        json.dumps(
            {"threads": args.threads, "size": args.size, "num_frames": args.num_frames, "stages": result}
        )
    )


if __name__ == "__main__":
    main()
