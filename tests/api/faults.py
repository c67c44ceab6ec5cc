"""Full disks, unwritable folders, weights that are not finite: a failed run fails loudly and loses nothing (promise P5)."""
import contextlib
import json
import os
import shutil
import signal
import subprocess

from kit import Skip, check, duet, equal, expect, files_under, model, quick, refused, test
from signals_ import finish, start, wait_for


def make(path, output, *more, under=()):
    return duet("generate", *quick(path), "--prompt", "a lamp", "--output", output, *more, under=under)


@contextlib.contextmanager
def small_disk(tmp, kib):
    """A file system of `kib` KiB; a loud skip where this process may not mount one."""
    disk = tmp / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(disk)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
    if not mounted:
        raise Skip("may not mount a small file system here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def last_line(run):
    return run.err.rstrip("\n").splitlines()[-1]


@test
def unwritable_places(tmp):
    for place in ["/proc/clip.mp4", "/sys/clip.mp4", str(tmp / "missing" / "clip.mp4"), "/dev/null/clip.mp4"]:
        run = make(model(), place)
        check("cannot be written" in refused(run, "output"), f"no reason: {run}")
    if os.geteuid() != 0:
        (tmp / "locked").mkdir(mode=0o555)
        refused(make(model(), tmp / "locked" / "clip.mp4"), "output")
    equal(files_under(tmp), [] if os.geteuid() == 0 else ["locked"], "files left")


@test
def a_disk_that_fills_before_the_latents(tmp):
    with small_disk(tmp, 8) as disk:
        run = expect(make(model(), disk / "clip.mp4", "--json"), 1)
        equal(run.json()["error"]["code"], "generation_failed", "code")
        equal(files_under(disk), [], "files on the full disk")


@test
def a_limit_on_the_size_of_files(tmp):
    if not shutil.which("prlimit"):
        raise Skip("no prlimit here")
    run = expect(make(model(), tmp / "clip.mp4", "--json", under=["prlimit", "--fsize=8192"]), 1)
    equal(run.json()["error"]["code"], "generation_failed", "code")
    check("File too large" in run.err, f"no reason: {run}")
    equal(files_under(tmp), [], "files left")


@test
def a_disk_that_fills_while_the_clip_is_written(tmp):
    expect(make(model(), tmp / "whole.mp4", "--keep-latents", "--output-quality", "maximum"), 0)
    latents = (tmp / "whole.mp4.latents.safetensors").stat().st_size
    clip = (tmp / "whole.mp4").stat().st_size
    kib = (latents + 4095) // 4096 * 4 + max(4, clip // 1024 // 2)
    with small_disk(tmp, kib) as disk:
        run = expect(make(model(), disk / "clip.mp4", "--json", "--output-quality", "maximum"), 1)
        equal(files_under(disk), ["clip.mp4.latents.safetensors"], "files on the full disk")
        kept = str(disk / "clip.mp4.latents.safetensors")
        equal(run.json()["latents"], kept, "latents in the JSON error")
        check(last_line(run).endswith(kept), f"the last line does not name the latents: {run}")
        expect(duet("decode", kept, "--model", model(), "--output", tmp / "late.mp4"), 0)
        equal((tmp / "late.mp4").read_bytes(), (tmp / "whole.mp4").read_bytes(), "the clip, finished later")


@test
def a_full_disk_keeps_what_stood_there(tmp):
    with small_disk(tmp, 16) as disk:
        (disk / "clip.mp4").write_bytes(b"precious")
        run = expect(make(model(), disk / "clip.mp4", "--overwrite"), 1)
        check("latents alone need" in run.err, f"found out only after the denoise: {run}")
        equal((disk / "clip.mp4").read_bytes(), b"precious", "the clip that stood there")


def poison(path, part, name_part):
    """Write a NaN into the first value of one tensor of a copied model; returns the tensor's name."""
    for shard in sorted(path.rglob(f"{part}/**/*.safetensors")) + sorted(path.rglob(f"{part}/*.safetensors")):
        data = bytearray(shard.read_bytes())
        size = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + size]).items():
            if name_part not in name:
                continue
            nan = {"BF16": b"\xc0\x7f", "F16": b"\x00\x7e", "F32": b"\x00\x00\xc0\x7f"}[entry["dtype"]]
            at = 8 + size + entry["data_offsets"][0]
            data[at:at + len(nan)] = nan
            shard.write_bytes(bytes(data))
            return name
    raise AssertionError(f"no tensor like {name_part} in {part}")


@test
def weights_that_are_not_finite(tmp):
    for part, tensor, stage in [("transformer", "blocks.0.attn.out_proj.weight", "denoise"),
                                ("text_encoder", "layers.0.mlp.down_proj.weight", "condition")]:
        copy = tmp / part
        shutil.copytree(model(), copy)
        poison(copy, part, tensor)
        run = expect(make(copy, tmp / "clip.mp4", "--json"), 1)
        message = run.json()["error"]["message"]
        check(stage in message and "not finite" in message, f"stage or reason missing: {message}")
        if stage == "denoise":
            check("evaluation 1" in message, f"the evaluation is not named: {message}")
        check(not (tmp / "clip.mp4").exists(), "a clip was written")
        run = duet("info", copy, "--verify")
        expect(run, 3)
        check(tensor.split(".")[-2] in run.err, f"the tensor is not named: {run}")


@test
def a_decoder_that_is_not_finite_keeps_the_latents(tmp):
    for part, tensor, stage in [("video_vae", "proj_out.weight", "decode_video"), ("audio_vae", "decoder.conv_post", "decode_audio")]:
        copy, clip = tmp / part, tmp / f"{part}.mp4"
        shutil.copytree(model(), copy)
        poison(copy, part, tensor)
        run = expect(make(copy, clip), 1)
        check(f"error: {stage}: " in run.err and "not finite" in run.err, f"stage or reason missing: {run}")
        equal([f for f in files_under(tmp) if f.startswith(clip.name)], [f"{clip.name}.latents.safetensors"], "files")
        check(last_line(run).endswith(f"{clip.name}.latents.safetensors"), f"the last line does not name the latents: {run}")


@test
def a_bus_error_that_somebody_sent_ends_the_process(tmp):
    process = start(model(), tmp / "clip.mp4")
    wait_for(process, "denoise")
    process.send_signal(signal.SIGBUS)
    equal(finish(process)[0], -signal.SIGBUS, "exit code")
    check(not (tmp / "clip.mp4").exists(), "a clip was written")


@test
def a_weight_file_that_is_cut_while_it_is_used_is_named(tmp):
    copy = tmp / "model"
    shutil.copytree(model(), copy)
    shards = sorted((copy / "FL2VA" / "transformer").glob("*.safetensors"))
    process = start(copy, tmp / "clip.mp4", "--json")
    wait_for(process, "denoise")
    for shard in shards:
        os.truncate(shard, 0)
    code, out, err = finish(process)
    equal(code, 3, f"exit code: {err}")
    line = err.rstrip("\n").splitlines()[-1]
    check(line.startswith("error: ") and any(f"{s}: was cut" in line for s in shards), f"the file is not named: {err}")
    error = json.loads(out)["error"]
    equal((error["type"], error["code"]), ("server_error", "model_invalid"), "type and code")
    check("was cut" in error["message"], f"message: {error}")
    check(not (tmp / "clip.mp4").exists(), "a clip was written")
    expect(make(model(), tmp / "clip.mp4"), 0)
    equal([f for f in files_under(tmp) if not f.startswith("model")], ["clip.mp4"], "files after the next run of the name")


@test
def a_decoder_file_that_is_cut_while_it_is_used_leaves_latents_that_are_named(tmp):
    copy = tmp / "model"
    shutil.copytree(model(), copy)
    shards = sorted((copy / "FL2VA" / "video_vae").rglob("*.safetensors"))
    clip = tmp / "a \u00e9\"clip.mp4"
    process = start(copy, clip, "--json", points=6)
    latents = tmp / f"{clip.name}.latents.safetensors"
    wait_for(process, "denoise")
    for shard in shards:
        os.truncate(shard, 0)
    code, out, err = finish(process)
    equal(code, 3, f"exit code: {err}")
    check(latents.exists() and not clip.exists(), f"latents or clip: {files_under(tmp)}")
    equal(err.rstrip("\n").splitlines()[-1], f"latents kept, finish with duet decode: {latents}", "last line")
    equal(json.loads(out)["latents"], str(latents), "latents in the JSON")
    expect(duet("decode", latents, "--model", model(), "--output", clip), 0)
    check(clip.exists(), "the clip was not finished")
