"""Compare the same policy in several Python environments: its time, its actions, and where its passes first differ."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from strobe.core.errors import UserError
from strobe.core.measure.guard import Guards
from strobe.core.measure.sampling import SETTLE_S, Collected, NoMoreCallsError, collect
from strobe.core.measure.statistics import bonferroni, summarise
from strobe.core.measure.time_limit import WorkLimit
from strobe.core.measure.verdicts import LEVEL, difference_interval, paired_verdict, too_short
from strobe.core.results.answer import CompareResult
from strobe.core.results.comparison import Comparison
from strobe.core.results.measurement import Component, Measurement
from strobe.core.results.traits import Traits
from strobe.core.sameness.check import CALLS_EACH, affordable
from strobe.core.sameness.visits import FEWEST
from strobe.core.studies.shared.machine_state import begin_result
from strobe.core.studies.shared.measuring import Options
from strobe.core.studies.shared.progress import Reporter
from strobe.environments.side import SideEndedError
from strobe.environments.sides import (
    GUARDED,
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
from strobe.lerobot.policies.policy_subject import PolicySubject

# Chunks as long as which these take, roughly, for each side but the first.
PASS_CALLS, STEP_CALLS = 6, 10


def compare_environments(
    load: Callable[[], PolicySubject], options: SidesOptions, measuring: Options, folder: Path, reporter: Reporter
) -> CompareResult:
    """Judge the policy in each environment against the first one. Rounds alternate between the processes.

    Ctrl-C and the end of a process keep what was measured before.

    Args:
        load: loads the policy here. Its weights are let go before the sides load it.
        folder: for what is carried.

    Raises:
        UserError: an environment cannot read or run the policy, or ended before the first round was complete.
    """
    subject = load()
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
            self._ended(error)
        except UserError as error:  # what was timed must not be lost for it
            if not self.result.measurements:
                raise
            self.result.notes.append(f"the actions were not compared: {error}")
        self.result.notes += self.limit.left_out
        self._hold()

    def _ended(self, error: Exception) -> None:
        self.result.status = "failed"
        self.result.notes.append(f"{error}; what was measured before is kept")

    def _sample(self, sides: Sides) -> Collected:
        self.reporter.stage(f"inference: {', '.join(sides.names)}")
        parts: dict[str, list[dict[str, float]]] = {name: [] for name in sides.names}
        ended: list[SideEndedError] = []

        def caller(name: str) -> Callable[[], float]:
            call, taken = sides.timed(name), parts[name]

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
            self._ended(ended[0])
        return collected

    def _judge(self, seconds: float) -> None:
        first, *others = self.result.measurements
        level = bonferroni(len(others), LEVEL)
        for other in others:
            before, after = first.samples.values, other.samples.values
            if len(before) < 2:
                continue
            difference_ms, interval = difference_interval(before, after, level=level)
            verdict = paired_verdict(
                before,
                after,
                baseline_name=first.name,
                candidate_name=other.name,
                within=self.measuring.within,
                level=level,
            )
            verdict = too_short(verdict, seconds, SETTLE_S, baseline_name=first.name, candidate_name=other.name)
            self.result.comparisons.append(
                Comparison(
                    baseline=first.name,
                    candidate=other.name,
                    verdict=verdict,
                    difference=interval,
                    difference_ms=difference_ms,
                )
            )

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

    def _hold(self) -> None:
        """Hold the actions against the guard of rounding; what was not looked at is not judged."""
        guard, looked = Guards().of([GUARDED]), self.looked
        self.result.yardsticks = [looked.reordered] if looked.reordered is not None else []
        for comparison in self.result.comparisons:
            comparison.effect, comparison.guard = GUARDED, str(guard)
            judged = looked.judge(comparison.candidate, guard)
            comparison.agreement = looked.agreements.get(comparison.candidate)
            comparison.broken, comparison.unjudged = judged.broken, judged.unjudged


def _components(taken: Sequence[dict[str, float]], whole: Sequence[float]) -> list[Component]:
    """Return the parts that each side timed itself."""
    total = float(np.sum(whole))
    shown = []
    for part in PARTS:
        values = [one[part] for one in taken]
        share = float(np.sum(values)) / total if total > 0 else 0.0
        shown.append(Component(path=[part], calls=1.0, values=values, summary=summarise(values), share=min(share, 1.0)))
    return shown
