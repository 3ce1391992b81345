"""Conventions that a simulator and a training set may differ in, planted into PushT and MetaWorld, with sound twins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from strobe.contract import sides
from strobe.contract.compare import judge
from strobe.contract.sides import Side
from strobe.lerobot.envs import environments

HALF = "half the rate"
Act = Callable[[np.ndarray], np.ndarray]  # the actions that the simulator gets instead of these


@dataclass(frozen=True)
class World:
    """A simulator with its recorder.

    Args:
        options: of LeRobot's config of the environment.
        record: writes episodes from a seed into a folder.
        axes: two action dimensions whose exchange and signs are planted; the gripper's, if there is one.
    """

    name: str
    options: Mapping[str, Any]
    record: Callable[[Path, int], object]
    axes: tuple[int, int] = (0, 1)
    gripper: int | None = None
    rename: Mapping[str, str] = field(default_factory=dict)


def record_pusht(root: Path, seed: int) -> None:
    from strobe.simulators.scripted_pusht import record_pusht

    record_pusht(root, 12, 60, image=96, seed=seed)


def record_metaworld(root: Path, seed: int) -> None:
    from strobe.simulators.scripted_metaworld import Scene, record_metaworld

    record_metaworld(root, 8, 80, scene=Scene("pick-place-v3", ("corner2", "topview")), seed=seed)


def record_states(root: Path, seed: int) -> None:
    from strobe.simulators.metaworld_state import Read, record_states

    record_states(root, 12, 100, read=Read("pick-place-v3"), seed=seed)


RENAME = {"observation.image": "observation.images.corner2"}
PUSHT = World("pusht", {}, record_pusht)
STATES = World("metaworld_state", {"task": "pick-place-v3", "episode_length": 200}, record_states, gripper=3)
METAWORLD = World("metaworld", {"task": "pick-place-v3"}, record_metaworld, gripper=3, rename=RENAME)


@dataclass(frozen=True)
class Plant:
    """A convention that differs.

    Args:
        kinds: the checks that may name it.
        act: of the actions that the simulator gets.
        seen, recorded: changes of a side.
        rename: in place of the world's.
    """

    name: str
    kinds: tuple[str, ...]
    act: Act | None = None
    seen: Callable[[Side], Side] = lambda side: side
    recorded: Callable[[Side], Side] = lambda side: side
    rename: Mapping[str, str] | None = None


def change_images(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Side], Side]:
    """Return a change of each image, (height, width, 3)."""
    return lambda side: replace(
        side, images={name: [change(each) for each in some] for name, some in side.images.items()}
    )


def change_state(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Side], Side]:
    """Return a change of each state, (ticks, dimensions)."""
    return lambda side: replace(side, states=[change(each) for each in side.states])


def change_actions(at: int | list[int], factor: float = 1.0, order: list[int] | None = None) -> Act:
    def act(actions: np.ndarray) -> np.ndarray:
        changed = actions.copy()
        changed[..., at] = actions[..., at if order is None else order] * factor
        return changed

    return act


def halve_rate(side: Side) -> Side:
    """Return a recording of every second row."""
    return replace(side, fps=side.fps / 2, states=[each[::2] for each in side.states],
                   actions=[each[::2] for each in side.actions])  # fmt: skip


def plants(world: World) -> Iterator[Plant]:
    one, two = world.axes
    exchange = [two, one]
    if world is not STATES:
        yield Plant("upside down", ("image orientation",), seen=change_images(lambda each: each[::-1]))
        yield Plant("mirrored", ("image orientation",), seen=change_images(lambda each: each[:, ::-1]))
        yield Plant("turned", ("image orientation",), seen=change_images(lambda each: each[::-1, ::-1]))
        yield Plant("red and blue", ("image colours",), seen=change_images(lambda each: each[..., ::-1]))
        yield Plant("half the size", ("image size",), seen=change_images(lambda each: each[::2, ::2]))
    if world is METAWORLD:
        yield Plant("cameras", ("camera order",), rename={"observation.image": "observation.images.topview"})
    yield Plant("in other units", ("state unit",), seen=change_state(lambda each: each * 1000))
    yield Plant("a dimension less", ("state dimensions",), seen=change_state(lambda each: each[..., :-1]))
    order = list(range(4 if world is not PUSHT else 2))
    order[one], order[two] = order[two], order[one]
    both = ("state order", "action order") if world is PUSHT else ("state order",)
    yield Plant("state exchanged", both, seen=change_state(lambda each: each[..., order]))
    far = 300.0 if world is PUSHT else 0.25
    yield Plant(
        "starts elsewhere", ("starts",), seen=change_state(lambda each: each + far * (np.arange(len(order)) == one))
    )
    for at in world.axes:
        yield Plant(f"sign of {at}", ("action sign",), act=change_actions(at, -1.0))
        yield Plant(f"half of {at}", ("action scale",), act=change_actions(at, 0.5))
    yield Plant("half of all", ("action scale",), act=lambda actions: actions * 0.5)
    yield Plant("actions exchanged", ("action order",), act=change_actions([one, two], order=exchange))
    if world.gripper is not None:
        yield Plant("gripper", ("gripper direction",), act=change_actions(world.gripper, -1.0))
    yield Plant("clipped", ("action range",),
                seen=lambda side: replace(side, bounds=side.bounds * 0.3))  # fmt: skip
    yield Plant(HALF, ("control rate",), recorded=halve_rate)
    yield Plant("other words", ("task in words",), seen=lambda side: replace(side, tasks=["wave at the red cat"]))


def twins(world: World) -> Iterator[Plant]:
    yield Plant("sound", ())
    yield Plant("words in capitals", (), seen=lambda side: replace(side, tasks=[each.upper() for each in side.tasks]))
    if world is not PUSHT:  # whose actions are positions: nothing in their motions contradicts the paper
        yield Plant("rate on paper", (), recorded=lambda side: replace(side, fps=side.fps * 2))
    yield Plant("fewer episodes", (),
                recorded=lambda side: replace(side, states=side.states[::2], actions=side.actions[::2]))  # fmt: skip
    yield Plant("other starts", (), seen=lambda side: replace(
        side, images={name: some[3:] for name, some in side.images.items()}, states=side.states[3:],
        actions=side.actions[3:]))  # fmt: skip
    if world is not STATES:
        yield Plant("darker", (), seen=change_images(lambda each: each * 0.97))
        yield Plant("grain", (), seen=change_images(
            lambda each: (each + np.random.default_rng(0).normal(0, 4, each.shape)).clip(0, 255)))  # fmt: skip


def look(world: World, recorded: Side, plant: Plant | None = None) -> Side:
    """Return the simulator's side, with a plant in the actions that it gets, and in the names of its cameras."""
    from lerobot.envs.configs import EnvConfig

    environments.register_plugins(world.name)
    make, act = environments.make, (plant.act if plant is not None else None) or (lambda actions: actions)

    def make_planted(env: Any) -> Any:
        vectors = make(env)
        for vector in vectors.values():
            vector.step = lambda actions, step=vector.step: step(np.asarray(act(actions), np.float32))
        return vectors

    env = EnvConfig.get_choice_class(world.name)(**world.options)
    rename = plant.rename if plant is not None and plant.rename is not None else world.rename
    with mock.patch.object(environments, "make", make_planted):
        return sides.look(env, recorded, rename)


def judge_plant(world: World, plant: Plant, recorded: Side, untouched: Side) -> list[str]:
    """Return the kinds of checks that differ with a plant; ``untouched`` is a look without any."""
    theirs = plant.recorded(recorded)
    alone = plant.act is None and plant.rename is None and plant.name != HALF
    seen = plant.seen(untouched if alone else look(world, theirs, plant))
    return [check.kind for check in judge(theirs, seen) if check.verdict == "differs"]
