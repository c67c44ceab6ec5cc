"""Same request, same bytes: whatever the layout, the thread count, or who asked before (promise P1)."""
import os

from kit import check, duet, equal, expect, model, quick, refused, side, test


def clip(path, output, *more):
    expect(duet("generate", *quick(path), "--prompt", "two boats at dusk", "--seed", 5, "--output", output, *more), 0)
    return output.read_bytes()


@test
def threads_and_repetition_do_not_matter(tmp):
    for seed in range(3):
        path = model(seed)
        first = clip(path, tmp / f"{seed}.mp4")
        equal(clip(path, tmp / f"{seed}-again.mp4"), first, "the same request twice")
        for threads in (1, 2, 3):
            got = clip(path, tmp / f"{seed}-{threads}.mp4", "--threads", threads)
            check(got == first, f"model {seed}: {threads} threads give other bytes")


@test
def layouts_do_not_matter(tmp):
    for seed in range(3):
        native, other = clip(model(seed), tmp / f"n{seed}.mp4"), clip(model(seed, "diffusers"), tmp / f"d{seed}.mp4")
        check(native == other, f"model {seed}: the layouts give other bytes")


@test
def noise_streams_differ_in_sound_only_at_first(tmp):
    a, b = clip(model(), tmp / "a.mp4"), clip(model(), tmp / "b.mp4", "--noise", "diffusers")
    check(a != b, "both noise streams give the same clip")


@test
def compression_changes_the_file(tmp):
    small, large = (clip(model(), tmp / f"{q}.mp4", "--output-quality", q) for q in ("low", "maximum"))
    check(len(small) < len(large), "low is not smaller than maximum")


@test
def injected_noise_gives_the_clip_that_drew_it(tmp):
    path = model(1)
    drawn = clip(path, tmp / "drawn.mp4", "--dump", tmp / "dump")
    holders = [f for f in (tmp / "dump").iterdir() if b'"video_noise"' in f.read_bytes()[:1 << 20]]
    equal(len(holders), 1, "dump files that hold video_noise")
    check(clip(path, tmp / "given.mp4", "--init-noise", holders[0]) == drawn, "injected noise gives another clip")
    edge = 2 * side(path)
    run = duet("generate", *quick(path), "--width", edge, "--prompt", "x", "--init-noise", holders[0], "--output", tmp / "b.mp4")
    check(run.code == 2 and "noise" in run.err, f"noise of another canvas: {run}")
    (tmp / "bad.safetensors").write_bytes(holders[0].read_bytes()[:-1])
    run = duet("generate", *quick(path), "--prompt", "x", "--init-noise", tmp / "bad.safetensors", "--output", tmp / "b.mp4")
    check(run.code == 2 and "bad.safetensors" in run.err, f"damaged noise: {run}")
    refused(duet("generate", *quick(path), "--prompt", "x", "--init-noise", tmp / "no", "--output", tmp / "b.mp4"), "init_noise")
    check(not (tmp / "b.mp4").exists(), "a clip was written")


@test
def the_wall_changes_nothing(tmp):
    """Reference kernels behind a wall (device addresses that fault, two queues) give the bytes of the plain ones."""
    for seed in (0, 2):
        plain, walled = (clip(model(seed), tmp / f"{b}{seed}.mp4", "--backend", b) for b in ("ref", "walled"))
        check(plain == walled, f"model {seed}: the walled device gives other bytes")


@test
def instruction_levels_can_be_pinned(tmp):
    flags = open("/proc/cpuinfo").read() if os.path.exists("/proc/cpuinfo") else ""
    for level, needs in [("scalar", ""), ("avx2", " avx2 "), ("avx512", " avx512bw ")]:
        run = duet("generate", *quick(model()), "--prompt", "x", "--cpu-level", level, "--output", tmp / f"{level}.mp4", "--json")
        if needs and needs not in flags:
            refused(run, exit_code=2)
        else:
            check(level in expect(run, 0).json()["device"], f"another level than {level}: {run}")
