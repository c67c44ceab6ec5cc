"""Trains the audio VAE of duet-tiny: the released architecture (diffusers' module) at toy dimensions.

The network is mono: each channel of a scene's sound is one item. Every fourth step uses a few long pieces,
because the causal attention of the encoder has no positions and must meet the lengths it will be used at.

    loss = 1e-2 (mse + HIGH * mse of second differences) / s^2 + 2e-2 / 800 KL + spectral distance (log
    magnitudes, L1)

The second differences lift the ticks, which hold little of the energy, above the error of the notes.

`--export DIR` writes the native files (`audio_vae/`). NOT here: file layouts (`native.py`), the loop
(`trainer.py`).
"""

from __future__ import annotations

import argparse
import pathlib

import numpy as np
import torch

import fast_audio
import native
import options
import trainer
import world

CONFIG = dict(
    encoder_dim=4,
    encoder_rates=(2, 4, 4, 5, 5),
    latent_dim=128,
    latent_channels=16,
    num_attention_heads=8,
    decoder_dim=96,
    decoder_rates=(5, 5, 4, 4, 2),
    decoder_kernel_sizes=(9, 9, 8, 8, 4),
)
RESOLVE = 0.003  # standard deviation of the tolerated error: 34 dB under a tone
SPECTRA = 0.2
HIGH = 10.0
SHORT_HOPS, LONG_HOPS = 32, 160
WINDOWS = (2048, 512, 128)


def build(seed: int) -> torch.nn.Module:
    """The module with its initial weights."""
    from diffusers.models.autoencoders.autoencoder_kl_minimax_h3_audio import AutoencoderKLMiniMaxH3Audio

    torch.manual_seed(seed)
    z = CONFIG["latent_channels"]
    vae = AutoencoderKLMiniMaxH3Audio(**CONFIG, latents_mean=[0.0] * z, latents_std=[1.0] * z)
    with torch.no_grad():
        vae.logs_proj.weight.mul_(0.1)
        vae.logs_proj.bias.fill_(-1.5)
    return vae


def pieces(seed: int, step: int, items: int, hops: int, device: str, split: str = "train") -> torch.Tensor:
    """[items, 1, 800 * hops]: both channels of items / 2 scenes, at a random moment."""
    rng = np.random.default_rng(trainer.step_seed(seed, step, 2))
    scenes = world.sample_scenes(items // 2, trainer.step_seed(seed, step, 3), split=split)
    scenes.timbre = rng.integers(
        0, len(world.SHAPES), scenes.timbre.shape
    )  # sound references carry any timbre
    frames = int(rng.choice([107, 124, 158, 192]))
    total = world.frames_to_hops(frames)
    audio = world.synthesise(
        world.Tracks(world.Backend(device), scenes, frames), int(rng.integers(0, total - hops + 1)), hops
    )
    return with_ticks(rng, audio, hops).reshape(-1, 1, hops * world.HOP)


def with_ticks(rng: np.random.Generator, audio: torch.Tensor, hops: int) -> torch.Tensor:
    """Ticks at one hop in ten of every other scene. Bounces alone would put one in a hundred hops, too few
    to learn from."""
    where = (rng.random((len(audio), 1, hops)) < 0.1) & (rng.random((len(audio), 1, 1)) < 0.5)
    gains = torch.tensor(
        where * rng.uniform(0.1, 1.0, (len(audio), 2, hops)), dtype=torch.float32, device=audio.device
    )
    wave = torch.tensor(world.tick_wave(), device=audio.device)
    return audio + (gains[..., None] * wave).reshape(audio.shape)


class Core(torch.nn.Module):
    """Encode, sample, decode: the part worth compiling."""

    def __init__(self, vae: torch.nn.Module) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, x: torch.Tensor, noise: torch.Tensor):
        """x [B, 1, L] -> reconstruction, KL per latent frame (summed over channels)."""
        vae = self.vae
        h = vae.pre_block(vae.encoder(x).transpose(1, 2)).transpose(1, 2)
        mean, logs = vae.mean_proj(h), vae.logs_proj(h).clamp(-12.0, 4.0)
        y = vae.decoder(vae.dec_in_proj(mean + torch.exp(logs) * noise))
        kl = (0.5 * (mean * mean + torch.exp(2 * logs) - 1.0) - logs).sum(1).mean()
        return y, kl


def spectral_distance(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean absolute difference of log magnitudes over several window sizes."""
    total = 0.0
    for size in WINDOWS:
        window = torch.hann_window(size, device=x.device)
        a, b = (
            torch.stft(v.squeeze(1), size, size // 4, window=window, return_complex=True).abs()
            for v in (x, y)
        )
        scale = size**0.5
        total = total + (torch.log(a / scale + 1e-3) - torch.log(b / scale + 1e-3)).abs().mean()
    return total / len(WINDOWS)


def step_function(vae: torch.nn.Module, args: argparse.Namespace):
    """step -> (loss, figures)."""
    core = Core(vae)
    fast_audio.install(vae, args.compile)

    def run(step: int):
        hops = LONG_HOPS if step % 4 == 3 else SHORT_HOPS
        items = max(2, args.batch * SHORT_HOPS // hops // 2 * 2)
        with torch.no_grad():
            x = pieces(args.seed, step, items, hops, args.device)
            noise = torch.randn(
                (items, CONFIG["latent_channels"], hops),
                device=args.device,
                generator=trainer.generator(args.device, args.seed, step),
            )
        y, kl = core(x, noise)
        mse = ((y - x) ** 2).mean()
        spectra = spectral_distance(x, y)
        fit = mse / RESOLVE**2 * 1e-2
        sharp = ((y - x).diff(n=2) / 2).square().mean()
        loss = fit + HIGH * sharp / RESOLVE**2 * 1e-2 + 2e-2 / world.HOP * kl + SPECTRA * spectra
        snr = 10 * torch.log10((x**2).mean() / mse.detach())
        high = 10 * torch.log10((x.diff(n=2) / 2).square().mean() / sharp.detach())
        return loss, {"snr": snr, "high": high, "kl": kl.detach(), "spectra": spectra.detach()}

    return run


@torch.no_grad()
def latent_statistics(vae: torch.nn.Module, seed: int, device: str, clips: int = 32) -> tuple[list, list]:
    """Mean and deviation per channel; the deviation includes the posterior's own."""
    total, square, count = 0.0, 0.0, 0
    for i in range(0, clips, 8):
        posterior = vae.encode(pieces(seed + 1, 10_000_000 + i, 16, LONG_HOPS, device)).latent_dist
        z = posterior.mean.double()
        total = total + z.sum((0, 2))
        square = square + (z * z + posterior.std.double() ** 2).sum((0, 2))
        count += z.numel() // z.shape[1]
    mean = total / count
    return mean.tolist(), (square / count - mean * mean).clamp_min(1e-6).sqrt().tolist()


@torch.no_grad()
def evaluate(vae: torch.nn.Module, seed: int, device: str, clips: int = 16) -> dict:
    """Signal to error ratio on held-out scenes at the length of a clip."""
    x = pieces(seed + 2, 20_000_000, 2 * clips, LONG_HOPS, device, split="test")
    y = vae.decode(vae.encode(x).latent_dist.mode()).sample
    snr = 10 * torch.log10((x**2).mean((1, 2)) / ((x - y) ** 2).mean((1, 2)))
    return {
        "snr_db": float(snr.mean()),
        "snr_worst_db": float(snr.min()),
        "spectral": float(spectral_distance(x, y)),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    trainer.add_arguments(parser, batch=64, lr=1.5e-3)
    parser.add_argument("--init", type=pathlib.Path, help="start from the weights of this audio_vae/ folder")
    parser.add_argument(
        "--export", type=pathlib.Path, help="write the native files to DIR/audio_vae instead of training"
    )
    parser.add_argument("--evaluate", action="store_true", help="measure the state instead of training")
    args = parser.parse_args()
    trainer.check_arguments(args)
    vae = build(args.seed).to(args.device)
    if args.device.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    if args.init:
        with options.reading("init", args.init):
            native.read_audio_vae(args.init, vae)
    if args.evaluate or args.export:
        trainer.load_parameters(args.state, "audio_vae", vae)
    if args.evaluate:
        print(evaluate(vae, args.seed, args.device))
    elif args.export:
        trainer.require_complete(args.state, "audio_vae")
        mean, std = latent_statistics(vae, args.seed, args.device)
        native.write_audio_vae(args.export / "audio_vae", vae, mean, std)
    else:
        trainer.Trainer("audio_vae", vae, args).run(step_function(vae, args))


if __name__ == "__main__":
    main()
