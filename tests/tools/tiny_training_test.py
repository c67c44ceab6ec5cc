#!/usr/bin/env python3
"""The training tools of duet-tiny agree with the reference modules and resume exactly (tools/tiny/).

 1. `flow.forward` equals the reference transformer's forward on sequences with every kind of row.
 2. `packing.py` gives the reference's rotary grids.
 3. `fast_audio.activation` equals the reference's alias-free activation, values and gradients.
 4. Native files read back what was written, bit for bit.
 5. `muon.Muon` takes the steps of torch.optim.Muon.
 6. Losses and gradients by CUDA graphs are those without (where there is a GPU).
 7. Hints led astray: which, how far, and that their velocities lead back to the clip.
 8. A training that is stopped and resumed has the same state as one that is not.

Needs PyTorch, diffusers and safetensors; skips loudly without. Prints "N passed, N failed, N skipped".
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "tiny"))
warnings.filterwarnings("ignore")

import tally  # noqa: E402
from tally import check  # noqa: E402

try:
    import numpy as np
    import torch
    import diffusers  # noqa: F401
    import transformers  # noqa: F401
    from safetensors.torch import load_file
except ImportError as missing:
    tally.skip("tiny_training_test", f"{missing.name} is not installed")
    sys.exit(tally.finish())

import astray  # noqa: E402
import audio_vae  # noqa: E402
import fast_audio  # noqa: E402
import flow  # noqa: E402
import frozen  # noqa: E402
import generate  # noqa: E402
import graphs  # noqa: E402
import muon  # noqa: E402
import native  # noqa: E402
import packing  # noqa: E402
import pool  # noqa: E402
import tasks  # noqa: E402
import text  # noqa: E402
import trainer  # noqa: E402
import world  # noqa: E402


def shaken(module: torch.nn.Module) -> torch.nn.Module:
    """The module with no weight left at a round value."""
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.2 * torch.randn_like(p) / (p.shape[-1] ** 0.5 if p.ndim > 1 else 3))
    return module


def test_forward() -> None:
    """Against the reference, fp32."""
    torch.manual_seed(0)
    model = shaken(flow.build(1))
    tags = [1] * 5 + [0] * 18 + [1] * 9
    for conditions in ([], [("first",), ("last",)], [("image", 4, 4), ("audio", 7), ("video", 7, 4, 6)]):
        layout = packing.build(tags, conditions, 22, 4, 6)
        rows = flow.Rows(layout, "cpu")
        inputs = (
            torch.randn(1, len(layout.video), 64),
            torch.randn(1, len(layout.audio), 16),
            torch.randn(1, len(layout.text), 128),
        )
        times = torch.tensor([[0.3, 0.6, 0.999, 1.0]])
        with torch.no_grad():
            got = flow.forward(model, rows, *inputs, times)
            want = model(
                *inputs,
                times[0],
                torch.tensor(layout.classes),
                torch.tensor(layout.tags),
                torch.tensor(layout.positions),
                rows.video,
                rows.audio,
                rows.text,
                return_dict=False,
            )
        for name, a, b in zip(("video", "audio"), got, want):
            error = float((a - b).norm() / b.norm())
            check(error < 1e-5, f"forward {[c[0] for c in conditions]} {name}: relative L2 {error}")


def test_packing() -> None:
    """Grids of the reference, exactly."""
    from diffusers.modular_pipelines.minimax_h3 import before_denoise as reference

    for count, origin in ((7, 31.0), (32, 80.0)):
        want = reference._temporal_position_grid(count, origin).numpy()
        check(bool((want == packing.time_axis(count, origin)).all()), f"time axis of {count}")
    for size, other in ((16, 16), (16, 28)):
        want = reference._spatial_position_grid(size, 2, (size * other) ** 0.5).numpy()
        check(bool((want == packing.space_axis(size, (size * other) ** 0.5)).all()), f"space axis of {size}")


def test_activation() -> None:
    """Against the reference, fp64."""
    from diffusers.models.autoencoders.autoencoder_kl_minimax_h3_audio import (
        MiniMaxH3AudioActivation1d,
        MiniMaxH3AudioSnakeBeta,
    )

    for length in (1, 2, 7, 64):
        module = shaken(MiniMaxH3AudioActivation1d(MiniMaxH3AudioSnakeBeta(5)).double())
        x = torch.randn(2, 5, length, dtype=torch.float64, requires_grad=True)
        inputs = (x, module.act.alpha, module.act.beta)
        want, got = module(x), fast_audio.activation(*inputs, module.upsample.filter.flatten())
        g = torch.randn_like(want)
        pairs = [(want, got), *zip(torch.autograd.grad(want, inputs, g), torch.autograd.grad(got, inputs, g))]
        worst = max(float((a - b).abs().max().detach()) for a, b in pairs)
        check(worst < 1e-12, f"activation of {length}: {worst}")


def test_files() -> None:
    """Writing, reading and writing again; the mean with what was written."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        model = shaken(flow.build(2))
        native.write_transformer(path, model)
        other = flow.build(3)
        native.read_transformer(path, other)
        first, again = load_file(path / native.SHARD), native.transformer_tensors(other)
        check(set(first) == set(again), "transformer: names")
        check(all(torch.equal(first[k], again[k]) for k in first), "transformer: values")
        mean = shaken(flow.build(3))
        its = {k: p.detach().clone() for k, p in mean.named_parameters()}
        flow.average_with(path, mean)
        for (key, p), q in zip(mean.named_parameters(), other.parameters()):
            want = flow.MEAN * its[key] + (1 - flow.MEAN) * q
            if key.startswith("audio_proj"):
                want = its[key]
            elif "adaln_proj" in key:  # scales, shifts and gates of video, text, sound
                sound = slice(2 * len(want) // 3, None)
                want[sound] = its[key][sound]
            check(torch.allclose(p, want, atol=1e-6), f"transformer: the mean of {key}")
        said = refused(lambda: flow.average_with(path / "none", mean))
        check(said.startswith("--mean"), f"transformer: a mean with nothing: {said!r}")


def train(state: pathlib.Path, steps: int, stop: float) -> None:
    """A few steps of the smallest possible audio training."""
    parser = argparse.ArgumentParser()
    trainer.add_arguments(parser, batch=2, lr=1e-3)
    args = parser.parse_args(
        ["--state", str(state), "--steps", str(steps), "--device", "cpu", "--run-minutes", str(stop)]
    )
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.SiLU(), torch.nn.Linear(16, 8))

    def step(number: int):
        x = torch.randn(4, 8, generator=trainer.generator("cpu", args.seed, number))
        loss = ((module(x) - x.flip(1)) ** 2).mean()
        return loss, {"loss": loss.detach()}

    trainer.Trainer("toy", module, args, [module[2].weight]).run(step)  # Muon for one, Adam for the others


def test_resume() -> None:
    """One run of 200 steps against four of 50."""
    with tempfile.TemporaryDirectory() as folder:
        one, many = pathlib.Path(folder) / "one", pathlib.Path(folder) / "many"
        train(one, 200, 10)
        for _ in range(4):
            train(many, 200, 0)
        a, b = (load_file(p / "toy.state-200-0.safetensors") for p in (one, many))
        check(len(list(many.glob("*.safetensors"))) == 1, "resume: files of an older state are left")
        check(set(a) == set(b) and all(torch.equal(a[k], b[k]) for k in a), "resume: states differ")
        curves = [(p / "toy.curve.jsonl").read_text().count("\n") for p in (one, many)]
        check(curves[0] == curves[1] == 4, f"resume: curves of {curves} lines")


def ends_with(state: pathlib.Path, steps: int, says: str) -> None:
    """Going on with a state is refused in one line that says so."""
    try:
        train(state, steps, 0)
        check(False, f"resume: nobody says {says!r}")
    except SystemExit as end:
        check(says in str(end.code) and "\n" not in str(end.code), f"resume: {end.code!r}")


def test_refusals() -> None:
    """States that cannot be gone on with: begun with other options, damaged, half there."""
    with tempfile.TemporaryDirectory() as folder:
        state = pathlib.Path(folder)
        train(state, 100, 0)
        ends_with(state, 150, "--steps 150")
        meta = state / "toy.json"
        held = meta.read_text()
        meta.write_text(held.replace('"batch": "2"', '"batch": "3"'))
        ends_with(state, 100, "--batch 2")
        meta.write_text("")
        ends_with(state, 100, "damaged")
        meta.write_text(held)
        (state / "toy.state-50-0.safetensors").unlink()
        ends_with(state, 100, "missing")


def test_muon() -> None:
    """Against torch.optim.Muon, one shape or several, over some steps."""
    torch.manual_seed(0)
    shapes = ((24, 16), (16, 24), (24, 16), (20, 20))
    mine, theirs = ([torch.nn.Parameter(torch.ones(s)) for s in shapes] for _ in range(2))
    fast = muon.Muon(mine, lr=0.01)
    slow = torch.optim.Muon(theirs, lr=0.01, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
    for _ in range(5):
        for p, q in zip(mine, theirs):
            p.grad = torch.randn(p.shape)
            q.grad = p.grad.clone()
        fast.step()
        slow.step()
    moved = max(float((q - 1).abs().max()) for q in theirs)
    error = max(float((p - q).abs().max().detach()) for p, q in zip(mine, theirs))
    check(error < 0.02 * moved, f"muon: {error} of {moved}")
    check(set(fast.state[mine[0]]) == set(slow.state[theirs[0]]), "muon: names of state")


def refused(work) -> str:
    """What a refusal says; nothing if there is none."""
    try:
        work()
    except SystemExit as end:
        return str(end)
    return ""


def test_arguments() -> None:
    """Options that no training can have, and a command that asks for nothing, are refused in one line that names the
    option."""
    with tempfile.TemporaryDirectory() as folder:
        good = ["--state", folder, "--steps", "3", "--device", "cpu"]
        file = pathlib.Path(folder) / "file"
        file.write_text("")
        bad = [
            (["--steps", "0"], "--steps 0"),
            (["--seed", "-4"], "--seed -4"),
            (["--lr", "nan"], "--lr nan"),
            (["--device", "gpu"], "--device gpu"),
            (["--init", str(file)], "--init"),
            (["--state", str(file)], "--state"),
            (["--state", str(file / "state")], "--state"),
            (["--train-minutes", "inf"], "--train-minutes inf"),
            (["--device", "meta"], "--device meta"),
        ]
        for options, begins in [([], "")] + bad:
            parser = argparse.ArgumentParser()
            trainer.add_arguments(parser, batch=4, lr=1e-3)
            parser.add_argument("--init", type=pathlib.Path)
            args = parser.parse_args(good + options)
            said = refused(lambda: trainer.check_arguments(args))
            check(said.startswith(begins) and bool(said) == bool(begins), f"arguments {options}: {said!r}")
            check("\n" not in said, f"arguments {options}: more than a line")
        models = ROOT / "models" / "duet-tiny"
        whole = models / "FL2VA"
        near = f"nearest: {whole / 'transformer'}"
        for options, begins, ends in (
            (["--init", str(whole / "transformer")], "", ""),
            (["--init", str(whole)], "--init", near),
            (["--init", str(models)], "--init", near),
            (["--init", folder], "--init", native.SHARD),
            (["--init", str(file)], "--init", "must be a folder"),
            (["--init", "a" * 300], "--init", "File name too long: '" + "a" * 300 + "')"),
            (["--mean", str(whole), "--export", folder], "--mean", near),
            (["--after", str(file)], "--after", "must be a folder"),
        ):
            given = [*good, "--partition", "fl2va", "--model", str(whole), *options]
            said = refused(lambda: flow.check_arguments(flow.build_parser().parse_args(given)))
            check(said.startswith(begins) and said.endswith(ends), f"arguments of flow {options}: {said!r}")
            check(bool(said) == bool(begins) and "\n" not in said, f"arguments of flow {options}: {said!r}")


def test_sampling_guidance() -> None:
    """Guidance at sampling goes from what the model says without prompt and references (0) through what it says (1) on."""
    torch.manual_seed(0)
    model = generate.Model.__new__(generate.Model)
    model.device, model.transformer = "cpu", shaken(flow.build(1)).eval()
    rows = flow.Rows(packing.build([1] * 6, [("image", 4, 6), ("audio", 3)], 22, 4, 6), "cpu")
    counts = (rows.layout.video_conditions, rows.layout.audio_conditions)
    given = [
        [torch.randn(2, 6, 128), torch.randn(2, counts[0], 64), torch.randn(2, counts[1], 16)] for _ in "ab"
    ]

    def clip(inputs: list[torch.Tensor], guidance: float) -> tuple[torch.Tensor, ...]:
        return model.sample(rows, *inputs, 2, 5, guidance)

    free, other = clip(given[0], 0.0), clip(given[1], 0.0)
    told, more = clip(given[0], 1.0), clip(given[0], 2.0)
    for name, f, o, x, y in zip(("video", "audio"), free, other, told, more):
        check(torch.allclose(f, o, atol=1e-5), f"sampling: {name} without a prompt depends on it")
        check(float((x - f).abs().max()) > 1e-3, f"sampling: {name} does not depend on the prompt")
        check(torch.allclose(y - x, x - f, atol=1e-4), f"sampling: {name} is not guided")


def test_states() -> None:
    """Two trainings in one state folder, and damaged states, are refused in one line; an export asks for no seed."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def toy(export=None, seed: int = 3) -> trainer.Trainer:
            parser = argparse.ArgumentParser()
            trainer.add_arguments(parser, batch=4, lr=1e-3)
            args = parser.parse_args(
                ["--state", name, "--steps", "50", "--device", "cpu", "--seed", str(seed)]
            )
            args.export = export
            return trainer.Trainer("toy", torch.nn.Linear(2, 2), args)

        first = toy()
        check("another training of toy goes on" in refused(toy), "states: two at once")
        first.run(lambda step: (sum(p.square().sum() for p in first.params.values()), {}))
        first.lock.close()
        check(not refused(lambda: toy(export=folder, seed=4)), "states: export with another seed")
        check("--seed 3" in refused(lambda: toy(seed=4)), "states: training with another seed")
        for pattern in ("toy.state-*.safetensors", "toy.curve.jsonl", "toy.json"):
            path = next(folder.glob(pattern))
            whole = path.read_bytes()
            path.write_bytes(whole[: len(whole) // 2])
            said = refused(lambda: toy(export=folder))
            check("damaged" in said and "\n" not in said, f"states: half a {path.name}: {said!r}")
            path.write_bytes(whole)
        state = next(folder.glob("toy.state-*.safetensors"))
        native.save_file({"param/other": torch.zeros(1)}, state.with_suffix(".other"))
        whole = state.read_bytes()
        state.with_suffix(".other").replace(state)
        said = refused(lambda: toy(export=folder))
        check("damaged (its files have no weight)" in said, f"states: of another network: {said!r}")
        state.write_bytes(whole)
        meta = (folder / "toy.json").read_text()
        (folder / "toy.json").write_text(meta.replace('"step": 50', '"step": "x"'))
        check("damaged" in refused(lambda: toy(export=folder)), "states: a step that is no number")
        (folder / "toy.json").write_text(meta)
        check(not refused(lambda: toy(export=folder)), "states: whole again")


def test_caches() -> None:
    """A damaged file of encoded clips is named in one line."""
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "videos.pt"
        made = pool.kept(path, "cpu", lambda: torch.ones(3))
        check(torch.equal(pool.kept(path, "cpu", lambda: None), made), "caches: not read again")
        whole = path.read_bytes()
        for bad in (b"", b"hello", whole[: len(whole) // 2]):
            path.write_bytes(bad)
            said = refused(lambda: pool.kept(path, "cpu", lambda: None))
            check(said.startswith(f"{path}: damaged") and "\n" not in said, f"caches: {bad[:8]!r}: {said!r}")


def test_two_pools() -> None:
    """Steps draw from whole and short clips alike, each with its own layout and clips."""
    pools = []
    for frames in (39, 22):
        layout = packing.build([1] * 6, [], frames, 4, 6)
        bucket = pool.Bucket(layout, [])
        for i in range(4):
            bucket.add(i, i, torch.ones(6, 128), None)
        bucket.close()
        video = torch.full((4, len(layout.video), 64), float(frames))
        pools.append(pool.Pool(video, None, torch.ones(4, 6), [bucket], frames))
        pools[-1].audio = torch.full((4, len(layout.audio), 16), float(frames))
        pools[-1].sound_of = torch.arange(4)
    args = argparse.Namespace(
        seed=3, device="cpu", rows=0, batch=4, late=1.5, astray=0.0, guide=0.0, compile=False, graphs=False
    )
    seen = []

    def losses(model, rows, block, guide, video, audio, states, times, video_target, audio_target, weight):
        ends = video + (1 - times[:, 0, None, None]) * video_target
        seen.append((len(rows.layout.video), round(float(ends.mean()))))
        return torch.zeros(()), torch.zeros(())

    plain, flow.losses = flow.losses, losses
    try:
        step = flow.step_function(torch.nn.Linear(1, 1), pools, args)
        for number in range(60):
            step(number)
    finally:
        flow.losses = plain
    kinds = {(len(p.buckets[0].layout.video), p.frames) for p in pools}
    check(set(seen) == kinds, f"two pools: {set(seen)} instead of {kinds}")
    short = sum(frames == 22 for _, frames in seen)
    check(18 <= short <= 42, f"two pools: {short} of 60 steps on short clips")


def step_inputs(layout: packing.Layout, batch: int) -> list[torch.Tensor]:
    """Random inputs of `flow.losses`."""
    sizes = ((len(layout.video), 64), (len(layout.audio), 16), (len(layout.text), 128))
    targets = ((sizes[0][0] - layout.video_conditions, 64), (sizes[1][0] - layout.audio_conditions, 16))
    inputs = [torch.randn(batch, *s) for s in sizes] + [torch.rand(batch, 4)]
    return inputs + [torch.randn(batch, *s) for s in targets] + [torch.rand(batch, targets[0][0])]


def test_guidance() -> None:
    """A model whose velocities are its guided targets has no loss; targets of small u and of clips without a prompt
    are the plain ones. Without the prompt means without references, but with keyframes."""
    torch.manual_seed(0)
    model, weight = shaken(flow.build(1)), 0.4
    for kind in (("first",), ("image", 4, 6)):
        layout = packing.build([1] * 6, [kind, ("audio", 3)] if kind[0] == "image" else [kind], 22, 4, 6)
        counts = (layout.video_conditions, layout.audio_conditions)
        rows, at = flow.Rows(layout, "cpu"), flow.guided_from(5, 1.5)
        video, audio, states, times, *_ = step_inputs(layout, 5)
        states[4] = 0
        free_video, free_audio = video.clone(), audio.clone()
        if kind[0] == "image":
            for x, n in ((video[4], counts[0]), (audio[4], counts[1])):
                x[:n] = 0
            free_video[:, : counts[0]], free_audio[:, : counts[1]] = 0, 0
        with torch.no_grad():
            told = flow.forward(model, rows, video, audio, states, times)
            free = flow.forward(model, rows, free_video, free_audio, torch.zeros_like(states), times)
            targets = []
            for t, f, n in zip(told, free, counts):
                targets.append(t[:, n:].clone())
                targets[-1][at:] = f[at:, n:] + (1 - weight) * (t[at:, n:] - f[at:, n:])
            args = (video, audio, states, times, *targets, torch.ones(targets[0].shape[:2]))
            v, a = flow.losses(model, rows, flow._block, (weight, at), *args)
            plain = flow.losses(model, rows, flow._block, (0.0, at), *args)
        check(0 < at < 4, f"guidance: begins at clip {at} of 5")
        check(
            float(v) < 1e-10 and float(a) < 1e-10,
            f"guidance: losses {float(v)}, {float(a)} at the fixed point",
        )
        check(min(map(float, plain)) > 1e-7, f"guidance: the plain losses are {plain} there")
        for t, told_one, n in zip(targets, told, counts):
            check(torch.equal(t[:at], told_one[:at, n:]), "guidance: plain targets below")
            check(
                torch.allclose(t[4], told_one[4, n:], atol=1e-6), "guidance: plain targets without a prompt"
            )


def test_strays() -> None:
    """Strays are other clips of the same motions, none of a held-out combination; two objects exchange looks or get others."""
    scenes = world.sample_scenes(2000, [3], 0.5)
    stray, two = astray.looks(scenes, [4]), scenes.count == 2
    lone = ~two
    check(not world.scene_held_out(stray).any(), "strays: held-out combinations")
    check(
        bool(((stray.colour != scenes.colour) | (stray.shape != scenes.shape))[lone, 0].all()),
        "strays: a lone object looks as asked",
    )
    for name, one in (("colour", stray.colour != scenes.colour), ("shape", stray.shape != scenes.shape)):
        check(0.5 < one[lone, 0].mean() < 0.8, f"strays: {one[lone, 0].mean():.2f} have another {name}")
    exchanged = (
        two & (stray.colour == scenes.colour[:, ::-1]).all(1) & (stray.shape == scenes.shape[:, ::-1]).all(1)
    )
    others = two & ~exchanged
    check(
        bool(((stray.colour != scenes.colour) | (stray.shape != scenes.shape))[others].all()),
        "strays: one of two looks as asked",
    )
    check(bool((stray.colour[two, 0] != stray.colour[two, 1]).all()), "strays: two of one colour")
    share = exchanged.sum() / two.sum()
    check(0.3 < share < 0.6, f"strays: {share:.2f} exchanged")
    for name in ("count", "background", "size", "motion", "chance"):
        check(bool((getattr(stray, name) == getattr(scenes, name)).all()), f"strays: {name} differs")


def test_stray_ticks() -> None:
    """In stray sounds ticks come at other times, and nothing else differs."""
    scenes = world.sample_scenes(300, [3], 0.0)
    scenes = scenes.take(np.flatnonzero(scenes.motion[:, 0] == world.BOUNCE)[:8])
    tracks = world.Tracks(world.Backend(), scenes, tasks.FRAMES)
    delay = astray.tick_delay(tracks, [4])
    check(
        bool((delay != 0).all()) and abs(delay).max() == astray.TICK_HOPS, "strays: ticks at their own times"
    )
    hop, _, valid = tracks.bounces()
    silent = np.zeros(delay.shape) + 10_000  # ticks after the end
    plain, without, stray = (world.synthesise(tracks, tick_delay=d) for d in (None, silent, delay))
    hops = plain.shape[-1] // world.HOP

    def heard(sound: np.ndarray, i: int) -> set[int]:
        away = np.abs(sound[i] - without[i]).reshape(2, hops, world.HOP).max((0, 2))
        return set(np.flatnonzero(away > 1e-3).tolist())

    for i in range(len(scenes)):
        at = hop[i, 0][valid[i, 0]].astype(int)
        moved = at + delay[i, 0][valid[i, 0]]
        check(heard(plain, i) == {h for h in at if h < hops}, f"ticks of clip {i}")
        check(heard(stray, i) == {h for h in moved if 0 <= h < hops}, f"stray ticks of clip {i}")


def test_bounces() -> None:
    """A training can be given more bounces than the world has, and else the same scenes."""
    args = argparse.Namespace(seed=3, frames=tasks.FRAMES, clips=4000, pairs=0.4, bounces=1)

    def share(scenes: world.Scenes) -> float:
        bounce = scenes.motion == world.BOUNCE
        return float((bounce[:, 0] | bounce[:, 1] & (scenes.count == 2)).mean())

    once, args.bounces = share(pool.scenes_of(args)), 2
    more = pool.scenes_of(args)
    check(len(more) == 4000 and not world.scene_held_out(more).any(), "bounces: other scenes")
    check(1.6 * once < share(more) < 2.4 * once, f"bounces: {once:.2f} become {share(more):.2f}")


def emphasis_of(clips: int) -> torch.Tensor:
    """One for every row of a latent frame that no other row has."""
    return 2 + torch.arange(6.0 * clips).view(clips, 6)


def batch_of(share: float, condition_kind: str = "first") -> flow.Batch:
    """A step's inputs from random clips with one visual condition, so many of their hints led astray."""
    kinds = [("first",) if condition_kind == "first" else (condition_kind, 4, 6)]
    layout = packing.build([1] * 6, kinds, 22, 4, 6)
    generator = torch.Generator().manual_seed(1)
    targets = len(layout.video) - layout.video_conditions
    video, strays = (torch.randn(9, targets, 64, generator=generator) for _ in range(2))
    bucket = pool.Bucket(layout, kinds)
    for i in range(9):
        condition = torch.randn(layout.video_conditions, 64, generator=generator)
        bucket.add((i + 4) % 9, i, torch.ones(6, 128), condition)
    bucket.close()
    clips = pool.Pool(video, strays, emphasis_of(9), [bucket], 22)
    clips.audio, clips.audio_strays = (
        torch.randn(9, len(layout.audio), 16, generator=generator) for _ in range(2)
    )
    clips.sound_of = torch.arange(9)
    args = argparse.Namespace(seed=3, device="cpu", rows=0, batch=400, late=1.5, astray=share)
    return flow.Batch(clips, bucket, flow.Rows(layout, "cpu"), args, 5)


def test_astray() -> None:
    """Velocities lead to the clip asked for from every hint. Hints of clips without a prompt, and those that are
    clear enough, are right."""
    plain, led = batch_of(0.0), batch_of(0.5)
    conditions = plain.rows.layout.video_conditions
    told = led.states.abs().amax((1, 2)) > 0
    for name, at in (("video", 0), ("audio", 1)):
        skip = conditions if name == "video" else 0
        x, y = (getattr(b, name)[:, skip:] for b in (plain, led))
        t = led.times[:, at, None, None]
        ends = [h + (1 - t) * getattr(b, name + "_target") for h, b in ((x, plain), (y, led))]
        error = float((ends[0] - ends[1]).abs().max())
        check(error < 1e-4, f"astray: {name} ends {error} from its clip")
        moved = (x != y).any(2).any(1)
        may = told & (t[:, 0, 0] < flow.ASTRAY)
        check(not bool((moved & ~may).any()), f"astray: {name} led where it must not be")
        share = float(moved.sum() / may.sum())
        check(0.4 < share < 0.6, f"astray: {share:.2f} of {name} led")
    check(torch.equal(plain.video[:, :conditions], led.video[:, :conditions]), "astray: conditions changed")
    # 7 latent frames of 6 rows: pictures are led in all of them, or in those before or after a moment.
    moved = (plain.video != led.video)[:, conditions:].any(2).view(len(told), 7, 6)
    check(bool((moved.any(2) == moved.all(2)).all()), "astray: a part of a frame led")
    led_frames = moved.all(2)
    led_frames = led_frames[led_frames.any(1)]
    changes = (led_frames[:, 1:] != led_frames[:, :-1]).sum(1)
    check(int(changes.max()) == 1, "astray: a clip led in two stretches")
    partly = changes == 1
    share = float(partly.float().mean())
    check(0.38 < share < 0.62, f"astray: {share:.2f} of the led clips led in a part alone")
    begins = float(led_frames[partly, 0].float().mean())
    check(0.3 < begins < 0.7, f"astray: {begins:.2f} of the parts at the beginning")
    lengths = set(led_frames[partly].sum(1).tolist())
    check(lengths == set(range(1, 7)), f"astray: parts of {lengths} latent frames")


def test_emphasis() -> None:
    """Errors count for more in the boxes of small objects, in every frame, and in the mean as much as without; clips without
    their prompt count alike."""
    scenes = world.sample_scenes(400, [3], 0.5)
    rows, side = pool.emphasis(scenes), world.CANVAS // 8
    check(rows.shape == (400, 64) and abs(rows.mean() - 1) < 1e-4, f"emphasis: mean {rows.mean()}")
    tracks = world.Tracks(world.Backend(), scenes, tasks.FRAMES)
    x, y = tracks.position(np.linspace(0.0, 4.4, 9, dtype=np.float32))
    row = (y // side * 8 + x // side).astype(int)  # of the objects' centres
    changing = (scenes.motion == world.GROW) | (scenes.motion == world.SHRINK)
    small = (scenes.size == world.SIZES.index("small")) & ~changing
    for k, there in ((0, scenes.count > 0), (1, scenes.count == 2)):
        found = np.take_along_axis(rows, row[:, k], 1)
        for wanted, of in ((rows.max(), there & small[:, k]), (rows.min(), there & ~small[:, k])):
            check(bool((found[of] == wanted).all()) and of.any(), f"emphasis: of object {k}")
    check(abs(rows.max() / rows.min() - pool.SMALL) < 1e-5, "emphasis: by another factor")

    given = "--partition ref2va --model none --clips 9 --frames 22 --wordings 1 --device cpu".split()
    args = flow.build_parser().parse_args(["--state", "none", *given])
    kept = pool.prepare, pool.Frozen, pool.Pool.add_sounds
    pool.prepare = lambda args, stage: [torch.zeros(9, 1, 1)] if stage == "videos" else []
    pool.Frozen = pool.Pool.add_sounds = lambda *given: None
    try:
        loaded = pool.load(args).emphasis.numpy()
    finally:
        pool.prepare, pool.Frozen, pool.Pool.add_sounds = kept
    check(np.array_equal(loaded, pool.emphasis(pool.scenes_of(args))), "emphasis: loaded for other scenes")

    b = batch_of(0.0)
    told = b.states.abs().amax((1, 2)) > 0
    check(bool((b.emphasis[~told] == 1).all()), "emphasis: of a clip without its prompt")
    frames = b.emphasis[told].view(-1, 7, 6)
    check(torch.equal(frames, frames[:, :1].expand(-1, 7, -1)), "emphasis: frames differ")
    ends = b.video[:, b.rows.layout.video_conditions :] + (1 - b.times[:, 0, None, None]) * b.video_target
    clips = torch.randn(9, ends.shape[1], 64, generator=torch.Generator().manual_seed(1))  # of `batch_of`
    scene = (ends[:, None, 0] - clips[None, :, 0]).abs().amax(2).argmin(1)
    check(torch.equal(frames[:, 0], emphasis_of(9)[scene[told]]), "emphasis: of other clips")

    layout, kinds = packing.build([1] * 6, [("first",)], 22, 4, 6), (0.0, 3)
    model, inputs = shaken(flow.build(1)), step_inputs(layout, 3)
    video, audio, states, times, video_target, audio_target, weight = inputs
    own = flow.Rows(layout, "cpu")
    with torch.no_grad():
        v, a = flow.forward(model, own, video, audio, states, times)
        v = v[:, layout.video_conditions :]
        wanted = ((v - video_target) ** 2).mean(2).mul(weight).mean(), ((a - audio_target) ** 2).mean()
        found = flow.losses(model, own, flow._block, kinds, *inputs)
    check(all(torch.allclose(x, y, rtol=1e-5) for x, y in zip(found, wanted)), f"emphasis: {found}")


def test_untold() -> None:
    """Clips without their prompt have no references either, in training and for guidance; keyframes stay."""
    for kind in ("first", "image"):
        b = batch_of(0.0, kind)
        told = b.states.abs().amax((1, 2)) > 0
        shown = b.video[:, : b.rows.layout.video_conditions].abs().amax((1, 2)) > 0
        check(0.8 < float(told.float().mean()) < 0.98, "untold: one clip in ten")
        check(torch.equal(shown, told if kind == "image" else torch.ones_like(told)), f"untold: {kind} rows")
        video, audio, states = flow.untold(b.rows, b.video, b.audio, b.states)
        count = b.rows.layout.video_conditions
        check(
            torch.equal(video[:, count:], b.video[:, count:]) and torch.equal(audio, b.audio),
            "untold: targets",
        )
        check(bool((states == 0).all()), "untold: states")
        check(bool((video[:, :count] == 0).all()) == (kind == "image"), f"untold: {kind} rows for guidance")


def test_chances() -> None:
    """Steps draw from buckets by their size, from those without conditions or with two pictures twice as often, from tiny ones
    never."""
    layouts = [packing.build([1] * n, [], 22, 4, 6) for n in (5, 6, 7, 8, 9)]
    sizes, image = (40, 80, 40, 3, 40), [("image", 4, 6)]
    buckets = []
    for layout, size, kinds in zip(layouts, sizes, (image, image, [], image, 2 * image)):
        buckets.append(pool.Bucket(layout, kinds))
        buckets[-1].scene = list(range(size))
    found = flow.chances(
        pool.Pool(torch.empty(0), None, torch.empty(0), buckets, 22), argparse.Namespace(rows=0, batch=16)
    )
    check(np.allclose(found / found[0], [1, 2, 2, 0, 2]), f"chances: {found}")


def test_short_ahead() -> None:
    """Short clips made ahead, by --prepare with --short, are those that training reads; requests ask for many
    videos."""
    args = argparse.Namespace(
        clips=3, frames=107, pairs=0.5, bounces=3, wordings=2, seed=5, short=4, device="cpu"
    )
    short = flow.short_of(args)
    check(
        (short.clips, short.frames, short.wordings, short.bounces) == (4, 22, 1, 1), f"short ahead: {short}"
    )
    scenes = pool.scenes_of(
        argparse.Namespace(clips=300, bounces=1, pairs=flow.SHORT_PAIRS, seed=5, frames=22)
    )
    requests = pool.requests_of(scenes, "ref2va", 5, 1, 22)
    lone = [any(f.kind == "video" for f in r.references) for r in requests if r.scene.count[0] == 1]
    check(
        0.55 < sum(lone) / len(lone) < 0.78,
        f"short ahead: {sum(lone)} of {len(lone)} lone objects with a video",
    )
    check(0.55 < float((scenes.count == 2).mean()) < 0.72, "short ahead: the share of two objects")
    with tempfile.TemporaryDirectory() as folder:
        given = ["--device", "cpu", "--partition", "ref2va", "--seed", "5", "--clips", "3"]
        model = str(ROOT / "models" / "duet-tiny" / "FL2VA")
        given += ["--model", model, "--state", folder, "--cache", folder]
        command = [sys.executable, str(ROOT / "tools" / "tiny" / "flow.py"), *given]
        subprocess.run([*command, "--short", "2", "--prepare", "videos"], check=True, capture_output=True)
        names = [path.name for path in pathlib.Path(folder).glob("*.pt")]
        start = f"videos-2x22-{flow.SHORT_PAIRS}-1-5-"
        check(len(names) == 1 and names[0].startswith(start), f"short ahead: {names} is not {start}...")


def test_short() -> None:
    """Short clips are the beginnings of whole ones: latents (the encoder looks at no later frame), rows of sound."""
    tracks = world.Tracks(world.Backend("cpu"), world.sample_scenes(2, 5), tasks.FRAMES)
    models = frozen.Frozen(ROOT / "models" / "duet-tiny" / "FL2VA", "cpu", ("video", "audio"))
    x = frozen.video_vae.normalise(world.render(tracks, 17, 17))
    with torch.no_grad():
        whole, short = (models.video.quant_conv(models.video.encoder(x[:, :, :n])) for n in (17, 5))
    error = float((whole[:, :, :2] - short).abs().max())
    check(error < 1e-4, f"short: latents of frames 18 to 22 differ by {error}")
    sound = models.encode_audio(world.synthesise(tracks, 0, world.frames_to_hops(22)))
    check(sound.shape == (2, 2 * packing.audio_latents(22), 16), f"short: sound {tuple(sound.shape)}")


def test_names() -> None:
    """Rows where prompts name references: the text up to there ends with the name, the class is that of the reference
    with that number."""
    encoder = text.Encoder(ROOT / "models" / "duet-tiny" / "FL2VA" / "tokenizer", 0)
    requests = tasks.make(5, 40, "ref2va", pair_share=0.6)
    shown = [encoder.presenter.build(r) for r in requests]
    targets, seen = text.name_targets(encoder, requests, shown), 0
    for name, word in (("shape", "Picture"), ("colour", "Picture"), ("motion", "Video")):
        kind = "image" if word == "Picture" else "video"
        for request, row, value in targets[name]:
            before = encoder.tokenizer.decode(shown[request].ids[: row + 1])
            number = re.search(rf"<{word} (\d)>[,.]?$", before)
            check(number is not None, f"names: {before[-30:]!r} does not end with a {word}")
            if number:
                mine = [r for r in requests[request].references if r.kind == kind][int(number.group(1)) - 1]
                check(value == getattr(mine.scene, name)[0, 0], f"names: {name} of {number.group(0)}")
                seen += 1
        wanted = sum(r.kind == kind for q in requests for r in q.references)
        check(len(targets[name]) == wanted, f"names: {len(targets[name])} of {wanted} {name}s")
    check(seen > 40, f"names: only {seen} looked at")


def test_graphs() -> None:
    """Losses and gradients by graphs against those without, two layouts taking turns, weights changing."""
    if not torch.cuda.is_available():
        tally.skip("test_graphs", "no GPU")
        return
    model = shaken(flow.build(1)).cuda()
    made = graphs.Graphs(model)
    layouts = [packing.build([1] * n, c, 22, 4, 6) for n, c in ((5, []), (9, [("first",), ("audio", 7)]))]
    rows = [flow.Rows(layout, "cuda") for layout in layouts]
    # Captured before anything else: a capture must not meet gradients that were computed outside of one.
    for turn in range(2):
        inputs = [x.cuda() for x in step_inputs(layouts[turn], 3)]
        made(turn, functools.partial(flow.losses, model, rows[turn], flow._block, (0.5 * turn, 1)), inputs)
    for turn in range(4):
        inputs = [x.cuda() for x in step_inputs(layouts[turn % 2], 3)]
        function = functools.partial(flow.losses, model, rows[turn % 2], flow._block, (0.5 * (turn % 2), 1))
        want = function(*inputs)
        slopes = torch.autograd.grad(sum(want), list(model.parameters()))
        got = made(turn % 2, function, inputs)
        for a, b in zip([*got, *(p.grad for p in model.parameters())], [*want, *slopes]):
            error = float((a - b).detach().norm() / b.detach().norm().clamp_min(1e-6))
            check(error < 2e-2, f"graphs, turn {turn}: relative difference {error}")
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(0.99)


def test_audio_pieces() -> None:
    """A step's data depends on seed and step alone."""
    a, b, c = (audio_vae.pieces(7, step, 2, 8, "cpu") for step in (5, 5, 6))
    check(torch.equal(a, b) and not torch.equal(a, c), "pieces: not a function of the step")


def main() -> int:
    """Runs all tests."""
    torch.set_num_threads(2)
    for test in (
        test_forward,
        test_packing,
        test_activation,
        test_files,
        test_resume,
        test_refusals,
        test_muon,
        test_guidance,
        test_arguments,
        test_sampling_guidance,
        test_states,
        test_caches,
        test_two_pools,
        test_strays,
        test_stray_ticks,
        test_bounces,
        test_astray,
        test_emphasis,
        test_untold,
        test_chances,
        test_short,
        test_short_ahead,
        test_names,
        test_graphs,
        test_audio_pieces,
    ):
        test()
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
