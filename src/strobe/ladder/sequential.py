"""Looks at a run before it ends: is a candidate faster, slower, or no faster by what would matter?

An interval for one look, looked at again and again, shows a difference sooner or later where there is none. Here all
looks together have the error of one: each spends a part of it, the last one what is left (Lan and DeMets, "Discrete
sequential boundaries for clinical trials", Biometrika 70, 1983). The parts simply add up (Bonferroni), so it holds
however the looks depend on each other. Boundaries from the joint distribution of the looks would be a little narrower,
but take increments as independent, and neighbouring times are not.

Each look uses the interval of `statistics.centre`, which knows of spikes and of neighbours that resemble each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from strobe.core.measure.statistics import Array, centre
from strobe.core.measure.verdicts import LEVEL, paired_verdict
from strobe.core.results.comparison import Verdict

# With 10 pairs the rank test can reach an error of 2 ** -9, a fifth of 1 %, and no less.
FIRST = 10
AT_FIRST = 0.2  # share of the error, at the first look
LATER = 0.1  # share of the remaining error, at each later look: most is for the end, where all pairs are there
GROWTH = 1.5  # growth of the pairs, from look to look
MATTERS = 0.03  # share of the time: a smaller gain may be missed
MISSED = 0.05  # chance to give up a candidate that is faster by MATTERS
# Glances, where calls take long: after so many pairs. At the first each pair must say the same; at the second, their
# median decides, which one spike does not move. At the third each pair must deny a gain of MATTERS, which so many pairs
# of a candidate with that gain do by chance once in 2 ** 6: fewer would deny it too often.
GLANCED_AT = (2, 4, 6)
CLEAR = 0.10  # share of the time saved, or lost


@dataclass
class Looks:
    """When to end the run of two variants, and the verdict on it.

    The chance to call one faster or slower that is neither is at most ``error``, and the chance to give up one that is
    faster by `MATTERS` at most ``missed``, wherever the run ends. Both hold where pairs are independent. Where they
    resemble each other, ten pairs show too little of it: docs/optimize.md has the rates that were simulated.

    Args:
        before, after: names of the variants.
        error: of all looks together.
        missed: the chance to give up one that is faster by `MATTERS`, of all looks together.
    """

    before: str
    after: str
    error: float = 1 - LEVEL
    missed: float = MISSED
    _next: int = FIRST
    _left: float = 1.0  # of the error
    _stopped: float | None = None  # the share of the error that the look had which ended it

    def due(self, pairs: int) -> bool:
        """Return whether it is time to look, with so many ``pairs``."""
        return pairs >= self._next

    def look(self, samples: Mapping[str, Array]) -> str | None:
        """Return why to stop, in words.

        Args:
            samples: milliseconds of both variants, paired by round, without the warm-up.
        """
        first, second = samples[self.before], samples[self.after]
        spent = AT_FIRST if self._left == 1 else LATER * self._left
        logs = np.log(second) - np.log(first)
        _, low, high, _ = centre(logs, 1 - spent * self.error)
        verdict = None
        if low > 0 or high < 0:
            verdict = f"{self.after} was shown to be {'slower' if low > 0 else 'faster'}"
        elif self._least(logs, spent) > math.log1p(-MATTERS):
            verdict = f"{self.after} is not faster by {MATTERS * 100:g} %"
        if verdict:
            self._stopped = spent
        self._left -= spent
        self._next = math.ceil(len(first) * GROWTH)
        return verdict

    def verdict(self, before: Sequence[float], after: Sequence[float]) -> Verdict:
        """Judge the run, which has ended: at the level of the look that ended it, else with all the error left.

        Raises:
            ValueError: as `verdicts.paired_verdict`.
        """
        level = 1 - self._share * self.error
        return paired_verdict(before, after, baseline_name=self.before, candidate_name=self.after, level=level)

    def most_gain(self, before: Sequence[float], after: Sequence[float]) -> float:
        """Return the share of the time that the candidate saves at most, by the run, which has ended.

        It saves more with a chance of at most ``missed``; 1 where there are too few pairs to say so.
        """
        logs = np.log(np.asarray(after)) - np.log(np.asarray(before))
        if 2.0 ** -len(logs) > self._share * self.missed:
            return 1.0
        return -math.expm1(self._least(logs, self._share))

    @property
    def _share(self) -> float:
        return self._left if self._stopped is None else self._stopped

    def _least(self, logs: Array, share: float) -> float:
        return centre(logs, 1 - 2 * share * self.missed)[1]


@dataclass
class Glance:
    """First looks, at two pairs, four and six, which end the run where it looks clear; else ``looks`` goes on.

    A clear gain or loss claims nothing: what they like is for a later run to judge, and a candidate that they drop was
    never called slower. So the error of ``looks`` is none the larger for them. That there is no gain of `MATTERS` is
    claimed, and takes its part of ``looks.missed``.
    """

    looks: Looks
    seen: Literal["a clear gain", "a clear loss", "no gain"] | None = None
    times: float = 1.0  # as fast as before, in the pairs that were glanced at
    most_gain: float = 1.0  # share of the time that it saves at most
    pairs: int = 0  # that were glanced at

    def due(self, pairs: int) -> bool:
        """Return whether it is time to look, with so many ``pairs``."""
        at = next((count for count in GLANCED_AT if count > self.pairs), None)
        return self.looks.due(pairs) if at is None else pairs >= at

    def look(self, samples: Mapping[str, Array]) -> str | None:
        """Return why to stop, in words. ``samples``: as for `Looks.look`."""
        if self.pairs >= GLANCED_AT[-1]:
            return self.looks.look(samples)
        ratios = samples[self.looks.after] / samples[self.looks.before]
        first = not self.pairs
        middle = float(np.median(ratios))
        self.times, self.pairs = 1 / middle, len(ratios)
        if (ratios.max() if first else middle) <= 1 - CLEAR:
            self.seen = "a clear gain"
        elif (ratios.min() if first else middle) >= 1 + CLEAR:
            self.seen = "a clear loss"
        elif self.pairs >= GLANCED_AT[-1]:
            self.looks.missed = MISSED - 2.0**-self.pairs
            if ratios.min() > 1 - MATTERS:
                self.seen, self.most_gain = "no gain", 1 - float(ratios.min())
        return f"{self.pairs} pairs showed {self.seen}" if self.seen else None
