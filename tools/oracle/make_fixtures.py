#!/usr/bin/env python3
"""Re-make everything under tests/fixtures/ from the reference.

    make_fixtures.py --converter FILE --duet build/duet [--h3-config DIR] [--work DIR] [--only PART ...]

    golden/    no checkpoint: goldens.py, tokenizer_goldens.py (the released vocabulary from --h3-config)
    tiny/setN/ weights.json, tokenizer, text, transformer, video and audio decoder of `duet synth --shape tiny` seed N
    requests/  whole requests of requests.json, large tensors as samples

The weights themselves are not kept: `duet synth` makes them again, and weights.json proves that they are the same.
Parts: golden, tokenizer, tiny, requests. About ten minutes on two cores.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys

import convert
import environment
import samples
import tensors

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.normpath(os.path.join(HERE, "..", "..", "tests", "fixtures"))
SETS = (0, 1, 2)
PARTS = ("golden", "tokenizer", "tiny", "requests")
LIMIT_BYTES = 4_000_000

# Elements kept of a request's tensors; 400 of any other. Whole layouts and draws stand among the goldens.
KEEP = {
    "input_ids": 8000,
    "sigmas_video": 300,
    "sigmas_audio": 300,
    "video_latents": 3000,
    "audio_latents": 2000,
}
KEEP.update(video_noise=100, audio_noise=100)

TEXT = {"text_one": "a", "text_long": "<d>[English] It's a d\u00e9j\u00e0 vu.</d>\nfox 12\u672c <think>"}
DIT_TAPS = [
    "dit.re*",
    "dit.t*",
    "dit.adaln_block_00",
    "dit.adaln_final",
    "dit.*_in",
    "dit.packed",
    "dit.final_norm",
]
DIT_TAPS += ["dit.block_*.out", "dit.rope_*", "dit.block_00.*_rope", "dit.block_00.attn"]
TILE_TAPS = [
    "*.post_quant",
    "*.tokens",
    "*.block_00.*_rope",
    "*.block_00.attn",
    "*.out",
    "*.norm_out",
    "*.proj_out",
]
TILE_TAPS += ["*.raw", "*.stitched"]
AUDIO_TAPS = ["avae.dec_in", "avae.conv_pre", "avae.stage_?.out", "avae.post", "avae.wave"]


def video_cases(patch):
    """(name, frames, height, width, taps): one tile, chunks and their seams, tiles in both directions, cut fades."""
    cases = [
        ("video_tile", 22, 48, 64, TILE_TAPS),
        ("video_chunks", 56, 32, 48, ["*_2.stitched"]),
        ("video_tiles", 22, 272, 288, []),
        ("video_480", 22, 32, 480, []),
    ]
    if patch == 1:
        cases += [("video_464", 22, 32, 464, []), ("video_496", 22, 496, 32, [])]
    return cases


def write(name, values):
    path = os.path.join(OUT, name)
    tensors.write(path, values, {"environment": environment.describe()})
    print(f"{os.path.getsize(path):8d}  {name}", flush=True)


def run(*command):
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)


def checkpoint(args, seed):
    """(native root, diffusers tree) of one seed."""
    native, tree = (os.path.join(args.work, f"{kind}{seed}") for kind in ("native", "tree"))
    shutil.rmtree(native, ignore_errors=True)
    synth(args, "native", seed, native)
    convert.ensure(native, tree, args.converter)
    return native, tree


def synth(args, layout, seed, out):
    run(
        args.duet,
        "synth",
        "--shape",
        "tiny",
        "--layout",
        layout,
        "--partition",
        "both",
        "--seed",
        seed,
        "--out",
        out,
    )


def check_diffusers_layout(args, seed, tree):
    """`duet synth --layout diffusers` must hold the tensors that the reference's conversion made, bit for bit."""
    ours = os.path.join(args.work, f"diffusers{seed}")
    shutil.rmtree(ours, ignore_errors=True)
    synth(args, "diffusers", seed, ours)
    for component in ("transformer", "transformer_ref", "vae", "audio_vae", "text_encoder"):
        a, b = (tensors.read_directory(os.path.join(root, component)) for root in (ours, tree))
        wrong = [n for n in {*a, *b} if n not in a or n not in b or a[n].tobytes() != b[n].tobytes()]
        if wrong:
            raise SystemExit(
                f"error: set {seed}: {component} differs from the conversion in {sorted(wrong)[:5]}"
            )


def make_golden(args):
    run(sys.executable, os.path.join(HERE, "goldens.py"), os.path.join(OUT, "golden"))


def make_tokenizer(args):
    if not args.h3_config:
        print("skip: released tokenizer (no --h3-config)")
        return
    script, folder = os.path.join(HERE, "tokenizer_goldens.py"), os.path.join(
        args.h3_config, "FL2VA", "tokenizer"
    )
    run(sys.executable, script, folder, os.path.join(OUT, "golden", "tokenizer_released.safetensors"))
    run(
        sys.executable,
        script,
        folder,
        os.path.join(OUT, "golden", "tokenizer_splits.safetensors"),
        "--splits",
    )


def make_tiny(args):
    for seed in args.sets:
        native, tree = checkpoint(args, seed)
        check_diffusers_layout(args, seed, tree)
        folder = os.path.join(OUT, "tiny", f"set{seed}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "weights.json"), "w", encoding="utf-8") as f:
            json.dump({"seed": seed, "sha256": convert.digests(native)}, f, indent=1)
            f.write("\n")
        script = os.path.join(HERE, "tokenizer_goldens.py")
        run(
            sys.executable,
            script,
            os.path.join(tree, "tokenizer"),
            os.path.join(folder, "tokenizer.safetensors"),
            "--count",
            400,
        )
        make_components(seed, tree)


def make_components(seed, tree):
    import components
    import reference

    pipeline = reference.load(tree)
    folder = f"tiny/set{seed}"
    for name, prompt in TEXT.items():
        write(f"{folder}/{name}.safetensors", components.text(pipeline, prompt))
    every = ["dit.block_*.out", "dit.adaln_final", "dit.refined_text"]
    evaluations = (("t2va", (0.3, 0.55, 0.999), DIT_TAPS), ("ref2va", (0.6, 0.25, 0.999), every))
    for kind, times, patterns in evaluations:
        values = components.transformer(pipeline, kind, times, 100 + seed, patterns)
        write(f"{folder}/transformer_{kind}.safetensors", values)
    for name, frames, height, width, patterns in video_cases(pipeline.patch_size[2]):
        values = components.video_decoder(pipeline, frames, height, width, 200 + seed, patterns)
        write(f"{folder}/{name}.safetensors", values)
    kind, times, _ = evaluations[0]
    _, frames, height, width, _ = video_cases(pipeline.patch_size[2])[0]
    spoiled = reference.load(tree)
    values = components.large_eps(
        spoiled, TEXT["text_long"], (kind, times, 100 + seed), (frames, height, width, 200 + seed)
    )
    write(f"{folder}/large_eps.safetensors", values)
    for name, length, patterns in (
        ("audio_short", 2, AUDIO_TAPS),
        ("audio_one", 1, []),
        ("audio_clip", 37, []),
    ):
        write(
            f"{folder}/{name}.safetensors", components.audio_decoder(pipeline, length, 300 + seed, patterns)
        )


def make_requests(args):
    import reference

    with open(os.path.join(OUT, "requests.json"), encoding="utf-8") as f:
        wanted = json.load(f)["requests"]
    for seed in args.sets:
        _, tree = checkpoint(args, seed)
        for entry in wanted:
            if entry["set"] == seed:
                # A fresh pipeline for each: the schedulers and hooks of the last request stay with its own.
                make_request(reference.load(tree), entry)


def make_request(pipeline, entry):
    import reference
    import run_reference
    import taps

    recorder = taps.Recorder(run_reference.REQUEST_TAPS)
    files = reference.run(pipeline, run_reference.request_of_entry(entry), recorder)
    values = {name: v.numpy() for stem in files.values() for name, v in stem.items()}
    write(f"requests/{entry['name']}.safetensors", thin(values, pipeline))


def thin(values, pipeline):
    """What a request's fixture keeps: everything small, samples of what is large, first and last of the steps."""
    last = max(name for name in values if name.startswith("step_"))[:8]
    out = {}
    for name, value in values.items():
        if name.startswith("step_") and not (name[:8] in ("step_000", last) and name.endswith("_velocity")):
            continue
        if name == "frames":
            samples.frames(out, name, value, pipeline.vae._split_tiles)
        elif name == "audio":
            samples.sound(out, name, value, keep=1024)
        else:
            samples.spread(out, name, value, KEEP.get(name, 400))
    return out


def total_bytes():
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(OUT) for f in files)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--converter", required=True)
    parser.add_argument("--duet", required=True, help="the binary whose synth makes the weights")
    parser.add_argument("--h3-config", default=os.environ.get("DUET_H3_CONFIG"))
    parser.add_argument("--work", default="/tmp/duet-oracle-work", help="checkpoints are made and kept here")
    parser.add_argument("--only", action="append", choices=PARTS, help="part to make; may be repeated")
    parser.add_argument("--sets", type=int, nargs="+", default=SETS)
    args = parser.parse_args()
    environment.require_vectors()
    os.makedirs(args.work, exist_ok=True)
    for part in args.only or PARTS:
        globals()[f"make_{part}"](args)
    size = total_bytes()
    print(f"{size:8d}  total")
    if size >= LIMIT_BYTES:
        sys.exit(f"error: fixtures take {size} bytes, the limit is {LIMIT_BYTES}")


if __name__ == "__main__":
    main()
