"""What the black-box tests share: running the binary, tiny models, and a register of tests.

A test is a function with @test. It fails by AssertionError (use `check`), skips by raising Skip, and gets a fresh
directory as its argument. Nothing here knows how duet is made: only what it prints, writes and returns.
"""
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

BINARY = "duet"
TESTS = []
NOTES = []  # figures worth printing at the end
_models = {}
_root = None


class Skip(Exception):
    pass


def test(function):
    TESTS.append(function)
    return function


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def equal(got, want, what):
    check(got == want, f"{what}: got {got!r}, want {want!r}")


class Run:
    """One finished process."""

    def __init__(self, args, seconds, code, out, err):
        self.args, self.seconds, self.code, self.out, self.err = args, seconds, code, out, err

    def __str__(self):
        shown = " ".join(a if isinstance(a, str) else repr(a) for a in self.args)
        return f"duet {shown[:300]}\n    exit {self.code}\n    stdout {self.out[-600:]!r}\n    stderr {self.err[-900:]!r}"

    def json(self):
        try:
            return json.loads(self.out)
        except ValueError as e:
            raise AssertionError(f"standard output is not one JSON object ({e}): {self}")


def duet(*args, env=None, stdin=None, stdout=None, timeout=300, cwd=None, under=()):
    """`under`: a program and its arguments that runs duet, as prlimit."""
    words = [a if isinstance(a, (str, bytes)) else str(a) for a in args]
    full_env = dict(os.environ, LC_ALL="C.UTF-8", **(env or {}))
    began = time.monotonic()
    done = subprocess.run([*under, BINARY, *words], stdin=stdin or subprocess.DEVNULL, stdout=stdout or subprocess.PIPE,
                          stderr=subprocess.PIPE, env=full_env, timeout=timeout, cwd=cwd)
    seconds = time.monotonic() - began
    return Run(words, seconds, done.returncode, (done.stdout or b"").decode("utf-8", "replace"),
               done.stderr.decode("utf-8", "replace"))


def expect(run, code):
    check(run.code == code, f"want exit {code}: {run}")
    return run


ERROR_LINE = re.compile(r"^error: (?P<field>[^:]+): (?P<rule>.+?)(?: \((?P<facts>(?:got|nearest: ).*)\))?$")


def refused(run, field=None, code=None, exit_code=2):
    """Exit code, one line of the stated form, empty standard output; with --json the object of the HTTP interface."""
    expect(run, exit_code)
    lines = [l for l in run.err.splitlines() if l.startswith("error: ")]
    check(len(lines) == 1, f"want one error line: {run}")
    if field is not None:
        match = ERROR_LINE.match(lines[0])
        check(match, f"not of the form 'error: FIELD: RULE (got VALUE; nearest: VALUE)': {run}")
        check(match["field"] == field, f"want field {field}: {run}")
    if "--json" in run.args:
        error = run.json()["error"]
        equal(sorted(error), ["code", "message", "param", "type"], f"members of error in {run}")
        kinds = {1: "server_error", 2: "invalid_request_error", 3: "server_error"}
        equal(error["type"], kinds[exit_code], f"type in {run}")
        if field is not None:
            equal(error["param"], field, f"param in {run}")
        if code is not None:
            equal(error["code"], code, f"code in {run}")
        check(error["message"], f"empty message in {run}")
    else:
        equal(run.out, "", f"standard output of {run}")
    return lines[0]


def scratch_root():
    global _root
    if _root is None:
        _root = tempfile.TemporaryDirectory(prefix="duet-api-")
    return pathlib.Path(_root.name)


def model(seed=0, layout="native", partition="fl2va", shape="tiny"):
    """A synthetic checkpoint, made once. Tests that damage one copy it first."""
    key = (seed, layout, partition, shape)
    if key not in _models:
        path = scratch_root() / f"{shape}-{seed}-{layout}-{partition}"
        expect(duet("synth", "--shape", shape, "--seed", seed, "--layout", layout, "--partition", partition, "--out", path), 0)
        _models[key] = path
    return _models[key]


def config(path):
    return expect(duet("info", path, "--json"), 0).json()["config"]


def side(path, at_least=128):
    """A canvas edge that this model accepts, near `at_least` pixels."""
    multiple = config(path)["canvas_multiple"]
    return (at_least + multiple - 1) // multiple * multiple


def quick(path, *more):
    """Options of the shortest clip that `path` can make: 22 frames, two evaluations, a square of 128 pixels or so."""
    edge = side(path)
    return ["--model", path, "--width", edge, "--height", edge, "--num-frames", 22, "--any-length",
            "--num-inference-steps", 3, "--threads", 2, *more]


def files_under(path):
    return sorted(str(p.relative_to(path)) for p in pathlib.Path(path).rglob("*"))


def note_times(what, seconds):
    ms = sorted(1000 * s for s in seconds)
    NOTES.append(f"{what}: {len(ms)} runs, median {statistics.median(ms):.1f} ms, largest {ms[-1]:.1f} ms")
