"""Everything that the reference fixes in code and that a small model needs otherwise. Nothing else overrides anything.

Problem. The reference implementation (diffusers) reads most dimensions from files, but some facts are written into
its code: the text layer that is tapped, the duration window, the clock, and the sizes that its conversion script
gives to the files it writes. A test checkpoint has other sizes, and a test clip is shorter than five seconds. This
file is the one place where the oracle departs from the reference as shipped, so a reader can judge each departure.

    native configuration files  -->  transformer_config(), video_vae_config()   sizes for the conversion script
    model_index.json of native  -->  our_keys()                                 our keys, for both index files
    our_keys() of a tree        -->  apply_to_pipeline()                        tap layer and duration window
    device of the pipeline      -->  apply_to_device()                          where row numbers are read

Invariants
 1. No number of a checkpoint is repeated here: sizes come from its files, constants from the conversion script.
 2. Only attributes that are constant in the reference are replaced; no method with arithmetic is (one is given
    the same numbers in another memory).
 3. The tile size and overlap are not overridden, because every checkpoint uses 256 and 64: a native file that says
    otherwise is refused, instead of being decoded with the wrong tiles.
"""

import json
import os

# The conversion script is not part of the released package. It is given by its path and must be this very file.
CONVERTER_SHA256 = "86f61f62934d1eccf2a76ec57b6d072e2c23767c6e49d96aa1cf24d40422b42c"

# Keys of ours in `_minimax_h3`, with the values of the released model, which has none of them in its files.
OUR_KEYS = {
    "text_encoder_layer": 50,
    "canvas_short_edge": 768,
    "canvas_max_pixels": 768 * 1344,
    "reference_image_short_edge": 2048,
}

# The reference reads these three from the top level of its index; the tap layer it cannot read from any file.
TOP_LEVEL_KEYS = ("canvas_short_edge", "canvas_max_pixels", "reference_image_short_edge")

# 22 frames (7 latent frames) is the shortest clip that the chunked decoder can make, 362 the longest we admit.
MIN_FRAMES, MAX_FRAMES, FPS = 22, 362, 24


def read_json(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as f:
        return json.load(f)


def our_keys(index):
    """The four keys of ours, from a native `model_index.json` or a `modular_model_index.json`, with defaults."""
    block = index.get("_minimax_h3", {})
    return {key: block.get(key, index.get(key, default)) for key, default in OUR_KEYS.items()}


def apply_to_pipeline(keys):
    """Put the tap layer and the duration window into the pipeline class. Process wide: one model a process."""
    from diffusers.modular_pipelines.minimax_h3.modular_pipeline import MiniMaxH3ModularPipeline as Pipeline

    Pipeline.text_encoder_layer = property(lambda self: keys["text_encoder_layer"])
    Pipeline.min_duration = property(lambda self: MIN_FRAMES / FPS)
    Pipeline.max_duration = property(lambda self: MAX_FRAMES / FPS)


def apply_to_device(device):
    """Off the CPU, hand row numbers to the timestep plan in host memory: it indexes a host tensor with them."""
    from diffusers.modular_pipelines.minimax_h3.before_denoise import MiniMaxH3SetTimestepsStep as Step

    plain = Step.build_row_timesteps
    if str(device) == "cpu" or getattr(plain, "on_host", False):
        return

    def build_row_timesteps(video_indices, audio_indices, *rest):
        return plain(video_indices.cpu(), audio_indices.cpu(), *rest)

    build_row_timesteps.on_host = True
    Step.build_row_timesteps = staticmethod(build_row_timesteps)


def transformer_config(converter, partition):
    """Arguments of the reference's transformer, from a native `transformer/config.json` and `rope.inv_freq`."""
    native = read_json(partition, "transformer", "config.json")
    renamed = {
        "num_refiner_layers": "token_refiner_num_layers",
        "ffn_dim": "ffn_hidden_size",
        "in_channels": "latents_dim",
        "audio_in_channels": "audio_latents_dim",
        "freq_dim": "timestep_input_dim",
        "time_embed_hidden_dim": "time_embed_hidden_size",
        "rope_freq_dim": "rope_inv_freq_len",
    }
    released = converter.MINIMAX_H3_TRANSFORMER_CONFIG
    config = {key: native[renamed.get(key, key)] for key in released if key != "rope_theta"}
    config["rope_theta"] = rope_theta(os.path.join(partition, "transformer"), released["rope_theta"])
    return config


def rope_theta(folder, released):
    """The base whose frequencies, computed as the reference computes them, are the stored `rope.inv_freq` bit for bit.

    The native layout stores the frequencies and not the base; the reference's layout stores the base alone.
    """
    import torch

    stored = find_tensor(folder, "rope.inv_freq")
    n = stored.numel()
    exponents = torch.arange(0, 2 * n, 2, dtype=torch.float32) / (2 * n)
    candidates = [released]
    if n > 1:
        candidates.append(float(round(float(stored[1].double()) ** -n)))
    for base in candidates:
        if torch.equal(1.0 / (base**exponents), stored):
            return base
    raise ValueError(f"{folder}: rope.inv_freq {stored.tolist()} is no geometric series of a whole base")


def find_tensor(folder, name):
    """One tensor of a folder of safetensors shards."""
    from safetensors import safe_open

    for file in sorted(os.listdir(folder)):
        if file.endswith(".safetensors"):
            with safe_open(os.path.join(folder, file), framework="pt") as shard:
                if name in shard.keys():
                    return shard.get_tensor(name)
    raise KeyError(f"{folder}: no tensor {name}")


def video_vae_config(converter, partition):
    """Arguments of the reference's video VAE from the two native files; what neither holds keeps the release's value."""
    outer = read_json(partition, "video_vae", "config.json")
    inner = read_json(partition, "video_vae", outer["source_path"], "config.json")
    if (outer["vae_tile_size"], outer["vae_tile_overlap_min"]) != (256, 64):
        raise ValueError("tile size and overlap are fixed at 256 and 64 in the reference")
    vit = inner["vit_decoder_kwargs"]
    return {
        **converter.MINIMAX_H3_VIDEO_VAE_CONFIG,
        "in_channels": inner["in_channels"],
        "out_channels": inner["out_ch"],
        "latent_channels": inner["z_channels"],
        "block_out_channels": [inner["ch"] * m for m in inner["ch_mult"]],
        "layers_per_block": inner["num_res_blocks"],
        "spatial_downsample_factors": inner["space_down"],
        "temporal_downsample_factors": inner["time_down"],
        "norm_num_groups": inner.get(
            "norm_num_groups", converter.MINIMAX_H3_VIDEO_VAE_CONFIG["norm_num_groups"]
        ),
        "spatial_padding_mode": inner["padding_mode"],
        "decoder_num_layers": vit["num_layers"],
        "decoder_num_attention_heads": vit["heads"],
        "decoder_attention_head_dim": vit["dim_head"],
        "decoder_rope_theta": vit["rope_theta"],
        "decoder_rope_dim_ratio": vit["rope_dim_ratio"],
        "clip_length": outer["vae_clip_length"],
        "token_drop": outer["vae_token_drop"],
    }


def write_our_keys(tree, keys):
    """Add our keys to the index that the conversion wrote, and a `model_index.json` that carries them alone."""
    path = os.path.join(tree, "modular_model_index.json")
    index = read_json(path)
    for key in TOP_LEVEL_KEYS:
        index[key] = keys[key]
    index["_minimax_h3"] = dict(keys)
    for name in ("modular_model_index.json", "model_index.json"):
        with open(os.path.join(tree, name), "w", encoding="utf-8") as f:
            json.dump(index, f, indent=2)
            f.write("\n")
