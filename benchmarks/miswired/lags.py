"""Recordings and runs of an emulated arm on a clock of its own, for `preflight.py`: how late does it follow?

The servos are those that `strobe rehearse` emulates. A rehearsal itself runs in real time, and its lags would be those
of a busy machine; here no clock runs, and the run is saved as a rehearsal saves its own.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from miswired.case import Case, Plant, Stage
from miswired.data import ACTION, SIZE, STATE, Ticks, World
from miswired.training import ACT

from strobe.core.results.finding import Finding
from strobe_servos.servo import Motion

JOINTS = tuple(
    f"{name}.pos" for name in ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
)
CAMERA = "observation.images.front"
COUNTS = 4096 / 360  # of a servo, in a degree
FPS, LAG_S = 30, 0.12  # of the recording
EPISODES, TICKS = 8, 64
RUN_TICKS = 300


def simulate_motion(fps: float, lag_s: float, ticks: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return actions and states, degrees, (ticks, joints): a state is read, its action sent, and a tick passes."""
    random = np.random.default_rng(seed)
    times = np.arange(ticks)[:, None]
    actions = 15 * np.sin(times * random.uniform(0.08, 0.3, len(JOINTS)) + random.uniform(0, 6, len(JOINTS)))
    motion, states = Motion(lag_s=lag_s), np.zeros_like(actions)
    at = actions[0].copy()
    for tick, action in enumerate(actions):
        states[tick] = at
        left = [motion.remaining_distance(each * COUNTS, 1 / fps, motion.max_speed) / COUNTS for each in action - at]
        at = action - np.array(left)
    return actions.astype(np.float32), states.astype(np.float32)


def _record_episodes(episodes: int, ticks: int, seed: int) -> Iterator[Ticks]:
    for number in range(episodes):
        actions, states = simulate_motion(FPS, LAG_S, ticks, seed * 1000 + number)
        yield {ACTION: actions, STATE: states, CAMERA: _render_images(states)}


def _render_images(states: np.ndarray) -> np.ndarray:
    """Return a camera's images of the arm, (ticks, SIZE, SIZE, 3): a bright square where its first two joints are."""
    images = np.zeros((len(states), SIZE, SIZE, 3), np.uint8)
    images[:] = np.linspace(40, 120, SIZE, dtype=np.uint8)[None, None, :, None]
    for image, (x, y) in zip(images, (states[:, :2] + 20) / 40 * (SIZE - 8), strict=True):
        column, row = (int(np.clip(place, 0, SIZE - 8)) for place in (x, y))
        image[row : row + 8, column : column + 8] = 230
    return images


EMULATED = World("emulated-arm", (CAMERA, CAMERA), JOINTS, FPS, "push", _record_episodes)


def run(folder: Path, fps: float = FPS, lag_s: float = LAG_S, seed: int = 7) -> Path:
    """Save a run of the arm as `strobe rehearse` does, with its events; return its folder."""
    from strobe.core.results.subject import SubjectInfo
    from strobe.core.runs import store
    from strobe.loops.files import EVENTS
    from strobe.loops.header import Header
    from strobe.loops.reader import read_record
    from strobe.rollout.answer import make_answer

    subject = SubjectInfo(name="act", kind="act", source="made up", parameters=1, weight_bytes=4, inputs="")
    header = Header(
        subject=subject, robot="so101_follower", strategy="base", engine="sync", fps=fps, main=1, joints=list(JOINTS)
    )
    events: list[tuple] = [("run", 0)]
    for tick, (action, state) in enumerate(zip(*simulate_motion(fps, lag_s, RUN_TICKS, seed), strict=True)):
        start = round(tick * 1e9 / fps)
        events += [("tick", start), ("at", state.tolist()), ("pick", start + 1000, 1), ("sent", action.tolist())]
    events.append(("end", round(RUN_TICKS * 1e9 / fps)))
    store.save(make_answer(header, read_record(header, events)), folder)
    with gzip.open(folder / EVENTS, "wt") as file:
        file.write(f"{json.dumps(header.to_json())}\n{json.dumps(events)}\n")
    return folder


def _lagging(name: str, says: str, made: Callable[[Stage], Case], fix: Callable[[Case, Stage], Case]) -> Plant:
    def apply_fix(finding: Finding, case: Case, stage: Stage) -> Case:
        return fix(case, stage)

    return Plant("lag", name, (ACT, EMULATED.name), ("lags-differ",), says, made, apply_fix)


def _late_states(ticks: Ticks, by: int = 3) -> Ticks:
    """Return the recording of a program that gets each state so many ticks late."""
    return {key: value[:-by] if key == STATE else value[by:] for key, value in ticks.items()}


def _recorded_late(stage: Stage) -> Case:
    data = stage.write_dataset([_late_states(ticks) for ticks in stage.episodes], "data-late-states")
    return replace(stage.sound, data=data, rollout=run(stage.work / "run"))


IN_LAGS: Sequence[Plant] = (
    _lagging("the run at a third of the rate", "--fps",
             lambda stage: replace(stage.sound, rollout=run(stage.work / "run-slow-loop", fps=10)),
             lambda case, stage: replace(case, rollout=run(stage.work / "run-fixed", fps=FPS))),
    _lagging("servos that accelerate slowly in the run", "acceleration",
             lambda stage: replace(stage.sound, rollout=run(stage.work / "run-slow-servos", lag_s=0.3)),
             lambda case, stage: replace(case, rollout=run(stage.work / "run-fixed"))),
    _lagging("states recorded three ticks late", "delay", _recorded_late,
             lambda case, stage: replace(case, data=stage.data)),
)  # fmt: skip
