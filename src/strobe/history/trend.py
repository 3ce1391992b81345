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

Runs are not independent where a level stays for a while: for a day, or next to a neighbour. The step to the next level
looks like a change. How far levels lie apart is estimated by overlapping batches of `BLOCK` runs, beyond what
independent runs show (Meketon and Schmeiser, "Overlapping Batch Means: Something for Nothing?", Winter Simulation
Conference 1984), and by `ASSUMED` with `WANDERS` degrees of freedom: few runs on one level do not rule out others. What
another level explains is a change once it has stayed twice as long as the one before. Levels on a line are a creep.

A change may come while the reference is still made. So while it is young, all runs since each of its own are judged
against those before, and a slow-down that is shown leaves in the reference only the runs from before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Literal

import numpy as np

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
BLOCK = 4  # successive runs whose mean is a level
OVERLAPPING = 1.5  # degrees of freedom of overlapping batches, for each that would lie side by side
WANDERS = 1.5
LEVELS = 1 - FALSE_CHANGES / 6  # however many runs are judged on one level, it is one of the few in `RUNS` runs
FARTHEST = 0.0685  # distance of a level that only `ASSUMED` speaks for
LINE = 0.1  # of the variance of levels: less off a line is none
# With Student's t of 3 degrees of freedom between runs, one of 40 is further off in 3 % of trends: a spread that few
# runs show is mostly taken for less than it is.
OUTLIER = 12.0
FEW = 3  # runs whose median one run cannot move far
LONG = 200  # runs for which nobody waits

Change = Literal["slower", "faster", "fixed"]


@dataclass(frozen=True)
class Judged:
    """A run against the reference. Ratios and distances are logarithms: above 0 the run is slower."""

    ratio: float  # of the latest runs that were judged at once to the reference
    reach: float  # how far the interval of the ratio at `LEVEL` goes to either side
    ends: float  # the distance by which a slow-down is shown to be less: more than `reach` for one run or two
    least: float  # the distance from the reference beyond which it is a change: also more than another level explains
    together: int  # latest runs
    alone: tuple[float, float]  # interval of this run's ratio, each end of which holds with `ALONE`
    spread: float  # standard deviation between runs, as far as known
    wander: float  # standard deviation between levels that stay, as far as known
    known: int  # runs that both are known from
    reference: tuple[int, ...]  # places of the runs judged against
    change: Change | None = None  # shown here first; *fixed* where a slow-down is shown to be gone, or to be less
    standing: float | None = None  # the slow-down that was shown, here or before, and is not fixed
    shown: int | None = None  # place of the run in which it was
    stay: int | None = None  # further runs after which a distance that another level explains would be a change


def judge(levels: Sequence[Level], accepted: int | None = None) -> list[Judged | None]:
    """Judge each run but the first by what was known when it was made: runs that follow never change a judgement.

    The reference is the first `REFERENCE` runs since it moved, and it moves only to runs that are shown to be faster
    and to the one that is ``accepted``. So a creep is compared with where it began.

    Args:
        levels: the oldest first.
        accepted: place of the run whose times are the reference from then on.
    """
    course = _Course(levels)
    judged: list[Judged | None] = []
    for at in range(len(levels)):
        judged.append(course.follow(at) if at else None)
        if at == accepted:
            course.set_reference(at, at)
    return judged


def runs_needed(spread: float, widest: float) -> int | None:
    """After how many runs one more excludes a slow-down above ``widest`` (0.1 is 10 %); None if `RUNS` do not."""
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
    doubtful: int | None = None  # the first run of a change, or of another level

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
            again = self._latest(range(self.begun, min(self.begun + REFERENCE, at)), at) if at > self.begun else []
            change = self._better(seen, self.standing, at) or self._worse(again, at) or seen[-1]
        if change.change is None and self.standing is None and len(self.reference) < REFERENCE:
            self.reference.append(at)
        if self.standing is None or change.change is not None:
            self.shown = None if self.standing is None else at
        return replace(change, alone=seen[0].alone, standing=self.standing, shown=self.shown)

    def _detect_change(self, seen: Sequence[Judged], at: int) -> Judged:
        since = [] if self.doubtful is None else [self._judge_against_reference(self.reference, self.doubtful, at)]
        looks = [*seen, *self._while_the_reference_is_young(at)]
        if self.doubtful is not None and at - self.doubtful >= 2 * (self.doubtful - self.begun):
            looks += since
        if change := self._better(looks, None, at) or self._worse(looks, at):
            return change
        far = [level for level in (*since, *looks) if level.together >= FEW and abs(level.ratio) > level.reach]
        return self._doubt(far[0], at) if far else seen[0]

    def _doubt(self, level: Judged, at: int) -> Judged:
        state, self.doubtful = self._from_where_it_began(level, at)
        square, stayed = self._measure_levels(self.doubtful, at, state.spread)[0], self.doubtful - self.begun
        longer = range(max(2 * stayed, state.together) + 1, LONG)
        reaches = (_level_reach(square, _weigh(stayed) + _weigh(runs), LEVEL) for runs in longer)
        enough = next((runs for runs, reach in zip(longer, reaches, strict=True) if reach < abs(state.ratio)), LONG)
        return replace(state, stay=enough - state.together)

    def _better(self, seen: Sequence[Judged], standing: float | None, at: int) -> Judged | None:
        for level in seen:
            if level.ratio < -level.least or (standing is not None and level.ratio + level.ends < standing):
                state, first = self._from_where_it_began(level, at, standing or 0.0)
                if level.ratio < -level.least:
                    self.set_reference(first, at)
                    return replace(state, change="faster")
                self._enter(first, state.ratio if level.ratio > level.ends else None)
                return replace(state, change="fixed")
        return None

    def _worse(self, seen: Sequence[Judged], at: int) -> Judged | None:
        for level in seen:
            if level.ratio > (level.least if self.standing is None else level.ends):
                _, first = self._from_where_it_began(level, at)
                state = self._judge_against_reference(self.reference, first, at)
                self._enter(first, state.ratio)
                self.reference = [place for place in self.reference if place < first]
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
        self.begun, self.standing, self.doubtful = first, standing, None

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
        ratio = median(self.levels[place].log_ms for place in latest) - self._mean(base)
        spread, freedom, known = self._spread(first, at)
        usual = _square([level.error for level in self.levels[: at + 1]])
        shares = ((base, 1 / len(base)), (latest, median_variance(len(latest))))
        deviation = math.sqrt(sum((spread**2 + self._excess_scatter(runs, usual)) * share for runs, share in shares))
        square, off_line, weight = self._measure_levels(first, at, spread)
        wander = math.sqrt((square + WANDERS * ASSUMED**2) / (WANDERS + weight))
        margin = _quantile(ALONE, freedom) * math.sqrt(deviation**2 + 2 * square / (WANDERS + weight))
        reach = _quantile(LEVEL, freedom) * deviation
        ends = max(reach, OUTLIER * deviation) if len(latest) < FEW or len(base) < 2 else reach
        # All runs before, not only those of the reference, show where the levels before lie.
        moved = (self._mean(range(base[0], first)) - self._mean(base)) * math.copysign(1, ratio)
        other = moved + _level_reach(square, weight, LEVELS if len(latest) <= max(TOGETHER) else LEVEL)
        return Judged(
            ratio=ratio,
            reach=reach,
            ends=ends,
            least=max(ends, min(other, FARTHEST) if off_line < LINE * square else other),
            together=len(latest),
            alone=(ratio - margin, ratio + margin),
            spread=spread,
            wander=wander,
            known=known,
            reference=tuple(base),
        )

    def _mean(self, places: Sequence[int]) -> float:
        return fmean(self.levels[place].log_ms for place in places)

    def _excess_scatter(self, places: Sequence[int], usual: float) -> float:
        return max(0.0, _square([self.levels[place].error for place in places]) - usual)

    def _measure_levels(self, first: int, at: int, spread: float) -> tuple[float, float, float]:
        """Levels between changes: the sum of their squares about a mean, that about a line, the degrees of freedom."""
        squares, freedom = [0.0, 0.0], 0.0
        logs = np.array([level.log_ms for level in self.levels[: at + 1]])
        for part in (logs[self.begun : first], logs[first:]):
            runs = len(part)
            if weight := _weigh(runs):
                rest, place = part - part.mean(), np.arange(runs) - (runs - 1) / 2
                for line, off in enumerate((rest, rest - place * (place @ rest) / (place @ place))):
                    means = np.convolve(off, np.full(BLOCK, 1 / BLOCK), "valid")
                    variance = float(np.mean(means**2)) * runs / (runs - BLOCK)
                    squares[line] += weight * (variance - spread**2 / BLOCK)
                freedom += weight
        return max(0.0, squares[0]), max(0.0, squares[1]), freedom

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


def _weigh(runs: int) -> float:
    return OVERLAPPING * max(0.0, runs / BLOCK - 2)  # less a mean and a line


def _level_reach(square: float, freedom: float, level: float) -> float:
    quantile = _quantile(level, WANDERS + freedom) * math.sqrt(2 / (WANDERS + freedom))
    return math.hypot(min(FARTHEST, quantile * ASSUMED * math.sqrt(WANDERS)), quantile * math.sqrt(square))


def _quantile(level: float, freedom: float) -> float:
    from scipy import special

    return float(special.stdtrit(freedom, (1 + level) / 2))
