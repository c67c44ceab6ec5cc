#!/usr/bin/env python3
"""The commands that check a trained duet-tiny can themselves fail (tools/tiny/reference.py, reconstruct.py).

 1. The media that a request brings along show and sound what its clip is measured for, also when the roles of
    two pictures are exchanged: they are written as files and read back by the evaluator.
 2. An error that jumps where chunks or tiles meet is seen, one that does not is not; a missing figure never
    holds.
 3. Figures of an earlier run are taken up if it was the same run, and never written over if not.
 4. What cannot be made is refused in one line, and nothing of anybody's is lost.

Needs PyTorch, diffusers, Pillow and ffmpeg; skips loudly without. Prints "N passed, N failed, N skipped".
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import subprocess
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


def ends(work) -> str:
    """What ends the program, or nothing."""
    try:
        work()
    except SystemExit as said:
        return str(said.code)
    return ""


def test_ensure(folder: pathlib.Path) -> None:
    """A tree never takes the place of what is none, and fails in one line that leaves nothing behind."""
    mine, none = folder / "mine", folder / "none.py"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    none.write_text("pass")
    model = str(ROOT / "models" / "duet-tiny")
    for tree, converter, said in (
        (mine, none, "no converted tree"),
        (mine / "thesis.txt", none, "no converted tree"),
        (folder / "new", none, "SHA-256"),
        (folder / "new", folder / "missing.py", "No such file"),
    ):
        told = ends(lambda: convert.ensure(model, str(tree), str(converter)))
        check(said in told and "\n" not in told, f"ensure {tree.name} {converter.name}: {told!r}")
    check((mine / "thesis.txt").read_text() == "years of work", "ensure: somebody's file is gone")
    check(sorted(p.name for p in folder.iterdir()) == ["mine", "none.py"], "ensure: something is left behind")
    command = [sys.executable, str(ROOT / "tools/oracle/convert.py"), model, str(folder / "out")]
    run = subprocess.run([*command, "--converter", str(none)], capture_output=True, text=True)
    check(run.returncode == 1 and len(run.stderr.splitlines()) == 1, f"convert: {run.stderr!r}")
    check(not (folder / "out").exists(), "convert: leaves an empty folder")


def test_refusals(folder: pathlib.Path) -> None:
    """What makes no clips is refused before any is made; figures that cannot be read are no figures."""
    good = dict(task="ref2va", count=2, points=3, seed=1, noise_seed=5, threads=1, workers=1, swap=True)
    good |= dict(device="cpu", converter="", root=ROOT / "models/duet-tiny", out=None, json=None)
    for bad, said in (
        ({"count": 0}, "--count 0"),
        ({"points": 1}, "--points 1"),
        ({"threads": 0}, "--threads 0"),
        ({"noise_seed": -1}, "--noise-seed -1"),
        ({"task": "t2va"}, "--swap"),
        ({"device": "gpu"}, "--device gpu"),
        ({"converter": str(folder)}, "converter"),
    ):
        told = ends(lambda: reference.check_arguments(argparse.Namespace(**(good | bad))))
        check(said in told and "\n" not in told, f"refusals: {bad}: {told!r}")
    model, none = str(ROOT / "models" / "duet-tiny"), str(folder / "none" / "x")
    for command, said in (
        (["parity.py", "--converter", none, "--count", "0"], "--count 0"),
        (["parity.py", "--converter", none], "converter"),
        (["agree.py", model, "--converter", none, "--seed", "-1"], "--seed -1"),
        (["reconstruct.py", model, "--json", none], "--json"),
        (["reconstruct.py", str(folder)], "has no FL2VA/"),
        (["assemble.py", str(folder)], "has no FL2VA/"),
    ):
        command = [sys.executable, str(ROOT / "tools" / "tiny" / command[0]), *command[1:]]
        run = subprocess.run(command, capture_output=True, text=True)
        lines = run.stderr.splitlines()
        check(run.returncode != 0 and len(lines) == 1 and said in lines[0], f"refusals: {command}: {lines}")
    (folder / "made_of.json").write_text("{}")
    for text in ("{", "[]", '{"run": {}}', '{"clips": 3}'):
        (folder / "f.json").write_text(text)
        args = argparse.Namespace(**(good | {"tree": folder, "json": folder / "f.json"}))
        told = ends(lambda: reference.resume(args))
        check(told.startswith("--json") and "\n" not in told, f"refusals: figures {text!r}: {told!r}")


def test_listed(folder: pathlib.Path) -> None:
    """A run that goes on keeps what the manifest says of the clips that are there, and of no others."""
    check(reference.listed(None) == {} == reference.listed(folder), "listed: out of nothing")
    entries = [{"file": str(folder / name / "clip"), "prompt": name} for name in ("t2va-000", "t2va-001")]
    (folder / "manifest.json").write_text(json.dumps(entries))
    (folder / "t2va-001").mkdir()
    check(
        reference.listed(folder) == {"t2va-001": entries[1]}, "listed: of clips that are gone, or not of one"
    )


def test_resume(folder: pathlib.Path) -> None:
    """The same run goes on; another seed asks for another file."""
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
    said = ends(lambda: reference.resume(args))
    check("another run (noise_seed differ)" in said, f"figures of another run: {said!r}")


def main() -> int:
    """Runs all tests."""
    test_seams()
    test_bounds()
    for test in (test_digests, test_ensure, test_refusals, test_listed):
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder).resolve())
    with tempfile.TemporaryDirectory() as folder:
        test_resume(pathlib.Path(folder))
        if shutil.which("ffmpeg"):
            test_media(pathlib.Path(folder))
        else:
            tally.skip("tiny_checks_test media", "ffmpeg is not installed")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
