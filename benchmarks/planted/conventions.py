"""Conventions that a simulator and a training set may differ in, planted into LeRobot simulators, with sound twins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy.spatial.transform import Rotation

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
        name: its type in LeRobot.
        options: of LeRobot's config of the environment.
        record: writes episodes from a seed into a folder.
        size: number of dimensions of the state.
        axes: two action dimensions whose exchange and signs are planted; the gripper's, if there is one.
    """

    name: str
    options: Mapping[str, Any]
    record: Callable[[Path, int], object]
    size: int
    axes: tuple[int, int] = (0, 1)
    gripper: int | None = None
    rename: Mapping[str, str] = field(default_factory=dict)


def record_pusht(root: Path, seed: int) -> None:
    from strobe.simulators.scripted import record_pusht

    record_pusht(root, 12, 60, image=96, seed=seed)


def record_metaworld(root: Path, seed: int) -> None:
    from strobe.simulators.scripted import Scene, record_metaworld

    record_metaworld(root, 8, 80, scene=Scene("pick-place-v3", ("corner2", "topview")), seed=seed)


def record_states(root: Path, seed: int) -> None:
    from strobe.simulators.metaworld_state import Read, record_states

    record_states(root, 12, 100, read=Read("pick-place-v3"), seed=seed)


def record_libero(root: Path, seed: int) -> None:
    from planted.libero import record_libero

    record_libero(root, seed, LIBERO_SPATIAL)


SIZE = {"observation_height": 96, "observation_width": 96}
LIBERO_SPATIAL = {"task": "libero_spatial", "task_ids": [0], **SIZE}
RENAME = {"observation.image": "observation.images.corner2"}
PUSHT = World("pusht", {}, record_pusht, 2)
STATES = World("metaworld_state", {"task": "pick-place-v3", "episode_length": 200}, record_states, 4, gripper=3)
METAWORLD = World("metaworld", {"task": "pick-place-v3"}, record_metaworld, 4, gripper=3, rename=RENAME)
LIBERO = World("libero", LIBERO_SPATIAL, record_libero, 8, gripper=6)
EXCHANGED: dict[str, dict[str, str]] = {
    "metaworld": {"observation.image": "observation.images.topview"},
    "libero": {"observation.images.image": "observation.images.image2",
               "observation.images.image2": "observation.images.image"},
}  # fmt: skip


@dataclass(frozen=True)
class Plant:
    """A convention that differs.

    Args:
        kinds: the checks that may name it.
        act: of the actions that the simulator gets.
        seen, recorded: changes of a side.
        rename: in place of the world's.
        options: of the environment, besides the world's.
    """

    name: str
    kinds: tuple[str, ...]
    act: Act | None = None
    seen: Callable[[Side], Side] = lambda side: side
    recorded: Callable[[Side], Side] = lambda side: side
    rename: Mapping[str, str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


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


def make_quaternions(states: np.ndarray) -> np.ndarray:
    """Return LIBERO's states, (ticks, dimensions), with a quaternion in place of the axis-angle."""
    return np.column_stack([states[:, :3], Rotation.from_rotvec(states[:, 3:6]).as_quat(), states[:, 6:]])


def make_euler_angles(states: np.ndarray) -> np.ndarray:
    """Return LIBERO's states, (ticks, dimensions), with Euler angles in place of the axis-angle."""
    return np.column_stack([states[:, :3], Rotation.from_rotvec(states[:, 3:6]).as_euler("xyz"), states[:, 6:]])


def raise_gripper(side: Side, world: World) -> Side:
    """Return a recording whose gripper goes from 0 to 1 in place of −1 to 1."""
    actions = [each.copy() for each in side.actions]
    for each in actions:
        each[:, world.gripper] = (each[:, world.gripper] + 1) / 2
    bounds = side.bounds.copy()
    bounds[:, world.gripper] = 0, 1
    return replace(side, actions=actions, bounds=bounds)


def plants(world: World) -> Iterator[Plant]:
    one, two = world.axes
    exchange = [two, one]
    if world is not STATES:
        yield Plant("upside down", ("image orientation",), seen=change_images(lambda each: each[::-1]))
        yield Plant("mirrored", ("image orientation",), seen=change_images(lambda each: each[:, ::-1]))
        yield Plant("turned", ("image orientation",), seen=change_images(lambda each: each[::-1, ::-1]))
        yield Plant("red and blue", ("image colours",), seen=change_images(lambda each: each[..., ::-1]))
        yield Plant("half the size", ("image size",), seen=change_images(lambda each: each[::2, ::2]))
    if world.name in EXCHANGED:
        yield Plant("cameras", ("camera order",), rename=EXCHANGED[world.name])
    yield Plant("in other units", ("state unit",), seen=change_state(lambda each: each * 1000))
    yield Plant("a dimension less", ("state dimensions",), seen=change_state(lambda each: each[..., :-1]))
    yield Plant("no state", ("state dimensions",), seen=change_state(lambda each: each[..., :0]))
    order = list(range(world.size))
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
    if world is LIBERO:  # whose recordings open the gripper again
        yield Plant("gripper from 0 to 1", ("gripper range",), recorded=lambda side: raise_gripper(side, world))
        yield Plant("absolute actions", ("action mode",), options={"control_mode": "absolute"})
        for name, change in (("a quaternion", make_quaternions), ("Euler angles", make_euler_angles)):
            yield Plant(name, ("rotation form",), seen=change_state(change))
            yield Plant(f"{name} recorded", ("rotation form",), recorded=change_state(change))
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

    env = EnvConfig.get_choice_class(world.name)(**world.options, **(plant.options if plant is not None else {}))
    rename = plant.rename if plant is not None and plant.rename is not None else world.rename
    with mock.patch.object(environments, "make", make_planted):
        return sides.look(env, recorded, rename)


def judge_plant(world: World, plant: Plant, recorded: Side, untouched: Side) -> list[str]:
    """Return the kinds of checks that differ with a plant; ``untouched`` is a look without any."""
    theirs = plant.recorded(recorded)
    again = HALF, "gripper from 0 to 1"  # other recorded actions: the simulator is to execute them
    alone = plant.act is None and plant.rename is None and not plant.options and plant.name not in again
    seen = plant.seen(untouched if alone else look(world, theirs, plant))
    return [check.kind for check in judge(theirs, seen) if check.verdict == "differs"]
