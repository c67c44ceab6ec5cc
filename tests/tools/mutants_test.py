#!/usr/bin/env python3
"""Every mutant of tools/mutants still applies: its text stands exactly once in its file. (`make mutants` runs them.)"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools/mutants"))
import run  # noqa: E402
import tally  # noqa: E402


def main() -> int:
    mutants = run.load(ROOT / "tools/mutants")
    tally.check(bool(mutants), "there are none")
    for m in mutants:
        why = run.stale(m, ROOT)
        tally.check(not why, f"{m.source}: {m.name}: {why}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
