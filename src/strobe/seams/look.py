"""A recorded run's jumps between chunks, split by calls of its policy."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from strobe.core.measure.statistics import Array
from strobe.loops.measure.rollout import Tick
from strobe.loops.recorded_run import RecordedRun
from strobe.loops.results.rollout import JointSeam
from strobe.loops.virtual_rollout import EngineInputs
from strobe.seams.calls import Asker
from strobe.seams.results import FEWEST, SeamCauses
from strobe.seams.split import Parts, Seam, directions, find_seams, remedies, repeats_run, shares, split

DRAWS = 3  # calls on one observation
MOST = 24  # seams that are split


def split_seams(
    run: RecordedRun,
    inputs: EngineInputs,
    observed: Sequence[int],
    joints: Sequence[JointSeam],
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> SeamCauses:
    """Return the causes of the jumps of ``run``. If interrupted, of those split by then.

    Args:
        inputs: the run's policy; its moments count from the start of the run.
        observed: starts of the ticks whose observation was recorded, in nanoseconds of the recording.
        joints: steps and jumps of each joint.
        tell: progress: seams that were split, of how many.
    """
    seams, kept = find_seams(run.record), set(observed)
    usable = [seam for seam in seams if {seam.old_at, seam.new_at} <= kept]
    chosen = [usable[place] for place in np.linspace(0, len(usable) - 1, min(MOST, len(usable))).round().astype(int)]
    result = SeamCauses(seams=len(chosen), left_out=len(seams) - len(usable), guided=run.setting.engine == "rtc")
    if len(chosen) < FEWEST:
        result.not_judged = f"{len(chosen)} seams have the observations of both chunks, and a cause needs {FEWEST}"
        return result
    steps = np.array([joint.step.p95 for joint in joints])
    asker, ticks = Asker(inputs, run.setting.engine == "rtc", DRAWS), _Ticks(run)
    parts: list[Parts] = []
    try:
        if asker.find_noise(ticks.moments(chosen[0].old_at, asker.ticks)) is None:
            result.not_judged = (
                "two calls on one observation differ, though their noise is the same: the policy remembers"
            )
            return result
        for done, seam in enumerate(chosen):
            tell(done, len(chosen))
            parts.append(_split(seam, asker, ticks, steps))
    except KeyboardInterrupt:
        if len(parts) < FEWEST:
            raise
    result.seams, result.draws = len(parts), asker.draws
    if not result.guided and not repeats_run(parts, steps):
        result.not_judged = (
            "the recorded actions differ from the policy's on the recorded observations by more than its noise "
            "explains: the policy remembers earlier calls, or another policy ran"
        )
        return result
    result.causes = shares(parts, steps, np.random.default_rng(0))
    result.remedies = remedies(parts, steps)
    result.back, result.off = directions(parts, steps)
    done = chosen[: len(parts)]
    result.age_s = float(np.median([seam.new_at - seam.old_at for seam in done])) / 1e9
    result.miscounted = float(np.median([seam.begun - seam.executed for seam in done]))
    away = ticks.behind([seam.new_at for seam in done])
    if away is not None:
        worst = int(np.argmax(np.divide(away, steps, out=np.zeros_like(away), where=steps > 0)))
        result.behind, result.behind_joint = float(away[worst]), joints[worst].joint
    return result


def _split(seam: Seam, asker: Asker, ticks: _Ticks, steps: Array) -> Parts:
    moments = [ticks.moments(at, asker.ticks) for at in (seam.old_at, seam.new_at)]
    old, new = (asker.chunks(some) for some in moments)
    corrected = asker.chunks(moments[1], [ticks.command(moment) for moment in moments[1]])
    return split(seam, old, new, corrected, steps)


class _Ticks:
    """The control ticks of a run: when they began, and what the arm was sent before. Moments count from its start."""

    def __init__(self, run: RecordedRun) -> None:
        self.origin, self.joints = run.origin, run.header.joints
        self.ticks: list[Tick] = sorted(run.record.turns, key=lambda turn: turn.start_ns)
        self.starts = [tick.start_ns for tick in self.ticks]

    def moments(self, at: int, count: int) -> list[int]:
        """Return the starts of the ``count`` ticks up to the one that begins ``at``, the first repeated if need be."""
        place = bisect_left(self.starts, at)
        return [self.starts[max(0, place - back)] - self.origin for back in reversed(range(count))]

    def command(self, moment: int) -> Mapping[str, float]:
        """Return the latest command before the tick that begins at ``moment``, by joint; empty if none is known."""
        for tick in reversed(self.ticks[: bisect_left(self.starts, moment + self.origin)]):
            if tick.commanded is not None:
                return dict(zip(self.joints, tick.commanded, strict=False))
        return {}

    def behind(self, observed: Sequence[int]) -> Array | None:
        """Return how far each joint was from its latest command at ticks that begin then, median; None if unknown."""
        away = []
        for at in observed:
            tick, told = (
                self.ticks[min(bisect_left(self.starts, at), len(self.ticks) - 1)],
                self.command(at - self.origin),
            )
            if tick.at is not None and len(told) == len(tick.at):
                away.append(np.abs(np.array(tick.at, float) - list(told.values())))
        return np.median(away, axis=0) if away else None
