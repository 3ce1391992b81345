"""A recorded run's jumps between chunks, split by calls of its policy on the recorded observations."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from lerobot.policies.utils import prepare_observation_for_inference
from lerobot.utils.feature_utils import build_dataset_frame

from strobe.core.errors import legible
from strobe.core.measure.statistics import Array
from strobe.core.subjects.subject import Batch
from strobe.lerobot.families import answers
from strobe.loops.measure.rollout import Tick
from strobe.loops.recorded_run import RecordedRun
from strobe.loops.results.rollout import JointSeam
from strobe.loops.virtual_rollout import EngineInputs
from strobe.seams.results import FEWEST, SeamCauses
from strobe.seams.split import Parts, Seam, directions, remedies, repeats_run, shares, split

DRAWS = 3  # calls on one observation
MOST = 24  # seams that are split


def split_seams(
    run: RecordedRun,
    seams: Sequence[Seam],
    inputs: EngineInputs,
    observed: Sequence[int],
    joints: Sequence[JointSeam],
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> SeamCauses:
    """Return the causes of the jumps of ``run``. If interrupted, of those split by then.

    Args:
        seams: those of its recorded chunks.
        inputs: the run's policy; its moments count from the start of the run.
        observed: starts of the ticks whose observation was recorded, in nanoseconds of the recording.
        joints: steps and jumps of each joint.
        tell: progress: seams that were split, of how many.
    """
    kept = set(observed)
    usable = [seam for seam in seams if {seam.old_at, seam.new_at} <= kept]
    chosen = [usable[place] for place in np.linspace(0, len(usable) - 1, min(MOST, len(usable))).round().astype(int)]
    guided, can_rtc, left_out = run.setting.engine == "rtc", run.header.can_rtc, len(seams) - len(usable)
    result = SeamCauses(seams=len(chosen), left_out=left_out, guided=guided, can_rtc=can_rtc)
    if len(chosen) < FEWEST:
        result.not_judged = f"{len(chosen)} seams have the observations of both chunks, and a cause needs {FEWEST}"
        return result
    steps = np.array([joint.step.p95 for joint in joints])
    asked, ticks = Chunks(inputs, guided, DRAWS), _Ticks(run)
    parts: list[Parts] = []
    try:
        if asked.find_noise(ticks.moments(chosen[0].old_at, asked.ticks)) is None:
            result.not_judged = "two calls on one observation differ with the same noise too: the policy remembers"
            return result
        for done, seam in enumerate(chosen):
            tell(done, len(chosen))
            parts.append(_split(seam, asked, ticks, steps))
    except KeyboardInterrupt:
        if len(parts) < FEWEST:
            raise
    except Exception as error:  # a policy, or a processor of it, that takes no observation out of its order
        result.not_judged = legible(f"a call of the policy failed with {type(error).__name__}: {error}")
        return result
    result.seams, result.draws = len(parts), asked.draws
    if not guided and not repeats_run(parts, steps):
        result.not_judged = (
            "the recorded actions differ from the policy's on the recorded observations by more than its noise "
            "explains: the policy remembers earlier calls, or another policy ran"
        )
        return result
    _describe(result, chosen[: len(parts)], parts, ticks, joints)
    return result


def _describe(
    result: SeamCauses, seams: Sequence[Seam], parts: Sequence[Parts], ticks: _Ticks, joints: Sequence[JointSeam]
) -> None:
    """Fill in what the ``parts`` of ``seams`` tell."""
    steps = np.array([joint.step.p95 for joint in joints])
    result.causes = shares(parts, steps, np.random.default_rng(0))
    result.remedies = remedies(parts, steps)
    result.back, result.off = directions(parts, steps)
    result.age_s = float(np.median([seam.new_at - seam.old_at for seam in seams])) / 1e9
    result.miscounted = float(np.median([seam.begun - seam.executed for seam in seams]))
    away = ticks.measure_lag([seam.new_at for seam in seams])
    if away is not None:
        worst = int(np.argmax(np.divide(away, steps, out=np.zeros_like(away), where=steps > 0)))
        result.behind, result.behind_joint = float(away[worst]), joints[worst].joint


def _split(seam: Seam, asked: Chunks, ticks: _Ticks, steps: Array) -> Parts:
    moments = [ticks.moments(at, asked.ticks) for at in (seam.old_at, seam.new_at)]
    old, new = (asked.chunks(some) for some in moments)
    corrected = asked.chunks(moments[1], [ticks.command(moment) for moment in moments[1]])
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

    def measure_lag(self, observed: Sequence[int]) -> Array | None:
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


@dataclass
class Chunks:
    """Calls a policy for whole chunks, as an engine of LeRobot calls it for a first chunk.

    Args:
        inputs: the policy and its processors.
        threaded: whether the engine has a thread of its own: its frames and actions are in the robot's order, others in
            the data set's.
        draws: calls on each observation, the noise seeded by 0, 1, ….
    """

    inputs: EngineInputs
    threaded: bool
    draws: int = 3
    _known: dict[tuple[int, bool], Array] = field(default_factory=dict)

    @property
    def ticks(self) -> int:
        """The number of observations that the policy looks at."""
        return int(getattr(self.inputs.policy.config, "n_obs_steps", 1) or 1)

    def chunks(self, moments: list[int], commands: list[Mapping[str, float]] | None = None) -> Array:
        """Return (draws, chunk, joints) for the observations of ``moments``, nanoseconds, oldest first.

        Args:
            commands: for each moment positions in place of the arm's, by joint.
        """
        key = (moments[-1], commands is not None)
        if key not in self._known:
            batches = []
            for place, moment in enumerate(moments):
                seen = dict(self.inputs.world.observe(moment)())
                told = commands[place] if commands is not None else {}
                batches.append(self._batch(seen | {name: told[name] for name in told if name in seen}))
            self._known[key] = np.stack([self._call(batches, seed) for seed in range(self.draws)])
        return self._known[key]

    def find_noise(self, moments: list[int]) -> bool | None:
        """Return whether calls on one observation differ by their noise; None if they differ with the same noise too.

        If they do not differ, one draw is enough from then on.
        """
        chunks = self.chunks(moments)
        if not _are_equal(chunks[0], self._call([self._batch(self.inputs.world.observe(at)()) for at in moments], 0)):
            return None
        differs = len(chunks) > 1 and not _are_equal(chunks[0], chunks[1])
        if not differs:
            self.draws = 1
            self._known = {key: known[:1] for key, known in self._known.items()}
        return differs

    def _batch(self, observation: Mapping[str, object]) -> Batch:
        inputs = self.inputs
        features = inputs.hw_features if self.threaded else inputs.dataset_features
        frame = build_dataset_frame(features, dict(observation), prefix="observation")
        device = torch.device(inputs.device or "cpu")
        return prepare_observation_for_inference(frame, device, inputs.task, inputs.robot.robot_type)

    def _call(self, batches: list[Batch], seed: int) -> Array:
        inputs = self.inputs
        with torch.inference_mode():
            # The last one last: a processor that makes actions relative keeps the state that it saw last.
            ready = [inputs.preprocessor(dict(batch)) for batch in batches]
            inputs.policy.reset()  # a queue of earlier observations would take the place of these
            torch.manual_seed(seed)
            made = answers.predict(inputs.policy, _stack(ready) if self.ticks > 1 else ready[-1])
            chunk = inputs.postprocessor(made).squeeze(0)
        made_for = inputs.dataset_features["action"]["names"]
        order = slice(None) if self.threaded else [made_for.index(name) for name in inputs.keys]
        return chunk.float().cpu().numpy().astype(float)[:, order]


def _are_equal(one: Array, other: Array) -> bool:
    return np.allclose(one, other, rtol=1e-3, atol=1e-3 * float(np.ptp(one)))  # a device may add up in another order


def _stack(batches: list[Batch]) -> Batch:
    """Return one batch, whose observations have a dimension of ticks, (1, ticks, …)."""
    newest = batches[-1]
    return {
        name: torch.stack([batch[name] for batch in batches], dim=1)
        if name.startswith("observation.") and isinstance(value, torch.Tensor)
        else value
        for name, value in newest.items()
    }
