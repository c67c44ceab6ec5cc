"""Makes the tokenizer of duet-tiny: a byte-level BPE of the released kind, trained on the grammar's prompts.

    ids 0..255            the byte symbols, visible bytes first
    256 + i               merge i
    after the last merge  the added tokens of the released tokenizer, in its order; then the seven of
                          `additional_special_tokens`, which get the next ids

Merges are learned by plain pair counting over the pre-tokens of many prompts and of the fixed segments
("<Picture 1>: ").
Writes vocab.json, merges.txt and tokenizer_config.json; `Qwen2TokenizerFast` loads the folder.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib

import numpy as np

import grammar
import jsonfile
import world

MERGES = 300
ADDED = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
SPECIAL = set(ADDED[:14])
ADDITIONAL = (
    "<d>",
    "</d>",
    "<|cutoff|>",
    "<|lyrics_start|>",
    "<|lyrics_end|>",
    "<|caption_start|>",
    "<|caption_end|>",
)
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_symbols() -> list[str]:
    """The symbol of every byte, in id order, and so also the alphabet."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in visible]
    return [chr(b) for b in visible] + [chr(256 + i) for i in range(len(hidden))]


def byte_map() -> dict[int, str]:
    """Byte value -> symbol."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in visible]
    return dict(zip(visible + hidden, byte_symbols()))


def corpus(prompts: int, seed: int) -> list[str]:
    """Prompts of every kind, and the fixed segments."""
    rng = np.random.default_rng(seed)
    scenes = world.sample_scenes(prompts, [seed, 1], split="all")
    lines = []
    for i in range(prompts):
        one = scenes.take(slice(i, i + 1))
        kind = i % 4
        pictures = {0: 1, 1: 2} if kind == 1 else None
        lines.append(
            grammar.describe(rng, one, pictures, {0: 1} if kind == 2 else None, {0: 1} if kind == 3 else None)
        )
    for i in range(1, 10):
        lines += [f"<Picture {i}>: "] * 20 + [f"<Video {i}>: ", f"<Audio {i}>: "] * 10
    lines += [f"<{t}.{d} seconds>" for t in range(16) for d in (0, 2)] * 4
    return lines


def learn(lines: list[str], merges: int) -> list[tuple[str, str]]:
    """The `merges` most frequent pairs, greedily; ties go to the pair first in order of its symbols."""
    import regex

    table, counts = byte_map(), collections.Counter()
    for line in lines:
        counts.update(regex.findall(PATTERN, line))
    words = {tuple(table[b] for b in word.encode()): n for word, n in counts.items()}
    out: list[tuple[str, str]] = []
    while len(out) < merges:
        pairs: collections.Counter = collections.Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += n
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], p))
        out.append(best)
        words = {_merge(word, best): n for word, n in words.items()}
    return out


def _merge(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    out, i = [], 0
    while i < len(word):
        if word[i : i + 2] == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def token_ids(merges: int) -> dict[str, int]:
    """Ids of all added tokens."""
    return {t: 256 + merges + i for i, t in enumerate(ADDED + ADDITIONAL)}


def write(folder: pathlib.Path, merges: list[tuple[str, str]]) -> None:
    """The three files."""
    folder.mkdir(parents=True, exist_ok=True)
    symbols = byte_symbols() + [a + b for a, b in merges]
    if len(set(symbols)) != len(symbols):
        raise SystemExit("two merges make one symbol")
    (folder / "vocab.json").write_text(json.dumps({s: i for i, s in enumerate(symbols)}, ensure_ascii=False))
    (folder / "merges.txt").write_text("".join(f"{a} {b}\n" for a, b in merges))
    ids = token_ids(len(merges))
    jsonfile.write(
        folder / "tokenizer_config.json",
        {
            "add_bos_token": False,
            "add_prefix_space": False,
            "added_tokens_decoder": {
                str(ids[t]): {
                    "content": t,
                    "lstrip": False,
                    "normalized": False,
                    "rstrip": False,
                    "single_word": False,
                    "special": t in SPECIAL,
                }
                for t in ADDED
            },
            "additional_special_tokens": [*ADDED[1:14], *ADDITIONAL],
            "bos_token": None,
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "errors": "replace",
            "model_max_length": 262144,
            "pad_token": "<|endoftext|>",
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        },
    )


def write_processor(folder: pathlib.Path) -> None:
    """The two preprocessor files beside copies of the tokenizer."""
    common = {
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "processor_class": "Qwen3VLProcessor",
    }
    jsonfile.write(
        folder / "preprocessor_config.json",
        {
            "size": {"longest_edge": 16777216, "shortest_edge": 65536},
            **common,
            "image_processor_type": "Qwen2VLImageProcessorFast",
        },
    )
    jsonfile.write(
        folder / "video_preprocessor_config.json",
        {
            "size": {"longest_edge": 25165824, "shortest_edge": 4096},
            **common,
            "video_processor_type": "Qwen3VLVideoProcessor",
        },
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the tokenizer files")
    parser.add_argument("--processor", type=pathlib.Path, help="folder for the preprocessor files")
    parser.add_argument("--prompts", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    merges = learn(corpus(args.prompts, args.seed), MERGES)
    write(args.out, merges)
    if args.processor:
        write_processor(args.processor)
    print(f"{len(merges)} merges, {256 + len(merges) + len(ADDED) + len(ADDITIONAL)} ids")


if __name__ == "__main__":
    main()
