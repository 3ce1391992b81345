"""A run of the policy, rollout or rehearsal: its lags compared with those of a data set, and the time of its calls."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from strobe.core.errors import UserError, legible
from strobe.core.runs import store
from strobe.lerobot.datasets.results import JointLag
from strobe.loops.files import EVENTS
from strobe.loops.measure.robot import lag_ticks
from strobe.loops.results.motion import FirstJump
from strobe.loops.results.rollout import Rollout, RolloutResult
from strobe.preflight.results.wiring import CallTime, Lag, Wiring


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


HELD = 0.9  # least share of the requested rate: below it, ticks of a run are no ticks of the data


def lags(wiring: Wiring, run: PolicyRun | None) -> Lag:
    """Return the lags of a data set's joints, as its motion was measured, and of those in ``run``."""
    motion = wiring.motion
    joints = [each.model_copy() for each in motion.lags] if motion is not None else []
    lag = Lag(joints=joints, fps=wiring.timing.data_fps or 0.0)
    lag.unjudged.append(
        "The age of the recording's frames: LeRobot stamps frames with the control tick, not with their own time."
    )
    if motion is None:
        lag.unjudged.append("Lags of the recording: its frames were not read.")
    elif not lag.joints:
        lag.unjudged.append("Lags of the recording: action and state have no dimension of the same name.")
    if run is not None:
        _add_run(lag, run)
    still = [joint.joint for joint in lag.joints if joint.recorded is None]
    if still:
        lag.unjudged.append(f"{', '.join(still)}: hardly moves, or its steps do not follow its action.")
    return lag


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


def add_first_action(jump: FirstJump, run: PolicyRun) -> None:
    """Add the first action that a run sent, joint by joint."""
    jump.run = str(run.folder)
    sent = run.rollout.first_action or []
    by_name = {action.joint: action.jump for action in sent}
    for joint in jump.joints:
        joint.run = by_name.get(joint.joint)
    if not sent:
        why = "no action was sent, the robot reported no positions, or an earlier version of Strobe saved it"
        jump.unjudged.append(f"The first action of {run.folder}: {why}.")
    elif jump.joints and all(joint.run is None for joint in jump.joints):
        jump.unjudged.append(
            f"The first action of {run.folder}: none of its joints has the name of a joint in the data."
        )
