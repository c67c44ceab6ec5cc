"""Fixtures of single networks: chosen inputs, the reference's outputs and what happens between them.

One file per case, with the plain tap names, so that compare.py and the C tests read it like a tap directory. Inputs
stand in the same file. The transformer's rows here are of all five kinds at once (text, vision rows of the text,
visual and audio conditions, targets), in a layout that the reference's own function packs.
"""

from types import SimpleNamespace

import samples
import taps
import torch

# A recorded tensor of a decoder is kept whole up to this many elements.
WHOLE = 2000


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def text(pipeline, prompt):
    """Token ids to the state after the tap layer: `input_ids`, `text.*`, `text_embeds`."""
    from diffusers.modular_pipelines.minimax_h3.encoders import get_qwen3vl_prompt_embeds

    recorder = taps.Recorder(["text.embed", "text.layer_0[0-3].out"])
    taps.attach_text(pipeline.text_encoder, recorder, pipeline.text_encoder_layer)
    ids = pipeline.tokenizer(prompt, add_special_tokens=False)["input_ids"]
    embeds = get_qwen3vl_prompt_embeds(
        pipeline.text_encoder, pipeline.processor, ids, {}, text_encoder_layer=pipeline.text_encoder_layer
    )
    out = {"input_ids": torch.tensor(ids, dtype=torch.int32), "text_embeds": embeds[0], **recorder.tensors}
    # The last layer's output is text_embeds itself.
    out.pop(f"text.layer_{pipeline.text_encoder_layer - 1:02d}.out", None)
    return out


def layout_t2va(pipeline, rows_of_text):
    from diffusers.modular_pipelines.minimax_h3.before_denoise import MiniMaxH3PrepareLayoutStep as Step

    tags = torch.ones(rows_of_text, dtype=torch.long)
    return Step.build_packed_sequence(tags, 7, 2, 4, 9, pipeline.patch_size, 2, 2, 0), tags


def layout_ref2va(pipeline, rows_of_text):
    """Text with vision rows, an image, a video with sound, an audio clip, then the targets."""
    from diffusers.modular_pipelines.minimax_h3.before_denoise import MiniMaxH3Ref2VAPrepareLayoutStep as Step

    tags = torch.ones(rows_of_text, dtype=torch.long)
    tags[3:7] = 0
    kinds = [("image", False), ("video", True), ("audio", False)]
    references = [SimpleNamespace(kind=kind, has_audio=sound) for kind, sound in kinds]
    visual = [torch.empty(1, 1, 1, 2, 6), torch.empty(1, 1, 2, 4, 2)]
    audio = [torch.empty(6, 1), torch.empty(10, 1)]
    packed = Step.build_ref2va_packed_sequence(
        tags, references, visual, audio, 7, 4, 2, 9, pipeline.patch_size, 2, 2, 0
    )
    return packed, tags


@torch.no_grad()
def transformer(pipeline, kind, times, seed, patterns):
    """One evaluation. `times` are t of target video, target audio and of visual conditions; audio conditions are 1."""
    from diffusers.modular_pipelines.minimax_h3.before_denoise import MiniMaxH3SetTimestepsStep as Times

    dit = pipeline.transformer
    rows_of_text = {"t2va": 6, "ref2va": 11}[kind]
    packed, tags = {"t2va": layout_t2va, "ref2va": layout_ref2va}[kind](pipeline, rows_of_text)
    position_ids, token_tags, video_rows, audio_rows, text_rows, held_video, held_audio = packed
    unique, row_time = Times.build_row_timesteps(
        video_rows, audio_rows, held_video, held_audio, rows_of_text, times[0], times[1], times[2], 1.0
    )
    generator = seeded(seed)
    video = torch.randn(len(video_rows), dit.proj_in.in_features, generator=generator)
    audio = torch.randn(len(audio_rows), dit.audio_proj_in.in_features, generator=generator)
    embeds = 4 * torch.randn(rows_of_text, dit.context_embedder.in_features, generator=generator)

    recorder = taps.Recorder(patterns)
    taps.attach_transformer(dit, recorder)
    velocities = dit(
        video[None],
        audio[None],
        embeds[None],
        unique,
        row_time,
        token_tags,
        position_ids,
        video_rows,
        audio_rows,
        text_rows,
        return_dict=False,
    )
    taps.schedule_tables(dit, unique, recorder)
    return {
        **recorder.tensors,
        "text_embeds": embeds,
        "video_rows": video,
        "audio_rows": audio,
        "position_ids": position_ids,
        "token_tags": token_tags.int(),
        "timesteps": unique,
        "row_timestep": row_time.int(),
        "video_indices": video_rows.int(),
        "audio_indices": audio_rows.int(),
        "condition_rows": torch.tensor([held_video, held_audio], dtype=torch.int32),
        "video_velocity": velocities[0][0, held_video:],
        "audio_velocity": velocities[1][0, held_audio:],
    }


@torch.no_grad()
def video_decoder(pipeline, frames, height, width, seed, patterns):
    """Normalised latents to frames, through the reference's decode block; large tensors as samples."""
    from diffusers.modular_pipelines.minimax_h3.decoders import MiniMaxH3VideoDecodeStep

    latent_frames = 5 * (frames - 5) // 17 + 2
    shape = (1, pipeline.vae_latent_channels, latent_frames, height // 16, width // 16)
    latents = 1.5 * torch.randn(shape, generator=seeded(seed))
    recorder = taps.Recorder(patterns)
    taps.attach_video_vae(pipeline.vae, recorder)
    state = MiniMaxH3VideoDecodeStep().init_pipeline()
    state.update_components(vae=pipeline.vae, video_processor=pipeline.video_processor)
    video = state(latents=latents, output_type="pt", output="videos")[0].permute(0, 2, 3, 1)
    out = {"video_latents": latents[0]}
    for name, value in recorder.tensors.items():
        value = value.numpy()
        samples.spread(out, name, value, WHOLE)
    pixels = torch.round(video * 255).to(torch.uint8).numpy()
    samples.frames(out, "frames", pixels, pipeline.vae._split_tiles)
    return out


@torch.no_grad()
def audio_decoder(pipeline, latents_per_channel, seed, patterns):
    """Normalised latents [2, C, Ta] to the waveform, through the reference's decode block."""
    from diffusers.modular_pipelines.minimax_h3.decoders import MiniMaxH3AudioDecodeStep

    shape = (2, pipeline.audio_latent_channels, latents_per_channel)
    latents = 1.5 * torch.randn(shape, generator=seeded(seed))
    recorder = taps.Recorder(patterns)
    taps.attach_audio_vae(pipeline.audio_vae, recorder)
    state = MiniMaxH3AudioDecodeStep().init_pipeline()
    state.update_components(audio_vae=pipeline.audio_vae)
    wave = state(audio_latents=latents, output="audio")[0]
    out = {"audio_latents": latents}
    for name, value in recorder.tensors.items():
        samples.spread(out, name, value.numpy(), WHOLE)
    samples.sound(out, "audio", wave.numpy())
    return out


# Of every kind of norm another value, all so large that they show. Ordinary ones move a result by less than rounding
# bounds, so that a norm with the wrong one would pass.
LARGE_EPS = {"text": 0.05, "norm": 0.02, "qk": 0.05, "final": 0.08, "vvae": 0.03}
TAIL_ROWS = 8


def set_eps(module, value, accept=lambda name: True):
    for name, norm in module.named_modules():
        for attribute in ("eps", "variance_epsilon"):
            if hasattr(norm, attribute) and accept(name):
                setattr(norm, attribute, value)


@torch.no_grad()
def large_eps(pipeline, prompt, evaluation, decoding):
    """Results of the same cases as elsewhere, with LARGE_EPS in every norm: last rows of the text state (also after the
    final norm that must not be applied), velocities, last norm of the video decoder. Spoils the pipeline."""
    embeds = text(pipeline, prompt)["text_embeds"]
    normed = pipeline.text_encoder.model.language_model.norm(embeds)
    set_eps(pipeline.text_encoder.model.language_model, LARGE_EPS["text"])
    set_eps(pipeline.transformer, LARGE_EPS["norm"])
    set_eps(pipeline.transformer, LARGE_EPS["qk"], lambda name: name.endswith(("norm_q", "norm_k")))
    set_eps(
        pipeline.transformer,
        LARGE_EPS["final"],
        lambda name: name.endswith("final_norm") or "norm_out" in name,
    )
    set_eps(pipeline.vae.decoder, LARGE_EPS["vvae"])
    velocities = transformer(pipeline, *evaluation, [])
    decoded = video_decoder(pipeline, *decoding, ["*.norm_out"])
    order = ("text", "norm", "qk", "final", "vvae")
    return {
        "eps": torch.tensor([LARGE_EPS[key] for key in order], dtype=torch.float32),
        "text_normed": normed[-TAIL_ROWS:],
        "text_embeds": text(pipeline, prompt)["text_embeds"][-TAIL_ROWS:],
        "video_velocity": velocities["video_velocity"],
        "audio_velocity": velocities["audio_velocity"],
        **{name: value for name, value in decoded.items() if "norm_out" in name},
    }
