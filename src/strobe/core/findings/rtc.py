"""Rules on Real-Time Chunking: what its guidance costs, whether a chunk is in time, what training over delays costs.

The delay benchmark's rule of thumb decides by the backbone's share alone. It knows one way, batch expansion, and cannot
know what sharing the observation's tokens costs; measuring does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from strobe.core.findings.parts import SMALL_BACKBONE
from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import Part, compared, find, free, ms, number, percent, top, whole_ms, without
from strobe.core.results.answer import CompareResult, Result
from strobe.core.results.comparison import Comparison
from strobe.core.results.finding import Finding
from strobe.core.results.measurement import Measurement
from strobe.core.results.traits import DelayTraining, RealTimeChunking

EXPECTED_OVERHEAD, POOR_OVERHEAD = 0.3, 0.5  # over base denoising (the RTC profiling toolkit: 10 to 30 % is usual)
EXPECTED_AUTOGRAD = 0.15  # share of base denoising (the RTC profiling toolkit: 5 to 15 % is usual)
MIN_GROWTH = 0.05  # share of base denoising under RTC: less is noise, and no sign of a recorded graph
CHEAP_DELAYS = 1.5  # × a step with one random delay: up to it a step over all delays is cheap

STEP, BASE, AUTOGRAD = "RTC step", "denoise step", "autograd correction"


@dataclass(frozen=True)
class Guided:
    """A measurement with RTC, cut into what the denoising costs by itself and what the guidance adds."""

    measurement: Measurement
    step: Part
    base: Part
    autograd: Part | None
    growth: float | None  # of base denoising, against the same variant without RTC

    @property
    def overhead_ms(self) -> float:
        """Milliseconds that guidance adds to a denoising step."""
        return self.step.ms - self.base.ms

    @property
    def overhead(self) -> float:
        """The same as a share of a step without guidance."""
        return self.overhead_ms / self.base.ms


def guided(result: Result) -> Iterator[Guided]:
    """The measurements with RTC whose parts were seen (compiled ones show none)."""
    for measurement in with_rtc(result):
        step, base = find(measurement, STEP), find(measurement, BASE, inside=STEP)
        if step is None or base is None:
            continue
        plain = without_rtc(result, measurement)
        before = find(plain, BASE) if plain is not None else None
        growth = base.ms / before.ms - 1 if before is not None else None
        yield Guided(measurement, step, base, find(measurement, AUTOGRAD, inside=STEP), growth)


def with_rtc(result: Result) -> Iterator[Measurement]:
    """The measurements of inference with RTC."""
    return (m for m in result.measurements if m.phase == "inference" and m.traits.rtc is not None)


def without_rtc(result: Result, guided: Measurement) -> Measurement | None:
    """Return the measurement that differs from ``guided`` only in RTC."""
    others = guided.traits.without("rtc", "guidance")
    plain = (m for m in result.measurements if m.phase == guided.phase and m.traits.rtc is None)
    return next((m for m in plain if m.traits.without("rtc", "guidance") == others), None)


def overhead(result: Result, _: Thresholds) -> Iterator[Finding]:
    """Guidance over base denoising."""
    for seen in guided(result):
        if seen.overhead > POOR_OVERHEAD:
            level, judgement = "warning", "poor"
        elif seen.overhead > EXPECTED_OVERHEAD:
            level, judgement = "info", "acceptable"
        else:
            level, judgement = "good", "as expected"
        share = max(seen.step.share - seen.base.share, 0.0)
        grown = ""
        if seen.growth:
            faster = "faster" if seen.growth < 0 else "slower"
            grown = f" Base denoising itself is {percent(abs(seen.growth))} {faster} than without RTC."
        yield Finding(
            rule="rtc-overhead",
            level=level,
            title=f"RTC's guidance costs {percent(seen.overhead)} of base denoising: {judgement}",
            seen=f"RTC steps {ms(seen.step.ms)}, of which base denoising {ms(seen.base.ms)} and guidance "
            f"{ms(seen.overhead_ms)} per chunk in '{seen.measurement.name}'.{grown}",
            why=f"Up to {percent(EXPECTED_OVERHEAD)} is expected, and over {percent(POOR_OVERHEAD)} is poor (the RTC "
            "profiling toolkit's experience). The benefit comes while the robot moves, not within one inference.",
            do=""
            if level == "good"
            else "Try --compile. A larger --rtc.execution_horizon spreads the cost over more actions.",
            gain=free(seen.measurement, share),
            evidence={
                "step_ms": seen.step.ms,
                "base_ms": seen.base.ms,
                "overhead_ms": seen.overhead_ms,
                "overhead": seen.overhead,
                "base_growth": seen.growth,
                "whole_ms": whole_ms(seen.measurement),
                "without_ms": without(whole_ms(seen.measurement), share),
                "gain_share": min(share, 1.0),
            },
        )


def autograd(result: Result, _: Thresholds) -> Iterator[Finding]:
    """The correction's gradient over base denoising."""
    for seen in guided(result):
        if seen.autograd is None:
            continue
        share = seen.autograd.ms / seen.base.ms
        high = share > EXPECTED_AUTOGRAD
        yield Finding(
            rule="rtc-autograd",
            level="warning" if high else "good",
            title=f"RTC's autograd correction is {percent(share)} of base denoising",
            seen=f"{ms(seen.autograd.ms)} on {ms(seen.base.ms)} per chunk in '{seen.measurement.name}'.",
            why=f"5 to {percent(EXPECTED_AUTOGRAD)} is expected (the RTC profiling toolkit's experience). "
            "In LeRobot 0.6.1 the gradient does not pass through the denoiser, so it can be next to nothing.",
            do="Try --compile, and check that no parameter requires a gradient." if high else "",
            gain=free(seen.measurement, seen.autograd.share) if high else "",
            evidence={
                "autograd_ms": seen.autograd.ms,
                "base_ms": seen.base.ms,
                "share_of_base": share,
                "gain_share": min(seen.autograd.share, 1.0) if high else 0.0,
            },
        )


def graph(result: Result, _: Thresholds) -> Iterator[Finding]:
    """RTC calls the denoiser with gradients on: with parameters that require them, every step records a graph."""
    for seen in guided(result):
        policy = seen.measurement.traits.policy
        parameters = number(policy.trainable_tensors if policy is not None else None)
        if not parameters or seen.growth is None or seen.growth <= MIN_GROWTH:
            continue
        grown_ms = seen.base.ms - seen.base.ms / (1 + seen.growth)
        after = max(whole_ms(seen.measurement) - grown_ms, 0.0)
        yield Finding(
            rule="rtc-records-graph",
            level="warning",
            title="RTC records an autograd graph that nothing uses",
            seen=f"{parameters:.0f} parameters require a gradient, and base denoising is {percent(seen.growth)} "
            f"({ms(grown_ms)}) slower under RTC in '{seen.measurement.name}'.",
            why="RTC runs the denoiser under enable_grad. In LeRobot 0.6.1 the noisy actions require their gradient "
            "only after the denoiser ran, so the correction's gradient does not pass through it.",
            do="Call policy.requires_grad_(False) before inference, or compute the guidance in closed form (`strobe "
            "compare … --closed-form`). The actions stay the same, bit for bit.",
            gain=f"at most: if all of the growth is the graph's, a chunk goes from {ms(whole_ms(seen.measurement))} "
            f"to {ms(after)} (computed)",
            evidence={
                "grad_parameters": parameters,
                "base_growth": seen.growth,
                "grown_ms": grown_ms,
                "whole_ms": whole_ms(seen.measurement),
                "without_ms": after,
                "gain_share": min(grown_ms / whole_ms(seen.measurement), 1.0),
            },
        )


def in_time(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    """The next chunk has to be there before the robot has run through the execution horizon."""
    for measurement in with_rtc(result):
        rtc = measurement.traits.rtc or RealTimeChunking()
        horizon = number(rtc.execution_horizon)
        if horizon is None or horizon < 1 or not 1e-3 <= thresholds.control_hz <= 1e6:
            continue
        tick = 1000 / thresholds.control_hz
        chunk = whole_ms(measurement)
        delay = math.ceil(chunk / tick)
        assumed = number(rtc.inference_delay)
        evidence: dict[str, float | str | None] = {
            "chunk_ms": chunk,
            "delay_ticks": delay,
            "execution_horizon": horizon,
            "control_hz": thresholds.control_hz,
            "ms_per_action": chunk / horizon,
        }
        numbers = (
            f"A chunk takes {ms(chunk)}, {delay} ticks at {thresholds.control_hz:g} Hz, with an execution horizon of "
            f"{horizon:.0f} actions: {ms(chunk / horizon)} per action in '{measurement.name}'."
        )
        if delay < horizon:
            yield Finding(
                rule="rtc-in-time",
                level="good",
                title=f"The chunk is ready in {delay} of {horizon:.0f} ticks",
                seen=numbers,
                why="The robot still has actions to execute when the next chunk arrives.",
                evidence=evidence,
            )
        else:
            yield Finding(
                rule="rtc-too-late",
                level="warning",
                title=f"A chunk comes too late for RTC: it takes {delay} ticks, and the execution horizon is "
                f"{horizon:.0f}",
                seen=numbers,
                why="RTC guides the next chunk by actions of the current one. The robot runs out of these actions "
                "before it arrives.",
                do="Make the chunk faster (--compile, fewer denoising steps), or take a larger --rtc.execution_horizon "
                "if the policy's chunk has room for it.",
                gain=f"a chunk of at most {ms((horizon - 1) * tick)}, or a horizon of at least {delay + 1} actions, "
                "is in time (computed)",
                evidence=evidence | {"gain_share": max(1 - (horizon - 1) * tick / chunk, 0.0)},
            )
        if assumed is not None and 0 <= assumed < delay:
            yield Finding(
                rule="rtc-delay-short",
                level="info",
                title=f"RTC assumes a delay of {assumed:.0f} ticks; a chunk takes {delay}",
                seen=numbers,
                why="RTC fixes the actions that the robot executes while the chunk is computed. With too short a "
                "delay the robot jumps from chunk to chunk.",
                do=f"Measure with --inference_delay={delay}. lerobot-rollout takes the delay from its own latencies.",
                evidence=evidence | {"assumed_ticks": assumed},
            )


def not_compiled(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    """RTC was slower, and compilation has not been tried."""
    if not result.subject.compilable or any(m.traits.compiled for m in result.measurements):
        return
    rtc = {measurement.name: measurement for measurement in with_rtc(result)}
    for comparison in result.comparisons:
        verdict = comparison.verdict
        if verdict.kind != "slower" or comparison.candidate not in rtc:
            continue
        yield Finding(
            rule="rtc-not-compiled",
            level="info",
            title="RTC is slower, and nothing is compiled",
            seen=verdict.sentence,
            why=f"'{result.subject.kind}' can be compiled, which fuses the many small operations of guidance.",
            do="Try --compile: it measures RTC off and on, eager and compiled.",
            gain="not measured here; the RTC profiling toolkit measured 20 to 40 %",
            evidence={"ratio": verdict.ratio, "low": verdict.interval.low, "high": verdict.interval.high},
        )


def delay_training(result: CompareResult, thresholds: Thresholds) -> Iterator[Finding]:
    """Each way over all delays against one random delay per sample, with the same attention."""
    for comparison, before, after in compared(result):
        count, way = number(_trained(before).delays), _way(after)
        if comparison.verdict.kind == "too noisy" or _way(before) != "sampled":
            continue
        if way not in ("expanded", "packed") or not count or count < 1:
            continue
        yield _way_finding(comparison, before, after, str(way), count, thresholds)


def _way_finding(
    comparison: Comparison, before: Measurement, after: Measurement, way: str, count: float, thresholds: Thresholds
) -> Finding:
    ratio, interval = comparison.verdict.ratio, comparison.verdict.interval
    cheap = interval.high <= CHEAP_DELAYS
    unlike = _attention(before) != _attention(after)
    attention = " The two differ in prefix_attention as well." if unlike else ""
    forward, backbone = top(before, "forward"), find(before, "backbone", inside="forward")
    rule, evidence = "", {}
    if forward is not None and backbone is not None:
        share = min(backbone.share / forward.share, 1.0)
        evidence = {"backbone_share": share}
        small = "to be reconsidered" if share < SMALL_BACKBONE else "undecided"
        thumb = "viable" if share >= thresholds.backbone_dominates else small
        rule = (
            f" By the rule of thumb, the backbone's {percent(share)} of the forward pass makes batch expansion "
            f"{thumb}. That rule does not consider packing."
        )
    times = f"[{interval.low:.2f}, {interval.high:.2f}]"
    return Finding(
        rule=f"delays-{way}",
        level="good" if cheap else "info",
        title=f"'{way}': all {count:g} delays cost {ratio:.2f} × a step with one random delay",
        seen=f"{ms(after.samples.summary.median)} against {ms(before.samples.summary.median)}, ratio {times} at "
        f"{interval.level * 100:.3g} %; {ratio / count:.2f} × for each delay.{rule}{attention}",
        why="Drawing one random delay adds noise to the gradient. A step over all delays does not have that noise. "
        "It is worth its time if the share of noise that it removes is larger than its extra cost.",
        do=_next_step(way, _attention(after), cheap),
        gain=f"measured: {count:g} delays for {ratio:.2f} × the time, instead of {count:g} ×",
        evidence={"ratio": ratio, "delays": count, "per_delay": ratio / count, **evidence},
    )


def _next_step(way: str, attention: object, cheap: bool) -> str:
    if cheap:
        return f"Train with --policy.delay_training={way} --policy.prefix_attention={attention}."
    if way == "expanded":
        return "Compare it with 'packed', which computes the observation's tokens once for all delays."
    return "At this size the delays' own blocks cost as much as the part that they share. Draw one delay per sample."


def _trained(measurement: Measurement) -> DelayTraining:
    return measurement.traits.delay_training or DelayTraining()


def _way(measurement: Measurement) -> object:
    """Return the way of this variant: what the variant set, else what the policy was built with."""
    return measurement.traits.setting("delay_training") or _trained(measurement).way


def _attention(measurement: Measurement) -> object:
    """Return the attention to the prefix, likewise."""
    return measurement.traits.setting("prefix_attention") or _trained(measurement).prefix_attention


RULES = (overhead, autograd, graph, in_time)
OF_COMPARISONS = (delay_training, *RULES, not_compiled)
