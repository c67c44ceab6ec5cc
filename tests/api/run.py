#!/usr/bin/env python3
"""Black-box tests of the real binary: tests/api/run.py BINARY [NAME...]

Runs every test (or those whose name contains a NAME), each in a fresh directory, and prints
"N passed, N failed, N skipped". Exit code 1 if any failed. Needs nothing but Python's own library.
"""
import importlib
import os
import pathlib
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import kit  # noqa: E402

MODULES = ["surface", "refusals", "plans", "order", "clips", "determinism", "latents", "names", "faults", "signals_", "terminal"]


def run_one(function):
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="duet-api-test-") as directory:
        try:
            function(pathlib.Path(directory))
            outcome, why = "ok", ""
        except kit.Skip as reason:
            outcome, why = "skip", str(reason)
        except AssertionError as failure:
            outcome, why = "FAIL", str(failure)
        except Exception:
            outcome, why = "FAIL", traceback.format_exc()
    spent = time.monotonic() - began
    print(f"{outcome:<4} {function.__name__} ({spent:.2f} s){': ' + why if why else ''}", flush=True)
    return outcome


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    kit.BINARY = os.path.abspath(sys.argv[1])
    for name in MODULES:
        importlib.import_module(name)
    wanted = sys.argv[2:]
    chosen = [t for t in kit.TESTS if not wanted or any(w in t.__name__ for w in wanted)]
    outcomes = [run_one(t) for t in chosen]
    for note in kit.NOTES:
        print(f"note: {note}")
    counts = [outcomes.count(o) for o in ("ok", "FAIL", "skip")]
    print("{} passed, {} failed, {} skipped".format(*counts))
    return 1 if counts[1] or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
