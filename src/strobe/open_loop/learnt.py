"""A look at a policy's chunks on recorded frames: the inputs that move them, and the changes that they make.

All predictions on a frame are made with the same noise, so what another frame's camera, state or prompt changes is the
effect of that input alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from strobe.lerobot.datasets.numbers import is_switch
from strobe.open_loop.changes import SIMULATORS_TASK
from strobe.open_loop.errors import paired_error, rms
from strobe.open_loop.hypotheses import Compared
from strobe.open_loop.results import InputEffect, Learnt, SummedSteps, Switch

Array = NDArray[np.float64]
GOES_WITH, LAGS = 0.7, 3  # least correlation of a step with the state's change, which follows in fewer ticks


def learn(data: Compared, executed: int) -> Learnt:
    """Return what the predicted chunks show, and the recorded ones.

    Args:
        data: chunks of some frames, with each input of another frame where the calls were short enough.
        executed: actions of each chunk.
    """
    predicted, recorded = data.predictions.wired, data.recorded_actions()
    effects = [_effect(name, other, data) for name, other in data.predictions.elsewhere.items()]
    away = [_square_distance(chunks, data) for chunks in (predicted, recorded)]
    asked = data.predictions.changed.get(SIMULATORS_TASK)
    start, later = _errors_of_starts(predicted, recorded, data)
    return Learnt(
        spread=_spread(predicted, data),
        recorded_spread=_spread(recorded, data),
        noise=rms(data.errors(data.predictions.again, predicted)) if data.predictions.again is not None else None,
        inputs=[each for each in effects if each is not None],
        simulator_task=rms(data.errors(asked, predicted)) if asked is not None else None,
        from_state=rms(away[0]),
        recorded_from_state=rms(away[1]),
        held=paired_error(away[0], away[1], data.episodes),
        start_rms=start,
        later_rms=later,
        switches=_switches(predicted, recorded, data),
        steps=_sum_steps(predicted[:, :executed], recorded[:, :executed], data),
    )


def _spread(chunks: Array, data: Compared) -> float | None:
    """Return by how much chunks of different frames differ, in σ: root mean square around their mean chunk."""
    whole = np.isfinite(chunks).all(axis=(1, 2))  # without those that an episode's end cuts
    if whole.sum() < 2:
        return None
    some = chunks[whole]
    return rms(data.errors(some, np.broadcast_to(some.mean(axis=0), some.shape)))


def _effect(name: str, other: Array, data: Compared) -> InputEffect | None:
    squares = data.errors(other, data.predictions.wired)
    known = np.isfinite(squares).any(axis=(1, 2))
    moved = rms(squares)
    return InputEffect(name=name, moved=moved, frames=int(known.sum())) if moved is not None else None


def _errors_of_starts(predicted: Array, recorded: Array, data: Compared) -> tuple[float | None, float | None]:
    """Return the errors of chunks that begin within an episode's first chunk, and of the others."""
    squares = data.errors(predicted, recorded)
    early = np.array([data.recorded.tick(frame) < data.chunk for frame in data.predictions.frames])
    return rms(squares[early]), rms(squares[~early])


def _square_distance(chunks: Array, data: Compared) -> Array:
    """Return how far the last actions of the chunks are from the state of their frames, squared, in σ²."""
    if not data.recorded.can_hold or data.states is None:
        return np.full_like(chunks[:, -1:], np.nan)
    return data.errors(chunks[:, -1:], data.recorded_states("chunk"))


def _switches(predicted: Array, recorded: Array, data: Compared) -> list[Switch]:
    """Return the dimensions that are open or closed, and in how many of their chunks a change is predicted."""
    actions, found = data.recorded.actions, []
    few = actions[np.isfinite(actions).all(axis=1)]
    if not len(few):
        return []
    for at in np.flatnonzero(is_switch(few) & (data.recorded.spread > 0)):
        middle = float(few[:, at].min() + few[:, at].max()) / 2
        real, made = _change(recorded[..., at], middle), _change(predicted[..., at], middle)
        changes, caught = real != 0, (real != 0) & (made == real)
        episodes = np.unique(data.episodes[changes])
        missed = [bool(caught[changes & (data.episodes == episode)].mean() < 0.5) for episode in episodes]
        found.append(
            Switch(
                name=data.recorded.names[at], changes=int(changes.sum()), caught=int(caught.sum()),
                invented=int((~changes & (made != 0)).sum()), steady=int((~changes).sum()),
                episodes=len(episodes), missed=sum(missed),
            )
        )  # fmt: skip
    return found


def _sum_steps(predicted: Array, recorded: Array, data: Compared) -> list[SummedSteps]:
    """Return how errors add up along chunks, of the dimensions that are steps of the state."""
    found, off = [], predicted - recorded
    for at in _find_steps(data):
        if (size := rms(recorded[..., at] ** 2)) and (single := rms(off[..., at] ** 2)) is not None:
            errors, sums = ((each[..., at].sum(axis=1) / size)[:, None, None] ** 2 for each in (off, recorded))
            name, paired = data.recorded.names[at], paired_error(errors, sums, data.episodes)
            found.append(SummedSteps(name=name, actions=predicted.shape[1], single=single / size, summed=paired))
    return found


def _find_steps(data: Compared) -> list[int]:
    """Return the dimensions that go with the change of the state in their place, and less with the state itself."""
    actions, states, episodes = data.recorded.actions, data.recorded.states, data.recorded.episodes
    if states is None or len(actions) <= LAGS + 2:
        return []
    actions, states = (each[:, : min(actions.shape[1], states.shape[1])] for each in (actions, states))
    level, change, moved = _correlate(actions, states), np.zeros(actions.shape[1]), np.diff(states, axis=0)
    for lag in range(LAGS):
        same = episodes[: len(moved) - lag] == episodes[lag + 1 :]
        change = np.maximum(change, _correlate(actions[: len(same)][same], moved[lag:][same]))
    switches = is_switch(actions[np.isfinite(actions).all(axis=1)])
    return [int(at) for at in np.flatnonzero((change >= GOES_WITH) & (change > level) & ~switches)]


def _correlate(one: Array, other: Array) -> Array:
    """Return the size of the correlation in each dimension; 0 for one that never changes."""
    with np.errstate(divide="ignore", invalid="ignore"):
        one, other = ((each - each.mean(axis=0)) / each.std(axis=0) for each in (one, other))
    return np.nan_to_num(np.abs((one * other).mean(axis=0)))


def _change(chunks: Array, middle: float) -> NDArray[np.int64]:
    """Return for each chunk (frames, actions) 1 where it ends above the middle and begins below, −1 for the reverse."""
    above = np.where(np.isfinite(chunks), chunks > middle, False)
    last = np.maximum(np.isfinite(chunks).sum(axis=1) - 1, 0)
    ends = np.take_along_axis(above, last[:, None], axis=1)[:, 0]
    return ends.astype(np.int64) - above[:, 0].astype(np.int64)
