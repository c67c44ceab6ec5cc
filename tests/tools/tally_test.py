#!/usr/bin/env python3
"""Tests of `tally.py`: a count that forgets failures would make every script beside it one that cannot fail."""

from __future__ import annotations

import pathlib
import subprocess
import sys

CASES = (
    ("check(True, 'a')", 0, "1 passed, 0 failed, 0 skipped"),
    ("check(False, 'b')", 1, "FAILED b\n0 passed, 1 failed, 0 skipped"),
    ("check(False, 'b'); check(True, 'a')", 1, "FAILED b\n1 passed, 1 failed, 0 skipped"),
    ("tally.add('3 passed, 0 failed, 2 skipped', 0); check(True, 'a')", 0, "4 passed, 0 failed, 2 skipped"),
    ("tally.add('3 passed, 1 failed', 1)", 1, "3 passed, 1 failed, 0 skipped"),
    ("tally.add('3 passed, 0 failed, 0 skipped', 3)", 1, "3 passed, 1 failed, 0 skipped"),
    ("tally.add('Segmentation fault', 0)", 1, "0 passed, 1 failed, 0 skipped"),
    ("tally.skip('c', 'no GPU')", 0, "skip c: no GPU\n0 passed, 0 failed, 1 skipped"),
)


def main() -> int:
    """Runs the cases, each in a process of its own."""
    bad = 0
    for work, code, said in CASES:
        script = f"import sys, tally\nfrom tally import check\n{work}\nsys.exit(tally.finish())"
        ran = subprocess.run(
            [sys.executable, "-c", script], cwd=pathlib.Path(__file__).parent, capture_output=True, text=True
        )
        if (ran.returncode, ran.stdout.strip()) != (code, said):
            bad += 1
            print(f"FAILED {work}: {ran.returncode} {ran.stdout!r} {ran.stderr!r}")
    print(f"{len(CASES) - bad} passed, {bad} failed, 0 skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
