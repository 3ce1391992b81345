"""A climb's answer: rungs, each set against the one before and the policy as it is, a ladder and a recipe."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strobe.measure import budget as budgets
from strobe.measure.components import common_parts
from strobe.measure.in_time import best_rung
from strobe.measure.verdicts import difference_interval, unpaired_verdict
from strobe.results import recipe
from strobe.results.agreement import Agreement
from strobe.results.answer import OptimizeResult
from strobe.results.budget import Latency
from strobe.results.comparison import Comparison, Verdict
from strobe.results.episodes import PairedEpisodes
from strobe.results.in_time import InTime
from strobe.results.ladder import Ladder, Rung, Try
from strobe.results.measurement import Measurement
from strobe.results.recipe import Recipe
from strobe.studies.compare import judge
from strobe.studies.measuring import Measured
from strobe.studies.optimize.aim import Aim
from strobe.studies.optimize.alone import seen_in
from strobe.studies.optimize.candidates import Candidate
from strobe.treatments.recipe import PACKAGES
from strobe.treatments.treatment import Spec, Variant

AS_IT_IS = "as it is"
NOTHING: Mapping[str, str] = {}


@dataclass
class Step:
    """A rung as the climb left it: what is on, what was added, and what its own try showed."""

    variant: Variant
    specs: tuple[Spec, ...]
    measurement: Measurement
    added: Candidate | None = None
    part: str = ""
    build_s: float | None = None
    verdict: Verdict | None = None
    agreement: Agreement | None = None
    asked_for: bool = False  # from the start, whatever it buys
    in_time: InTime | None = None  # by a run of its own

    @property
    def shown(self) -> bool:
        """Whether it was shown to be faster than the rung below."""
        return self.verdict is not None and self.verdict.kind == "faster"

    @property
    def ms(self) -> float:
        return self.measurement.samples.summary.median


def compared(measured: Measured) -> list[Comparison]:
    """Compare each rung with the first and with the one before it."""
    first, *others = measured.measurements
    found = []
    for index, one in enumerate(others):
        found.append(judge(first, one, measured))
        if index:
            found.append(judge(others[index - 1], one, measured))
    return found


def compared_by_tries(steps: Sequence[Step]) -> list[Comparison]:
    """Compare the rungs by their own tries, where no run of all of them was made."""
    found: list[Comparison] = []
    for index, step in enumerate(steps[1:], start=1):
        first, before = steps[0], steps[index - 1]
        values = [one.measurement.samples.values for one in (first, step)]
        if index > 1 and step.verdict is not None:
            found.append(
                Comparison(
                    baseline=before.variant.name,
                    candidate=step.variant.name,
                    verdict=step.verdict,
                    difference_ms=step.ms - before.ms,
                )
            )
        across = unpaired_verdict(values[0], values[1], baseline_name=AS_IT_IS, candidate_name=step.variant.name)
        own = step.verdict if index == 1 else None
        difference, interval = difference_interval(values[0], values[1], paired=False)
        found.append(
            Comparison(
                baseline=AS_IT_IS,
                candidate=step.variant.name,
                verdict=own or across,
                difference=None if own else interval,
                difference_ms=step.ms - first.ms if own else difference,
                agreement=step.agreement,
            )
        )
    return found


def ladder_of(
    result: OptimizeResult,
    steps: Sequence[Step],
    tries: list[Try],
    aim: Aim,
    guard: str,
    *,
    ended: str,
    interleaved: bool,
    refused: Mapping[str, str] = NOTHING,
) -> Ladder:
    """Make the ladder of a result whose measurements and comparisons are those of ``steps``.

    Args:
        guard: in words; whether a rung broke it stands in its comparison with the policy as it is.
        ended: why the climbing stopped, in words.
        interleaved: whether the measurements are of one run of all rungs in alternation.
        refused: rung → what a closer look at its actions, or paired episodes, have against it.
    """
    rungs: list[Rung] = []
    for step, measurement, parts in zip(steps, result.measurements, common_parts(result.measurements), strict=True):
        against = refused.get(measurement.name, "")
        compared = _with_as_it_is(result, measurement.name)
        if not against and compared is not None and compared.broken:
            against = f"{compared.broken} in the closing run, on more observations than its try had"
        if not against and measurement.name != AS_IT_IS and (compared is None or compared.outcome != "held"):
            why = compared.unjudged if compared is not None else ""
            against = f"not judged: {why or 'its actions were not compared'}"
        rungs.append(
            Rung(
                name=measurement.name,
                treatment=step.added.text if step.added is not None else "",
                treatments=[dict(spec) for spec in step.specs],
                effect=step.added.effect if step.added is not None else "exact",
                part=step.part,
                build_s=step.build_s,
                parts=parts,
                guarded=not against,
                refused=against,
            )
        )
    chosen = rungs[_best(result, steps, [rung.guarded for rung in rungs], interleaved)]
    measured = result.measurement(chosen.name)
    needs = budgets.needs(Latency(steps=1, total_ms=measured.samples.summary.median, parts=chosen.parts), aim.target_ms)
    for need in needs:
        need.treatments = budgets.tried_on(tries, need.part)
    in_time = seen_in(measured, aim)
    return Ladder(
        target_hz=aim.target_hz,
        target_ms=aim.target_ms,
        guard=guard,
        met=in_time.outcome == "reached",
        in_time=in_time,
        ended=ended,
        interleaved=interleaved,
        chosen=chosen.name,
        rungs=rungs,
        tries=tries,
        needs=needs,
    )


def _best(result: OptimizeResult, steps: Sequence[Step], guarded: Sequence[bool], interleaved: bool) -> int:
    """Return the index of the rung that the ladder ends with."""
    first = max(rung for rung, step in enumerate(steps) if guarded[rung] and (not rung or step.asked_for))
    if not interleaved:  # each is from a run of its own, which has shown that it is faster than the one before
        return max(rung for rung in range(len(steps)) if guarded[rung])
    return best_rung([m.samples.values for m in result.measurements], [one.shown for one in steps], guarded, first)


def agreement_of(result: OptimizeResult, name: str) -> Agreement | None:
    """How far the actions of the measurement ``name`` are from the untouched policy's; None for itself."""
    compared = _with_as_it_is(result, name)
    return compared.agreement if compared is not None else None


def _with_as_it_is(result: OptimizeResult, name: str) -> Comparison | None:
    return next((c for c in result.comparisons if (c.baseline, c.candidate) == (AS_IT_IS, name)), None)


def _played(judged: PairedEpisodes) -> recipe.RecipeEpisodes:
    return recipe.RecipeEpisodes(
        environment=judged.environment,
        pairs=len(judged.pairs),
        success=judged.candidate_success,
        baseline_success=judged.baseline_success,
        possible_drop=judged.possible_drop,
        same=sum(pair.same for pair in judged.pairs),
    )


def recipe_of(result: OptimizeResult) -> Recipe | None:
    """Return the recipe of the ladder's chosen rung; None where that is no faster than the policy as it is."""
    ladder = result.ladder
    if ladder is None or ladder.chosen == AS_IT_IS:
        return None
    kept = ladder.rungs[: [rung.name for rung in ladder.rungs].index(ladder.chosen) + 1]
    whole = _with_as_it_is(result, ladder.chosen)
    if whole is None or whole.verdict.kind != "faster":
        return None
    taken = {rung.name: result.measurement(rung.name).samples.summary.median for rung in kept}
    seen = {rung.name: agreement_of(result, rung.name) for rung in kept}
    known = {"strobe": result.strobe_version, **result.machine.versions}
    return Recipe(
        policy=result.subject.kind,
        size=result.subject.size,
        treatments=[{key: v for key, v in spec.items() if v is not None} for spec in kept[-1].treatments],
        guard=whole.guard or ladder.guard,
        # What its dimensions showed is in the run; the recipe has the figures that people compare.
        agreement=whole.agreement and whole.agreement.model_copy(update={"dimensions": []}),
        episodes=next((_played(one) for one in result.episodes if one.candidate == ladder.chosen), None),
        baseline_ms=taken[AS_IT_IS],
        ms=taken[ladder.chosen],
        rungs=[
            recipe.RecipeRung(
                name=rung.treatment,
                ms=taken[rung.name],
                hz=1e3 / taken[rung.name],
                times=taken[AS_IT_IS] / taken[rung.name],
                effect=rung.effect,
                cosine=getattr(seen[rung.name], "cosine", None),
                rms=getattr(seen[rung.name], "rms", None),
                worst=getattr(seen[rung.name], "worst", None),
                build_s=rung.build_s,
            )
            for rung in kept[1:]
        ],
        device_name=result.machine.device_name,
        versions={name: known[name] for name in PACKAGES if name in known},
        command=shlex.join(result.command),
        made=result.started.replace(microsecond=0),
    )
