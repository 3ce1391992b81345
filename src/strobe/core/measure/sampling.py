"""Sample until the interval is narrow enough or the budget is spent, alternating over what is compared."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from typing_extensions import Self

from strobe.core.measure.statistics import Array, describe, find_warmup, median_interval, summarise, validate_times
from strobe.core.measure.verdicts import FEWEST_PAIRS, paired_verdict
from strobe.core.results.data import Samples

# One round is always warm-up (the first call allocates, tunes and compiles), and two can show a spread.
_FEWEST_ROUNDS = 3
# Times the budget's seconds that its fewest rounds may take: a machine that became busy halves the pace, or worse.
PATIENCE = 3.0
NO_LIMIT_S = 1e9
# A policy's first calls may run in another state than all later ones: on a Jetson 76 calls, 2.5 s, were 5 % slower.
SETTLE_S = 4.0
_INTERRUPTED = "interrupted"

Round = dict[str, float]


class NoMoreCallsError(Exception):
    """The subject cannot be called any more. This ends the sampling, which keeps the complete rounds."""


class Looking(Protocol):
    """Looks at the samples now and then, by a method that allows for looking often (`measure.sequential`)."""

    def due(self, pairs: int) -> bool:
        """Return whether to look, with so many rounds after warm-up."""
        ...

    def look(self, samples: Mapping[str, Array]) -> str | None:
        """Return why to stop, in words. ``samples``: milliseconds by name, without the warm-up."""


@dataclass(frozen=True)
class SamplingBudget:
    """When to stop: whichever comes first of ``iterations``, ``precision`` and ``seconds``.

    ``iterations``: rounds to keep after warm-up; None to sample until the precision is reached.
    ``seconds``: wall time; except for the first three, no round is started that would overrun it.
    ``fewest``: rounds to keep after warm-up even where they overrun ``seconds``, by up to ``patience`` times.
    ``min_iterations``: rounds kept before the precision is looked at.
    ``precision``: relative half-width at which to stop (0.01 is 1 %): of the median's 95 % interval, or where several
    things are compared, of every paired ratio to the first (then load that slows all alike need not prolong it).
    ``of``: the name whose ratio alone counts for that; None for all.
    ``settle_s``: seconds of sampling, after the first round, before the precision may end it: a state that ends within
    them is warm-up, or makes the interval wide (see `statistics.inflation`).
    ``looking``: takes the place of ``precision``.

    Raises ValueError for a budget that makes no sense.
    """

    iterations: int | None = None
    seconds: float = 60.0
    fewest: int = 0
    patience: float = PATIENCE
    min_iterations: int = 20
    precision: float = 0.01
    of: str | None = None
    settle_s: float = SETTLE_S
    looking: Looking | None = None

    @classmethod
    def make_requested(
        cls, iterations: int | None, seconds: float | None, usual_s: float = 30.0, precision: float = 0.01
    ) -> Self:
        """Return the budget that a user asked for: only ``seconds`` of their own end it before it can be judged."""
        if seconds is not None:
            return cls(iterations, seconds, precision=precision)
        usual_s = usual_s if iterations is None else NO_LIMIT_S
        return cls(iterations, usual_s, FEWEST_PAIRS, math.inf, precision=precision)

    def __post_init__(self) -> None:
        for name, least in (("iterations", 1), ("fewest", 0), ("min_iterations", 1), ("settle_s", 0)):
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        for name, value in (("seconds", self.seconds), ("precision", self.precision)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a number above zero, got {value}")


@dataclass(frozen=True)
class Progress:
    """How far work is, in ``unit``; ``expected`` and ``seconds_left`` are None while they cannot be known."""

    done: int
    expected: int | None
    seconds: float
    seconds_left: float | None
    unit: str = "rounds"


@dataclass(frozen=True)
class Collected:
    """The samples: under each name equally many, entry i of each from the same round."""

    samples: dict[str, Samples]
    rounds: int
    warmup_rounds: int
    interrupted: bool
    stopped_because: str
    seconds: float = 0.0  # from the start to the end of the last round


def collect(
    calls: Mapping[str, Callable[[], float]],
    budget: SamplingBudget,
    progress: Callable[[Progress], None] | None = None,
    *,
    clock: Callable[[], float] | None = None,
) -> Collected:
    """Call everything in ``calls`` once a round until ``budget`` says stop; each call returns its milliseconds.

    Every second round runs in the reverse order of the one before (A B, B A; with more than two names, each
    such pair of rounds in a new shuffled order), so that neither drift nor who runs second favours anyone.
    The first round is warm-up, and so is what `find_warmup` finds, for all names alike. Ctrl-C ends the
    sampling and returns the complete rounds, and so does NoMoreCallsError; before the first of them they pass through.

    Stopping early is honest here because only the interval's width decides, never where it lies (fixed-width
    sequential intervals: Chow and Robbins, Annals of Mathematical Statistics 36, 1965), and because it is
    looked at only at counts that grow by a quarter each time; or because ``budget.looking`` allows for its looks.
    A state of the machine that outlasts the run is in no interval: `Samples.longest_state_s` says how long that is.

    Raises ValueError without calls, or when a call returns a negative or non-finite time.
    """
    if not calls:
        raise ValueError("nothing to sample: no calls were given")
    import scipy.signal
    import scipy.stats  # noqa: F401  # now, not between two rounds, where the judgements first need them

    names = list(calls)
    rounds: list[Round] = []
    ends: list[float] = []
    clock = clock or time.perf_counter
    started = clock()
    reason = _INTERRUPTED
    try:
        pace = _Pace(budget)
        for order in _orders(names):
            taken = {name: float(validate_times([calls[name]()], name)[0]) for name in order}
            rounds.append({name: taken[name] for name in names})
            ends.append(clock() - started)
            state = pace.update_progress(rounds, ends[-1])
            if progress is not None:
                progress(state)
            if pace.reason is not None:
                reason = pace.reason
                break
    except KeyboardInterrupt:
        if not rounds:
            raise
    except NoMoreCallsError as error:
        if not rounds:
            raise
        reason = str(error)
    return _collect_rounds(rounds, ends, reason)


def _orders(names: list[str]) -> Iterator[list[str]]:
    names = list(names)
    shuffle = random.Random(0).shuffle
    while True:
        if len(names) > 2:
            shuffle(names)
        yield list(names)
        yield names[::-1]


class _Pace:
    """Decides after each round whether to stop (then ``reason`` says why) and how far it may still be."""

    def __init__(self, budget: SamplingBudget) -> None:
        self.reason: str | None = None
        self._budget = budget
        self._next_look = budget.min_iterations
        self._needed: int | None = None
        self._first = 0.0

    def update_progress(self, rounds: list[Round], seconds: float) -> Progress:
        budget, done = self._budget, len(rounds)
        if done == 1:
            self._first = seconds
        # The first round may hold minutes of compiling, which says nothing about the next.
        each = (seconds - self._first) / (done - 1) if done > 1 else seconds
        wanted = self._rounds_needed(rounds, seconds - self._first, each)
        fits, unit = None, "rounds"
        if each > 0:
            fits = done + math.floor(max(0.0, budget.seconds - seconds) / each)
            fewest = budget.fewest + _warmup_rounds(rounds) if budget.fewest else 0
            if fits < fewest:
                most = max(0.0, budget.seconds * budget.patience - seconds) / each
                fits = done + math.floor(min(most, fewest - done))
                unit = f"rounds ({fewest} are the fewest that can be judged)"
        if self.reason is None and fits == done and done >= _FEWEST_ROUNDS:
            self.reason = f"the budget of {budget.seconds:g} s was spent"
        known = [count for count in (fits, wanted) if count is not None]
        expected = done if self.reason else max(done + 1, _FEWEST_ROUNDS, min(known)) if known else None
        remaining = None if expected is None else (expected - done) * each
        return Progress(done=done, expected=expected, seconds=seconds, seconds_left=remaining, unit=unit)

    def _rounds_needed(self, rounds: list[Round], sampled: float, each: float) -> int | None:
        """Number of rounds that the count or the precision asks for, where known; sets the reason when it is met."""
        budget, done = self._budget, len(rounds)
        if budget.iterations is not None:
            if done <= budget.iterations:
                return budget.iterations + 1
            warmup = _warmup_rounds(rounds)
            if done - warmup >= budget.iterations:
                self.reason = f"{budget.iterations} iterations were measured"
            return budget.iterations + warmup
        if budget.looking is not None:
            if budget.looking.due(done - 1):  # the first round is warm-up
                warmup = _warmup_rounds(rounds)
                if budget.looking.due(done - warmup):
                    columns = {name: _column(rounds[warmup:], name) for name in rounds[0]}
                    self.reason = budget.looking.look(columns)
            return None
        if sampled < budget.settle_s:
            return done + math.ceil((budget.settle_s - sampled) / each) if each > 0 else None
        if done <= self._next_look:
            return self._needed
        warmup = _warmup_rounds(rounds)
        measured = done - warmup
        if measured < self._next_look:
            return self._needed
        width = _widest(rounds[warmup:], budget.of)
        if width <= budget.precision:
            self.reason = f"the intervals are narrower than ±{budget.precision * 100:g} %"
        self._next_look = math.ceil(measured * 1.25)
        # A half-width shrinks with the root of the count.
        self._needed = warmup + math.ceil(measured * (width / budget.precision) ** 2) if math.isfinite(width) else None
        return self._needed


def _warmup_rounds(rounds: list[Round]) -> int:
    if len(rounds) < 2:
        return 0
    return max(1, *(find_warmup(_column(rounds, name)) for name in rounds[0]))


def _widest(rounds: list[Round], of: str | None = None) -> float:
    """Relative half-width of the one median's interval, or the largest among the ratios' to the first name.

    ``of``: the name whose ratio alone is looked at, where it is one of the others.
    """
    baseline, *names = rounds[0]
    first = _column(rounds, baseline)
    others = [_column(rounds, name) for name in ([of] if of in names else names)]
    if len(rounds) < FEWEST_PAIRS or any((column <= 0).any() for column in (first, *others)):
        return math.inf
    if not others:
        low, high = median_interval(first) or (0.0, math.inf)
        return (high - low) / 2 / float(np.median(first))
    verdicts = [paired_verdict(first, other) for other in others]
    return max((verdict.interval.high - verdict.interval.low) / 2 / verdict.ratio for verdict in verdicts)


def _column(rounds: list[Round], name: str) -> Array:
    return np.array([entry[name] for entry in rounds])


def _collect_rounds(rounds: list[Round], ends: list[float], reason: str) -> Collected:
    warmup = _warmup_rounds(rounds)
    measured = len(rounds) - warmup
    longest_state = None
    if len(ends) == len(rounds):  # Ctrl-C may come between a round and the reading of the clock
        longest_state = ends[len(rounds) - measured // 4 - 1] - (ends[warmup - 1] if warmup else 0.0)
    few = []
    if measured < FEWEST_PAIRS:
        few.append(f"only {measured} sample{'s' * (measured != 1)} after warm-up ({reason}): too few for an interval")
    if not warmup:
        few.append("the only round was a first call, which is usually slower than the rest")
    samples = {}
    for name in rounds[0]:
        values = _column(rounds, name)
        steady = values[warmup:]
        samples[name] = Samples(
            warmup=values[:warmup].tolist(),
            values=steady.tolist(),
            summary=summarise(steady),
            longest_state_s=longest_state,
            notes=[*few, *describe(steady)],
        )
    return Collected(samples, len(rounds), warmup, reason == _INTERRUPTED, reason, ends[-1] if ends else 0.0)


class Pacer:
    """Holds calls back until their deadlines, which are absolute: what one sleep adds is not handed on to the next."""

    def __init__(self) -> None:
        self._begun: float | None = None  # the deadline of the call before, or its beginning where it came late

    def wait(self, period_s: float) -> bool:
        """Sleep until ``period_s`` after the call before began. Return whether the deadline was still ahead.

        The first call has no deadline. After one that is missed, the next counts from now: calls never pile up.
        """
        now = time.perf_counter()
        due = now if self._begun is None else self._begun + period_s
        in_time = now <= due
        self._begun = due if in_time else now
        while (remaining := due - now) > 0:
            time.sleep(remaining)
            now = time.perf_counter()
        return in_time

    def began(self) -> None:
        """A call begins now, without a deadline."""
        self._begun = time.perf_counter()
