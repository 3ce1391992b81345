"""Limits of the machine, held against candidates: no treatment gains by a dtype that this machine is slower in.

Of the policy as it is, FLOP and bytes are counted once. What decides is how its least times by the roofline compare
(`measure/roofline.py`). That holds for the rungs above it too, since fewer FLOP shrink both sides alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from strobe.findings.view import ms
from strobe.measure.components import grouped, named
from strobe.measure.roofline import least_in, times_in
from strobe.results.machine import Ceiling
from strobe.results.measurement import Component, Measurement
from strobe.studies.optimize.candidates import Candidate

SLOWER = 0.95  # times as fast at the most, below which a dtype is not tried: ceilings are measured ones


@dataclass(frozen=True)
class Bounds:
    """Of one policy on one machine.

    Args:
        counted: the policy as it is, with its FLOP and bytes where they were counted.
        ceiling: of this machine; None where it is not known.
    """

    counted: Measurement
    ceiling: Ceiling | None

    def times(self, candidate: Candidate) -> float | None:
        """Return how many times as fast the dtypes of ``candidate`` can make its parts; None where that is not known.

        1 for the dtype that they compute in already.
        """
        if self.ceiling is None or "tf32" in candidate.dtypes:  # the ceiling of float32 was measured without it
            return None
        parts = self._parts(candidate)
        known = [times_in(dtype, parts, self.ceiling) for dtype in candidate.dtypes]
        return max((times for times in known if times is not None), default=None)

    def why_not(self, candidate: Candidate) -> str:
        """Return in words why ``candidate`` can gain nothing on this machine; '' where it may."""
        limit = self.counted.limit
        if limit is not None and candidate.arithmetic < min(limit.ceiling_share, 1.0):
            return "on fewer cores than the arithmetic needs"
        times = self.times(candidate)
        if times is None or times >= SLOWER or self.ceiling is None:
            return ""
        slower = " and ".join(candidate.dtypes)
        rates = self.ceiling.gflops
        there = ", ".join(f"{rates[dtype]:.0f} GFLOP/s" for dtype in candidate.dtypes if dtype in rates)
        now = f"{limit.dtype} {rates[limit.dtype]:.0f}" if limit is not None and limit.dtype in rates else ""
        return f"in {slower}, which this machine is slower in ({there}{f', {now}' if now else ''})"

    def too_slow(self, target_ms: float, lossy: bool) -> str:
        """Return in words that arithmetic alone takes longer than ``target_ms`` on this machine; '' where it does not.

        Args:
            lossy: whether products of integers may be tried.
        """
        limit = self.counted.limit
        if limit is None:
            return ""
        least = {limit.dtype: limit.least_ms} | {one.dtype: one.least_ms for one in limit.lower}
        if self.ceiling is not None and (wide := least_in("float32", self._whole, self.ceiling)) is not None:
            least.setdefault("float32", wide)  # which some machines are faster in than in bfloat16
        integers = least.pop("int8", None)
        dtype = min(least, key=lambda one: least[one])
        if min(least[dtype], integers if lossy and integers is not None else least[dtype]) <= target_ms:
            return ""
        others = "" if integers is None else f", in int8 {ms(integers)}{'' if lossy else ' (--allow=lossy tries that)'}"
        return (
            f"its arithmetic and memory alone take at least {ms(least[dtype])} in {dtype} on this machine{others}: "
            f"to reach {target_ms:g} ms, less must be computed"
        )

    def _parts(self, candidate: Candidate) -> list[list[Component]]:
        if candidate.parts:
            return [named(self.counted, name) for name in candidate.parts]
        return self._whole

    @property
    def _whole(self) -> list[list[Component]]:
        return list(grouped([self.counted])[0].values())
