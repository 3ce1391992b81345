"""The same policy in several Python environments: its time, its actions, and where its passes first differ."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from strobe.core.errors import UserError
from strobe.core.measure.guard import Guards
from strobe.core.measure.sampling import Collected, NoMoreCallsError, SamplingBudget, collect
from strobe.core.measure.statistics import bonferroni, summarise
from strobe.core.measure.time_limit import WorkLimit
from strobe.core.measure.verdicts import LEVEL
from strobe.core.results.agreement import Check
from strobe.core.results.answer import CompareResult, VerifyResult
from strobe.core.results.measurement import Component, Measurement
from strobe.core.results.traits import Traits
from strobe.core.sameness.check import CALLS_EACH, affordable
from strobe.core.sameness.visits import FEWEST
from strobe.core.studies.shared.machine_state import begin_result
from strobe.core.studies.shared.measuring import Options
from strobe.core.studies.shared.paired_comparison import allow_for_processes, judge_times
from strobe.core.studies.shared.progress import Reporter
from strobe.core.subjects.subject import Subject
from strobe.environments.side import SideEndedError, SideOptions
from strobe.environments.sides import (
    GUARDED,
    LOOK_CALLS,
    PARTS,
    Carried,
    Looked,
    Sides,
    SidesOptions,
    carry,
    look,
    passes,
    training,
)
from strobe.lerobot.config_fields import require_policy

# Chunks as long as which these take, roughly, for each side but the first.
PASS_CALLS, STEP_CALLS = 6, 10


def compare_environments(
    load: Callable[[], Subject], options: SidesOptions, measuring: Options, folder: Path, reporter: Reporter
) -> CompareResult:
    """Judge the policy in each environment against the first one. Rounds alternate between the processes.

    Ctrl-C and the end of a process keep what was measured before.

    Args:
        load: loads the policy here. Its weights are let go before the sides load it.
        folder: for what is carried.

    Raises:
        UserError: an environment cannot read or run the policy, or ended before the first round was complete.
    """
    subject = require_policy(load())
    names = [side.name for side in options.sides]
    title = f"{subject.info.name}: {' against '.join(names)}"
    result = begin_result(CompareResult, subject, title, measuring, reporter)
    reporter.stage("packing what the other environment needs")
    carried = carry(subject, folder, options)
    weight_bytes = subject.info.weight_bytes
    del subject
    gc.collect()
    study = _Study(result, measuring, carried, reporter)
    with Sides(carried, options, reporter, weight_bytes) as sides:
        result.environments = sides.environments
        study.run(sides)
    return result


@dataclass
class _Study:
    """The steps of the comparison, each of which adds to the result."""

    result: CompareResult
    measuring: Options
    carried: Carried
    reporter: Reporter
    looked: Looked = field(default_factory=Looked)
    limit: WorkLimit = field(default_factory=WorkLimit)

    def run(self, sides: Sides) -> None:
        """Measure, look, and judge. Raises UserError before the first round is complete."""
        self.limit = WorkLimit(self.measuring.budget.seconds)  # the policy is loaded by now
        try:
            collected = self._sample(sides)
            if self.result.status == "complete":
                self._look(sides, collected)
        except KeyboardInterrupt:
            if not self.result.measurements:
                raise
            self.result.status = "interrupted"
        except SideEndedError as error:
            if not self.result.measurements:
                raise
            self._note_error(error)
        except UserError as error:  # what was timed must not be lost for it
            if not self.result.measurements:
                raise
            self.result.notes.append(f"the actions were not compared: {error}")
        self.result.notes += self.limit.left_out
        self._judge_actions()

    def _note_error(self, error: Exception) -> None:
        self.result.status = "failed"
        self.result.notes.append(f"{error}; the earlier measurements are saved")

    def _sample(self, sides: Sides) -> Collected:
        self.reporter.stage(f"inference: {', '.join(sides.names)}")
        parts: dict[str, list[dict[str, float]]] = {name: [] for name in sides.names}
        ended: list[SideEndedError] = []

        def caller(name: str) -> Callable[[], float]:
            call, taken = sides.timed_call(name), parts[name]

            def run() -> float:
                try:
                    taken.append(call(len(taken)))
                except SideEndedError as error:
                    ended.append(error)
                    raise NoMoreCallsError(str(error)) from error
                return sum(taken[-1].values())

            return run

        try:
            collected = collect(
                {name: caller(name) for name in sides.names}, self.measuring.budget, self.reporter.progress
            )
        except NoMoreCallsError:
            raise ended[0] from None
        for name, samples in collected.samples.items():
            taken = parts[name][collected.warmup_rounds : collected.rounds]
            self.result.measurements.append(
                Measurement(
                    name=name,
                    phase="inference",
                    clock="host",
                    traits=Traits(batch_size=1, device=self.carried.device),
                    samples=samples,
                    components=_components(taken, samples.values),
                )
            )
        self._judge(collected.seconds)
        if collected.interrupted:
            self.result.status = "interrupted"
        elif ended:
            self._note_error(ended[0])
        return collected

    def _judge(self, seconds: float) -> None:
        first, *others = self.result.measurements
        level = bonferroni(len(others), LEVEL)
        for other in others:
            if len(first.samples.values) < 2:
                continue
            judged = judge_times(first, other, within=self.measuring.within, level=level)
            allow_for_processes(judged, seconds)
            self.result.comparisons.append(judged)

    def _look(self, sides: Sides, collected: Collected) -> None:
        chunk_s = max(samples.summary.median for samples in collected.samples.values()) / 1e3
        seconds = max(collected.seconds, self.measuring.budget.seconds)
        count = min(affordable(seconds, chunk_s), self.carried.parcel.checked)
        others = len(sides.names) - 1
        self.limit.extend(2 * (max(collected.seconds, CALLS_EACH * FEWEST * chunk_s) - self.measuring.budget.seconds))
        self.looked = look(sides, count, self.reporter)
        self.result.notes += self.looked.notes
        if not self.limit.fits(PASS_CALLS * others * chunk_s):
            self.limit.leave_out("where the passes differ was not looked at", PASS_CALLS * others * chunk_s)
            return
        self.result.passes = passes(sides, self.looked.worst, self.reporter)
        if not self.limit.fits(STEP_CALLS * others * chunk_s):
            self.limit.leave_out("a training step was not compared", STEP_CALLS * others * chunk_s)
            return
        gradients = training(sides, self.result.passes, self.reporter)
        for comparison in self.result.comparisons:
            comparison.gradient = gradients.get(comparison.candidate)

    def _judge_actions(self) -> None:
        guard, looked = Guards().strictest_guard([GUARDED]), self.looked
        self.result.yardsticks = looked.yardsticks
        for comparison in self.result.comparisons:
            comparison.effect, comparison.guard = GUARDED, str(guard)
            looked.judge(comparison, comparison.candidate, guard)


def _components(taken: Sequence[dict[str, float]], whole: Sequence[float]) -> list[Component]:
    total = float(np.sum(whole))
    shown = []
    for part in PARTS:
        values = [one[part] for one in taken]
        share = float(np.sum(values)) / total if total > 0 else 0.0
        shown.append(Component(path=[part], calls=1.0, values=values, summary=summarise(values), share=min(share, 1.0)))
    return shown


def verify_environment(
    load: Callable[[], Subject],
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
    subject = require_policy(load())
    guard = guards.strictest_guard([GUARDED])
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
            result.notes.append(f"{error}; the earlier checks are saved")
    looked.judge(check, there.name, guard)
    result.yardsticks = looked.yardsticks
    result.checks = [check]
    return result


def _fitting(sides: Sides, first: SideOptions, seconds: float, planned: int) -> int:
    """Return how many of the planned observations fit into ``seconds``, by the time of the first side's chunk."""
    if not math.isfinite(seconds):
        return planned
    sides.chunk(first.name, 0)
    began = time.perf_counter()
    sides.chunk(first.name, 0)
    each_s = LOOK_CALLS * (time.perf_counter() - began)
    return min(planned, max(FEWEST, int(seconds / each_s)))
