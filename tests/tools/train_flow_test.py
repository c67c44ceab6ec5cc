#!/usr/bin/env python3
"""What train_flow.sh starts, in which order and with which options, and what it refuses.

The trainings themselves need a GPU (`tiny_training_test.py` has their parts). Here two programs stand in, found first on PATH: a
`python3` that writes down its arguments and exports a folder when asked to, and an `nvidia-smi` that lists as many
GPUs as a case says. The script is a copy in a tree of its own. Prints "N passed, N failed, N skipped".
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import tally
from tally import check

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = """#!/bin/sh
case "$*" in *"$SLOW"*) sleep 0.5;; esac
echo "$CUDA_VISIBLE_DEVICES|$*" >> "$CALLS"
case "$*" in *"$BROKEN"*) echo "cannot do it"; exit 3;; esac
while [ $# -gt 0 ]; do
    if [ "$1" = --export ]; then mkdir -p "$2/transformer"; echo new > "$2/transformer/config.json"; fi
    shift
done
"""


class Tree:
    """A copy of the script beside a model that has weights of some partitions."""

    def __init__(self, folder: pathlib.Path, have: tuple[str, ...], gpus: int) -> None:
        self.folder, self.model, self.state = folder, folder / "models" / "duet-tiny", folder / "state"
        (folder / "tools" / "tiny").mkdir(parents=True)
        (folder / "bin").mkdir()
        self.script = folder / "tools" / "tiny" / "train_flow.sh"
        shutil.copy(ROOT / "tools" / "tiny" / "train_flow.sh", self.script)
        self.model.mkdir(parents=True)
        for partition in have:
            (self.model / partition / "transformer").mkdir(parents=True)
            (self.model / partition / "transformer" / "config.json").write_text("old")
        listed = "\n".join(f"echo GPU {n}: one" for n in range(gpus)) or "echo No devices were found; exit 6"
        for name, text in (("python3", PYTHON), ("nvidia-smi", f"#!/bin/sh\n{listed}\n")):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)

    def run(
        self, *arguments: str, broken: str = "none of these", slow: str = "none of these", **more: str
    ) -> tuple[int, str, list[str]]:
        """Exit code, what was said, and the calls of python3, as GPU|arguments; slow ones are noted after half a second."""
        calls = self.folder / "calls"
        calls.write_text("")
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        inherited = {k: v for k, v in os.environ.items() if k != "PROCESSES"}
        environment = inherited | {"PATH": path, "CALLS": str(calls), "BROKEN": broken, "SLOW": slow} | more
        ran = subprocess.run(
            ["bash", str(self.script), *arguments],
            env=environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        return ran.returncode, ran.stdout, calls.read_text().splitlines()


def trainings(calls: list[str]) -> list[str]:
    """The calls that train."""
    return [c for c in calls if "--train-minutes" in c]


def test_goes_on(folder: pathlib.Path) -> None:
    """Both from weights of their own, each on a GPU: FL2VA becomes a mean, Ref2VA does not."""
    tree = Tree(folder, ("FL2VA", "Ref2VA"), gpus=2)
    code, said, calls = tree.run(str(tree.state), "4", "5", "--seed", "9")
    check(code == 0, f"goes on: {code} {said}")
    flows = [c for c in calls if "flow.py" in c]
    check(all("--seed 9" in c for c in flows if "--export" not in c), "goes on: an option is not passed on")
    whole = next(i for i, c in enumerate(calls) if "--train-minutes" in c)
    done = sum("--prepare videos" in c or "--prepare strays" in c for c in calls[:whole])
    check(done >= 8, f"goes on: {done} of 8 parts before the first training")
    parts = [c for c in calls if "--prepare" in c]
    kinds = {
        (c.split("--prepare ")[1].split()[0], "--short" in c, c.split("--partition ")[1].split()[0])
        for c in parts
    }
    wanted = {("videos", False, "fl2va"), ("strays", False, "fl2va"), ("prompts", False, "fl2va")}
    wanted |= {("prompts", False, "ref2va")} | {(s, True, "ref2va") for s in ("videos", "strays", "prompts")}
    check(kinds == wanted and len(parts) == 4 * len(wanted), f"goes on: encodes {kinds}, {len(parts)} parts")
    found = {c.split("--partition ")[1].split()[0]: c for c in trainings(calls)}
    check(len(trainings(calls)) == 2 and set(found) == {"fl2va", "ref2va"}, f"goes on: {found}")
    for name, gpu, minutes, partition in (("fl2va", "0", "4", "FL2VA"), ("ref2va", "1", "5", "Ref2VA")):
        call = found.get(name, "")
        init = f"--init {tree.state}/began/{partition}"
        for part in (f"--train-minutes {minutes} ", init, "--guide", "--astray"):
            check(part in call, f"goes on: {name} without {part}: {call}")
        check(call.startswith(gpu + "|"), f"goes on: {name} not on GPU {gpu}")
        check(("--short" in call) == (name == "ref2va"), f"goes on: {name} and short clips")
    exports = [c for c in calls if "--export" in c]
    check(len(exports) == 2 and f"--mean {tree.state}/began/FL2VA" in exports[0], f"goes on: {exports}")
    check("--mean" not in exports[-1], "goes on: Ref2VA became a mean")
    check("assemble.py" in calls[-1], "goes on: not assembled at the end")
    kept = (tree.state / "began" / "Ref2VA" / "config.json").read_text()
    check(kept == "old", "goes on: the weights that it began with are gone")

    code, _, _ = tree.run(str(tree.state), "4.0", "5.00", "--seed", "9")
    check(code == 0, "goes on: 4.0 minutes are not 4")
    code, said, _ = tree.run(str(tree.state), "4", "6")
    check(code == 2 and "begun with 4 5 minutes" in said, f"goes on: other minutes: {code} {said}")
    _, _, again = tree.run(str(tree.state), "4", "5", "--seed", "9")
    check(set(again) == set(calls), "goes on: called again it does something else")


def test_anew(folder: pathlib.Path) -> None:
    """Ref2VA without weights: first without guidance, from FL2VA's; FL2VA is left alone."""
    tree = Tree(folder, ("FL2VA",), gpus=1)
    code, said, calls = tree.run(str(tree.state), "0", "10", slow="--prepare strays")
    check(code == 0, f"anew: {code} {said}")
    first, second = [*sorted(trainings(calls), key=lambda c: "--guide" in c), "", ""][:2]
    check(f"--init {tree.state}/began/FL2VA" in first and "--guide" not in first, f"anew: first {first}")
    check("--train-minutes 3.5 " in first and "--train-minutes 6.5 " in second, "anew: the minutes")
    check(f"--after {tree.state}/first" in second and "--guide" in second, f"anew: then {second}")
    check("--short 12288" in first and "--short 12288" in second, "anew: short clips")
    check("--astray" not in first and "--astray" in second, "anew: strays from the beginning")
    begun = calls.index(first) if first else 0
    check(
        not any("--prepare strays" in c for c in calls[:begun]),
        "anew: waits for strays that it does not need",
    )
    check(calls.index(second) > max(i for i, c in enumerate(calls) if "--prepare" in c), "anew: too soon")
    ahead = {c.split("--short ")[1].split()[0] for c in calls if "--prepare" in c and "--short" in c}
    check(ahead == {"12288"}, f"anew: other short clips are encoded than trained on: {ahead}")
    check(not any("--partition fl2va" in c for c in trainings(calls)), "anew: FL2VA is trained")
    check((tree.model / "FL2VA/transformer/config.json").read_text() == "old", "anew: FL2VA is replaced")
    check((tree.model / "Ref2VA/transformer/config.json").exists(), "anew: nothing exported")


def test_anew_beside(folder: pathlib.Path) -> None:
    """The same with two GPUs: what is encoded while it trains is on the other one."""
    tree = Tree(folder, ("FL2VA",), gpus=2)
    code, said, calls = tree.run(str(tree.state), "0", "10")
    check(code == 0, f"anew beside: {code} {said}")
    check(all(c.startswith("1|") for c in trainings(calls)), f"anew beside: trains on {trainings(calls)}")
    strays = [c for c in calls if "--prepare strays" in c]
    check(len(strays) == 8 and all(c.startswith("0|") for c in strays), f"anew beside: strays {strays}")
    others = [c for c in calls if "--prepare" in c and c not in strays]
    check({c[0] for c in others} == {"0", "1"}, "anew beside: before that only one GPU encodes")


def test_nothing_yet(folder: pathlib.Path) -> None:
    """Neither has weights, one GPU: FL2VA in two stages, then Ref2VA after it."""
    tree = Tree(folder, (), gpus=1)
    code, said, calls = tree.run(str(tree.state), "6", "10")
    check(code == 0, f"nothing yet: {code} {said}")
    all_of = trainings(calls)
    check(len(all_of) == 4, f"nothing yet: {len(all_of)} trainings")
    check(not any("--init" in c for c in all_of), "nothing yet: weights out of nowhere")
    check(sum("--train-minutes 3 " in c for c in all_of) == 2, "nothing yet: halves of FL2VA's minutes")
    after = [c for c in all_of if f"--after {tree.state}/guided --after-partition fl2va" in c]
    check(len(after) == 1 and "--partition ref2va" in after[0], f"nothing yet: {after}")
    check(not any("--mean" in c for c in calls), "nothing yet: a mean with nothing")


def test_refusals(folder: pathlib.Path) -> None:
    """What cannot be is said in one line, before anything is started."""
    tree = Tree(folder, (), gpus=1)
    state = str(tree.state)
    (folder / "file").write_text("")
    for arguments, more, want in (
        (("state",), {}, "train_flow.sh STATE FL2VA REF2VA"),
        ((state, "ten", "5"), {}, "FL2VA ten: minutes"),
        ((state, "5", "-1"), {}, "REF2VA -1: minutes"),
        ((state, "0", "0.0"), {}, "one must be above 0"),
        ((state, "0", "5"), {}, "there are no weights of it"),
        (("", "5", "5"), {}, "STATE: must be given"),
        ((str(folder / "file"), "5", "5"), {}, "must be a folder"),
        ((state, "5", "5"), {"PROCESSES": "0"}, "PROCESSES 0: a number from 1 to 99"),
        ((state, "5", "5"), {"PROCESSES": "9" * 20}, "a number from 1 to 99"),
        ((state, "99999", "5"), {}, "FL2VA 99999: minutes"),
        (("-st", "5", "5"), {}, "nearest: ./-st"),
        ((state, "5", "5", "--seed", "3", "--short", "64"), {}, "--short: is the script's own"),
        ((state, "5", "5", "--parts=2"), {}, "--parts=2: is the script's own"),
        ((state, "5", "5", "--device", "cpu"), {}, "--device: is the script's own"),
        ((state, "5", "5", "--help"), {}, "--help: is the script's own"),
        (("/dev/null/x", "5", "5"), {}, "STATE /dev/null/x: cannot be made"),
    ):
        code, said, calls = tree.run(*arguments, **more)
        check(code == 2 and want in said, f"refusals: {arguments} {more}: {code} {said!r}")
        check(not calls and not tree.state.exists(), f"refusals: {arguments} {more} did something")


def test_failures(folder: pathlib.Path) -> None:
    """A part or a training that fails ends the script, names its log, and exports nothing."""
    for number, (broken, log) in enumerate((("--part 2", "-2"), ("--train-minutes 4", "fl2va"))):
        tree = Tree(folder / str(number), ("FL2VA", "Ref2VA"), gpus=2)
        code, said, calls = tree.run(str(tree.state), "4", "5", broken=broken)
        check(
            code != 0 and f"{log} failed" in said and "cannot do it" in said,
            f"failures: {broken}: {code} {said!r}",
        )
        check(not any("--export" in c for c in calls), f"failures: {broken}: exported all the same")
    tree = Tree(folder / "odd", ("FL2VA",), gpus=1)
    code, said, calls = tree.run(str(tree.state), "4", "5", "--odd", broken="--check")
    check(code == 2 and "cannot do it" in said, f"failures: an option that flow.py refuses: {code} {said!r}")
    check(
        len(calls) == 1 and not tree.state.exists(), "failures: goes on with an option that flow.py refuses"
    )
    code, said, _ = Tree(folder / "none", ("FL2VA",), gpus=0).run(str(folder / "s"), "4", "5")
    check(code == 1 and "no GPU" in said, f"failures: without a GPU {code} {said!r}")


def main() -> int:
    """Runs all tests."""
    for test in (test_goes_on, test_anew, test_anew_beside, test_nothing_yet, test_refusals, test_failures):
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder).resolve())
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
