"""Rules on a ladder: what stands between it and its target, and what its own tries leave open."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import distance, ms, percent, whole_ms
from strobe.core.results import units
from strobe.core.results.data import Interval
from strobe.core.results.finding import Finding, good, info, warning
from strobe.core.results.measurement import Measurement
from strobe.ladder.results import InTime, Ladder, OptimizeResult, Try, TryOutcome

LATE = (
    "look for what slows some chunks, such as other programs or falling clocks; the notes on the samples show groups, "
    "drift and spikes. memory=kept (freed memory stays with the process) and fewer threads can help."
)
UNJUDGED: tuple[TryOutcome, ...] = ("inconclusive", "not judged", "not tried")
# Shares that ways to the target may save, to order them: of the part of a candidate that was not judged, and of the
# time above the bound of a narrower dtype.
UNTRIED_SAVES, NARROW_SAVES = 0.25, 0.5
MOST_HEADROOM = 20.0  # times the roofline's least time: what takes longer is not limited by arithmetic or memory
NEAR_LIMIT = 0.8  # the roofline's least time over the time taken: no way to compute the same buys much

_SHOWN = 4  # treatments that a finding names
ENOUGH_S = 600.0  # seconds of a longer climb, if the one before was short
ENOUGH_CHUNKS = 225  # chunks of a longer climb: three times what a climb takes by itself if chunks are long


def find_missed_target(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    """The target was not reached: what would have to shrink, and which ways are left."""
    ladder = result.ladder
    if ladder is None or ladder.met or not ladder.rungs:
        return
    last, judged = next((m for m in result.measurements if m.name == ladder.chosen), None), ladder.in_time
    if last is None:
        return
    if whole_ms(last) > ladder.target_ms:
        yield from _missed_target(ladder, last, result)
    elif judged is not None and judged.outcome != "not judged" and last.samples.values:
        yield from _late(ladder, last, judged)  # the median is in time, so parts are not what is too long


def _missed_target(ladder: Ladder, last: Measurement, result: OptimizeResult) -> Iterator[Finding]:
    took = whole_ms(last)
    at = "the baseline" if ladder.chosen == ladder.rungs[0].name else f"with {ladder.chosen}"
    missing = took - ladder.target_ms
    yield warning(
        rule="target-missed",
        title=f"A chunk of {result.subject.name} takes {ms(took)}; {ladder.target_hz:g} Hz allows "
        f"{ms(ladder.target_ms)}",
        found=f"{ms(took)} per chunk, {at}.",
        why="A robot that needs one chunk per control tick waits for it. A robot that executes several actions of a "
        "chunk, or runs asynchronously, may have the time: `strobe budget` on this run says how many actions that "
        "takes.",
        do=next(map(units.capital, ways(result)), ""),
        evidence={"gain_share": missing / took},
    )


def _late(ladder: Ladder, last: Measurement, judged: InTime) -> Iterator[Finding]:
    values = sorted((ladder.alone or last.samples).values)
    slowest = values[min(math.ceil(judged.asked * len(values)), len(values)) - 1]
    late_share = 1 - judged.share
    yield warning(
        rule="chunks-late",
        title=f"{percent(late_share)} of chunks are too late for {ladder.target_hz:g} Hz",
        found=f"The median is {ms(whole_ms(last))}, of {ms(ladder.target_ms)}; {percent(judged.asked)} of chunks take "
        f"up to {ms(slowest)}.",
        why="A robot waits for each late chunk, even if the median is short.",
        do=units.capital(LATE),
    )


def find_guard_refusals(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    ladder = result.ladder
    refused = [attempt for attempt in last_tries(ladder) if attempt.outcome == "guard"]
    if ladder is not None and refused:
        more = f", and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        yield info(
            rule="guard-refused",
            title=f"{units.count(len(refused), 'treatment')} changed the actions beyond the limits",
            found=f"{'; '.join(map(_refusal, refused[:_SHOWN]))}{more}; limits: {ladder.guard}.",
            why="The limits hold for this policy on these observations. With random weights, or on inputs that the "
            "policy was not trained for, its actions say little about what a treatment does to the robot.",
            do="If errors of this size do not matter to the robot, set wider limits with --guard.",
        )


def _refusal(attempt: Try) -> str:
    faster = f", {1 / attempt.verdict.ratio:.2f} × as fast" if attempt.verdict and attempt.verdict.ratio > 0 else ""
    why = distance(attempt.agreement) if attempt.agreement is not None else attempt.reason
    return f"{attempt.treatment}: {why}{faster}"


def ways(result: OptimizeResult) -> list[str]:
    """Return what is left to do for the target, one line each with its command, what may save most first."""
    ladder, last = result.ladder, _best(result)
    if ladder is None or last is None:
        return []
    took, judged = whole_ms(last), ladder.in_time
    if took <= ladder.target_ms:
        needed = judged.needed if judged is not None and judged.outcome == "not judged" else None
        return [f"measure more chunks: {repeat(result, f'--iterations={needed}')}" if needed else LATE]
    found: list[tuple[float, str]] = []
    undecided = [attempt for attempt in last_tries(ladder) if attempt.outcome in UNJUDGED]
    if undecided:
        given = result.config.get("time_limit")
        chunk_s = whole_ms(result.measurement(ladder.rungs[0].name)) / 1e3
        more_s = max(ENOUGH_S, 3 * given if isinstance(given, int | float) else ENOUGH_CHUNKS * chunk_s)
        again = repeat(result, f"--time_limit={more_s:.0f}")
        saved = UNTRIED_SAVES * max(attempt.part_share for attempt in undecided)
        many = units.count(len(undecided), "untried or inconclusive candidate")
        found.append((saved, f"judge {many} with more time, on a quiet machine: {again}"))
    if "lossy" not in f"{result.config.get('allow')} {result.config.get('effects')}":
        found += _lossy(result, last, took)
    ordered = [line for _, line in sorted(found, key=lambda each: -each[0])]
    return [*ordered, "use fewer cameras, smaller images or a smaller model: that is another policy to train."]


def _lossy(result: OptimizeResult, last: Measurement, took: float) -> Iterator[tuple[float, str]]:
    kinds, saved = [], 0.0
    steps = last.traits.denoising_steps or 0
    if steps > 1:
        needs = result.ladder.needs if result.ladder is not None else []
        saved = sum(need.share for need in needs if "denois" in need.part) * (1 - 1 / steps)
        least_ms = (1 - saved) * took
        enough = "enough" if result.ladder is not None and least_ms <= result.ladder.target_ms else "not enough alone"
        least = f", {enough}: 1 step would take about {ms(least_ms)} per chunk" if saved else ""
        kinds.append(f"fewer denoising steps{least}")
    lower = last.limit.lower if last.limit is not None else []
    integers = next((narrower for narrower in lower if narrower.dtype == "int8"), None)
    if integers is not None:
        kinds.append(f"8-bit integers, at least {ms(integers.least_ms)} per chunk")
        saved = max(saved, NARROW_SAVES * (1 - integers.least_ms / took))
    if kinds:
        yield saved, f"allow lossy treatments ({'; '.join(kinds)}): {repeat(result, '--allow=lossy')}"


def repeat(result: OptimizeResult, flag: str | None = None) -> str:
    """Return the command that made ``result``, with ``flag`` added or in the place of its former value."""
    command, name, skip = [], (flag or "").partition("=")[0].replace("-", "_"), False
    for token in result.command:
        named = token.partition("=")[0].replace("-", "_") == name
        if not named and not (skip and not token.startswith("--")):
            command.append(token)
        skip = named and "=" not in token
    return " ".join([shlex.join(command), *([flag] if flag else [])]).strip()


def straddles(interval: Interval | None, target_ms: float) -> bool:
    """Return whether a median's interval leaves open on which side of ``target_ms`` it is."""
    return interval is not None and interval.low <= target_ms < interval.high


def last_tries(ladder: Ladder | None) -> list[Try]:
    """Return the last try of each treatment."""
    return list({attempt.treatment: attempt for attempt in ladder.tries}.values()) if ladder is not None else []


def find_machine_limit(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    last = _best(result)
    if last is not None and last.limit is not None and last.limit.least_ms >= NEAR_LIMIT * whole_ms(last):
        limit, took = last.limit, whole_ms(last)
        lower = [f"all in {bound.dtype} would take at least {ms(bound.least_ms)}" for bound in limit.lower]
        share = limit.least_ms / took
        yield good(
            rule="at-the-limit",
            title=f"'{last.name}' is at {percent(share)} of this machine's peak in {limit.dtype}",
            found=f"It takes {ms(took)}. Arithmetic and memory traffic need at least {ms(limit.least_ms)} of that at "
            f"the machine's measured peak, mostly in {limit.dtype}.",
            why="No other way to compute the same actions can save more than the rest of the time.",
            do="Compute less: fewer denoising steps, cameras or pixels, or a smaller model. In a narrower dtype: "
            f"{'; '.join(lower) or 'no narrower dtype is faster here'}.",
        )


def _best(result: OptimizeResult) -> Measurement | None:
    chosen = result.ladder.chosen if result.ladder is not None else ""
    return next((m for m in result.measurements if m.name == chosen and whole_ms(m) > 0), None)


# Rules on paired episodes.


def worse(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    for paired in result.episodes:
        if paired.kind == "worse":
            yield warning(
                rule="episodes-worse",
                title=f"{paired.candidate} is faster but succeeds less often in {paired.environment}",
                found=f"{paired.sentence}.",
                why="Its chunks are close to those of the baseline, but its episodes are not. The errors of many "
                "chunks add up, and the robot reaches states that the policy was not trained for.",
                do="Use the recipe, which does not contain it. A tighter --guard rejects such a treatment before any "
                "episode.",
            )


def never_succeeds(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    for paired in result.episodes:
        if paired.by != "success" and paired.pairs:
            yield warning(
                rule="never-succeeds",
                title=f"Neither policy ever succeeds in {paired.environment}",
                found=f"0 of {len(paired.pairs)} episodes succeed on either side. The verdict is on the reward.",
                why="If nothing succeeds, no success can be lost. These episodes do not show that the robot acts the "
                "same.",
                do="Use a checkpoint that was trained for this simulator (--policy.path), and map its names to the "
                "simulator's (--rename_map).",
            )


RULES = (find_missed_target, find_guard_refusals, find_machine_limit)
OF_EPISODES = (worse, never_succeeds)
