"""The frozen components of duet-tiny as flow training and generation see them: pictures, sound and prompts in,
normalised latents and text states out, and latents back to clips.

Latents are sampled (targets with fresh noise, conditions with the noise of seed 42), rounded to fp16 as the
reference does, and normalised by the shipped statistics. NOT here: training (`flow.py`), pools of encoded clips
(`pool.py`), networks and files (`video_vae.py`, `audio_vae.py`, `text.py`, `native.py`).
"""

from __future__ import annotations

import pathlib

import numpy as np
import torch

import audio_vae
import native
import packing
import tasks
import text
import video_vae
import world

GRID = world.CANVAS // 16
PARTS = ("video", "audio", "text")


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
        mine = [v for k, v in zip(self.kinds, self.values) if (k[0] == "audio") == sound and v is not None]
        return torch.cat(mine) if mine else None


class Frozen:
    """VAEs and text encoder as shipped (native files). `parts` names what is read; the rest may not be there
    yet."""

    def __init__(self, folder: pathlib.Path, device: str, parts: tuple[str, ...] = PARTS) -> None:
        self.device = device
        self.statistics: dict[str, tuple[torch.Tensor, ...]] = {}
        if "video" in parts:
            self.video = video_vae.build(0).to(device).eval()
            self._read("video", native.read_video_vae(folder / "video_vae", self.video))
            if device.startswith("cuda"):
                self.video.encoder.to(memory_format=torch.channels_last_3d)
        if "audio" in parts:
            self.audio = audio_vae.build(0).to(device).eval()
            self._read("audio", native.read_audio_vae(folder / "audio_vae", self.audio))
        if "text" in parts:
            self.encoder = text.Encoder(folder / "tokenizer", 0).to(device).eval()
            text.read(folder / "text_encoder", self.encoder)

    def _read(self, name: str, values: tuple) -> None:
        """Keeps the mean and deviation of a VAE's latents."""
        self.statistics[name] = tuple(
            torch.tensor(v, device=self.device, dtype=torch.float32) for v in values
        )

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

    def sounds(self, scenes: list[world.Scenes]) -> torch.Tensor:
        """Rows of sound references, [N, rows, C] bf16."""
        tracks = world.Tracks(
            world.Backend(self.device), world.concatenate(scenes), tasks.VIDEO_REFERENCE_FRAMES
        )
        return self.encode_audio(world.synthesise(tracks, 0, tasks.AUDIO_REFERENCE_HOPS)).to(torch.bfloat16)

    @torch.no_grad()
    def conditions(self, requests: list[tasks.Request], sounds: bool = True) -> list[Conditions]:
        """What each request brings along, encoded in groups of one kind; without the sounds if asked so."""
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
            if kind == "audio":
                if sounds:
                    for (i, j, _), value in zip(entries, self.sounds([scene for _, _, scene in entries])):
                        out[i].values[j] = value
                continue
            length = tasks.FRAMES if kind == "still" else tasks.VIDEO_REFERENCE_FRAMES
            for group in self._groups(entries, 8 if kind == "video" else 32):
                scenes = world.concatenate([scene for _, _, scene in group])
                tracks = world.Tracks(world.Backend(self.device), scenes, length)
                frames = world.render(tracks, at, length if kind == "video" else 1)
                rows = patchify(self.encode_video(frames, 42)).to(torch.bfloat16)
                for (i, j, _), value in zip(group, rows):
                    out[i].values[j] = value
        return out

    def _groups(self, entries: list, size: int):
        """Groups of at most `size` entries; on a GPU all of that size, the last one filled up with copies: cuDNN looks
        for the best kernels anew at every size it meets."""
        for i in range(0, len(entries), size):
            group = entries[i : i + size]
            if self.device.startswith("cuda"):
                group = group + group[-1:] * (size - len(group))
            yield group
