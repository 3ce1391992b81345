"""Rules on the precisions compared: the time that a lower one saves, and its effect on the outputs."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.machine import HALF_FASTER
from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import compared_measurements, ms, sigma, subtract_share, whole_ms
from strobe.core.results import units
from strobe.core.results.agreement import Agreement
from strobe.core.results.answer import CompareResult
from strobe.core.results.comparison import Comparison
from strobe.core.results.finding import Finding, info, warning
from strobe.core.results.measurement import Measurement
from strobe.core.results.numerals import significant

GOOD_SPEED_UP, EXCELLENT_SPEED_UP = 1.5, 2.0  # × the baseline (the V-JEPA 2 guide); below, arithmetic is not the limit
MIN_COSINE = 0.999  # least cosine to the baseline's outputs, if these have no spread to measure errors in
MAX_RMS = 0.02  # σ of an action dimension, the usual guard's limit (`strobe.core.measure.guard.ROUNDING`)
FEATURES_RMS = 0.1  # σ of a channel, the usual guard's limit on features (`strobe.core.measure.guard.OF_FEATURES`)

WIDTHS = {"fp32": 32, "tf32": 19, "bf16": 16, "fp16": 16}  # bits that enter a product
NAMES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def speed(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    """The speed-up of each lower precision, where the whole interval lies on one side of a threshold."""
    for comparison, before, after in _lower(result):
        interval = comparison.verdict.interval
        if comparison.verdict.kind == "inconclusive" or not 0.01 <= interval.low <= interval.high <= 100:
            continue
        if not interval.low <= comparison.verdict.ratio <= interval.high:
            continue
        # The interval is of candidate over baseline: its high end is the least speed-up.
        if 1 / interval.low < GOOD_SPEED_UP:
            yield from _slow(result, comparison, before, after)
        elif 1 / interval.high >= GOOD_SPEED_UP:
            yield from _fast(comparison, before, after)


def _fast(comparison: Comparison, before: Measurement, after: Measurement) -> Iterator[Finding]:
    least, name = 1 / comparison.verdict.interval.high, _precision(after)
    judgement = "excellent" if least > EXCELLENT_SPEED_UP else "good"
    yield Finding(
        rule=f"precision-{name}-fast",
        level="good",
        title=f"{name} is {_times(comparison)}: {judgement}",
        found=_describe_speedup(comparison, before, after),
        why=f"From {GOOD_SPEED_UP:g} × the use of the arithmetic units is good, above {EXCELLENT_SPEED_UP:g} × "
        "excellent (rule of thumb of a profiling guide).",
        do=f"Use {name} if the change of the outputs is acceptable: see the table on outputs.",
        gain=f"measured: {ms(whole_ms(before))} became {ms(whole_ms(after))}",
        evidence={"speed_up": 1 / comparison.verdict.ratio},
    )


def _slow(result: CompareResult, comparison: Comparison, before: Measurement, after: Measurement) -> Iterator[Finding]:
    name, gflops = str(_precision(after)), result.machine.ceiling.gflops
    bits = NAMES.get(name, "float32")
    wide, narrow = gflops.get("float32", 0.0), gflops.get(bits, 0.0)
    measured = bits != "float32" and wide > 1e-6 and 1e-6 < narrow < 1e12
    if measured and narrow < HALF_FASTER * wide:
        rates = f"{significant(wide, 4)} GFLOP/s in float32 and {significant(narrow, 4)} in {bits}"
        why = f"This machine has no fast units for {name}: a large product runs at {rates}."
        do = f"Use another precision, or another machine. Here {name} saves memory, not time."
        gain = ""
    else:
        rate = f" A large product in {bits} is {significant(narrow / wide)} × as fast here." if measured else ""
        why = f"The limit is not arithmetic but the host's launches or the memory bandwidth.{rate}"
        least = subtract_share(whole_ms(before), 1 - 1 / GOOD_SPEED_UP)
        gain = f"at {GOOD_SPEED_UP:g} × the {before.phase} would take {ms(least)} (computed)"
        do = "Try --compile, and look for gaps with --operators. With a larger batch arithmetic becomes the limit."
    named = [each.part for each in after.traits.treatments if each.key == "precision" and each.part]
    parts = f" Only '{', '.join(named)}' has another precision, so the rest of the time stays." if named else ""
    yield info(
        rule=f"precision-{name}-slow",
        title=f"{name} is only {_times(comparison)}",
        found=_describe_speedup(comparison, before, after),
        why=f"{why}{parts}",
        do=do,
        gain=gain,
        evidence={"speed_up": 1 / comparison.verdict.ratio},
    )


def accuracy(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    for comparison, _before, after in _lower(result):
        same = comparison.agreement
        if same is not None and not _accurate(same):
            usual = f"within {sigma(MAX_RMS)}"
            if same.of == "features" or same.rms is None:
                usual = f"above a cosine of {MIN_COSINE:g} and within {sigma(FEATURES_RMS)} in each channel"
            name, note = _precision(after), f" {units.capital(same.note)}." if same.note else ""
            yield warning(
                rule=f"precision-{name}-inaccurate",
                title=f"{name} changes the {same.of} too much: {_describe_change(same)} "
                f"{units.quote(comparison.baseline)}",
                found=f"{_errors(same)}, over {same.observations} observations with the same noise.{note}",
                why=f"If a model's numbers fit the format, rounding stays {usual}. float16 overflows beyond "
                "65504. bfloat16 has three significant digits.",
                do="Lower the precision of one part at a time: --variant 'NAME: precision=bf16, "
                "precision.part=MODULE'.",
            )


def _accurate(same: Agreement) -> bool:
    if same.of == "features" or same.rms is None:
        return same.cosine >= MIN_COSINE and (same.rms or 0.0) <= FEATURES_RMS
    return same.rms <= MAX_RMS and not same.not_finite


def _describe_change(same: Agreement) -> str:
    if same.rms is None or same.not_finite:
        return f"cosine {same.cosine:.4f} to"
    worst = "channel" if same.of == "features" else "dimension"
    return f"{sigma(same.rms)} (RMS of the worst {worst}) from"


def _errors(same: Agreement) -> str:
    if same.rms is None or same.worst is None:
        return f"Largest error {same.largest_error:.3g}, mean error {same.mean_error:.3g}"
    where = f" in {same.worst_dimension}" if same.worst_dimension else ""
    return f"RMS {sigma(same.rms)}, largest error {sigma(same.worst)}{where}, cosine {same.cosine:.6f}"


def _lower(result: CompareResult) -> Iterator[tuple[Comparison, Measurement, Measurement]]:
    dtypes = result.subject.dtypes
    own = max(dtypes, key=lambda dtype: dtypes[dtype], default="float32")
    for comparison, before, after in compared_measurements(result):
        if before.traits.drop_treatments("precision") != after.traits.drop_treatments("precision"):
            continue
        own_name = next((name for name, dtype in NAMES.items() if dtype == own), None)
        unchanged = before.traits.treatment("precision") is None
        baseline = WIDTHS.get(str(own_name if unchanged else _precision(before)))
        width = WIDTHS.get(str(_precision(after)))
        if baseline is not None and width is not None and width < baseline:
            yield comparison, before, after


def _times(comparison: Comparison) -> str:
    return f"{1 / comparison.verdict.ratio:.2f} × as fast as {units.quote(comparison.baseline)}"


def _describe_speedup(comparison: Comparison, before: Measurement, after: Measurement) -> str:
    interval = comparison.verdict.interval
    return (
        f"{ms(whole_ms(after))} instead of {ms(whole_ms(before))}; speed-up {1 / interval.high:.2f} to "
        f"{1 / interval.low:.2f} × ({100 * interval.level:.3g} % CI, {comparison.verdict.pairs} pairs)."
    )


def _precision(measurement: Measurement) -> object:
    """Return the precision that was applied; None if there is none, or parts have different ones."""
    values = {treatment.value for treatment in measurement.traits.treatments if treatment.key == "precision"}
    return next(iter(values)) if len(values) == 1 else None


RULES = (speed, accuracy)
