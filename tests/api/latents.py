"""A finished denoise is never lost: kept latents, and the clip that decode makes of them (promise P4)."""
import json
import shutil
import subprocess

import kit
from kit import check, duet, equal, expect, files_under, model, quick, refused, test


def make(path, output, *more):
    return duet("generate", *quick(path), "--prompt", "a lamp", "--output", output, *more)


def header(path):
    data = path.read_bytes()
    return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])


@test
def kept_latents_decode_to_the_same_clip(tmp):
    for seed in range(3):
        path, clip, again = model(seed), tmp / f"{seed}.mp4", tmp / f"{seed}-again.mp4"
        done = expect(make(path, clip, "--keep-latents", "--output-quality", "high", "--json"), 0)
        run, latents = done.json(), tmp / f"{seed}.mp4.latents.safetensors"
        check(done.err.rstrip().splitlines()[-1].endswith(str(latents)), f"the last line does not name the latents: {done}")
        equal(run["outputs"][0]["latents"], str(latents), "latents in the report")
        found = header(latents)
        equal({k for k in found if k != "__metadata__"}, {"video_latents", "audio_latents"}, "tensors")
        check(any("num_frames" in v for v in found["__metadata__"].values()), "the resolved request is not in the metadata")
        got = expect(duet("decode", latents, "--model", path, "--output", again, "--threads", 1, "--json"), 0).json()
        equal(got["outputs"][0]["path"], str(again), "path")
        equal(again.read_bytes(), clip.read_bytes(), "decoded clip")
        check(latents.exists(), "decode took the latents away")
        expect(duet("decode", latents, "--model", model(seed, "diffusers"), "--output", tmp / f"{seed}-d.mp4"), 0)
        equal((tmp / f"{seed}-d.mp4").read_bytes(), clip.read_bytes(), "decoded with the other layout")


@test
def latents_of_every_output_know_their_seed(tmp):
    path = model()
    expect(make(path, tmp / "c.mp4", "--keep-latents", "--num-outputs", 2), 0)
    expect(duet("decode", tmp / "c-1.mp4.latents.safetensors", "--model", path, "--output", tmp / "d.mp4"), 0)
    equal((tmp / "d.mp4").read_bytes(), (tmp / "c-1.mp4").read_bytes(), "decoded clip of output 1")


@test
def folders_keep_latents_inside(tmp):
    path = model()
    expect(make(path, f"{tmp}/out/", "--keep-latents"), 0)
    check((tmp / "out" / "latents.safetensors").exists(), f"files: {files_under(tmp)}")


@test
def latents_are_held_to_their_model(tmp):
    expect(make(model(0), tmp / "c.mp4", "--keep-latents"), 0)
    latents = tmp / "c.mp4.latents.safetensors"
    refused(duet("decode", latents, "--model", model(1), "--output", tmp / "d.mp4", "--json"), "latents")
    data = latents.read_bytes()
    for name, damaged in [("short", data[:-1]), ("half", data[:len(data) // 2]), ("long", data + b"\0"), ("empty", b""),
                          ("lie", (2**40).to_bytes(8, "little") + data[8:]),
                          ("other", data.replace(b"duet-latents-1", b"duet-latents-2"))]:
        (tmp / f"{name}.safetensors").write_bytes(damaged)
        run = duet("decode", tmp / f"{name}.safetensors", "--model", model(0), "--output", tmp / "d.mp4")
        check(f"{name}.safetensors" in refused(run), f"the file is not named: {run}")
    run = duet("decode", tmp / "absent.safetensors", "--model", model(0), "--output", tmp / "d.mp4")
    refused(run, "latents")
    check(not (tmp / "d.mp4").exists(), "a clip was written")


@test
def decode_replaces_nothing(tmp):
    expect(make(model(), tmp / "c.mp4", "--keep-latents"), 0)
    before = (tmp / "c.mp4").read_bytes()
    latents = tmp / "c.mp4.latents.safetensors"
    refused(duet("decode", latents, "--model", model(), "--output", tmp / "c.mp4"), "output")
    refused(duet("decode", latents, "--model", model(), "--output", tmp / "c.avi"), "output")
    equal((tmp / "c.mp4").read_bytes(), before, "the existing clip")
    expect(duet("decode", latents, "--model", model(), "--output", tmp / "c.mp4", "--overwrite"), 0)
    equal((tmp / "c.mp4").read_bytes(), before, "the same clip again")


@test
def latents_of_an_earlier_run_are_not_replaced(tmp):
    expect(make(model(), tmp / "c.mp4", "--keep-latents"), 0)
    (tmp / "c.mp4").unlink()
    before = (tmp / "c.mp4.latents.safetensors").read_bytes()
    refused(make(model(), tmp / "c.mp4", "--seed", 9), "output")
    equal((tmp / "c.mp4.latents.safetensors").read_bytes(), before, "latents of the earlier run")
    expect(make(model(), tmp / "c.mp4", "--seed", 9, "--overwrite"), 0)


@test
def decode_needs_only_the_decoders(tmp):
    """A model without its transformer's and text encoder's weights still finishes a clip."""
    expect(make(model(), tmp / "c.mp4", "--keep-latents"), 0)
    bare = tmp / "bare"
    shutil.copytree(model(), bare)
    for path in list(bare.rglob("*.safetensors")):
        if path.parent.name in ("transformer", "text_encoder"):
            path.unlink()
    expect(duet("decode", tmp / "c.mp4.latents.safetensors", "--model", bare, "--output", tmp / "d.mp4"), 0)
    equal((tmp / "d.mp4").read_bytes(), (tmp / "c.mp4").read_bytes(), "decoded clip")


@test
def two_runs_of_one_name_replace_nothing(tmp):
    """Started together, so that neither sees the other's file: one makes the clip, the other is refused before any work."""
    clip = tmp / "c.mp4"
    words = [[str(w) for w in (kit.BINARY, "generate", *quick(model(), "--prompt", "a lamp", "--seed", seed, "--output", clip))]
             for seed in (1, 2)]
    runs = [subprocess.Popen(w, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for w in words]
    ends = [(run.communicate(timeout=300)[1].decode(), run.returncode) for run in runs]
    equal(sorted(code == 0 for _, code in ends), [False, True], f"one clip: {ends}")
    for seed, (err, code) in enumerate(ends, 1):
        if code == 0:
            expect(make(model(), tmp / "alone.mp4", "--seed", seed), 0)
            equal((tmp / "alone.mp4").read_bytes(), clip.read_bytes(), "the clip of the run that made it")
        else:
            check("error: output: is being written by process" in err or "error: output: exists" in err,
                  f"the other run does not say why: {err}")
            equal((code, "condition" in err), (2, False), f"exit code and work of the other run: {err}")
