"""Rules on a ladder: what stands between it and its target, and what its own tries leave open."""

from __future__ import annotations

import math
from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import ms, number_in_words, percent, sigma, whole_ms
from strobe.core.results.agreement import Agreement
from strobe.core.results.finding import Finding
from strobe.core.results.measurement import Measurement
from strobe.ladder.results import Ladder, OptimizeResult, Try

NEAR_LIMIT = 0.8  # the roofline's least time over the time taken: no way to compute the same buys much
FAR_FROM_LIMIT = 0.3  # the same: most of the time goes to something beside arithmetic and memory

_SHOWN = 4  # treatments that a finding names
ENOUGH_S = 600.0  # a longer climb, where the one before was short
ENOUGH_CHUNKS = 135  # the same in chunks: three times what a climb takes by itself where they are long


def missed(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    """The target was not reached: what would have to shrink, and which ways are left."""
    ladder = result.ladder
    if ladder is None or ladder.met or not ladder.rungs:
        return
    last = next((m for m in result.measurements if m.name == ladder.chosen), None)
    if last is None:
        return
    missing = whole_ms(last) - ladder.target_ms
    if missing <= 0:  # the median is in time, so parts are not what is too long
        yield from _late(ladder, last)
        return
    largest = max(ladder.needs, key=lambda need: need.ms, default=None)
    at = "as it is" if ladder.chosen == ladder.rungs[0].name else f"with {ladder.chosen}"
    seen = f"{ms(whole_ms(last))} {at}, {ms(ladder.target_ms)} are allowed."
    if largest is not None and largest.needed_ms:
        seen += f" {largest.part} alone would have to fall from {ms(largest.ms)} to {ms(largest.needed_ms)}."
    elif largest is not None:
        seen += f" {largest.part}, the largest part with {ms(largest.ms)}, could not make up for it by itself."
    yield Finding(
        rule="target-missed",
        level="warning",
        title=f"{ms(missing)} are missing to {ladder.target_hz:g} Hz ({percent(missing / whole_ms(last))} of a chunk)",
        seen=seen,
        why="A robot that needs one chunk per tick waits for it. A robot that executes several actions of a chunk, "
        "or runs asynchronously, may have the time: `strobe budget` on this run says how many actions that takes.",
        do=" ".join(_ways(ladder, result)),
        evidence={"missing_ms": missing, "gain_share": missing / whole_ms(last)},
    )


def _late(ladder: Ladder, last: Measurement) -> Iterator[Finding]:
    """The median is in time, and too many chunks are late; or there are too few chunks to say so."""
    judged = ladder.in_time
    values = (ladder.alone or last.samples).values
    if judged is None or not values:
        return
    if judged.outcome == "not judged":
        needed = judged.needed
        yield Finding(
            rule="target-not-judged",
            level="info",
            title=f"Too few chunks to say whether {ladder.target_hz:g} Hz are reached",
            seen=f"{judged.on_time} of {judged.chunks} chunks took {ms(ladder.target_ms)} or less.",
            why="A robot waits for each late chunk. A few chunks in time do not show that most chunks are in time.",
            do="Measure more chunks, on a quiet machine"
            + (f": --iterations={needed} if as many of them are in time." if needed else "."),
            evidence={"chunks": float(judged.chunks)},
        )
        return
    slowest = sorted(values)[min(math.ceil(judged.asked * len(values)), len(values)) - 1]
    yield Finding(
        rule="chunks-late",
        level="warning",
        title=f"{percent(1 - judged.share)} of chunks come too late for {ladder.target_hz:g} Hz",
        seen=f"The median takes {ms(whole_ms(last))}, and {ms(ladder.target_ms)} are allowed; "
        f"{percent(judged.asked)} of chunks take up to {ms(slowest)}.",
        why="A robot waits for each late chunk, even if the median is short.",
        do="Look for what makes some chunks slow. The notes on the samples say whether they fall into groups, drift "
        "or have spikes. Other programs and falling clocks cause that. memory=kept and fewer threads can help. Or "
        "demand a smaller share of chunks in time: --in-time.",
        evidence={"late_share": 1 - judged.share, "slowest_ms": slowest},
    )


def guarded(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    """Treatments that the guard refused: perhaps the guard is too tight, perhaps they are no good."""
    ladder = result.ladder
    refused = [attempt for attempt in _last(ladder) if attempt.outcome == "guard"] if ladder is not None else []
    if ladder is None or not refused:
        return
    lines = []
    for attempt in refused[:_SHOWN]:
        faster = f", {1 / attempt.verdict.ratio:.2f} × as fast" if attempt.verdict and attempt.verdict.ratio > 0 else ""
        agreement = attempt.agreement
        lines.append(
            f"{attempt.treatment} ({_figures(agreement) if agreement is not None else attempt.reason}{faster})"
        )
    more = f", and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
    yield Finding(
        rule="guard-refused",
        level="info",
        title=f"The guard refused {_counted(len(refused))}",
        seen=f"{'; '.join(lines)}{more}; allowed is {ladder.guard}.",
        why="The guard judges this policy on these observations. With random weights, or on inputs that the policy "
        "was not trained for, its actions say little about what a treatment does to the robot.",
        do=f"If these errors, in {_units(refused)}, do not matter to the robot, loosen --guard. Otherwise keep it.",
        evidence={"refused": float(len(refused))},
    )


def _figures(same: Agreement) -> str:
    if same.rms is None or same.worst is None:
        return f"cosine {same.cosine:.5f}, largest error {same.largest_error:.3g}"
    flips = f", {number_in_words(100 * same.flips)} % of decisions flip" if same.flips else ""
    where = f" in {same.worst_dimension}" if same.worst_dimension else ""
    return f"RMS {sigma(same.rms)}, worst {sigma(same.worst)}{where}{flips}"


def _units(refused: list[Try]) -> str:
    spread = any(attempt.agreement is not None and attempt.agreement.rms is not None for attempt in refused)
    return "σ, the spread of each action dimension" if spread else "the action's own units"


def flat(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    """Rungs below the best one that the closing run does not show to be faster."""
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
        yield Finding(
            rule="rung-without-effect",
            level="info",
            title=f"No gain in the closing run: {', '.join(rung.name for rung, _ in doubtful)}",
            seen=f"{lines}.",
            why="The gain in the try was small, or the machine has changed its pace since. If several treatments "
            "were applied together, one may lose what another gains.",
            do="Take it out of the recipe if it rounds, or run the command again on a quieter machine.",
            evidence={"rungs": float(len(doubtful))},
        )


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
        yield f"Run the command again on a quieter machine: {_counted(len(noisy))} could not be judged."
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


def _counted(count: int, noun: str = "treatment") -> str:
    return f"one {noun}" if count == 1 else f"{count} {noun}s"


def at_the_limit(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    """The best rung takes hardly longer than its arithmetic and memory must: only fewer of them would help."""
    last = _best(result)
    if last is None or last.limit is None or last.limit.least_ms < NEAR_LIMIT * whole_ms(last):
        return
    limit, took = last.limit, whole_ms(last)
    narrower = [f"all in {bound.dtype} would take at least {ms(bound.least_ms)}" for bound in limit.lower]
    yield Finding(
        rule="at-the-limit",
        level="good",
        title=f"'{last.name}' is at {percent(limit.least_ms / took)} of what this machine can give",
        seen=f"It takes {ms(took)}. Arithmetic and memory need at least {ms(limit.least_ms)} of that at the measured "
        f"ceilings, mostly in {limit.dtype}.",
        why="No other way to compute the same actions can save more than the rest of the time.",
        do=f"Only fewer FLOP can help now: {'; '.join(narrower) or 'no narrower dtype is faster here'}; fewer "
        "denoising steps, cameras or pixels, or a smaller model.",
        evidence={"least_ms": limit.least_ms, "share": limit.least_ms / took},
    )


def far_from_the_limit(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    """The best rung takes several times as long as it must: the part that loses most is named."""
    last = _best(result)
    if last is None or last.limit is None or not last.limit.parts:
        return
    limit, took = last.limit, whole_ms(last)
    if not 0 < limit.least_ms < FAR_FROM_LIMIT * took:
        return
    part = max(limit.parts, key=lambda candidate: candidate.ms - candidate.least_ms)
    above = part.ms - part.least_ms
    bound = f" (bound by {part.bound})" if part.bound else ""
    yield Finding(
        rule="far-from-the-limit",
        level="info",
        title=f"'{last.name}' reaches {percent(limit.least_ms / took)} of what this machine can give; most is lost in "
        f"{part.part}",
        seen=f"It takes {ms(took)}. Arithmetic and memory need {ms(limit.least_ms)} of that. {part.part} takes "
        f"{ms(part.ms)} and needs {ms(part.least_ms)}{bound}.",
        why="The time above the bound goes to elementwise work, small shapes, copies, launches and the framework.",
        do="`strobe breakdown --operators` shows which of them. Compilation, an engine for the part, and memory=kept "
        "each remove one of them.",
        gain=f"at most: at its bound the chunk would go from {ms(took)} to {ms(took - above)} (computed)",
        evidence={"least_ms": limit.least_ms, "share": limit.least_ms / took, "gain_share": above / took},
    )


def _best(result: OptimizeResult) -> Measurement | None:
    """The measurement of the rung that the ladder ends with."""
    chosen = result.ladder.chosen if result.ladder is not None else ""
    return next((m for m in result.measurements if m.name == chosen and whole_ms(m) > 0), None)


RULES = (missed, guarded, flat, at_the_limit, far_from_the_limit)
