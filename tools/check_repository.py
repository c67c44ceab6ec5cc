#!/usr/bin/env python3
"""House rules that a script can hold: file sizes, absolute paths of somebody's machine, header comments, large files.

Usage: tools/check_repository.py; prints each breach, exits 1 if there is any. Needs git; outside a checkout it says so and passes.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_SOURCE_LINES = 800
MAX_FILE_BYTES = 8 << 20
MAX_WEIGHTS_BYTES = 16 << 20          # models/: the released layout keeps a component in one file
GENERATED = re.compile(r"generated", re.I)
MACHINE_PATH = re.compile(r"(?<![\w.])/(home|root|work|Users)/[A-Za-z0-9_]")
SOURCE = {".c", ".h", ".cu", ".cuh", ".py", ".sh"}


def tracked() -> list[pathlib.Path]:
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if out.returncode != 0:
        print("not a git checkout: nothing checked")
        sys.exit(0)
    return [ROOT / name for name in out.stdout.decode().split("\0") if name]


def breaches(path: pathlib.Path) -> list[str]:
    found = []
    if path.is_symlink() or not path.is_file():
        return found
    most = MAX_WEIGHTS_BYTES if path.is_relative_to(ROOT / "models") else MAX_FILE_BYTES
    if path.stat().st_size > most:
        found.append(f"{path.stat().st_size} bytes; the largest file allowed has {most}")
    if path.suffix not in SOURCE and path.suffix not in {".md", ".def", ".cmake", ".json", ".txt", ""}:
        return found
    text = path.read_text(errors="replace")
    if path.suffix in SOURCE and MACHINE_PATH.search(text):
        found.append(f"names a path of one machine: {MACHINE_PATH.search(text).group(0)}…")
    head = "\n".join(text.splitlines()[:5])
    if path.suffix in {".c", ".h", ".cu", ".cuh"}:
        if len(text.splitlines()) > MAX_SOURCE_LINES and not GENERATED.search(head):
            found.append(f"{len(text.splitlines())} lines; split above {MAX_SOURCE_LINES}")
        if "/*" not in head:
            found.append("has no narrative at its top")
    return found


def main() -> int:
    bad = 0
    for path in tracked():
        for breach in breaches(path):
            print(f"{path.relative_to(ROOT)}: {breach}")
            bad += 1
    print(f"repository rules: {bad} broken" if bad else "repository rules: ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
