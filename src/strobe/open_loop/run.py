"""Open loop: predict on recorded frames, and compare with recorded actions and with predictions without a policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from lerobot.configs.default import DatasetConfig
from numpy.typing import NDArray

from strobe.core.errors import UserError
from strobe.core.measure.sampling import Progress
from strobe.lerobot.policies.checkpoints import ReadNames, UnreadWeightsError
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.policies.recorded_actions import RecordedActions, spread_frames
from strobe.lerobot.processors import Difference
from strobe.loops.measure.robot import joint_jumps, starts
from strobe.loops.results.motion import FirstJump
from strobe.open_loop.changes import SIMULATORS_TASK, Observed, possible_changes
from strobe.open_loop.errors import FEWEST_EPISODES, explained_variance, paired_error, rms
from strobe.open_loop.hypotheses import Compared, judge_all, match_recorded_actions
from strobe.open_loop.learnt import learn
from strobe.open_loop.predictions import MOST_FRAMES, Predictions, predict
from strobe.open_loop.results import (
    ActionRange,
    DimensionError,
    Hypothesis,
    NaiveError,
    NaiveName,
    OpenLoop,
    PartErrors,
    PartName,
    PredictedChunk,
    Strip,
)
from strobe.open_loop.subject_wiring import subject_wiring

T = TypeVar("T")

Array = NDArray[np.float64]

MOST_EPISODES = 24
SHARE = 0.2  # share of the time for predictions that those on first frames may take
# What a page shows.
SHOWN_EPISODES, SHOWN_DIMENSIONS, SHOWN_TICKS, SHOWN_CHUNKS, SHOWN_ACTIONS = 4, 8, 240, 12, 24


@dataclass(frozen=True)
class Frames:
    """Which frames are looked at.

    Args:
        dataset: the folder of a LeRobotDataset.
        seconds: that all predictions may take together.
        episodes: to look at; None for some of all.
        held_out: those of them, or others, that the policy was not trained on.
        rename: names in the inputs → names that the policy knows.
        overrides: of the policy's config, as on LeRobot's command line.
        most: frames to look at.
        task: the words of a simulator, whose effect on the actions is measured too; None for none.
    """

    dataset: Path
    seconds: float = 90.0
    episodes: Sequence[int] | None = None
    held_out: Sequence[int] = ()
    rename: dict[str, str] = field(default_factory=dict)
    overrides: list[str] = field(default_factory=list)
    seed: int = 0
    most: int = MOST_FRAMES
    task: str | None = None


def open_loop(
    policy: Path, frames: Frames, progress: Callable[[Progress], None] = lambda _: None
) -> tuple[OpenLoop, list[Hypothesis], ReadNames | None, list[Difference]]:
    """Load the policy, predict on recorded frames, and judge every hypothesis.

    Where it cannot be judged, `OpenLoop.unjudged` says why, and there are no hypotheses. The third is what was read of
    its weights; None if it did not come so far. The fourth is how its processors differ from its config.
    """
    began, read, differences = time.monotonic(), None, []
    try:
        subject = _load_policy(policy, frames)
        read, differences = subject.loaded.read, subject.loaded.differences
        result, hypotheses = judge_subject(subject, frames, progress)
    except UserError as error:
        read = error.names if isinstance(error, UnreadWeightsError) else read
        result, hypotheses = OpenLoop(unjudged=str(error)), []
    result.seconds = time.monotonic() - began
    return result, hypotheses, read, differences


def explained_share(policy: Path, frames: Frames, progress: Callable[[Progress], None] = lambda _: None) -> float:
    """Return the share of the recorded actions that a policy explains; no hypothesis is judged.

    Raises:
        UserError: it cannot be run on the frames, or gives what are no numbers.
        KeyboardInterrupt: Ctrl-C came before all frames were predicted.
    """
    wiring = subject_wiring(subject := _load_policy(policy, frames))
    chosen = spread_frames(wiring.recorded.episodes, frames.most)
    made = predict(subject, chosen, (), (), frames.seconds, progress)
    if made.stopped:
        raise KeyboardInterrupt
    if not made.frames or not np.isfinite(made.wired).all() or made.wired.shape[2] != wiring.recorded.actions.shape[1]:
        raise UserError("its actions on these frames are not finite, or have other dimensions than the data's")
    whole = summarise(match_recorded_actions(wiring.recorded, made), frames.held_out, 0.0).whole
    assert whole is not None
    return whole.explained


def _load_policy(policy: Path, frames: Frames) -> PolicySubject:
    dataset = DatasetConfig(
        repo_id=f"local/{frames.dataset.name}", root=str(frames.dataset), episodes=_chosen_episodes(frames)
    )
    source = InputOptions(dataset=dataset, rename=dict(frames.rename))
    return load_subject(PolicyOptions(path=str(policy), overrides=frames.overrides), source, seed=frames.seed)


def _chosen_episodes(frames: Frames) -> list[int] | None:
    """Return the episodes to read: as many held-out ones as others where there are both. Raises UserError."""
    from strobe.lerobot.datasets import recording

    total = int(recording.read(frames.dataset).info.get("total_episodes") or 0)
    wanted = list(range(total)) if frames.episodes is None else sorted({*frames.episodes, *frames.held_out})
    unknown = [episode for episode in {*wanted, *frames.held_out} if not 0 <= episode < total]
    if unknown:
        raise UserError(f"the data set has no episode {min(unknown)}: its episodes are 0 to {total - 1}")
    held = [episode for episode in wanted if episode in frames.held_out]
    others = [episode for episode in wanted if episode not in frames.held_out]
    room = MOST_EPISODES // 2 if held and others else MOST_EPISODES
    return sorted([*_thin_evenly(held, room), *_thin_evenly(others, room)])


def _thin_evenly(values: Sequence[T], most: int) -> list[T]:
    count = min(len(values), most)
    return [values[int((number + 0.5) * len(values) / count)] for number in range(count)]


def judge_subject(
    subject: PolicySubject, frames: Frames, progress: Callable[[Progress], None]
) -> tuple[OpenLoop, list[Hypothesis]]:
    """Predict on the frames that ``subject`` is fed from, and judge every hypothesis. Raises UserError."""
    wiring = subject_wiring(subject)
    recorded = wiring.recorded
    changes = possible_changes(wiring)
    begun = time.monotonic()
    jump, first = predict_first(subject, recorded, frames.seconds, progress)
    stopped = "it was stopped before the first frame"
    if first.stopped:
        return OpenLoop(unjudged=stopped, stopped=True, first_jump=jump), []
    chosen = spread_frames(recorded.episodes, frames.most)
    observed = list(changes.observed)
    if frames.task is not None:
        observed.append(Observed(SIMULATORS_TASK, lambda seen: seen | {"task": frames.task}, ("task",)))
    predictions = predict(subject, chosen, observed, wiring.inputs, frames.seconds, progress, begun)
    if not predictions.frames:
        return OpenLoop(unjudged=stopped, stopped=True, first_jump=jump), []
    width, made = recorded.actions.shape[1], predictions.wired.shape[2]
    if width != made:
        return OpenLoop(unjudged=f"the policy's actions have {made} dimensions, and the data set's {width}"), []
    bad = int((~np.isfinite(predictions.wired).all(axis=(1, 2))).sum())
    if bad:
        many = f"{bad} of {len(predictions.frames)} chunks"
        return OpenLoop(unjudged=f"{many} have NaN or infinite actions", frames=len(predictions.frames)), []
    data = match_recorded_actions(recorded, predictions)
    fps = float(getattr(subject.inputs.meta, "fps", 0) or 0)
    result = summarise(data, frames.held_out, fps)
    result.stopped, result.first_jump = predictions.stopped, jump
    result.executed = executed_per_chunk(subject, data.chunk)
    result.learnt = learn(data, result.executed)
    result.ranges = ranges(recorded.names, result.executed, first, predictions)
    result.call_ms = 1e3 * predictions.call_s if predictions.call_s is not None else None
    return result, judge_all(changes.all, data, named_in_config=wiring.names_actions)


def summarise(data: Compared, held_out: Sequence[int], fps: float) -> OpenLoop:
    """Return the errors of the policy in its wiring, and those of predictions without a policy."""
    target = data.recorded_actions()
    squares = data.errors(data.predictions.wired, target)
    naive = {name: data.errors(values, target) for name, values in _naive(data).items()}
    held = np.isin(data.episodes, list(held_out))
    groups: dict[PartName, NDArray[np.bool_]] = {"all": np.ones(len(held), bool)}
    if held.any() and not held.all():
        groups |= {"training": ~held, "held out": held}
    return OpenLoop(
        frames=len(data.predictions.frames),
        episodes=len(np.unique(data.episodes)),
        chunk=data.chunk,
        fps=fps,
        names=data.recorded.names,
        parts=[_part(name, squares[which], {k: v[which] for k, v in naive.items()}, data.episodes[which])
               for name, which in groups.items()],
        dimensions=_dimensions(data, squares, naive),
        along=[rms(squares[:, at]) for at in range(data.chunk)],
        naive_along={name: [rms(values[:, at]) for at in range(data.chunk)] for name, values in naive.items()},
        strips=_strips(data, set(held_out)),
        unjudged=None if len(np.unique(data.episodes)) >= FEWEST_EPISODES else
        f"hypotheses need {FEWEST_EPISODES} episodes, and Strobe looked at {len(np.unique(data.episodes))}",
    )  # fmt: skip


def _naive(data: Compared) -> dict[str, Array]:
    shape = data.predictions.wired.shape
    naive = {
        "the mean action": np.broadcast_to(data.recorded.actions.mean(axis=0), shape),
        "the last action": np.broadcast_to(data.recorded_actions(shift=-1, count=1), shape),
    }
    if data.recorded.can_hold and data.states is not None:
        naive["hold still"] = np.broadcast_to(data.recorded_states("chunk"), shape)
    return naive


def _part(name: PartName, squares: Array, naive: dict[str, Array], episodes: NDArray[np.int64]) -> PartErrors:
    names: tuple[NaiveName, ...] = ("the mean action", "hold still", "the last action")
    errors = []
    for each in names:
        if each not in naive:
            why = "the state and the action have different dimensions"
            errors.append(NaiveError(name=each, unjudged=why))
            continue
        errors.append(
            NaiveError(name=each, rms=rms(naive[each]), paired=paired_error(squares, naive[each], episodes))
        )  # fmt: skip
    return PartErrors(
        name=name,
        episodes=len(np.unique(episodes)),
        frames=len(squares),
        rms=rms(squares) or 0.0,
        explained=explained_variance(squares, naive["the mean action"]) or 0.0,
        naive=errors,
    )


def _dimensions(data: Compared, squares: Array, naive: dict[str, Array]) -> list[DimensionError]:
    difference = data.predictions.wired - data.recorded_actions()
    found = []
    for at, name in enumerate(data.recorded.names):
        spread = float(data.recorded.spread[at])
        if spread == 0:
            continue
        offsets = difference[..., at]
        errors = {each: rms(values[..., at]) for each, values in naive.items()}
        found.append(
            DimensionError(
                name=name,
                spread=spread,
                rms=rms(squares[..., at]) or 0.0,
                offset=float(np.clip(np.nanmean(offsets) / spread, -1e6, 1e6)),
                explained=explained_variance(squares[..., at], naive["the mean action"][..., at]),
                naive={each: error for each, error in errors.items() if error is not None},
            )
        )
    return found


def _strips(data: Compared, held_out: set[int]) -> list[Strip]:
    recorded, strips = data.recorded, []
    shown = slice(0, SHOWN_DIMENSIONS)
    for episode in _thin_evenly([int(each) for each in np.unique(data.episodes)], SHOWN_EPISODES):
        own = np.flatnonzero(recorded.episodes == episode)
        ticks = np.arange(0, len(own), max(1, -(-len(own) // SHOWN_TICKS)))
        rows = _thin_evenly(list(np.flatnonzero(data.episodes == episode)), SHOWN_CHUNKS)
        chunks = [_thin_chunk(data, int(row), len(own)) for row in rows]
        strips.append(
            Strip(
                episode=episode,
                held_out=episode in held_out,
                ticks=ticks.tolist(),
                recorded=recorded.actions[own[ticks], shown].T.round(5).tolist(),
                chunks=sorted(chunks, key=lambda chunk: chunk.tick),
            )
        )
    return strips


def _thin_chunk(data: Compared, row: int, length: int) -> PredictedChunk:
    tick = data.recorded.tick(data.predictions.frames[row])
    within = data.predictions.wired[row][: max(1, length - tick)]
    every = max(1, -(-len(within) // SHOWN_ACTIONS))
    values = np.clip(within[::every, :SHOWN_DIMENSIONS], -1e9, 1e9).T.round(5).tolist()
    return PredictedChunk(tick=tick, every=every, values=values)


# The first action on the first frame of each episode, and the range of all predicted actions.


def predict_first(
    subject: PolicySubject, recorded: RecordedActions, seconds: float, progress: Callable[[Progress], None]
) -> tuple[FirstJump, Predictions]:
    """Predict on the first frame of each episode, until a share of ``seconds`` is over.

    Returns:
        the distances of first actions from the state, and the predicted chunks.
    """
    if not recorded.can_hold or recorded.states is None:
        return FirstJump(
            unjudged=["The first action: the state and the action have different dimensions."]
        ), Predictions()
    try:
        made = predict(subject, [int(frame) for frame in starts(recorded.episodes)], (), (), SHARE * seconds, progress)
    except UserError as error:  # such as a first frame that holds what is no number
        return FirstJump(unjudged=[f"The first action: {error}."]), Predictions()
    jump = FirstJump(episodes=len(made.frames))
    if not made.frames:
        jump.unjudged.append("The first action: it was stopped before the first frame.")
    elif made.wired.shape[2] == recorded.actions.shape[1]:
        first = made.wired[:, 0]
        jump.joints = joint_jumps(
            recorded.actions, recorded.states, recorded.spread, recorded.episodes, recorded.names, made.frames, first
        )
    left = [name for name in recorded.names if name not in {joint.joint for joint in jump.joints}]
    if made.frames and left:
        jump.unjudged.append(
            f"The first action of {', '.join(left)}: the predicted or the recorded number is NaN or infinite."
        )
    return jump, made


def ranges(names: Sequence[str], executed: int, *predictions: Predictions) -> list[ActionRange]:
    """Return the range of each dimension in the executed actions of the chunks; [] if one holds what is no number.

    Args:
        executed: actions of each chunk that count.
    """
    chunks = [each.wired[:, :executed] for each in predictions if each.frames]
    if not chunks or not all(np.isfinite(chunk).all() and chunk.shape[2] == len(names) for chunk in chunks):
        return []
    lows = np.min([chunk.min(axis=(0, 1)) for chunk in chunks], axis=0)
    highs = np.max([chunk.max(axis=(0, 1)) for chunk in chunks], axis=0)
    return [
        ActionRange(name=name, low=float(low), high=float(high))
        for name, low, high in zip(names, lows, highs, strict=True)
    ]


def executed_per_chunk(subject: PolicySubject, chunk: int) -> int:
    """Return how many actions of each chunk are executed, by the policy's config; all where it does not say."""
    steps = getattr(subject.policy.config, "n_action_steps", None)
    return min(chunk, steps) if isinstance(steps, int) and steps > 0 else chunk
