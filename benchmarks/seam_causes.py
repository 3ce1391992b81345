"""Does `strobe replay` name the right cause of jumps between chunks?

Policies that are formulas drive an arm of six of the servos that `strobe rehearse` emulates, under LeRobot's own
inference engines, on a clock of their own (`strobe.loops.virtual_time`). Each run of a minute has one cause of jumps:

- arm: the chunk begins where the arm is, which trails its commands.
- noise: each call adds an offset of its own.
- observation: the chunk follows an object that has moved since the chunk before.
- count: Real-Time Chunking in a loop that is slower than --fps, so that LeRobot skips more actions than were executed.

Each has three strengths; seeds change the noise, the latencies, and how far the arm is behind. Twins: the same policies
without their cause, of which nothing is split since nothing jumps; one of two causes in equal parts; and policies that
remember their calls, which are not judged.

Bars: of the middle and the strong, the cause is named in at least 95 %. Another one is named in no run.

    python benchmarks/seam_causes.py            20 runs of each, about ten minutes
    python benchmarks/seam_causes.py --quick    3 runs of each

The last line is JSON with every figure.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from common.shared import finish
from rich.console import Console
from rich.table import Table

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding
from strobe.core.results.subject import SubjectInfo
from strobe.loops.header import Header
from strobe.loops.measure.rollout import seams
from strobe.loops.reader import LoopTurn, RunRecord
from strobe.loops.recorded_run import RecordedRun
from strobe.loops.results.rollout import SEAM_JUMP, EngineName
from strobe.loops.virtual_rollout import Beat, EngineInputs, Setting
from strobe.loops.virtual_time import PlayOptions, play
from strobe.seams.look import split_seams
from strobe.seams.report import seam_cause
from strobe.seams.results import SeamCauses
from strobe.seams.split import find_seams
from strobe_servos.servo import Motion

JOINTS = [f"{name}.pos" for name in ("pan", "lift", "elbow", "flex", "roll", "gripper")]
COUNTS = 4096 / 360  # of a servo, in a degree
FPS, SECONDS, CHUNK, EXECUTED = 30, 60, 50, 25
TURN = 0.04  # radians that the path goes on in a tick
SIZES = np.array([30, 20, 15, 12, 10, 5.0])  # degrees, of the path
STEP = float(TURN * SIZES.max())  # degrees, about the largest step of a joint inside a chunk


@dataclass
class Formula:
    """A policy that goes around an ellipse; its observation is (joints, clock, object).

    Args:
        anchored: the path goes on from where the arm is, not from the clock.
        noise: degrees, σ of an offset of each call.
        follows: whether it adds the object's place.
        remembers: degrees of an offset that changes sign with each call.
        forgets: whether `reset` ends that.
    """

    anchored: bool = False
    noise: float = 0.0
    follows: bool = False
    remembers: float = 0.0
    forgets: bool = False
    config: Any = field(default_factory=lambda: SimpleNamespace(use_amp=False, type="formula"))

    def __post_init__(self) -> None:
        self._action_queue: deque[torch.Tensor] = deque()
        self._calls = 0

    def reset(self) -> None:
        self._action_queue.clear()
        self._calls *= not self.forgets

    def predict_action_chunk(self, batch: dict[str, torch.Tensor], **_: object) -> torch.Tensor:
        state = batch["observation.state"][0].double()
        joints, clock, thing = state[: len(JOINTS)].numpy(), float(state[-2]), float(state[-1])
        phase = clock * TURN
        if self.anchored:
            phase = math.atan2(joints[1] / SIZES[1], joints[0] / SIZES[0])
        phases = phase + TURN * np.arange(1, CHUNK + 1)[:, None]
        offset = torch.randn(len(JOINTS), dtype=torch.float64).numpy() * self.noise
        self._calls += 1
        path = np.where(np.arange(len(JOINTS)) % 2 == 0, np.cos(phases), np.sin(phases)) * SIZES
        path = path + offset + thing * self.follows + self.remembers * (-1) ** self._calls
        return torch.from_numpy(path).float()[None]

    def select_action(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        if not self._action_queue:
            self._action_queue.extend(self.predict_action_chunk(batch)[0, :EXECUTED].unsqueeze(1))
        return self._action_queue.popleft()


class Arm:
    """Six emulated servos beside an object that drifts; a world for `play`."""

    is_over = False

    def __init__(self, lag_s: float, drift: float, phase: float) -> None:
        self.motion, self.drift, self.phase = Motion(lag_s=lag_s), drift, phase
        self.at = np.array([SIZES[0], *(0, SIZES[2], 0, SIZES[4], 0)], float)
        self.goal, self.moved, self.ticks = self.at.copy(), 0, 0
        self.turns: list[LoopTurn] = []
        self.seen: dict[int, dict[str, float]] = {}

    def observe(self, moment: int) -> Callable[[], dict[str, float]]:
        if moment not in self.seen:
            self._move(moment)
            thing = self.drift * math.sin(self.ticks / 17.3 + self.phase + math.sin(self.ticks / 40))
            values = [*self.at.tolist(), float(self.ticks), thing]
            self.seen[moment] = dict(zip([*JOINTS, "clock", "object"], values, strict=True))
            self.turns.append(LoopTurn(moment, 0, True, wanted=True, at=self.at.tolist()))
            self.ticks += 1
        seen = self.seen[moment]
        return lambda: dict(seen)

    def act(self, moment: int, action: torch.Tensor | None) -> None:
        self._move(moment)
        if action is not None:
            self.goal = action.double().numpy()
            self.turns[-1].commanded = self.goal.tolist()

    def _move(self, moment: int) -> None:
        seconds, self.moved = (moment - self.moved) / 1e9, moment
        if seconds > 0:
            left = [
                self.motion.remaining_distance(each * COUNTS, seconds, self.motion.max_speed) / COUNTS
                for each in self.goal - self.at
            ]
            self.at = self.goal - np.array(left)


ANCHORED, AT_ONCE_S = partial(Formula, anchored=True), 0.001


@dataclass(frozen=True)
class Plant:
    """A cause of jumps in one strength, or a twin without one.

    Args:
        causes: the names that may be named; without any, none may be.
        work_ms: of each turn of the loop.
        latency_ms: of each call, about.
        weak: whether it need not be named.
    """

    name: str
    causes: tuple[str, ...]
    policy: Callable[[], Formula]
    lag_s: float = 0.02
    drift: float = 0.0
    engine: EngineName = "sync"
    work_ms: float = 5.0
    latency_ms: float = 20.0
    weak: bool = False


def plants() -> Iterator[Plant]:
    for place, times in enumerate((4, 8, 16)):
        weak, degrees, lag_s, work_ms = place == 0, times * STEP, 0.12 * 2**place, 50 + 15 * place
        noisy = partial(Formula, noise=degrees)
        yield Plant(f"arm {lag_s:.2f} s behind", ("arm",), ANCHORED, lag_s=lag_s, weak=weak)
        yield Plant(f"noise of {times} steps", ("noise",), noisy, weak=weak)
        moves = f"an object that moves {times} steps"
        yield Plant(moves, ("observation",), partial(Formula, follows=True), drift=degrees, weak=weak)
        slow = f"a loop at {1e3 / work_ms:.0f} Hz for {FPS}"
        yield Plant(slow, ("count",), ANCHORED, AT_ONCE_S, engine="rtc", work_ms=work_ms, latency_ms=400, weak=weak)
    both = partial(Formula, anchored=True, noise=3 * STEP)
    yield Plant("an arm behind, and as much noise", ("arm", "noise"), both, lag_s=0.24, weak=True)
    yield Plant("no cause", (), Formula)
    yield Plant("no cause, RTC", (), Formula, engine="rtc", latency_ms=400)
    yield Plant("an arm that follows at once", (), ANCHORED, AT_ONCE_S)
    yield Plant("a policy that remembers its calls", (), partial(Formula, remembers=8 * STEP))
    yield Plant("one that forgets them in reset()", (), partial(Formula, remembers=8 * STEP, forgets=True))


def judge(plant: Plant, seed: int) -> tuple[bool, SeamCauses | None]:
    """Return whether the run jumps, and its causes where it does."""
    random = np.random.default_rng(seed)
    arm = Arm(plant.lag_s * random.uniform(0.85, 1.2), plant.drift * random.uniform(0.85, 1.2), random.uniform(0, 40))
    state = {"observation.state": {"dtype": "float32", "shape": (8,), "names": [*JOINTS, "clock", "object"]}}
    action = {"action": {"dtype": "float32", "shape": (6,), "names": JOINTS}}
    inputs = EngineInputs(plant.policy(), _Plain(), _Plain(), SimpleNamespace(robot_type="none", action_features={}),
                          state, state | action, JOINTS, "push", "cpu", arm)  # fmt: skip
    setting = Setting(plant.engine, FPS, chunk=CHUNK if plant.engine == "rtc" else EXECUTED)
    work = round(plant.work_ms * 1e6)
    beat = Beat(100_000, 200_000, 300_000, work)
    until = SECONDS * 10**9
    latencies = [round(plant.latency_ms * each * 1e6) for each in random.lognormal(0, 0.1, 2000)]
    played = play(
        itertools.repeat(beat), setting, iter(latencies), inputs, PlayOptions(until_ns=until, seed=1000 * seed)
    )
    told = seams(played.actions, JOINTS)
    if not any(joint.ratio is not None and joint.ratio >= SEAM_JUMP for joint in told):
        return False, None
    subject = SubjectInfo(name="formula", kind="formula", source="made up", parameters=1, weight_bytes=4, inputs="")
    header = Header(
        subject=subject, robot="emulated", strategy="base", engine=plant.engine, fps=FPS, main=1, joints=JOINTS
    )
    record = RunRecord(played.ticks, played.calls, played.actions, turns=arm.turns)
    run = RecordedRun(header, record, setting, [beat], latencies, 0, until)
    return True, split_seams(run, find_seams(record), inputs, list(arm.seen), told)


def find(causes: SeamCauses | None) -> list[Finding]:
    """Return what `strobe replay` finds."""
    return list(seam_cause(SimpleNamespace(causes=causes), Thresholds()))  # type: ignore[arg-type]


class _Plain:
    """A processor that changes nothing."""

    steps: tuple[object, ...] = ()

    def __call__(self, batch: Any) -> Any:
        return batch

    def reset(self) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 runs of each, not 20")
    arguments = parser.parse_args()
    runs = 3 if arguments.quick else 20
    table = Table(
        "planted", "runs that jump", "named rightly", "another named", "none named", "share of its cause, median"
    )
    figures, good = [], True
    for plant in plants():
        jumped = right = wrong = silent = 0
        shares = []
        for seed in range(runs):
            jumps, causes = judge(plant, seed)
            jumped += jumps
            named = causes.main_cause if causes is not None and find(causes) else None
            right += named is not None and named.name in plant.causes
            wrong += named is not None and named.name not in plant.causes
            silent += jumps and named is None
            shares += [cause.share for cause in (causes.causes if causes else []) if cause.name in plant.causes[:1]]
        good &= wrong == 0 and (not plant.causes or plant.weak or right >= 0.95 * runs)
        share = f"{np.median(shares):.2f}" if shares else ""
        table.add_row(plant.name, f"{jumped} of {runs}", str(right), str(wrong), str(silent), share)
        figures.append({"planted": plant.name, "causes": plant.causes, "runs": runs, "jumped": jumped, "right": right,
                        "wrong": wrong, "silent": silent})  # fmt: skip
    Console(width=130).print(table)
    finish({"quick": arguments.quick, "plants": figures}, good)


if __name__ == "__main__":
    main()
