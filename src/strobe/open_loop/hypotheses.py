"""Judge hypotheses on the wiring by the errors of the actions: each change in pairs with no change.

A hypothesis is claimed where the error under it is smaller by a margin, in pairs over episodes, at a level that all
hypotheses share (Bonferroni); where the policy so wired is nearer to the recorded actions than their mean is; and where
it looks at the inputs that are changed. Random weights meet none of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from strobe.core.measure.statistics import bonferroni
from strobe.lerobot.policies.recorded_actions import RecordedActions
from strobe.open_loop.changes import REACH, Change
from strobe.open_loop.errors import (
    FEWEST_EPISODES,
    LEVEL,
    assignment,
    explained_variance,
    mean_square,
    paired_error,
    rms,
    squared_errors,
)
from strobe.open_loop.predictions import Predictions
from strobe.open_loop.results import LOOKED, Hypothesis, HypothesisOutcome, PairedError

Array = NDArray[np.float64]

MARGIN = 0.2  # least reduction of the error (RMS)
EXPLAINED = 0.3  # least share of the data explained under a hypothesis
ALIKE = 1.1  # times the error (RMS) of the best: hypotheses that explain the data as well
_SCALES = ("image-range", "units", "statistics")


@dataclass(frozen=True)
class Compared:
    """The recorded actions that predictions are compared with.

    Args:
        windows: recorded actions around each frame, (frames, REACH + 2 × chunk + REACH, dimensions); NaN outside the
            episode.
        states: recorded with these actions, (frames, the same ticks, state dim); None without.
        episodes: of each frame.
    """

    recorded: RecordedActions
    predictions: Predictions
    windows: Array
    states: Array | None
    episodes: NDArray[np.int64]

    @property
    def chunk(self) -> int:
        """The number of actions of a chunk."""
        return self.predictions.wired.shape[1]

    def recorded_actions(self, shift: int = 0, every: int = 1, count: int | None = None) -> Array:
        """Return recorded actions, (frames, count, dimensions), from ``shift`` ticks after the frame on."""
        count = self.chunk if count is None else count
        first = REACH + shift
        return self.windows[:, first : first + every * (count - 1) + 1 : every]

    def recorded_states(
        self, of: Literal["chunk", "action"], shift: int = 0, every: int = 1, count: int | None = None
    ) -> Array:
        """Return the states of the frames, or those recorded with the actions of `recorded_at`."""
        assert self.states is not None
        if of == "chunk":
            return self.states[:, REACH : REACH + 1]
        first, count = REACH + shift, self.chunk if count is None else count
        return self.states[:, first : first + every * (count - 1) + 1 : every]

    def absolute(self) -> Compared:
        """Return the same frames, with the actions as they are if the recorded ones are relative to the state."""
        assert self.states is not None
        return replace(self, recorded=self.recorded.absolute(), windows=self.windows + self.states)

    def errors(self, predicted: Array, recorded: Array) -> Array:
        """Return squared errors in σ."""
        return squared_errors(predicted, recorded, self.recorded.spread)


def match_recorded_actions(recorded: RecordedActions, predictions: Predictions) -> Compared:
    """Return ``predictions`` with what was recorded around their frames."""
    frames, chunk = predictions.frames, predictions.wired.shape[1]

    def windows(values: Array) -> Array:
        return np.stack([recorded.slice_ticks(values, frame, -REACH, 2 * chunk + REACH) for frame in frames])

    states = windows(recorded.states) if recorded.states is not None else None
    return Compared(recorded, predictions, windows(recorded.actions), states, recorded.episodes[frames])


def found_order(data: Compared, named_in_config: bool) -> tuple[Change | None, str]:
    """Return the change of the action's order that two halves of the episodes find; None, and why, without one.

    Args:
        named_in_config: whether the policy's config has ``action_feature_names``. LeRobot refuses a config with a field
            that its type has not.
    """
    episodes = np.unique(data.episodes)
    target, predicted, orders = data.recorded_actions(), data.predictions.wired, []
    if len(episodes) < FEWEST_EPISODES:
        return None, ""
    for half in (episodes[::2], episodes[1::2]):
        inside = np.isin(data.episodes, half)
        orders.append(assignment(predicted[inside], target[inside], data.recorded.spread))
    if orders[0] != orders[1]:
        return None, "the two halves of the episodes show different orders"
    order, names = orders[0], data.recorded.names
    if order == list(range(len(order))):
        return None, "both halves of the episodes show the present order"
    moved = ", ".join(f"{names[place]} as {names[at]}" for at, place in enumerate(order) if at != place)
    training = [names[int(at)] for at in np.argsort(order)]
    fix = f"The policy was trained with the order {', '.join(training)}: use it for the robot's joints and the data's "
    fix += "dimensions in action."
    if named_in_config:
        listed = ", ".join(f'"{name}"' for name in training)
        fix += f' config.json: "action_feature_names": [{listed}], by which RTC sends them.'
    return Change(
        "action-order",
        f"the action's dimensions are in another order: {moved}",
        fix,
        act=lambda actions: actions[..., order],
    ), ""  # fmt: skip


@dataclass
class _Judged:
    """A hypothesis, with its change and the mean square of its errors in all dimensions (σ²)."""

    change: Change
    hypothesis: Hypothesis
    whole: float = np.inf
    meets: bool = field(default=False)


def judge_all(changes: Sequence[Change], data: Compared, *, named_in_config: bool = False) -> list[Hypothesis]:
    """Return all hypotheses, the claimed one first, then by the error under them.

    Args:
        named_in_config: whether the policy's config has a field for the names of the action's dimensions.
    """
    order, why = found_order(data, named_in_config)
    extra = [order] if order is not None else []
    every = [*changes, *extra]
    level = bonferroni(len(every), LEVEL)
    judged = [_judge(change, data, level) for change in every]
    if why:
        unfound = Hypothesis(kind="action-order", name="the action's dimensions are in another order", why=why or None)
        unfound.outcome = "not better"
        judged.append(_Judged(replace(every[0], inputs=()), unfound))
    _claim_the_best(judged)
    places = get_args(HypothesisOutcome)
    judged.sort(key=lambda each: (places.index(each.hypothesis.outcome), each.whole))
    return [each.hypothesis for each in judged]


def _claim_the_best(judged: Sequence[_Judged]) -> None:
    met = [each for each in judged if each.meets]
    if not met:
        return
    least = min(each.whole for each in met)
    alike = [each for each in met if each.whole <= ALIKE**2 * least]
    # Other statistics fit many faults, such as another unit, so what is more specific comes before them.
    best = min(alike, key=lambda each: (each.change.kind == "statistics", each.whole))
    claimed = {best.change.dimensions}
    for each in sorted(met, key=lambda each: each.whole):
        other = each.change.kind == best.change.kind == "sign" and each.change.dimensions not in claimed
        if each is best or other:
            each.hypothesis.outcome = "claimed"
            claimed.add(each.change.dimensions)
        else:
            each.hypothesis.outcome = "surpassed"
            each.hypothesis.why = f"better than the present wiring, but not as good as: {best.hypothesis.name}"


def _judge(change: Change, data: Compared, level: float) -> _Judged:
    hypothesis = Hypothesis(kind=change.kind, name=change.name, fix=change.fix, inputs=list(change.inputs))
    judged = _Judged(change, hypothesis)
    predicted, hypothesis.why = _predict_under_change(change, data)
    if predicted is None:
        return judged
    count = -(-data.chunk // change.predicted_every)
    own = predicted[:, :: change.predicted_every]
    # A policy of absolute actions misses by far more than relative ones vary, however well it was trained. Its errors
    # are therefore judged in σ of the absolute actions. All hypotheses are ranked in σ of the recorded ones.
    under = data.absolute() if change.recorded_relative else data
    target = under.recorded_actions(change.shift, change.recorded_every, count)
    squares = under.errors(own, target)
    wired = under.errors(data.predictions.wired[:, :count], data.recorded_actions(count=count))
    mean = under.errors(np.broadcast_to(under.recorded.actions.mean(axis=0), target.shape), target)
    judged.whole = mean_square(data.errors(own, target)) or np.inf
    if change.dimensions is not None:
        squares, wired, mean = (each[..., list(change.dimensions)] for each in (squares, wired, mean))
    hypothesis.explained, hypothesis.wired = explained_variance(squares, mean), explained_variance(wired, mean)
    hypothesis.paired = paired_error(squares, wired, data.episodes, level)
    hypothesis.over_mean = paired_error(squares, mean, data.episodes, level)
    hypothesis.moved = _largest_input_effect(change, data)
    over_hold = None
    if change.over_hold and data.recorded.can_hold and data.states is not None:
        # Where the record is relative to the state, a robot that holds still has actions of 0.
        held = 0.0 if change.state_added < 0 else data.recorded_states(change.state_of)
        hold = under.errors(np.broadcast_to(held, target.shape), target)
        over_hold = paired_error(squares, hold, data.episodes, level)
    hypothesis.outcome, hypothesis.why = _outcome(hypothesis, change, over_hold)
    if hypothesis.outcome == "claimed":
        judged.meets = True
    return judged


def _predict_under_change(change: Change, data: Compared) -> tuple[Array | None, str]:
    """Return the chunks as they would be under a change; None, and why, where they are not known."""
    predictions = data.predictions
    if change.observed in predictions.failed:
        return None, f"the policy cannot be called with this change: {predictions.failed[change.observed]}"
    predicted = predictions.changed.get(change.observed) if change.observed else predictions.wired
    if predicted is None:
        return None, predictions.omitted or "no frame was predicted with this change"
    if change.act is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            predicted = change.act(predicted)
    if change.state_added:
        predicted = predicted + change.state_added * data.recorded_states(change.state_of)
    return predicted, ""


def _largest_input_effect(change: Change, data: Compared) -> float | None:
    """Return by how many σ the actions change at most where an input of the change is another frame's.

    An input that comes far too small looks like one that the policy does not look at. There, what the change itself
    does to the actions counts, too.
    """
    known, wired = data.predictions.elsewhere, data.predictions.wired
    others = [known[name] for name in change.inputs if name in known]
    if others and change.kind in _SCALES and change.observed in data.predictions.changed:
        others.append(data.predictions.changed[change.observed])
    moves = [rms(data.errors(other, wired)) for other in others]
    return max((move for move in moves if move is not None), default=None)


def _outcome(hypothesis: Hypothesis, change: Change, over_hold: PairedError | None) -> tuple[HypothesisOutcome, str]:
    paired, over_mean = hypothesis.paired, hypothesis.over_mean
    if paired is None or over_mean is None:
        return "not judged", "the episodes are too short"
    if paired.interval is None:
        return "not judged", f"it needs {FEWEST_EPISODES} episodes, and has {paired.episodes}"
    if change.inputs and hypothesis.moved is None:
        return "not judged", "it is unknown whether the policy uses this input"
    if change.inputs and (hypothesis.moved or 0.0) < LOOKED:
        return "not looked at", f"another frame's input changes the actions by only {hypothesis.moved:.2g} σ"
    if paired.smaller is False or paired.ratio > 1 - MARGIN:
        return "not better", ""
    if (hypothesis.explained or 0.0) < EXPLAINED or over_mean.ratio >= 1:
        return "not better", "better than the present wiring, but not better than the mean action"
    holding = over_hold if change.over_hold else None
    if holding is not None and holding.ratio >= 1:
        return "not better", "better than the present wiring, but not better than holding still"
    for error, what in ((paired, "the present wiring"), (over_mean, "the mean action"), (holding, "holding still")):
        if error is not None and error.smaller is None:
            return "not shown", f"better than {what}, but inconclusive over {error.episodes} episodes: give more"
    return "claimed", ""
