#!/usr/bin/env python3
"""Compare two tap directories, or a directory with a fixture file, tensor by tensor, by rules.

    compare.py A B --tolerances FILE [--only PATTERN] [--need PATTERN] [--verbose]

A is what is judged, B what it is judged by. Each is a directory of safetensors files or one file. The rules are in
the tolerances file, first match wins; a tensor without a rule is an error, so nothing is skipped by accident:

    {"rules": [{"name": "dit.block_*.out", "rel_l2": 1e-5}, ...]}

    "exact": true     equal, shapes and values            "rel_l2": x    |a-b| / |b| at most x
    "ulp": n          at most n fp32 steps apart          "max_abs": x   no element further than x
    "psnr_db": x      against the range "peak"            "cosine": x    at least x

Every bound of a rule must hold, and everything must be finite. Tensors of B that A lacks are failures when their rule
says "required" or they match --need; others are counted and named. Samples of a fixture (`samples.py`) are compared with
the same samples of A: `NAME@grid.K` under NAME's rule, `NAME@mean` under its own.

Exit code: 0 all hold, 1 something does not, 2 bad usage. Needs numpy and nothing else.
"""

import argparse
import fnmatch
import json
import os
import sys

import numpy as np
import tensors


def load(path):
    if os.path.isdir(path):
        return tensors.read_directory(path)
    return tensors.read(path)[0]


def rule_for(rules, name):
    for rule in rules:
        if fnmatch.fnmatchcase(name, rule["name"]):
            return rule
    return None


def ordered(bits):
    """fp32 bit patterns as integers in the order of the values, so that neighbours differ by one."""
    bits = bits.astype(np.int64)
    return np.where(bits < 1 << 31, bits, (1 << 31) - bits)


def measure(a, b):
    """Every figure that a rule may bound, for two arrays of one shape."""
    x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    diff = np.abs(x - y)
    norm = np.linalg.norm(y)
    figures = {"max_abs": float(diff.max(initial=0)), "rel_l2": relative(diff, norm)}
    if a.dtype == b.dtype == np.float32:
        steps = np.abs(ordered(a.ravel().view(np.uint32)) - ordered(b.ravel().view(np.uint32)))
        figures["ulp"] = int(steps.max(initial=0))
    figures["mse"] = float(np.mean(diff**2)) if diff.size else 0.0
    size = np.linalg.norm(x) * norm
    figures["cosine"] = float(x @ y / size) if size else 1.0
    return figures


def relative(diff, norm):
    return float(np.linalg.norm(diff) / norm) if norm else float(diff.any())


def judge(a, b, rule):
    """(holds, text of the figures) for one tensor."""
    if a.shape != b.shape:
        return False, f"shape {list(a.shape)} != {list(b.shape)}"
    if rule.get("exact"):
        wrong = int(np.count_nonzero(a != b))
        return wrong == 0, "exact" if wrong == 0 else f"{wrong} of {a.size} differ"
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return False, "not finite"
    got = measure(a, b)
    got["psnr_db"] = psnr(got["mse"], rule.get("peak", 255.0))
    holds, parts = True, []
    for key, at_most in (
        ("rel_l2", True),
        ("max_abs", True),
        ("ulp", True),
        ("psnr_db", False),
        ("cosine", False),
    ):
        if key in rule:
            holds &= got[key] <= rule[key] if at_most else got[key] >= rule[key]
            parts.append(f"{key} {got[key]:.3g} ({'<=' if at_most else '>='} {rule[key]:g})")
    return bool(holds) and bool(parts), ", ".join(parts) or "rule without bound"


def psnr(mse, peak):
    return float("inf") if mse == 0 else float(10 * np.log10(peak * peak / mse))


def samples_of(a, b):
    """Pairs (shown name, rule name, A's part or None, B's part); resolves sampled tensors of B."""
    for name in sorted(b):
        if ".axis" in name.rpartition("@")[2] and "@" in name:
            continue
        whole, at, _ = name.partition("@")
        if not at:
            yield name, name, a.get(name), b[name]
            continue
        if whole not in a:
            yield name, whole, None, b[name]
        elif name.endswith("@mean"):
            yield name, name, a[whole].mean(axis=(1, 2), dtype=np.float64), b[name]
        else:
            axes = [b[f"{name}.axis{i}"] for i in range(b[name].ndim)]
            inside = all(axis[-1] < n for axis, n in zip(axes, a[whole].shape))
            yield name, whole, a[whole][np.ix_(*axes)] if inside else a[whole], b[name]


def compare(a, b, rules, only, need):
    """Rows (status, name, figures), status one of ok, FAIL, absent."""
    rows = []
    for shown, name, mine, theirs in samples_of(a, b):
        if only and not fnmatch.fnmatchcase(name, only):
            continue
        rule = rule_for(rules, name)
        if rule is None:
            rows.append(("FAIL", shown, "no rule"))
        elif mine is None:
            wanted = rule.get("required") or (need and fnmatch.fnmatchcase(name, need))
            rows.append(("FAIL" if wanted else "absent", shown, "missing"))
        else:
            holds, text = judge(mine, theirs, rule)
            rows.append(("ok" if holds else "FAIL", shown, text))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("a")
    parser.add_argument("b")
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tolerances.json")
    parser.add_argument("--tolerances", default=default)
    parser.add_argument("--only", help="pattern of the tensors to compare")
    parser.add_argument("--need", help="pattern of tensors that A must have")
    parser.add_argument("--verbose", action="store_true", help="print what holds, too")
    args = parser.parse_args()
    try:
        a, b = load(args.a), load(args.b)
        with open(args.tolerances, encoding="utf-8") as f:
            rules = json.load(f)["rules"]
    except (OSError, ValueError, KeyError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    rows = compare(a, b, rules, args.only, args.need)
    width = max([len(name) for _, name, _ in rows], default=0)
    for status, name, text in rows:
        if args.verbose or status == "FAIL":
            print(f"{status:6} {name:{width}}  {text}")
    count = {s: sum(row[0] == s for row in rows) for s in ("ok", "FAIL", "absent")}
    print(f"{count['ok']} hold, {count['FAIL']} fail, {count['absent']} absent")
    return 1 if count["FAIL"] or not count["ok"] else 0


if __name__ == "__main__":
    sys.exit(main())
