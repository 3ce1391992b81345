"""Miswirings of the data for `preflight.py`: what a robot that is wired otherwise records."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from miswired.case import Case, Plant, Stage, apply_rename_map
from miswired.data import ACTION, METAWORLD, PUSHT, STATE, TABLE, Ticks, World
from miswired.training import ACT, DIFFUSION

from strobe.core.results.finding import Finding

LOOKED_AT, FRAMES = 20, 20  # episodes and frames; with 8 episodes, joints that change places are 'not shown'
MORE = 20, 60  # with 20 frames a shift in time is nearer and 'not shown': an episode's only frame may be one of rest
MOST = 40, 80  # relative actions are judged beside each tick's state, which no policy sees: 20 episodes are too few
Change = Callable[[Ticks], Ticks]
Fix = Callable[[Finding, World], Change]  # what a finding says, as a change of the planted data
DEGREES = 180 / np.pi


def _data(
    name: str, policy: tuple[str, World], rule: str, says: str, change: Change, fix: Fix, *, slower: int = 1,
    looked: tuple[int, int] = (LOOKED_AT, FRAMES),
) -> Plant:  # fmt: skip
    """Return a plant of the data.

    Args:
        fix: applied to the planted data; where it takes another recording, to the sound one.
        slower: by how much its rate is lower than the training's.
        looked: episodes and frames that are looked at.
    """
    episodes, frames = looked
    slug = name.replace(" ", "-")

    def make(stage: Stage) -> Case:
        planted = [change(dict(ticks)) for ticks in stage.episodes[:episodes]]
        fps = stage.world.fps // slower
        return Case(stage.policy, stage.write_dataset(planted, f"data-{slug}", fps), frames=frames)

    def apply_fix(finding: Finding, case: Case, stage: Stage) -> Case:
        wired = fix(finding, stage.world)
        source = stage.episodes[:episodes]
        if slower == 1:
            source = [change(dict(ticks)) for ticks in source]
        return replace(case, data=stage.write_dataset([wired(dict(ticks)) for ticks in source], f"fixed-{slug}"))

    return Plant("hypotheses", name, (policy[0], policy[1].name), (rule,), says, make, apply_fix)


def _swapped_cameras(policy: tuple[str, World]) -> Plant:
    def make(stage: Stage) -> Case:
        one, other = stage.world.cameras
        planted = [ticks | {one: ticks[other], other: ticks[one]} for ticks in stage.episodes[:LOOKED_AT]]
        return Case(stage.policy, stage.write_dataset(planted, "data-cameras"), frames=FRAMES)

    return Plant(
        "hypotheses", "cameras swapped", (policy[0], policy[1].name), ("wired-otherwise-cameras",), "--rename_map",
        make, lambda finding, case, stage: apply_rename_map(finding, case),
    )  # fmt: skip


def _each(change: Callable[[np.ndarray], np.ndarray], *keys: str) -> Change:
    return lambda ticks: ticks | {key: change(ticks[key]) for key in keys}


def _pair(one: int, other: int, key: str) -> Change:
    """Return the change in which two dimensions have each other's place."""

    def swap_dimensions(values: np.ndarray) -> np.ndarray:
        changed = values.copy()
        changed[:, [one, other]] = values[:, [other, one]]
        return changed

    return _each(swap_dimensions, key)


def _fix_order(key: str) -> Fix:
    """Return the fix that brings a vector into the order that a finding names."""

    def fix_order(finding: Finding, world: World) -> Change:
        text = finding.do or ""
        found = re.search(r"the order ([^:]*):", text)
        names = re.findall(r"\w+", found.group(1)) if found else list(world.dimensions)
        order = [world.dimensions.index(name) for name in names]
        return _each(lambda values: values[:, order], key)

    return fix_order


def _mirror(dimension: int, total: float) -> Change:
    def mirror_dimension(values: np.ndarray) -> np.ndarray:
        changed = values.copy()
        changed[:, dimension] = total - values[:, dimension]
        return changed

    return _each(mirror_dimension, ACTION)


def _fix_direction(total: float) -> Fix:
    """Return the fix that turns the dimension whose name a finding has."""

    def fix_direction(finding: Finding, world: World) -> Change:
        name = re.search(r"Calibrate (\S+) again", finding.do or "")
        return _mirror(world.dimensions.index(name.group(1)), total) if name else dict

    return fix_direction


def _convert_unit(finding: Finding, world: World) -> Change:
    """Convert to the unit that a finding says the policy takes."""
    factor = DEGREES if "takes degrees" in (finding.do or "") else 1 / DEGREES
    return _each(lambda values: values * factor, STATE, ACTION)


def _shift_actions(by: int) -> Change:
    """Return the change in which actions come so many ticks too early; below 0, too late."""

    def change(ticks: Ticks) -> Ticks:
        early, late = slice(by, None) if by > 0 else slice(None, by), slice(None, -by) if by > 0 else slice(-by, None)
        return {key: value[early if key == ACTION else late] for key, value in ticks.items()}

    return change


def _undo_shift(finding: Finding, world: World) -> Change:
    found = re.search(r"(\d) (?:control )?ticks? (earlier|later)", finding.found)
    if found is None:
        return dict
    return _shift_actions(-int(found.group(1)) if found.group(2) == "earlier" else int(found.group(1)))


def _absolute(finding: Finding, world: World) -> Change:
    sign = 1 if "absolute" in (finding.do or "") else -1
    return lambda ticks: ticks | {ACTION: ticks[ACTION] + sign * ticks[STATE]}


def _images(change: Callable[[np.ndarray], np.ndarray], world: World) -> Change:
    return _each(change, *world.cameras)


def _bgr(policy: tuple[str, World]) -> Plant:
    swap = _images(lambda images: images[..., ::-1], policy[1])
    return _data(
        f"BGR, {policy[0]} of {policy[1].name}", policy, "wired-otherwise-channels", "color_mode", swap, lambda *_: swap
    )


def _record_again(finding: Finding, world: World) -> Change:
    """Record again at the rate that a finding names: the sound recording, at twice the planted one's rate."""
    return (
        dict
        if "twice the rate of this data" in (finding.do or "")
        else lambda ticks: {k: v[::2] for k, v in ticks.items()}
    )


ARM: tuple[str, World] = (ACT, METAWORLD)
PUSHER: tuple[str, World] = (ACT, PUSHT)
IN_DATA: Sequence[Plant] = (
    # An ACT takes its cameras in any order (its features have no sign of their camera): nothing is wrong there.
    _swapped_cameras((DIFFUSION, METAWORLD)),
    _bgr(ARM),
    _bgr((DIFFUSION, METAWORLD)),
    _data("state order", PUSHER, "wired-otherwise-state-order", "observation.state", _pair(0, 1, STATE),
          _fix_order(STATE)),
    _data("state order of four", ARM, "wired-otherwise-state-order", "observation.state", _pair(1, 2, STATE),
          _fix_order(STATE)),
    _data("action order", PUSHER, "wired-otherwise-action-order", "dimensions in action", _pair(0, 1, ACTION),
          _fix_order(ACTION)),
    _data("action order of four", ARM, "wired-otherwise-action-order", "dimensions in action", _pair(1, 2, ACTION),
          _fix_order(ACTION)),
    _data("action order, Diffusion", (DIFFUSION, METAWORLD), "wired-otherwise-action-order", "dimensions in action",
          _pair(1, 3, ACTION), _fix_order(ACTION)),
    _data("radians", PUSHER, "wired-otherwise-units", "convert", _each(lambda v: v / DEGREES, STATE, ACTION),
          _convert_unit),
    _data("x reversed", PUSHER, "wired-otherwise-sign", "Calibrate x", _mirror(0, TABLE), _fix_direction(TABLE)),
    _data("gripper reversed", ARM, "wired-otherwise-sign", "Calibrate gripper", _mirror(3, 1.0), _fix_direction(1.0)),
    _data("relative actions", PUSHER, "wired-otherwise-relative", "absolute",
          lambda ticks: ticks | {ACTION: ticks[ACTION] - ticks[STATE]}, _absolute, looked=MOST),
    _data("actions two ticks early", ARM, "wired-otherwise-shift", "tick", _shift_actions(2), _undo_shift, looked=MORE),
    _data("half the rate", ARM, "wired-otherwise-rate", "--fps",
          lambda ticks: {key: value[::2] for key, value in ticks.items()}, _record_again, slower=2, looked=MORE),
)  # fmt: skip
