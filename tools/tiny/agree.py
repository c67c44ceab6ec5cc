#!/usr/bin/env python3
"""Shows that training and `generate.py` treat a request as the reference's own pipeline does, task by task.

    agree.py models/duet-tiny --converter FILE

Held-out requests of every kind go both ways: through diffusers' pipeline over the converted checkpoint
(`reference.py`), where what reaches the conditioner and the transformer is caught; and through `text.py`,
`packing.py`, `frozen.py` and `flow.py`. What must be equal: token ids, types and pictures of the
conditioner; tags, positions, row numbers and timesteps of the packed sequence; text states; condition
rows; velocities; and the step that the solver makes of them. A difference here would make every figure of
training mean something else than the clips that an engine makes.

Condition rows may differ by the rounding to bf16 in which `frozen.py` keeps them. Each kind of request
counts as one test; exit code 1 if one differs.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402

import flow  # noqa: E402
import generate  # noqa: E402
import native  # noqa: E402
import options  # noqa: E402
import packing  # noqa: E402
import reference  # noqa: E402
import tasks  # noqa: E402
import text  # noqa: E402
from frozen import GRID, Conditions, patchify  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import convert  # noqa: E402

POINTS, SEED = 4, 7
EXACT, CLOSE, BF16 = 0.0, 1e-5, 2.0**-8
VISION = ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Relative L2; infinite for unlike shapes."""
    if a.shape != b.shape:
        return float("inf")
    a, b = a.double(), b.double()
    return float((a - b).norm() / b.norm().clamp_min(1e-12))


class Caught:
    """What a pipeline hands to its networks during one request."""

    def __init__(self, pipeline: reference.Pipeline) -> None:
        self.asked: dict = {}
        self.calls: list[dict] = []
        pipe = pipeline.pipe
        name = "transformer_ref" if pipeline.task == "ref2va" else "transformer"
        hook = dict(with_kwargs=True)
        pipe.text_encoder.model.register_forward_pre_hook(lambda _m, _a, kw: self.asked.update(kw), **hook)
        getattr(pipe, name).register_forward_hook(self._call, **hook)

    def _call(self, _module, _args, inputs: dict, output) -> None:
        kept = {k: v.clone() if torch.is_tensor(v) else v for k, v in inputs.items()}
        self.calls.append({**kept, "output": output})

    def clear(self) -> None:
        """Forgets the last request."""
        self.asked, self.calls = {}, []


def condition_rows(brought: Conditions) -> torch.Tensor | None:
    """Visual condition rows as `generate.py` mixes them, with the noise the pipeline draws first: one draw a
    condition."""
    gen, parts, level = torch.Generator().manual_seed(SEED), [], packing.VISUAL_LEVEL
    for kind, value in zip(brought.kinds, brought.values):
        if kind[0] == "audio":
            continue
        frames = len(value) * 4 // GRID**2
        noise = torch.randn((1, flow.CONFIG["in_channels"], frames, GRID, GRID), generator=gen)
        parts.append(level * value.float() + (1 - level) * patchify(noise)[0])
    return torch.cat(parts) if parts else None


def conditioner(caught: Caught, batch: dict) -> list[tuple[str, float, float]]:
    """What enters the text encoder and what leaves it: (name, distance, bound)."""
    asked = caught.asked
    out = [
        ("token ids", distance(batch["ids"], asked["input_ids"]), EXACT),
        ("token types", distance(batch["types"], asked["mm_token_type_ids"]), EXACT),
    ]
    for name in VISION:
        if (name in batch) != (name in asked):
            out.append((name, float("inf"), EXACT))
        elif name in batch:
            # A pixel half way between two levels may be rounded either way: one level is 1 / 127.5.
            out.append((name, distance(batch[name], asked[name]), 1e-3 if "pixel" in name else EXACT))
    return out


def packed(caught: Caught, layout: packing.Layout) -> list[tuple[str, float, float]]:
    """Order, tags, positions and timesteps of the rows."""
    first, out = caught.calls[0], []
    out.append(("positions", distance(torch.tensor(layout.positions), first["position_ids"]), EXACT))
    out.append(("tags", distance(torch.tensor(layout.tags), first["token_tags"]), EXACT))
    for name in ("text", "video", "audio"):
        out.append(
            (f"{name} rows", distance(torch.tensor(getattr(layout, name)), first[f"{name}_indices"]), EXACT)
        )
    classes = torch.tensor(layout.classes)
    for i, u in enumerate(torch.linspace(1, 0, POINTS)[:-1]):
        mine = flow.times_of(u[None])[0][classes]
        theirs = caught.calls[i]["timestep"][caught.calls[i]["timestep_indices"]]
        out.append((f"times of evaluation {i}", distance(mine, theirs), 1e-6))
    return out


@torch.no_grad()
def evaluations(
    caught: Caught, layout: packing.Layout, model: generate.Model
) -> list[tuple[str, float, float]]:
    """Velocities on the same inputs, and what the solver makes of them."""
    rows, out, base = flow.Rows(layout, "cpu"), [], torch.linspace(1, 0, POINTS)
    targets = (layout.video_conditions, layout.audio_conditions)
    for i, call in enumerate(caught.calls):
        values = call["hidden_states"], call["audio_hidden_states"]
        times = flow.times_of(base[i][None])
        mine = flow.forward(model.transformer, rows, *values, call["encoder_hidden_states"], times)
        for k, name in enumerate(("video", "audio")):
            out.append((f"{name} velocity {i}", distance(mine[k], call["output"][k]), CLOSE))
            if i + 1 < len(caught.calls):
                after = caught.calls[i + 1][("hidden_states", "audio_hidden_states")[k]][:, targets[k] :]
                step = flow.shifted(base[i], flow.SHIFTS[k]) - flow.shifted(base[i + 1], flow.SHIFTS[k])
                moved = values[k][:, targets[k] :] + step * call["output"][k][:, targets[k] :]
                out.append((f"{name} step {i}", distance(moved, after), CLOSE))
    return out


@torch.no_grad()
def compare(caught: Caught, model: generate.Model, request: tasks.Request) -> list[tuple[str, float, float]]:
    """All distances of one request."""
    batch = text.Batcher(model.frozen.encoder, "cpu")([request])
    shown, brought = batch["shown"][0], model.frozen.conditions([request])[0]
    layout = packing.build(list(shown.tags), list(brought.kinds), tasks.FRAMES, GRID, GRID)
    out = conditioner(caught, batch)
    first = caught.calls[0]
    out.append(
        ("text states", distance(model.frozen.encoder(batch)[0], first["encoder_hidden_states"]), CLOSE)
    )
    visual, sound = condition_rows(brought), brought.rows(sound=True)
    if visual is not None:
        theirs = first["hidden_states"][0, : layout.video_conditions]
        out.append(("visual conditions", distance(visual, theirs), BF16))
    if sound is not None:
        theirs = first["audio_hidden_states"][0, : layout.audio_conditions]
        out.append(("sound conditions", distance(sound, theirs), BF16))
    return out + packed(caught, layout) + evaluations(caught, layout, model)


def kinds(task: str, seed: int) -> dict[tuple, tasks.Request]:
    """One held-out request of every kind of a task."""
    found: dict[tuple, tasks.Request] = {}
    for r in tasks.make([seed, 4242], 40, task, split="test"):
        found.setdefault((*r.keyframes, *(x.kind for x in r.references)), r)
    return dict(sorted(found.items()))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=pathlib.Path, help="the model folder, as models/duet-tiny")
    parser.add_argument(
        "--converter", required=True, help="conversion script of the reference (docs/oracle.md)"
    )
    parser.add_argument(
        "--task", choices=("t2va", "fl2va", "ref2va"), action="append", help="default: all three"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--tree", type=pathlib.Path, help="where the converted checkpoint is kept (default: nowhere)"
    )
    args = parser.parse_args()
    options.within(args, "seed", 0, 10**9)
    passed = failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        tree = args.tree or pathlib.Path(scratch) / "tree"
        convert.ensure(str(args.root), str(tree), args.converter)
        for task in args.task or ("t2va", "fl2va", "ref2va"):
            pipeline = reference.Pipeline(tree, task, "cpu", 2)
            caught = Caught(pipeline)
            model = generate.Model(args.root, native.folder_of(task), "cpu")
            for kind, request in kinds(task, args.seed).items():
                caught.clear()
                pipeline.run(request.prompt, reference.media(request), POINTS, SEED)
                rows = compare(caught, model, request)
                bad = [f"{name} {value:.2g}" for name, value, bound in rows if not value <= bound]
                most = max((value, name) for name, value, _ in rows)
                verdict = "FAILED " + "; ".join(bad) if bad else f"ok      furthest: {most[1]} {most[0]:.2g}"
                print(f"{task:6} {' '.join(kind) or 'text':14} {len(rows)} compared  {verdict}", flush=True)
                passed, failed = passed + (not bad), failed + bool(bad)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
