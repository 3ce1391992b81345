"""Changes of a policy's wiring: of its raw observation, of its actions, or of both.

A change of the observation costs a call of the policy on each frame, and several changes may share it. A change of the
actions costs none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from strobe.open_loop.results import HypothesisKind
from strobe.open_loop.subject_wiring import SubjectWiring
from strobe.open_loop.vectors import schemes

Array = NDArray[np.float64]
Observation = dict[str, Any]

REACH = 3  # ticks by which actions may be early or late
SIMULATORS_TASK = "the simulator's task"
OTHER_PROMPT = "nothing that this robot was ever asked to do"


@dataclass(frozen=True)
class Observed:
    """A change of the raw observation.

    Args:
        inputs: the inputs that it changes.
        extra: whether it is left out where calls take long.
    """

    name: str
    change: Callable[[Observation], Observation]
    inputs: tuple[str, ...]
    extra: bool = False


@dataclass(frozen=True)
class Change:
    """A hypothetical wiring.

    Args:
        name: in words.
        fix: advice to change the wiring accordingly.
        observed: the name of an `Observed`; None for the unchanged observation.
        act: changes the predicted actions, (frames, actions, dimensions).
        state_added: how many times the state is added to them.
        state_of: whose state is added, or would hold the robot still: that of the chunk's observation, or the one
            recorded with each action.
        recorded_relative: whether the recorded actions are relative to the state of their own tick. The policy's are
            then compared with the absolute ones.
        shift: ticks from a predicted action to the recorded one that it stands for.
        predicted_every, recorded_every: of the actions that are compared, each how manieth.
        dimensions: of the actions, those that it is judged on; None for all.
        over_hold: whether it must be better than holding still, since it makes a policy of nothing do that.
        inputs: those that it changes.
    """

    kind: HypothesisKind
    name: str
    fix: str
    observed: str | None = None
    act: Callable[[Array], Array] | None = None
    state_added: int = 0
    state_of: Literal["chunk", "action"] = "chunk"
    recorded_relative: bool = False
    shift: int = 0
    predicted_every: int = 1
    recorded_every: int = 1
    dimensions: tuple[int, ...] | None = None
    over_hold: bool = False
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Changes:
    """All changes of a subject, and the changed observations that they are judged on."""

    observed: list[Observed]
    all: list[Change]


def possible_changes(wiring: SubjectWiring) -> Changes:
    """Return the changes that are possible."""
    observed: list[Observed] = []
    changes: list[Change] = []
    for source in (_cameras, _images, _prompts, _vectors):
        for seen, change in source(wiring):
            if seen is not None:
                observed.append(seen)
            if change is not None:
                changes.append(change)
    return Changes(observed, [*changes, *_signs(wiring), *_relative(wiring), *_times()])


def elsewhere(name: str, observation: Observation, other: Observation) -> Observation:
    """Return ``observation`` with the input ``name`` of another frame; of the prompt, with words of no task."""
    return observation | {name: OTHER_PROMPT if name == "task" else other[name]}


Found = Iterator[tuple[Observed | None, Change | None]]


def _cameras(wiring: SubjectWiring) -> Found:
    for one, other in combinations(wiring.cameras, 2):
        names = (wiring.cameras[one], wiring.cameras[other])
        key = f"{_short(one)} and {_short(other)} swapped"
        fix = f'--rename_map=\'{{"{one}": "{names[1]}", "{other}": "{names[0]}"}}\''
        yield (
            Observed(key, lambda seen, a=one, b=other: seen | {a: seen[b], b: seen[a]}, (one, other)),
            Change(
                "cameras", f"the cameras {_short(one)} and {_short(other)} are swapped", fix, key,
                inputs=(one, other),
            ),
        )  # fmt: skip


def _images(wiring: SubjectWiring) -> Found:
    names = tuple(wiring.cameras)
    if not names:
        return

    def each(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Observation], Observation]:
        return lambda seen: seen | {name: change(seen[name]) for name in names if name in seen}

    def flip_channels(image: torch.Tensor) -> torch.Tensor:
        return image.flip(-3) if image.shape[-3] == 3 else image

    ways: tuple[tuple[HypothesisKind, str, Callable[[torch.Tensor], torch.Tensor], str, str], ...] = (
        ("channels", "red and blue swapped", flip_channels, "the images' channels are in the other order (RGB and BGR)",
         "Set color_mode: rgb of the robot's cameras, or convert the data set's images."),
        ("image-range", "images × 255", lambda image: image * 255, "the policy takes images from 0 to 255, not 0 to 1",
         "Give the policy images from 0 to 255. Its processors or its image statistics belong to another training."),
        ("image-range", "images / 255", lambda image: image / 255, "the images are 255 times too bright",
         "Divide images by 255 only once: the data set's images are already from 0 to 1."),
    )  # fmt: skip
    for kind, key, change, name, fix in ways:
        yield Observed(key, each(change), names), Change(kind, name, fix, key, inputs=names)


def _prompts(wiring: SubjectWiring) -> Found:
    if not wiring.words:
        return
    fix = 'Give the prompt of the training with --task="…": train_config.json and the training data have it.'
    empty = Observed("empty prompt", lambda seen: seen | {"task": ""}, ("task",))
    yield empty, Change("prompt", "the policy was trained with an empty prompt", fix, empty.name, inputs=("task",))
    if len(wiring.tasks) > 1:
        following = dict(zip(wiring.tasks, [*wiring.tasks[1:], wiring.tasks[0]], strict=True))
        other = Observed("another prompt", lambda seen: seen | {"task": following.get(seen["task"], "")}, ("task",))
        yield other, Change("prompt", "the policy gets another task's prompt", fix, other.name, inputs=("task",))


def _vectors(wiring: SubjectWiring) -> Found:
    state = wiring.state if wiring.recorded.states is not None else None
    for scheme in schemes(wiring):
        inputs = (state,) if state is not None else ()
        key = f"state: {scheme.name}"
        if state is not None and scheme.state is not None:
            yield (
                Observed(key, _make_vector_change(state, scheme.state), inputs, scheme.extra),
                Change(scheme.kinds[0], scheme.words("the state"), scheme.fixes[0], key, inputs=inputs),
            )
        if scheme.action is not None and scheme.action_by_itself:
            yield None, Change(scheme.kinds[1], scheme.words("the action"), scheme.fixes[1], act=scheme.action)
        if state is not None and scheme.state is not None and scheme.action is not None:
            yield (
                None,
                Change(
                    scheme.kinds[2],
                    scheme.words("state and action"),
                    scheme.fixes[2],
                    key,
                    scheme.action,
                    inputs=inputs,
                ),
            )


def _make_vector_change(key: str, change: Callable[[Array], Array]) -> Callable[[Observation], Observation]:
    def change_vector(seen: Observation) -> Observation:
        vector = seen[key]
        return seen | {key: torch.as_tensor(change(vector.double().numpy()), dtype=vector.dtype)}

    return change_vector


def _signs(wiring: SubjectWiring) -> Iterator[Change]:
    recorded = wiring.recorded
    ends = recorded.actions.min(axis=0) + recorded.actions.max(axis=0)
    for dimension, name in enumerate(recorded.names):
        if recorded.spread[dimension] == 0:
            continue
        for total, words in ((0.0, f"{name} has the other sign"), (ends[dimension], f"{name} is reversed")):
            yield Change(
                "sign", words,
                f"Calibrate {name} again in the direction of the training data, or change its sign in the data set's "
                "action and state.",
                act=_make_mirror(dimension, float(total)), dimensions=(dimension,),
            )  # fmt: skip


def _make_mirror(dimension: int, total: float) -> Callable[[Array], Array]:
    def act(predicted: Array) -> Array:
        changed = predicted.copy()
        changed[..., dimension] = total - changed[..., dimension]
        return changed

    return act


def _relative(wiring: SubjectWiring) -> Iterator[Change]:
    if not wiring.recorded.can_hold:
        return
    steps = "In policy_preprocessor.json and policy_postprocessor.json, {} the relative_actions step."
    data = "The policy and this data differ in their actions: {}."
    ways: tuple[tuple[str, int, Literal["chunk", "action"], str], ...] = (
        ("the policy's actions are relative to the state of their observation", 1, "chunk", steps.format("turn on")),
        ("the policy's actions are relative to the state of their own tick", 1, "action",
         data.format("convert those of the data to relative ones")),
        ("the state is added to the actions once too often", -1, "chunk", steps.format("turn off")),
    )  # fmt: skip
    for words, added, state_of, fix in ways:
        yield Change("relative", words, fix, state_added=added, state_of=state_of, over_hold=True)
    words = "this data's actions are relative to the state, the policy's are absolute"
    yield Change(
        "relative", words, data.format("convert those of the data to absolute ones"), state_of="action",
        recorded_relative=True, over_hold=True,
    )  # fmt: skip


def _times() -> Iterator[Change]:
    for shift in (*range(-REACH, 0), *range(1, REACH + 1)):
        late = f"{abs(shift)} control tick{'s' * (abs(shift) > 1)} {'earlier' if shift < 0 else 'later'}"
        yield Change(
            "shift", f"the policy predicts the actions recorded {late}",
            "Pair observations and actions as the training data does: action t belongs to the observation of control "
            "tick t.",
            shift=shift, over_hold=True,
        )  # fmt: skip
    fix = "Run the loop at the rate of the training (--fps), or record data at that rate: {} the rate of this data."
    yield Change(
        "rate", "the policy was trained at half the rate of this data", fix.format("half"), recorded_every=2,
        over_hold=True,
    )  # fmt: skip
    yield Change(
        "rate", "the policy was trained at twice the rate of this data", fix.format("twice"), predicted_every=2,
        over_hold=True,
    )  # fmt: skip


def _short(name: str) -> str:
    return name.rpartition(".")[2]
