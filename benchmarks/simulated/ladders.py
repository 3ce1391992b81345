"""Promises of `strobe optimize` and `strobe budget`: that a rate is reached, that a rung is the best, what is left out.

The looks, the judgements and the choice of a rung are the product's own. The chunks' times are drawn instead of
measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from simulated.claim import NOISES, Claim, Noise, Series, times

from strobe.budget.figures import asynchrony
from strobe.budget.results import Latency
from strobe.core.measure.sampling import Looking
from strobe.ladder import settings
from strobe.ladder.earlier import is_settled
from strobe.ladder.in_time import REQUIRED, InTimeLooks, best_rung, judge_in_time
from strobe.ladder.results import Try, TryOutcome
from strobe.ladder.sequential import MATTERS, MISSED, Glance, Looks
from strobe.ladder.trial import judge_try

SEED = 37
LATE = 0.001  # below what was asked for: as near to it as a false claim can be
GAIN = 0.08  # that must not be left out
SMALL_WITH_MEMORY = 0.12  # the promise for a gain of `MATTERS` where neighbours resemble each other
ROUNDS = 60  # of a try of quick chunks, at most
CHUNKS = 300  # of a rung by itself, at most
# Of candidates, times of what was before: some gain, some lose a little more than 1 %.
CANDIDATES = (0.92, 1.015, 0.985, 1.015, 0.96, 1.03, 1.015)
GLANCED: dict[str, TryOutcome] = {
    "a clear gain": "kept",
    "no gain": "no difference shown",
    "a clear loss": "inconclusive",
}
BURSTS = (20, 60)  # late chunks in a row, on average
WITH_BURSTS = {300: (0.06, 0.1, 0.15), 1500: (0.06, 0.1)}  # chunks of a run, and shares of all that are late
RARELY_LATE, POWER = 0.01, 0.85  # chunks that are late now and then, each by itself, and how often that is seen
SPREADS = {"3 %": 0.03, "10 %": 0.10}  # of times: a quiet machine, and a busy one

Drawn = Callable[[np.random.Generator, int], Series]


def simulate(quick: bool) -> list[Claim]:
    """Return the promises of ladders and budgets, simulated."""
    tries = 40 if quick else 500
    found: list[Claim] = []
    for number, (name, noise) in enumerate(NOISES.items()):
        random = np.random.default_rng([SEED, number])
        found += _rate_claims(name, noise, random, tries)
        for spread in ("3 %",) if quick else tuple(SPREADS):
            of = f"{name}, {spread}"
            found += _left_out(of, partial(times, noise, spread=SPREADS[spread]), random, tries)
            found += _ends(of, partial(times, noise, spread=SPREADS[spread]), random, tries // 2)
    return [*found, *_burst_claims(np.random.default_rng(SEED), tries)]


def _burst_claims(random: np.random.Generator, tries: int) -> Iterator[Claim]:
    """Late chunks in a row: a rate is called reached, of bursts as long as these, that is missed."""
    for burst in BURSTS:
        for chunks, shares in WITH_BURSTS.items():
            for share in shares:
                runs = [judge_in_time(_states(random, chunks, share, burst), 50) for _ in range(tries)]
                wrong = sum(run.outcome == "reached" and (run.burst or 0) >= burst for run in runs)
                given = f"{share:.0%} late, {burst} in a row, {chunks:,} chunks"
                yield Claim("a rate is reached that is missed", given, 0.05, "at most", wrong, tries)
    for late in (1, 2):
        runs = [
            judge_in_time(np.where(random.random(CHUNKS * late) < late * RARELY_LATE, 60, 40), 50) for _ in range(tries)
        ]
        seen = sum(run.outcome == "reached" for run in runs)
        given = f"{late * RARELY_LATE:.0%} late, each by itself, {CHUNKS * late} chunks"
        yield Claim("a rate that is reached is shown", given, POWER, "at least", seen, tries)


def _states(random: np.random.Generator, chunks: int, late: float, burst: float) -> Series:
    """Times of two states that take turns: 60 ms in the one that ``late`` of all chunks are in, 40 ms in the other."""
    times, at, slow = np.empty(chunks), 0, bool(random.random() < late)
    while at < chunks:
        count = int(random.geometric(1 / (burst if slow else burst * (1 - late) / late)))
        times[at : at + count] = 60 if slow else 40
        at, slow = at + count, not slow
    return times


def _truncate_at_look(looks: Looking, drawn: Mapping[str, Series]) -> Mapping[str, Series]:
    """Return what was drawn, up to the look that ended the run; all of it where none did."""
    longest = len(next(iter(drawn.values())))
    for count in range(1, longest + 1):
        taken = {name: values[:count] for name, values in drawn.items()}
        if looks.due(count) and looks.look(taken):
            return taken
    return drawn


def _rate_claims(name: str, noise: Noise, random: np.random.Generator, tries: int) -> Iterator[Claim]:
    """A rate is called reached where fewer chunks than asked for are in time, or missed where more are."""
    within_ms, wide_ms = np.quantile(times(noise, random, 200_000), (REQUIRED - LATE, REQUIRED + LATE)).tolist()
    alone, fixed, delayed, missed = 0, 0, 0, 0
    for _ in range(tries):
        drawn = times(noise, random, CHUNKS)
        looks = InTimeLooks("rung", within_ms)
        alone += looks.judge_run(_truncate_at_look(looks, {"rung": drawn})["rung"]).outcome == "reached"
        closing = judge_in_time(times(noise, random, settings.CLOSING_MIN_PAIRS), wide_ms).outcome
        looks = InTimeLooks("rung", wide_ms)
        missed += "missed" in (closing, looks.judge_run(_truncate_at_look(looks, {"rung": drawn})["rung"]).outcome)
        fixed += judge_in_time(drawn[:100], within_ms).outcome == "reached"
        latency = Latency(steps=1, total_ms=float(np.median(drawn)), parts={})
        delay = asynchrony(latency, 2e3 / within_ms, drawn)  # two ticks are just too short
        delayed += delay.delay_ticks <= 2 and delay.in_time is not None and delay.in_time.outcome == "reached"
    level = 1 - REQUIRED
    yield Claim("optimize: reaches a rate that it misses", name, level, "at most", alone, tries)
    yield Claim("optimize: misses a rate that it reaches", name, level, "at most", missed, tries)
    yield Claim("budget: a rate is reached that is missed", name, level, "at most", fixed, tries)
    yield Claim("budget: chunks come within a delay that they miss", name, level, "at most", delayed, tries)


def _try(before: Series, after: Series, *, glanced: bool) -> Try:
    """One try as `Runs.trial` makes it, with what a ladder records of it."""
    looks = Looks("before", "after")
    glance = Glance(looks) if glanced else None
    rounds = settings.TRY_ROUNDS + 1 if glanced else ROUNDS  # glances are for chunks that take long
    taken = _truncate_at_look(glance or looks, {"before": before[:rounds], "after": after[:rounds]})
    both = list(taken["before"]), list(taken["after"])
    made = partial(Try, treatment="x", rung=1, before_ms=30)
    if glance is not None and glance.seen:
        return made(outcome=GLANCED[glance.seen], most_gain=glance.most_gain)
    verdict = looks.verdict(*both)
    return made(outcome=judge_try(verdict)[0], verdict=verdict, most_gain=looks.most_gain(*both))


def _left_out(name: str, drawn: Drawn, random: np.random.Generator, tries: int) -> Iterator[Claim]:
    """What an earlier ladder leaves out gains what matters; and what is called faster or slower is neither."""
    for glanced, what in ((False, "a whole try"), (True, "glances")):
        for gain in (GAIN, MATTERS):
            hits = 0
            for _ in range(tries):
                before, after = drawn(random, ROUNDS), (1 - gain) * drawn(random, ROUNDS)
                hits += is_settled(_try(before, after, glanced=glanced))
            rate = SMALL_WITH_MEMORY if gain == MATTERS and name.startswith("AR(1)") else MISSED
            yield Claim(f"{what}: a gain of {gain:.0%} is left out", name, rate, "at most", hits, tries)
    hits = 0
    for _ in range(tries):
        judged = _try(drawn(random, ROUNDS), drawn(random, ROUNDS), glanced=False)
        hits += judged.outcome in ("kept", "slower")
    yield Claim("a whole try: nothing is called faster or slower", name, 0.05, "at most", hits, tries)


def _ends(name: str, drawn: Drawn, random: np.random.Generator, tries: int) -> Iterator[Claim]:
    """A ladder ends on a rung that is slower than the one below, by over 1 %."""
    one_by_one, by_effect = 0, 0
    for _ in range(tries):
        true, shown = [1.0], [True]
        for ratio in random.permutation(CANDIDATES):
            before, after = (factor * true[-1] * drawn(random, ROUNDS) for factor in (1.0, ratio))
            judged = _try(before, after, glanced=bool(random.integers(2)))
            if judged.outcome == "kept":
                true.append(true[-1] * ratio)
                shown.append(judged.verdict is not None)
        one_by_one += _slower(true, shown, drawn, random)
        at_first_sight = np.cumprod([1.0, *random.choice(CANDIDATES, 3)])
        by_effect += _slower(list(at_first_sight), [True, False, False, False], drawn, random)
    yield Claim("one by one: ends on a slower rung", name, 0.05, "at most", one_by_one, tries)
    yield Claim("by effect: ends on a slower rung", name, 0.05, "at most", by_effect, tries)


def _slower(true: Sequence[float], shown: Sequence[bool], drawn: Drawn, random: np.random.Generator) -> bool:
    """Close a ladder of these rungs; whether it ends on one that is slower than the one below."""
    if len(true) == 1:
        return False
    best = best_rung([factor * drawn(random, settings.CLOSING_MIN_PAIRS) for factor in true], shown, [True] * len(true))
    return best > 0 and true[best] > 1.01 * true[best - 1]
