"""The price of a rollout's calls: what they cost the calling thread, and the same call again once the robot is at rest.

During the run a call is bracketed by `begin` and `end`, which read the thread's clocks: a few microseconds a call.
They keep what the call was given last, and nothing that holds the robot: it switches its torque off when nobody holds
it any more. `repeat_call` is LeRobot's way from that observation to actions, without the queue.

From the calls of a thread to the parts of their time, and from two places to the causes of their difference. Wall time
= time on a CPU + time ready to run without a CPU + time blocked (the rest). The wall time is the median, and it is
divided as the middle half of the calls is, all taken together: a single hiccup does not count, the parts add up, which
their own medians would not, and the wall time is the one that stands elsewhere in the answer.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from copy import copy
from statistics import median
from typing import Any

import torch
from lerobot.policies.utils import prepare_observation_for_inference
from lerobot.rollout.inference import rtc

from strobe.core.measure.verdicts import FEWEST_PAIRS, unpaired_verdict
from strobe.core.subjects.subject import Observation
from strobe.core.timeline.clock import ThreadUse, cpu_ns, host_ns, waited_ns
from strobe.lerobot.families.answers import predict
from strobe.loops.events import Row
from strobe.loops.results.rollout import Bench, CallTimes, Place, Share


class CallWatch:
    """Watches the calls of one run, made from what LeRobot's ``build_rollout_context`` made.

    Events that go to ``append``: ``used start end cpu waited``, nanoseconds; waited is -1 where it is unknown.
    """

    def __init__(self, context: Any, append: Callable[[Row], None]) -> None:
        config = context.runtime.cfg
        self.options: dict[str, object] = {}  # what Real-Time Chunking gave the last call
        self._append = append
        self._robot = weakref.ref(context.hardware.robot_wrapper.inner)
        self._robot_type = context.hardware.robot_wrapper.robot_type
        self._policy = context.policy.policy
        self._before, self._after = context.policy.preprocessor, context.policy.postprocessor
        self._chunks, self._task = config.inference.type == "rtc", config.task
        self._device = torch.device(config.device or "cpu")
        self._given: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._begun: tuple[int, int, int | None] | None = None

    def begin(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """A call begins on this thread, with what the engine was given: its arguments."""
        self._given = args, kwargs
        self._begun = host_ns(), cpu_ns(), waited_ns()

    def end(self) -> None:
        """The call that began is over."""
        begun, self._begun = self._begun, None
        if begun is not None:
            used = _thread_use(begun)
            waited = -1 if used.waited is None else used.waited
            self._append(("used", begun[0], begun[0] + used.wall, used.cpu, waited))

    @property
    def refusal_reason(self) -> str | None:
        """The reason why the policy cannot be called again now."""
        robot = self._robot()
        if robot is not None and getattr(robot, "is_connected", True):
            return "the robot is still connected"
        return None if self._given is not None else "the policy was never called"

    def repeat_call(self) -> ThreadUse:
        """Call the policy on the last observation as the engine did, and return what it cost this thread.

        Raises whatever the policy raises.
        """
        assert self._given is not None
        args, kwargs = self._given
        if self._chunks:
            begun = host_ns(), cpu_ns(), waited_ns()
            self._chunk(args, kwargs)
            return _thread_use(begun)
        self._policy.reset()  # forgets the actions that are left, so that the next one takes a call
        begun = host_ns(), cpu_ns(), waited_ns()
        self._action(args[0] if args else kwargs["obs_frame"])
        return _thread_use(begun)

    def _chunk(self, args: tuple[Any, ...], kwargs: dict[str, object]) -> None:
        batch = rtc.build_dataset_frame(*args, **kwargs)
        batch = prepare_observation_for_inference(batch, self._device, self._task, self._robot_type)
        batch["task"] = [self._task]
        actions = predict(self._policy, self._before(batch), self.options)
        self._after(actions)

    def _action(self, frame: Observation) -> None:
        mixed = self._device.type == "cuda" and getattr(self._policy.config, "use_amp", False)
        with torch.inference_mode(), torch.autocast("cuda") if mixed else contextlib.nullcontext():
            batch = prepare_observation_for_inference(copy(frame), self._device, self._task, self._robot_type)
            action = self._policy.select_action(self._before(batch))
            self._after(action).squeeze(0).cpu()


def _thread_use(begun: tuple[int, int, int | None]) -> ThreadUse:
    start, cpu, waited = begun
    now = waited_ns()
    used = cpu_ns() - cpu
    return ThreadUse(host_ns() - start, used, None if now is None or waited is None else now - waited)


FEWEST = FEWEST_PAIRS  # calls of which a verdict can be made


def call_times(place: Place, uses: Sequence[ThreadUse]) -> CallTimes:
    """The median wall time of ``uses``, at least one, divided as their middle half is."""
    ordered = sorted(uses, key=lambda use: use.wall)
    quarter = len(ordered) // 4
    middle = ordered[quarter : len(ordered) - quarter]
    wall_ms = median(use.wall for use in ordered) / 1e6
    each = wall_ms / max(1, sum(use.wall for use in middle))
    cpu_ms = each * sum(use.cpu for use in middle)
    waits = [use.waited for use in middle if use.waited is not None]
    waiting_ms = each * sum(waits) if len(waits) == len(middle) else None
    # The clocks tick apart: what is left of nothing may be a little below it.
    blocked_ms = max(0.0, wall_ms - cpu_ms - (waiting_ms or 0.0))
    return CallTimes(
        place=place,
        calls=len(ordered),
        wall_ms=wall_ms,
        cpu_ms=cpu_ms,
        waiting_ms=waiting_ms,
        blocked_ms=blocked_ms,
    )


def compare_places(
    robot: Sequence[ThreadUse],
    bench: Sequence[ThreadUse] = (),
    paced: Sequence[ThreadUse] = (),
    period_ms: float | None = None,
) -> Bench | None:
    """Return the times of calls on the robot, and on the bench back to back and at the robot's pace.

    None for fewer than `FEWEST` calls on the robot.
    """
    if len(robot) < FEWEST:
        return None
    here = call_times("robot", robot)
    if len(bench) < FEWEST:
        return Bench(times=[here])
    there = call_times("bench", bench)
    spaced = call_times("bench at the robot's pace", paced) if len(paced) >= FEWEST else None
    verdict = unpaired_verdict(
        [use.wall / 1e6 for use in bench],
        [use.wall / 1e6 for use in robot],
        baseline_name="the bench",
        candidate_name="the robot",
    )
    return Bench(
        times=[there, *([spaced] if spaced is not None else []), here],
        period_ms=period_ms if spaced is not None else None,
        verdict=verdict,
        shares=shares(there, spaced, here),
    )


def shares(bench: CallTimes, paced: CallTimes | None, robot: CallTimes) -> list[Share]:
    """The parts of the difference, largest first.

    The bench at the robot's pace has the robot's gaps and none of its company: what it takes more than the bench is
    the price of the gaps. What the robot takes beyond that is told apart by what its thread did meanwhile.
    """
    shares = []
    if paced is not None:
        shares.append(Share(cause="clocks and gaps", ms=paced.wall_ms - bench.wall_ms))
    undisturbed = paced or bench
    shares.append(Share(cause="on the CPU", ms=robot.cpu_ms - undisturbed.cpu_ms))
    if robot.waiting_ms is not None and undisturbed.waiting_ms is not None:
        shares.append(Share(cause="waiting for a CPU", ms=robot.waiting_ms - undisturbed.waiting_ms))
    # The rest, so that the parts add up to the difference whatever the clocks' grain.
    rest = robot.wall_ms - bench.wall_ms - sum(share.ms for share in shares)
    shares.append(Share(cause="blocked", ms=rest))
    return sorted(shares, key=lambda share: -share.ms)
