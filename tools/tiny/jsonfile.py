"""JSON files written whole: a stop leaves the old file or the new one."""

from __future__ import annotations

import json
import pathlib


def write(path: pathlib.Path, value) -> None:
    """Indented JSON with a final newline; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=2) + "\n")
    part.replace(path)
