#!/usr/bin/env python3
"""duet and the trained duet-tiny together: two held-out prompts become clips that show what they ask for.

The floors are those of tools/tiny/floors.json for two clips; `tools/tiny/held_out.py` without options does
twenty, in a few minutes. The floors themselves are tested to bite. Skips loudly without the trained model,
build/duet, numpy or ffmpeg. Prints "N passed, N failed, N skipped". Usage: tiny_held_out_test.py [DUET]
default build/duet
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "tiny"))

import tally  # noqa: E402

try:
    import numpy  # noqa: F401
except ImportError:
    tally.skip("tiny_held_out_test", "python3-numpy is not installed")
    sys.exit(tally.finish())

import held_out  # noqa: E402


def floors_bite() -> bool:
    """A figure below its floor, above its ceiling or missing is a failure; one on it is not."""
    floors = {
        "at_least": {"colour": 0.9, "shape": 0.9},
        "at_most": {"tick_offset_frames": 1.0, "missing": 1.0},
    }
    summary = {"colour": 0.9, "shape": 0.89, "tick_offset_frames": 1.5}
    return [good for good, _ in held_out.hold(summary, floors)] == [True, False, False, False]


def clips(duet: pathlib.Path) -> None:
    """Two clips against their floors."""
    model = ROOT / "models" / "duet-tiny"
    for missing, reason in (
        (not duet.exists(), f"{duet} is not built"),
        (not shutil.which("ffmpeg"), "ffmpeg is not installed"),
        (not held_out.trained(model), "models/duet-tiny has no trained transformer yet"),
    ):
        if missing:
            tally.skip("tiny_held_out_test", reason)
            return
    command = [sys.executable, str(ROOT / "tools/tiny/held_out.py"), "--count", "2", "--duet", str(duet)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines() or [""]
    print("\n".join(lines[:-1] + run.stderr.splitlines()))
    tally.add(lines[-1], run.returncode)


def main() -> int:
    """Runs both."""
    clips(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "duet")
    tally.check(floors_bite(), "floors do not bite")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
