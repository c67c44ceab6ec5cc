#!/usr/bin/env python3
"""The measuring stick itself, then the whole program against it.

1. compare.py can fail: each kind of difference that it must see is made by hand and must be reported.
2. Requests of tests/fixtures/requests.json through the real command line, from checkpoints in the diffusers layout,
   against the recorded samples. (`test.sh` runs all of them in the native layout with tools/oracle/check_requests.py;
   tests/parity holds the stages to the same recordings from inside.)

Needs numpy, of the distribution; says skip without. Usage: oracle_test.py [DUET]   default build/duet
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "oracle"))
import tally

try:
    import numpy as np
except ImportError:
    distribution = "/usr/bin/python3"
    if os.path.exists(distribution) and os.path.realpath(sys.executable) != os.path.realpath(distribution):
        os.execv(distribution, [distribution, *sys.argv])
    tally.skip("oracle_test", "no numpy")
    sys.exit(tally.finish())

import compare
import samples
import tensors

RULES = [
    {"name": "ids", "exact": True, "required": True},
    {"name": "steps", "ulp": 1},
    {"name": "frames@mean", "max_abs": 0.02},
    {"name": "frames", "psnr_db": 60, "max_abs": 4},
    {"name": "latents", "rel_l2": 1e-4, "required": True},
]


def statuses(a, b):
    return {name: status for status, name, _ in compare.compare(a, b, RULES, None, None)}


def clip():
    return np.random.default_rng(1).integers(0, 256, (22, 40, 48, 3), dtype=np.uint8)


def split(length, tile, overlap):
    """A tile rule of its own, so that strips exist on a small picture."""
    return [0, length // 4], [3 * length // 4] * 2, [length // 2]


def equal_tensors_hold():
    x = np.linspace(-1, 1, 99, dtype=np.float32)
    assert statuses({"latents": x}, {"latents": x}) == {"latents": "ok"}


def a_wrong_id_fails():
    assert statuses({"ids": np.array([1, 2])}, {"ids": np.array([1, 3])}) == {"ids": "FAIL"}


def a_small_error_holds_and_a_larger_one_fails():
    x = np.linspace(1, 2, 100, dtype=np.float32)
    assert statuses({"latents": x * np.float32(1 + 5e-5)}, {"latents": x}) == {"latents": "ok"}
    assert statuses({"latents": x * np.float32(1 + 2e-4)}, {"latents": x}) == {"latents": "FAIL"}


def one_unit_in_the_last_place_is_counted_across_zero():
    a, b = np.array([1.0, -0.0, 0.0], np.float32), np.array([1.0, 0.0, -0.0], np.float32)
    assert statuses({"steps": a}, {"steps": b}) == {"steps": "ok"}
    a[0] = np.nextafter(np.float32(1), np.float32(2))
    assert statuses({"steps": a}, {"steps": b}) == {"steps": "ok"}
    a[0] = np.nextafter(a[0], np.float32(2))
    assert statuses({"steps": a}, {"steps": b}) == {"steps": "FAIL"}


def not_finite_fails_even_where_both_are():
    x = np.array([1.0, np.nan], np.float32)
    assert statuses({"latents": x}, {"latents": x}) == {"latents": "FAIL"}


def another_shape_fails():
    x = np.zeros((2, 3), np.float32)
    assert statuses({"latents": x.T.copy()}, {"latents": x}) == {"latents": "FAIL"}


def what_is_required_must_be_there():
    x = np.zeros(3, np.float32)
    assert statuses({}, {"latents": x, "steps": x}) == {"latents": "FAIL", "steps": "absent"}


def a_tensor_without_a_rule_fails():
    x = np.zeros(3, np.float32)
    assert statuses({"other": x}, {"other": x}) == {"other": "FAIL"}


def one_pixel_five_levels_off_fails():
    a, b = clip(), clip()
    b[3, 7, 7] = 100
    a[3, 7, 7] = (100, 104, 100)
    assert statuses({"frames": a}, {"frames": b}) == {"frames": "ok"}
    a[3, 7, 7] = (100, 105, 100)
    assert statuses({"frames": a}, {"frames": b}) == {"frames": "FAIL"}


def samples_see_a_seam_and_a_shift():
    whole, kept = clip(), {}
    samples.frames(kept, "frames", whole, split)
    assert set(statuses({"frames": whole}, kept).values()) == {"ok"}
    for axis in (0, 1, 2):
        assert "FAIL" in statuses({"frames": np.roll(whole, 1, axis)}, kept).values()
    seam = whole.copy()
    seam[:, 10, :, :] ^= 64
    assert "FAIL" in statuses({"frames": seam}, kept).values()
    assert "FAIL" in statuses({"frames": whole[:-1]}, kept).values()


def files_come_back_as_they_were():
    folder = tempfile.mkdtemp()
    values = {"a": np.arange(6, dtype=np.int32).reshape(2, 3), "b": np.float64([1.5]), "c": clip()[:1]}
    path = os.path.join(folder, "x.safetensors")
    tensors.write(path, values, {"k": "v"})
    back, meta = tensors.read(path)
    shutil.rmtree(folder)
    assert meta == {"k": "v"} and set(back) == set(values)
    assert all(back[n].dtype == v.dtype and np.array_equal(back[n], v) for n, v in values.items())


CHECKS = [value for value in list(globals().values()) if callable(value) and value.__module__ == __name__]
CHECKS = [check for check in CHECKS if check.__name__ not in ("statuses", "clip", "split")]


def requests(duet, layout, names):
    """The requests through the command line."""
    work = tempfile.mkdtemp(prefix="duet-oracle-")
    command = [sys.executable, str(ROOT / "tools/oracle/check_requests.py"), "--duet", duet, "--layout", layout]
    out = subprocess.run([*command, "--work", work, *names], capture_output=True, text=True, check=False)
    shutil.rmtree(work)
    print(f"{layout}:\n{out.stdout}{out.stderr}")
    tally.add((out.stdout.splitlines() or [""])[-1], out.returncode)


def main():
    for check in CHECKS:
        try:
            check()
            tally.check(True, check.__name__)
        except Exception:
            tally.check(False, check.__name__)
            traceback.print_exc(file=sys.stdout)
    duet = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "duet")
    if os.path.exists(duet):
        requests(duet, "diffusers", ["base0", "base1", "base2", "short464"])
    else:
        tally.skip("oracle_test", f"{duet} is not built")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
