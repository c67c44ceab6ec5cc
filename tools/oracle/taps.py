"""Record named intermediate tensors of the reference's networks while they run.

Problem. duet hands out intermediate tensors by name (`--dump`), and a difference in a picture has to be traced to the
first tensor that differs. The reference has no such names, so this file gives it the same ones, by hooks on its
modules and by wrapping the two functions inside its attention that no module boundary shows.

    Recorder.wants(name) --- patterns ---> hooks are cheap when nobody asks
    attach_text | attach_transformer | attach_video_vae | attach_audio_vae (module, recorder)

Invariants
 1. Hooks only read. What the reference computes is unchanged.
 2. Names and shapes are those of docs/oracle.md; batch dimensions of one are dropped.
 3. Of the evaluations of a schedule, the transformer's taps show the first; tables cover the whole schedule.
"""

import fnmatch

import torch


class Recorder:
    """Tensors by name; the first record of a name is kept."""

    def __init__(self, patterns):
        self.patterns = patterns
        self.tensors = {}

    def wants(self, name):
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns)

    def put(self, name, tensor):
        if self.wants(name) and name not in self.tensors:
            self.tensors[name] = tensor.detach().to("cpu", copy=True).contiguous()

    def take(self, *prefixes):
        """Remove and return the tensors under some prefixes."""
        names = [name for name in self.tensors if name.startswith(prefixes)]
        return {name: self.tensors.pop(name) for name in names}


def after(module, record):
    """Call record(output) after the module ran."""
    module.register_forward_hook(lambda _module, _inputs, output: record(output))


def before(module, record):
    """Call record(first input) before the module runs."""
    module.register_forward_pre_hook(lambda _module, inputs: record(inputs[0]))


def attach_text(encoder, recorder, layers):
    """`text.embed` and `text.layer_NN.out` of the layers up to the tap."""
    model = encoder.model.language_model
    after(model.embed_tokens, lambda x: recorder.put("text.embed", x[0]))
    for i, layer in enumerate(model.layers[:layers]):
        name = f"text.layer_{i:02d}.out"
        after(layer, lambda x, name=name: recorder.put(name, (x if torch.is_tensor(x) else x[0])[0]))


def spy_attention(module_file, block_name, recorder):
    """Wrap the attention call of one source file: q and k as attended (normed and rotated), and the result."""
    plain = module_file.dispatch_attention_fn

    def spied(query, key, value, *args, **kwargs):
        result = plain(query, key, value, *args, **kwargs)
        name = block_name()
        if name:
            recorder.put(f"{name}.q_rope", query[0])
            recorder.put(f"{name}.k_rope", key[0])
            recorder.put(f"{name}.attn", result[0].flatten(1))
        return result

    module_file.dispatch_attention_fn = spied


def attach_transformer(dit, recorder):
    """All `dit.` taps but the tables over a schedule, which `schedule_tables` makes."""
    from diffusers.models.transformers import transformer_minimax_h3 as source

    current = {"name": None}
    after(dit.context_embedder, lambda x: recorder.put("dit.refiner_in", x[0]))
    for i, block in enumerate(dit.token_refiner.refiner_blocks):
        after(block, lambda x, i=i: recorder.put(f"dit.refiner_{i:02d}.out", x[0]))
    after(dit.token_refiner, lambda x: recorder.put("dit.refined_text", x[0]))
    after(dit.proj_in, lambda x: recorder.put("dit.video_in", x[0]))
    after(dit.audio_proj_in, lambda x: recorder.put("dit.audio_in", x[0]))
    after(dit.rope, lambda x: record_half(recorder, x))
    before(dit.transformer_blocks[0], lambda x: recorder.put("dit.packed", x[0]))
    for i, block in enumerate(dit.transformer_blocks):
        name = f"dit.block_{i:02d}"
        before(block, lambda _x, name=name: current.update(name=name))
        after(block.attn.norm_q, lambda x, name=name: recorder.put(f"{name}.q_norm", x[0]))
        after(block.attn.norm_k, lambda x, name=name: recorder.put(f"{name}.k_norm", x[0]))
        after(block, lambda x, name=name: recorder.put(f"{name}.out", x[0]))
    after(dit.norm_out, lambda x: recorder.put("dit.final_norm", x[0]))
    before(dit.token_refiner, lambda _x: current.update(name=None))
    spy_attention(source, lambda: current["name"], recorder)


def record_half(recorder, tables):
    """The reference repeats the rotary tables twice along a row; we name the half that is distinct."""
    for name, table in zip(("dit.rope_cos", "dit.rope_sin"), tables):
        recorder.put(name, table[:, : table.shape[1] // 2])


def schedule_tables(dit, timesteps, recorder):
    """Embeddings and AdaLN tables of the distinct timesteps of a schedule, ascending, by the reference's modules."""
    times = torch.unique(torch.as_tensor(timesteps, dtype=torch.float32), sorted=True)
    recorder.put("dit.timesteps", times)
    features = dit.time_proj(times)
    temb = dit.time_embedder(features)
    recorder.put("dit.time_features", features)
    recorder.put("dit.temb", temb)
    for i, block in enumerate(dit.transformer_blocks):
        recorder.put(f"dit.adaln_block_{i:02d}", torch.cat(block.adaln_proj(temb), dim=-1))
    recorder.put("dit.adaln_final", dit.norm_out.linear(torch.nn.functional.silu(temb)))


def attach_video_vae(vae, recorder):
    """`vvae.chunk_C.tile_Y_X.*` of every tile, `vvae.chunk_C.stitched` of every chunk.

    The decoder is called tile by tile in row order inside a chunk; the wrapper of `_decode_clip` counts chunks and
    knows how many tiles a row has, so a call number is a tile.
    """
    from diffusers.models.autoencoders import autoencoder_kl_minimax_h3 as source

    state = {"chunk": -1, "tile": 0, "columns": 1, "name": None, "block": None}
    plain = vae._decode_clip

    def decode_clip(z):
        state["chunk"] += 1
        state["tile"] = 0
        state["columns"] = len(vae._split_tiles(z.shape[-1] * vae.spatial_compression_ratio, 256, 64)[0])
        clip = plain(z)
        recorder.put(f"vvae.chunk_{state['chunk']}.stitched", clip[0])
        return clip

    def start_tile(x):
        row, column = divmod(state["tile"], state["columns"])
        state["tile"] += 1
        state["name"] = f"vvae.chunk_{state['chunk']}.tile_{row}_{column}"
        recorder.put(state["name"] + ".latent", x[0])

    def put(suffix, tensor):
        recorder.put(f"{state['name']}.{suffix}", tensor)

    vae._decode_clip = decode_clip
    before(vae.post_quant_conv, start_tile)
    after(vae.post_quant_conv, lambda x: put("post_quant", x[0]))
    decoder = vae.decoder
    before(decoder.transformer_blocks[0], lambda x: put("tokens", x[0]))
    for i, block in enumerate(decoder.transformer_blocks):
        before(block, lambda _x, i=i: state.update(block=i))
        after(block, lambda x, i=i: put(f"block_{i:02d}.out", x[0]))
    after(decoder.norm_out, lambda x: put("norm_out", x[0]))
    after(decoder.proj_out, lambda x: put("proj_out", x[0, : x.shape[1] - decoder.num_register_tokens - 1]))
    after(decoder, lambda x: put("raw", x[0]))
    spy_attention(source, lambda: f"{state['name']}.block_{state['block']:02d}", recorder)


def attach_audio_vae(vae, recorder):
    """`avae.*`, channel-major as the reference computes: [2, channels, length]."""
    decoder = vae.decoder
    stages, kernels = decoder.num_upsamples, decoder.num_kernels
    after(vae.dec_in_proj, lambda x: recorder.put("avae.dec_in", x))
    after(decoder.conv_pre, lambda x: recorder.put("avae.conv_pre", x))
    for i in range(stages):
        after(decoder.ups[i][0], lambda x, i=i: recorder.put(f"avae.stage_{i}.up", x))
        for j in range(kernels):
            block = decoder.resblocks[i * kernels + j]
            after(block, lambda x, i=i, j=j: recorder.put(f"avae.stage_{i}.block_{j}", x))
    # The mean over the blocks of a stage is no module; it is what enters the next one.
    for i in range(1, stages):
        before(decoder.ups[i][0], lambda x, i=i: recorder.put(f"avae.stage_{i - 1}.out", x))
    before(decoder.activation_post, lambda x: recorder.put(f"avae.stage_{stages - 1}.out", x))
    after(decoder.activation_post, lambda x: recorder.put("avae.post", x))
    after(decoder.conv_post, lambda x: recorder.put("avae.wave", x[:, 0]))
