"""Who may write under a name: two runs at once, runs that were killed, and names that mean the same place."""
import os
import re
import shutil
import signal
import subprocess

import kit
from kit import check, duet, equal, expect, files_under, model, quick, refused, test
from signals_ import finish, start, wait_for


def make(path, output, *more):
    return duet("generate", *quick(path), "--prompt", "a lamp", "--output", output, *more)


def stop(process):
    process.send_signal(signal.SIGINT)
    return finish(process)[0]


def kill(process):
    process.kill()
    process.wait()
    process.stdout.close()
    process.stderr.close()


def nearest(line):
    return re.search(r"nearest: (.*)\)$", line)[1]


@test
def a_name_in_use_is_refused_at_once(tmp):
    clip = tmp / "clip.mp4"
    expect(make(model(), tmp / "done.mp4", "--keep-latents"), 0)
    (tmp / "done.mp4").unlink()
    (tmp / "clip_2.mp4").write_bytes(b"precious")
    (tmp / "way").symlink_to(tmp)
    process = start(model(), clip)
    wait_for(process, "denoise")
    for run in (make(model(), clip), make(model(), clip, "--overwrite"), make(model(), tmp / "way" / "clip.mp4"),
                make(model(), clip, "--json"),
                duet("decode", tmp / "done.mp4.latents.safetensors", "--model", model(), "--output", clip)):
        line = refused(run, "output", "invalid_value")
        check(f"process {process.pid};" in line, f"the process is not named: {run}")
        check(nearest(line).endswith("clip_3.mp4"), f"not the nearest free name: {run}")
        check(run.seconds < 20 and "denoise" not in run.err and "decode" not in run.err, f"work was done: {run}")
    expect(make(model(), nearest(refused(make(model(), clip), "output"))), 0)
    equal(stop(process), 130, "exit code of the first run")
    expect(make(model(), clip), 0)
    equal(files_under(tmp), ["clip.mp4", "clip_2.mp4", "clip_3.mp4", "done.mp4.latents.safetensors", "way"], "files")


@test
def a_folder_in_use_is_refused_at_once(tmp):
    process = start(model(), f"{tmp}/out/", "--num-outputs", 2)
    wait_for(process, "denoise")
    (tmp / "way").symlink_to(tmp / "out")
    for name in ("out/", "way/", "out/output_0/", "way/output_1/"):
        line = refused(make(model(), f"{tmp}/{name}"), "output")
        check(f"process {process.pid};" in line, f"the process is not named: {line}")
        check(nearest(line).endswith("_2/"), f"no free folder: {line}")
        refused(make(model(), f"{tmp}/{name}", "--overwrite"), "output")
    equal(stop(process), 130, "exit code of the first run")
    equal(files_under(tmp), ["way"], "files: the folders of a run that failed go with it")


@test
def a_dump_in_use_is_refused_at_once(tmp):
    process = start(model(), tmp / "a.mp4", "--dump", tmp / "dump")
    wait_for(process, "denoise")
    line = refused(make(model(), tmp / "b.mp4", "--dump", tmp / "dump", "--overwrite"), "dump")
    check(f"process {process.pid};" in line, f"the process is not named: {line}")
    equal(stop(process), 130, "exit code of the first run")
    expect(make(model(), tmp / "b.mp4", "--dump", tmp / "dump", "--overwrite"), 0)


@test
def a_folder_of_a_user_stays_when_the_run_fails(tmp):
    (tmp / "out").mkdir()
    process = start(model(), f"{tmp}/out/")
    wait_for(process, "denoise")
    equal(stop(process), 130, "exit code")
    equal(files_under(tmp), ["out"], "files")


@test
def a_killed_run_blocks_nobody(tmp):
    for output in (tmp / "clip.mp4", f"{tmp}/out/"):
        process = start(model(), output)
        wait_for(process, "denoise")
        kill(process)
        check(any(".duet-run" in f for f in files_under(tmp)), "the kill came too late to test anything")
        expect(make(model(), output), 0)
    left = [f for f in files_under(tmp) if not re.fullmatch(r"out/(frame_\d+\.png|audio\.wav)", f)]
    equal(left, ["clip.mp4", "out"], "files")


@test
def what_a_killed_run_had_finished_is_finished_by_decode(tmp):
    """Killed while the clip is written: its latents stand, its half-written file goes, nothing stands under the name."""
    edge = kit.side(model(), 384)
    for output, latents in [("clip.mp4", "clip.mp4.latents.safetensors"), ("out/", "out/latents.safetensors")]:
        words = ["generate", "--model", model(), "--width", edge, "--height", edge, "--num-frames", 56, "--any-length", "--num-inference-steps", 2,
                 "--threads", 1, "--prompt", "a lamp", "--output", f"{tmp}/{output}"]
        process = subprocess.Popen([kit.BINARY, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        wait_for(process, "decode_video", 300)
        while process.poll() is None and not any(".part-" in f for f in files_under(tmp)):
            pass
        kill(process)
        check(any(".part-" in f for f in files_under(tmp)), "the kill came too late to test anything")
        check(not (tmp / "clip.mp4").exists() and not list(tmp.glob("out/frame*")), "something stands under the name")
        line = refused(make(model(), f"{tmp}/{output}"), "output")
        check("latents of an earlier run" in line, f"the latents are not named: {line}")
        run = duet("decode", tmp / latents, "--model", model(), "--output", f"{tmp}/{output}")
        expect(run, 0)
        check(not any(".part-" in f or ".duet-run" in f for f in files_under(tmp)), f"left behind: {files_under(tmp)}")
        (tmp / latents).unlink()
        for name in files_under(tmp):
            if (tmp / name).is_file():
                (tmp / name).unlink()


@test
def names_that_only_look_like_remains_are_left_alone(tmp):
    process = start(model(), tmp / "clip.mp4")
    wait_for(process, "denoise")
    kill(process)
    kept = ["clip.mp4.part-abc", "clip.mp4.part-a/c0e1", "other.mp4.part-abcdef", "clip.mp4.latents.safetensors.x.tmp", "notes.1.tmp"]
    for name in kept:
        (tmp / name).parent.mkdir(exist_ok=True)
        (tmp / name).write_bytes(b"precious")
    gone = ["clip.mp4.part-Abc123", "clip.mp4.latents.safetensors.4711.tmp"]
    for name in gone:
        (tmp / name).write_bytes(b"half a clip")
    expect(make(model(), tmp / "clip.mp4"), 0)
    equal(sorted(f for f in files_under(tmp) if (tmp / f).is_file()), sorted(["clip.mp4", *kept]), "files")


@test
def a_folder_does_not_take_what_a_clip_in_it_is_writing(tmp):
    process = start(model(), f"{tmp}/out/")
    wait_for(process, "denoise")
    kill(process)
    precious = tmp / "out" / "a.mp4.latents.safetensors.12.tmp"
    precious.write_bytes(b"being written by a run of a.mp4")
    (tmp / "out" / "latents.safetensors.13.tmp").write_bytes(b"left by the killed run")
    refused(make(model(), f"{tmp}/out/"), "output")
    check(precious.exists(), "the latents of another name were removed")
    expect(make(model(), f"{tmp}/out/", "--overwrite"), 0)
    check(precious.exists(), "the latents of another name were removed with --overwrite")
    equal([f for f in files_under(tmp) if f.endswith(".tmp")], ["out/a.mp4.latents.safetensors.12.tmp"], "half-written files")


@test
def two_outputs_of_one_run_are_two_places(tmp):
    (tmp / "out" / "output_1").mkdir(parents=True)
    (tmp / "out" / "output_0").symlink_to("output_1")
    for more in ([], ["--overwrite"]):
        line = refused(make(model(), f"{tmp}/out/", "--num-outputs", 2, *more), "output")
        check("another output of the same run" in line, f"no reason: {line}")
    equal(files_under(tmp), ["out", "out/output_0", "out/output_1"], "files")


@test
def a_linked_output_is_replaced_not_written_through(tmp):
    (tmp / "real.mp4").write_bytes(b"precious")
    (tmp / "link.mp4").symlink_to("real.mp4")
    (tmp / "dangling.mp4").symlink_to("nowhere.mp4")
    for name in ("link.mp4", "dangling.mp4"):
        refused(make(model(), tmp / name), "output")
        expect(make(model(), tmp / name, "--overwrite"), 0)
        check(not (tmp / name).is_symlink() and (tmp / name).read_bytes()[4:8] == b"ftyp", f"{name} is no clip")
    equal((tmp / "real.mp4").read_bytes(), b"precious", "the file that the link named")
    equal(files_under(tmp), ["dangling.mp4", "link.mp4", "real.mp4"], "files")


@test
def decode_never_replaces_what_it_reads_or_what_stands_there(tmp):
    expect(make(model(), f"{tmp}/out/", "--keep-latents"), 0)
    frame = (tmp / "out" / "frame_00000.png").read_bytes()
    os.link(tmp / "out" / "latents.safetensors", tmp / "latents.mp4")
    kept = (tmp / "latents.mp4").read_bytes()
    line = refused(duet("decode", tmp / "latents.mp4", "--model", model(), "--output", tmp / "latents.mp4", "--overwrite"), "output")
    check("the latents themselves" in line, f"no reason: {line}")
    equal((tmp / "latents.mp4").read_bytes(), kept, "the latents")
    refused(duet("decode", tmp / "out" / "latents.safetensors", "--model", model(), "--output", f"{tmp}/out/"), "output")
    for name in (tmp / "out").iterdir():
        if name.name != "latents.safetensors":
            name.unlink()
    expect(duet("decode", tmp / "out" / "latents.safetensors", "--model", model(), "--output", f"{tmp}/out/"), 0)
    equal((tmp / "out" / "frame_00000.png").read_bytes(), frame, "the first frame, decoded again")


@test
def names_are_names_and_not_addresses(tmp):
    """FFmpeg would take what stands before a colon for a protocol: found out after the denoise, or on the network."""
    plain = tmp / "plain.mp4"
    expect(make(model(), plain), 0)
    for name in ("12:30.mp4", "http:a.mp4", "file:a.mp4", "pipe:1.mp4", "concat:a|b.mp4", "a%05d.mp4", "-a.mp4", "a?b#c.mp4"):
        run = expect(duet("generate", *quick(model()), "--prompt", "a lamp", f"--output={name}", cwd=tmp), 0)
        equal(run.out, f"{name}\n", "standard output")
        equal((tmp / name).read_bytes(), plain.read_bytes(), f"the clip named {name}")
        (tmp / name).unlink()
    expect(duet("generate", *quick(model()), "--prompt", "a lamp", "--output", "out:1/", cwd=tmp), 0)
    equal(len(files_under(tmp / "out:1")), 23, "frames and a sound")
    equal([f for f in files_under(tmp) if "/" not in f], ["out:1", "plain.mp4"], "files")


@test
def a_name_that_would_break_the_output_is_refused(tmp):
    for name, near in [("new\nline.mp4", "new_line.mp4"), ("tab\there/", "tab_here/"), ("esc\033[31m.mp4", "esc_[31m.mp4"),
                       ("del\177.mp4", "del_.mp4")]:
        equal(nearest(refused(make(model(), f"{tmp}/{name}", "--json"), "output", "invalid_value")), f"{tmp}/{near}", "nearest")
    latin = os.fsencode(tmp) + b"/caf\xe9.mp4"
    equal(nearest(refused(make(model(), latin, "--json"), "output", "invalid_value")), f"{tmp}/caf_.mp4", "nearest")
    equal(files_under(tmp), [], "files")
    expect(make(model(), latin), 0)
    check(os.path.exists(latin), "a name in Latin-1 was not written as it is")
    equal(expect(make(model(), tmp / "café.mp4", "--json"), 0).json()["outputs"][0]["path"], f"{tmp}/café.mp4", "path")


@test
def a_folder_that_goes_away_is_made_again(tmp):
    """The denoise is finished: what it made is written where it was asked for, whatever became of the folder."""
    for output in ("deep/er/clip.mp4", "deep/er/out/"):
        (tmp / "deep" / "er").mkdir(parents=True)
        process = subprocess.Popen(
            [str(w) for w in (kit.BINARY, "generate", *quick(model()), "--num-inference-steps", 40, "--prompt", "a lamp",
                              "--output", f"{tmp}/{output}")],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for(process, "denoise")
        shutil.rmtree(tmp / "deep")
        code, _, err = finish(process)
        equal(code, 0, f"exit code: {err}")
        check((tmp / output).exists(), f"files: {files_under(tmp)}")
        check(not any(".duet-run" in f or "latents" in f for f in files_under(tmp)), f"left behind: {files_under(tmp)}")
        shutil.rmtree(tmp / "deep")


@test
def a_dump_may_lie_in_the_output_and_the_output_in_the_dump(tmp):
    for output, dump in [("a/", "a/dump/deep"), ("b/", "b"), ("c/out/", "c"), ("d/clip.mp4", "d")]:
        if "/" in output.rstrip("/"):
            (tmp / dump).mkdir()
        expect(make(model(), f"{tmp}/{output}", "--dump", tmp / dump), 0)
        check((tmp / dump / "denoise.safetensors").exists() and (tmp / output).exists(), f"files: {files_under(tmp)}")
    check(not any(".duet-run" in f for f in files_under(tmp)), f"left behind: {files_under(tmp)}")
