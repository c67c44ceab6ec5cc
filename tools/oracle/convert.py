#!/usr/bin/env python3
"""Make the diffusers tree of a checkpoint from its native half, with the reference's own conversion functions.

    convert.py NATIVE OUT --converter convert_minimax_h3_to_diffusers.py

NATIVE is a model root (`FL2VA/`, optionally `Ref2VA/`) or one partition. The script of the reference is imported from
its path after its SHA-256 was checked, and is never copied. It converts the transformer (`transformer_ref` from
Ref2VA), both VAEs, the schedulers and the index; the text encoder, tokenizer and processor are copied as they are.
What is ours stands in `overrides.py`.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys

import overrides

SHARD_BYTES = 5 << 30

# The index names the repository, as the released one does; a local tree is loaded by its path all the same.
HUB_ID = "MiniMaxAI/MiniMax-H3"


def load_converter(path):
    """Import the conversion script, refusing any other file than the one the fixtures were made with."""
    with open(path, "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    if digest != overrides.CONVERTER_SHA256:
        raise SystemExit(f"error: converter: SHA-256 is not the pinned one (got {digest})")
    spec = importlib.util.spec_from_file_location("minimax_h3_converter", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def partitions(native):
    """{folder of the transformer in the tree: partition directory}."""
    if os.path.isdir(os.path.join(native, "transformer")):
        kind = overrides.read_json(native, "model_index.json")["_minimax_h3"]["partition"]
        return {"transformer_ref" if kind == "ref2va" else "transformer": native}
    found = {}
    for folder, name in (("transformer", "FL2VA"), ("transformer_ref", "Ref2VA")):
        if os.path.isdir(os.path.join(native, name, "transformer")):
            found[folder] = os.path.join(native, name)
    if not found:
        raise SystemExit(f"error: {native}: neither a partition nor a model root")
    return found


def convert(native, out, converter, shard_bytes=SHARD_BYTES):
    """Write the tree. All partitions share everything but the transformer, which is taken from each."""
    from diffusers import __version__ as version

    found = partitions(native)
    shared = next(iter(found.values()))
    for folder, partition in found.items():
        config = overrides.transformer_config(converter, partition)
        target = os.path.join(out, folder)
        converter.convert_transformer(partition, target, config, shard_bytes)
        converter.write_transformer_config(target, config, version)
    vae = overrides.video_vae_config(converter, shared)
    converter.convert_video_vae(shared, os.path.join(out, "vae"), vae, version, shard_bytes)
    converter.convert_audio_vae(shared, os.path.join(out, "audio_vae"), version)
    converter.write_scheduler_configs(shared, out, version)
    converter.write_model_index(out, HUB_ID, version)
    for folder in ("text_encoder", "tokenizer", "processor"):
        shutil.copytree(os.path.join(shared, folder), os.path.join(out, folder), dirs_exist_ok=True)
    overrides.write_our_keys(out, overrides.our_keys(overrides.read_json(shared, "model_index.json")))


def digests(native):
    """SHA-256 of every file of the partitions, behind links too, by relative path. What stands beside them, a card or
    curves, makes no other tree."""
    found = {}
    for partition in partitions(native).values():
        for folder, _, files in sorted(os.walk(partition, followlinks=True)):
            for file in sorted(files):
                path = os.path.join(folder, file)
                with open(path, "rb") as f:
                    found[os.path.relpath(path, native)] = hashlib.file_digest(f, "sha256").hexdigest()
    return found


def ensure(native, tree, converter_path):
    """Make `tree` of `native`, in a process of its own, unless it was made of these very files before."""
    stamp, made_of = os.path.join(tree, "made_of.json"), digests(native)
    if os.path.exists(stamp) and overrides.read_json(stamp) == made_of:
        return
    shutil.rmtree(tree, ignore_errors=True)
    command = [sys.executable, __file__, native, tree, "--converter", converter_path]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(stamp, "w", encoding="utf-8") as f:
        json.dump(made_of, f)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("native")
    parser.add_argument("out")
    parser.add_argument(
        "--converter", required=True, help="convert_minimax_h3_to_diffusers.py of the reference"
    )
    parser.add_argument("--shard-bytes", type=int, default=SHARD_BYTES, help="largest shard written")
    args = parser.parse_args()
    if os.path.exists(args.out) and os.listdir(args.out):
        sys.exit(f"error: {args.out} exists and is not empty")
    os.makedirs(args.out, exist_ok=True)
    convert(args.native, args.out, load_converter(args.converter), args.shard_bytes)


if __name__ == "__main__":
    main()
