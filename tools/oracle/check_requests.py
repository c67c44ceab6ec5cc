#!/usr/bin/env python3
"""Run the requests of tests/fixtures/requests.json through duet and compare them with the reference.

    check_requests.py --duet build/duet                                  against the committed samples (numpy only)
    check_requests.py --duet build/duet --converter FILE                 against the reference, every pixel and step

Checkpoints are made by `duet synth`; with --converter the reference's trees are made from them and its dumps kept in
the work folder for the next run. --layout diffusers gives duet the reference's tree, made by `duet synth` itself.
More options for duet after `--`, for instance `-- --backend ref --threads 3`. Exit code 1 when a request differs.
"""

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import time

import compare
import convert
import overrides

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.normpath(os.path.join(HERE, "..", "..", "tests", "fixtures"))
NOT_OPTIONS = ("name", "set", "prompt", "any-length")


def options_of(entry):
    """The request as options of `duet generate`, except prompt and output."""
    options = ["--any-length"] if entry.get("any-length") else []
    for key, value in entry.items():
        if key not in NOT_OPTIONS:
            text = ",".join(str(v) for v in value) if isinstance(value, list) else str(value)
            options += [f"--{key}", text]
    return options


def run(command, log):
    """Run a command with its output in a log; its last lines are shown when it fails."""
    with open(log, "w", encoding="utf-8") as f:
        code = subprocess.run(command, stdout=f, stderr=subprocess.STDOUT, check=False).returncode
    if code:
        with open(log, encoding="utf-8", errors="replace") as f:
            tail = "".join(f.readlines()[-6:])
        raise RuntimeError(f"{' '.join(command[:3])} ... exited {code}:\n{tail}")


@functools.lru_cache(maxsize=None)
def model(duet, work, layout, seed):
    """A checkpoint of one seed in one layout, made afresh once per run."""
    path = os.path.join(work, f"{layout}{seed}")
    shutil.rmtree(path, ignore_errors=True)
    command = [
        duet,
        "synth",
        "--shape",
        "tiny",
        "--layout",
        layout,
        "--partition",
        "both",
        "--seed",
        str(seed),
    ]
    run([*command, "--out", path], path + ".log")
    return path


def dump_of_duet(args, entry):
    out = os.path.join(args.work, f"duet-{entry['name']}")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    prompt = os.path.join(out, "prompt.txt")
    with open(prompt, "w", encoding="utf-8", newline="") as f:
        f.write(entry["prompt"] + "\n")
    command = [
        args.duet,
        "generate",
        "--model",
        model(args.duet, args.work, args.layout, entry["set"]),
        "--prompt-file",
        prompt,
        *options_of(entry),
    ]
    command += ["--dump", os.path.join(out, "dump"), "--output", os.path.join(out, "clip") + "/", *args.more]
    started = time.monotonic()
    run(command, os.path.join(out, "log"))
    return os.path.join(out, "dump"), time.monotonic() - started


def dump_of_reference(args, entry):
    out = os.path.join(args.work, f"reference-{entry['name']}")
    native, tree = model(args.duet, args.work, "native", entry["set"]), os.path.join(
        args.work, f"tree{entry['set']}"
    )
    convert.ensure(native, tree, args.converter)
    wanted, made = os.path.join(out, "request.json"), os.path.join(tree, convert.STAMP)
    stamp = {"request": entry, "taps": args.tap, "weights": overrides.read_json(made)}
    if not os.path.exists(wanted + ".done") or overrides.read_json(wanted + ".done") != stamp:
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        write_json(wanted, entry)
        taps = [part for pattern in args.tap for part in ("--tap", pattern)]
        script = os.path.join(HERE, "run_reference.py")
        run([sys.executable, script, tree, "--request", wanted, "--out", out, *taps], out + ".log")
        write_json(wanted + ".done", stamp)
    return out


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f)


def check(args, entry, rules):
    """One line for a request; True when it holds."""
    name = entry["name"]
    try:
        theirs = (
            dump_of_reference(args, entry)
            if args.converter
            else os.path.join(FIXTURES, "requests", name + ".safetensors")
        )
        mine, seconds = dump_of_duet(args, entry)
    except RuntimeError as problem:
        print(f"FAIL   {name:16} {problem}")
        return False
    rows = compare.compare(compare.load(mine), compare.load(theirs), rules, None, None)
    bad = [row for row in rows if row[0] == "FAIL"]
    shown = [
        f"{n} {text}"
        for _, n, text in rows
        if n.partition("@")[0] in ("video_latents", "audio_latents", "frames", "audio")
    ]
    print(
        f"{'FAIL' if bad else 'ok':6} {name:16} {seconds:6.1f} s  {len(rows)} tensors  "
        + "; ".join(shown if args.verbose else [])
    )
    for _, tensor, text in bad[:12]:
        print(f"       {tensor}: {text}")
    return not bad


def main():
    argv = sys.argv[1:]
    cut = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--duet", required=True)
    parser.add_argument(
        "--converter", help="conversion script of the reference: compare with the reference itself"
    )
    parser.add_argument("--layout", choices=("native", "diffusers"), default="native")
    parser.add_argument("--work", default="/tmp/duet-oracle-requests")
    parser.add_argument("--tolerances", default=os.path.join(HERE, "tolerances.json"))
    parser.add_argument("--tap", action="append", default=[], help="further taps of the reference to compare")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("names", nargs="*", help="requests to run (default all)")
    args = parser.parse_args(argv[:cut])
    args.more = argv[cut + 1 :]
    os.makedirs(args.work, exist_ok=True)
    with open(args.tolerances, encoding="utf-8") as f:
        rules = json.load(f)["rules"]
    with open(os.path.join(FIXTURES, "requests.json"), encoding="utf-8") as f:
        entries = [e for e in json.load(f)["requests"] if not args.names or e["name"] in args.names]
    held = [check(args, entry, rules) for entry in entries]
    print(f"{sum(held)} passed, {len(held) - sum(held)} failed, 0 skipped")
    return 0 if held and all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
