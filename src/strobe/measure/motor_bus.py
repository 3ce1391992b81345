"""Figures of a motor bus, from its reads; and of the control thread's turns on a CPU."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from strobe.measure.rollout import quantiles
from strobe.results.motor_bus import Bus


@dataclass(frozen=True)
class BusRead:
    """One synchronous read of all motors.

    Args:
        lost, damaged: tries that ended without an answer, and with one that could not be read.
        waiting: bytes that lay in the port's input before the question; -1 unknown.
        cpu_ns: time that the reading thread ran on a CPU.
        waited_ns: time that it waited for one; -1 unknown.
        arm: its name, where the robot has several.
    """

    start_ns: int
    end_ns: int
    lost: int
    damaged: int
    waiting: int
    cpu_ns: int
    waited_ns: int = 0
    arm: str = ""

    @property
    def ms(self) -> float:
        return (self.end_ns - self.start_ns) / 1e6


def buses(reads: Sequence[BusRead], begin_ns: int) -> list[Bus]:
    """The figures of each arm's bus, with moments in seconds from ``begin_ns``.

    A read that found bytes waiting gets the answers to an earlier question. Whatever is in the port before the first
    read counts too.
    """
    arms = dict.fromkeys(read.arm for read in reads)
    return [_bus([read for read in reads if read.arm == arm], begin_ns, arm) for arm in arms]


def worst(buses: Sequence[Bus]) -> Bus | None:
    """The bus with the most old answers, then the most failed tries, then the slowest reads; None of none."""
    return max(buses, key=lambda bus: (bus.stale, bus.lost + bus.damaged, bus.ms.median), default=None)


def _bus(reads: Sequence[BusRead], begin_ns: int, arm: str) -> Bus:
    stale = [read for read in reads if read.waiting > 0]
    failed = [read for read in reads if read.lost or read.damaged]
    whole = [read for read in reads if not read.lost and not read.damaged] or list(reads)
    whole_ns = [(read, read.end_ns - read.start_ns) for read in whole if read.end_ns > read.start_ns]
    ran = [min(1.0, read.cpu_ns / took) for read, took in whole_ns]
    blocked = [max(0.0, 1 - (read.cpu_ns + max(0, read.waited_ns)) / took) for read, took in whole_ns]
    return Bus(
        arm=arm,
        ms=quantiles([read.ms for read in whole]),
        on_cpu=statistics.median(ran or [1.0]),
        blocked=statistics.median(blocked or [0.0]),
        lost=sum(read.lost for read in reads),
        damaged=sum(read.damaged for read in reads),
        failed_reads=len(failed),
        failed_ms=quantiles([read.ms for read in failed]) if failed else None,
        stale=len(stale),
        stale_from_s=(stale[0].start_ns - begin_ns) / 1e9 if stale else None,
        stale_at_end=bool(stale) and stale[-1] is reads[-1],
    )
