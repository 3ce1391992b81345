"""Verify: does a policy act in another Python environment as it does in this one? Nothing is timed."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from pathlib import Path

from strobe.core.measure.guard import Guards
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.results.agreement import Check
from strobe.core.results.answer import VerifyResult
from strobe.core.sameness.visits import FEWEST
from strobe.core.studies.shared.machine_state import begin_result
from strobe.core.studies.shared.measuring import Options
from strobe.core.studies.shared.progress import Reporter
from strobe.environments.options import SideOptions
from strobe.environments.side import SideEndedError
from strobe.environments.sides import CALLS_EACH, GUARDED, Looked, Sides, SidesOptions, carry, look, passes, training
from strobe.lerobot.policies.policy_subject import PolicySubject


def verify_environment(
    load: Callable[[], PolicySubject],
    options: SidesOptions,
    guards: Guards,
    folder: Path,
    reporter: Reporter,
    *,
    count: int,
    seconds: float = math.inf,
) -> VerifyResult:
    """Run the policy in two environments on observations that find faults. Ctrl-C keeps what was looked at.

    Args:
        load: loads the policy here. Its weights are let go before the sides load it.
        folder: for what is carried.
        count: observations.
        seconds: for the looks, roughly: where a chunk takes long there are fewer observations, `FEWEST` at least.

    Raises:
        UserError: an environment cannot read the policy, or the first one cannot run it.
    """
    subject = load()
    guard = guards.of([GUARDED])
    here, there = options.sides
    title = f"{subject.info.name}: does it act the same in '{there.name}'?"
    measuring = Options(SamplingBudget(iterations=1), counted=False)
    result = begin_result(VerifyResult, subject, title, measuring, reporter, recipe="", guard=str(guard))
    reporter.stage("packing what the other environment needs")
    carried = carry(subject, folder, options)
    weight_bytes = subject.info.weight_bytes
    del subject
    gc.collect()
    check = Check(name=there.name, treatments=[], effect=GUARDED, guard=str(guard))
    looked = Looked()
    with Sides(carried, options, reporter, weight_bytes) as sides:
        result.environments = sides.environments
        try:
            planned = min(count, carried.parcel.checked)
            fits = _fitting(sides, here, seconds, planned)
            if fits < planned:
                result.limited = f"{fits} of {planned} observations were looked at, to end in about {seconds:.0f} s"
            looked = look(sides, fits, reporter)
            result.notes += looked.notes
            result.passes = passes(sides, looked.worst, reporter)
            training(sides, result.passes, reporter)
        except KeyboardInterrupt:
            result.status = "interrupted"
        except SideEndedError as error:
            result.status = "failed"
            result.notes.append(f"{error}; what was looked at before is kept")
    judged = looked.judge(there.name, guard)
    check.agreement, check.broken, check.unjudged = looked.agreements.get(there.name), judged.broken, judged.unjudged
    result.yardsticks = [looked.reordered] if looked.reordered is not None else []
    result.checks = [check]
    return result


def _fitting(sides: Sides, first: SideOptions, seconds: float, planned: int) -> int:
    """Return how many of the planned observations fit into ``seconds``, by the time of the first side's chunk."""
    if not math.isfinite(seconds):
        return planned
    sides.chunk(first.name, 0)
    began = time.perf_counter()
    sides.chunk(first.name, 0)
    each_s = CALLS_EACH * (time.perf_counter() - began)
    return min(planned, max(FEWEST, int(seconds / each_s)))
