#!/usr/bin/env python3
"""The evaluator of toy clips is itself measured (tools/tiny/evaluate.py).

 1. Ground truth scores full marks, whatever the scene.
 2. A clip with one attribute changed loses that attribute and no other.
 3. Black and noise score near chance.
 4. A clip that went through a video file, or lies in a folder of PNG frames and a WAV, measures as it does
    in memory.
 5. Roles of references are counted right (`judge.py`), and what the tables ask for stays.
 6. A prompt in other words is measured by what it names; one that names nothing, and a file that cannot be
    read, end in one line.

Clips are rendered by `world.py` with NumPy; needs python3-numpy and ffmpeg. Prints "N passed, N failed, N
skipped".
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "tiny"))

import tally  # noqa: E402
from tally import check  # noqa: E402

try:
    import numpy as np
except ImportError:
    tally.skip("evaluate_test", "python3-numpy is not installed")
    sys.exit(tally.finish())

import evaluate  # noqa: E402
import grammar  # noqa: E402
import judge  # noqa: E402
import tasks  # noqa: E402
import world  # noqa: E402

FRAMES = 107


def lone(seed: int, **fixed: int) -> world.Scenes:
    """A scene of one object with some attributes fixed; its timbre is that of its shape."""
    scene = world.sample_scenes(1, seed, pair_share=0.0, split="all")
    for name, value in fixed.items():
        target = getattr(scene, name)
        target[..., 0] = value
    scene.timbre[:] = scene.shape
    return scene


def clip(scene: world.Scenes, heard: world.Scenes | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Frames and sound; `heard` may be another scene than is seen."""
    frames = world.paint(world.Tracks(world.Backend(), scene, FRAMES))
    return frames, world.synthesise(world.Tracks(world.Backend(), heard or scene, FRAMES))[0]


def wanted(scene: world.Scenes, seed: int = 0) -> tuple[str, dict]:
    """A prompt for the scene and what it asks for."""
    prompt = grammar.describe(np.random.default_rng(seed), scene)
    return prompt, evaluate.expectation(prompt)


def test_truth() -> None:
    """Every motion once, and pairs."""
    scenes = [lone(100 + m, motion=m) for m in range(9)]
    pairs = world.sample_scenes(4, 5, pair_share=1.0, split="all")
    scenes += [pairs.take(slice(i, i + 1)) for i in range(len(pairs))]
    results = []
    for i, scene in enumerate(scenes):
        prompt, want = wanted(scene, i)
        figures = evaluate.measure(*clip(scene), want)
        results.append(figures)
        wrong = [k for k in evaluate.SHARES if figures.get(k) is not None and figures[k] < 1]
        check(not wrong, f"truth {i} ({prompt}): {wrong}")
        check(figures["stray_ticks"] == 0, f"truth {i} ({prompt}): stray ticks")
        if figures["stereo_correlation"] is not None:
            check(figures["stereo_correlation"] > 0.98, f"truth {i}: stereo {figures['stereo_correlation']}")
        if figures["bounces"]:
            check(figures["tick_error_ms"] < 10, f"truth {i}: ticks {figures['tick_error_ms']} ms")
    summary = evaluate.summarise(results)
    check(summary["pitch_error_semitones"] < 0.05, f"truth: pitch error {summary['pitch_error_semitones']}")
    check(
        "tick_offset_frames" in summary and "stereo_correlation" in summary,
        "truth: no ticks or no stereo seen",
    )


def test_orbits() -> None:
    """The world's orbits begin at the top and go clockwise; measured alike are those that begin elsewhere or go the other way."""
    scenes = world.sample_scenes(20, 61, pair_share=0.5, split="all")
    scenes.motion[:] = world.ORBIT
    quarters = np.arange(4, dtype=np.float32) * world.ORBIT_SECONDS / 4
    x, y = world.Tracks(world.Backend(), scenes, FRAMES).position(quarters)
    right, down = x - x.mean(2, keepdims=True), y - y.mean(2, keepdims=True)
    radius = right[..., 1, None]
    check(bool((radius > 1).all()), "orbits: no circle")
    check(np.allclose(right, radius * [0, 1, 0, -1], atol=0.01), f"orbits: x is {right[0]}")
    check(np.allclose(down, radius * [-1, 0, 1, 0], atol=0.01), f"orbits: y is {down[0]}")
    scene = lone(61, motion=world.ORBIT, size=1)
    frames, sound = clip(scene)
    _, want = wanted(scene)
    for name, seen, heard in (
        ("backwards", frames[::-1], sound[:, ::-1]),
        ("later", frames[48:], sound[:, 2 * world.SAMPLE_RATE :]),
    ):
        figures = evaluate.measure(np.ascontiguousarray(seen), np.ascontiguousarray(heard), want)
        check(figures["motion"] == 1, f"orbits: {name} is not measured as an orbit")


def test_one_changed() -> None:
    """The prompt asks for `scene`; the clip shows or sounds something else in one respect."""
    base = dict(shape=1, colour=0, size=0, motion=world.BOUNCE, background=3)
    scene = lone(7, **base)
    _, want = wanted(scene)
    changes = {"colour": dict(colour=4), "background": dict(background=4), "motion": dict(motion=world.UP)}
    for name, change in changes.items():
        other = lone(7, **{**base, **change})
        lost(name, evaluate.measure(*clip(other), want))
    shape = lone(7, **{**base, "shape": 3})
    shape.timbre[:] = 1
    lost("shape", evaluate.measure(*clip(shape), want))
    small = lone(7, **{**base, "motion": world.STILL})
    lost(
        "pitch",
        evaluate.measure(
            *clip(small, lone(7, **{**base, "motion": world.STILL, "size": 1})), wanted(small)[1]
        ),
    )
    voice = lone(7, **base)
    voice.timbre[:] = 2
    lost("timbre", evaluate.measure(*clip(scene, voice), want))
    frames, sound = clip(scene)
    plain = evaluate.measure(frames, sound, want)
    mirrored = evaluate.measure(frames, sound[::-1], want)
    check(plain["stereo_correlation"] > 0.98 and mirrored["stereo_correlation"] < -0.98, "mirrored channels")
    lost(None, mirrored)
    late = np.concatenate([np.zeros((2, 4000), np.float32), sound[:, :-4000]], 1)
    check(2.0 < evaluate.measure(frames, late, want)["tick_offset_frames"] < 4.0, "sound three frames late")
    two = world.sample_scenes(1, 3, pair_share=1.0, split="all")
    one = two.take(slice(0, 1))
    one.count = np.array([1])
    figures = evaluate.measure(clip(two)[0], sound, wanted(one)[1])
    check(
        figures["count"] == 0 and figures["colour"] == 1 and figures["shape"] == 1,
        f"a second object: {figures}",
    )


def lost(name: str | None, figures: dict) -> None:
    """Checks that exactly the share `name` is lost."""
    for key in evaluate.SHARES:
        good = figures[key] == 0 if key == name else figures[key] == 1
        check(good, f"changed {name}: {key} is {figures[key]}")


def test_nothing() -> None:
    """Black and noise must not look like an answer."""
    rng, results = np.random.default_rng(1), []
    black = np.zeros((60, 256, 256, 3), np.uint8)
    noise = rng.integers(0, 256, (60, 256, 256, 3), dtype=np.uint8)
    for i in range(6):
        scene = world.sample_scenes(1, 50 + i, split="all")
        want = wanted(scene, i)[1]
        results.append(evaluate.measure(black, np.zeros((2, 80000), np.float32), want))
        results.append(evaluate.measure(noise, rng.normal(0, 0.1, (2, 80000)).astype(np.float32), want))
    summary = evaluate.summarise(results)
    for key, chance in {
        "colour": 1 / 8,
        "shape": 1 / 4,
        "background": 1 / 6,
        "motion": 1 / 9,
        "pitch": 0.2,
        "timbre": 1 / 4,
    }.items():
        check(summary[key] <= chance + 0.15, f"nothing: {key} {summary[key]}")


def write_wav(path: pathlib.Path, sound: np.ndarray) -> None:
    """32 kHz stereo, 16 bits."""
    import wave

    with wave.open(str(path), "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(world.SAMPLE_RATE)
        out.writeframes((np.clip(sound.T, -1, 1) * 32767).astype("<i2").tobytes())


def test_files(folder: pathlib.Path) -> None:
    """A video file and a folder of pictures, through the command line, with a keyframe."""
    scene = lone(21, motion=world.RIGHT, size=1)
    prompt, _ = wanted(scene)
    frames, sound = clip(scene)
    write_wav(folder / "a.wav", sound)
    still = folder / "first.ppm"
    still.write_bytes(b"P6 256 256 255\n" + frames[0].tobytes())
    raw = [
        "ffmpeg",
        "-v",
        "error",
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-s",
        "256x256",
        "-r",
        "24",
        "-i",
        "-",
    ]
    subprocess.run(
        [
            *raw,
            "-i",
            str(folder / "a.wav"),
            "-pix_fmt",
            "yuv420p",
            "-c:a",
            "aac",
            "-y",
            str(folder / "a.mp4"),
        ],
        input=frames.tobytes(),
        check=True,
    )
    pictures = folder / "pictures"
    pictures.mkdir()
    shutil.copy(folder / "a.wav", pictures)
    subprocess.run([*raw, "-y", str(pictures / "%04d.png")], input=frames.tobytes(), check=True)
    for path in (folder / "a.mp4", pictures):
        figures = evaluate.measure_entry({"file": str(path), "prompt": prompt, "first": str(still)})
        wrong = [k for k in evaluate.SHARES if figures[k] != 1]
        check(not wrong, f"{path.name}: {wrong}")
        check(figures["keyframe_first_psnr_db"] > 28, f"{path.name}: {figures['keyframe_first_psnr_db']} dB")
    run = command_line(folder / "a.mp4", prompt)
    check(run.returncode == 0 and "colour" in run.stdout, f"command line: {run.stderr}")
    test_refusals(folder)
    test_references(folder, scene, frames)


def command_line(clip: pathlib.Path, prompt: str, *more: str) -> subprocess.CompletedProcess:
    """The evaluator as a program."""
    command = [sys.executable, str(ROOT / "tools/tiny/evaluate.py"), str(clip), "--prompt", prompt, *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_refusals(folder: pathlib.Path) -> None:
    """One line each, no table."""
    missing = "Like the shape in <Picture 2>, a thing grows over navy"
    whole = (folder / "a.mp4").read_bytes()
    # Its index first, then the rest cut off: what is left could pass for a shorter clip.
    front = ["ffmpeg", "-v", "error", "-i", str(folder / "a.mp4"), "-c", "copy", "-movflags", "+faststart"]
    subprocess.run([*front, str(folder / "cut.mp4")], check=True)
    (folder / "cut.mp4").write_bytes((folder / "cut.mp4").read_bytes()[: len(whole) // 2])
    (folder / "empty.mp4").write_bytes(b"")
    # A sound that is there and cannot be read is not silence; none at all is.
    shutil.copytree(folder / "pictures", folder / "hissing")
    (folder / "hissing" / "a.wav").write_bytes(whole[:999])
    silent = [
        "ffmpeg",
        "-v",
        "error",
        "-i",
        str(folder / "a.mp4"),
        "-c",
        "copy",
        "-an",
        str(folder / "silent.mp4"),
    ]
    subprocess.run(silent, check=True)
    check(evaluate.read_sound(folder / "silent.mp4").shape == (2, 0), "a clip without sound")
    run = command_line(folder / "a.mp4", "A red circle", "--json", str(folder / "none" / "x.json"))
    check(run.returncode == 1 and run.stdout == "" and "--json" in run.stderr, f"no folder: {run.stderr}")
    (folder / "small.ppm").write_bytes(b"P6 4 2 255\n" + bytes(24))
    run = command_line(folder / "a.mp4", "A red circle", "--first", str(folder / "small.ppm"))
    check("first frame is 4x2, the clip is 256x256" in run.stderr, f"a small picture: {run.stderr}")
    for name, prompt, said in (
        ("a.mp4", "A lighthouse in a storm", "names no shape"),
        ("a.mp4", "", "names no shape"),
        ("a.mp4", missing, "picture 2, which is not given"),
        ("nothing.mp4", "A red circle", "nothing.mp4"),
        ("first.ppm.txt", "A red circle", "first.ppm.txt"),
        ("cut.mp4", "A red circle", "cannot be read whole"),
        ("empty.mp4", "A red circle", "cannot be read whole"),
        ("hissing", "A red circle", "cannot be read whole"),
    ):
        run = command_line(folder / name, prompt)
        check(run.returncode == 1 and said in run.stderr, f"refusal of {prompt!r}: {run.stderr}")
        check(run.stdout == "" and len(run.stderr.splitlines()) == 1, f"lines for {prompt!r}: {run.stderr}")


def test_changing_size() -> None:
    """What grows has no size: one that the prompt names is not judged."""
    frames, sound = clip(lone(21, motion=world.GROW, shape=3, colour=2, background=4))
    figures = evaluate.measure(frames, sound, evaluate.expectation("A large yellow star grows over sand"))
    wrong = [k for k in evaluate.SHARES if figures[k] != 1]
    check(not wrong, f"changing size: {wrong}")


def test_own_words() -> None:
    """Only what a prompt names is measured, and it is measured as ever."""
    frames, sound = clip(lone(21, motion=world.RIGHT, size=1, shape=3, colour=2, background=4))
    for prompt, named in (
        ("A yellow star over sand", {"colour", "shape", "background", "timbre"}),
        ("Something slides to the right", {"motion"}),
        ("Evening over sand", {"background"}),
    ):
        figures = evaluate.measure(frames, sound, evaluate.expectation(prompt))
        got = {k for k in ("colour", "shape", "background", "motion", "timbre") if figures.get(k) is not None}
        check(got == named, f"{prompt!r}: measures {sorted(got)}")
        check(all(figures[k] == 1 for k in named), f"{prompt!r}: {figures}")
        check(evaluate.table(evaluate.summarise([figures])) != "", f"{prompt!r}: table")
    two = world.sample_scenes(1, 5, pair_share=1.0, split="all")
    tracks = world.Tracks(world.Backend(), two, FRAMES)
    figures = evaluate.measure(
        world.paint(tracks), world.synthesise(tracks)[0], evaluate.expectation("on a white background")
    )
    check(figures.get("background") is not None, "a prompt without objects: no background")


def test_coming_and_going() -> None:
    """A clip without its object for a third of the time has not the right count; for a few frames it has."""
    scene = lone(23, motion=world.STILL, size=1)
    frames, sound = clip(scene)
    top, bottom = world.BACKGROUND_RGB[scene.background[0]]
    ramp = ((np.arange(world.CANVAS) + 0.5) / world.CANVAS)[:, None, None]
    plain = np.broadcast_to(np.round(255 * (top + (bottom - top) * ramp)), frames.shape[1:]).astype(np.uint8)
    for away, right in ((5, 1), (FRAMES // 3, 0)):
        shown = frames.copy()
        shown[:away] = plain
        count = evaluate.measure(shown, sound, wanted(scene)[1])["count"]
        check(count == right, f"{away} of {FRAMES} frames empty: count {count}")


def test_manifests() -> None:
    """What is no manifest is refused with the entry named."""
    good = {"file": "a.mp4", "prompt": "A red ball rises."}
    bad = ("{}", "[]", "x", "[1]", '[{"file": "a.mp4"}]', '[{"file": 1, "prompt": "x"}]')
    bad += (json.dumps([good, {**good, "references": [{"kind": "image"}]}]),)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "m.json"
        path.write_text(json.dumps([good]))
        check(evaluate.read_manifest(path) == [good], "manifest: a good one is refused")
        for text in bad:
            path.write_text(text)
            try:
                evaluate.read_manifest(path)
                check(False, f"manifest: {text} is taken")
            except ValueError:
                check(True, "")
    for number in (0, 2):
        try:
            evaluate.expectation(f"The shape in <Picture {number}> rises over navy.", [])
            check(False, f"picture {number} is taken")
        except ValueError:
            check(True, "")


def test_references(folder: pathlib.Path, scene: world.Scenes, frames: np.ndarray) -> None:
    """Looks, timbre and motion that a prompt leaves to references are measured on them."""
    one = dict(pictures={0: 1}, videos={0: 1}, audios={0: 1})
    prompt = grammar.describe(np.random.default_rng(1), scene, **one)
    references = [
        {"kind": "video", "file": str(folder / "a.mp4")},
        {"kind": "image", "file": str(folder / "first.ppm")},
        {"kind": "audio", "file": str(folder / "a.wav")},
    ]
    thing = evaluate.expectation(prompt, references)["objects"][0]
    for name in ("shape", "colour", "motion", "timbre"):
        check(thing[name] == getattr(scene, name)[0, 0], f"reference: {name} is {thing[name]}")


def test_grammar() -> None:
    """Every prompt says what its scene is."""
    rng = np.random.default_rng(3)
    scenes = world.sample_scenes(500, 4, split="all")
    wrong = 0
    for i in range(len(scenes)):
        scene = scenes.take(slice(i, i + 1))
        said = grammar.parse(grammar.describe(rng, scene))
        good = said["background"] == scene.background[0] and len(said["objects"]) == scene.count[0]
        for k, thing in enumerate(said["objects"]):
            changing = scene.motion[0, k] in (world.GROW, world.SHRINK)
            good &= all(thing[n] == getattr(scene, n)[0, k] for n in ("shape", "colour", "motion"))
            good &= thing["size"] == (None if changing else scene.size[0, k])
        wrong += not good
    check(wrong == 0, f"grammar: {wrong} of {len(scenes)} prompts misread")
    told = [grammar.describe(rng, scenes.take([i])) for i in range(20)]
    check(
        not any(grammar.unread(p) for p in told), "grammar: something of its own prompts is said to be unread"
    )
    both = "A large purple square moves left and a small yellow circle falls on a grey background"
    things = [(t["shape"], t["colour"], t["motion"]) for t in grammar.parse(both)["objects"]]
    check(things == [(1, 6, world.LEFT), (0, 2, world.DOWN)], f"grammar: {both!r} is read as {things}")
    check(not grammar.unread(both), f"grammar: {grammar.unread(both)} of {both!r}")
    for prompt, want in (
        ("A red circle explodes on a navy background", ["no motion"]),
        ("A red circle with a blue star rises over sand", ["2 shapes", "2 colours"]),
        ("A nice circle rises", ["no backdrop", "no colour"]),
        ("A large red circle grows on a navy background", ["the size"]),
    ):
        notes = grammar.unread(prompt)
        good = len(notes) == len(want) and all(n.startswith(w) for n, w in zip(notes, want))
        check(good, f"grammar: of {prompt!r} it says {notes}")


def test_split() -> None:
    """Training never shows a held-out combination, and shows every value."""
    train, test = world.sample_scenes(3000, 1, split="train"), world.sample_scenes(500, 1, split="test")
    check(not world.scene_held_out(train).any(), "split: training shows a held-out combination")
    check(bool(world.scene_held_out(test).all()), "split: a test scene is not held out")
    for name, count in (("shape", 4), ("colour", 8), ("motion", 9)):
        check(len(np.unique(getattr(train, name)[:, 0])) == count, f"split: training misses a {name}")


def test_places() -> None:
    """Of two objects the one named first is on the left, or on top if one of them moves sideways."""
    scenes = world.sample_scenes(300, 5, pair_share=1.0, split="all")
    tracks = world.Tracks(world.Backend(), scenes, FRAMES)
    x, y = tracks.position(np.linspace(0, FRAMES / 24, 9, dtype=np.float32))
    sideways = np.isin(scenes.motion, (world.RIGHT, world.LEFT, world.BOUNCE)).any(1)
    check(0.2 < sideways.mean() < 0.8, "places: both arrangements occur")
    check(bool((y[sideways, 0] < y[sideways, 1]).all()), "places: the first is not always on top")
    check(bool((x[~sideways, 0] < x[~sideways, 1]).all()), "places: the first is not always on the left")


def test_roles() -> None:
    """Exchanged pictures ask for exchanged looks; the truth fills its roles, the exchanged truth none."""
    straight, crossed = (judge.asked(3, 3, "ref2va", swap) for swap in (False, True))
    check(len(straight) == len(crossed) == 3, "roles: the number of requests asked for")
    clips, wrong = [], []
    for request in crossed:
        check(
            [r.kind for r in request.references] == ["image", "image"], "roles: a swap without two pictures"
        )
        other = judge.swapped(request)
        check(other.prompt == request.prompt, "roles: a swap changes the words")
        for which, out in ((request, clips), (other, wrong)):
            tracks = world.Tracks(world.Backend(), which.scene, FRAMES)
            out.append(judge.judge(request, world.paint(tracks), world.synthesise(tracks)[0]))
    right = judge.roles(clips)
    full = {"identity_from_picture": 1.0, "roles_of_two_pictures": 1.0}
    check(right == full, f"roles: the truth gives {right}")
    lost = judge.roles(wrong)
    check(lost["roles_of_two_pictures"] == 0.0, f"roles: exchanged looks give {lost}")


def test_looks() -> None:
    """Looks are counted by the size asked for: an object counts if its colour and its shape are right."""
    clips = []
    for size, colour, shape in ((0, 1, 1), (0, 0, 1), (0, 1, 0), (1, 1, 1), (None, 0, 0)):
        clips.append(
            {"wanted": {"objects": [{"size": size}]}, "objects": [{"colour": colour, "shape": shape}]}
        )
    found = judge.looks(clips)
    check(found == {"looks_of_small": 0.3333, "looks_of_medium": 1.0}, f"looks: {found}")


def test_tables() -> None:
    """The prompts of the tables on the card stay those that they were made of."""
    for task, swap, want in (
        ("t2va", False, "3f743967604d"),
        ("fl2va", False, "68383b3ab0e1"),
        ("ref2va", False, "400ffddafc77"),
        ("ref2va", True, "b6ea606249f6"),
    ):
        prompts = "\n".join(r.prompt for r in judge.asked(1, 200, task, swap))
        found = hashlib.sha256(prompts.encode()).hexdigest()[:12]
        check(found == want, f"tables: the prompts of {task} {swap} have the hash {found}, not {want}")


def test_videos() -> None:
    """Training can ask for more reference videos: of lone objects only, and what they show is what the clip is to do."""
    scenes = world.sample_scenes(400, 9, pair_share=0.5)
    for more, low, high in ((0.0, 0.25, 0.42), (0.5, 0.6, 0.74), (1.0, 1.0, 1.0)):
        requests = tasks.ask(scenes, [1, 2], "ref2va", more)
        videos = [[f for f in r.references if f.kind == "video"] for r in requests]
        share = sum(map(bool, videos)) / int((scenes.count == 1).sum())
        check(low <= share <= high, f"videos: chance {more} gives {share:.2f}")
        check(all(r.scene.count[0] == 1 for r, v in zip(requests, videos) if v), "videos: of two objects")
        moves = [(r.scene.motion[0, 0], f.scene.motion[0, 0]) for r, v in zip(requests, videos) for f in v]
        check(all(a == b for a, b in moves), "videos: show another motion")


def main() -> int:
    """Runs all tests."""
    test_tables()
    test_videos()
    test_grammar()
    test_roles()
    test_looks()
    test_split()
    test_places()
    test_truth()
    test_orbits()
    test_one_changed()
    test_nothing()
    test_changing_size()
    test_own_words()
    test_coming_and_going()
    test_manifests()
    if shutil.which("ffmpeg"):
        with tempfile.TemporaryDirectory() as folder:
            test_files(pathlib.Path(folder))
    else:
        tally.skip("evaluate_test files", "ffmpeg is not installed")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
