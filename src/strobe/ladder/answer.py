"""A climb's answer: its rungs compared, the one that the ladder ends with, the ladder and the recipe."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from strobe.core.measure.components import common_parts
from strobe.core.measure.guard import Guards
from strobe.core.measure.verdicts import difference_interval, unpaired_verdict
from strobe.core.results import recipe
from strobe.core.results.comparison import Comparison
from strobe.core.results.recipe import Recipe
from strobe.core.studies.shared.measuring import Measured
from strobe.core.studies.shared.paired_comparison import judge
from strobe.core.treatments.recipe import PACKAGES
from strobe.evaluate.pairs import PairedEpisodes
from strobe.ladder.climb import BASELINE, Climb, Step
from strobe.ladder.in_time import best_rung, judge_in_time
from strobe.ladder.results import Ladder, Need, OptimizeResult, Rung
from strobe.ladder.runner import ActionGuard


def compare_in_one_run(measured: Measured) -> list[Comparison]:
    """Compare each rung with the first and with the one before it."""
    first, *others = measured.measurements
    comparisons = []
    for index, rung in enumerate(others):
        comparisons.append(judge(first, rung, measured))
        if index:
            comparisons.append(judge(others[index - 1], rung, measured))
    return comparisons


def compare_by_tries(steps: Sequence[Step]) -> list[Comparison]:
    """Compare the rungs by their own tries, where no run of all of them was made."""
    comparisons: list[Comparison] = []
    first = steps[0]
    for index, step in enumerate(steps[1:], start=1):
        before, verdict = steps[index - 1], step.tried.verdict
        if index > 1 and verdict is not None:
            comparisons.append(
                Comparison(
                    baseline=before.name, candidate=step.name, verdict=verdict, difference_ms=step.ms - before.ms
                )
            )
        values = [each.measurement.samples.values for each in (first, step)]
        across = unpaired_verdict(values[0], values[1], baseline_name=BASELINE, candidate_name=step.name)
        own = verdict if index == 1 else None
        difference, interval = difference_interval(values[0], values[1], paired=False)
        comparisons.append(
            Comparison(
                baseline=BASELINE,
                candidate=step.name,
                verdict=own or across,
                difference=None if own else interval,
                difference_ms=step.ms - first.ms if own else difference,
                agreement=step.tried.agreement,
            )
        )
    return comparisons


def judge_rungs(result: OptimizeResult, steps: Sequence[Step], guard: ActionGuard, measured: Measured | None) -> None:
    """Write down the guard that each rung's agreement with the baseline is compared with, and its outcome.

    ``measured``: the closing run, whose errors are in the spread that the tries were judged by.
    """
    variants = {step.name: step.variant for step in steps}
    for comparison in result.comparisons:
        variant = variants.get(comparison.candidate)
        if comparison.baseline == BASELINE and comparison.agreement is not None and variant is not None:
            if measured is not None and guard.same is not None:
                comparison.agreement = guard.agreement(measured, comparison.candidate)
            comparison.effect = guard.effect(variant)
            comparison.guard = str(guard.variant_guard(variant))
            judgement = guard.judge(variant, comparison.agreement)
            comparison.broken, comparison.unjudged = judgement.broken_limit, judgement.missing_figures


@dataclass
class Choosing:
    """Chooses the rung that the ladder ends with: the best of those that nothing speaks against.

    Args:
        result: its measurements are those of ``steps``; what broke a guard stands in its comparisons.
        interleaved: whether the measurements are of one run of all rungs in alternation.
        refused: rung → what a closer look at its actions, or paired episodes, have against it.
    """

    result: OptimizeResult
    steps: Sequence[Step]
    interleaved: bool
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def chosen_rung(self) -> str:
        """The name of the rung that the ladder ends with."""
        free = [not self.rejection_reason(step.name) for step in self.steps]
        if not self.interleaved:  # each is from a run of its own, which has shown that it is faster than the one before
            return self.steps[max(rung for rung in range(len(free)) if free[rung])].name
        first = max(rung for rung, step in enumerate(self.steps) if free[rung] and (not rung or step.requested))
        times = [measurement.samples.values for measurement in self.result.measurements]
        return self.steps[best_rung(times, [step.is_shown_faster for step in self.steps], free, first)].name

    def rejection_reason(self, name: str) -> str | None:
        """Return why a rung cannot be the result; None if it can."""
        comparison = find_baseline_comparison(self.result, name)
        if name in self.refused:
            return self.refused[name]
        if comparison is not None and comparison.broken:
            return f"{comparison.broken} in the closing run, on more observations than in its try"
        if name == BASELINE or (comparison is not None and comparison.outcome == "held"):
            return None
        return f"not judged: {(comparison and comparison.unjudged) or 'its actions were not compared'}"


def build_ladder(choosing: Choosing, climb: Climb, guards: Guards) -> Ladder:
    """Make the ladder of ``climb``, which ended by itself or was interrupted."""
    result, aim = choosing.result, climb.aim
    rungs = [
        Rung(
            name=step.name,
            treatment=step.tried.treatment,
            treatments=[dict(spec) for spec in step.specs],
            effect=step.effect,
            part=step.tried.part,
            build_s=step.tried.build_s,
            parts=parts,
            guarded=(rejected := choosing.rejection_reason(step.name)) is None,
            refused=rejected,
        )
        for step, parts in zip(climb.steps, common_parts(result.measurements), strict=True)
    ]
    chosen = next(rung for rung in rungs if rung.name == choosing.chosen_rung)
    samples = result.measurement(chosen.name).samples
    needs = Need.list_needs(chosen.parts, samples.summary.median, aim.target_ms)
    timely = judge_in_time(samples.values, aim.target_ms, aim.in_time)
    return Ladder(
        target_hz=aim.target_hz,
        target_ms=aim.target_ms,
        guard=str(guards),
        met=timely.outcome == "reached",
        in_time=timely,
        ended=climb.ended or "interrupted",
        interleaved=choosing.interleaved,
        chosen=chosen.name,
        rungs=rungs,
        tries=climb.tries,
        needs=needs,
    )


def find_baseline_comparison(result: OptimizeResult, name: str) -> Comparison | None:
    """Return the comparison of the measurement ``name`` with the baseline; None for itself."""
    return next((c for c in result.comparisons if (c.baseline, c.candidate) == (BASELINE, name)), None)


def _recipe_episodes(judged: PairedEpisodes) -> recipe.RecipeEpisodes:
    return recipe.RecipeEpisodes(
        environment=judged.environment,
        pairs=len(judged.pairs),
        success=judged.candidate_success,
        baseline_success=judged.baseline_success,
        possible_drop=judged.possible_drop,
        same=sum(pair.same for pair in judged.pairs),
    )


def build_recipe(result: OptimizeResult) -> Recipe | None:
    """Return the recipe of the ladder's chosen rung; None if that is no faster than the baseline."""
    ladder = result.ladder
    if ladder is None or ladder.chosen == BASELINE:
        return None
    rungs = ladder.rungs[: [rung.name for rung in ladder.rungs].index(ladder.chosen) + 1]
    whole = find_baseline_comparison(result, ladder.chosen)
    if whole is None or whole.verdict.kind != "faster":
        return None
    median_ms = {rung.name: result.measurement(rung.name).samples.summary.median for rung in rungs}
    comparisons = {rung.name: find_baseline_comparison(result, rung.name) for rung in rungs}
    agreements = {name: each.agreement for name, each in comparisons.items() if each is not None}
    known = {"strobe": result.strobe_version, **result.machine.versions}
    return Recipe(
        policy=result.subject.kind,
        size=result.subject.size,
        object=result.subject.name if result.measurements[0].traits.call is not None else "",
        treatments=[{key: v for key, v in spec.items() if v is not None} for spec in rungs[-1].treatments],
        guard=whole.guard or ladder.guard,
        # What its dimensions showed is in the run; the recipe has the figures that people compare.
        agreement=whole.agreement and whole.agreement.model_copy(update={"dimensions": []}),
        episodes=next(
            (_recipe_episodes(judged) for judged in result.episodes if judged.candidate == ladder.chosen), None
        ),
        baseline_ms=median_ms[BASELINE],
        ms=median_ms[ladder.chosen],
        rungs=[
            recipe.RecipeRung(
                name=rung.treatment,
                ms=median_ms[rung.name],
                hz=1e3 / median_ms[rung.name],
                times=median_ms[BASELINE] / median_ms[rung.name],
                effect=rung.effect,
                cosine=getattr(agreements.get(rung.name), "cosine", None),
                rms=getattr(agreements.get(rung.name), "rms", None),
                worst=getattr(agreements.get(rung.name), "worst", None),
                build_s=rung.build_s,
            )
            for rung in rungs[1:]
        ],
        device_name=result.machine.device_name,
        versions={name: known[name] for name in PACKAGES if name in known},
        command=shlex.join(result.command),
        made=result.started.replace(microsecond=0),
    )
