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
import tempfile

import overrides

SHARD_BYTES = 5 << 30
STAMP = "made_of.json"  # in a tree that `ensure` made: the digests of what it was made of

# The index names the repository, as the released one does; a local tree is loaded by its path all the same.
HUB_ID = "MiniMaxAI/MiniMax-H3"


def check_converter(path):
    """Refuses any other file than the conversion script that the fixtures were made with."""
    try:
        with open(path, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
    except OSError as problem:
        raise SystemExit(f"error: converter: {path}: {problem.strerror}") from None
    if digest != overrides.CONVERTER_SHA256:
        raise SystemExit(f"error: converter: {path}: SHA-256 is not the pinned one (got {digest})")


def load_converter(path):
    """Imports the conversion script."""
    check_converter(path)
    spec = importlib.util.spec_from_file_location("minimax_h3_converter", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def partitions(native):
    """{folder of the transformer in the tree: partition directory}."""
    if os.path.isdir(os.path.join(native, "transformer")):
        try:
            kind = overrides.read_json(native, "model_index.json")["_minimax_h3"]["partition"]
        except (OSError, ValueError, KeyError, TypeError) as problem:
            reason = f"{type(problem).__name__}: {problem}"
            raise SystemExit(f"error: {native}: model_index.json does not say its partition ({reason})") from None
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
    """Make `tree` of `native`, in a process of its own, unless it was made of these very files before. It is made beside its
    place and moved there when it is whole; what stands there goes only if it is such a tree, or empty."""
    tree = os.path.realpath(tree)
    stamp, made_of = os.path.join(tree, STAMP), digests(native)
    made = os.path.exists(stamp)
    if not made and os.path.lexists(tree) and not (os.path.isdir(tree) and not os.listdir(tree)):
        raise SystemExit(f"error: {tree}: is there and no converted tree (has no {STAMP}); another place is needed")
    check_converter(converter_path)
    try:
        if made and overrides.read_json(stamp) == made_of:
            return
    except ValueError:  # damaged: made anew
        pass
    beside = os.path.dirname(tree)
    try:
        os.makedirs(beside, exist_ok=True)
        part = tempfile.mkdtemp(prefix=os.path.basename(tree) + ".", suffix=".part", dir=beside)
    except OSError as problem:
        raise SystemExit(f"error: {tree}: {problem.strerror}") from None
    try:
        command = [sys.executable, __file__, native, part, "--converter", converter_path]
        run = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if run.returncode:
            raise SystemExit((run.stderr.strip() or f"error: {native}: not converted").splitlines()[-1])
        with open(os.path.join(part, STAMP), "w", encoding="utf-8") as f:
            json.dump(made_of, f)
        os.chmod(part, 0o755)  # made for its owner alone
        shutil.rmtree(tree, ignore_errors=True)
        os.rename(part, tree)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("native")
    parser.add_argument("out")
    parser.add_argument(
        "--converter", required=True, help="convert_minimax_h3_to_diffusers.py of the reference"
    )
    parser.add_argument("--shard-bytes", type=int, default=SHARD_BYTES, help="largest shard written")
    args = parser.parse_args()
    if args.shard_bytes < 1:
        sys.exit(f"error: --shard-bytes {args.shard_bytes}: must be at least 1; nearest: 1")
    check_converter(args.converter)
    partitions(args.native)
    if os.path.lexists(args.out) and not (os.path.isdir(args.out) and not os.listdir(args.out)):
        sys.exit(f"error: {args.out}: is there and no empty folder")
    try:
        converter = load_converter(args.converter)
        os.makedirs(args.out, exist_ok=True)
    except (ImportError, OSError) as problem:
        sys.exit(f"error: {args.out}: {problem}")
    try:
        convert(args.native, args.out, converter, args.shard_bytes)
    except Exception as problem:  # whatever a damaged file makes the reference's functions raise
        shutil.rmtree(args.out, ignore_errors=True)
        sys.exit(f"error: {args.native}: cannot be converted ({type(problem).__name__}: {problem})")


if __name__ == "__main__":
    main()
