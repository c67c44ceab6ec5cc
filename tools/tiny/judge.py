"""The requests of a table, what they must show, and the evaluator's figures of the clips made for them. NumPy only.

The swap figure of ref2va exchanges the two pictures of a request and asks for the exchanged looks. NOT here:
requests (`tasks.py`), the measures themselves (`evaluate.py`).
"""

from __future__ import annotations

import numpy as np

import evaluate
import tasks
import world


def wanted(request: tasks.Request) -> dict:
    """The request's own scene (references included) in the form of `evaluate.expectation`."""
    s = request.scene
    objects = [
        {
            "shape": int(s.shape[0, k]),
            "colour": int(s.colour[0, k]),
            "motion": int(s.motion[0, k]),
            "timbre": int(s.timbre[0, k]),
            "size": None if s.motion[0, k] in (world.GROW, world.SHRINK) else int(s.size[0, k]),
        }
        for k in range(s.count[0])
    ]
    return {"background": int(s.background[0]), "objects": objects}


def swapped(request: tasks.Request) -> tasks.Request | None:
    """The request with its two pictures exchanged, asking for the exchanged looks; None if it has not two."""
    if [r.kind for r in request.references] != ["image", "image"]:
        return None
    scene = request.scene.take([0])
    for name in ("shape", "colour", "timbre"):
        setattr(scene, name, getattr(scene, name)[:, ::-1].copy())
    return tasks.Request("ref2va", request.prompt, scene, (), request.references[::-1])


def asked(seed: int, count: int, task: str, swap: bool = False, split: str = "test") -> list[tasks.Request]:
    """The requests of a table; those of a smaller one are not its first ones."""
    if not swap:
        return tasks.make([seed, 4242], count, task, split=split)
    scenes = world.sample_scenes(count, [seed, 4243], pair_share=1.0, split=split)
    return [swapped(r) for r in tasks.ask(scenes, [seed, 4243, 77], task)]


def keyframe(request: tasks.Request, at: str) -> np.ndarray:
    """The picture [H, W, 3] uint8 of a keyframe, "first" or "last"."""
    tracks = world.Tracks(world.Backend(), request.scene, tasks.FRAMES)
    return world.paint(tracks, 0 if at == "first" else tasks.FRAMES - 1, 1)[0]


def judge(request: tasks.Request, frames: np.ndarray, sound: np.ndarray) -> dict:
    """All figures of a clip. frames [F, H, W, 3] uint8, sound [2, samples]."""
    pictures = {at: keyframe(request, at) for at in request.keyframes}
    want = wanted(request)
    figures = evaluate.measure(frames, sound, want, **pictures)
    kinds = [r.kind for r in request.references]
    return {"prompt": request.prompt, "conditions": [*request.keyframes, *kinds], "wanted": want, **figures}


# What a reference decides -> the reference, and the figures of an object that must be right.
ROLES = {
    "identity_from_picture": ("image", ("colour", "shape")),
    "timbre_from_sound": ("audio", ("timbre",)),
    "motion_from_video": ("video", ("motion",)),
}


def _moves_apart(clip: dict) -> bool:
    """Whether a clip of two pictures tells by motion which of them is which."""
    first, second = (thing["motion"] for thing in clip["wanted"]["objects"])
    return clip["conditions"].count("image") == 2 and first != second


def roles(clips: list[dict]) -> dict[str, float]:
    """Share of objects that are as their reference says, by role. `roles_of_two_pictures` counts clips, of those
    whose objects move differently: each must have its picture's looks and its own motion."""
    clips = [c for c in clips if c.get("conditions")]
    out: dict[str, float] = {}
    for name, (kind, keys) in ROLES.items():
        objects = [o for c in clips if kind in c["conditions"] for o in c["objects"]]
        if objects:
            out[name] = round(float(np.mean([all(o[k] for k in keys) for o in objects])), 4)
    pairs = [c for c in clips if len(c["objects"]) == 2 and _moves_apart(c)]
    if pairs:
        keys = ("colour", "shape", "motion")
        right = [c["count"] and all(o[k] for o in c["objects"] for k in keys) for c in pairs]
        out["roles_of_two_pictures"] = round(float(np.mean(right)), 4)
    return out


def looks(clips: list[dict]) -> dict[str, float]:
    """Share of objects whose colour and shape are both right, by the size asked for; growing and shrinking ones have none."""
    right: dict[int, list[bool]] = {}
    for clip in clips:
        for want, found in zip(clip["wanted"]["objects"], clip["objects"]):
            right.setdefault(want["size"], []).append(bool(found["colour"] and found["shape"]))
    sizes = [(k, name) for k, name in enumerate(world.SIZES) if k in right]
    return {f"looks_of_{name}": round(float(np.mean(right[k])), 4) for k, name in sizes}


def table(clips: list[dict]) -> tuple[dict, str]:
    """Summary of clips, and that for people."""
    summary, found = evaluate.summarise(clips), looks(clips) | roles(clips)
    lines = [f"  {name:26s} {100 * value:6.1f} %" for name, value in found.items()]
    return summary | found, "\n".join([evaluate.table(summary), *lines])
