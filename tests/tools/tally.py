"""What test scripts count: expectations that held or failed, and tests that could not run here. The line that
`finish` prints is what `./test.sh` adds up.
"""

from __future__ import annotations

import re

passed = failed = skipped = 0


def check(condition: bool, message: str) -> None:
    """Counts one expectation; says which one failed."""
    global passed, failed
    if condition:
        passed += 1
    else:
        failed += 1
        print("FAILED " + message)


def skip(what: str, why: str) -> None:
    """Counts one test that cannot run here, aloud."""
    global skipped
    skipped += 1
    print(f"skip {what}: {why}")


def add(line: str, returned: int) -> None:
    """Counts what another program counted: its last line, "N passed, N failed[, N skipped]", and its exit status. Without such a
    line, or if only the status says that something failed, that is one failure."""
    global passed, failed, skipped
    found = re.fullmatch(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", line.strip())
    counts = [int(word or 0) for word in found.groups()] if found else [0, 1, 0]
    if returned and not counts[1]:
        counts[1] = 1
    passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]


def finish() -> int:
    """Prints the counts; the exit status."""
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0
