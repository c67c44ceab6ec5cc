"""Writes the native file layout of the released model from the reference modules used in training.

The reference (diffusers) modules are conversions of the native layout; this file is the way back:

 1. Fused projections. Transformer `qkv_proj` and ViT `to_qkv` rows are interleaved per head: head 0 q, k, v,
    head 1 q, k, v, ...
 2. Gated feed-forward. Native first matrices are [gate; value], the reference keeps [value; gate].
 3. Storage. VAEs are fp32. The transformer is bf16 except patch projections, time embedder, output heads and
    `rope.inv_freq`, which are fp32.

Names follow the released index files. Every writer fills one folder of a partition; which there are stands here too.
"""

from __future__ import annotations

import json
import pathlib

import torch
from safetensors.torch import load_file, save_file

import jsonfile

PARTITIONS = {"fl2va": ("t2va", "fl2va"), "ref2va": ("ref2va",)}  # their tasks
FOLDERS = {"fl2va": "FL2VA", "ref2va": "Ref2VA"}  # theirs in a model
FIRST = FOLDERS["fl2va"]  # holds what the partitions share
SHARD = "model-00001-of-00001.safetensors"  # of the text encoder and the transformers
FP32_PREFIXES = (
    "video_patch_proj.",
    "audio_patch_proj.",
    "time_embedder.",
    "final_layer.video_out.",
    "final_layer.audio_out.",
)


def folder_of(task: str) -> str:
    """The folder of the partition that does a task."""
    return next(FOLDERS[name] for name, tasks in PARTITIONS.items() if task in tasks)


def interleave_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, heads: int) -> torch.Tensor:
    """Three head-major projections (weights or biases) -> one, rows grouped head by head as q, k, v."""
    parts = [t.reshape(heads, -1, *t.shape[1:]) for t in (q, k, v)]
    return torch.cat(parts, 1).reshape(-1, *q.shape[1:]).contiguous()


def swap_halves(t: torch.Tensor) -> torch.Tensor:
    """[value; gate] -> [gate; value]."""
    value, gate = t.chunk(2, 0)
    return torch.cat([gate, value], 0).contiguous()


def save(tensors: dict[str, torch.Tensor], path: pathlib.Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, path, metadata={"format": "pt"})
    path.chmod(0o644)


def write_shard(folder: pathlib.Path, tensors: dict[str, torch.Tensor]) -> None:
    """A sharded checkpoint of one shard, with its index."""
    save(tensors, folder / SHARD)
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    jsonfile.write(
        folder / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": {k: SHARD for k in sorted(tensors)}},
    )


# ---- video VAE ---------------------------------------------------------------------------------------


def _video_name(key: str) -> str:
    """Native name of a video VAE tensor that is neither q, k nor v."""
    name = key.replace("down_blocks.", "down.").replace(".resnets.", ".block.")
    name = name.replace("conv_shortcut.", "nin_shortcut.").replace("downsamplers.0.", "downsample.")
    name = name.replace("decoder.proj_in.", "decoder.x_embedder.").replace(".attn.to_out.0.", ".attn.to_out.")
    return name.replace(".ff.net.0.proj.", ".ff.w1.").replace(".ff.net.2.", ".ff.w2.")


def video_vae_tensors(vae: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Native names and row orders of `AutoencoderKLMiniMaxH3`."""
    state, heads = vae.state_dict(), vae.config.decoder_num_attention_heads
    out: dict[str, torch.Tensor] = {}
    for key, tensor in state.items():
        if ".attn.to_q." in key:
            k, v = (state[key.replace("to_q", name)] for name in ("to_k", "to_v"))
            out[key.replace("to_q", "to_qkv")] = interleave_heads(tensor, k, v, heads)
            continue
        if ".attn.to_k." in key or ".attn.to_v." in key:
            continue
        name = _video_name(key)
        if name.endswith((".ff.w1.weight", ".ff.w1.bias")):
            tensor = swap_halves(tensor)
        out[name] = tensor
    out["decoder.mask_token"] = torch.zeros_like(state["decoder.register_tokens"][:, :1])
    return {k: v.float() for k, v in out.items()}


def write_video_vae(folder: pathlib.Path, vae: torch.nn.Module, mean: list[float], std: list[float]) -> None:
    """`video_vae/`: config.json (runtime), source/config.json (architecture), source/model.safetensors."""
    c = vae.config
    ch = c.block_out_channels[0]
    jsonfile.write(
        folder / "config.json",
        {
            "_class_name": "MiniMaxH3VideoVAE",
            "mode": "standalone",
            "source_path": "source",
            "source_class_name": "AutoencoderKLLegacy",
            "source_safetensors_path": "model.safetensors",
            "vae_clip_length": c.clip_length,
            "vae_token_drop": c.token_drop,
            "vae_encoder_tiling": 1,
            "vae_decoder_tiling": 1,
            "vae_parallel_tiling": 1,
            "vae_tile_size": 256,
            "vae_tile_overlap_min": 64,
            "vae_encoder_parallel": 0,
            "vae_decoder_parallel": 0,
            "vae_chunk_dim": -1,
            "latent_channels": c.latent_channels,
            "latents_mean": mean,
            "latents_std": std,
        },
    )
    jsonfile.write(
        folder / "source" / "config.json",
        {
            "_class_name": "AutoencoderKLLegacy",
            "causal_decoder": False,
            "causal_encoder": True,
            "ch": ch,
            "ch_mult": [n // ch for n in c.block_out_channels],
            "embed_dim": c.latent_channels,
            "in_channels": c.in_channels,
            "norm_num_groups": c.norm_num_groups,
            "num_res_blocks": c.layers_per_block,
            "num_res_blocks_decoder": None,
            "out_ch": c.out_channels,
            "padding_mode": c.spatial_padding_mode,
            "padding_mode_t": None,
            "pixel_norm_type": "imagenet",
            "scaling_factor": 1.0,
            "shift_factor": 0.0,
            "space_down": list(c.spatial_downsample_factors),
            "space_up": None,
            "time_down": list(c.temporal_downsample_factors),
            "time_up": None,
            "use_3d_conv": True,
            "use_t_isolated_gn": True,
            "use_vit_decoder": True,
            "vae_ratio": vae.spatial_compression_ratio,
            "vae_ratio_t": vae.temporal_compression_ratio,
            "vit_decoder_kwargs": {
                "dim_head": c.decoder_attention_head_dim,
                "ffn_activation_fn": "silu",
                "ffn_use_gated": True,
                "heads": c.decoder_num_attention_heads,
                "norm_affine": True,
                "norm_type": "rms_norm",
                "num_layers": c.decoder_num_layers,
                "qk_norm_affine": False,
                "qk_norm_type": "rms_norm",
                "rope_dim_ratio": c.decoder_rope_dim_ratio,
                "rope_theta": c.decoder_rope_theta,
            },
            "z_channels": c.latent_channels,
            "zq_ch_decoder": None,
            "zq_ch_encoder": None,
        },
    )
    save(video_vae_tensors(vae), folder / "source" / "model.safetensors")


# ---- audio VAE ---------------------------------------------------------------------------------------


def write_audio_vae(folder: pathlib.Path, vae: torch.nn.Module, mean: list[float], std: list[float]) -> None:
    """`audio_vae/`: config.json, config.yaml, metadata.json, model.safetensors (names as they are, weight
    norm unfolded)."""
    c = vae.config
    jsonfile.write(
        folder / "config.json",
        {
            "_class_name": "MiniMaxH3AudioVAE",
            "output_channel": 2,
            "sample_rate": c.sampling_rate,
            "source_config_path": "config.yaml",
            "source_safetensors_path": "model.safetensors",
            "source_metadata_path": "metadata.json",
            "latent_channels": c.latent_channels,
            "latents_mean": mean,
            "latents_std": std,
        },
    )
    (folder / "config.yaml").write_text(
        f"model_config:\n  sr: {c.sampling_rate}\n  decoder_dim: {c.decoder_dim}\n  audio_channel: 1\n"
        f"  vae_latent_channels: {c.latent_channels}\n"
    )
    jsonfile.write(
        folder / "metadata.json",
        {
            "metadata": {
                "kwargs": {
                    "attn_proj": True,
                    "decoder_dim": c.decoder_dim,
                    "decoder_rates": list(c.decoder_rates),
                    "decoder_type": "bigvgan",
                    "encoder_dim": c.encoder_dim,
                    "encoder_rates": list(c.encoder_rates),
                    "latent_dim": c.latent_dim,
                    "sample_rate": c.sampling_rate,
                    "vae_latent_channels": c.latent_channels,
                }
            }
        },
    )
    save({k: v.float() for k, v in vae.state_dict().items()}, folder / "model.safetensors")


# ---- transformer -------------------------------------------------------------------------------------

_RENAMES = (
    ("audio_proj_in.", "audio_patch_proj."),
    ("audio_proj_out.", "final_layer.audio_out."),
    ("context_embedder.", "condition_proj."),
    ("time_embedder.linear_1.", "time_embedder.proj_in."),
    ("time_embedder.linear_2.", "time_embedder.proj_out."),
    ("norm_out.norm.", "final_layer.norm."),
    ("norm_out.linear.", "final_layer.adaln_proj.linear."),
)


def _transformer_name(key: str) -> str:
    """Native name of a tensor that is neither q, k, v nor fc1."""
    for old, new in _RENAMES:
        if key.startswith(old):
            return key.replace(old, new, 1)
    if key.startswith("proj_in."):
        return key.replace("proj_in.", "video_patch_proj.", 1)
    if key.startswith("proj_out."):
        return key.replace("proj_out.", "final_layer.video_out.", 1)
    key = key.replace("token_refiner.refiner_blocks.", "token_refiner.blocks.").replace(
        "transformer_blocks.", "blocks."
    )
    key = key.replace(".attn.norm_q.", ".attn.q_norm.").replace(".attn.norm_k.", ".attn.k_norm.")
    key = key.replace(".attn.to_out.0.", ".attn.out_proj.")
    return key.replace(".ff.net.0.proj.", ".mlp.fc1.").replace(".ff.net.2.", ".mlp.fc2.")


def transformer_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Native names, row orders and dtypes of `MiniMaxH3Transformer3DModel`."""
    state, heads = model.state_dict(), model.config.num_attention_heads
    out: dict[str, torch.Tensor] = {}
    for key, tensor in state.items():
        if ".attn.to_q." in key:
            k, v = (state[key.replace("to_q", name)] for name in ("to_k", "to_v"))
            name, tensor = _transformer_name(key.replace("to_q", "qkv_proj")), interleave_heads(
                tensor, k, v, heads
            )
        elif ".attn.to_k." in key or ".attn.to_v." in key:
            continue
        else:
            name = _transformer_name(key)
            if ".mlp.fc1." in name:
                tensor = swap_halves(tensor)
        out[name] = tensor.to(torch.float32 if name.startswith(FP32_PREFIXES) else torch.bfloat16)
    n = model.config.rope_freq_dim
    theta = model.config.rope_theta
    out["rope.inv_freq"] = 1.0 / (theta ** (torch.arange(0, 2 * n, 2, dtype=torch.float32) / (2 * n)))
    return out


def write_transformer(folder: pathlib.Path, model: torch.nn.Module) -> None:
    """`transformer/`: config.json, one shard and its index."""
    c = model.config
    jsonfile.write(
        folder / "config.json",
        {
            "_class_name": "MiniMaxH3DiTModel",
            "hidden_size": c.hidden_size,
            "num_layers": c.num_layers,
            "token_refiner_num_layers": c.num_refiner_layers,
            "num_attention_heads": c.num_attention_heads,
            "attention_head_dim": c.attention_head_dim,
            "ffn_hidden_size": c.ffn_dim,
            "latents_dim": c.in_channels,
            "audio_latents_dim": c.audio_in_channels,
            "patch_size": list(c.patch_size),
            "text_dim": c.text_dim,
            "timestep_input_dim": c.freq_dim,
            "time_embed_hidden_size": c.time_embed_hidden_dim,
            "time_embed_dim": c.time_embed_dim,
            "adaln_out_features": 18 * c.hidden_size,
            "final_adaln_out_features": 2 * c.hidden_size,
            "rope_inv_freq_len": c.rope_freq_dim,
            "norm_eps": c.norm_eps,
            "qk_norm_eps": c.qk_norm_eps,
            "final_norm_eps": c.final_norm_eps,
        },
    )
    write_shard(folder, transformer_tensors(model))


# ---- reading back ------------------------------------------------------------------------------------


def split_heads(t: torch.Tensor, heads: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The inverse of `interleave_heads`."""
    grouped = t.reshape(heads, 3, -1, *t.shape[1:])
    return tuple(grouped[:, i].reshape(-1, *t.shape[1:]).contiguous() for i in range(3))


def _fill(module: torch.nn.Module, native_of, stored: dict[str, torch.Tensor], heads: int) -> None:
    """Copies stored tensors into a reference module; `native_of` gives the stored name of a key and which of
    q, k, v it is."""
    with torch.no_grad():
        for key, p in module.state_dict().items():
            name, part = native_of(key)
            value = stored[name]
            if part is not None:
                value = split_heads(value, heads)[part]
            elif name.endswith((".mlp.fc1.weight", ".ff.w1.weight", ".ff.w1.bias")):
                value = swap_halves(value)
            p.copy_(value.to(p.dtype))


def _fused_name(key: str, fused: str) -> tuple[str, int | None]:
    for i, name in enumerate(("to_q", "to_k", "to_v")):
        if f".attn.{name}." in key:
            return key.replace(name, fused), i
    return key, None


def read_transformer(folder: pathlib.Path, model: torch.nn.Module) -> None:
    """The weights of `transformer/` into a reference module of the same dimensions."""

    def native_of(key: str) -> tuple[str, int | None]:
        key, part = _fused_name(key, "qkv_proj")
        return _transformer_name(key), part

    _fill(
        model,
        native_of,
        load_file(folder / SHARD),
        model.config.num_attention_heads,
    )


def read_video_vae(folder: pathlib.Path, vae: torch.nn.Module) -> tuple[list, list]:
    """The weights of `video_vae/` into a reference module; returns latent mean and deviation."""

    def native_of(key: str) -> tuple[str, int | None]:
        key, part = _fused_name(key, "to_qkv")
        return _video_name(key), part

    stored = load_file(folder / "source" / "model.safetensors")
    _fill(vae, native_of, stored, vae.config.decoder_num_attention_heads)
    config = json.loads((folder / "config.json").read_text())
    return config["latents_mean"], config["latents_std"]


def read_audio_vae(folder: pathlib.Path, vae: torch.nn.Module) -> tuple[list, list]:
    """The weights of `audio_vae/` into a reference module; returns latent mean and deviation."""
    vae.load_state_dict(load_file(folder / "model.safetensors"))
    config = json.loads((folder / "config.json").read_text())
    return config["latents_mean"], config["latents_std"]
