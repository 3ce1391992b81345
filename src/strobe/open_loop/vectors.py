"""Hypotheses on a state and an action together: their order, unit and normalisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from strobe.open_loop.results import HypothesisKind
from strobe.open_loop.subject_wiring import SubjectWiring, VectorWiring

MOST_PAIRS_OF = 8  # dimensions of which each pair is swapped
FEW = 4  # dimensions whose pairs are few
Vector = Callable[[Any], Any]  # of an array, (…, dimensions)


@dataclass(frozen=True)
class Scheme:
    """One hypothesis, for the state, for the action, and for both.

    Args:
        kinds: of the hypotheses on the state, on the action, and on both.
        words: makes a sentence about one of them.
        fixes: for each of the three.
        state, action: what is done to the vector; None if nothing can be.
        action_by_itself: whether the action is looked at without the state.
        extra: whether it is left out where calls take long.
    """

    name: str
    kinds: tuple[HypothesisKind, HypothesisKind, HypothesisKind]
    words: Callable[[str], str]
    fixes: tuple[str, str, str]
    state: Vector | None = None
    action: Vector | None = None
    action_by_itself: bool = True
    extra: bool = False


def schemes(wiring: SubjectWiring) -> Iterator[Scheme]:
    """Yield the ways that are possible."""
    yield from _orders(wiring)
    yield from _units(wiring)
    yield from _normalisations(wiring)


def _orders(wiring: SubjectWiring) -> Iterator[Scheme]:
    recorded = wiring.recorded
    if recorded.states is None:
        return
    width = recorded.states.shape[1]
    names = recorded.state_names or [str(number) for number in range(width)]
    as_wide = recorded.actions.shape[1] == width
    for order, how, extra in _permutations(width, names):
        listed = ", ".join(names[place] for place in order)
        wanted = (
            f"The policy was trained with the order {listed}: use it for the robot's joints and the data's dimensions"
        )
        yield Scheme(
            f"order {listed}",
            ("state-order", "action-order", "order"),
            lambda what, how=how: f"in {what}, {how}",
            (f"{wanted} in observation.state.", "", f"{wanted} in observation.state and action."),
            partial(_reorder, order=order),
            partial(_reorder, order=list(np.argsort(order))) if as_wide else None,
            action_by_itself=False,
            extra=extra,
        )


def _permutations(width: int, names: Sequence[str]) -> Iterator[tuple[tuple[int, ...], str, bool]]:
    plain, seen = tuple(range(width)), {tuple(range(width))}
    half = width // 2
    found: list[tuple[tuple[int, ...], str, bool]] = []
    if width <= MOST_PAIRS_OF:
        for one, other in combinations(plain, 2):
            order = list(plain)
            order[one], order[other] = other, one
            found.append((tuple(order), f"{names[one]} and {names[other]} are swapped", width > FEW))
    found.append((plain[::-1], "the order is reversed", False))
    if width % 2 == 0 and width > 2:
        found.append((plain[half:] + plain[:half], "the two halves are swapped", False))
    for order, words, extra in found:
        if order not in seen:
            seen.add(order)
            yield order, words, extra


def _reorder(vector: Any, order: Sequence[int]) -> object:
    return vector[..., list(order)]


def _units(wiring: SubjectWiring) -> Iterator[Scheme]:
    recorded = wiring.recorded
    for factor, own, data in ((180 / math.pi, "degrees", "radians"), (math.pi / 180, "radians", "degrees")):
        wanted = (
            f"The policy takes {own}, and the data has {data}: convert the data, or set the robot's unit (use_degrees)"
        )
        state = None
        if recorded.states is not None:
            state = partial(_scale, factor=_joints(recorded.state_names, recorded.states.shape[1], factor))
        yield Scheme(
            f"{own} for {data}",
            ("units", "units", "units"),
            lambda what, own=own, data=data: f"{what} should be in {own}, not in {data}",
            (f"{wanted} of observation.state.", f"{wanted} of action.", f"{wanted}."),
            state,
            partial(_scale, factor=1 / _joints(recorded.names, recorded.actions.shape[1], factor)),
        )


def _joints(names: Sequence[str], width: int, factor: float) -> Any:
    known = names if len(names) == width else [""] * width
    return np.array([1.0 if "gripper" in name.lower() else factor for name in known])


def _scale(vector: Any, factor: Any) -> object:
    return vector * factor


def _normalisations(wiring: SubjectWiring) -> Iterator[Scheme]:
    state, action = wiring.of_state, wiring.of_action
    missing = (
        "strobe preflight --policy.path=… --dataset.root=… --fix=FOLDER writes a copy with this data's statistics."
    )
    other = (
        "The processors have statistics of other data: use the policy_preprocessor and policy_postprocessor files of "
        "the training that made these weights."
    )
    fixes = tuple(
        missing if any(vector.normalises and vector.own is None for vector in vectors) else other
        for vectors in ((state,), (action,), (state, action))
    )
    identity = 'Set "{}": "IDENTITY" in the norm_map of the normaliser in policy_preprocessor.json'
    none = (
        f"{identity.format('STATE')}.",
        f"{identity.format('ACTION')}, and in policy_postprocessor.json.",
        f'{identity.format("STATE")}, and "ACTION" in policy_postprocessor.json.',
    )
    twice = ("The training data was normalised before it was recorded: normalise observation.state of this data too.",
             "The training data was normalised before it was recorded: unnormalise the actions again.",
             "The training data was normalised before it was recorded: normalise this data too.")  # fmt: skip
    ways: tuple[tuple[str, str, tuple[str, str, str], object, object], ...] = (
        ("baseline", "{} should not be normalised", none, _raw, _normalised_again),
        ("twice", "{} should be normalised twice", twice, _normalised_again, _raw),
        ("by this data", "{} should be normalised with this data's statistics", (fixes[0], fixes[1], fixes[2]),
         _rescale_to_data, _from_data),
    )  # fmt: skip
    for name, words, fixes, of_state, of_action in ways:
        changed_state = of_state(state) if wiring.recorded.states is not None else None
        changed_action = of_action(action)
        if changed_state is not None or changed_action is not None:
            yield Scheme(
                name, ("statistics", "statistics", "statistics"), words.format, fixes, changed_state, changed_action
            )


def _raw(vector: VectorWiring) -> Vector | None:
    return None if vector.own is None else vector.own.unnormalise


def _normalised_again(vector: VectorWiring) -> Vector | None:
    return None if vector.own is None else vector.own.normalise


def _rescale_to_data(vector: VectorWiring) -> Vector | None:
    own, data = vector.own, vector.data
    if data is None or (own is not None and not own.is_distant(data)):
        return None
    return data.normalise if own is None else lambda values: own.unnormalise(data.normalise(values))


def _from_data(vector: VectorWiring) -> Vector | None:
    own, data = vector.own, vector.data
    if data is None or (own is not None and not own.is_distant(data)):
        return None
    return data.unnormalise if own is None else lambda values: data.unnormalise(own.normalise(values))
