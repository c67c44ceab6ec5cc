"""Trains the text encoder and vision tower of duet-tiny: Qwen3-VL classes at toy dimensions.

The transformer reads the un-normalised state after `TAP` decoder layers. So linear heads on exactly that
state are what is trained: at the last row of the prompt they must tell every attribute of the clip asked for
(with what references contribute), at each picture row what colour and shape covers that 32 x 32 px, and where the prompt
names a reference ("<Picture 2>") what that one shows: without the last, which of two pictures is which is never learnt.
A next-token loss over the prompts trains the rest.

Two stages. `--pictures` trains the vision tower alone on single pictures, by the same heads on its merged
tokens: shapes take it some hundred thousand pictures, far more than whole requests would show it in the time.
The second stage trains everything on requests, from that tower if it is in the state.

Presentations of a batch are padded on the right; attention is causal, so padding changes nothing.
`--export DIR` writes `text_encoder/` in the native layout. NOT here: words (`grammar.py`), requests
(`tasks.py`).
"""

from __future__ import annotations

import argparse
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

import jsonfile
import native
import options
import tasks
import trainer
import world

TAP, LAYERS = 3, 4
HIDDEN, TOKENS_PER_BLOCK = 128, 64
# What the last prompt row must tell, per object: name -> classes (the last class of size: not said).
OBJECT_HEADS = {"shape": 4, "colour": 8, "size": 4, "motion": 9, "timbre": 4}
SCENE_HEADS = {"background": 6, "count": 2}
# What the row that ends a reference's name must tell of it -> classes, by kind of reference.
NAME_HEADS = {"image": {"shape": 4, "colour": 8}, "video": {"motion": 9}, "audio": {}}


def config(vocab_rows: int, ids: dict[str, int]):
    """The Qwen3-VL configuration."""
    from transformers import Qwen3VLConfig

    return Qwen3VLConfig(
        text_config=dict(
            hidden_size=HIDDEN,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            intermediate_size=256,
            vocab_size=vocab_rows,
            rms_norm_eps=1e-6,
            hidden_act="silu",
            attention_bias=False,
            max_position_embeddings=262144,
            rope_theta=5000000.0,
            rope_scaling={"mrope_interleaved": True, "mrope_section": [6, 5, 5], "rope_type": "default"},
            bos_token_id=ids["<|endoftext|>"],
            eos_token_id=ids["<|im_end|>"],
        ),
        vision_config=dict(
            depth=3,
            hidden_size=64,
            num_heads=2,
            intermediate_size=128,
            out_hidden_size=HIDDEN,
            patch_size=16,
            spatial_merge_size=2,
            temporal_patch_size=2,
            in_channels=3,
            num_position_embeddings=256,
            deepstack_visual_indexes=[0, 1],  # both below the tap
            hidden_act="gelu_pytorch_tanh",
        ),
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
    )


def load_tokenizer(folder: pathlib.Path):
    """The tokenizer, its special ids and the rows of the embedding."""
    from transformers import Qwen2TokenizerFast

    tokenizer = Qwen2TokenizerFast.from_pretrained(str(folder))
    names = (
        "<|endoftext|>",
        "<|im_end|>",
        "<|image_pad|>",
        "<|video_pad|>",
        "<|vision_start|>",
        "<|vision_end|>",
    )
    return tokenizer, {n: tokenizer.convert_tokens_to_ids(n) for n in names}, (len(tokenizer) + 7) // 8 * 8


class Encoder(torch.nn.Module):
    """The conditioner and the training heads (which are not exported)."""

    def __init__(self, folder: pathlib.Path, seed: int) -> None:
        super().__init__()
        from transformers import Qwen3VLForConditionalGeneration

        self.tokenizer, self.ids, rows = load_tokenizer(folder)
        torch.manual_seed(seed)
        self.qwen = Qwen3VLForConditionalGeneration(config(rows, self.ids))
        self.presenter = tasks.Presenter(self.tokenizer, TOKENS_PER_BLOCK)
        self.object_heads = torch.nn.ModuleDict(
            {k: torch.nn.Linear(HIDDEN, 2 * n) for k, n in OBJECT_HEADS.items()}
        )
        self.scene_heads = torch.nn.ModuleDict(
            {k: torch.nn.Linear(HIDDEN, n) for k, n in SCENE_HEADS.items()}
        )
        self.name_heads = torch.nn.ModuleDict(
            {k: torch.nn.Linear(HIDDEN, n) for heads in NAME_HEADS.values() for k, n in heads.items()}
        )
        self.patch_heads = patch_heads()

    def forward(self, batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
        """Tap states [B, L, HIDDEN] and last hidden states of a padded batch (`Batcher`)."""
        extra = {
            k: batch[k]
            for k in ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")
            if k in batch
        }
        out = self.qwen.model(
            input_ids=batch["ids"],
            attention_mask=batch["mask"],
            mm_token_type_ids=batch["types"],
            use_cache=False,
            output_hidden_states=True,
            **extra,
        )
        return out.hidden_states[TAP], out.last_hidden_state


def patch_rows(frames: torch.Tensor) -> torch.Tensor:
    """Frames [N, 2, H, W, 3] in 0..1 -> the tower's patch rows [N * h * w, 1536], in its 2 x 2 grouped
    order."""
    n, _, height, width, _ = frames.shape
    pixels = (frames * 255).round() / 127.5 - 1.0
    p = pixels.reshape(n, 2, height // 32, 2, 16, width // 32, 2, 16, 3)
    return p.permute(0, 2, 5, 3, 6, 8, 1, 4, 7).reshape(-1, 1536)


def pictures(request: tasks.Request, blocks) -> list[tuple[world.Scenes, int, tuple[int, ...]]]:
    """(scene, clip length, frame numbers) of every vision block."""
    out = []
    for _, source, frames in blocks:
        if request.keyframes:
            at = 0 if request.keyframes[source] == "first" else tasks.FRAMES - 1
            out.append((request.scene, tasks.FRAMES, (at, at)))
        else:
            pair = frames if len(frames) == 2 else (0, 0)
            out.append((request.references[source].scene, tasks.VIDEO_REFERENCE_FRAMES, pair))
    return out


def stills(scenes: world.Scenes, length: int, frame: int, device: str) -> torch.Tensor:
    """[N, 1, 256, 256, 3] one frame of every scene's clip of `length` frames."""
    if device.startswith("cuda"):
        return world.render(world.Tracks(world.Backend(device), scenes, length), frame, 1)
    painted = [
        world.paint(world.Tracks(world.Backend(), scenes.take([i]), length), frame, 1)
        for i in range(len(scenes))
    ]
    return torch.from_numpy(np.stack(painted)).float() / 255


def render_pairs(items: list[tuple[world.Scenes, int, tuple[int, ...]]], device: str) -> torch.Tensor:
    """[N, 2, 256, 256, 3] the pictures of `pictures`, grouped by clip length and frames to render in
    batches."""
    out = torch.empty((len(items), 2, world.CANVAS, world.CANVAS, 3), device=device)
    groups: dict[tuple, list[int]] = {}
    for i, (_, length, pair) in enumerate(items):
        groups.setdefault((length, pair), []).append(i)
    for (length, pair), index in groups.items():
        scenes = world.concatenate([items[i][0] for i in index])
        first = stills(scenes, length, pair[0], device)
        second = first if pair[1] == pair[0] else stills(scenes, length, pair[1], device)
        out[index] = torch.cat([first, second], 1)
    return out


class Batcher:
    """Requests -> the tensors the encoder reads."""

    def __init__(self, encoder: Encoder, device: str) -> None:
        self.encoder, self.device = encoder, device

    def __call__(self, requests: list[tasks.Request]) -> dict:
        """Padded ids, mask and token types, vision rows and grids, and per request the presentation."""
        shown = [self.encoder.presenter.build(r) for r in requests]
        length = max(len(p.ids) for p in shown)
        ids = torch.full((len(shown), length), self.encoder.ids["<|endoftext|>"], dtype=torch.long)
        mask = torch.zeros_like(ids)
        for i, p in enumerate(shown):
            ids[i, : len(p.ids)] = torch.tensor(p.ids)
            mask[i, : len(p.ids)] = 1
        image, video = self.encoder.ids["<|image_pad|>"], self.encoder.ids["<|video_pad|>"]
        types = (ids == image).int() + 2 * (ids == video).int()
        batch = {
            "ids": ids.to(self.device),
            "mask": mask.to(self.device),
            "types": types.to(self.device),
            "shown": shown,
        }
        self._vision(batch, requests, shown)
        return batch

    def _vision(self, batch: dict, requests: list[tasks.Request], shown: list[tasks.Presentation]) -> None:
        items, kinds, clips = [], [], []
        for r, p in zip(requests, shown):
            items += pictures(r, p.blocks)
            kinds += [kind for kind, _, _ in p.blocks]
            seen: dict[int, int] = {}
            for kind, source, _ in p.blocks:
                if kind == "video":
                    seen[source] = seen.get(source, 0) + 1
            clips += list(seen.values())
        if not items:
            return
        frames = render_pairs(items, self.device)
        batch["frames"], batch["kinds"] = frames, kinds
        batch["scenes"] = world.concatenate([scene for scene, _, _ in items])
        side = world.CANVAS // 16
        for kind, name, grid in (
            ("image", "pixel_values", "image_grid_thw"),
            ("video", "pixel_values_videos", "video_grid_thw"),
        ):
            index = [i for i, k in enumerate(kinds) if k == kind]
            if index:
                batch[name] = patch_rows(frames[index])
                counts = [1] * len(index) if kind == "image" else clips
                batch[grid] = torch.tensor([[t, side, side] for t in counts], device=self.device)


def object_targets(requests: list[tasks.Request]) -> dict[str, torch.Tensor]:
    """[B, 2] per object head; -100 where there is no second object."""
    out = {}
    for name in OBJECT_HEADS:
        rows = []
        for r in requests:
            value = getattr(r.scene, name)[0].copy()
            if name == "timbre" and any(reference.kind == "audio" for reference in r.references):
                value[:] = -100  # only the sound itself tells
            if name == "size":
                value = np.where(np.isin(r.scene.motion[0], (world.GROW, world.SHRINK)), 3, value)
            rows.append([int(value[k]) if k < r.scene.count[0] else -100 for k in range(2)])
        out[name] = torch.tensor(rows)
    return out


def name_targets(
    encoder: Encoder, requests: list[tasks.Request], shown: list[tasks.Presentation]
) -> dict[str, list[tuple[int, int, int]]]:
    """By head: (request, row, class) of every place where a prompt names a reference."""
    out: dict[str, list[tuple[int, int, int]]] = {k: [] for heads in NAME_HEADS.values() for k in heads}
    words = {"image": "Picture", "video": "Video", "audio": "Audio"}
    for i, (r, p) in enumerate(zip(requests, shown)):
        spans = encoder.tokenizer(r.prompt, add_special_tokens=False, return_offsets_mapping=True)
        ends = [end for _, end in spans["offset_mapping"]]
        first = len(p.ids) - len(ends)  # the prompt is the last segment
        numbers = dict.fromkeys(words, 0)
        for reference in r.references:
            numbers[reference.kind] += 1
            at = r.prompt.find(f"<{words[reference.kind]} {numbers[reference.kind]}>")
            last = r.prompt.index(">", at) + 1
            row = first + next(j for j, end in enumerate(ends) if end >= last)
            for name in NAME_HEADS[reference.kind]:
                out[name].append((i, row, int(getattr(reference.scene, name)[0, 0])))
    return out


def name_loss(
    encoder: Encoder, tap: torch.Tensor, targets: dict
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Loss of the rows that end names of references, and the share that is right by head."""
    loss, right = tap.new_zeros(()), {}
    for name, found in targets.items():
        if found:
            request, row, value = (torch.tensor(v, device=tap.device) for v in zip(*found))
            logits = encoder.name_heads[name](tap[request, row])
            loss = loss + F.cross_entropy(logits, value)
            right[name] = (logits.argmax(-1) == value).float().mean()
    return loss, right


def patch_targets(frames: torch.Tensor, scenes: world.Scenes) -> tuple[torch.Tensor, torch.Tensor]:
    """Colour (8: none) and shape (4: none) that cover the centre of each 32 px cell, [N, 64] each. Two
    objects of a scene have
    different colours, so the colour says which shape it is."""
    palette = torch.tensor(world.COLOUR_RGB, device=frames.device)
    centre = frames[:, 0].reshape(-1, 8, 32, 8, 32, 3)[:, :, 12:20, :, 12:20].mean((2, 4)).reshape(-1, 64, 3)
    distance = torch.cdist(centre, palette[None].expand(len(centre), -1, -1))
    near, index = distance.min(-1)
    colour = torch.where(near < 0.06, index, torch.full_like(index, 8))
    shape = torch.full_like(colour, 4)
    for k in range(2):
        mine = torch.tensor(np.where(scenes.count > k, scenes.colour[:, k], -1), device=frames.device)[
            :, None
        ]
        kind = torch.tensor(scenes.shape[:, k], device=frames.device)[:, None].expand_as(shape)
        shape = torch.where(colour == mine, kind, shape)
    return colour, shape


def patch_heads() -> torch.nn.ModuleDict:
    """Heads that read what covers a cell."""
    return torch.nn.ModuleDict({"colour": torch.nn.Linear(HIDDEN, 9), "shape": torch.nn.Linear(HIDDEN, 5)})


def patch_loss(
    heads: torch.nn.ModuleDict, states: torch.Tensor, targets: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Loss of picture rows `states` [cells, HIDDEN] and the shares of covered cells whose colour and shape are
    right. Empty cells count a tenth."""
    loss, right = 0.0, []
    for name, target, none in zip(("colour", "shape"), targets, (8, 4)):
        target = target.flatten()
        logits = heads[name](states)
        weight = torch.where(target == none, 0.1, 1.0)
        loss = loss + (F.cross_entropy(logits, target, reduction="none") * weight).sum() / weight.sum()
        covered = target != none
        right.append((logits.argmax(-1) == target)[covered].float().mean())
    return loss, right[0], right[1]


def step_function(encoder: Encoder, args: argparse.Namespace):
    """step -> (loss, figures)."""
    batcher = Batcher(encoder, args.device)
    kinds = ("t2va", "ref2va", "fl2va", "ref2va")

    def run(step: int):
        task = kinds[step % 4]
        n = args.batch if task == "t2va" else max(1, args.batch // 4)
        requests = tasks.make(trainer.step_seed(args.seed, step, 5), n, task, pair_share=args.pairs)
        requests = tasks.loosened(requests, trainer.step_seed(args.seed, step, 6))
        batch = batcher(requests)
        tap, last = encoder(batch)
        end = batch["mask"].sum(1) - 1
        row = tap[torch.arange(n, device=tap.device), end]
        loss, right, total = 0.0, 0.0, 0
        for name, target in object_targets(requests).items():
            target = target.to(args.device).flatten()
            logits = encoder.object_heads[name](row).reshape(2 * n, -1)
            loss = loss + F.cross_entropy(logits, target, ignore_index=-100)
            right = right + (logits.argmax(-1) == target).float().sum()
            total += int((target >= 0).sum())
        for name, value in (
            ("background", [r.scene.background[0] for r in requests]),
            ("count", [r.scene.count[0] - 1 for r in requests]),
        ):
            target = torch.tensor(np.array(value), device=args.device)
            loss = loss + F.cross_entropy(encoder.scene_heads[name](row), target)
        logits = encoder.qwen.lm_head(last[:, :-1])
        words = torch.where(batch["types"][:, 1:] + batch["types"][:, :-1] == 0, batch["ids"][:, 1:], -100)
        words = torch.where(batch["mask"][:, 1:] == 1, words, -100)
        language = F.cross_entropy(logits.flatten(0, 1), words.flatten(), ignore_index=-100)
        loss = loss + 0.2 * language
        figures = {task: right / total, "language": language.detach()}
        if "frames" in batch:
            order = [i for kind in ("image", "video") for i, k in enumerate(batch["kinds"]) if k == kind]
            targets = patch_targets(batch["frames"], batch["scenes"])
            cells = torch.cat([tap[batch["types"] == 1], tap[batch["types"] == 2]])
            extra, figures["patch_colour"], figures["patch_shape"] = patch_loss(
                encoder.patch_heads, cells, tuple(t[order] for t in targets)
            )
            loss = loss + extra
        extra, right = name_loss(encoder, tap, name_targets(encoder, requests, batch["shown"]))
        loss = loss + extra
        figures |= {f"named_{k}": v for k, v in right.items()}
        # Keeps the tap's scale near one without a norm: the transformer projects it as it is.
        loss = loss + 1e-3 * (row.pow(2).mean() - 1).pow(2)
        return loss, figures

    return run


class Tower(torch.nn.Module):
    """The vision tower with heads on its merged tokens: what the first stage trains."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.visual, self.heads = encoder.qwen.model.visual, patch_heads()

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Frames [N, 2, 256, 256, 3] -> tokens [N * 64, HIDDEN]."""
        side = world.CANVAS // 16
        grid = torch.tensor([[1, side, side]] * len(frames), device=frames.device)
        return self.visual(patch_rows(frames), grid_thw=grid).pooler_output.float()


def picture_function(tower: Tower, args: argparse.Namespace):
    """step -> (loss, figures) of the first stage."""

    def run(step: int):
        rng = np.random.default_rng(trainer.step_seed(args.seed, step, 11))
        scenes = world.sample_scenes(args.batch, trainer.step_seed(args.seed, step, 12), split="all")
        frame = int(rng.integers(tasks.FRAMES))
        frames = stills(scenes, tasks.FRAMES, frame, args.device).expand(-1, 2, -1, -1, -1)
        loss, colour, shape = patch_loss(tower.heads, tower(frames), patch_targets(frames, scenes))
        return loss, {"patch_colour": colour, "patch_shape": shape}

    return run


def write(folder: pathlib.Path, encoder: Encoder) -> None:
    """`text_encoder/`: config.json, one bf16 shard and its index."""
    c = encoder.qwen.config
    text, vision = c.text_config, c.vision_config
    jsonfile.write(
        folder / "config.json",
        {
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "image_token_id": c.image_token_id,
            "model_type": "qwen3_vl",
            "text_config": {
                "attention_bias": False,
                "attention_dropout": 0.0,
                "bos_token_id": text.bos_token_id,
                "dtype": "bfloat16",
                "eos_token_id": text.eos_token_id,
                "head_dim": text.head_dim,
                "hidden_act": "silu",
                "hidden_size": text.hidden_size,
                "initializer_range": 0.02,
                "intermediate_size": text.intermediate_size,
                "max_position_embeddings": 262144,
                "model_type": "qwen3_vl_text",
                "num_attention_heads": text.num_attention_heads,
                "num_hidden_layers": text.num_hidden_layers,
                "num_key_value_heads": text.num_key_value_heads,
                "rms_norm_eps": text.rms_norm_eps,
                "rope_scaling": {
                    "mrope_interleaved": True,
                    "mrope_section": [6, 5, 5],
                    "rope_type": "default",
                },
                "rope_theta": 5000000,
                "use_cache": True,
                "vocab_size": text.vocab_size,
            },
            "tie_word_embeddings": False,
            "video_token_id": c.video_token_id,
            "vision_config": {
                "deepstack_visual_indexes": list(vision.deepstack_visual_indexes),
                "depth": vision.depth,
                "hidden_act": vision.hidden_act,
                "hidden_size": vision.hidden_size,
                "in_channels": 3,
                "initializer_range": 0.02,
                "intermediate_size": vision.intermediate_size,
                "model_type": "qwen3_vl",
                "num_heads": vision.num_heads,
                "num_position_embeddings": vision.num_position_embeddings,
                "out_hidden_size": vision.out_hidden_size,
                "patch_size": 16,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
            },
            "vision_end_token_id": c.vision_end_token_id,
            "vision_start_token_id": c.vision_start_token_id,
        },
    )
    tensors = {k: v.detach().to(torch.bfloat16) for k, v in encoder.qwen.state_dict().items()}
    native.write_shard(folder, tensors)


def read(folder: pathlib.Path, encoder: Encoder) -> None:
    """The weights of `text_encoder/` into an encoder."""
    stored = native.load_file(folder / native.SHARD)
    encoder.qwen.load_state_dict({k: v.float() for k, v in stored.items()})


@torch.no_grad()
def evaluate(encoder: Encoder, args: argparse.Namespace, n: int = 64) -> dict:
    """Share of attributes a linear head reads right on held-out requests, by task and attribute."""
    batcher, out = Batcher(encoder, args.device), {}
    cases = {t: tasks.make([args.seed, 999_999], n, t, split="test") for t in ("t2va", "fl2va", "ref2va")}
    cases["two_pictures"] = tasks.make([args.seed, 999_999], n, "ref2va", "test", pair_share=1.0)
    for task, requests in cases.items():
        batch = batcher(requests)
        tap = encoder(batch)[0]
        row = tap[torch.arange(n, device=args.device), batch["mask"].sum(1) - 1]
        _, right = name_loss(encoder, tap, name_targets(encoder, requests, batch["shown"]))
        out |= {f"{task}.named_{k}": round(float(v), 4) for k, v in right.items()}
        for name, target in object_targets(requests).items():
            target = target.to(args.device).flatten()
            guess = encoder.object_heads[name](row).reshape(2 * n, -1).argmax(-1)
            out[f"{task}.{name}"] = round(float((guess == target)[target >= 0].float().mean()), 4)
    return out


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    trainer.add_arguments(parser, batch=64, lr=1.5e-3)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True, help="folder of the tokenizer files")
    parser.add_argument(
        "--export", type=pathlib.Path, help="write the native files to DIR/text_encoder instead of training"
    )
    parser.add_argument("--evaluate", action="store_true", help="measure the state instead of training")
    parser.add_argument(
        "--pairs", type=float, default=0.5, help="share of requests with two objects (default 0.5)"
    )
    parser.add_argument("--pictures", action="store_true", help="first stage: the vision tower alone")
    parser.add_argument(
        "--init", type=pathlib.Path, help="start from the weights of this text_encoder/ folder"
    )
    args = parser.parse_args()
    trainer.check_arguments(args)
    options.within(args, "pairs", 0, 1)
    if not (args.tokenizer / "vocab.json").is_file():
        options.refuse("tokenizer", args.tokenizer, "must be a folder with a tokenizer (vocab.json)")
    with options.reading("tokenizer", args.tokenizer):
        encoder = Encoder(args.tokenizer, args.seed).to(args.device)
    if args.init:
        with options.reading("init", args.init):
            read(args.init, encoder)
    tower = Tower(encoder).to(args.device)
    if args.pictures:
        trainer.Trainer("text_pictures", tower, args).run(picture_function(tower, args))
        return
    if (args.state / "text_pictures.json").exists():
        trainer.load_parameters(args.state, "text_pictures", tower)
        encoder.patch_heads.load_state_dict(tower.heads.state_dict())
    t = trainer.Trainer("text", encoder, args)
    if args.evaluate:
        if not t.step:
            raise SystemExit(f"{args.state}: no state of text; train it first")
        print(evaluate(encoder, args))
    elif args.export:
        trainer.require_complete(args.state, "text")
        write(args.export / "text_encoder", encoder)
    else:
        t.run(step_function(encoder, args))


if __name__ == "__main__":
    main()
