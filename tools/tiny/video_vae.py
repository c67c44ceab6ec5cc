"""Trains the video VAE of duet-tiny: the released architecture (diffusers' module) at toy dimensions.

Each step renders a window of 22 frames (two encoder clips: 17 and 5 frames, one decoder chunk with its tail)
of fresh scenes, encodes, samples the posterior and decodes. 22 frames meet every situation a long clip has:
a full clip, the head of the next one, and the two latent frames that neighbouring chunks share.

    loss = 3072 * mse + 2 s^2 * KL   per latent voxel, divided by 3072   (s: the distortion the latents
    should resolve)

`--decoder` is the second stage: the encoder is frozen (so latents stay as they are) and the decoder goes on
from the state of the first stage, with the change of the error at the seam (from frame 16 to 17) and across
patch borders as additional losses.

`--export DIR` writes the native files (`video_vae/`) from the state, with latent mean and deviation measured
on fresh clips. NOT here: file layouts (`native.py`), the loop (`trainer.py`).
"""

from __future__ import annotations

import argparse
import pathlib

import numpy as np
import torch

import native
import options
import trainer
import world

CONFIG = dict(
    latent_channels=16,
    block_out_channels=(8, 16, 32, 64, 64),
    layers_per_block=1,
    spatial_downsample_factors=(2, 2, 2, 2, 1),
    temporal_downsample_factors=(1, 2, 2, 1, 1),
    norm_num_groups=4,
    decoder_num_layers=5,
    decoder_num_attention_heads=5,
    decoder_attention_head_dim=32,
)
PIXEL_MEAN, PIXEL_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WINDOW = 22
EDGE = 0.5  # weight of the borders between patches in the second stage
SEAM = 0.5  # weight of the seam's loss in the second stage
RESOLVE = 0.07  # standard deviation of the tolerated error, in normalised pixels (about 36 dB)


def build(seed: int) -> torch.nn.Module:
    """The module with its initial weights; LayerScale starts at 0.5, the register tokens at noise."""
    from diffusers.models.autoencoders.autoencoder_kl_minimax_h3 import AutoencoderKLMiniMaxH3

    torch.manual_seed(seed)
    z = CONFIG["latent_channels"]
    vae = AutoencoderKLMiniMaxH3(**CONFIG, latents_mean=(0.0,) * z, latents_std=(1.0,) * z)
    with torch.no_grad():
        for block in vae.decoder.transformer_blocks:
            block.scale1.fill_(0.5)
            block.scale2.fill_(0.5)
        vae.decoder.register_tokens.normal_(0, 0.02)
        vae.quant_conv.weight[z:].mul_(0.1)
        vae.quant_conv.bias[z:].fill_(-2.0)
    return vae


def normalise(frames: torch.Tensor) -> torch.Tensor:
    """[B, F, H, W, 3] in 0..1 -> [B, 3, F, H, W] in ImageNet units."""
    mean, std = (torch.tensor(v, device=frames.device) for v in (PIXEL_MEAN, PIXEL_STD))
    return ((frames - mean) / std).permute(0, 4, 1, 2, 3)


def denormalise(x: torch.Tensor) -> torch.Tensor:
    """The inverse of `normalise`, clamped."""
    mean, std = (torch.tensor(v, device=x.device) for v in (PIXEL_MEAN, PIXEL_STD))
    return (x.permute(0, 2, 3, 4, 1) * std + mean).clamp(0, 1)


def windows(
    seed: int,
    step: int,
    batch: int,
    device: str,
    split: str = "train",
    frames: int = WINDOW,
    width: int = world.CANVAS,
) -> torch.Tensor:
    """A batch of normalised windows, each out of a clip of 4.5 to 8 s, at a random moment."""
    rng = np.random.default_rng(trainer.step_seed(seed, step))
    scenes = world.sample_scenes(batch, trainer.step_seed(seed, step, 1), split=split)
    length = int(rng.choice([107, 124, 158, 192]))
    tracks = world.Tracks(world.Backend(device), scenes, length, width=width)
    return normalise(world.render(tracks, int(rng.integers(0, length - frames + 1)), frames))


def patch_edges(error: torch.Tensor) -> torch.Tensor:
    """Mean size of the change of the error across the borders of 16 px patches; tiles meet there. Not squared:
    faint steps in flat areas count as they are seen."""
    across, down = error[..., 16::16] - error[..., 15:-1:16], error[..., 16::16, :] - error[..., 15:-1:16, :]
    return across.abs().mean() + down.abs().mean()


class Core(torch.nn.Module):
    """Encode, sample, decode one chunk: the part worth compiling."""

    def __init__(self, vae: torch.nn.Module, freeze: bool) -> None:
        super().__init__()
        self.vae, self.freeze = vae, freeze

    def moments(self, x: torch.Tensor) -> torch.Tensor:
        """Mean and log variance of both clips."""
        vae = self.vae
        with torch.set_grad_enabled(not self.freeze):
            return torch.cat(
                [vae.quant_conv(vae.encoder(x[:, :, :17])), vae.quant_conv(vae.encoder(x[:, :, 17:]))], 2
            )

    def forward(self, x: torch.Tensor, noise: torch.Tensor):
        """x [B, 3, 22, H, W] -> reconstruction in fp32, KL per latent voxel (summed over channels)."""
        vae, moments = self.vae, self.moments(x)
        mean, logvar = moments.float().chunk(2, 1)
        logvar = logvar.clamp(-30.0, 20.0)
        z = mean + torch.exp(0.5 * logvar) * noise
        raw = vae.decoder(vae.post_quant_conv(z)).float()
        kl = 0.5 * (mean * mean + logvar.exp() - 1.0 - logvar).sum(1).mean()
        return torch.cat([raw[:, :, 3:20], raw[:, :, 23:28]], 2), kl


def step_function(vae: torch.nn.Module, args: argparse.Namespace):
    """step -> (loss, figures)."""
    core = Core(vae, args.decoder)
    if args.compile:
        core = torch.compile(core)
    cuda = args.device.startswith("cuda")
    scale = torch.tensor(PIXEL_STD, device=args.device)[None, :, None, None, None]
    shape = (args.batch, CONFIG["latent_channels"], 7, 16, 16)

    def run(step: int):
        with torch.no_grad():
            x = windows(args.seed, step, args.batch, args.device)
            noise = torch.randn(
                shape, generator=trainer.generator(args.device, args.seed, step), device=args.device
            )
        if cuda:
            x = x.contiguous(memory_format=torch.channels_last_3d)
        with torch.autocast("cuda", torch.bfloat16, enabled=cuda):
            y, kl = core(x, noise)
        error = (y - x) * scale
        mse = ((y - x) ** 2).mean()
        if args.decoder:
            change = (y - x)[:, :, 17] - (y - x)[:, :, 16]
            loss = mse + SEAM * (change**2).mean() + EDGE * patch_edges(y - x)
        else:
            loss = mse + 2 * RESOLVE**2 / 3072 * kl
        return loss, {"psnr": -10 * torch.log10((error.detach() ** 2).mean()), "kl": kl.detach()}

    return run


@torch.no_grad()
def reconstruct(vae: torch.nn.Module, x: torch.Tensor, sample: bool = False) -> torch.Tensor:
    """Through the reference's own chunking and tiling, fp32."""
    posterior = vae.encode(x).latent_dist
    return vae.decode(posterior.sample() if sample else posterior.mode()).sample


@torch.no_grad()
def latent_statistics(vae: torch.nn.Module, seed: int, device: str, clips: int = 48) -> tuple[list, list]:
    """Mean and deviation of sampled latents per channel over fresh windows."""
    total, square, count = 0.0, 0.0, 0
    for i in range(0, clips, 4):
        posterior = vae.encode(windows(seed + 1, 10_000_000 + i, 4, device)).latent_dist
        z = posterior.mean.double()
        total = total + z.sum((0, 2, 3, 4))
        square = square + (z * z + posterior.std.double() ** 2).sum((0, 2, 3, 4))
        count += z.numel() // z.shape[1]
    mean = total / count
    return mean.tolist(), (square / count - mean * mean).clamp_min(1e-6).sqrt().tolist()


@torch.no_grad()
def evaluate(vae: torch.nn.Module, seed: int, device: str, clips: int = 8, frames: int = 56) -> dict:
    """PSNR on held-out scenes, and how much the error changes at chunk seams against elsewhere."""
    mse, seam, other = [], [], []
    for i in range(clips):
        x = windows(seed + 2, 20_000_000 + i, 1, device, split="test", frames=frames)
        a, b = denormalise(x), denormalise(reconstruct(vae, x))
        error = (a - b)[0]
        mse.append((error**2).mean().item())
        change = (error[1:] - error[:-1]).abs().mean((1, 2, 3))
        at = torch.arange(1, frames) % 17 == 0
        seam.append(change[at].mean().item())
        other.append(change[~at].mean().item())
    psnr = [-10 * np.log10(m) for m in mse]
    return {
        "psnr_mean_db": float(np.mean(psnr)),
        "psnr_of_mean_mse_db": float(-10 * np.log10(np.mean(mse))),
        "psnr_worst_db": float(np.min(psnr)),
        "seam_ratio": float(np.mean(seam) / np.mean(other)),
    }


def load(state: pathlib.Path, vae: torch.nn.Module, init: pathlib.Path | None) -> None:
    """The trained weights: the first stage, then the decoder of the second if it has begun."""
    if init:
        native.read_video_vae(init, vae)
    else:
        trainer.load_parameters(state, "video_vae", vae)
    if (state / "video_vae_decoder.json").exists():
        trainer.load_parameters(state, "video_vae_decoder", decoder_of(vae))


def decoder_of(vae: torch.nn.Module) -> torch.nn.Module:
    """The part the second stage trains."""
    return torch.nn.ModuleDict({"decoder": vae.decoder, "post_quant_conv": vae.post_quant_conv})


def open_stage(vae: torch.nn.Module, args: argparse.Namespace) -> trainer.Trainer | None:
    """The trainer of the stage asked for; none when the state is only to be read."""
    if args.evaluate or args.export:
        load(args.state, vae, args.init)
        return None
    if not args.decoder:
        return trainer.Trainer("video_vae", vae, args)
    if args.init:
        with options.reading("init", args.init):
            native.read_video_vae(args.init, vae)
    else:
        trainer.load_parameters(args.state, "video_vae", vae)
    return trainer.Trainer("video_vae_decoder", decoder_of(vae), args)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    trainer.add_arguments(parser, batch=16, lr=1.5e-3)
    parser.add_argument(
        "--init", type=pathlib.Path, help="first stage from this video_vae/ folder, not the state"
    )
    parser.add_argument(
        "--decoder", action="store_true", help="second stage: the decoder alone, with the seam's loss"
    )
    parser.add_argument(
        "--export", type=pathlib.Path, help="write the native files to DIR/video_vae instead of training"
    )
    parser.add_argument("--evaluate", action="store_true", help="measure the state instead of training")
    args = parser.parse_args()
    trainer.check_arguments(args)
    vae = build(args.seed).to(args.device)
    if args.device.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    t = open_stage(vae, args)
    if args.evaluate:
        print(evaluate(vae, args.seed, args.device))
    elif args.export:
        for name in ("video_vae", "video_vae_decoder"):
            if (args.state / f"{name}.json").exists():
                trainer.require_complete(args.state, name)
        # A second stage that began from shipped files keeps their encoder, so it keeps their statistics.
        other = build(args.seed)
        kept = native.read_video_vae(args.init, other) if args.init else None
        mean, std = kept or latent_statistics(vae, args.seed, args.device)
        native.write_video_vae(args.export / "video_vae", vae, mean, std)
    else:
        t.run(step_function(vae, args))


if __name__ == "__main__":
    main()
