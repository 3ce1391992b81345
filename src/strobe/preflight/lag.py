"""A run of the policy, rollout or rehearsal: its lags compared with those of a data set, and the time of its calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from strobe.core.errors import UserError, legible
from strobe.core.measure.statistics import summarise
from strobe.core.runs import store
from strobe.lerobot.datasets import recording
from strobe.lerobot.datasets.fault import DatasetError, sentence
from strobe.loops.files import EVENTS
from strobe.loops.measure.robot import lag_ticks
from strobe.loops.results.rollout import Rollout, RolloutResult
from strobe.preflight.results.wiring import CallTime, JointLag, Lag, Wiring


@dataclass(frozen=True)
class PolicyRun:
    """A run of `strobe rollout` or `strobe rehearse`.

    Args:
        folder: the run's, which may hold its events.
        rollout: the figures of its answer.
    """

    folder: Path
    rollout: Rollout


def read_run(folder: Path) -> PolicyRun:
    """Return the run in ``folder``.

    Raises:
        UserError: ``folder`` cannot be read, or is no run of `strobe rollout` or `strobe rehearse`.
    """
    answer = store.load_answer(folder)
    if not isinstance(answer, RolloutResult):
        raise UserError(f"--rollout={folder}: not a run of `strobe rollout` or `strobe rehearse`")
    return PolicyRun(folder, answer.rollout)


MOST_EPISODES = 100
HELD = 0.9  # least share of the requested rate: below it, ticks of a run are no ticks of the data
STATE = "observation.state"


def lags(wiring: Wiring, dataset: Path, run: PolicyRun | None) -> Lag:
    """Return the lags of a data set's joints, and of those in ``run``."""
    recorded = recording.read(dataset)
    lag = Lag(joints=[], fps=recorded.fps)
    try:
        lag.joints = _data_lags(wiring, recorded)
    except DatasetError as error:
        lag.unjudged.append(f"Lags of the recording: {sentence(error.fault, ())}.")
    lag.unjudged.append(
        "The age of the recording's frames: LeRobot stamps frames with the control tick, not with their own time."
    )
    if not lag.joints and len(lag.unjudged) == 1:
        lag.unjudged.append("Lags of the recording: action and state have no dimension of the same name.")
    if run is not None:
        _add_run(lag, run)
    still = [joint.joint for joint in lag.joints if joint.recorded is None]
    if still:
        lag.unjudged.append(f"{', '.join(still)}: hardly moves, or its steps do not follow its action.")
    return lag


def _data_lags(wiring: Wiring, recorded: recording.Recording) -> list[JointLag]:
    action, state = (wire.ends.get("dataset") if (wire := wiring.wire(name)) else None for name in ("action", STATE))
    if action is None or state is None:
        return []
    common = [name for name in action.dimensions if name in state.dimensions]
    places = [(action.dimensions.index(name), state.dimensions.index(name)) for name in common]
    lags: dict[str, list[float]] = {name: [] for name in common}
    for actions, states in _episodes(recorded, action.name, state.name) if common else ():
        for name, (to, at) in zip(common, places, strict=True):
            ticks = lag_ticks(actions[:, to], states[:, at])
            if ticks is not None:
                lags[name].append(max(0.0, ticks))
    return [_joint(name, values) for name, values in lags.items()]


def _joint(name: str, values: list[float]) -> JointLag:
    if not values:
        return JointLag(joint=name)
    summary = summarise(values)
    return JointLag(joint=name, recorded=summary.median, interval=summary.interval, episodes=len(values))


def _episodes(recorded: recording.Recording, action: str, state: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield actions and states of some episodes, (ticks, dim) each. Raises DatasetError for a broken file."""
    step = max(1, len(recorded.chosen) // MOST_EPISODES)
    chosen = recorded.chosen[::step]
    files: dict[str, list[int]] = {}
    for episode in chosen:
        files.setdefault(recorded.data_file(episode), []).append(episode)
    for file, episodes in files.items():
        columns = ["episode_index", action, state]
        table = recording.rows(recorded.root, recorded.named, recorded.root / file, columns).to_pandas()
        for episode in episodes:
            rows = table[table["episode_index"] == episode]
            if len(rows):
                yield np.stack(rows[action].to_list()), np.stack(rows[state].to_list())


def measured_call_time(run: PolicyRun) -> CallTime | None:
    """Return the time of a call in ``run``; None if none was timed, or a server answered."""
    rollout, engine = run.rollout, run.rollout.engine
    if rollout.inference is None or rollout.inference.latency is None or engine not in ("sync", "rtc"):
        return None
    return CallTime(ms=rollout.inference.latency.median, run=legible(str(run.folder)), fps=rollout.fps, engine=engine)


def _add_run(lag: Lag, run: PolicyRun) -> None:
    rollout = run.rollout
    lag.run, lag.run_fps = legible(str(run.folder)), rollout.fps
    lag.frames_run = {
        camera.name: camera.age.median * rollout.fps / 1000 for camera in rollout.cameras if camera.age is not None
    }
    if rollout.age is not None:
        lag.observations_run = rollout.age.median * rollout.fps / 1000
    pace = rollout.pace
    if pace is not None and pace.held_hz < HELD * pace.asked_hz:
        lag.unjudged.append(
            f"Lags of the run: its loop ran at {pace.held_hz:.0f} of {pace.asked_hz:.0f} Hz, so its control ticks are "
            "longer."
        )
        return
    found = _event_lags(run.folder, lag) or {
        joint.joint: float(joint.lag_ticks) for joint in rollout.tracking if joint.lag_ticks is not None
    }
    if not found:
        lag.unjudged.append("Lags of the run: its robot reported no positions, or no joint moved.")
    known = {joint.joint: joint for joint in lag.joints}
    for name, ticks in found.items():
        if name in known:
            known[name].run = ticks
        else:
            lag.joints.append(JointLag(joint=name, run=ticks))


def _event_lags(run: Path, lag: Lag) -> dict[str, float]:
    if not (run / EVENTS).is_file():
        return {}
    from strobe.loops.event_log import read
    from strobe.loops.reader import read_record

    header, events = read(run / EVENTS)
    record = read_record(header, events)
    if record.lost:
        lag.unjudged.append(f"Lags of the lost part of the run: the recording is damaged, {record.lost}.")
    whole = [tick for tick in record.ticks if tick.at is not None and tick.commanded is not None]
    if not whole:
        return {}
    actions, states = (np.array([getattr(tick, name) for tick in whole], float) for name in ("commanded", "at"))
    if actions.shape != states.shape or actions.shape[1] != len(header.joints):
        return {}
    found = {name: lag_ticks(actions[:, at], states[:, at]) for at, name in enumerate(header.joints)}
    return {name: max(0.0, ticks) for name, ticks in found.items() if ticks is not None}
