"""Puts duet-tiny together: model indexes, processor, links for what both partitions share; then checks sizes.

    models/duet-tiny/
      FL2VA/   model_index.json tokenizer/ processor/ text_encoder/ video_vae/ audio_vae/ transformer/
      Ref2VA/  model_index.json transformer/, all else relative links into FL2VA

A partition gets its index only if its transformer is there. Run it after the exports of the components.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys

import jsonfile
import native
import options
import text
import tokenizer
import world

LIMIT_BYTES = 40_000_000
SHARED = ("tokenizer", "processor", "text_encoder", "video_vae", "audio_vae")


def model_index(partition: str) -> dict:
    """model_index.json with the project's keys beside the released ones."""
    return {
        "_class_name": "MiniMaxH3Pipeline",
        "text_encoder": ["transformers", "MiniMaxH3Qwen3VLHFEncoder"],
        "tokenizer": ["transformers", "Qwen2TokenizerFast"],
        "video_vae": ["diffusers", "MiniMaxH3VideoVAE"],
        "audio_vae": ["diffusers", "MiniMaxH3AudioVAE"],
        "scheduler": None,
        "transformer": ["diffusers", "MiniMaxH3DiTModel"],
        "processor": ["transformers", "Qwen3VLProcessor"],
        "_minimax_h3": {
            "schema_version": 1,
            "partition": partition,
            "tasks": list(native.PARTITIONS[partition]),
            "task_aliases": {},
            "sigma_shift_scales": {"video": 12.0, "audio": 3.0},
            "text_encoder_layer": text.TAP,
            "canvas_short_edge": world.CANVAS,
            "canvas_max_pixels": 448 * 256,
            "reference_image_short_edge": world.CANVAS,
        },
    }


def link(path: pathlib.Path, target: str) -> None:
    """A relative link, made anew."""
    if path.is_symlink() or path.exists():
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(target, path)


def assemble(root: pathlib.Path) -> None:
    """Writes what no component writes."""
    first = root / native.FIRST
    tokenizer.write_processor(first / "processor")
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        link(first / "processor" / name, f"../tokenizer/{name}")
    for partition, name in native.FOLDERS.items():
        folder = root / name
        if not (folder / "transformer" / "config.json").exists():
            print(f"{name}: no transformer yet")
            continue
        jsonfile.write(folder / "model_index.json", model_index(partition))
        if name != native.FIRST:
            for shared in SHARED:
                link(folder / shared, f"../{native.FIRST}/{shared}")


def sizes(root: pathlib.Path) -> int:
    """Prints the bytes of every component and returns their sum; links count nothing."""
    total: dict[str, int] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink() and not any(p.is_symlink() for p in path.parents):
            key = "/".join(path.relative_to(root).parts[:2])
            total[key] = total.get(key, 0) + path.stat().st_size
    for key, value in total.items():
        print(f"{value:12,d}  {key}")
    print(f"{sum(total.values()):12,d}  total, limit {LIMIT_BYTES:,d}")
    return sum(total.values())


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=pathlib.Path, help="the model folder, as models/duet-tiny")
    args = parser.parse_args()
    options.check_model(args.root, native.FIRST)
    assemble(args.root)
    return 0 if sizes(args.root) <= LIMIT_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
