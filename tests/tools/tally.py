"""What test scripts count: expectations that held or failed, and tests that could not run here. The line that
`finish` prints is what `./test.sh` adds up.
"""

from __future__ import annotations

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


def finish() -> int:
    """Prints the counts; the exit status."""
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0
