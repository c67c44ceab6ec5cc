"""Load a diffusers tree and run one t2va request through the reference's own pipeline blocks, fp32 on a CPU.

The request's blocks run unchanged, in the reference's order; what is recorded is the state that they pass on, the
velocities and samples that enter and leave the schedulers, and the taps of the networks (`taps.py`).
"""

import os
import types

import overrides
import taps
import torch


def load(tree, threads=2):
    """The t2va pipeline of a tree, fp32, evaluation mode."""
    from diffusers.modular_pipelines.minimax_h3 import MiniMaxH3Blocks

    torch.set_num_threads(threads)
    tree = os.path.abspath(tree)
    keys = overrides.our_keys(overrides.read_json(tree, "modular_model_index.json"))
    overrides.apply_to_pipeline(keys)
    pipeline = MiniMaxH3Blocks().get_workflow("t2va").init_pipeline(tree)
    pipeline.load_components(dtype=torch.float32, pretrained_model_name_or_path=tree)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def attach(pipeline, recorder):
    """Install every tap of every network."""
    taps.attach_text(pipeline.text_encoder, recorder, pipeline.text_encoder_layer)
    taps.attach_transformer(pipeline.transformer, recorder)
    taps.attach_video_vae(pipeline.vae, recorder)
    taps.attach_audio_vae(pipeline.audio_vae, recorder)


def draw_noise(pipeline, request):
    """Injected noise as latents, or (None, None) to let the reference draw both from its one generator."""
    t, h, w, ta = latent_shape(pipeline, request)
    channels, audio_channels = pipeline.vae_latent_channels, pipeline.audio_latent_channels
    if request.init_noise is not None:
        video, audio = request.init_noise
        return unpatchify(torch.as_tensor(video), (channels, t, h, w), pipeline.patch_size), rows_to_audio(
            audio, ta
        )
    if request.noise == "diffusers":
        return None, None
    # SGLang's convention: each modality draws from a generator freshly seeded with the same seed.
    video = torch.randn((1, channels, t, h, w), generator=torch.Generator().manual_seed(request.seed))
    audio = torch.randn((2 * ta, audio_channels), generator=torch.Generator().manual_seed(request.seed))
    return video, rows_to_audio(audio, ta)


def latent_shape(pipeline, request):
    """(T, Hl, Wl, Ta) by the reference's rules."""
    from diffusers.modular_pipelines.minimax_h3 import modular_pipeline as rules

    frames = rules.align_num_frames(
        request.frames, pipeline.vae_frames_per_chunk, pipeline.vae_latents_per_chunk
    )
    t = rules.video_latent_num_frames(frames, pipeline.vae_frames_per_chunk, pipeline.vae_latents_per_chunk)
    ratio = pipeline.vae_spatial_compression_ratio
    return t, request.height // ratio, request.width // ratio, rules.audio_latent_num_frames(frames)


def rows_to_audio(rows, ta):
    rows = torch.as_tensor(rows)
    return rows.reshape(2, ta, rows.shape[-1]).permute(0, 2, 1).contiguous()


def unpatchify(rows, shape, patch):
    """Rows of the packed sequence back to one latent; the inverse of the reference's `patchify_video_latents`."""
    channels, t, h, w = shape
    pt, ph, pw = patch
    x = rows.reshape(1, t // pt, h // ph, w // pw, channels, pt, ph, pw)
    return x.permute(0, 4, 1, 5, 2, 6, 3, 7).reshape(1, channels, t, h, w).contiguous()


def use_schedules(pipeline, request):
    """Shifts or ladders of the request; the block that sets the timesteps only knows a number of points."""
    for scheduler, shift, sigmas in (
        (pipeline.scheduler, request.flow_shift, request.sigmas),
        (pipeline.audio_scheduler, request.audio_flow_shift, request.audio_sigmas),
    ):
        scheduler.set_shift(shift if shift else scheduler.config.shift)
        if request.base_schedule is not None:
            base = torch.tensor(request.base_schedule, dtype=torch.float32)
            sigmas = scheduler.shift * base / (1 + (scheduler.shift - 1) * base)
        if sigmas is not None:
            plain = type(scheduler).set_timesteps
            scheduler.set_timesteps = types.MethodType(
                lambda self, _points, device=None, s=sigmas: plain(self, device=device, sigmas=s), scheduler
            )


def record_steps(scheduler, modality, recorder):
    """`step_NNN.MODALITY_{velocity,latents}`: what enters the solver and what leaves it."""
    count, plain = [0], scheduler.step

    def step(velocity, timestep, sample, return_dict=True):
        result = plain(velocity, timestep, sample, return_dict=return_dict)
        recorder.put(f"step_{count[0]:03d}.{modality}_velocity", velocity)
        recorder.put(f"step_{count[0]:03d}.{modality}_latents", result[0])
        count[0] += 1
        return result

    scheduler.step = step


def record_noise(pipeline, recorder):
    """The rows as they stand before the first evaluation, taken from the transformer's first call."""

    def rows(_module, _args, kwargs):
        recorder.put("video_noise", kwargs["hidden_states"][0])
        recorder.put("audio_noise", kwargs["audio_hidden_states"][0])

    pipeline.transformer.register_forward_pre_hook(rows, with_kwargs=True)


@torch.no_grad()
def run(pipeline, request, recorder):
    """One request; returns {file stem: {name: tensor}} with the names of docs/oracle.md."""
    video, audio = draw_noise(pipeline, request)
    use_schedules(pipeline, request)
    record_noise(pipeline, recorder)
    record_steps(pipeline.scheduler, "video", recorder)
    record_steps(pipeline.audio_scheduler, "audio", recorder)
    state = pipeline(
        prompt=request.prompt,
        height=request.height,
        width=request.width,
        num_frames=request.frames,
        num_inference_steps=request.points,
        generator=torch.Generator().manual_seed(request.seed),
        latents=video,
        audio_latents=audio,
        output_type="pt",
    )
    plan = state.get("row_timestep_plan")
    taps.schedule_tables(pipeline.transformer, torch.cat([times for times, _ in plan]), recorder)
    return collect(pipeline, request, state, plan, recorder)


def collect(pipeline, request, state, plan, recorder):
    ids = pipeline.tokenizer(request.prompt, add_special_tokens=False)["input_ids"]
    frames = state.get("videos")[0].permute(0, 2, 3, 1)
    files = {
        "condition": {
            "input_ids": torch.tensor(ids, dtype=torch.int32),
            "text_embeds": state.get("prompt_embeds")[0],
            **recorder.take("text."),
        },
        "pack": {
            "position_ids": state.get("position_ids").double(),
            "token_tags": state.get("token_tags").int(),
            "timestep_indices": schedule_indices(plan),
            "sigmas_video": pipeline.scheduler.sigmas,
            "sigmas_audio": pipeline.audio_scheduler.sigmas,
            **recorder.take("video_noise", "audio_noise"),
        },
        "denoise": recorder.take("step_", "dit."),
        "decode": {
            "video_latents": state.get("latents")[0],
            "audio_latents": state.get("audio_latents"),
            **recorder.take("vvae.", "avae."),
        },
        # Rounded to nearest even, as duet delivers; the reference's own writers truncate or round by output type.
        "deliver": {"frames": torch.round(frames * 255).to(torch.uint8), "audio": state.get("audio")[0]},
    }
    return files


def schedule_indices(plan):
    """[evaluations, S]: what each evaluation passes to the transformer, numbering its own distinct times."""
    return torch.stack([rows for _, rows in plan]).int()
