"""Words for scenes: a scene (or a scene told through references) -> varied English prompts, and prompts ->
attributes.

    describe(rng, scene)            "Against a black wall, a small red circle slides to the right."
    parse(prompt)                   {"background": 0, "objects": [{"shape": 0, "colour": 0, "size": 0, ...}]}

Every wording of an attribute is unique to it, so `parse` is a set of regular expressions. Attributes that a
prompt leaves to a reference ("the shape in <Picture 2>", "like the shape in <Video 1>", "with the sound of
<Audio 1>") come back as the number of the reference under `picture`, `video` and `audio`. Needs NumPy only.
"""

from __future__ import annotations

import re

import numpy as np

import world

SIZE_WORDS = (("small", "little", "tiny"), ("medium", "medium-sized", "mid-sized"), ("large", "big", "huge"))
SHAPE_WORDS = (("circle", "disc", "ball"), ("square", "box"), ("triangle",), ("star",))
MOTION_WORDS = (
    ("moves from left to right", "slides to the right", "glides rightward", "drifts towards the right side"),
    ("moves from right to left", "slides to the left", "glides leftward", "drifts towards the left side"),
    ("rises", "moves up", "floats upward", "climbs towards the top"),
    ("sinks", "moves down", "floats downward", "drops towards the bottom"),
    ("bounces between the walls", "bounces back and forth", "bounces off both sides"),
    ("orbits", "goes round and round", "loops around"),
    ("grows", "gets bigger", "expands"),
    ("shrinks", "gets smaller", "contracts"),
    ("stays still", "rests in place", "does not move"),
)
BACKDROPS = ("on a {} background", "in front of a {} backdrop", "against a {} wall", "over {}")
JOINS = (" while ", ", and ", " as ")
# What `parse` also understands, though `describe` never says it.
SAID_TOO = {
    world.RIGHT: ("moves right", "moves to the right"),
    world.LEFT: ("moves left", "moves to the left"),
    world.DOWN: ("falls",),
}
READ_MOTIONS = tuple(words + SAID_TOO.get(i, ()) for i, words in enumerate(MOTION_WORDS))
READ_JOINS = " while |,? and (?=an? |the )| as "


def _pick(rng: np.random.Generator, words):
    return words[int(rng.integers(len(words)))]


def _article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def _noun(rng: np.random.Generator, scene: world.Scenes, k: int, picture: int | None) -> str:
    """ "a small red circle", or the reference that shows it; growing and shrinking things have no size."""
    changing = scene.motion[0, k] in (world.GROW, world.SHRINK)
    size = "" if changing else _pick(rng, SIZE_WORDS[scene.size[0, k]])
    if picture is not None:
        return f"the shape in <Picture {picture}>" + (f", {size}," if size else "")
    shape = _pick(rng, SHAPE_WORDS[scene.shape[0, k]])
    return _article(" ".join(w for w in (size, world.COLOURS[scene.colour[0, k]], shape) if w))


def describe(
    rng: np.random.Generator,
    scene: world.Scenes,
    pictures: dict[int, int] | None = None,
    videos: dict[int, int] | None = None,
    audios: dict[int, int] | None = None,
) -> str:
    """A prompt for a batch of one scene; the dictionaries map an object to the number of its reference."""
    clauses = []
    for k in range(int(scene.count[0])):
        video, audio = (videos or {}).get(k), (audios or {}).get(k)
        motion = (
            _pick(rng, MOTION_WORDS[scene.motion[0, k]])
            if video is None
            else f"moves like the shape in <Video {video}>"
        )
        sound = f" with the sound of <Audio {audio}>" if audio is not None else ""
        clauses.append(_noun(rng, scene, k, (pictures or {}).get(k)) + " " + motion + sound)
    text = clauses[0] if len(clauses) == 1 else clauses[0] + _pick(rng, JOINS) + clauses[1]
    backdrop = _pick(rng, BACKDROPS).format(world.BACKGROUNDS[scene.background[0]])
    text = f"{backdrop}, {text}" if rng.random() < 0.4 else f"{text} {backdrop}"
    return text[0].upper() + text[1:] + ("." if rng.random() < 0.8 else "")


def _find(text: str, table) -> int | None:
    """The row of `table` whose wording occurs in `text`; the longest wording decides."""
    best, length = None, 0
    for value, words in enumerate(table):
        for word in words:
            if len(word) > length and re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text):
                best, length = value, len(word)
    return best


def _reference(text: str, kind: str) -> int | None:
    found = re.search(rf"<{kind} (\d+)>", text)
    return int(found.group(1)) if found else None


def parse(prompt: str) -> dict:
    """Attributes named by a prompt of this grammar; what it does not name is None."""
    text = prompt[:1].lower() + prompt[1:]
    backdrop = None
    for form in BACKDROPS:
        found = re.search(re.escape(form).replace(r"\{\}", "(" + "|".join(world.BACKGROUNDS) + ")"), text)
        if found:
            backdrop = world.BACKGROUNDS.index(found.group(1))
            text = text.replace(found.group(0), "")
            break
    objects = []
    for clause in re.split(READ_JOINS, text):
        motion_text = clause.split("like the shape in")[0]
        objects.append(
            {
                "shape": _find(clause, SHAPE_WORDS),
                "colour": _find(clause, [(c,) for c in world.COLOURS]),
                "size": _find(clause, SIZE_WORDS),
                "motion": _find(motion_text, READ_MOTIONS),
                "picture": _reference(clause, "Picture"),
                "video": _reference(clause, "Video"),
                "audio": _reference(clause, "Audio"),
            }
        )
        if objects[-1]["video"] is not None:
            objects[-1]["motion"] = None
    return {"background": backdrop, "objects": objects}


def unread(prompt: str) -> list[str]:
    """What `parse` makes nothing of, in words: attributes that a prompt does not name in the words of this grammar,
    and second shapes or colours in one clause."""
    want, text = parse(prompt), prompt[:1].lower() + prompt[1:]
    out = [] if want["background"] is not None else ["no backdrop that is known"]
    for backdrop in world.BACKGROUNDS:
        for form in BACKDROPS:
            text = text.replace(form.format(backdrop), "")
    for clause, thing in zip(re.split(READ_JOINS, text), want["objects"]):
        where = f'in "{clause.strip(" ,.")[:60]}"'
        for name, table in (("shape", SHAPE_WORDS), ("colour", [(c,) for c in world.COLOURS])):
            named = [words[0] for words in table if _find(clause, [words]) is not None]
            if len(named) > 1:
                out.append(f"{len(named)} {name}s ({', '.join(named)}) {where}, one is looked for")
            elif (
                not named
                and thing["picture"] is None
                and not (thing["video"] is not None and name == "shape")
            ):
                out.append(f"no {name} that is known {where}")
        if thing["motion"] is None and thing["video"] is None:
            out.append(f"no motion that is known {where}")
        if thing["size"] is not None and thing["motion"] in (world.GROW, world.SHRINK):
            out.append(f"the size {where}: what grows or shrinks has none")
    return out
