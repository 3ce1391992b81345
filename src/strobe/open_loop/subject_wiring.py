"""How a loaded policy takes its inputs and gives its actions: names, and the lines by which it normalises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from lerobot.configs import FeatureType
from lerobot.utils.constants import ACTION, OBS_STATE
from numpy.typing import NDArray

from strobe.core.families.capabilities import InputFacts
from strobe.lerobot.policies.action_map import IDENTITY, flat, nominal
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.policies.recorded_actions import RecordedActions, recorded_actions

Array = NDArray[np.float64]


@dataclass(frozen=True)
class VectorScale:
    """A vector's normalisation: number × ``factor`` + ``offset`` is in the vector's own units, (dimensions,) each."""

    factor: Array
    offset: Array

    def unnormalise(self, numbers: Any) -> object:
        """Return normalised ``numbers`` in their own units, as unnormalising does."""
        return numbers * self.factor + self.offset

    def normalise(self, values: Any) -> object:
        """Return ``values`` normalised."""
        return (values - self.offset) / self.factor

    def is_distant(self, other: VectorScale) -> bool:
        """Whether the two differ by more than rounding and a little more data would change."""
        near = np.abs(self.factor - other.factor) <= 0.1 * np.abs(other.factor)
        return not bool((near & (np.abs(self.offset - other.offset) <= 0.1 * np.abs(other.factor))).all())


@dataclass(frozen=True)
class VectorWiring:
    """How a vector is normalised.

    Args:
        own: by the policy's processors; None if they leave it unchanged.
        data: by the same mode with the data set's statistics; None if it has none.
        normalises: whether the processors should normalise it.
    """

    own: VectorScale | None = None
    data: VectorScale | None = None
    normalises: bool = False


@dataclass(frozen=True)
class SubjectWiring:
    """The policy's inputs and processors, to which changes are made.

    Args:
        state: the inputs' name for the state; None for a policy without.
        cameras: the inputs' name of each image that the policy takes → the policy's name.
        environment: the inputs' names for states of the environment, such as an object's place.
        words: whether the policy reads its prompt.
        tasks: the data set's, in words.
        names_actions: whether the policy's config has ``action_feature_names``.
    """

    recorded: RecordedActions
    state: str | None
    cameras: dict[str, str]
    environment: list[str]
    words: bool
    tasks: list[str]
    of_state: VectorWiring
    of_action: VectorWiring
    names_actions: bool = False

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs that a policy may look at or not."""
        own = [self.state] if self.state else []
        return [*own, *self.environment, *self.cameras, *(["task"] if self.words else [])]


def subject_wiring(subject: PolicySubject) -> SubjectWiring:
    """Return how ``subject``, whose inputs are frames of a data set, is wired. Raises UserError without actions."""
    frames = subject.inputs.frames
    assert frames is not None
    steps = list(subject.preprocessor.steps)
    renamed: dict[str, str] = {}
    for step in steps:
        renamed |= getattr(step, "rename_map", None) or {}
    config = subject.policy.config
    taken = dict(config.input_features or {})
    offered = {renamed.get(key, key): key for key in frames.meta.features}
    state = offered.get(OBS_STATE) if OBS_STATE in taken else None
    images = [name for name, feature in taken.items() if feature.type is FeatureType.VISUAL and name in offered]
    stats = subject.inputs.stats
    return SubjectWiring(
        recorded=recorded_actions(frames, state or OBS_STATE),
        state=state,
        cameras={offered[name]: name for name in images},
        environment=[
            offered[name] for name, feature in taken.items() if feature.type is FeatureType.ENV and name in offered
        ],
        words=InputFacts.from_family(subject.family).reads_words
        or any("tokenizer" in type(step).__name__.lower() for step in steps),
        tasks=_tasks(frames.meta),
        of_state=_wiring(steps, OBS_STATE, FeatureType.STATE, stats.get(state or OBS_STATE, {})),
        of_action=_wiring(subject.postprocessor.steps, ACTION, FeatureType.ACTION, stats.get(ACTION, {})),
        names_actions=hasattr(config, "action_feature_names"),
    )


def _tasks(meta: Any) -> list[str]:
    try:
        return [str(task) for task in meta.tasks.index]
    except AttributeError:
        return []


def _wiring(steps: Any, name: str, kind: FeatureType, stats: Mapping[str, object]) -> VectorWiring:
    if any(getattr(step, "relative_step", None) is not None and step.enabled for step in steps):
        return VectorWiring()
    step = next((step for step in steps if isinstance(getattr(step, "norm_map", None), Mapping)), None)
    mode = step.norm_map.get(kind) if step is not None else None
    mode = str(getattr(mode, "value", mode)) if mode is not None else IDENTITY
    if step is None or mode == IDENTITY:
        # As most policies of LeRobot normalise vectors.
        return VectorWiring(data=_line("MEAN_STD", stats))
    return VectorWiring(_line(mode, (step.stats or {}).get(name) or {}), _line(mode, stats), normalises=True)


def _line(mode: str, stats: Mapping[str, object]) -> VectorScale | None:
    found = nominal(mode, {key: flat(value) for key, value in stats.items() if key != "count"})
    if found is None:
        return None
    factor, offset = (part.numpy().astype(float) for part in found)
    if not (np.isfinite(factor).all() and np.isfinite(offset).all()):
        return None
    return VectorScale(np.where(np.abs(factor) > 1e-8, factor, 1.0), offset)
