"""Judge two variants that ran in alternation: how many times as fast, and how far their actions differ."""

from __future__ import annotations

from strobe.core.measure.agreement import add_note, agree, agree_features, agree_outputs, crop_to_common_actions
from strobe.core.measure.sampling import SETTLE_S
from strobe.core.measure.verdicts import LEVEL, WITHIN, difference_interval, drop_short_claim, paired_verdict
from strobe.core.results.agreement import Agreement
from strobe.core.results.comparison import Comparison
from strobe.core.results.measurement import Measurement
from strobe.core.studies.shared.measuring import Measured
from strobe.core.subjects.outputs import note_uncompared

UNITS = {"training step": "step", "training forward": "pass", "loading": "batch"}  # what a phase's times are of
SEVERAL_COPIES = "the peaks of memory include the weights in every precision compared, which are held at the same time"


def judge(
    baseline: Measurement,
    candidate: Measurement,
    measured: Measured,
    *,
    within: float = WITHIN,
    level: float = LEVEL,
) -> Comparison:
    """Judge two measurements whose samples alternate, and how far their actions differ."""
    judged = judge_times(baseline, candidate, within=within, level=level)
    if no_loss := next((m.name for m in (candidate, baseline) if m.losses_not_finite), None):
        _withdraw(judged, "no loss", f"Not judged: the loss of `{no_loss}` is infinite or not a number.")
    if baseline.phase == "inference":
        judged.agreement = agreement = _agreement(baseline, candidate, measured)
        forms = {name: measured.forms.get(name, {}).values() for name in (candidate.name, baseline.name)}
        if nothing := next((name for name in forms if any(form.is_empty for form in forms[name])), None):
            words = f"Not judged: `{nothing}` returns no numbers to compare, so its work may go on after its call."
            _withdraw(judged, "no numbers", words)
        if (
            agreement is not None
            and measured.variants[candidate.name].is_guided != measured.variants[baseline.name].is_guided
        ):
            agreement.on_purpose = True
            add_note(agreement, "RTC changes the actions on purpose: it guides them towards the previous chunk")
    return judged


def _withdraw(judged: Comparison, cause: str, words: str) -> None:
    update = {"kind": "inconclusive", "cause": cause, "sentence": words, "detail": None, "within": None}
    judged.verdict = judged.verdict.model_copy(update=update)


def judge_times(
    baseline: Measurement,
    candidate: Measurement,
    *,
    names: tuple[str, str] | None = None,
    within: float = WITHIN,
    level: float = LEVEL,
) -> Comparison:
    """Judge the times of two measurements whose samples alternate. Raises ValueError for fewer than two samples.

    Args:
        names: of the two in the verdict's sentence; None for those of the measurements.
    """
    before, after = baseline.samples.values, candidate.samples.values
    difference_ms, interval = difference_interval(before, after, level=level)
    first, second = names or (baseline.name, candidate.name)
    unit = UNITS.get(baseline.phase, "call")
    verdict = paired_verdict(
        before, after, baseline_name=first, candidate_name=second, within=within, level=level, unit=unit
    )
    return Comparison(
        baseline=baseline.name,
        candidate=candidate.name,
        verdict=verdict,
        difference=interval,
        difference_ms=difference_ms,
    )


def allow_for_processes(judged: Comparison, seconds: float) -> None:
    """Withdraw the verdict on two processes that took turns for less than `SETTLE_S`; their rounds took ``seconds``."""
    names = {"baseline_name": judged.baseline, "candidate_name": judged.candidate}
    judged.verdict = drop_short_claim(judged.verdict, seconds, SETTLE_S, **names)


def _agreement(baseline: Measurement, candidate: Measurement, measured: Measured) -> Agreement | None:
    before, after = baseline.name, candidate.name
    if measured.returns == "outputs":
        return _compare_outputs(before, after, measured)
    shapes = measured.outputs.shapes
    if shapes[before] == shapes[after] or not measured.pooled_outputs[after]:
        chunks = measured.actions[before], measured.actions[after]
        if measured.returns == "features":
            agreement = agree_features(*chunks)
        elif measured.variants[after].changes_execution or measured.variants[before].changes_execution:
            agreement = agree(*crop_to_common_actions(*chunks), measured.scale, executed=measured.executed)
            agreement.changes_execution = True
        elif shapes[before] != shapes[after]:
            unlike = f"chunks of {shapes[after]} against {shapes[before]} cannot be compared action by action"
            return Agreement(cosine=0, largest_error=0, mean_error=0, observations=0, note=unlike, unjudged=unlike)
        else:
            agreement = agree(*chunks, measured.scale, executed=measured.executed)
        add_note(agreement, measured.outputs.note)
        return agreement
    # One by one they cannot be compared: a token is another piece of another picture.
    agreement = agree(measured.pooled_outputs[before], measured.pooled_outputs[after])
    agreement.of = "features"
    counts = [m.traits.backbone.tokens or 0 if m.traits.backbone else 0 for m in (candidate, baseline)]
    tokens = " against ".join(f"{count:,}" for count in counts)
    add_note(agreement, f"{after}: {tokens} tokens a clip, so what is compared is each clip's mean over its tokens")
    return agreement


def _compare_outputs(before: str, after: str, measured: Measured) -> Agreement | None:
    """Compare outputs whose meaning is not known. None if one of the two returns no numbers.

    With an input that gives outputs of other shapes than the others, they are compared without a spread.
    """
    forms = measured.forms
    alike = [(forms[before][index], forms[after][index]) for index in forms[before] if index in forms[after]]
    if not all(first.shapes and second.shapes for first, second in alike):
        return None
    unlike = next((words for one, other in alike if (words := one.unlike(other))), "")
    first, second = measured.actions[before], measured.actions[after]
    if unlike or any(a.shape != b.shape for a, b in zip(first, second, strict=True)):
        words = f"they cannot be compared number by number: {unlike or 'an output in another shape at times'}"
        agreement = Agreement(cosine=0, largest_error=0, mean_error=0, observations=0, note=words, unjudged=words)
    else:
        shapes = {output.shapes for output, _ in alike}
        spread_known = measured.in_spread and len(shapes) == 1
        agreement = agree_outputs(first, second, shapes.pop()) if spread_known else agree(first, second)
        agreement.distinct = min(len(alike), agreement.observations)
        add_note(agreement, measured.outputs.note)
        note_uncompared(agreement, alike)
    agreement.of = "outputs"
    return agreement
