#!/usr/bin/env python3
"""Hold the direction of dependencies: a room of src/ may include only the rooms below it (the table is this file's whole point).

Usage: tools/check_includes.py [ROOT]; prints each forbidden edge with its file and line, exits 1 if there is any.
"""
import pathlib
import re
import sys

MAY_INCLUDE = {
    "base": [],
    "tensor": ["base"],
    "backend": ["tensor", "base"],
    "store": ["tensor", "base"],
    "media": ["engine/io.h", "base"],
    "nn": ["backend", "store", "tensor", "base"],
    "engine": ["nn", "backend", "store", "tensor", "base"],
    "api": ["engine", "media", "nn", "store", "backend", "tensor", "base"],
    "cli": ["api", "engine", "media", "nn", "store", "backend", "tensor", "base"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def allowed(room: str, target: str) -> bool:
    if target.startswith("duet/") or target.split("/")[0] == room or "/" not in target:
        return True
    return any(target == rule or target.split("/")[0] == rule for rule in MAY_INCLUDE[room])


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    bad = 0
    for path in sorted((root / "src").rglob("*.[ch]*")):
        room = path.relative_to(root / "src").parts[0]
        if room not in MAY_INCLUDE:
            print(f"{path}: room {room!r} is not in the table")
            bad += 1
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = INCLUDE.match(line)
            if found and not allowed(room, found.group(1)):
                print(f"{path.relative_to(root)}:{number}: {room} must not include {found.group(1)}")
                bad += 1
    print(f"include directions: {bad} forbidden" if bad else "include directions: ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
