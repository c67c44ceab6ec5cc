"""Clips that are not as asked, for hints that training must not follow.

A clip half denoised hints at what it will be. In training data hints are always right, so a model learns to read looks
from them as soon as they can be seen, and trusts words less; in sampling a hint comes from the model's own earlier
evaluations, and a wrong one (a tinge of green where blue was asked for) is never mended. The same holds between sound
and picture: a tick that has begun to sound at the wrong time stays there. So `flow.py --astray` leads some hints astray:

    x_t = t h + (1 - t) noise, h between the clip x_0 and a stray of it;   the model predicts (x_0 - x_t) / (1 - t)

A stray picture moves as the clip does but shows other colours or shapes, or the two objects exchange their looks. In a stray sound
the ticks come somewhat too early or too late. (Sounds of other places and times altogether were too far astray: ticks
came late or not at all.) Half of the led pictures are led before or after a moment alone, as a model's own wrong hints come and
go (an object that is red first and purple later). No stray shows a held-out combination.
"""

from __future__ import annotations

import dataclasses

import numpy as np

import world

EXCHANGED = 0.5  # share of strays of two objects that exchange their looks
TICK_HOPS = 8  # of a fortieth of a second, that ticks are away at most


def looks(scenes: world.Scenes, seed) -> world.Scenes:
    """The scenes with another colour, shape or both for every object, or with looks exchanged."""
    rng = np.random.default_rng(seed)
    shape, colour = scenes.shape.copy(), scenes.colour.copy()
    left = np.arange(len(scenes))
    while len(left):
        n, pair = len(left), scenes.count[left] == 2
        exchanged = pair & (rng.random(n) < EXCHANGED)
        changes = rng.integers(3, size=(n, 2))  # the colour, the shape, both
        for look, asked, kinds, alone in (
            (colour, scenes.colour, world.COLOURS, 0),
            (shape, scenes.shape, world.SHAPES, 1),
        ):
            own = asked[left]
            other = (own + rng.integers(1, len(kinds), (n, 2))) % len(kinds)
            look[left] = np.where((changes == alone) | (changes == 2), other, own)
            look[left] = np.where(exchanged[:, None], own[:, ::-1], look[left])
        stray = dataclasses.replace(scenes, shape=shape, colour=colour).take(left)
        left = left[world.scene_held_out(stray) | pair & (stray.colour[:, 0] == stray.colour[:, 1])]
    return dataclasses.replace(scenes, shape=shape, colour=colour)


def tick_delay(tracks: world.Tracks, seed) -> np.ndarray:
    """[B, 2, N] hops by which each tick of the tracks comes too late (or too early, below 0); never 0."""
    rng = np.random.default_rng(seed)
    shape = tuple(tracks.bounces()[2].shape)
    return rng.integers(1, TICK_HOPS + 1, shape) * rng.choice((-1, 1), shape)
