"""One training loop for every component: seeded by step, stopped by the clock, resumed exactly.

The problem: training is cut into runs of a few minutes, and the state between two runs must be small. The
rules:

 1. Step s of a component with seed q uses only random numbers drawn from (q, s): no generator state is ever
    stored.
 2. State is the parameters in fp32 and the moments (two of Adam, one of Muon) in 8 bits each, in safetensors files of at most
    15 MiB; the moments go when the last step is done.
 3. Moments are rounded to those 8 bits at every multiple of ROUND_EVERY steps whether or not the run stops
    there, and a run stops only there. So one long run and many short ones compute the same numbers (bit for
    bit on a CPU; on a GPU up to the order of its atomic sums).
 4. One training at a time has a state, by a lock that ends with its process.
 5. The number of steps is fixed when training starts, by `--steps` or, after the first CALIBRATE steps, by
    the speed for `--train-minutes`: the learning rate (linear warm-up, then a cosine) depends on step / steps only.

A component gives `Trainer` its modules and a function step -> (loss, figures), and may name matrices that are
trained by Muon instead of Adam (at the same learning rate, its updates scaled to Adam's size). Curves are JSON
lines beside the state.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import pathlib
import time
from typing import Callable, Sequence

import torch
from muon import Muon
from options import check_device, check_folder, check_there, refuse, within
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

ROUND_EVERY = 50
CALIBRATE = (150, 400)  # steps between which the speed is measured
SAVE_SECONDS = 120
FILE_BYTES = 15 * 1024 * 1024
# Options that may differ from run to run of one training.
FREE = frozenset(
    "state seed steps train_minutes run_minutes device log_every export mean evaluate measure cache compile graphs "
    "attention init after after_partition prepare parts part model check".split()
)


def add_arguments(parser: argparse.ArgumentParser, batch: int, lr: float) -> None:
    """The options every component shares."""
    parser.add_argument("--state", type=pathlib.Path, required=True, help="folder of the resumable state")
    parser.add_argument("--seed", type=int, default=7, help="seed of data and initial weights (default 7)")
    parser.add_argument(
        "--steps", type=int, default=0, help="total steps of the whole training, over all runs"
    )
    parser.add_argument(
        "--train-minutes",
        type=float,
        default=0.0,
        help="instead of --steps: total minutes of the whole training; the first run measures the speed",
    )
    parser.add_argument(
        "--run-minutes", type=float, default=9.0, help="stop this run after so many minutes (default 9)"
    )
    parser.add_argument("--batch", type=int, default=batch, help=f"clips a step (default {batch})")
    parser.add_argument("--lr", type=float, default=lr, help=f"peak learning rate (default {lr})")
    parser.add_argument(
        "--end-rate",
        type=float,
        default=0.0,
        help="learning rate after the last step, over the peak (default 0)",
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="torch.compile the networks (GPU)")
    parser.add_argument("--log-every", type=int, default=50, help="steps between progress lines (default 50)")


def step_seed(seed: int, step: int, stream: int = 0) -> list[int]:
    """Entropy of one step for numpy.random.default_rng."""
    return [seed, step, stream]


def generator(device: str, seed: int, step: int) -> torch.Generator:
    """A fresh generator of one step."""
    return torch.Generator(device).manual_seed((seed * 1_000_003 + step) * 7919 + 17)


def check_arguments(args: argparse.Namespace) -> None:
    """Refuses values of the shared options that no training can have, and a command that asks for nothing."""
    within(args, "seed", 0, 10**9)
    for field, low in (
        ("steps", 0),
        ("train-minutes", 0),
        ("run-minutes", 0),
        ("batch", 1),
        ("log-every", 1),
    ):
        within(args, field, low)
    within(args, "lr", 1e-9, 1.0)
    within(args, "end-rate", 0, 1)
    for field in ("train-minutes", "run-minutes"):
        within(args, field, 0, 100_000)
    for field in ("state", "cache", "export"):
        check_folder(field, getattr(args, field, None))
    check_there("init", getattr(args, "init", None))
    check_device(args.device)
    others = [name for name in ("export", "evaluate", "prepare", "measure") if getattr(args, name, None)]
    if len(others) > 1:
        refuse(others[1], getattr(args, others[1]), f"not with --{others[0]}")
    if not (others or args.steps or args.train_minutes):
        refuse("steps", args.steps, "--steps or --train-minutes must be given")


def _meta(path: pathlib.Path) -> dict:
    """What a state's JSON file holds; one line if it is damaged."""
    try:
        meta = json.loads(path.read_text())
        kinds = {"step": int, "steps": int, "seconds": float, "seed": int}
        return {"files": [], **meta, **{k: kind(meta[k]) for k, kind in kinds.items()}}
    except (ValueError, KeyError, TypeError) as problem:
        raise SystemExit(f"{path}: damaged ({problem}); remove the state to begin anew") from None


def _files(state: pathlib.Path, name: str, meta: dict) -> list[pathlib.Path]:
    """The files of tensors that belong to a state."""
    found = [state / f for f in meta["files"]] or sorted(state.glob(f"{name}.state-*.safetensors"))
    for path in found:
        if not path.exists():
            raise SystemExit(f"{path}: missing; remove the state to begin anew")
    return found


def _tensors(paths: list[pathlib.Path]) -> dict[str, torch.Tensor]:
    """All tensors of a state's files; one line if one is damaged."""
    out: dict[str, torch.Tensor] = {}
    for path in paths:
        try:
            out.update(load_file(path))
        except (SafetensorError, OSError) as problem:
            raise SystemExit(f"{path}: damaged ({problem}); remove the state to begin anew") from None
    return out


def _curve(path: pathlib.Path) -> list[dict]:
    """The lines of a curve; one line if it is damaged."""
    try:
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    except ValueError as problem:
        raise SystemExit(f"{path}: damaged ({problem}); remove it to go on without") from None


def is_complete(state: pathlib.Path, name: str) -> bool:
    """True once the training of a component in a state folder has made its last step."""
    path = state / f"{name}.json"
    meta = _meta(path) if path.exists() else {"steps": 0, "step": 0}
    return 0 < meta["steps"] <= meta["step"]


def require_complete(state: pathlib.Path, name: str) -> None:
    """Ends the program unless the training of a component has made its last step: what is exported is trained."""
    if not is_complete(state, name):
        raise SystemExit(f"{state}: the training of {name} is not complete there")


def _parameter(tensors: dict[str, torch.Tensor], key: str, path: pathlib.Path) -> torch.Tensor:
    """A parameter of a state; one line if the state has it not."""
    if "param/" + key not in tensors:
        raise SystemExit(f"{path}: damaged (its files have no {key}); remove the state to begin anew")
    return tensors["param/" + key]


def load_parameters(state: pathlib.Path, name: str, module: torch.nn.Module) -> None:
    """Parameters of a trained (or half trained) component into `module`."""
    path = state / f"{name}.json"
    if not path.exists():
        raise SystemExit(f"{state}: no state of {name}; train it first")
    tensors = _tensors(_files(state, name, _meta(path)))
    with torch.no_grad():
        for key, p in module.named_parameters():
            p.copy_(_parameter(tensors, key, path))


FIRST, SECOND = ("exp_avg", "momentum_buffer"), "exp_avg_sq"  # names of moments in the optimisers' states


def _rows(t: torch.Tensor) -> torch.Tensor:
    return t.reshape(t.shape[0], -1) if t.ndim > 1 else t.reshape(1, -1)


def pack_moments(moments: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Moments of a parameter in 8 bits: first ones linear with a scale a row, the second of Adam in quarter
    octaves from 2^-60."""
    out = {}
    for name, value in moments.items():
        if name in FIRST:
            rows = _rows(value)
            scale = rows.abs().amax(1, keepdim=True).clamp_min(1e-30) / 127
            out[name] = (rows / scale).round().to(torch.int8).view(value.shape)
            out[name + ".scale"] = scale
        elif name == SECOND:
            levels = ((value + 2.0**-60).log2() + 60) * (255 / 64)
            out[name] = levels.round().clamp(0, 255).byte()
    return out


def unpack_moments(packed: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inverse of `pack_moments`, to its precision."""
    out = {}
    for name, value in packed.items():
        if name in FIRST:
            out[name] = (_rows(value).float() * packed[name + ".scale"]).view(value.shape)
        elif name == SECOND:
            out[name] = torch.exp2(value.float() * (64 / 255) - 60)
    return out


class Trainer:
    """Owns optimiser, schedule, state files and curves of one component."""

    def __init__(
        self,
        name: str,
        module: torch.nn.Module,
        args: argparse.Namespace,
        matrices: Sequence[torch.nn.Parameter] = (),
    ) -> None:
        self.name, self.module, self.args = name, module, args
        self.params = dict(module.named_parameters())
        chosen = {id(p) for p in matrices}
        others = [p for p in self.params.values() if id(p) not in chosen]
        common = {"lr": args.lr, "weight_decay": 0.01}
        adam = torch.optim.AdamW(others, betas=(0.9, 0.98), eps=1e-8, fused=self._fused(), **common)
        self.opts: list[torch.optim.Optimizer] = [adam]
        if matrices:
            self.opts.append(Muon(list(matrices), **common))
        self.opt_of = {id(p): self.opts[id(p) in chosen] for p in self.params.values()}
        self.step, self.steps, self.seconds = 0, args.steps, 0.0
        self.options: dict | None = None  # of the state that is gone on with
        self.curve: list[dict] = []
        self.packed: dict[str, dict[str, torch.Tensor]] = {}  # moments as stored
        args.state.mkdir(parents=True, exist_ok=True)
        reads = getattr(args, "export", None) or getattr(args, "evaluate", None)
        self.lock = None if reads else self._hold()
        self._load()

    # ---- state ----------------------------------------------------------------------------------------

    def _hold(self):
        """Keeps other trainings of this component out of the state folder while this one lives."""
        lock = open(self.args.state / f"{self.name}.lock", "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            refuse("state", self.args.state, f"another training of {self.name} goes on there")
        return lock

    def _load(self) -> None:
        meta_path = self.args.state / f"{self.name}.json"
        if not meta_path.exists():
            return
        meta = _meta(meta_path)
        if meta["seed"] != self.args.seed and not getattr(self.args, "export", None):
            raise SystemExit(f"{self.name}: the state was trained with --seed {meta['seed']}")
        tensors = _tensors(_files(self.args.state, self.name, meta))
        self.step, self.seconds = meta["step"], meta["seconds"]
        self.steps, self.options = meta["steps"] or self.steps, meta.get("options")
        with torch.no_grad():
            for key, p in self.params.items():
                p.copy_(_parameter(tensors, key, meta_path))
                names = [n for n in tensors if n.endswith("/" + key) and not n.startswith("param/")]
                if not names:
                    continue
                self.packed[key] = {n.split("/")[0]: tensors[n].to(p.device) for n in names}
                entry = unpack_moments(self.packed[key])
                if SECOND in entry:
                    at = p.device if self._fused() else "cpu"
                    entry["step"] = torch.tensor(float(self.step), device=at)
                self.opt_of[id(p)].state[p] = entry
        self.curve = _curve(self.args.state / f"{self.name}.curve.jsonl")
        print(f"{self.name}: resumed at step {self.step} of {self.steps}", flush=True)

    def _fused(self) -> bool:
        return self.args.device.startswith("cuda")

    def _round_moments(self) -> None:
        for key, p in self.params.items():
            entry = self.opt_of[id(p)].state.get(p)
            if entry:
                self.packed[key] = pack_moments(entry)
                for name, value in unpack_moments(self.packed[key]).items():
                    entry[name].copy_(value)

    def save(self) -> None:
        """Writes the state; call only at a multiple of ROUND_EVERY."""
        tensors: dict[str, torch.Tensor] = {}
        for key, p in self.params.items():
            tensors["param/" + key] = p.detach().float().cpu().contiguous()
            if key in self.packed and not self.complete():
                for tag, value in self.packed[key].items():
                    tensors[f"{tag}/{key}"] = value.cpu().contiguous()
        parts: list[dict[str, torch.Tensor]] = [{}]
        size = 0
        for key, value in tensors.items():
            nbytes = value.numel() * value.element_size()
            if parts[-1] and size + nbytes > FILE_BYTES:
                parts.append({})
                size = 0
            parts[-1][key] = value
            size += nbytes
        meta = {
            "step": self.step,
            "steps": self.steps,
            "seconds": round(self.seconds, 1),
            "seed": self.args.seed,
            "options": self._options(),
        }
        self._replace(parts, meta)

    def _replace(self, parts: list[dict[str, torch.Tensor]], meta: dict) -> None:
        """New files of tensors beside the old ones, then the JSON file that names them, then the old ones go: a kill
        leaves one whole state or the other."""
        state = self.args.state
        names = [f"{self.name}.state-{self.step}-{i}.safetensors" for i in range(len(parts))]
        for name, part in zip(names, parts):
            save_file(part, state / (name + ".part"))
            (state / (name + ".part")).replace(state / name)
        texts = {
            f"{self.name}.curve.jsonl": "".join(json.dumps(c) + "\n" for c in self.curve),
            f"{self.name}.json": json.dumps(meta | {"files": names}) + "\n",
        }
        for name, value in texts.items():
            (state / (name + ".part")).write_text(value)
            (state / (name + ".part")).replace(state / name)
        for path in state.glob(f"{self.name}.state-*.safetensors"):
            if path.name not in names:
                path.unlink()

    def _options(self) -> dict:
        """The options that a training must keep from run to run."""
        return {k: str(v) for k, v in sorted(vars(self.args).items()) if k not in FREE}

    def same_options(self) -> None:
        """Refuses to go on with other options than the state was begun with."""
        for key, value in self._options().items():
            if self.options and self.options.get(key, value) != value:
                refuse(key.replace("_", "-"), value, "the state was begun with another", self.options[key])
        if self.args.steps and self.args.steps != self.steps:
            refuse("steps", self.args.steps, "the state was begun with another", self.steps)

    def complete(self) -> bool:
        """True after the last step."""
        return bool(self.steps) and self.step >= self.steps

    # ---- loop -----------------------------------------------------------------------------------------

    def rate(self) -> float:
        """Learning rate of the current step."""
        total = self.steps or 100_000
        warm = min(200, max(1, total // 20))
        if self.step < warm:
            return self.args.lr * (self.step + 1) / warm
        left = 0.5 * (1 + math.cos(math.pi * (self.step - warm) / max(1, total - warm)))
        return self.args.lr * (self.args.end_rate + (1 - self.args.end_rate) * left)

    def _calibrate(self, t_first: float, at: int) -> None:
        """Fixes the number of steps from the speed since step `at` at time `t_first`."""
        speed = (self.step - at) / (time.monotonic() - t_first)
        total = self.step + 0.97 * speed * (self.args.train_minutes * 60 - self.seconds)
        self.steps = max(int(total) // ROUND_EVERY, self.step // ROUND_EVERY + 1) * ROUND_EVERY
        print(f"{self.name}: {speed:.2f} steps/s, training is {self.steps} steps", flush=True)

    def update(self, step_fn: Callable) -> tuple[torch.Tensor, dict, torch.Tensor]:
        """One step of the optimisers: loss, figures and norm of the gradient. A loss without a graph says that
        the gradients are there already."""
        loss, figures = step_fn(self.step)
        if loss.requires_grad:
            self.module.zero_grad(set_to_none=True)
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.params.values(), 1.0, foreach=True)
        for opt in self.opts:
            for group in opt.param_groups:
                group["lr"] = self.rate()
            opt.step()
        return loss.detach(), figures, norm

    def run(self, step_fn: Callable[[int], tuple[torch.Tensor, dict]]) -> bool:
        """Trains until the run's minutes are over or the training is complete; True when complete."""
        args, began = self.args, time.monotonic()
        if not self.steps and not args.train_minutes:
            raise SystemExit("give --steps or --train-minutes")
        self.same_options()
        before, first, t_cal = self.seconds, self.step, 0.0
        last = saved = began
        while not self.steps or self.step < self.steps:
            if not self.steps and self.step == first + CALIBRATE[0]:
                self._sync()
                t_cal = time.monotonic()
            if not self.steps and self.step == first + CALIBRATE[1]:
                self._sync()
                self.seconds = before + time.monotonic() - began
                self._calibrate(t_cal, first + CALIBRATE[0])
            loss, figures, norm = self.update(step_fn)
            self.step += 1
            if self.step % ROUND_EVERY == 0:
                self._stop_if_lost(norm)
                self._round_moments()
            if self.step % args.log_every == 0 or self.step == self.steps:
                row = {
                    "step": self.step,
                    "lr": round(self.rate(), 7),
                    "loss": float(loss),
                    "norm": float(norm),
                }
                row |= {k: round(float(v), 6) for k, v in figures.items()}
                row["seconds"] = round(before + time.monotonic() - began, 1)
                self.curve.append(row)
                if self.step % (args.log_every * 10) == 0 or time.monotonic() - last > 15:
                    last = time.monotonic()
                    print(self.name, json.dumps(row), flush=True)
            if self.step % ROUND_EVERY == 0:
                if time.monotonic() - began > args.run_minutes * 60:
                    break
                if time.monotonic() - saved > SAVE_SECONDS:  # in case the run is cut off
                    self.seconds, saved = before + time.monotonic() - began, time.monotonic()
                    self.save()
        self.seconds = before + time.monotonic() - began
        if self.step > first:
            self._stop_if_lost(norm)
        if self.step % ROUND_EVERY:
            self._round_moments()
        self.save()
        done = self.complete()
        print(
            f"{self.name}: {'complete' if done else 'stopped'} at step {self.step} of {self.steps}, "
            f"{self.seconds:.0f} s of training so far",
            flush=True,
        )
        return done

    def _stop_if_lost(self, norm: torch.Tensor) -> None:
        """Ends the run when the numbers are lost; the state stays as last saved. (Asking at every step would make
        the processor wait for the GPU every time.)"""
        if not math.isfinite(float(norm)):
            raise SystemExit(f"{self.name}: not finite at step {self.step}; the state saved last is kept")

    def _sync(self) -> None:
        if self._fused():
            torch.cuda.synchronize()
