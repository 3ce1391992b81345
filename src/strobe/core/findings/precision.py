"""Rules on the precisions compared: what a lower one bought, and what it did to the outputs."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.machine import HALF_FASTER
from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import compared, ms, percent, sigma, whole_ms, without
from strobe.core.results.agreement import Agreement
from strobe.core.results.answer import CompareResult
from strobe.core.results.comparison import Comparison
from strobe.core.results.finding import Finding
from strobe.core.results.measurement import Measurement
from strobe.core.results.numerals import significant

GOOD_SPEED_UP, EXCELLENT_SPEED_UP = 1.5, 2.0  # × the baseline (the V-JEPA 2 guide); below, arithmetic is not the limit
MIN_COSINE = 0.999  # least cosine to the baseline's outputs, if these have no spread to measure errors in
MAX_RMS = 0.02  # σ of an action dimension, the usual guard's limit (`strobe.core.measure.guard.ROUNDING`)
FEATURES_RMS = 0.1  # σ of a channel, the usual guard's limit on features (`strobe.core.measure.guard.OF_FEATURES`)

WIDTHS = {"fp32": 32, "tf32": 19, "bf16": 16, "fp16": 16}  # bits that enter a product
NAMES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
SURE = ("faster", "slower", "no difference shown")


def speed(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    """The speed-up of each lower precision, where the whole interval lies on one side of a threshold."""
    for comparison, before, after in _lower(result):
        interval = comparison.verdict.interval
        if comparison.verdict.kind not in SURE or not 0.01 <= interval.low <= interval.high <= 100:
            continue
        if not interval.low <= comparison.verdict.ratio <= interval.high:
            continue
        # The interval is of candidate over baseline: its high end is the least speed-up.
        least, most = 1 / interval.high, 1 / interval.low
        name = str(_precision(after))
        if most < GOOD_SPEED_UP:
            yield _slow(result, comparison, before, after, name)
        elif least >= GOOD_SPEED_UP:
            excellent = least > EXCELLENT_SPEED_UP
            yield Finding(
                rule=f"precision-{name}-fast",
                level="good",
                title=f"{name} is {_gain(comparison)}: {'excellent' if excellent else 'good'}",
                seen=_seen(comparison, before, after),
                why=f"From {GOOD_SPEED_UP:g} × on, the use of the arithmetic units is good; above "
                f"{EXCELLENT_SPEED_UP:g} × it is excellent (a profiling guide's rule of thumb).",
                do="Use it if the outputs allow it: see below how far they differ.",
                gain=f"measured: {ms(whole_ms(before))} became {ms(whole_ms(after))}",
                evidence={"speed_up": 1 / comparison.verdict.ratio, "least": least, "most": most},
            )


def accuracy(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    """A precision that moves the actions too far; of other outputs, one where they point elsewhere."""
    for comparison, _before, after in _lower(result):
        same = comparison.agreement
        if same is None or _accurate(same):
            continue
        name = str(_precision(after))
        note = f" {same.note[0].upper()}{same.note[1:]}." if same.note else ""
        yield Finding(
            rule=f"precision-{name}-inaccurate",
            level="warning",
            title=f"{name} changes the outputs: {_moved(same)} {comparison.baseline}",
            seen=f"{_errors(same)}, over {same.observations} observations with the same noise.{note}",
            why=f"In a model whose numbers fit the format, rounding stays {_usual(same)}. float16 overflows beyond "
            "65504. bfloat16 has three significant digits.",
            do="Lower the precision of one part at a time: --variant 'NAME: precision=bf16, precision.part=MODULE'.",
            evidence={
                "cosine": same.cosine,
                "largest_error": same.largest_error,
                "mean_error": same.mean_error,
                "rms": same.rms,
            },
        )


def _accurate(same: Agreement) -> bool:
    if same.of == "features" or same.rms is None:
        return same.cosine >= MIN_COSINE and (same.rms or 0.0) <= FEATURES_RMS
    return same.rms <= MAX_RMS and not same.not_finite


def _moved(same: Agreement) -> str:
    if same.rms is None or same.not_finite:
        return f"cosine {same.cosine:.4f} to"
    worst = "channel" if same.of == "features" else "dimension"
    return f"the {same.of} are {sigma(same.rms)} (RMS of the worst {worst}) from"


def _errors(same: Agreement) -> str:
    if same.rms is None or same.worst is None:
        return f"Largest error {same.largest_error:.3g}, mean error {same.mean_error:.3g}"
    where = f" in {same.worst_dimension}" if same.worst_dimension else ""
    return f"RMS {sigma(same.rms)}, largest error {sigma(same.worst)}{where}, cosine {same.cosine:.6f}"


def _usual(same: Agreement) -> str:
    if same.of == "features" or same.rms is None:
        return f"above a cosine of {MIN_COSINE:g} and within {sigma(FEATURES_RMS)} in each channel"
    return f"within {sigma(MAX_RMS)}"


def _lower(result: CompareResult) -> Iterator[tuple[Comparison, Measurement, Measurement]]:
    """Comparisons whose candidate has fewer bits than its baseline, and nothing else that differs."""
    dtypes = result.subject.dtypes
    own = max(dtypes, key=lambda dtype: dtypes[dtype], default="float32")
    for comparison, before, after in compared(result):
        if before.traits.without("precision") != after.traits.without("precision"):
            continue
        as_it_is = next((name for name, dtype in NAMES.items() if dtype == own), None)
        untreated = before.traits.treatment("precision") is None
        baseline = WIDTHS.get(str(as_it_is if untreated else _precision(before)))
        width = WIDTHS.get(str(_precision(after)))
        if baseline is not None and width is not None and width < baseline:
            yield comparison, before, after


def _slow(result: CompareResult, comparison: Comparison, before: Measurement, after: Measurement, name: str) -> Finding:
    gflops, bits = result.machine.ceiling.gflops, NAMES.get(name, "float32")
    wide, narrow = gflops.get("float32", 0.0), gflops.get(bits, 0.0)
    measured = bits != "float32" and wide > 1e-6 and 1e-6 < narrow < 1e12
    if measured and narrow < HALF_FASTER * wide:
        why = (
            f"This machine has no fast units for it: a large product runs at {significant(wide, 4)} GFLOP/s in float32 "
            f"and {significant(narrow, 4)} in {bits}."
        )
        do = f"Use another precision, or another machine. Here {name} saves memory, not time."
        gain = ""
    else:
        rate = f" A large product in {bits} is {significant(narrow / wide)} × as fast here." if measured else ""
        why = f"The limit is not the arithmetic. It is the host's launches or the memory's bandwidth.{rate}"
        saved = without(whole_ms(before), 1 - 1 / GOOD_SPEED_UP)
        gain = f"at {GOOD_SPEED_UP:g} × the {before.phase} would take {ms(saved)} (computed)"
        do = "Try --compile, and look for gaps with --operators. With a larger batch arithmetic becomes the limit."
    if parts := [
        treatment.part for treatment in after.traits.treatments if treatment.key == "precision" and treatment.part
    ]:
        why += f" Only '{', '.join(parts)}' has another precision, so the rest of the time stays."
    return Finding(
        rule=f"precision-{name}-slow",
        level="info",
        title=f"{name} is {_gain(comparison)}: under {GOOD_SPEED_UP:g} ×",
        seen=_seen(comparison, before, after),
        why=why,
        do=do,
        gain=gain,
        evidence={"speed_up": 1 / comparison.verdict.ratio, "float32_gflops": wide, f"{bits}_gflops": narrow},
    )


def _gain(comparison: Comparison) -> str:
    return f"{1 / comparison.verdict.ratio:.2f} × as fast as {comparison.baseline}"


def _seen(comparison: Comparison, before: Measurement, after: Measurement) -> str:
    interval = comparison.verdict.interval
    return (
        f"{ms(whole_ms(after))} against {ms(whole_ms(before))}; speed-up {1 / interval.high:.2f} to "
        f"{1 / interval.low:.2f} at {percent(interval.level)}, {comparison.verdict.pairs} pairs."
    )


def _precision(measurement: Measurement) -> object:
    """Return the precision that was put on; None if there is none, or parts have different ones."""
    values = {treatment.value for treatment in measurement.traits.treatments if treatment.key == "precision"}
    return next(iter(values)) if len(values) == 1 else None


RULES = (speed, accuracy)
