"""Same request, same bytes: whatever the layout, the thread count, or who asked before (promise P1)."""
from kit import check, duet, equal, expect, model, quick, test


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
