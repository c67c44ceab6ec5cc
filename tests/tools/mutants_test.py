#!/usr/bin/env python3
"""Every mutant of tools/mutants still applies: its text stands exactly once in its file. (`make mutants` runs them.)"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools/mutants"))
import run  # noqa: E402


def main() -> int:
    mutants = run.load(ROOT / "tools/mutants")
    bad = [(m, why) for m in mutants if (why := run.stale(m, ROOT))]
    for m, why in bad:
        print(f"FAIL {m.source}: {m.name}: {why}")
    print(f"{len(mutants) - len(bad)} passed, {len(bad)} failed, 0 skipped")
    return 1 if bad or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())
