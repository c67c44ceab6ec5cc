"""What a request of the toy world must show, and the evaluator's figures of a clip made for it. NumPy only.

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


def keyframe(request: tasks.Request, at: str) -> np.ndarray:
    """The picture [H, W, 3] uint8 of a keyframe, "first" or "last"."""
    tracks = world.Tracks(world.Backend(), request.scene, tasks.FRAMES)
    return world.paint(tracks, 0 if at == "first" else tasks.FRAMES - 1, 1)[0]


def judge(request: tasks.Request, frames: np.ndarray, sound: np.ndarray) -> dict:
    """All figures of a clip. frames [F, H, W, 3] uint8, sound [2, samples]."""
    pictures = {at: keyframe(request, at) for at in request.keyframes}
    figures = evaluate.measure(frames, sound, wanted(request), **pictures)
    kinds = [r.kind for r in request.references]
    return {"prompt": request.prompt, "conditions": [*request.keyframes, *kinds], **figures}
