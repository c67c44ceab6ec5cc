#!/usr/bin/env python3
"""Do the tests notice? Plant one mistake at a time in a copy of the tree and see whether the named test fails.

    tools/mutants/run.py [--list] [--jobs N] [--keep DIR] [WORD...]      WORD: only mutants whose name contains it

Problem. The chapters on the model list mistakes that are easy to make and that move a result by little. A test suite
is worth what it catches of them.

    tools/mutants/*.toml --- [[mutant]] name, chapter, file, old, new, test
    working tree --copy--> build once --> baseline must pass --> for each: patch, build, run the test, restore

Rules
 1. `old` stands exactly once in `file`; otherwise the mutant is stale, which is a failure of its own.
 2. `test` is a test program and its filters ("duet_parity transformer"). It must pass without the mutant and, for at
    least one of its tests, not by skipping; a mutant whose test skips here is counted as skipped, not as caught.
 3. Caught means: the program ran and failed (or crashed). A mutant that does not compile is an error of the mutant.
 4. Nothing outside the copy is touched.
"""
import argparse
import dataclasses
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)
FIELDS = {"name", "chapter", "file", "old", "new", "test"}
TIMEOUT_S = 900


@dataclasses.dataclass
class Mutant:
    name: str
    chapter: str  # where the mistake is described
    file: str
    old: str
    new: str
    test: str
    source: str  # the list it stands in


def load(folder: pathlib.Path) -> list[Mutant]:
    found = []
    for path in sorted(folder.glob("*.toml")):
        for row in tomllib.loads(path.read_text()).get("mutant", []):
            if set(row) != FIELDS:
                raise SystemExit(f"{path.name}: {row.get('name')}: fields must be {sorted(FIELDS)}")
            found.append(Mutant(source=path.name, **row))
    names = [m.name for m in found]
    for name in set(names):
        if names.count(name) > 1:
            raise SystemExit(f"mutant {name!r} stands twice")
    return found


def stale(mutant: Mutant, root: pathlib.Path) -> str | None:
    """Why the patch cannot be applied, or None."""
    path = root / mutant.file
    if not path.is_file():
        return f"{mutant.file} is gone"
    count = path.read_text().count(mutant.old)
    if count != 1:
        return f"`old` stands {count} times in {mutant.file}"
    return "`new` equals `old`" if mutant.new == mutant.old else None


def copy_tree(to: pathlib.Path) -> None:
    list_files = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(list_files, cwd=ROOT, check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = ROOT / name, to / name
        if not source.is_file() or (target.is_file() and target.read_bytes() == source.read_bytes()):
            continue  # an equal file keeps its time: after a mutant's restoration that is what makes it build again
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)


def build(tree: pathlib.Path, programs: set[str], jobs: int) -> subprocess.CompletedProcess:
    command = ["cmake", "--build", str(tree / "build"), "-j", str(jobs), "--target", *sorted(programs)]
    return subprocess.run(command, capture_output=True, text=True)


def run_test(tree: pathlib.Path, test: str) -> tuple[bool, int, str]:
    """(failed, tests that passed, output)."""
    program, *filters = test.split()
    try:
        done = subprocess.run(
            [f"build/{program}", *filters], cwd=tree, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return True, 0, "timeout"
    output = done.stdout + done.stderr
    counts = COUNTS.findall(output)
    return done.returncode != 0, int(counts[-1][0]) if counts else 0, output


def first_failure(output: str) -> str:
    lines = output.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("FAIL"):
            return line.split("(")[0].removeprefix("FAIL").strip()
    return "crash"


def prepare(tree: pathlib.Path, mutants: list[Mutant], jobs: int) -> dict[str, bool]:
    """Build the copy and run every test once; True for tests that really ran."""
    configure = ["cmake", "-S", tree, "-B", tree / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    subprocess.run(configure, check=True, capture_output=True)
    built = build(tree, {m.test.split()[0] for m in mutants}, jobs)
    if built.returncode:
        raise SystemExit("the tree does not build:\n" + (built.stdout + built.stderr)[-3000:])
    usable = {}
    for test in sorted({m.test for m in mutants}):
        failed, passed, output = run_test(tree, test)
        if failed:
            raise SystemExit(f"baseline: {test} fails without any mutant:\n{output[-3000:]}")
        usable[test] = passed > 0
    return usable


def judge(tree: pathlib.Path, mutant: Mutant, jobs: int) -> tuple[str, str]:
    path = tree / mutant.file
    original = path.read_text()
    path.write_text(original.replace(mutant.old, mutant.new))
    try:
        built = build(tree, {mutant.test.split()[0]}, jobs)
        if built.returncode:
            errors = [line for line in built.stdout.splitlines() if "error" in line]
            return "BROKEN", errors[0] if errors else "does not build"
        failed, _, output = run_test(tree, mutant.test)
        return ("caught", first_failure(output)) if failed else ("SURVIVED", mutant.test)
    finally:
        path.write_text(original)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", metavar="DIR", help="use and keep this folder for the copy (rebuilds are incremental)")
    args = parser.parse_args()
    mutants = [m for m in load(HERE) if not args.words or any(w in m.name for w in args.words)]
    if args.list:
        for m in mutants:
            print(f"{m.name:44} {m.chapter:28} {m.test}")
        return 0
    tree = pathlib.Path(args.keep or tempfile.mkdtemp(prefix="duet-mutants-"))
    try:
        copy_tree(tree)
        return report(tree, mutants, args.jobs)
    finally:
        if not args.keep:
            shutil.rmtree(tree, ignore_errors=True)


def report(tree: pathlib.Path, mutants: list[Mutant], jobs: int) -> int:
    fresh = [m for m in mutants if not stale(m, tree)]
    usable = prepare(tree, fresh, jobs)
    tally = {"caught": 0, "SURVIVED": 0, "BROKEN": 0, "STALE": 0, "skip": 0}
    for m in mutants:
        start = time.monotonic()
        why = stale(m, tree)
        if why:
            verdict, detail = "STALE", why
        elif not usable[m.test]:
            verdict, detail = "skip", f"{m.test} skips here"
        else:
            verdict, detail = judge(tree, m, jobs)
        tally[verdict] += 1
        print(f"{verdict:8} {m.name:44} {time.monotonic() - start:5.1f} s  {detail}", flush=True)
    bad = tally["SURVIVED"] + tally["BROKEN"] + tally["STALE"]
    print(f"{tally['SURVIVED']} survived, {tally['BROKEN']} broken, {tally['STALE']} stale")
    print(f"{tally['caught']} passed, {bad} failed, {tally['skip']} skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
