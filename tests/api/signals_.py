"""SIGINT and SIGTERM: the first stops within one step and says what was kept, the second ends at once."""
import signal
import subprocess
import time

import kit
from kit import check, equal, files_under, model, side, test


def start(path, output, *more, points=200):
    edge = side(path, 256)
    words = ["generate", "--model", path, "--width", edge, "--height", edge, "--num-frames", 362, "--any-length",
             "--num-inference-steps", points, "--threads", 1, "--prompt", "a lamp", "--output", output, *more]
    return subprocess.Popen([kit.BINARY, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def wait_for(process, text, seconds=120):
    """Read standard error until a line holds `text`."""
    began, seen = time.monotonic(), b""
    while time.monotonic() - began < seconds:
        line = process.stderr.readline()
        seen += line
        if text.encode() in line:
            return seen.decode()
        check(line or process.poll() is None, f"ended before {text!r}: {seen.decode()}")
    raise AssertionError(f"no {text!r} within {seconds} s: {seen.decode()}")


def finish(process, seconds=120):
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out.decode(), err.decode()


@test
def interrupt_while_denoising(tmp):
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start(model(), tmp / "clip.mp4", "--json")
        wait_for(process, "denoise")
        began = time.monotonic()
        process.send_signal(number)
        code, out, err = finish(process)
        kit.NOTES.append(f"{signal.Signals(number).name} to the end of the process: {time.monotonic() - began:.2f} s")
        equal(code, 130, "exit code")
        check("cancelled" in out and "interrupted" in err, f"out {out!r} err {err!r}")
        equal(files_under(tmp), [], "files left")


@test
def a_second_interrupt_ends_at_once(tmp):
    process = start(model(), tmp / "clip.mp4")
    wait_for(process, "denoise")
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    code, _, _ = finish(process)
    equal(code, 130, "exit code")
    check(not (tmp / "clip.mp4").exists(), "a clip was written")
    kit.NOTES.append(f"second SIGINT to the end of the process: {time.monotonic() - began:.2f} s")


@test
def interrupt_while_decoding_keeps_latents(tmp):
    path = model()
    edge = side(path, 512)
    words = ["generate", "--model", path, "--width", edge, "--height", edge, "--num-frames", 362,
             "--num-inference-steps", 2, "--threads", 1, "--prompt", "a lamp", "--output", tmp / "clip.mp4"]
    process = subprocess.Popen([kit.BINARY, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    wait_for(process, "decode_video", 300)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    equal(code, 130, "exit code")
    latents = tmp / "clip.mp4.latents.safetensors"
    equal(files_under(tmp), [latents.name], "files left")
    check(err.rstrip().splitlines()[-1].endswith(str(latents)), f"the last line does not name the latents: {err!r}")


@test
def an_interrupt_leaves_an_existing_clip_alone(tmp):
    (tmp / "clip.mp4").write_bytes(b"precious")
    process = start(model(), tmp / "clip.mp4", "--overwrite")
    wait_for(process, "denoise")
    process.send_signal(signal.SIGINT)
    equal(finish(process)[0], 130, "exit code")
    equal((tmp / "clip.mp4").read_bytes(), b"precious", "the existing clip")
    equal(files_under(tmp), ["clip.mp4"], "files left")
