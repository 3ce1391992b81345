"""Rules on training over all delays of Real-Time Chunking: what each way was measured to cost.

The delay benchmark's rule of thumb decides by the backbone's share alone. It knows one way, batch expansion, and cannot
know what sharing the observation's tokens costs; measuring does.
"""

from __future__ import annotations

from collections.abc import Iterator

from strobe.advice.thresholds import Thresholds
from strobe.advice.view import find, ms, number, percent, top
from strobe.results.answer import CompareResult
from strobe.results.comparison import Comparison
from strobe.results.finding import Finding
from strobe.results.measurement import Measurement
from strobe.results.traits import DelayTraining


def ways(result: CompareResult, thresholds: Thresholds) -> Iterator[Finding]:
    """Each way over all delays against one random delay per sample, with the same attention."""
    named = {measurement.name: measurement for measurement in result.measurements}
    for comparison in result.comparisons:
        before, after = named.get(comparison.baseline), named.get(comparison.candidate)
        if before is None or after is None or comparison.verdict.kind == "too noisy":
            continue
        count = number(_trained(before).delays)
        way = _way(after)
        if _way(before) != "sampled" or way not in ("expanded", "packed") or not count or count < 1:
            continue
        yield _finding(comparison, before, after, str(way), count, thresholds)


def _finding(
    comparison: Comparison, before: Measurement, after: Measurement, way: str, count: float, thresholds: Thresholds
) -> Finding:
    ratio, interval = comparison.verdict.ratio, comparison.verdict.interval
    cheap = interval.high <= thresholds.delays_cheap
    unlike = _attention(before) != _attention(after)
    attention = " The two differ in prefix_attention as well." if unlike else ""
    forward, backbone = top(before, "forward"), find(before, "backbone", inside="forward")
    rule, evidence = "", {}
    if forward is not None and backbone is not None:
        share = min(backbone.share / forward.share, 1.0)
        evidence = {"backbone_share": share}
        thumb = "viable" if share >= thresholds.backbone_dominates else "undecided"
        thumb = "to be reconsidered" if share < thresholds.backbone_small else thumb
        rule = (
            f" By the rule of thumb, the backbone's {percent(share)} of the forward pass makes batch expansion "
            f"{thumb}; that rule knows nothing of packing."
        )
    times = f"[{interval.low:.2f}, {interval.high:.2f}]"
    return Finding(
        rule=f"delays-{way}",
        level="good" if cheap else "info",
        title=f"'{way}': all {count:g} delays cost {ratio:.2f} × a step with one random delay",
        seen=f"{ms(after.samples.summary.median)} against {ms(before.samples.summary.median)}, ratio {times} at "
        f"{interval.level * 100:.3g} %; {ratio / count:.2f} × for each delay.{rule}{attention}",
        why="A step over all delays has none of the noise that drawing one adds to the gradient. It pays where that "
        "noise is a larger share of the gradient's than the step is dearer.",
        do=_advice(way, _attention(after), cheap),
        gain=f"measured: {count:g} delays for {ratio:.2f} × the time, instead of {count:g} ×",
        evidence={"ratio": ratio, "delays": count, "per_delay": ratio / count, **evidence},
    )


def _advice(way: str, attention: object, cheap: bool) -> str:
    if cheap:
        return f"Train with --policy.delay_training={way} --policy.prefix_attention={attention}."
    if way == "expanded":
        return "Compare with 'packed', which computes the observation's tokens once for all delays."
    return "At this size the blocks of the delays cost as much as what they share: draw one delay per sample."


def _trained(measurement: Measurement) -> DelayTraining:
    policy = measurement.traits.policy
    return (policy.delay_training if policy is not None else None) or DelayTraining()


def _way(measurement: Measurement) -> object:
    """Return the way of this variant: what the variant set, else what the policy was built with."""
    return measurement.traits.setting("delay_training") or _trained(measurement).way


def _attention(measurement: Measurement) -> object:
    """Return the attention to the prefix, likewise."""
    return measurement.traits.setting("prefix_attention") or _trained(measurement).prefix_attention


RULES = (ways,)
