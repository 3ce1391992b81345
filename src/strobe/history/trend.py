"""A trend of runs: which run changed, judged against a reference that only a shown change moves.

The run is the unit (Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013): runs of the same thing
differ by more than the noise inside any of them, and only other runs show by how much. Their spread is estimated from
the differences between successive runs (von Neumann and others, "The mean square successive difference", Annals of
Mathematical Statistics 12, 1941), which a creep or a step does not widen. As long as runs are few, `ASSUMED` counts as
an estimate with `WEIGHT` degree of freedom, and Student's quantiles allow for what is not known.

Every run is judged alone and together with the three before it. To keep the chance of any false change in `RUNS` runs
at `FALSE_CHANGES`, each judgement has the level 1 − FALSE_CHANGES / RUNS (Bonferroni). Runs have heavy tails: now and
then one is far off, and the next one is not. So several runs count by their median, and one run, or two, are a change
by themselves only beyond `OUTLIER` standard deviations.

A change may come while the reference is still made. So while it is young, all runs since each of its own are judged
against those before, and a slow-down that is shown leaves in the reference only the runs from before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Literal

from strobe.core.measure.statistics import median_variance
from strobe.core.results.run_summary import Level

REFERENCE = 5  # runs: the first since the reference moved
TOGETHER = (1, 4)  # latest runs that are judged at once
RUNS = 40
FALSE_CHANGES = 0.05
LEVEL = 1 - FALSE_CHANGES / RUNS
ALONE = 0.95  # level of each end of one run's interval, also if the spread is hardly known
ASSUMED = 0.02  # standard deviation between runs
WEIGHT = 1.0
# With Student's t of 3 degrees of freedom between runs, one of 40 is further off in 3 % of trends: a spread that few
# runs show is mostly taken for less than it is.
OUTLIER = 12.0
FEW = 3  # runs whose median one run cannot move far

Change = Literal["slower", "faster", "fixed"]


@dataclass(frozen=True)
class Judged:
    """A run against the reference. Ratios and distances are logarithms: above 0 the run is slower.

    Args:
        ratio: of the latest runs that were judged at once to the reference.
        reach: how far the interval of ``ratio`` at `LEVEL` goes to either side.
        least: the distance from the reference beyond which it is a change: more than ``reach`` for one run or two.
        together: how many runs these are.
        alone: interval of this run's ratio, each end of which holds with `ALONE`.
        spread: standard deviation between runs, as far as known.
        known: runs that it is known from.
        reference: places of the runs judged against.
        change: what is shown here first; *fixed* where a slow-down is shown to be gone, or to be less.
        standing: the slow-down that was shown, here or before, and is not fixed; None without one.
        shown: place of the run in which it was shown.
    """

    ratio: float
    reach: float
    least: float
    together: int
    alone: tuple[float, float]
    spread: float
    known: int
    reference: tuple[int, ...]
    change: Change | None = None
    standing: float | None = None
    shown: int | None = None


def judge(levels: Sequence[Level], accepted: int | None = None) -> list[Judged | None]:
    """Judge each run by what was known when it was made: runs that follow never change a judgement.

    The reference is the first `REFERENCE` runs since it moved, and it moves only to runs that are shown to be faster
    and to the one that is ``accepted``. So a creep is compared with where it began, and a slow-down stands until later
    runs are shown to do better.

    Args:
        levels: the oldest first.
        accepted: place of the run whose times are the reference from then on.

    Returns:
        One judgement for each run; None for the first.
    """
    course = _Course(levels)
    judged: list[Judged | None] = []
    for at in range(len(levels)):
        judged.append(course.follow(at) if at else None)
        if at == accepted:
            course.set_reference(at, at)
    return judged


def runs_needed(spread: float, widest: float) -> int | None:
    """After how many runs one more excludes a slow-down above ``widest`` (0.1 is 10 %); None if `RUNS` do not.

    Args:
        spread: standard deviation between runs, as a logarithm.
    """
    for runs in range(1, RUNS + 1):
        reach = _quantile(ALONE, WEIGHT + _freedom(runs - 1)) * spread * math.sqrt(1 + 1 / min(runs, REFERENCE))
        if reach <= math.log1p(widest):
            return runs
    return None


@dataclass
class _Course:
    """A trend while its runs are gone through."""

    levels: Sequence[Level]
    reference: list[int] = field(default_factory=lambda: [0])
    begun: int = 0  # the first run of the state that the trend is in
    breaks: set[int] = field(default_factory=set)  # runs that are shown to differ from the one before
    standing: float | None = None
    shown: int | None = None  # where it was

    def set_reference(self, first: int, last: int) -> None:
        """Make these runs the reference, whatever was before."""
        self._enter(first, None)
        self.reference = list(range(first, last + 1))[:REFERENCE]

    def follow(self, at: int) -> Judged:
        """Judge the run at this place, and go over to the state that it shows."""
        seen = self._latest(self.reference, at)
        if self.standing is None:
            change = self._detect_change(seen, at)
        else:
            change = self._better(seen, self.standing, at) or self._worse(at) or seen[-1]
        if change.change is None and self.standing is None and len(self.reference) < REFERENCE:
            self.reference.append(at)
        if self.standing is None or change.change is not None:
            self.shown = None if self.standing is None else at
        return replace(change, alone=seen[0].alone, standing=self.standing, shown=self.shown)

    def _detect_change(self, seen: Sequence[Judged], at: int) -> Judged:
        for level in (*seen, *self._while_the_reference_is_young(at)):
            if abs(level.ratio) > level.least:
                state, first = self._from_where_it_began(level, at)
                if level.ratio < 0:
                    self.set_reference(first, at)
                    return replace(state, change="faster")
                self._enter(first, state.ratio)
                self.reference = [place for place in self.reference if place < first]
                return replace(state, change="slower")
        return seen[0]

    def _better(self, seen: Sequence[Judged], standing: float, at: int) -> Judged | None:
        for level in seen:
            if level.ratio + level.least < standing:
                state, first = self._from_where_it_began(level, at, standing)
                if level.ratio < -level.least:
                    self.set_reference(first, at)
                    return replace(state, change="faster")
                self._enter(first, state.ratio if level.ratio > level.least else None)
                return replace(state, change="fixed")
        return None

    def _worse(self, at: int) -> Judged | None:
        """Judge against the runs since the slow-down began: is there another?"""
        if at == self.begun:
            return None
        since = range(self.begun, min(self.begun + REFERENCE, at))
        for level in self._latest(since, at):
            if level.ratio > level.least:
                _, first = self._from_where_it_began(level, at)
                state = self._judge_against_reference(self.reference, first, at)
                self._enter(first, state.ratio)
                return replace(state, change="slower")
        return None

    def _from_where_it_began(self, level: Judged, at: int, before: float = 0.0) -> tuple[Judged, int]:
        middle, reference = (before + level.ratio) / 2, self._mean(level.reference)
        beyond = (
            place
            for place in range(at - level.together + 1, at + 1)
            if (self.levels[place].log_ms - reference > middle) == (level.ratio > before)
        )
        first = next(beyond)
        return self._judge_against_reference(level.reference, first, at), first

    def _enter(self, first: int, standing: float | None) -> None:
        self.breaks.add(first)
        self.begun, self.standing = first, standing

    def _latest(self, reference: Sequence[int], at: int) -> list[Judged]:
        earliest = max(self.begun, reference[0] + 1)
        return [self._judge_against_reference(reference, max(at - size + 1, earliest), at) for size in TOGETHER]

    def _while_the_reference_is_young(self, at: int) -> list[Judged]:
        """Judge all runs since each one of the reference, but those that `_latest` judges too."""
        earliest = max(self.begun, self.reference[0] + 1)
        if at >= earliest + 2 * REFERENCE:
            return []
        starts = [place for place in self.reference if place >= earliest and at - place + 1 not in TOGETHER]
        return [self._judge_against_reference(self.reference, first, at) for first in starts]

    def _judge_against_reference(self, reference: Sequence[int], first: int, at: int) -> Judged:
        base = [place for place in reference if place < first]
        latest = range(first, at + 1)
        ratio = self._median(latest) - self._mean(base)
        spread, freedom, known = self._spread(first, at)
        usual = _square([level.error for level in self.levels[: at + 1]])
        shares = ((base, 1 / len(base)), (latest, median_variance(len(latest))))
        deviation = math.sqrt(sum((spread**2 + self._excess_scatter(runs, usual)) * share for runs, share in shares))
        margin = _quantile(ALONE, freedom) * deviation
        reach = _quantile(LEVEL, freedom) * deviation
        return Judged(
            ratio=ratio,
            reach=reach,
            least=max(reach, OUTLIER * deviation) if len(latest) < FEW or len(base) < 2 else reach,
            together=len(latest),
            alone=(ratio - margin, ratio + margin),
            spread=spread,
            known=known,
            reference=tuple(base),
        )

    def _mean(self, places: Sequence[int]) -> float:
        return fmean(self.levels[place].log_ms for place in places)

    def _median(self, places: Sequence[int]) -> float:
        return median(self.levels[place].log_ms for place in places)

    def _excess_scatter(self, places: Sequence[int], usual: float) -> float:
        return max(0.0, _square([self.levels[place].error for place in places]) - usual)

    def _spread(self, first: int, at: int) -> tuple[float, float, int]:
        """The standard deviation between runs, its degrees of freedom, and the runs it is known from.

        The step to ``first`` is what is judged, and does not count.
        """
        steps = [
            self.levels[place].log_ms - self.levels[place - 1].log_ms
            for place in range(1, at + 1)
            if place != first and place not in self.breaks
        ]
        assumed = ASSUMED**2 + _square([level.error for level in self.levels[: at + 1]])
        freedom = _freedom(len(steps))
        variance = (WEIGHT * assumed + freedom * _square(steps) / 2) / (WEIGHT + freedom)
        return math.sqrt(variance), WEIGHT + freedom, len(steps) + 1 if steps else 0


def _square(values: Sequence[float]) -> float:
    return sum(value * value for value in values) / len(values) if values else 0.0


def _freedom(steps: int) -> float:
    return 2 * steps**2 / (3 * steps - 1) if steps else 0.0


def _quantile(level: float, freedom: float) -> float:
    from scipy import special

    return float(special.stdtrit(freedom, (1 + level) / 2))
