"""Order of checks: usage, request, files, model, rules of the model, weights; and the exit code of each."""
import os
import pathlib
import shutil

from kit import check, duet, equal, expect, files_under, model, refused, test

NOWHERE = "/nonexistent/model"


def a_shard(path):
    """The transformer's first weight file."""
    return sorted(pathlib.Path(path).rglob("transformer/*.safetensors"))[0]


def damaged(tmp):
    copy = tmp / "damaged"
    shutil.copytree(model(), copy, symlinks=True)
    shard = a_shard(copy)
    if shard.is_symlink():
        target = shard.resolve()
        shard.unlink()
        shutil.copyfile(target, shard)
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    return copy


@test
def usage_before_request(tmp):
    refused(duet("generate", "--model", NOWHERE, "--num-frames", "95", "--bogus"), "--bogus")
    refused(duet("generate", "--num-frames", "95", "--prompt", "x", "--output", tmp / "a.mp4"), "model")


@test
def request_before_files_and_model(tmp):
    (tmp / "a.mp4").write_bytes(b"old")
    refused(duet("generate", "--model", NOWHERE, "--prompt", "x", "--num-frames", "95", "--output", tmp / "a.mp4"), "num_frames")


@test
def files_before_model(tmp):
    (tmp / "a.mp4").write_bytes(b"old")
    refused(duet("generate", "--model", NOWHERE, "--prompt", "x", "--output", tmp / "a.mp4"), "output")
    refused(duet("generate", "--model", NOWHERE, "--prompt", "x", "--output", tmp / "no" / "a.mp4", "--json"), "output",
            "invalid_value")
    equal((tmp / "a.mp4").read_bytes(), b"old", "the existing file")


@test
def model_before_its_rules(tmp):
    run = duet("generate", "--model", NOWHERE, "--prompt", "x", "--width", "517", "--height", "512", "--output", tmp / "a.mp4")
    check(NOWHERE in refused(run, exit_code=3), f"the model is not named: {run}")
    refused(duet("generate", "--model", NOWHERE, "--prompt", "x", "--output", tmp / "a.mp4", "--json"), code="model_invalid",
            exit_code=3)
    copy = damaged(tmp)
    run = duet("generate", "--model", copy, "--prompt", "x", "--width", "517", "--height", "512", "--output", tmp / "a.mp4")
    check(a_shard(copy).name in refused(run, exit_code=3), f"the damaged file is not named: {run}")
    equal([f for f in files_under(tmp) if not f.startswith("damaged")], [], "files left")


@test
def a_damaged_tokenizer_is_named(tmp):
    """Cut at a line, merges.txt still reads: it would only spell the prompt in other tokens."""
    for file, cut in [("merges.txt", lambda text: text[:text.index(b"\n", len(text) // 2) + 1]), ("merges.txt", lambda text: b""),
                      ("vocab.json", lambda text: b""), ("tokenizer_config.json", lambda text: b"")]:
        copy = tmp / "model"
        shutil.copytree(model(), copy)
        path = next(pathlib.Path(copy).rglob(f"tokenizer/{file}"))
        path.write_bytes(cut(path.read_bytes()))
        run = duet("generate", "--model", copy, "--prompt", "x", "--output", tmp / "a.mp4")
        check(str(path.parent) in refused(run, exit_code=3) and file in run.err, f"the file is not named: {run}")
        shutil.rmtree(copy)


@test
def model_rules_before_weights(tmp):
    run = duet("generate", "--model", model(), "--prompt", "x", "--width", "517", "--height", "512", "--output", tmp / "a.mp4")
    refused(run, "width")


@test
def spellings_of_the_model(tmp):
    for words in (["--model", model()], ["--model-path", model()], [model()], ["--model", f"{model()}/"]):
        expect(duet("plan", *words, "--prompt", "x"), 0)


@test
def info_of_a_model(tmp):
    got = expect(duet("info", model(2), "--json"), 0).json()
    equal(got["layout"], "native", "layout")
    equal(got["tasks"][0], "t2va", "tasks")
    other = expect(duet("info", model(2, "diffusers"), "--json"), 0).json()
    equal(other["layout"], "diffusers", "layout")
    equal(other["model_hash"], got["model_hash"], "model hash of two layouts")
    check(got["model_hash"] != expect(duet("info", model(0), "--json"), 0).json()["model_hash"], "equal hashes of two models")
    equal(got["verified"], False, "verified without --verify")


@test
def info_verifies(tmp):
    a = expect(duet("info", model(2), "--verify", "--json"), 0).json()["components"]
    b = expect(duet("info", model(2, "diffusers"), "--verify", "--json"), 0).json()["components"]
    for name in ("transformer", "text_encoder", "video_vae", "audio_vae"):
        equal(a[name]["sha256"], b[name]["sha256"], f"SHA-256 of {name} in two layouts")
        equal(a[name]["nonfinite_values"], 0, f"non-finite values of {name}")
        check(a[name]["tensors"] > 0 and a[name]["bytes"] > 0, f"nothing was read of {name}")
    check("sha256" in expect(duet("info", model(2), "--verify"), 0).out, "no SHA-256 for people")


@test
def inputs_that_are_no_files_are_named_and_not_waited_for(tmp):
    os.mkfifo(tmp / "pipe")
    (tmp / "folder").mkdir()
    for name, what in [("pipe", "a FIFO"), ("folder", "a folder")]:
        run = duet("generate", "--model", model(), "--prompt", "x", "--output", tmp / "a.mp4", "--init-noise", tmp / name, timeout=20)
        check(f"is {what}, not a file" in refused(run, "init_noise"), f"not named: {run}")
        run = duet("decode", tmp / name, "--model", model(), "--output", tmp / "a.mp4", timeout=20)
        check(f"is {what}, not a file" in refused(run, "latents"), f"not named: {run}")
    run = duet("generate", "--model", model(), "--prompt", "x", "--output", tmp / "a.mp4", "--dump", tmp / "pipe", timeout=20)
    check("is a FIFO, not a folder" in refused(run, "dump"), f"not named: {run}")


@test
def weights_that_are_no_files_are_named_and_not_waited_for(tmp):
    copy = damaged(tmp)
    shard = a_shard(copy)
    shard.unlink()
    os.mkfifo(shard)
    run = duet("generate", "--model", copy, "--prompt", "x", "--output", tmp / "a.mp4", timeout=20)
    check(f"{shard.name}: is a FIFO" in refused(run, exit_code=3), f"not named: {run}")
