"""Compare: two or more variants of one subject, run in alternation, judged in pairs."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from strobe.errors import UserError
from strobe.measure.verdicts import difference_interval, paired_verdict
from strobe.results.answer import CompareResult
from strobe.results.comparison import NOT_FINITE, Agreement, Comparison
from strobe.results.measurement import Measurement
from strobe.studies.breakdown import begin
from strobe.studies.gradients import gradients
from strobe.studies.measuring import Measured, Options, Reporter, Silent, measure
from strobe.subjects.policy_subject import PolicySubject
from strobe.subjects.subject import Phase, Subject
from strobe.treatments.numbers.precision import DTYPES
from strobe.treatments.treatment import Variant

SEVERAL_COPIES = "the peaks of memory include the weights in every precision compared, which are held side by side"


def compare(
    subject: Subject,
    variants: Sequence[Variant],
    phase: Phase,
    options: Options,
    reporter: Reporter | None = None,
) -> tuple[CompareResult, Measured]:
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
    told = [str(variant.facts()["precision"]) for variant in variants if "precision" in variant.facts()]
    precisions = [name for names in told for name in names.split(", ")]
    dtypes = [str(DTYPES[name]).removeprefix("torch.") for name in precisions]
    result = begin(CompareResult, subject, title, options, reporter, dtypes)
    if precisions and options.counted:
        result.notes.append(SEVERAL_COPIES)
    measured = measure(subject, phase, variants, options, result.machine.ceiling, reporter)
    result.measurements = measured.measurements
    result.status = "interrupted" if measured.interrupted else "complete"
    result.comparisons = [
        judge(baseline, candidate, measured)
        for baseline, candidate in _pairs(measured.measurements)
        if len(candidate.samples.values) > 1
    ]
    if phase != "inference" and result.status == "complete" and isinstance(subject, PolicySubject):
        try:
            _compare_gradients(subject, variants, result, options, reporter)
        except KeyboardInterrupt:
            result.status = "interrupted"
    return result, measured


def _compare_gradients(
    subject: PolicySubject, variants: Sequence[Variant], result: CompareResult, options: Options, reporter: Reporter
) -> None:
    agreements, note = gradients(subject, variants, options.batch_size, reporter)
    for comparison in result.comparisons:
        if comparison.baseline == variants[0].name:
            comparison.gradient = agreements.get(comparison.candidate)
    result.notes += [note] if note else []


def judge(baseline: Measurement, candidate: Measurement, measured: Measured) -> Comparison:
    """The verdict on two measurements whose samples alternate, with how far their actions differ."""
    before, after = baseline.samples.values, candidate.samples.values
    difference_ms, interval = difference_interval(before, after)
    agreement = None
    if baseline.phase == "inference":
        agreement = _agreement(baseline, candidate, measured)
        if candidate.facts.get("rtc.enabled") != baseline.facts.get("rtc.enabled"):
            rtc = "RTC changes the actions on purpose: it guides them towards the previous chunk"
            agreement.note = _notes(agreement.note, rtc)
    return Comparison(
        baseline=baseline.name,
        candidate=candidate.name,
        verdict=paired_verdict(before, after, baseline_name=baseline.name, candidate_name=candidate.name),
        difference=interval,
        difference_ms=difference_ms,
        agreement=agreement,
    )


def _agreement(baseline: Measurement, candidate: Measurement, measured: Measured) -> Agreement:
    before, after = baseline.name, candidate.name
    shapes = measured.outputs.shapes
    if shapes[before] == shapes[after] or not measured.pooled[after]:
        agreement = agree(measured.actions[before], measured.actions[after])
        agreement.note = _notes(agreement.note, measured.outputs.note)
        return agreement
    # One by one they cannot be compared: a token is another piece of another picture.
    agreement = agree(measured.pooled[before], measured.pooled[after])
    tokens = " against ".join(f"{m.facts.get('tokens', 0):,}" for m in (candidate, baseline))
    agreement.note = _notes(
        agreement.note, f"{after}: {tokens} tokens a clip, so what is compared is each clip's mean over its tokens"
    )
    return agreement


def agree(baseline: Sequence[Tensor], candidate: Sequence[Tensor]) -> Agreement:
    """Compare action chunks of equal shape, pair by pair, in the action's own units.

    Raises:
        ValueError: no pairs, or pairs of unequal shape.
    """
    if not baseline or len(baseline) != len(candidate):
        raise ValueError(f"need as many candidate chunks as baseline chunks, got {len(baseline)} and {len(candidate)}")
    product = left = right = largest = total = 0.0
    compared = broken = 0
    for a, b in zip(baseline, candidate, strict=True):
        if a.shape != b.shape:
            raise ValueError(f"chunks of unequal shape: {tuple(a.shape)} and {tuple(b.shape)}")
        a, b = a.double().flatten(), b.double().flatten()
        finite = a.isfinite() & b.isfinite()
        if not finite.all():
            broken += int((~finite).sum())
            a, b = a[finite], b[finite]
        error = (a - b).abs()
        product, left, right = product + float(a @ b), left + float(a @ a), right + float(b @ b)
        largest, total = max(largest, float(error.max()) if error.numel() else 0.0), total + float(error.sum())
        compared += error.numel()
    lengths = (left * right) ** 0.5
    # Numbers that are none have no direction: no cosine of the rest may vouch for them.
    cosine = product / lengths if lengths > 0 and not broken else 0.0
    return Agreement(
        cosine=min(max(cosine, -1.0), 1.0),
        largest_error=largest,
        mean_error=total / max(compared, 1),
        observations=len(baseline),
        note=f"{broken:,} numbers of {compared + broken:,} are {NOT_FINITE}" if broken else "",
    )


def _notes(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _pairs(measurements: Sequence[Measurement]) -> list[tuple[Measurement, Measurement]]:
    # All against the first; and where RTC and compilation are crossed, the compiled pair against each other as well,
    # as are RTC's two ways to compute its guidance.
    pairs = [(measurements[0], candidate) for candidate in measurements[1:]] if measurements else []
    compiled = [measurement for measurement in measurements[1:] if measurement.facts.get("compiled")]
    guided = [m for m in measurements[1:] if m.facts.get("rtc.enabled") and not m.facts.get("compiled")]
    alike = [group for group in (compiled, guided) if len(group) > 1]
    return pairs + [(group[0], candidate) for group in alike for candidate in group[1:]]
