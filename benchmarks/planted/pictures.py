"""Made-up pictures of a made-up recording, as they are after decoding: the change and the brightness of each image.

A fixed camera sees each joint by another share, a camera on the wrist sees every joint in front of it move. Both have a
sensor's noise and a codec's grain. Faults: a camera that is late, a light that goes out. Sound twins and neighbours: a
camera that sees something else, or nothing; an exposure that drifts or steps; an arm before half of the image; a hand
over the lens; a light that flickers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from strobe.lerobot.datasets.images import PARTS, SIDES, Pictures

if TYPE_CHECKING:
    from planted.motion import Made

DARKENS = Callable[[np.ndarray], np.ndarray]  # frames from the moment on → times as bright


@dataclass(frozen=True)
class View:
    """A camera.

    Args:
        sees: the arm, another motion that all such cameras share, a motion that is its own, or nothing.
        wrist: whether it sits on the arm.
        late: frames by which its images are behind the rows.
        light: how bright the images are, from a third of the episode on, in the episodes `dark`.
        covered: share of the image that is covered from there on; 1: of the lens.
    """

    name: str
    sees: Literal["arm", "other", "own", "nothing"] = "arm"
    wrist: bool = False
    late: int = 0
    light: DARKENS | None = None
    covered: float = 0.0
    dark: tuple[int, ...] = ()


def make_pictures(made: Made, seed: int, *views: View) -> Pictures:
    """Return what decoding would give of each camera."""
    found = Pictures()
    for number, view in enumerate(views):
        random = np.random.default_rng([seed, number])
        shares = random.uniform(0.2, 1.0, len(made.robot.names) - 1)
        elsewhere = {
            "arm": made.state,
            "nothing": made.state,
            "other": made.make_another(50_000 + seed).state,
            "own": made.make_another(60_000 + 10 * seed + number).state,
        }
        scene = _smooth_scene(random)
        for at, state in enumerate(made.state):
            moving = np.resize(elsewhere[view.sees][at], state.shape)
            rows = np.clip(np.arange(len(state)) - view.late, 0, len(state) - 1)
            moving = moving[rows, :-1] / made.robot.turn
            light = _light(view, scene, moving, at, random)
            change = np.abs(np.diff(moving, axis=0)) @ (np.ones(len(shares)) if view.wrist else shares)
            change = 40 * np.tanh(20 * change) * (view.sees != "nothing")
            change += 1.0 + 0.3 * (np.arange(len(change)) % 2) + random.normal(0, 0.1, len(change))  # key frames
            change[len(state) // 3] += np.abs(np.diff(light[len(state) // 3 :][:2].mean(axis=(1, 2)))).sum()
            found.changes.setdefault(view.name, {})[at] = np.maximum(change, 0.0)
            found.light.setdefault(view.name, {})[at] = light
            grey = np.repeat(np.repeat(light[0], SIDES[0] // PARTS[0], axis=0), SIDES[1] // PARTS[1], axis=1)
            found.first.setdefault(view.name, {})[at] = np.repeat(grey[:, :, None], 3, axis=2)
    return found


def _smooth_scene(random: np.random.Generator) -> np.ndarray:
    rough = random.uniform(20, 220, (4, 4))
    rows, columns = (np.linspace(0, 3, size) for size in PARTS)
    return np.stack([np.interp(columns, range(4), each) for each in np.stack(
        [np.interp(rows, range(4), rough[:, at]) for at in range(4)], axis=1)])  # fmt: skip


def _light(view: View, scene: np.ndarray, moving: np.ndarray, at: int, random: np.random.Generator) -> np.ndarray:
    """Return the parts of each image: the scene, the arm before a few of them, what covers it, the light, the noise."""
    count, began = len(moving), len(moving) // 3
    light = np.repeat(scene[None], count, axis=0)
    if view.sees != "nothing":
        for tick, (row, column) in enumerate((moving[:, :2] * 3 + 0.5) % 1.0):
            place = int(row * (PARTS[0] - 3)), int(column * (PARTS[1] - 3))
            light[tick, place[0] : place[0] + 3, place[1] : place[1] + 3] *= 0.4
        if view.wrist:
            light = np.stack(
                [np.roll(one, int(40 * shift), axis=1) for one, shift in zip(light, moving[:, 0], strict=True)]
            )
    if at in view.dark:
        width = round(view.covered * PARTS[1])
        light[began:, :, :width] = 3.0
        if view.light is not None:
            light[began:] *= view.light(np.arange(count - began))[:, None, None]
    return np.clip(light + random.normal(0, 0.7, light.shape), 0, 255)


def _dark_episodes(made: Made, strength: int) -> tuple[int, ...]:
    count = len(made.action)
    return ((2,), (1, 4), tuple(range(0, count, 3)))[strength]


def _step(left: float) -> DARKENS:
    return lambda frames: np.full(len(frames), left)


LATE, LEFT = (6, 12, 40), (0.6, 0.4, 0.15)  # frames, times as bright: three strengths each
# Name of the fault → the checks that may name it, and the cameras.
PICTURE_PLANTS: dict[str, tuple[set[str], Callable[[Made, int], tuple[View, ...]]]] = {
    "late camera, other motion": ({"cameras in time"}, lambda made, strength: (
        View("front", "other"), View("side", "other", late=LATE[strength]))),
    "late wrist, other motion": ({"cameras in time"}, lambda made, strength: (
        View("front", "other", late=LATE[strength]), View("wrist", "other", wrist=True))),
    "late wrist": ({"cameras in time", "image lag"}, lambda made, strength: (
        View("front"), View("wrist", wrist=True, late=LATE[strength]))),
    "light of one camera": ({"light"}, lambda made, strength: (
        View("front", light=_step(LEFT[strength]), dark=_dark_episodes(made, strength)), View("side"))),
    "light of all cameras": ({"light"}, lambda made, strength: tuple(
        View(name, wrist=name == "wrist", light=_step(LEFT[strength]), dark=_dark_episodes(made, strength))
        for name in ("front", "wrist"))),
    "black in all cameras": ({"light"}, lambda made, strength: tuple(
        View(name, light=_step(0.005), dark=_dark_episodes(made, strength)) for name in ("front", "side"))),
}  # fmt: skip
ALL = tuple(range(12))
SOUND_PICTURES: dict[str, tuple[View, ...]] = {
    "front and wrist": (View("front"), View("wrist", wrist=True)),
    "two that see another motion": (View("front", "other"), View("wrist", "other", wrist=True)),
    "two that see their own motions": (View("front", "own"), View("side", "own")),
    "one that sees nothing": (View("front"), View("side", "nothing")),
    "none sees anything": (View("front", "nothing"), View("side", "nothing")),
    "two frames late": (View("front"), View("wrist", wrist=True, late=2)),
    "exposure drifts": (View("front", light=lambda frames: np.maximum(0.4, 1 - frames / 60), dark=ALL), View("side")),
    "exposure steps": (View("front", light=_step(0.79), dark=ALL), View("side")),
    "arm before half of it": (View("front", covered=0.5, dark=ALL), View("side")),
    "hand over the lens": (View("front", covered=1.0, dark=(1, 4, 7)), View("wrist", wrist=True)),
    "light flickers": (View("front", light=lambda frames: np.where(frames < 15, 0.4, 1.0), dark=ALL), View("side")),
}
