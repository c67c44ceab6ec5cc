"""Trains the joint video-audio flow model of duet-tiny: the released transformer at toy dimensions, packed
as released.

One model a partition: `--partition fl2va` learns t2va and fl2va, `--partition ref2va` learns ref2va (and may
start from the other's weights, `--init`). The VAEs and the text encoder are frozen; clips are rendered and
encoded once at the start of a run (and kept in `--cache`, if given), prompts are embedded beside them.

    u ~ U(0, 1), one a clip;  sigma = s u / (1 + (s - 1) u), s = 12 for video and 3 for audio;  t = 1 - sigma
    x_t = t x_0 + (1 - t) noise;  the model predicts x_0 - noise;  loss = mean square (video) + mean square
    (audio)

so training sees exactly the pairs (t_video, t_audio) that sampling visits. Condition rows are mixed with
noise at 0.999 (visual) or clean (sound), at their own timesteps. All clips of a step share one layout (task,
conditions, text length) and differ in u.

`forward` below is the reference module's forward for a batch with a timestep per clip; `tests/tools` holds
the two together. NOT here: layouts (`packing.py`), requests (`tasks.py`), files (`native.py`), sampling
(`generate.py`).
"""

from __future__ import annotations

import argparse
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F

import audio_vae
import native
import packing
import tasks
import text
import trainer
import video_vae
import world

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
GRID = world.CANVAS // 16
PARTITIONS = {"fl2va": ("t2va", "fl2va"), "ref2va": ("ref2va",)}


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
    cos, sin = (t[:, None].to(kind) for t in model.rope(rows.positions))
    h = model.context_embedder(states).to(kind)
    for refiner in model.token_refiner.refiner_blocks:
        h = h + _attend(refiner.attn, _rms(h, refiner.norm1), None)
        h = h + _feed(refiner.ff, _rms(h, refiner.norm2))
    h = _rms(h, model.token_refiner.final_norm)
    h = torch.cat([h, model.proj_in(video).to(kind), model.audio_proj_in(audio).to(kind)], 1)[:, rows.gather]
    with torch.autocast(video.device.type, enabled=False):
        temb = F.silu(model.time_embedder(model.time_proj(times.flatten()))).view(batch, 4, -1)
    table = rows.table.to(kind)
    for b in model.transformer_blocks:
        modulation = b.adaln_proj.linear(temb).view(batch, 12, -1).to(kind)
        h = block(b, h, modulation, table, (cos, sin))
    shift, scale = torch.matmul(rows.steps.to(kind), model.norm_out.linear(temb).to(kind)).chunk(2, -1)
    h = _rms(h, model.norm_out.norm) * (1 + scale) + shift
    with torch.autocast(video.device.type, enabled=False):
        return model.proj_out(h[:, rows.video].float()), model.audio_proj_out(h[:, rows.audio].float())


# ---- frozen components -------------------------------------------------------------------------------


def patchify(z: torch.Tensor) -> torch.Tensor:
    """[B, C, T, H, W] -> rows [B, T H/2 W/2, 4 C], columns (channel, dy, dx)."""
    b, c, t, h, w = z.shape
    return (
        z.reshape(b, c, t, h // 2, 2, w // 2, 2)
        .permute(0, 2, 3, 5, 1, 4, 6)
        .reshape(b, t * h * w // 4, 4 * c)
    )


def unpatchify(rows: torch.Tensor, t: int, h: int, w: int) -> torch.Tensor:
    """The inverse of `patchify`."""
    b, c = rows.shape[0], rows.shape[-1] // 4
    return rows.reshape(b, t, h // 2, w // 2, c, 2, 2).permute(0, 4, 1, 2, 5, 3, 6).reshape(b, c, t, h, w)


class Conditions:
    """Keyframes or references of one request: what the layout must know of them, and their rows."""

    def __init__(self, request: tasks.Request) -> None:
        sizes = {
            "image": (GRID, GRID),
            "audio": (tasks.AUDIO_REFERENCE_HOPS,),
            "video": (packing.latent_frames(tasks.VIDEO_REFERENCE_FRAMES), GRID, GRID),
        }
        self.kinds: list[tuple] = [(at,) for at in request.keyframes]
        self.kinds += [(r.kind, *sizes[r.kind]) for r in request.references]
        self.values: list[torch.Tensor | None] = [None] * len(self.kinds)

    def rows(self, sound: bool) -> torch.Tensor | None:
        """Rows of the sounds or of the pictures in packed order."""
        mine = [v for k, v in zip(self.kinds, self.values) if (k[0] == "audio") == sound]
        return torch.cat(mine) if mine else None


class Frozen:
    """VAEs and text encoder as shipped (native files); turns pictures and sound into normalised latents and
    back."""

    def __init__(self, folder: pathlib.Path, device: str) -> None:
        self.device = device
        self.video, self.audio = (m.build(0).to(device).eval() for m in (video_vae, audio_vae))
        self.statistics = {}
        for name, vae, read in (
            ("video", self.video, native.read_video_vae),
            ("audio", self.audio, native.read_audio_vae),
        ):
            values = read(folder / f"{name}_vae", vae)
            self.statistics[name] = tuple(torch.tensor(v, device=device, dtype=torch.float32) for v in values)
        self.encoder = text.Encoder(folder / "tokenizer", 0).to(device).eval()
        text.read(folder / "text_encoder", self.encoder)
        if device.startswith("cuda"):
            self.video.encoder.to(memory_format=torch.channels_last_3d)

    @torch.no_grad()
    def encode_video(self, frames: torch.Tensor, seed: int | None) -> torch.Tensor:
        """[B, F, H, W, 3] in 0..1, F = 1 or 17n + 5 -> normalised sampled latents [B, C, T, H/16, W/16].

        `seed` None draws fresh noise a clip; otherwise every clip gets the noise of that seed, as conditions
        do.
        """
        x = video_vae.normalise((frames * 255).round() / 255)
        cuda = self.device.startswith("cuda")
        parts = [x[:, :, i : i + 17] for i in range(0, x.shape[2], 17)]
        with torch.autocast("cuda", torch.bfloat16, enabled=cuda):
            full = [p for p in parts if p.shape[2] == 17]
            moments = []
            if full:
                out = self.video.quant_conv(self.video.encoder(torch.cat(full)))
                moments += list(out.split(x.shape[0]))
            if parts[-1].shape[2] != 17:
                moments.append(self.video.quant_conv(self.video.encoder(parts[-1])))
        mean, logvar = torch.cat(moments, 2).float().chunk(2, 1)
        if seed is None:
            noise = torch.randn_like(mean)
        else:
            noise = torch.randn(mean[:1].shape, generator=torch.Generator().manual_seed(seed)).to(mean.device)
        z = mean + torch.exp(0.5 * logvar.clamp(-30, 20)) * noise
        m, s = (v.view(1, -1, 1, 1, 1) for v in self.statistics["video"])
        return (z.half().float() - m) / s

    @torch.no_grad()
    def decode(self, video: torch.Tensor, audio: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Target rows [1, ...] of one clip -> frames [F, H, W, 3] uint8 and sound [2, samples]."""
        m, s = (v.view(1, -1, 1, 1, 1) for v in self.statistics["video"])
        z = unpatchify(video, packing.latent_frames(tasks.FRAMES), GRID, GRID) * s + m
        frames = video_vae.denormalise(self.video.decode(z).sample)[0]
        m, s = (v.view(1, -1, 1) for v in self.statistics["audio"])
        z = audio.reshape(2, -1, audio.shape[-1]).transpose(1, 2) * s + m
        return (frames * 255).round().byte().cpu().numpy(), self.audio.decode(z).sample[:, 0].cpu().numpy()

    @torch.no_grad()
    def encode_audio(self, audio: torch.Tensor) -> torch.Tensor:
        """[B, 2, samples] -> rows [B, 2 N, C], left rows first."""
        b = audio.shape[0]
        z = self.audio.encode(audio.reshape(2 * b, 1, -1)).latent_dist.mode()
        m, s = (v.view(1, -1, 1) for v in self.statistics["audio"])
        return ((z - m) / s).reshape(b, 2, z.shape[1], -1).transpose(2, 3).reshape(b, -1, z.shape[1])

    def conditions(self, requests: list[tasks.Request]) -> list[Conditions]:
        """What each request brings along, encoded in groups of one kind."""
        out = [Conditions(r) for r in requests]
        jobs: dict[tuple[str, int], list[tuple[int, int, world.Scenes]]] = {}
        for i, r in enumerate(requests):
            for j, at in enumerate(r.keyframes):
                jobs.setdefault(("still", 0 if at == "first" else tasks.FRAMES - 1), []).append(
                    (i, j, r.scene)
                )
            for j, reference in enumerate(r.references):
                jobs.setdefault((reference.kind, 0), []).append((i, j, reference.scene))
        for (kind, at), entries in jobs.items():
            scenes = world.concatenate([scene for _, _, scene in entries])
            length = tasks.FRAMES if kind == "still" else tasks.VIDEO_REFERENCE_FRAMES
            tracks = world.Tracks(world.Backend(self.device), scenes, length)
            if kind == "audio":
                rows = self.encode_audio(world.synthesise(tracks, 0, tasks.AUDIO_REFERENCE_HOPS))
            else:
                frames = world.render(tracks, at, length if kind == "video" else 1)
                rows = patchify(self.encode_video(frames, 42))
            for (i, j, _), value in zip(entries, rows.to(torch.bfloat16)):
                out[i].values[j] = value
        return out


# ---- data --------------------------------------------------------------------------------------------


class Bucket:
    """Clips that share a layout: values on the device, bf16."""

    def __init__(self, layout: packing.Layout, device: str) -> None:
        self.rows = Rows(layout, device)
        self.target: list[int] = []  # index into the pool
        self.states: list[torch.Tensor] = []
        self.video: list[torch.Tensor] = []  # condition rows
        self.audio: list[torch.Tensor] = []

    def close(self) -> None:
        """Stacks what was collected."""
        self.index = torch.tensor(self.target, device=self.rows.positions.device)
        self.states = torch.stack(self.states)
        self.video = torch.stack(self.video) if self.rows.layout.video_conditions else None
        self.audio = torch.stack(self.audio) if self.rows.layout.audio_conditions else None


class Pool:
    """Encoded clips of a partition and the requests that ask for them."""

    def __init__(self, args: argparse.Namespace, frozen: Frozen) -> None:
        self.args, self.frozen = args, frozen
        self.requests: list[tasks.Request] = []
        kinds = PARTITIONS[args.partition]
        share = args.clips // len(kinds)
        for i, task in enumerate(kinds):
            self.requests += tasks.make([args.seed, 31 + i, len(args.partition)], share, task)
        self.video, self.audio = self._targets()

    def _targets(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of all targets: [N, 2048, 64] and [N, 356, 16] bf16."""
        began, video, audio, step = time.monotonic(), [], [], 8
        torch.manual_seed(self.args.seed)
        for i in range(0, len(self.requests), step):
            scenes = world.concatenate([r.scene for r in self.requests[i : i + step]])
            tracks = world.Tracks(world.Backend(self.args.device), scenes, tasks.FRAMES)
            video.append(patchify(self.frozen.encode_video(world.render(tracks), None)).to(torch.bfloat16))
            audio.append(self.frozen.encode_audio(world.synthesise(tracks)).to(torch.bfloat16))
            if i % (step * 64) == 0:
                print(
                    f"flow: {i} of {len(self.requests)} clips encoded, {time.monotonic() - began:.0f} s",
                    flush=True,
                )
            if time.monotonic() - began > self.args.prepare_minutes * 60:
                kept = i + step
                print(f"flow: kept {kept} clips", flush=True)
                self.requests = self.requests[:kept]
                break
        return torch.cat(video), torch.cat(audio)

    @torch.no_grad()
    def buckets(self) -> list[Bucket]:
        """Embeds all requests, `--wordings` prompts a clip, and sorts them by layout."""
        batcher, step, began = text.Batcher(self.frozen.encoder, self.args.device), 64, time.monotonic()
        found: dict[tuple, Bucket] = {}
        for wording in range(self.args.wordings):
            for i in range(0, len(self.requests), step):
                part = self.requests[i : i + step]
                if wording and part[0].task == "ref2va":
                    continue
                if wording:
                    rng = np.random.default_rng([self.args.seed, wording, i])
                    part = [
                        tasks.Request(r.task, tasks.grammar.describe(rng, r.scene), r.scene, r.keyframes)
                        for r in part
                    ]
                batch = batcher(part)
                states, _ = self.frozen.encoder(batch)
                for j, (shown, brought) in enumerate(zip(batch["shown"], self.frozen.conditions(part))):
                    key = (tuple(shown.tags), tuple(brought.kinds))
                    if key not in found:
                        layout = packing.build(shown.tags, brought.kinds, tasks.FRAMES, GRID, GRID)
                        found[key] = Bucket(layout, self.args.device)
                    bucket = found[key]
                    bucket.target.append(i + j)
                    bucket.states.append(states[j, : len(shown.ids)].to(torch.bfloat16))
                    bucket.video.append(brought.rows(sound=False))
                    bucket.audio.append(brought.rows(sound=True))
        for bucket in found.values():
            bucket.close()
        print(f"flow: {len(found)} layouts, {time.monotonic() - began:.0f} s", flush=True)
        return list(found.values())


# ---- training ----------------------------------------------------------------------------------------


def shifted(u: torch.Tensor, s: float) -> torch.Tensor:
    """sigma of a base position."""
    return s * u / (1 + (s - 1) * u)


def times_of(u: torch.Tensor) -> torch.Tensor:
    """[B, 4] timesteps of the four classes."""
    t_video, t_audio = (1 - shifted(u, s) for s in SHIFTS)
    visual = torch.clamp(t_video, min=packing.VISUAL_LEVEL)
    return torch.stack([t_video, t_audio, visual, torch.ones_like(u)], -1)


def step_function(model: torch.nn.Module, pool: Pool, buckets: list[Bucket], args: argparse.Namespace):
    """step -> (loss, figures)."""
    sizes = np.array([len(b.target) for b in buckets], float)
    chance = sizes / sizes.sum()
    cuda = args.device.startswith("cuda")
    block = torch.compile(_block, dynamic=True) if args.compile else _block

    def run(step: int):
        rng = np.random.default_rng(trainer.step_seed(args.seed, step, 9))
        bucket = buckets[int(rng.choice(len(buckets), p=chance))]
        pick = torch.tensor(rng.integers(0, len(bucket.target), args.batch), device=args.device)
        gen = trainer.generator(args.device, args.seed, step)
        with torch.no_grad():
            target = bucket.index[pick]
            x0, a0 = pool.video[target].float(), pool.audio[target].float()
            nv, na = (torch.randn(x.shape, generator=gen, device=args.device) for x in (x0, a0))
            # One u in each of `batch` equal parts of (0, 1): the loss varies less.
            u = torch.arange(args.batch, device=args.device) + torch.rand(
                args.batch, generator=gen, device=args.device
            )
            times = times_of(u / args.batch)
            tv, ta = times[:, 0, None, None], times[:, 1, None, None]
            video, audio = tv * x0 + (1 - tv) * nv, ta * a0 + (1 - ta) * na
            if bucket.video is not None:
                clean = bucket.video[pick].float()
                noise = torch.randn(clean.shape, generator=gen, device=args.device)
                video = torch.cat(
                    [packing.VISUAL_LEVEL * clean + (1 - packing.VISUAL_LEVEL) * noise, video], 1
                )
            if bucket.audio is not None:
                audio = torch.cat([bucket.audio[pick].float(), audio], 1)
        with torch.autocast("cuda", torch.bfloat16, enabled=cuda):
            v, a = forward(model, bucket.rows, video, audio, bucket.states[pick].float(), times, block)
        layout = bucket.rows.layout
        loss_v = ((v[:, layout.video_conditions :] - (x0 - nv)) ** 2).mean()
        loss_a = ((a[:, layout.audio_conditions :] - (a0 - na)) ** 2).mean()
        return loss_v + loss_a, {"video": loss_v.detach(), "audio": loss_a.detach()}

    return run


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    trainer.add_arguments(parser, batch=32, lr=2e-3)
    parser.add_argument("--partition", choices=sorted(PARTITIONS), required=True)
    parser.add_argument(
        "--model", type=pathlib.Path, help="folder with the shipped VAEs, text encoder and tokenizer"
    )
    parser.add_argument("--clips", type=int, default=8192, help="clips to encode (default 8192)")
    parser.add_argument(
        "--prepare-minutes", type=float, default=3.0, help="stop encoding after so many minutes (default 3)"
    )
    parser.add_argument("--wordings", type=int, default=3, help="prompts a clip (default 3)")
    parser.add_argument(
        "--cache",
        type=pathlib.Path,
        help="file that keeps the encoded clips for the next run on this machine",
    )
    parser.add_argument(
        "--init", help="start from the weights of this other component of --state, as flow_fl2va"
    )
    parser.add_argument(
        "--export", type=pathlib.Path, help="write the native files to DIR/transformer instead of training"
    )
    args = parser.parse_args()
    model = build(args.seed).to(args.device)
    name = f"flow_{args.partition}"
    if args.init and not (args.state / f"{name}.json").exists():
        trainer.load_parameters(args.state, args.init, model)
    t = trainer.Trainer(name, model, args)
    if args.export:
        native.write_transformer(args.export / "transformer", model)
        return
    if args.device.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    began = time.monotonic()
    if args.cache and args.cache.exists():
        pool, buckets = torch.load(args.cache, weights_only=False, map_location=args.device)
    else:
        pool = Pool(args, Frozen(args.model, args.device))
        buckets = pool.buckets()
        pool.frozen = None
        if args.cache:
            torch.save((pool, buckets), args.cache)
    args.run_minutes -= (time.monotonic() - began) / 60
    t.run(step_function(model, pool, buckets, args))


if __name__ == "__main__":
    main()
