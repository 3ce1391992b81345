"""Rules on Real-Time Chunking: what its guidance costs, whether a chunk is in time, what training over delays costs.

The delay benchmark's rule of thumb decides by the backbone's share alone. It knows one way, batch expansion, and cannot
know what sharing the observation's tokens costs; measuring does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import Part, compared_measurements, find, free, ms, number, percent, whole_ms
from strobe.core.results import units
from strobe.core.results.answer import CompareResult, Result
from strobe.core.results.finding import Finding, good, info, warning
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


def guided_measurements(result: Result) -> Iterator[Guided]:
    """The measurements with RTC whose parts were seen (compiled ones show none)."""
    for measurement in rtc_measurements(result):
        step, base = find(measurement, STEP), find(measurement, BASE, inside=STEP)
        if step is None or base is None:
            continue
        plain = unguided_counterpart(result, measurement)
        before = find(plain, BASE) if plain is not None else None
        growth = base.ms / before.ms - 1 if before is not None else None
        yield Guided(measurement, step, base, find(measurement, AUTOGRAD, inside=STEP), growth)


def rtc_measurements(result: Result) -> Iterator[Measurement]:
    """The measurements of inference with RTC."""
    return (m for m in result.measurements if m.phase == "inference" and m.traits.rtc is not None)


def unguided_counterpart(result: Result, guided: Measurement) -> Measurement | None:
    """Return the measurement that differs from ``guided`` only in RTC."""
    others = guided.traits.drop_treatments("rtc", "guidance")
    plain = (m for m in result.measurements if m.phase == guided.phase and m.traits.rtc is None)
    return next((m for m in plain if m.traits.drop_treatments("rtc", "guidance") == others), None)


def overhead(result: Result, _: Thresholds) -> Iterator[Finding]:
    for seen in guided_measurements(result):
        level, judgement, do = "good", "as expected", ""
        if seen.overhead > EXPECTED_OVERHEAD:
            level, judgement = ("warning", "poor") if seen.overhead > POOR_OVERHEAD else ("info", "acceptable")
            do = "Try --compile. A larger --rtc.execution_horizon spreads the cost over more actions."
        share = max(seen.step.share - seen.base.share, 0.0)
        grown = ""
        if seen.growth:
            faster = "faster" if seen.growth < 0 else "slower"
            grown = f" Base denoising itself is {percent(abs(seen.growth))} {faster} than without RTC."
        yield Finding(
            rule="rtc-overhead",
            level=level,
            title=f"RTC's guidance costs {percent(seen.overhead)} of base denoising: {judgement}",
            found=f"RTC steps take {ms(seen.step.ms)} per chunk in {units.quote(seen.measurement.name)}: "
            f"{ms(seen.base.ms)} of base denoising and {ms(seen.overhead_ms)} of guidance.{grown}",
            why=f"Up to {percent(EXPECTED_OVERHEAD)} is expected, and over {percent(POOR_OVERHEAD)} is poor (the RTC "
            "profiling toolkit's experience). RTC pays off while the robot moves, not within one inference.",
            do=do,
            gain=free(seen.measurement, share),
            evidence={"gain_share": min(share, 1.0)},
        )


def autograd(result: Result, _: Thresholds) -> Iterator[Finding]:
    for seen in guided_measurements(result):
        if seen.autograd is None:
            continue
        share, level, saved, do, gain = seen.autograd.ms / seen.base.ms, "good", 0.0, "", ""
        if share > EXPECTED_AUTOGRAD:
            level, saved = "warning", min(seen.autograd.share, 1.0)
            do = "Try --compile, and check that no parameter requires a gradient."
            gain = free(seen.measurement, seen.autograd.share)
        yield Finding(
            rule="rtc-autograd",
            level=level,
            title=f"RTC's autograd correction is {percent(share)} of base denoising",
            found=f"{ms(seen.autograd.ms)} in addition to {ms(seen.base.ms)} per chunk in "
            f"{units.quote(seen.measurement.name)}.",
            why=f"5 to {percent(EXPECTED_AUTOGRAD)} is expected (the RTC profiling toolkit's experience). In LeRobot "
            "0.6.1 the gradient does not pass through the denoiser, so the correction can cost next to nothing.",
            do=do,
            gain=gain,
            evidence={"gain_share": saved},
        )


def graph(result: Result, _: Thresholds) -> Iterator[Finding]:
    for seen in guided_measurements(result):
        policy, whole = seen.measurement.traits.policy, whole_ms(seen.measurement)
        parameters = number(policy.trainable_tensors if policy is not None else None)
        if not parameters or seen.growth is None or seen.growth <= MIN_GROWTH:
            continue
        grown_ms = seen.base.ms - seen.base.ms / (1 + seen.growth)
        without_ms = max(whole - grown_ms, 0.0)
        yield warning(
            rule="rtc-records-graph",
            title="RTC records an autograd graph that nothing uses",
            found=f"{parameters:.0f} parameters require a gradient, and base denoising is {percent(seen.growth)} "
            f"({ms(grown_ms)}) slower with RTC in {units.quote(seen.measurement.name)}.",
            why="RTC runs the denoiser under enable_grad. In LeRobot 0.6.1 the noisy actions require their gradient "
            "only after the denoiser ran, so the correction's gradient does not pass through it.",
            do="Call policy.requires_grad_(False) before inference, or compute the guidance in closed form (`strobe "
            "compare … --closed-form`). The actions stay the same, bit for bit.",
            gain=f"at most: if the graph causes all of it, a chunk goes from {ms(whole)} to {ms(without_ms)} "
            "(computed)",
            evidence={"gain_share": min(grown_ms / whole, 1.0)},
        )


def chunk_deadline(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    """The next chunk has to be there before the robot has run through the execution horizon."""
    for measurement in rtc_measurements(result):
        rtc = measurement.traits.rtc or RealTimeChunking()
        horizon = number(rtc.execution_horizon)
        if horizon is None or horizon < 1 or not 1e-3 <= thresholds.control_hz <= 1e6:
            continue
        tick, chunk = 1000 / thresholds.control_hz, whole_ms(measurement)
        delay, assumed = math.ceil(chunk / tick), number(rtc.inference_delay)
        numbers = (
            f"A chunk of {units.quote(measurement.name)} takes {ms(chunk)}, {delay} control ticks at "
            f"{thresholds.control_hz:g} Hz. The execution horizon is {horizon:.0f} actions: {ms(chunk / horizon)} per "
            "action."
        )
        if delay < horizon:
            yield good(
                rule="rtc-in-time",
                title=f"The chunk is ready in {delay} of {horizon:.0f} control ticks",
                found=numbers,
                why="The robot still has actions to execute when the next chunk arrives.",
            )
        else:
            allowed = (horizon - 1) * tick
            yield warning(
                rule="rtc-too-late",
                title=f"A chunk takes {delay} control ticks, more than the execution horizon of {horizon:.0f}",
                found=numbers,
                why="RTC guides the next chunk by actions of the current one. The robot runs out of these before the "
                "chunk arrives.",
                do="Make the chunk faster (--compile, fewer denoising steps), or take a larger "
                "--rtc.execution_horizon if the policy's chunk has room for it.",
                gain=f"a chunk of at most {ms(allowed)}, or a horizon of at least {delay + 1} actions, is in time "
                "(computed)",
                evidence={"gain_share": max(1 - allowed / chunk, 0.0)},
            )
        if assumed is not None and 0 <= assumed < delay:
            yield info(
                rule="rtc-delay-short",
                title=f"RTC assumes a delay of {assumed:.0f} control ticks; a chunk takes {delay}",
                found=numbers,
                why="RTC fixes the actions that the robot executes while the policy computes the chunk. If the "
                "assumed delay is too short, the robot jumps from chunk to chunk.",
                do=f"Measure with --inference_delay={delay}. lerobot-rollout takes the delay from its own latencies.",
            )


def delay_training(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    for comparison, before, after in compared_measurements(result):
        count, way = number(_delay_training(before).delays), _way(after)
        if comparison.verdict.kind == "inconclusive" or _way(before) != "sampled":
            continue
        if way not in ("expanded", "packed") or not count or count < 1:
            continue
        ratio, interval = comparison.verdict.ratio, comparison.verdict.interval
        cheap, unlike = interval.high <= CHEAP_DELAYS, _attention(before) != _attention(after)
        attention = " The two also differ in prefix_attention." if unlike else ""
        yield Finding(
            rule=f"delays-{way}",
            level="good" if cheap else "info",
            title=f"All {count:g} delays in one step ({way}) cost {ratio:.2f} × a step with one random delay",
            found=f"{ms(whole_ms(after))} instead of {ms(whole_ms(before))}, ratio [{interval.low:.2f}, "
            f"{interval.high:.2f}], {interval.level * 100:.3g} % CI; {ratio / count:.2f} × for each "
            f"delay.{attention}",
            why="One random delay adds noise to the gradient, which a step over all delays does not have. Such a step "
            "pays off if the share of noise that it removes is larger than its extra cost.",
            do=_next_step(str(way), _attention(after), cheap),
            gain=f"measured: {count:g} delays for {ratio:.2f} × the time, instead of {count:g} ×",
        )


def _next_step(way: str, attention: object, cheap: bool) -> str:
    if cheap:
        return f"Train with --policy.delay_training={way} --policy.prefix_attention={attention}."
    if way == "expanded":
        return "Compare it with 'packed', which computes the observation's tokens once for all delays."
    return "At this size each delay's own blocks cost as much as the shared part. Draw one delay per sample."


def _delay_training(measurement: Measurement) -> DelayTraining:
    return measurement.traits.delay_training or DelayTraining()


def _way(measurement: Measurement) -> object:
    return measurement.traits.setting("delay_training") or _delay_training(measurement).way


def _attention(measurement: Measurement) -> object:
    return measurement.traits.setting("prefix_attention") or _delay_training(measurement).prefix_attention


RULES = (overhead, autograd, graph, chunk_deadline)
OF_COMPARISONS = (delay_training, *RULES)
