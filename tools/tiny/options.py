"""What the commands say of an option that cannot be: one line with its name, the rule and the nearest value that holds.

Checked before anything is made, so that no work is lost. NOT here: which options there are (each command's own).
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import pathlib
import re

try:
    from safetensors import SafetensorError
except ImportError:  # then no such file is read either

    class SafetensorError(Exception):  # type: ignore[no-redef]
        """Never raised."""


DAMAGE = (OSError, KeyError, RuntimeError, ValueError, SafetensorError)  # what reading a damaged file raises


def refuse(field: str, value, rule: str, nearest=None) -> None:
    """Ends the program with one line about an option."""
    raise SystemExit(f"--{field} {value}: {rule}" + (f"; nearest: {nearest}" if nearest is not None else ""))


def within(args: argparse.Namespace, field: str, low: float, high: float = math.inf) -> None:
    """Refuses a number outside of low..high."""
    value = getattr(args, field.replace("-", "_"))
    if not low <= value <= high:
        rule = f"must be {low} to {high}" if high < math.inf else f"must be at least {low}"
        refuse(field, value, rule, high if value > high else low)


def check_folder(field: str, path: pathlib.Path | None) -> None:
    """Refuses what is not a folder and cannot become one."""
    with reading(field, path):
        for place in (path, *path.absolute().parents) if path else ():
            if place.exists():
                if not place.is_dir():
                    refuse(field, path, f"{place} is not a folder")
                return


def check_there(field: str, path: pathlib.Path | None, holds: str = "", near: tuple[str, ...] = ()) -> None:
    """Refuses what is not a folder or lacks the file that it must hold; folders of `near`, inside it, may be what was meant."""
    if path is None:
        return
    with reading(field, path):
        if not path.is_dir():
            refuse(field, path, "must be a folder")
        if holds and not (path / holds).is_file():
            found = (path / inner for inner in near if (path / inner / holds).is_file())
            refuse(field, path, f"must be a folder with {holds}", next(found, None))


@contextlib.contextmanager
def reading(field: str, path: pathlib.Path):
    """Whatever goes wrong inside is said in one line about the option that named the files."""
    try:
        yield
    except DAMAGE as problem:
        reason = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise SystemExit(f"--{field} {path}: cannot be read ({reason})") from None


def check_device(name: str) -> None:
    """Refuses a device other than the processor and the GPUs that are there."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if re.fullmatch(r"cpu|cuda(:\d+)?", name):
        if name == "cpu" or int(name[5:] or 0) < gpus:
            return
    refuse("device", name, f"must be cpu or a GPU, as cuda:0; {gpus} here", "cuda:0" if gpus else "cpu")


def check_file(field: str, path: pathlib.Path | None) -> None:
    """Refuses a file that could not be written."""
    if path is None:
        return
    folder = path.absolute().parent
    if path.is_dir():
        refuse(field, path, "is a folder, must be a file")
    if not folder.is_dir():
        refuse(field, path, f"{folder} is not a folder")
    if not os.access(path if path.exists() else folder, os.W_OK):
        refuse(field, path, "cannot be written")


def check_model(root: pathlib.Path, inner: str) -> None:
    """Refuses a model folder without what a command reads from it."""
    if not (root / inner).is_dir():
        raise SystemExit(f"{root}: has no {inner}/; a model folder is asked for, as models/duet-tiny")
