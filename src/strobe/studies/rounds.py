"""The rounds of a measurement: one call of each variant, and the iteration that the timeline recorded of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from strobe.measure.components import Iteration
from strobe.measure.memory import KernelUse


@dataclass
class Round:
    """One call of one variant.

    Args:
        index: of the round, from 0, the warm-up included; all variants have the same input in it.
        start_ns: when the call began, on the timeline's clock; no other call overlaps it.
        end_ns: when it returned.
        kernel: used by the process meanwhile.
        iteration: recorded by the timeline during the call; None where there is none, or more than one.
    """

    index: int
    start_ns: int
    end_ns: int
    kernel: KernelUse
    iteration: Iteration | None = None

    @property
    def took_ms(self) -> float:
        return (self.end_ns - self.start_ns) / 1e6


def attribute(rounds: Sequence[Round], found: Sequence[Iteration]) -> None:
    """Give each round the one iteration that lies within its call.

    By time, not by counting: where an iteration is missing, or is there twice, the others stay where they belong.
    """
    in_time = sorted(rounds, key=lambda round: round.start_ns)
    starts = [round.start_ns for round in in_time]
    within: list[list[Iteration]] = [[] for _ in in_time]
    for iteration in found:
        at = bisect_right(starts, iteration.whole.start_ns) - 1
        if at >= 0 and iteration.whole.end_ns <= in_time[at].end_ns:
            within[at].append(iteration)
    for round, its_own in zip(in_time, within, strict=True):
        round.iteration = its_own[0] if len(its_own) == 1 else None


def recorded(of_variants: Sequence[Sequence[Round]], warmup: int) -> tuple[list[int], str]:
    """Indices of the rounds after ``warmup`` in which every variant has its iteration; a note on those that have not.

    Samples are compared in pairs, so a round that one variant lacks is lost for all. The note is empty where none is.
    """
    complete = min(map(len, of_variants), default=0)
    lost = [index for index in range(complete) if any(rounds[index].iteration is None for rounds in of_variants)]
    kept = [index for index in range(warmup, complete) if index not in set(lost)]
    if not lost:
        return kept, ""
    return kept, (
        f"{len(lost)} of {complete} rounds left out (the first is round {lost[0] + 1}): not recorded as exactly one "
        "iteration of each variant"
    )
