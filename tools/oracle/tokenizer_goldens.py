#!/usr/bin/env python3
"""Goldens of the tokenizer: ids of fuzzed strings, and the pieces that the pre-tokenization pattern cuts.

    tokenizer_goldens.py TOKENIZER_DIR OUT.safetensors [--count 2000] [--splits]

The strings are drawn from a fixed seed and from generators that each aim at one rule: scanner alphabet, scripts,
marks and normalisation, added tokens and near misses, emoji sequences, controls, long runs, prose.

File: `text` u8, all strings end to end, `text_offsets` i32 [n+1]; `ids` i32 with `ids_offsets` i32 [n+1]. With
`--splits` instead of ids: `split_ends` i32, byte offsets inside its string at which a piece ends, `split_offsets`
i32 [n+1]. Splits are of the raw string: no normalisation and no added tokens.
"""

import argparse
import random

import environment
import numpy as np
import tensors

# Repeated characters are drawn more often.
SCANNER = list("'sStTdDlLrReEvVmM   \r\n\n\t\v\f0179.,!?-_/<>|aéßЖ中あ한\U0001f642")
SCANNER += list("\u0301\u093f\u00a0\u3000\u200b\u0085\u2028\u001c\ufeff\u017f½Ⅷ٣\u2019")

# Ranges of code points, each drawn as a block: scripts, symbols, private use, planes 1 to 3 and 14 to 16.
EDGES = """20-7F 80-250 250-370 370-530 530-700 700-900 900-E00 E00-1100 1100-1200 1200-1D00 1D00-2000 2000-2100
2100-2C00 2C00-3000 3000-3400 3400-A000 A000-AC00 AC00-D7FF E000-F900 F900-FFFE 10000-12000 12000-1D000
1D000-1F000 1F000-20000 20000-33480 E0000-E0200 F0000-10FFFE"""
BLOCKS = [tuple(int(edge, 16) for edge in pair.split("-")) for pair in EDGES.split()]

# Marks that compose, reorder or must not, of old assignments and of newer ones; and what they follow.
CODES = """300 301 307 308 30A 316 323 327 328 338 345 5B0 5B9 64B 651 653 93C 94D 9BE E38 F71 F74 1161 11A8 302A 3099
309A 1DF6 1D165 1E8D0 8D3 9FE C3C 11F41 16FF0 897"""
MARKS = [int(code, 16) for code in CODES.split()]
BASES = list("aAeEoOuUnNcsSzdD<>=\u212b\u2126\u1100\uac00\u0627\u0915\u09c7\u3046\uf900\u0344\u2adc")
BASES += list("\U0001d15e\U0001d1bb\ufb1d\u0958\u1e9b\u01d5\U0002f800")

PROSE = """A slow dolly-in on a clockwork bird|the camera doesn't move|I'LL be there, she'd said|rain at 24 fps
Привет, мир|こんにちは世界|안녕하세요|مرحبا بالعالم|हिन्दी भाषा|ภาษาไทย|你好，世界。|¿Qué tal, niño?|Straße über Köln|l'été à la mer
https://example.com/a?b=1&c=2|foo.bar(x)_y += 3.14;|<Subject 1> (S1) says:|[Shot 1] [0-3s]"""
PROSE = PROSE.replace("\n", "|").split("|")
PROSE += [
    "summary:\n",
    "overall_soundscape: low hum",
    "<d>[English] Hello!</d>",
    "1,000,000.50",
    "x\r\ny",
    "  ",
]
EMOJI = [
    "👨\u200d👩\u200d👧",
    "👍🏽",
    "🇫🇷",
    "❤\ufe0f",
    "1\ufe0f\u20e3",
    "🏴\U000e0067\U000e0062",
    "🙂",
    "\u200d",
]


def block(r):
    low, high = r.choice(BLOCKS)
    return "".join(
        chr(c) for c in (r.randrange(low, high) for _ in range(r.randint(1, 12))) if not 0xD800 <= c <= 0xDFFF
    )


def marks(r):
    return "".join(
        r.choice(BASES) + "".join(chr(r.choice(MARKS)) for _ in range(r.randint(0, 4)))
        for _ in range(r.randint(1, 4))
    )


def near_miss(r, added):
    token = r.choice(added)
    i = r.randrange(len(token))
    kind = r.randrange(4)
    return (
        token[:i] + token[i + 1 :],
        token[:i] + token[i].swapcase() + token[i + 1 :],
        token + token[0],
        token[:i] + " " + token[i:],
    )[kind]


def make_string(r, added):
    kinds = {
        "scanner": lambda: "".join(r.choice(SCANNER) for _ in range(r.randint(1, 16))),
        "block": lambda: block(r),
        "marks": lambda: marks(r),
        "added": lambda: r.choice(added),
        "near": lambda: near_miss(r, added),
        "emoji": lambda: r.choice(EMOJI),
        "control": lambda: "".join(chr(r.randrange(0, 33)) for _ in range(r.randint(1, 5))),
        "run": lambda: r.choice(["a", "A", " ", "\n", "=", "9", "é", "哈", "\t"]) * r.randint(1, 90),
        "prose": lambda: r.choice(PROSE),
    }
    names = list(kinds)
    parts = [kinds[r.choice(names)]() for _ in range(r.choice((1, 1, 2, 3, 5)))]
    return r.choice(("", "", " ")).join(parts) or " "


def offsets(lists):
    return np.cumsum([0] + [len(x) for x in lists]).astype(np.int32)


def split_ends(tokenizer, text):
    """Byte offsets of the ends of the pieces, from the pattern's own pre-tokenizer."""
    pieces = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)
    return [len(text[:end].encode()) for _, (_, end) in pieces]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--splits", action="store_true")
    args = parser.parse_args()
    from transformers import Qwen2TokenizerFast

    tokenizer = Qwen2TokenizerFast.from_pretrained(args.tokenizer)
    added = sorted(tokenizer.get_added_vocab())
    r = random.Random(20260911 + args.splits)
    if args.splits:
        texts = ["".join(r.choice(SCANNER) for _ in range(r.randint(1, 16))) for _ in range(args.count)]
    else:
        texts = [""] + [make_string(r, added) for _ in range(args.count - 1)]
    encoded = [text.encode() for text in texts]
    out = {"text": np.frombuffer(b"".join(encoded), np.uint8), "text_offsets": offsets(encoded)}
    if args.splits:
        ends = [split_ends(tokenizer, text) for text in texts]
        out["split_ends"], out["split_offsets"] = np.array(sum(ends, []), np.int32), offsets(ends)
    else:
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        out["ids"], out["ids_offsets"] = np.array(sum(ids, []), np.int32), offsets(ids)
    meta = {"strings": str(args.count), "tokens": str(len(tokenizer)), "environment": environment.describe()}
    tensors.write(args.out, out, meta)


if __name__ == "__main__":
    main()
