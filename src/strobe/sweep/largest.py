"""The largest batch that fits: which size to try next, from what the sizes tried so far took.

Memory grows as a + b · batch, so two small batches foretell where it ends. Sizes are doubled as far as that line
allows, the size that it foretells is tried itself, and what is left between the largest that fitted and the smallest
that did not is halved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import linear_regression

FIRST = (2, 8)  # the two small batches: not 1, which takes other ways through some policies


@dataclass
class Search:
    """Sizes from 1 to ``most``; ``within``: the gap, relative to the largest that fits, at which the search ends.

    ``limit``: the bytes that there are, where that is known.
    """

    most: int
    within: float = 0.05
    limit: int | None = None
    fitted: dict[int, int | None] = field(default_factory=dict)  # size → bytes at its peak
    failed: set[int] = field(default_factory=set)

    def tried(self, size: int, fits: bool, memory: int | None = None) -> None:
        """Record whether ``size`` fitted, and the bytes at its peak where they are known."""
        if fits:
            self.fitted[size] = memory
        else:
            self.failed.add(size)

    @property
    def largest(self) -> int | None:
        """The largest size that fitted."""
        return max(self.fitted, default=None)

    def next(self) -> int | None:
        """The size to try next; None if the answer is known."""
        good, bad = self.largest or 0, min(self.failed, default=self.most + 1)
        small = [size for size in FIRST if good < size < bad and not self.fitted.keys() & {size}]
        if small and len(self.fitted) < len(FIRST):
            return small[0]
        gap = max(1, int(self.within * good))
        if good >= self.most or (self.failed and bad - good <= gap):
            return None
        foretold = self._foretold()
        if foretold is not None and good < foretold < bad and (self.failed or 2 * good > foretold):
            return foretold
        if self.failed:
            return (good + bad) // 2
        if foretold is not None and good - gap <= foretold <= good:  # show that the next does not fit
            return min(good + gap, self.most)
        return min(max(2 * good, 1), self.most)

    def predict(self, size: int) -> int | None:
        """The bytes that ``size`` will take, by the line through the sizes that fitted."""
        line = self._line()
        return None if line is None else round(line[0] + line[1] * size)

    def _foretold(self) -> int | None:
        """The largest size that the line has room for."""
        line = self._line()
        if line is None or self.limit is None or line[1] < 1:  # less than a byte a sample: no line to go by
            return None
        return max(0, int((self.limit - line[0]) / line[1]))

    def _line(self) -> tuple[float, float] | None:
        known = [(size, memory) for size, memory in self.fitted.items() if memory is not None]
        if len(known) < 2:
            return None
        slope, start = linear_regression([size for size, _ in known], [memory for _, memory in known])
        return start, slope


def knee(sizes: Sequence[tuple[int, bool]]) -> int | None:
    """Return the smallest size from which on larger batches bring next to nothing: all of them nearly reach the best.

    ``sizes``: (size, whether it is shown to be slower than the best by next to nothing). Slower sizes at the upper end
    (memory that swaps, a worse kernel) do not count. None if no size is left.
    """
    ranked = sorted(sizes, reverse=True)
    while ranked and not ranked[0][1]:
        ranked.pop(0)
    smallest = None
    for size, as_fast in ranked:
        if not as_fast:
            break
        smallest = size
    return smallest
