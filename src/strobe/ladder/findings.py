"""Rules on a ladder: what stands between it and its target, and what its own tries leave open."""

from __future__ import annotations

import math
from collections.abc import Iterator

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import ms, number_in_words, sigma, whole_ms
from strobe.core.results.agreement import Agreement
from strobe.core.results.finding import Finding
from strobe.core.results.in_time import InTime
from strobe.core.results.measurement import Measurement
from strobe.ladder.results import Ladder, OptimizeResult, Try

NEAR_LIMIT = 0.8  # the roofline's least time over the time taken: no way to compute the same buys much
FAR_FROM_LIMIT = (
    0.3  # least time over the time taken: most of the time goes to something else than arithmetic and memory
)

_SHOWN = 4  # treatments that a finding names
ENOUGH_S = 600.0  # seconds of a longer climb, if the one before was short
ENOUGH_CHUNKS = 135  # chunks of a longer climb: three times what a climb takes by itself if chunks are long


def find_missed_target(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    """The target was not reached: what would have to shrink, and which ways are left."""
    ladder = result.ladder
    if ladder is None or ladder.met or not ladder.rungs:
        return
    last = next((m for m in result.measurements if m.name == ladder.chosen), None)
    if last is None:
        return
    if whole_ms(last) > ladder.target_ms:
        yield from _missed_target(ladder, last, result)
    elif ladder.in_time is not None and (values := (ladder.alone or last.samples).values):
        if ladder.in_time.outcome == "not judged":
            yield from _unjudged_target(ladder, ladder.in_time)
        else:  # the median is in time, so parts are not what is too long
            yield from _late(ladder, last, ladder.in_time, values)


@finding("target-missed", "warning")
def _missed_target(ladder: Ladder, last: Measurement, result: OptimizeResult) -> Found:
    """{missing_ms:ms} are missing to {ladder.target_hz:g} Hz ({gain_share:percent} of a chunk).

    Seen: {took:ms} {at}, {ladder.target_ms:ms} are allowed.{part}
    Why: A robot that needs one chunk per tick waits for it. A robot that executes several actions of a chunk, or runs
        asynchronously, may have the time: `strobe budget` on this run says how many actions that takes.
    Do: {do}
    """
    took, do = whole_ms(last), " ".join(_ways(ladder, result))
    largest = max(ladder.needs, key=lambda need: need.ms, default=None)
    at, part = "baseline" if ladder.chosen == ladder.rungs[0].name else f"with {ladder.chosen}", ""
    if largest is not None and largest.needed_ms:
        part = f" {largest.part} alone would have to fall from {ms(largest.ms)} to {ms(largest.needed_ms)}."
    elif largest is not None:
        part = f" {largest.part}, the largest part with {ms(largest.ms)}, could not make up for it by itself."
    missing = took - ladder.target_ms
    yield {"missing_ms": missing, "gain_share": missing / took}, locals()


@finding("target-not-judged", "info")
def _unjudged_target(ladder: Ladder, judged: InTime) -> Found:
    """Too few chunks to say whether {ladder.target_hz:g} Hz are reached.

    Seen: {judged.on_time} of {judged.chunks} chunks took {ladder.target_ms:ms} or less.
    Why: A robot waits for each late chunk. A few chunks in time do not show that most chunks are in time.
    Do: Measure more chunks, on a quiet machine{needed}.
    """
    needed = f": --iterations={judged.needed} if as many of them are in time" if judged.needed else ""
    yield {"chunks": float(judged.chunks)}, {"needed": needed}


@finding("chunks-late", "warning")
def _late(ladder: Ladder, last: Measurement, judged: InTime, values: list[float]) -> Found:
    """{late_share:percent} of chunks come too late for {ladder.target_hz:g} Hz.

    Seen: The median takes {median:ms}, and {ladder.target_ms:ms} are allowed; {judged.asked:percent} of chunks take up
        to {slowest_ms:ms}.
    Why: A robot waits for each late chunk, even if the median is short.
    Do: Look for what makes some chunks slow. The notes on the samples say whether they fall into groups, drift or have
        spikes. Other programs and falling clocks cause that. memory=kept and fewer threads can help. Or demand a
        smaller share of chunks in time: --in-time.
    """
    slowest = sorted(values)[min(math.ceil(judged.asked * len(values)), len(values)) - 1]
    yield {"late_share": 1 - judged.share, "slowest_ms": slowest}, {"median": whole_ms(last)}


@finding("guard-refused", "info")
def find_guard_refusals(result: OptimizeResult, _: Thresholds) -> Found:
    """The guard refused {count}.

    Seen: {tries}{more}; allowed is {ladder.guard}.
    Why: The guard judges this policy on these observations. With random weights, or on inputs that the policy was not
        trained for, its actions say little about what a treatment does to the robot.
    Do: If these errors, in {units}, do not matter to the robot, loosen --guard. Otherwise keep it.
    """
    ladder = result.ladder
    refused = [attempt for attempt in _last(ladder) if attempt.outcome == "guard"]
    if refused:
        count, units, tries = (
            _pluralize_count(len(refused)),
            _units(refused),
            "; ".join(map(_refusal, refused[:_SHOWN])),
        )
        more = f", and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        yield {"refused": float(len(refused))}, locals()


def _refusal(attempt: Try) -> str:
    faster = f", {1 / attempt.verdict.ratio:.2f} × as fast" if attempt.verdict and attempt.verdict.ratio > 0 else ""
    why = _figures(attempt.agreement) if attempt.agreement is not None else attempt.reason
    return f"{attempt.treatment} ({why}{faster})"


def _figures(same: Agreement) -> str:
    if same.rms is None or same.worst is None:
        return f"cosine {same.cosine:.5f}, largest error {same.largest_error:.3g}"
    flips = f", {number_in_words(100 * same.flips)} % of decisions flip" if same.flips else ""
    where = f" in {same.worst_dimension}" if same.worst_dimension else ""
    return f"RMS {sigma(same.rms)}, worst {sigma(same.worst)}{where}{flips}"


def _units(refused: list[Try]) -> str:
    spread = any(attempt.agreement is not None and attempt.agreement.rms is not None for attempt in refused)
    return "σ, the spread of each action dimension" if spread else "the action's own units"


@finding("rung-without-effect", "info")
def flat(result: OptimizeResult, _: Thresholds) -> Found:
    """No gain in the closing run: {names:list}.

    Seen: {lines}.
    Why: The gain in the try was small, or the machine has changed its pace since. If several treatments were applied
        together, one may lose what another gains.
    Do: Take it out of the recipe if it rounds, or run the command again on a quieter machine.
    """
    ladder = result.ladder
    if ladder is None or not ladder.interleaved:
        return
    verdicts = {(c.baseline, c.candidate): c.verdict for c in result.comparisons}
    pairs = zip(ladder.rungs, ladder.rungs[1:], strict=False)
    doubtful = [
        (after, verdict)
        for before, after in pairs
        if (verdict := verdicts.get((before.name, after.name))) is not None and verdict.kind != "faster"
    ]
    if doubtful:
        lines = "; ".join(f"{rung.name}, {rung.treatment}: {verdict.kind}" for rung, verdict in doubtful)
        yield {"rungs": float(len(doubtful))}, {"names": [rung.name for rung, _ in doubtful], "lines": lines}


def _ways(ladder: Ladder, result: OptimizeResult) -> Iterator[str]:
    """The ways that are left, the surest first."""
    last = _last(ladder)
    untried = [attempt for attempt in last if attempt.outcome == "not tried"]
    noisy = [attempt for attempt in last if attempt.outcome == "too noisy"]
    if untried:
        names = "; ".join(attempt.treatment for attempt in untried[:_SHOWN])
        given = result.config.get("time_limit")
        chunk_s = result.measurement(ladder.rungs[0].name).samples.summary.median / 1e3
        longer = 3 * given if isinstance(given, int | float) else ENOUGH_CHUNKS * chunk_s
        more = max(ENOUGH_S, longer)
        yield f"Give the command more time for the treatments that it did not try ({names}): --time_limit={more:.0f}."
    if noisy:
        yield f"Run the command again on a quieter machine: {_pluralize_count(len(noisy))} could not be judged."
    steps = [m.traits.denoising_steps or 0 for m in result.measurements[:1]]
    lossy = "lossy" in f"{result.config.get('allow')} {result.config.get('effects')}"
    if not lossy and any(count > 1 for count in steps):
        yield "Fewer denoising steps are lossy. --allow=lossy tries them, under the guard."
    best = _best(result)
    lower = best.limit.lower if best is not None and best.limit is not None else []
    integers = next((narrower for narrower in lower if narrower.dtype == "int8"), None)
    if not lossy and integers is not None:
        yield (
            f"With products of 8-bit integers a chunk would take at least {ms(integers.least_ms)}. They are lossy: "
            "--allow=lossy tries them, under the guard."
        )
    yield "With fewer cameras, smaller images or a smaller model it is another policy, and you must train it."


def _last(ladder: Ladder | None) -> list[Try]:
    """The last try of each treatment."""
    return list({attempt.treatment: attempt for attempt in ladder.tries}.values()) if ladder is not None else []


def _pluralize_count(count: int, noun: str = "treatment") -> str:
    return f"one {noun}" if count == 1 else f"{count} {noun}s"


@finding("at-the-limit", "good")
def find_machine_limit(result: OptimizeResult, _: Thresholds) -> Found:
    """'{last.name}' is at {share:percent} of what this machine can give.

    Seen: It takes {took:ms}. Arithmetic and memory need at least {least_ms:ms} of that at the measured ceilings, mostly
        in {limit.dtype}.
    Why: No other way to compute the same actions can save more than the rest of the time.
    Do: Only fewer FLOP can help now: {narrower}; fewer denoising steps, cameras or pixels, or a smaller model.
    """
    last = _best(result)
    if last is not None and last.limit is not None and last.limit.least_ms >= NEAR_LIMIT * whole_ms(last):
        limit, took = last.limit, whole_ms(last)
        lower = [f"all in {bound.dtype} would take at least {ms(bound.least_ms)}" for bound in limit.lower]
        narrower = "; ".join(lower) or "no narrower dtype is faster here"
        yield {"least_ms": limit.least_ms, "share": limit.least_ms / took}, locals()


@finding("far-from-the-limit", "info")
def far_from_the_limit(result: OptimizeResult, _: Thresholds) -> Found:
    """'{last.name}' reaches {share:percent} of what this machine can give; most is lost in {part.part}.

    Seen: It takes {took:ms}. Arithmetic and memory need {least_ms:ms} of that. {part.part} takes {part.ms:ms} and needs
        {part.least_ms:ms}{bound}.
    Why: The time above the bound goes to elementwise work, small shapes, copies, launches and the framework.
    Do: `strobe breakdown --operators` shows which of them. Compilation, an engine for the part, and memory=kept each
        remove one of them.
    Gain: at most: at its bound the chunk would go from {took:ms} to {left:ms} (computed)
    """
    last = _best(result)
    if last is None or last.limit is None or not last.limit.parts:
        return
    limit, took = last.limit, whole_ms(last)
    if 0 < limit.least_ms < FAR_FROM_LIMIT * took:
        part = max(limit.parts, key=lambda candidate: candidate.ms - candidate.least_ms)
        above, bound = part.ms - part.least_ms, f" (bound by {part.bound})" if part.bound else ""
        left = took - above
        yield {"least_ms": limit.least_ms, "share": limit.least_ms / took, "gain_share": above / took}, locals()


def _best(result: OptimizeResult) -> Measurement | None:
    """The measurement of the rung that the ladder ends with."""
    chosen = result.ladder.chosen if result.ladder is not None else ""
    return next((m for m in result.measurements if m.name == chosen and whole_ms(m) > 0), None)


RULES = (find_missed_target, find_guard_refusals, flat, find_machine_limit, far_from_the_limit)
