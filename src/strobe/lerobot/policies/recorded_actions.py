"""The recorded actions and states of a data set's frames, and which frames are looked at first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from lerobot.utils.constants import ACTION
from numpy.typing import NDArray

from strobe.core.errors import UserError
from strobe.lerobot.datasets.recording import dimension_names
from strobe.lerobot.policies.dataset_frames import DatasetFrames

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RecordedActions:
    """Vectors of all frames that are read, in their order.

    Args:
        actions: (frames, action dim).
        states: (frames, state dim); None for a data set without.
        episodes: of each frame.
        names: of the action's dimensions.
        state_names: of the state's dimensions.
    """

    actions: Array
    states: Array | None
    episodes: NDArray[np.int64]
    names: list[str]
    state_names: list[str]

    @property
    def spread(self) -> Array:
        """σ of each action dimension; 0 for one that never moves."""
        spread = self.actions.std(axis=0)
        return np.where(spread > 1e-6 * np.maximum(1.0, np.abs(self.actions).max(axis=0)), spread, 0.0)

    @property
    def can_hold(self) -> bool:
        """Whether a state, taken as an action, would hold the robot still."""
        if self.states is None or self.states.shape[1] != self.actions.shape[1]:
            return False
        names, others = ([name.lower() for name in each] for each in (self.names, self.state_names))
        return not (names and others) or names == others

    def absolute(self) -> RecordedActions:
        """Return the actions as they are if the recorded ones are relative to the state of their own tick."""
        assert self.states is not None
        return replace(self, actions=self.actions + self.states)

    def slice_ticks(self, values: Array, frame: int, first: int, last: int) -> Array:
        """Return those of ``values``, actions or states, from tick ``first`` of a frame to before ``last``.

        What is outside the frame's episode is NaN.
        """
        places = np.arange(frame + first, frame + last)
        inside = (places >= 0) & (places < len(self.actions))
        inside[inside] &= self.episodes[places[inside]] == self.episodes[frame]
        window = np.full((len(places), values.shape[1]), np.nan)
        window[inside] = values[places[inside]]
        return window

    def tick(self, frame: int) -> int:
        """Return the tick of a frame in its episode, counted from its first frame."""
        return int(frame - np.flatnonzero(self.episodes == self.episodes[frame])[0])


def recorded_actions(frames: DatasetFrames, state: str) -> RecordedActions:
    """Return the actions and states of ``frames``.

    Args:
        state: the data set's name for the state.

    Raises:
        UserError: the data set has no actions, or they are no vectors.
    """
    if ACTION not in frames.meta.features:
        raise UserError("the dataset has no actions to compare with")
    actions = np.asarray(frames.column(ACTION), float)
    if actions.ndim != 2:
        raise UserError("the dataset's actions are not vectors")
    states = np.asarray(frames.column(state), float) if state in frames.meta.features else None
    return RecordedActions(
        actions=actions,
        states=states if states is not None and states.ndim == 2 else None,
        episodes=np.asarray(frames.column("episode_index"), int).reshape(-1),
        names=dimension_names(frames.meta.features[ACTION]) or [f"action {d}" for d in range(actions.shape[1])],
        state_names=dimension_names(frames.meta.features.get(state, {})),
    )


def spread_frames(episodes: NDArray[np.int64], most: int) -> list[int]:
    """Return at most ``most`` frames: one of each episode before a second of any, spread over each episode.

    However early it ends, the frames that were looked at are about equally many of each episode.
    """
    frames = [np.flatnonzero(episodes == episode) for episode in np.unique(episodes)]
    chosen: list[int] = []
    longest = max((len(own) for own in frames), default=0)
    taken: set[int] = set()
    for place in _spread_out(longest):
        for number, own in enumerate(frames):
            # Another place in each episode, so that not all are looked at in the same moment of the task.
            at = int(own[int(((place + number * 0.381966) % 1.0) * len(own))])
            if at not in taken:
                taken.add(at)
                chosen.append(at)
            if len(chosen) >= most:
                return chosen
    remaining = [int(frame) for own in frames for frame in own if int(frame) not in taken]
    return [*chosen, *remaining[: most - len(chosen)]]


def _spread_out(count: int) -> Sequence[float]:
    """Return the first numbers of van der Corput's sequence: 1/2, 1/4, 3/4, 1/8, and so on."""
    return [
        sum(int(bit) / 2**place for place, bit in enumerate(reversed(f"{number:b}"), 1))
        for number in range(1, count + 1)
    ]
