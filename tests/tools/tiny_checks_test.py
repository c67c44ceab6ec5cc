#!/usr/bin/env python3
"""The commands that check a trained duet-tiny can themselves fail (tools/tiny/reference.py, reconstruct.py).

 1. The media that a request brings along show and sound what its clip is measured for, also when the roles of
    two pictures are exchanged: they are written as files and read back by the evaluator.
 2. An error that jumps where chunks or tiles meet is seen, one that does not is not; a missing figure never
    holds.
 3. Figures of an earlier run are taken up only if it was the same run.

Needs PyTorch, diffusers, Pillow and ffmpeg; skips loudly without. Prints "N passed, N failed, N skipped".
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "tiny"))
warnings.filterwarnings("ignore")

import tally  # noqa: E402
from tally import check  # noqa: E402

try:
    import numpy as np
    import torch  # noqa: F401
    import diffusers  # noqa: F401
    import transformers  # noqa: F401
    import PIL  # noqa: F401
    import safetensors  # noqa: F401
except ImportError as missing:
    tally.skip("tiny_checks_test", f"{missing.name} is not installed")
    sys.exit(tally.finish())

import evaluate  # noqa: E402
import judge  # noqa: E402
import reconstruct  # noqa: E402
import reference  # noqa: E402
import convert  # noqa: E402  (after reference, which says where it is)
import tasks  # noqa: E402


def requests() -> list[tasks.Request]:
    """One of every kind, and one with exchanged pictures."""
    found: dict[tuple, tasks.Request] = {}
    for task in ("fl2va", "ref2va"):
        for r in tasks.make([3, 1], 40, task, split="test"):
            found.setdefault((*r.keyframes, *(x.kind for x in r.references)), r)
    return [*found.values(), judge.swapped(found[("image", "image")])]


def test_media(folder: pathlib.Path) -> None:
    """What the evaluator reads off the files is what `judge.wanted` says."""
    blank = np.zeros((1, 8, 8, 3), np.uint8)
    for i, request in enumerate(requests()):
        given = reference.media(request)
        entry = reference.save(folder / str(i), request.prompt, given, blank, np.zeros((2, 800)))
        read, wanted = evaluate.expectation(entry["prompt"], entry["references"]), judge.wanted(request)
        names = ("shape", "colour", "motion", "timbre")
        told = [{n: thing[n] for n in names} for thing in read["objects"]]
        # A video alone says nothing of its object's looks, so only what is told by words or media counts.
        right = all(a[n] == b[n] for a, b in zip(told, wanted["objects"]) for n in names)
        check(right and read["background"] == wanted["background"], f"{request.prompt}: {told}")
        for at in request.keyframes:
            same = np.array_equal(evaluate.read_frames(pathlib.Path(entry[at]))[0], given[at])
            check(same, f"{request.prompt}: {at} keyframe")


def test_seams() -> None:
    """A step in the error at every 17th frame, and at one column."""
    rng = np.random.default_rng(1)
    error = rng.normal(0, 0.01, (107, 4, 64, 3)).astype(np.float32)
    seams = np.arange(17, 107, 17)
    check(0.95 < reconstruct.ratio(reconstruct.changes(error, 0), seams) < 1.05, "no seam seen as one")
    jumpy = error + 0.03 * (np.arange(107) // 17 % 2)[:, None, None, None]
    check(reconstruct.ratio(reconstruct.changes(jumpy, 0), seams) > 1.5, "a seam is not seen")
    late = error + 0.03 * ((np.arange(107) + 1) // 17 % 2)[:, None, None, None]
    check(reconstruct.ratio(reconstruct.changes(late, 0), seams) < 1.0, "a seam one frame off counts")
    edge = error + 0.03 * (np.arange(64) >= 32)[None, None, :, None]
    check(reconstruct.ratio(reconstruct.changes(edge, 2), np.array([32])) > 1.5, "a border is not seen")


def test_bounds() -> None:
    """Each bound can fail, and a missing figure does."""
    good = {n: (1.0 if s == ">=" else 0.0) for n, (s, _) in reconstruct.BOUNDS.items()} | {"psnr_db": 33.0}
    check(all(holds for holds, _ in reconstruct.verdicts(good)), "good figures fail")
    for name, (sign, bound) in reconstruct.BOUNDS.items():
        bad = {**good, name: bound - 0.01 if sign == ">=" else bound + 0.01}
        check(sum(not holds for holds, _ in reconstruct.verdicts(bad)) == 1, f"{name} cannot fail")
    check(not any(holds for holds, _ in reconstruct.verdicts({})), "missing figures hold")


def test_digests(folder: pathlib.Path) -> None:
    """What a converted tree is made of: all files of the partitions, also of one alone that links to the other's; no others."""
    for name in ("FL2VA/transformer/a", "FL2VA/video_vae/b", "Ref2VA/transformer/a", "curves/c"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("old")
    (folder / "Ref2VA" / "video_vae").symlink_to("../FL2VA/video_vae")
    (folder / "Ref2VA" / "model_index.json").write_text('{"_minimax_h3": {"partition": "ref2va"}}')
    roots = (folder, folder / "FL2VA", folder / "Ref2VA")
    (folder / "FL2VA" / "model_index.json").write_text('{"_minimax_h3": {"partition": "fl2va"}}')

    def changed(name: str) -> list[bool]:
        before = [convert.digests(str(r)) for r in roots]
        (folder / name).write_text("new")
        return [convert.digests(str(r)) != b for r, b in zip(roots, before)]

    check(changed("curves/c") == [False, False, False], "digests: a curve counts")
    check(changed("FL2VA/transformer/a") == [True, True, False], "digests: a transformer")
    check(changed("FL2VA/video_vae/b") == [True, True, True], "digests: what is linked to does not count")


def test_resume(folder: pathlib.Path) -> None:
    """The same run goes on; another seed starts afresh."""
    (folder / "made_of.json").write_text('{"a": "b"}')
    args = argparse.Namespace(
        task="t2va", count=2, points=3, seed=1, noise_seed=5, swap=False, tree=folder, json=folder / "f.json"
    )
    identity, clips = reference.resume(args)
    check(clips == {}, "figures out of nothing")
    clip = {"number": 1, "colour": 1.0, "stray_ticks": 0, "wanted": {"objects": []}, "objects": []}
    reference.write(args.json, identity, {1: clip})
    check(list(reference.resume(args)[1]) == [1], "figures of the same run are lost")
    check(json.loads(args.json.read_text())["summary"]["colour"] == 1.0, "summary of a part")
    args.noise_seed = 6
    check(reference.resume(args)[1] == {}, "figures of another run are taken up")


def main() -> int:
    """Runs all tests."""
    test_seams()
    test_bounds()
    with tempfile.TemporaryDirectory() as folder:
        test_digests(pathlib.Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        test_resume(pathlib.Path(folder))
        if shutil.which("ffmpeg"):
            test_media(pathlib.Path(folder))
        else:
            tally.skip("tiny_checks_test media", "ffmpeg is not installed")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
