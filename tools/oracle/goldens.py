#!/usr/bin/env python3
"""Goldens that need no checkpoint: noise, schedules, solver, positions, embeddings of time, geometry, tiles.

    goldens.py OUT            writes OUT/*.safetensors

Every value is computed by a function of the reference (diffusers) or of torch, never by a formula written here; the
exceptions are named at their place. `docs/oracle.md` lists the tensors of each file.
"""

import hashlib
import os
import sys

import environment
import numpy as np
import tensors
import torch

SEEDS = (0, 1, 42, 1 << 31, (1 << 32) - 1, (1 << 32) + 5, (1 << 63) - 1)
SMALL = list(range(1, 41)) + [47, 48, 49, 63, 64, 65]
LARGE = [623, 624, 625, 640, 1000, 4096, 100001]
# One generator, many draws: a small draw leaves half of its pair behind for the next small one, large or not between.
SEQUENCES = ([5, 64, 3, 17, 100, 1, 640, 2], [1, 1, 16, 1, 15, 31, 7], [96 * 7, 64, 9, 9], [640, 1, 624, 1])

SHIFTS = (12.0, 3.0, 7.5, 2.2, 6.0, 1.1, 1.0, 0.3)
POINTS = list(range(2, 62)) + [99, 100, 101, 150, 199, 200, 201]


def f32(values):
    return torch.tensor(values, dtype=torch.float32)


def noise():
    """`randn.SEED.N`, for large N the ends and a hash; `sequence.I.J`; `request.*`, the streams of one request."""
    out, meta = {}, {}
    for seed in SEEDS:
        draw = lambda n: torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
        for n in SMALL:
            out[f"randn.{seed}.{n}"] = draw(n)
        for n in LARGE:
            values = draw(n)
            out[f"randn_ends.{seed}.{n}"] = torch.cat([values[:32], values[-32:]])
            meta[f"randn_sha256.{seed}.{n}"] = hashlib.sha256(values.numpy().tobytes()).hexdigest()
    for i, sizes in enumerate(SEQUENCES):
        generator = torch.Generator().manual_seed(42 + i)
        for j, n in enumerate(sizes):
            out[f"sequence.{i}.{j}"] = torch.randn(n, generator=generator)
    meta["sequences"] = [{"seed": 42 + i, "sizes": sizes} for i, sizes in enumerate(SEQUENCES)]
    request_streams(out, meta)
    return out, meta


def request_streams(out, meta):
    """Target rows of one request under both conventions; rows come from the reference's own patchify."""
    from diffusers.modular_pipelines.minimax_h3.before_denoise import patchify_video_latents

    seed, channels, frames, height, width, audio_channels, audio = 7, 6, 7, 4, 6, 8, 37
    shape = (1, channels, frames, height, width)
    for patch in ((1, 2, 2), (1, 1, 1)):
        shared = torch.Generator().manual_seed(seed)
        video = torch.randn(shape, generator=shared)
        continued = torch.randn((2 * audio, audio_channels), generator=shared)
        fresh = torch.randn((2 * audio, audio_channels), generator=torch.Generator().manual_seed(seed))
        name = f"request.patch_{patch[2]}"
        out[f"{name}.video"] = patchify_video_latents(video, patch)
        out[f"{name}.audio_diffusers"] = continued
        out[f"{name}.audio_sglang"] = fresh
    meta["request"] = {"seed": seed, "latent": shape, "audio": [2 * audio, audio_channels]}
    # The draw that the specification publishes figures of: 1344x768, 124 frames.
    generator = torch.Generator().manual_seed(42)
    full = torch.randn((1, 24, 37, 48, 84), generator=generator)
    out["released.video_ends"] = torch.cat([full.flatten()[:32], full.flatten()[-32:]])
    out["released.audio_diffusers"] = torch.randn((414, 32), generator=generator).flatten()[:32]
    meta["released.video_sha256"] = hashlib.sha256(full.numpy().tobytes()).hexdigest()


def schedules():
    """`sigmas.SHIFT.N`, `timesteps.SHIFT.N`, and `ladder.*`: base positions under each shift."""
    from diffusers import MiniMaxH3Scheduler

    out = {}
    for shift in SHIFTS:
        for points in POINTS:
            scheduler = MiniMaxH3Scheduler(shift=shift)
            scheduler.set_timesteps(points)
            out[f"sigmas.{shift:g}.{points}"] = scheduler.sigmas
            if points in (5, 8, 9, 50):
                out[f"timesteps.{shift:g}.{points}"] = scheduler.timesteps
    for points in POINTS:
        out[f"linspace.{points}"] = torch.linspace(1.0, 0.0, points, dtype=torch.float32)
    # The reference cannot take base positions; this is its shift expression, applied to them.
    base = f32([0.999, 0.749, 0.5, 0.25, 0.0])
    out["ladder.base"] = base
    for shift in SHIFTS:
        out[f"ladder.{shift:g}"] = shift * base / (1 + (shift - 1) * base)
    return out, {"shifts": SHIFTS, "points": POINTS}


def solver():
    """`euler.NAME.{velocity,samples}`: whole runs, row 0 of samples is the start; `euler.NAME.sigmas`."""
    from diffusers import MiniMaxH3Scheduler

    out, width = {}, 16
    generator = torch.Generator().manual_seed(3)
    runs = [
        ("n5", 12.0, 5, None),
        ("n9", 3.0, 9, None),
        ("n50_video", 12.0, 50, None),
        ("n50_audio", 3.0, 50, None),
    ]
    runs.append(("given", 1.0, None, [0.95, 0.7, 0.31, 0.02, 0.0]))
    for name, shift, points, sigmas in runs:
        scheduler = MiniMaxH3Scheduler(shift=shift)
        scheduler.set_timesteps(points, sigmas=sigmas)
        samples = [torch.randn(width, generator=generator)]
        velocity = torch.randn(len(scheduler.timesteps), width, generator=generator)
        for t, v in zip(scheduler.timesteps, velocity):
            samples.append(scheduler.step(v, t, samples[-1], return_dict=False)[0])
        out[f"euler.{name}.velocity"] = velocity
        out[f"euler.{name}.samples"] = torch.stack(samples)
        out[f"euler.{name}.sigmas"] = scheduler.sigmas
    return out, {}


LAYOUTS = [  # text rows, frames, canvas height, width, patch width
    (1, 22, 64, 96, 2),
    (9, 22, 32, 32, 2),
    (17, 39, 96, 64, 2),
    (5, 22, 80, 112, 1),
    (300, 56, 64, 64, 2),
    (33, 107, 32, 64, 2),
]


def positions():
    """`layout.I.*` whole packed sequences; `axis.LENGTH.OTHER.PATCH` spatial axes; `clock.ORIGIN` 107 latent frames."""
    from diffusers.modular_pipelines.minimax_h3 import before_denoise as stage
    from diffusers.modular_pipelines.minimax_h3.modular_pipeline import (
        audio_latent_num_frames,
        video_latent_num_frames,
    )

    out, described = {}, []
    for index, (text, frames, height, width, patch) in enumerate(LAYOUTS):
        latent_frames = video_latent_num_frames(frames, 17, 5)
        audio = audio_latent_num_frames(frames)
        tags = torch.ones(text, dtype=torch.long)
        packed = stage.MiniMaxH3PrepareLayoutStep.build_packed_sequence(
            tags, latent_frames, height // 16, width // 16, audio, (1, patch, patch), 2, 2, 0
        )
        position_ids, token_tags, video_rows, audio_rows, _, _, _ = packed
        out[f"layout.{index}.position_ids"] = position_ids
        out[f"layout.{index}.token_tags"] = token_tags.to(torch.int32)
        for name, times in (("start", (0.0, 0.0)), ("later", (0.25, 0.5)), ("swapped", (0.75, 0.5))):
            unique, rows = stage.MiniMaxH3SetTimestepsStep.build_row_timesteps(
                video_rows, audio_rows, 0, 0, text, times[0], times[1], 0.999, 1.0
            )
            out[f"layout.{index}.{name}.timesteps"] = unique
            out[f"layout.{index}.{name}.indices"] = rows.to(torch.int32)
        described.append({"text": text, "frames": frames, "height": height, "width": width, "patch": patch})
    spatial_axes(stage, out)
    for origin in (0, 1, 512, 7000):
        out[f"clock.{origin}"] = stage._temporal_position_grid(107, float(origin))
    return out, {
        "layouts": described,
        "times": {"start": [0, 0], "later": [0.25, 0.5], "swapped": [0.75, 0.5]},
    }


def spatial_axes(stage, out):
    canvases = [
        (768, 1344),
        (480, 864),
        (768, 768),
        (672, 1536),
        (512, 2016),
        (544, 960),
        (480, 480),
        (464, 496),
    ]
    for height, width in canvases:
        h, w = height // 16, width // 16
        for patch in (1, 2):
            if h % patch or w % patch:
                continue
            for length, other in ((h, w), (w, h)):
                axis = stage._spatial_position_grid(length, patch, np.sqrt(h * w))
                out[f"axis.{length}.{other}.{patch}"] = axis


def embeddings():
    """Timestep features, rotary frequencies and tables of the transformer and of the video decoder, audio filter."""
    from diffusers.models.autoencoders.autoencoder_kl_minimax_h3 import MiniMaxH3VideoRotaryPosEmbed
    from diffusers.models.autoencoders.autoencoder_kl_minimax_h3_audio import kaiser_sinc_filter1d
    from diffusers.models.embeddings import Timesteps
    from diffusers.models.transformers.transformer_minimax_h3 import MiniMaxH3RotaryPosEmbed

    out = {}
    times = f32([0.0, 0.0017331243, 0.0294117928, 0.0769230723, 0.25, 0.5, 0.70000005, 0.9411765, 0.999, 1.0])
    out["time.t"] = times
    for width in (8, 10, 16, 18, 256):
        out[f"time.features.{width}"] = Timesteps(width, flip_sin_to_cos=True, downscale_freq_shift=0)(times)
    rows = torch.tensor(
        [
            [0, 0, 0],
            [5, 0, 0],
            [512, 3.905136863704, -5.166010488516],
            [700.333, 27.08, 36.158],
            [1199, 0, 31],
        ]
    )
    out["rope.positions"] = rows.to(torch.float64)
    for n in (1, 2, 3, 4, 5, 16):
        for theta in (10000.0, 500.0):
            rope = MiniMaxH3RotaryPosEmbed(n, theta)
            out[f"rope.inv_freq.{n}.{theta:g}"] = rope.inv_freq
        cos, sin = MiniMaxH3RotaryPosEmbed(n, 10000.0)(rows.to(torch.float64))
        out[f"rope.cos.{n}"], out[f"rope.sin.{n}"] = cos, sin
    for dim, theta in ((6, 100.0), (6, 50.0), (12, 100.0), (12, 200.0), (24, 100.0), (48, 100.0)):
        out[f"vvae_rope.inv_freq.{dim}.{theta:g}"] = MiniMaxH3VideoRotaryPosEmbed(dim, theta).inv_freq
    for size in range(1, 33):
        # The decoder's own expression: it builds the axis inside its forward.
        out[f"vvae_rope.axis.{size}"] = 2.0 * (torch.arange(0.5, size, dtype=torch.float32) / size) - 1.0
    out["avae.filter"] = kaiser_sinc_filter1d(0.25, 0.3, 12).flatten()
    return out, {}


def geometry():
    """Frame counts, canvases, tile tables. Tiles of all lengths are laid end to end, `tiles.count` says how many."""
    from diffusers import AutoencoderKLMiniMaxH3
    from diffusers.modular_pipelines.minimax_h3 import modular_pipeline as rules

    out = {}
    frames = list(range(1, 401))
    snapped = [rules.align_num_frames(n, 17, 5) for n in frames]
    out["frames.snapped"] = np.array(snapped, np.int32)
    out["frames.latent"] = np.array([rules.video_latent_num_frames(n, 17, 5) for n in snapped], np.int32)
    out["frames.audio"] = np.array([rules.audio_latent_num_frames(n) for n in snapped], np.int32)
    out["canvas"] = canvases(rules)

    vae = AutoencoderKLMiniMaxH3.__new__(AutoencoderKLMiniMaxH3)
    torch.nn.Module.__init__(vae)
    vae.spatial_compression_ratio = 16
    lengths = list(range(16, 4097, 16))
    tables = [vae._split_tiles(length, 256, 64) for length in lengths]
    out["tiles.count"] = np.array([len(starts) for starts, _, _ in tables], np.int32)
    out["tiles.start"] = np.array(sum((starts for starts, _, _ in tables), []), np.int32)
    out["tiles.length"] = np.array(sum((sizes for _, sizes, _ in tables), []), np.int32)
    out["tiles.overlap"] = np.array(sum((overlaps + [0] for _, _, overlaps in tables), []), np.int32)
    return out, {
        "frames": "index + 1",
        "canvas": "ratio w, ratio h, multiple, short edge, max pixels, width, height",
    }


def canvases(rules):
    rows = []
    ratios = [(21, 9), (16, 9), (3, 2), (4, 3), (1, 1), (3, 4), (2, 3), (9, 16), (9, 21), (4, 1), (1, 4)]
    edges = [(768, 768 * 1344), (480, 768 * 1344), (512, 768 * 1344), (544, 768 * 1344), (720, 768 * 1344)]
    edges += [(1440, 768 * 1344), (256, 256 * 448), (64, 64 * 112), (96, 96 * 160)]
    for multiple in (16, 32):
        for edge, pixels in edges:
            for w, h in ratios:
                height, width = rules.resolve_canvas_size(w, h, multiple, edge, pixels)
                rows.append([w, h, multiple, edge, pixels, width, height])
    return np.array(rows, np.int32)


FILES = {f.__name__: f for f in (noise, schedules, solver, positions, embeddings, geometry)}


def main():
    environment.require_vectors()
    folder = sys.argv[1]
    for name, make in FILES.items():
        values, meta = make()
        path = os.path.join(folder, f"{name}.safetensors")
        tensors.write(path, values, {**meta, "environment": environment.describe()})
        print(f"{path}: {len(values)} tensors, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
