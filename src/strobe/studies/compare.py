"""Compare: two or more variants of one subject, run in alternation, judged in pairs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from strobe.errors import UserError
from strobe.measure.verdicts import difference_interval, paired_verdict
from strobe.results.schema import Agreement, Comparison, Measurement, Result
from strobe.studies.breakdown import begin
from strobe.studies.measuring import Measured, Options, Reporter, Silent, measure
from strobe.subjects.subject import Phase, Subject
from strobe.treatments.treatment import Variant


def compare(
    subject: Subject,
    variants: Sequence[Variant],
    phase: Phase,
    options: Options,
    reporter: Reporter | None = None,
) -> tuple[Result, Measured]:
    """Judge every variant against the first one, on the same observations with the same noise.

    Raises:
        UserError: fewer than two variants, two of one name, or a treatment that does not apply.
    """
    names = [variant.name for variant in variants]
    if len(names) < 2:
        raise UserError(
            "a comparison needs two variants or more: add --compile or --variant 'NAME: policy.FIELD=VALUE'"
        )
    if len(set(names)) < len(names):
        raise UserError(f"two variants have the same name: {', '.join(names)}")
    reporter = reporter or Silent()
    title = f"{subject.info.name}: {' against '.join(names)}"
    result = begin(subject, "compare", title, options, reporter)
    measured = measure(subject, phase, variants, options, result.machine.ceiling, reporter)
    result.measurements = measured.measurements
    result.status = "interrupted" if measured.interrupted else "complete"
    result.comparisons = [
        judge(baseline, candidate, measured)
        for baseline, candidate in _pairs(measured.measurements)
        if len(candidate.samples.values) > 1
    ]
    return result, measured


def judge(baseline: Measurement, candidate: Measurement, measured: Measured) -> Comparison:
    """The verdict on two measurements whose samples alternate, with how far their actions differ."""
    before, after = baseline.samples.values, candidate.samples.values
    difference_ms, interval = difference_interval(before, after)
    agreement = None
    if baseline.phase == "inference":
        agreement = agree(measured.actions[baseline.name], measured.actions[candidate.name])
        if candidate.facts.get("rtc.enabled") != baseline.facts.get("rtc.enabled"):
            agreement.note = "RTC changes the actions on purpose: it guides them towards the previous chunk"
    return Comparison(
        baseline=baseline.name,
        candidate=candidate.name,
        verdict=paired_verdict(before, after, baseline_name=baseline.name, candidate_name=candidate.name),
        difference=interval,
        difference_ms=difference_ms,
        agreement=agreement,
    )


def agree(baseline: Sequence[Tensor], candidate: Sequence[Tensor]) -> Agreement:
    """Compare action chunks of equal shape, pair by pair, in the action's own units.

    Raises:
        ValueError: no pairs, or pairs of unequal shape.
    """
    if not baseline or len(baseline) != len(candidate):
        raise ValueError(f"need as many candidate chunks as baseline chunks, got {len(baseline)} and {len(candidate)}")
    a, b = torch.stack(list(baseline)).double(), torch.stack(list(candidate)).double()
    error = (a - b).abs()
    cosine = torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0)
    return Agreement(
        cosine=float(cosine),
        largest_error=float(error.max()),
        mean_error=float(error.mean()),
        observations=len(baseline),
    )


def _pairs(measurements: Sequence[Measurement]) -> list[tuple[Measurement, Measurement]]:
    # All against the first; and where RTC and compilation are crossed, the compiled pair against each other as well,
    # as are RTC's two ways to compute its guidance.
    pairs = [(measurements[0], candidate) for candidate in measurements[1:]] if measurements else []
    compiled = [measurement for measurement in measurements[1:] if measurement.facts.get("compiled")]
    guided = [m for m in measurements[1:] if m.facts.get("rtc.enabled") and not m.facts.get("compiled")]
    alike = [group for group in (compiled, guided) if len(group) > 1]
    return pairs + [(group[0], candidate) for group in alike for candidate in group[1:]]
