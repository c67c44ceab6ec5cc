"""Trains the joint video-audio flow model of duet-tiny: the released transformer at toy dimensions, packed
as released.

One model a partition: `--partition fl2va` learns t2va and fl2va, `--partition ref2va` learns ref2va (and may
start from the other's weights, `--init`). The VAEs and the text encoder are frozen; clips are rendered and
encoded before the first step (`pool.py`).

    u = 1 - (1 - q)^late, q ~ U(0, 1), one a clip (`--late`, 1.5)
    sigma = s u / (1 + (s - 1) u), s = 12 for video and 3 for audio;  t = 1 - sigma
    x_t = t x_0 + (1 - t) noise;  the model predicts x_0 - noise
    loss = mean square (video, weighted by `pool.emphasis`) + mean square (audio)

so training sees exactly the pairs (t_video, t_audio) that sampling visits, those where looks and motions are
decided (u near 1) more often. Condition rows are mixed with noise at 0.999 (visual) or clean (sound), at their own
timesteps. All clips of a step share one layout (task, conditions, text length) and differ in u. A share of what is
half denoised (x_t) can be led astray where t < ASTRAY (`--astray`, `astray.py` says why). A small object shows in few rows: in
its box errors count for more (`pool.emphasis`).

A share of the steps can show short clips (`--short`): beginnings of other clips, more of them a step than of whole ones (with
`--rows 80000`: 98 for 29 with two pictures, 43 for 21 with a video), because some things are learnt from the number of
clips alone: which looks belong to which of two objects, and to look for the motion of a reference video in the video. (A training
of 1485 s on 768 requests with a video learnt by heart which of its clips moves how: of eight trained requests all came out right,
of the same eight with other videos one.)

The released model makes one evaluation a step, without classifier-free guidance; so guidance is trained in (`--guide W`).
One clip in ten has its text states and references zeroed, and where looks, motions and ticks are decided (u > GUIDED)
the targets of picture and sound become

    x_0 - noise + W (v(prompt) - v(zeros)),    both v the model's own, held fixed,

whose fixed point is guidance by 1 / (1 - W). A training from nothing goes a part of its time without guidance and
strays (`train_flow.sh`).

A training that went on from other weights can be exported as a mean of both (`--mean`). The end alone has learnt too well which
combinations of looks and motions there are: of 200 held-out clips it had 96.0 % of colours right, the beginning 97.2 %, half of
each 98.0 %, and the share that `MEAN` is 98.5 %. What only sound uses is of the end alone, which ticks best.

`forward` below is the reference module's forward for a batch with a timestep per clip; `tests/tools` holds
the two together. NOT here: layouts (`packing.py`), requests (`tasks.py`), encoded clips (`pool.py`), files
(`native.py`), sampling (`generate.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F

import graphs
import native
import options
import packing
import tasks
import text
import trainer
from pool import Bucket, Pool, load, prepare

CONFIG = dict(
    num_attention_heads=3,
    attention_head_dim=64,
    hidden_size=192,
    num_layers=8,
    num_refiner_layers=1,
    ffn_dim=512,
    in_channels=16,
    audio_in_channels=16,
    patch_size=(1, 2, 2),
    text_dim=text.HIDDEN,
    freq_dim=64,
    time_embed_hidden_dim=128,
    time_embed_dim=32,
    rope_freq_dim=8,
)
SHIFTS = (12.0, 3.0)
UNTOLD = 0.1  # share of clips without their prompt
SHORT = 0.5  # share of steps on short clips, if there are any
SHORT_FRAMES = 22
SHORT_PAIRS = 0.7  # of them are asked for with two objects; the split leaves 0.64
GUIDED = 0.25  # guidance acts above this u
ASTRAY = 0.45  # hints are led astray below this t
PARTLY = 0.5  # share of led pictures that are led before or after a moment alone
MEAN = 0.6  # share of the trained weights in a mean (`--mean`)


def build(seed: int) -> torch.nn.Module:
    """The module; gates and output heads start at zero, so it starts as the identity."""
    from diffusers.models.transformers.transformer_minimax_h3 import MiniMaxH3Transformer3DModel

    torch.manual_seed(seed)
    model = MiniMaxH3Transformer3DModel(**CONFIG)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2 and "adaln" not in name and "norm_out" not in name:
                p.normal_(0, 1 / p.shape[1] ** 0.5)
        for block in model.transformer_blocks:
            block.adaln_proj.linear.weight.zero_()
            block.adaln_proj.linear.bias.zero_()
            for tag in range(3):  # gates start at 0.3 rather than 0: bias row = modality, slot, channel
                bias = block.adaln_proj.linear.bias.view(3, 6, -1)
                bias[tag, 2], bias[tag, 5] = 0.3, 0.3
        model.norm_out.linear.weight.zero_()
        model.norm_out.linear.bias.zero_()
        for head in (model.proj_out, model.audio_proj_out):
            head.weight.zero_()
            head.bias.zero_()
    return model


def attention_of(name: str | None):
    """A context in which attention runs on the kernel named, where it can."""
    if name is None:
        return contextlib.nullcontext()
    kernels = torch.nn.attention.SDPBackend
    first = kernels.CUDNN_ATTENTION if name == "cudnn" else kernels.FLASH_ATTENTION
    order = [first, kernels.FLASH_ATTENTION, kernels.EFFICIENT_ATTENTION, kernels.MATH]
    return torch.nn.attention.sdpa_kernel(list(dict.fromkeys(order)), set_priority=True)


def matrices_of(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The matrices inside the blocks, which Muon trains; all else is left to Adam."""
    inner = [*model.transformer_blocks, *model.token_refiner.refiner_blocks]
    return [
        p for block in inner for name, p in block.named_parameters() if p.ndim == 2 and "adaln" not in name
    ]


# ---- forward -----------------------------------------------------------------------------------------


class Rows:
    """A layout as tensors on the device."""

    def __init__(self, layout: packing.Layout, device: str) -> None:
        self.layout = layout
        self.positions = torch.tensor(layout.positions, dtype=torch.float32, device=device)
        entry = layout.classes * 3 + layout.tags
        self.table = F.one_hot(torch.tensor(entry, device=device), 12).float()  # [S, 12]
        self.steps = F.one_hot(torch.tensor(layout.classes, device=device), 4).float()  # [S, 4]
        self.text, self.video, self.audio = (
            torch.tensor(getattr(layout, n), device=device) for n in ("text", "video", "audio")
        )
        # Rows of the concatenation (text, video, audio) in packed order.
        self.gather = torch.argsort(torch.cat([self.text, self.video, self.audio]))
        self.rope: tuple[torch.Tensor, ...] | None = None  # cosines and sines, [S, 1, rotary]

    def rotation(self, model: torch.nn.Module, kind: torch.dtype) -> tuple[torch.Tensor, ...]:
        """The rotary tables of the rows, computed once."""
        if self.rope is None or self.rope[0].dtype != kind:
            with torch.no_grad():
                self.rope = tuple(t[:, None].to(kind) for t in model.rope(self.positions))
        return self.rope


def _rms(x: torch.Tensor, norm: torch.nn.Module) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), norm.weight.to(x.dtype), norm.eps)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [B, S, heads, dim], cos and sin [S, 1, rotary]."""
    n = cos.shape[-1]
    half = x[..., :n]
    a, b = half.chunk(2, -1)
    return torch.cat([half * cos + torch.cat([-b, a], -1) * sin, x[..., n:]], -1)


def _attend(attn: torch.nn.Module, x: torch.Tensor, rope) -> torch.Tensor:
    q, k, v = (proj(x).unflatten(-1, (attn.heads, -1)) for proj in (attn.to_q, attn.to_k, attn.to_v))
    q, k = _rms(q, attn.norm_q), _rms(k, attn.norm_k)
    if rope is not None:
        q, k = _rotate(q, *rope), _rotate(k, *rope)
    out = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v.to(q.dtype))))
    return attn.to_out[0](out.transpose(1, 2).flatten(2))


def _feed(ff: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    value, gate = ff.net[0].proj(x).chunk(2, -1)
    return ff.net[2](value * F.silu(gate))


def _block(
    block: torch.nn.Module, h: torch.Tensor, table: torch.Tensor, rows_table: torch.Tensor, rope
) -> torch.Tensor:
    """One block; `table` [B, 12, 6 H] are the modulations of all (class, tag) pairs."""
    m = torch.matmul(rows_table, table).chunk(6, -1)
    n = _rms(h, block.norm1) * (1 + m[1]) + m[0]
    h = h + m[2] * _attend(block.attn, n, rope)
    n = _rms(h, block.norm2) * (1 + m[4]) + m[3]
    return h + m[5] * _feed(block.ff, n)


def forward(
    model: torch.nn.Module,
    rows: Rows,
    video: torch.Tensor,
    audio: torch.Tensor,
    states: torch.Tensor,
    times: torch.Tensor,
    block=_block,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Velocities of all video and audio rows. video [B, V, 64], audio [B, A, 16], states [B, L, 128], times
    [B, 4]."""
    batch, kind = video.shape[0], (
        torch.bfloat16 if torch.is_autocast_enabled(video.device.type) else video.dtype
    )
    rope = rows.rotation(model, kind)
    h = model.context_embedder(states).to(kind)
    for refiner in model.token_refiner.refiner_blocks:
        h = h + _attend(refiner.attn, _rms(h, refiner.norm1), None)
        h = h + _feed(refiner.ff, _rms(h, refiner.norm2))
    h = _rms(h, model.token_refiner.final_norm)
    h = torch.cat([h, model.proj_in(video).to(kind), model.audio_proj_in(audio).to(kind)], 1)
    h = h.index_select(1, rows.gather)
    with torch.autocast(video.device.type, enabled=False):
        temb = F.silu(model.time_embedder(model.time_proj(times.flatten()))).view(batch, 4, -1)
    table = rows.table.to(kind)
    for b in model.transformer_blocks:
        modulation = b.adaln_proj.linear(temb).view(batch, 12, -1).to(kind)
        h = block(b, h, modulation, table, rope)
    shift, scale = torch.matmul(rows.steps.to(kind), model.norm_out.linear(temb).to(kind)).chunk(2, -1)
    h = _rms(h, model.norm_out.norm) * (1 + scale) + shift
    with torch.autocast(video.device.type, enabled=False):
        v, a = (h.index_select(1, index).float() for index in (rows.video, rows.audio))
        return model.proj_out(v), model.audio_proj_out(a)


# ---- training ----------------------------------------------------------------------------------------


def shifted(u: torch.Tensor, s: float) -> torch.Tensor:
    """sigma of a base position."""
    return s * u / (1 + (s - 1) * u)


def guided_from(batch: int, late: float) -> int:
    """The first clip of a step, in the order of u, that is guided."""
    return math.ceil(batch * (1 - (1 - GUIDED) ** (1 / late)))


def times_of(u: torch.Tensor) -> torch.Tensor:
    """[B, 4] timesteps of the four classes."""
    t_video, t_audio = (1 - shifted(u, s) for s in SHIFTS)
    visual = torch.clamp(t_video, min=packing.VISUAL_LEVEL)
    return torch.stack([t_video, t_audio, visual, torch.ones_like(u)], -1)


def short_of(args: argparse.Namespace) -> argparse.Namespace:
    """The options of the short clips."""
    short = {"clips": args.short, "frames": SHORT_FRAMES, "pairs": SHORT_PAIRS, "bounces": 1, "wordings": 1}
    return argparse.Namespace(**(vars(args) | short))


def clips_of(layout: packing.Layout, args: argparse.Namespace) -> int:
    """Clips a step."""
    return max(4, args.rows // len(layout.tags)) if args.rows else args.batch


class Batch:
    """The requests of one training step, all of one bucket, mixed with noise: inputs, targets and times, in the
    order of u."""

    def __init__(self, pool: Pool, bucket: Bucket, rows: Rows, args, step: int) -> None:
        rng = np.random.default_rng(trainer.step_seed(args.seed, step, 10))
        n, self.rows = clips_of(bucket.layout, args), rows
        pick = torch.tensor(rng.integers(0, len(bucket.scene), n), device=args.device)
        self.gen, self.device = trainer.generator(args.device, args.seed, step), args.device
        self.astray = args.astray
        x = pool.video[bucket.scene[pick]].float()
        sound = pool.sound_of[bucket.request[pick]]
        a = pool.audio[sound].float()
        told = self._chance(n, 1, 1) >= UNTOLD
        latents = packing.latent_frames(pool.frames)
        # Without its prompt a clip counts as any other: else what is learnt of those would be of small objects.
        emphasis = torch.where(told[:, :, 0], pool.emphasis[bucket.scene[pick]], 1.0)
        self.emphasis = emphasis.repeat(1, latents)
        self.states = bucket.states[pick].float() * told
        # One u in each of `batch` equally likely parts of (0, 1): the loss varies less.
        q = torch.arange(n, device=args.device) + self._chance(n)
        self.times = times_of(1 - (1 - q / n) ** args.late)
        self.video, self.video_target = self._mix(x, self.times[:, 0, None, None])
        self.audio, self.audio_target = self._mix(a, self.times[:, 1, None, None])
        shown = told if bucket.layout.references else 1.0
        if bucket.video is not None:
            noised, _ = self._mix(bucket.video[pick].float(), packing.VISUAL_LEVEL)
            self.video = torch.cat([noised * shown, self.video], 1)
        if bucket.audio is not None:
            self.audio = torch.cat([bucket.audio[pick].float() * shown, self.audio], 1)
        if args.astray:
            # Of clips without their prompt none: there only the hint can tell.
            hints = (
                self.video[:, bucket.layout.video_conditions :],
                self.audio[:, bucket.layout.audio_conditions :],
            )
            away = (pool.video_strays[bucket.scene[pick]] - x, pool.audio_strays[sound] - a)
            within = self._when(n, latents).repeat_interleave(x.shape[1] // latents, 1)
            self._lead(hints[0], self.video_target, away[0] * within, self.times[:, 0, None, None], told)
            self._lead(hints[1], self.audio_target, away[1], self.times[:, 1, None, None], told)

    def tensors(self) -> list[torch.Tensor]:
        """What `losses` takes."""
        inputs = [self.video, self.audio, self.states, self.times]
        return [*inputs, self.video_target, self.audio_target, self.emphasis]

    def _chance(self, *shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=self.gen, device=self.device)

    def _mix(self, x: torch.Tensor, t) -> tuple[torch.Tensor, torch.Tensor]:
        """x at time t, and the velocity there."""
        noise = torch.randn(x.shape, generator=self.gen, device=self.device)
        return t * x + (1 - t) * noise, x - noise

    def _when(self, n: int, latents: int) -> torch.Tensor:
        """[n, latents, 1]: whether a latent frame of a clip may be led; all of them or, of PARTLY of the clips, those before or
        those after a moment."""
        moment = 1 + (self._chance(n, 1) * (latents - 1)).floor()
        before = torch.arange(latents, device=self.device) < moment
        part = before == (self._chance(n, 1) < 0.5)
        return (part | (self._chance(n, 1) >= PARTLY))[..., None]

    def _lead(self, x: torch.Tensor, target: torch.Tensor, away: torch.Tensor, t: torch.Tensor, may) -> None:
        """Leads a share of the hints `x` that may be led a part of the way `away`, and their velocities back."""
        led = may & (t < ASTRAY) & (self._chance(len(x), 1, 1) < self.astray)
        away = led * self._chance(len(x), 1, 1) * t * away
        x += away
        target -= away / (1 - t).clamp_min(0.5)  # the clamp: no 0 / 0 where nothing is led


def _targets_of(rows: Rows, velocities: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Velocities of the target rows alone."""
    video, audio = velocities
    return video[:, rows.layout.video_conditions :], audio[:, rows.layout.audio_conditions :]


def untold(
    rows: Rows, video: torch.Tensor, audio: torch.Tensor, states: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Inputs without the prompt and the references that it speaks of, all zeros; keyframes stay."""
    if rows.layout.references:
        counts = (rows.layout.video_conditions, rows.layout.audio_conditions)
        video, audio = (
            torch.cat([torch.zeros_like(x[:, :n]), x[:, n:]], 1) for x, n in zip((video, audio), counts)
        )
    return video, audio, torch.zeros_like(states)


def _guided(target: torch.Tensor, guide: tuple[float, int], told: torch.Tensor, free: torch.Tensor):
    """The target moved away from what the model says without the prompt, in the clips that are guided."""
    weight, at = guide
    more = torch.cat([torch.zeros_like(told[:at]), told[at:].detach() - free])
    return target + weight * more


def losses(
    model: torch.nn.Module,
    rows: Rows,
    block,
    guide: tuple[float, int],
    video,
    audio,
    states,
    times,
    video_target,
    audio_target,
    emphasis,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean squares of both velocities' errors on the target rows, those of video weighted by
    `emphasis` [B, target rows]. `guide` is the weight of guidance and the first clip that is guided."""
    kind = video.device.type
    # Graphs keep what they saw: a cached cast of a weight would be the cast of an old weight.
    with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda", cache_enabled=False):
        v, a = _targets_of(rows, forward(model, rows, video, audio, states, times, block))
        if guide[0]:
            with torch.no_grad():
                at = guide[1]
                without = untold(rows, video[at:], audio[at:], states[at:])
                free = _targets_of(rows, forward(model, rows, *without, times[at:], block))
                video_target = _guided(video_target, guide, v, free[0])
                audio_target = _guided(audio_target, guide, a, free[1])
    loss_v = (emphasis * ((v - video_target) ** 2).mean(-1)).mean()
    loss_a = ((a - audio_target) ** 2).mean()
    return loss_v, loss_a


def chances(pool: Pool, args: argparse.Namespace) -> np.ndarray:
    """How likely a step draws from each bucket."""
    # A request without keyframes or references tells least and has most to learn; which of two pictures is which is learnt last.
    weights = np.array([2.0 if not b.kinds or b.kinds.count("image") == 2 else 1.0 for b in pool.buckets])
    have = np.array([len(b.scene) for b in pool.buckets])
    drawn = np.array([clips_of(b.layout, args) for b in pool.buckets])
    few = have < drawn / 2  # would show the same clips twice and more in every step
    chance = np.where(few & ~few.all(), 0.0, weights * have / drawn)
    return chance / chance.sum()


def step_function(model: torch.nn.Module, pools: list[Pool], args: argparse.Namespace):
    """step -> (loss, figures). Of two pools the second is of short clips."""
    sources = [(pool, bucket) for pool in pools for bucket in pool.buckets]
    shares = [1.0] if len(pools) == 1 else [1 - SHORT, SHORT]
    chance = np.concatenate([share * chances(pool, args) for pool, share in zip(pools, shares)])
    block = torch.compile(_block, dynamic=True) if args.compile else _block
    rows = [Rows(bucket.layout, args.device) for _, bucket in sources]
    captured = graphs.Graphs(model) if args.graphs else None

    def both(number: int, step: int) -> list[torch.Tensor]:
        with torch.no_grad():
            b = Batch(*sources[number], rows[number], args, step)
        guide = (args.guide, guided_from(len(b.video), args.late))
        function = functools.partial(losses, model, b.rows, block, guide)
        return captured(number, function, b.tensors()) if captured else function(*b.tensors())

    if captured:  # ahead, so that all steps take alike
        began, numbers = time.monotonic(), np.flatnonzero(chance)
        for number in numbers:
            both(int(number), 0)
        print(f"{len(numbers)} layouts captured in {time.monotonic() - began:.0f} s", flush=True)

    def run(step: int):
        rng = np.random.default_rng(trainer.step_seed(args.seed, step, 9))
        v, a = both(int(rng.choice(len(sources), p=chance)), step)
        return v + a, {"video": v.detach(), "audio": a.detach()}

    return run


def of_sound(name: str, p: torch.Tensor) -> torch.Tensor:
    """The part of a parameter that rows of sound alone use: a view, which may be empty."""
    if "adaln_proj" in name:  # rows: tag, slot, channel
        return p.view(3, -1, *p.shape[1:])[packing.AUDIO]
    return p if name.startswith("audio_proj") else p[:0]


def average_with(folder: pathlib.Path, model: torch.nn.Module) -> None:
    """Makes the parameters of `model` means of theirs and of those in a transformer/ folder, but for what is of sound alone."""
    other = build(0).to(next(model.parameters()).device)
    with options.reading("mean", folder):
        native.read_transformer(folder, other)
    with torch.no_grad():
        for (name, mine), its in zip(model.named_parameters(), other.parameters()):
            trained = of_sound(name, mine).clone()
            mine.lerp_(its, 1 - MEAN)
            of_sound(name, mine).copy_(trained)


def measure(t: trainer.Trainer, step_fn, args: argparse.Namespace) -> None:
    """Prints the speed of training (all layouts met before) and what takes the GPU's time; trains nothing that
    is kept."""
    for t.step in range(args.measure):
        t.update(step_fn)
    torch.cuda.synchronize()
    began = time.monotonic()
    for t.step in range(args.measure):
        t.update(step_fn)
    torch.cuda.synchronize()
    seconds = (time.monotonic() - began) / args.measure
    memory = torch.cuda.max_memory_allocated() / 2**30
    print(f"measured: {1000 * seconds:.1f} ms a step, {memory:.1f} GiB")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for t.step in range(min(10, args.measure)):
            t.update(step_fn)
    print(profile.key_averages().table(sort_by="cuda_time_total", row_limit=25, max_name_column_width=90))


def check_arguments(args: argparse.Namespace) -> None:
    """Refuses options that cannot be, one line each, before anything is encoded."""
    trainer.check_arguments(args)
    for field, low, high in (
        ("clips", 1, 10**6),
        ("short", 0, 10**6),
        ("bounces", 1, 100),
        ("wordings", 1, 100),
        ("parts", 1, 1000),
        ("rows", 0, 10**8),
        ("pairs", 0, 1),
        ("late", 1, 10),
        ("guide", 0, 0.7),
        ("astray", 0, 0.9),
    ):
        options.within(args, field, low, high)
    if args.frames % 17 != 5 or not 22 <= args.frames <= tasks.FRAMES:
        nearest = min(range(22, tasks.FRAMES + 1, 17), key=lambda f: abs(f - args.frames))
        options.refuse("frames", args.frames, f"must be 17 n + 5 from 22 to {tasks.FRAMES}", nearest)
    if args.part is not None:
        options.within(args, "part", 0, args.parts - 1)
        if not args.prepare:
            options.refuse("part", args.part, "is for --prepare only")
    if args.guide and not args.rows and args.batch < 4:
        options.refuse("batch", args.batch, "must be at least 4 with --guide", 4)
    if args.graphs and not args.device.startswith("cuda"):
        options.refuse("graphs", f"on {args.device}", "needs a GPU")
    if args.measure is not None and not args.device.startswith("cuda"):
        options.refuse("measure", args.measure, "needs a GPU")
    if args.prepare and not args.cache:
        options.refuse("prepare", args.prepare, "needs --cache, where it keeps what it makes")
    for field in ("model", "after"):
        options.check_there(field, getattr(args, field))
    parts = ("video_vae", "audio_vae", "text_encoder", "tokenizer") if args.model and not args.export else ()
    with options.reading("model", args.model):
        for part in parts:
            if not (args.model / part).is_dir():
                rule = f"has no {part}/; the folder of a partition is asked for, as .../FL2VA"
                options.refuse("model", args.model, rule)
    if args.after_partition and not args.after:
        options.refuse("after-partition", args.after_partition, "needs --after")
    if args.init and args.after:
        options.refuse("after", args.after, "not with --init: a training starts from one of them")
    if args.mean and not args.export:
        options.refuse("mean", args.mean, "is for --export only")
    if args.model is None and not args.export:
        options.refuse("model", "FOLDER", "must be given")
    meant = ("transformer", f"{native.FOLDERS[args.partition]}/transformer")
    for field in ("init", "mean"):
        options.check_there(field, getattr(args, field), native.SHARD, meant)


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    trainer.add_arguments(parser, batch=32, lr=2e-3)
    parser.add_argument("--partition", choices=sorted(native.PARTITIONS), required=True)
    parser.add_argument(
        "--model", type=pathlib.Path, help="folder with the shipped VAEs, text encoder and tokenizer"
    )
    parser.add_argument("--clips", type=int, default=8192, help="clips to encode (default 8192)")
    parser.add_argument(
        "--frames",
        type=int,
        default=tasks.FRAMES,
        help=f"of a clip: 17 n + 5, at most {tasks.FRAMES} (default)",
    )
    parser.add_argument(
        "--pairs", type=float, default=0.35, help="share of scenes with two objects (default 0.35)"
    )
    parser.add_argument(
        "--short",
        type=int,
        default=0,
        help=f"beginnings ({SHORT_FRAMES} frames) of so many other clips, shown in half of the steps (default none)",
    )
    parser.add_argument(
        "--bounces",
        type=int,
        default=1,
        help="times as many bounces as the world has: ticks are rare (default 1)",
    )
    parser.add_argument(
        "--late", type=float, default=1.5, help="the higher, the more training near pure noise (default 1.5)"
    )
    parser.add_argument("--guide", type=float, default=0.0, help="guidance to train in, 0 to 0.7 (default 0)")
    parser.add_argument(
        "--astray", type=float, default=0.0, help="share of hints to lead astray, 0 to 0.9 (default 0)"
    )
    parser.add_argument("--wordings", type=int, default=2, help="prompts for every clip and task (default 2)")
    parser.add_argument("--adam", action="store_true", help="Adam for the matrices of the blocks, not Muon")
    parser.add_argument("--graphs", action="store_true", help="launch steps as CUDA graphs, one for a layout")
    parser.add_argument(
        "--attention", choices=("flash", "cudnn"), help="the attention kernel of a GPU (default: PyTorch's)"
    )
    parser.add_argument(
        "--measure", type=int, metavar="N", help="time N steps of the first layouts instead of training"
    )
    parser.add_argument("--check", action="store_true", help="say whether the options can be, do nothing")
    parser.add_argument("--cache", type=pathlib.Path, help="folder that keeps what was encoded")
    parser.add_argument(
        "--prepare",
        choices=("videos", "strays", "prompts"),
        help="encode so much into --cache (with --short: of the short clips instead), train nothing",
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=0,
        help="rows a step: as many clips as have about so many, instead of --batch",
    )
    parser.add_argument("--parts", type=int, default=1, help="files that each is kept in (default 1)")
    parser.add_argument("--part", type=int, help="with --prepare: make this file only, from 0 on")
    parser.add_argument(
        "--init", type=pathlib.Path, help="start from the weights of this transformer/ folder"
    )
    parser.add_argument(
        "--after", type=pathlib.Path, help="start from the training in this state folder, once it is complete"
    )
    parser.add_argument(
        "--after-partition",
        choices=sorted(native.PARTITIONS),
        help="whose training that is (default: the partition's own)",
    )
    parser.add_argument(
        "--export", type=pathlib.Path, help="write the native files to DIR/transformer instead of training"
    )
    parser.add_argument(
        "--mean",
        type=pathlib.Path,
        help="with --export: a mean with the weights of this transformer/ folder",
    )
    return parser


def main() -> None:
    """Trains, prepares, measures or exports."""
    args = build_parser().parse_args()
    check_arguments(args)
    if args.check:
        return
    if args.device.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    if args.prepare:
        prepare(short_of(args) if args.short else args, args.prepare)
        return
    model = build(args.seed).to(args.device)
    name = f"flow_{args.partition}"
    fresh = not (args.state / f"{name}.json").exists()
    if args.init and fresh:
        with options.reading("init", args.init):
            native.read_transformer(args.init, model)
    t = trainer.Trainer(name, model, args, () if args.adam else matrices_of(model))
    if args.export:
        trainer.require_complete(args.state, name)
        if args.mean:
            average_with(args.mean, model)
        native.write_transformer(args.export / "transformer", model)
        return
    t.same_options()
    if t.complete() and not args.measure:
        return
    began = time.monotonic()
    pools = [load(args)]
    if args.short:
        pools.append(load(short_of(args)))
    if args.measure:
        for pool in pools:
            pool.buckets = pool.buckets[:4]
    with attention_of(args.attention):
        step_fn = step_function(model, pools, args)
        args.run_minutes -= (time.monotonic() - began) / 60
        if args.after and fresh:
            print(f"waiting for the training in {args.after}", flush=True)
            before = f"flow_{args.after_partition or args.partition}"
            while not trainer.is_complete(args.after, before):
                time.sleep(0.2)
            trainer.load_parameters(args.after, before, model)
        if args.measure:
            measure(t, step_fn, args)
        else:
            t.run(step_fn)


if __name__ == "__main__":
    main()
