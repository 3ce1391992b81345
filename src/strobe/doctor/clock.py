"""The clocks against known work, at once and minutes later.

A clock can be wrong in two ways: its length of a millisecond depends on what is timed, which shows when twice the work
does not take twice the time; or it runs at another rate than others do, which shows after minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

import torch

from strobe.core.results.numerals import format_fixed
from strobe.core.timeline.clock import DeviceClock, device_clock, host_ns, synchronise
from strobe.doctor.results import SelfCheck

Work = Callable[[int], None]  # does so many units of work, and waits until they are done

SLEEP_S = 0.02
SLEEPS = 5
UNIT_MS = 20.0  # duration of known work: much longer than its launch
TIMES = 7
# Twice the work may take between these many times as long: caches and clocks ramp up within a few milliseconds.
TWICE = (1.8, 2.2)
MAX_DIFFERENCE = 0.05  # largest relative difference between host and device time of the same work
# A clock is steered by time servers by up to 500 parts in a million (adjtimex(2), ntpd), so two good ones may drift
# apart by that.
DRIFT_PPM = 500.0
READ_MS = 2.0  # closest that two clocks can be read together on a busy machine


@dataclass(frozen=True)
class Moment:
    """The same moment on each clock, in nanoseconds; the device's is None if there is none."""

    host: int
    wall: int
    device: int | None


@dataclass
class Clocks:
    """The clocks that Strobe times with, and the wall clock to compare them with.

    Args:
        device: stamps points on an accelerator's stream; None for a CPU.
        host: nanoseconds of the clock that sections are timed with.
        wall: nanoseconds of the system's time of day.
        sleep: waits for so many seconds.
    """

    device: DeviceClock | None = None
    host: Callable[[], int] = host_ns
    wall: Callable[[], int] = time.time_ns
    sleep: Callable[[float], None] = time.sleep

    def now(self) -> Moment:
        """Read all clocks, as close together as it goes: the best of a few readings."""
        moments: list[tuple[int, Moment]] = []
        for _ in range(5):
            first = self.host()
            wall = self.wall()
            mark = None if self.device is None else self.device.read()
            last = self.host()
            device = None if self.device is None else self.device.resolve([mark])[0]
            moments.append((last - first, Moment((first + last) // 2, wall, device)))
        return min(moments, key=lambda pair: pair[0])[1]


def choose_clocks(device: torch.device) -> Clocks:
    """Return the clocks for work on ``device``."""
    return Clocks(device_clock(device))


def make_work(device: torch.device, host: Callable[[], int] = host_ns) -> Work:
    """Return work in units of about `UNIT_MS`: products of square matrices on ``device``."""
    side = 256 if device.type == "cpu" else 2048
    square = torch.ones(side, side, device=device)
    out = torch.empty_like(square)

    def products(count: int) -> None:
        for _ in range(count):
            torch.mm(square, square, out=out)
        synchronise(device)

    for _ in range(20):  # threads start, clocks ramp up
        products(1)
    each = 1
    while each < 1 << 20:  # so many that launching and waiting are small in comparison
        took = []
        for _ in range(3):
            began = host()
            products(each)
            took.append((host() - began) / 1e6)
        if min(took) >= UNIT_MS / 2:
            break
        each *= 2
    return lambda units: products(each * units)


def check_clocks(clocks: Clocks, work: Work) -> Iterator[SelfCheck]:
    """Compare the clocks with what is known: a sleep, and twice the same work."""
    yield _sleeping(clocks)
    yield _twice(clocks, work)
    if clocks.device is not None:
        yield _compare_with_host_clock(clocks, clocks.device, work)


def later(clocks: Clocks, first: Moment) -> Iterator[SelfCheck]:
    """Compare the clocks with each other over the time since ``first``."""
    now = clocks.now()
    yield _drift("the host's clock over minutes", "the time of day", now.host - first.host, now.wall - first.wall)
    if now.device is not None and first.device is not None:
        device, host = now.device - first.device, now.host - first.host
        yield _drift("the device's clock over minutes", "the host's clock", device, host)


def _sleeping(clocks: Clocks) -> SelfCheck:
    seen = []
    for _ in range(SLEEPS):
        began = clocks.host()
        clocks.sleep(SLEEP_S)
        seen.append((clocks.host() - began) / 1e6)
    requested, shortest, usual = SLEEP_S * 1e3, min(seen), median(seen)
    name = "the host's clock and a sleep"
    figures = {"asked_ms": requested, "shortest_ms": shortest, "median_ms": usual}
    text = f"a sleep of {requested:g} ms is timed as {usual:.2f} ms (shortest {shortest:.2f} ms, {SLEEPS} tries)"
    if shortest < 0.99 * requested:
        means = "A sleep never ends early: this clock runs slow or jumps back."
        return _clock_check(name, text, means, figures, good=False)
    return SelfCheck.judge(
        "clock",
        name,
        usual <= 2 * requested,
        text,
        "The system wakes a process late: a control loop will miss its ticks here.",
        "Close other programs. On a laptop choose the power mode for performance.",
        evidence=figures,
    )


def _twice(clocks: Clocks, work: Work) -> SelfCheck:
    name = "twice the work takes twice the time"
    clock = "the host's clock" if clocks.device is None else "the device's clock"
    ratios, single = [], []
    for _ in range(TIMES):
        single_ms, double_ms = _time_work(clocks, work, 1), _time_work(clocks, work, 2)
        single.append(single_ms)
        ratios.append(double_ms / single_ms if single_ms > 0 else 0.0)
    ratio = median(ratios)
    figures = {"ratio": ratio, "ms": median(single), "tries": float(TIMES)}
    text = f"{ratio:.3f} times as long by {clock} (median of {TIMES} pairs of about {median(single):.0f} ms)"
    if min(ratios) > TWICE[1] or max(ratios) < TWICE[0]:  # else it does at times: the machine is uneven, not its clock
        return _clock_check(name, text, "You cannot trust any time of this clock.", figures, good=False)
    return SelfCheck.judge(
        "clock",
        name,
        TWICE[0] <= ratio <= TWICE[1],
        text,
        "Work of one size takes very different times here: other programs run, or clocks change.",
        "Close other programs, then run `strobe doctor` again.",
        evidence=figures,
    )


def _compare_with_host_clock(clocks: Clocks, device: DeviceClock, work: Work) -> SelfCheck:
    name = "the device's clock and the host's"
    ratios = []
    for _ in range(TIMES):
        began = clocks.host()
        first = device.read()
        work(2)
        last = device.read()
        took = clocks.host() - began
        start, end = device.resolve([first, last])
        if start is None or end is None or took <= 0:
            continue
        ratios.append((end - start) / took)
    ratio = median(ratios) if ratios else 0.0
    text = f"the device's clock gives {ratio:.3f} of the host's time for the same work ({len(ratios)} tries)"
    figures = {"ratio": ratio, "tries": float(len(ratios))}
    means = "Times of parts come from the device's clock, and do not fit the host's."
    return _clock_check(name, text, means, figures, good=1 - MAX_DIFFERENCE <= ratio <= 1 + MAX_DIFFERENCE)


def _drift(name: str, other: str, mine: int, theirs: int) -> SelfCheck:
    seconds = theirs / 1e9
    apart_ms = (mine - theirs) / 1e6
    ppm = (mine - theirs) / theirs * 1e6 if theirs > 0 else 0.0
    allowed_ms = READ_MS + DRIFT_PPM * 1e-6 * max(seconds, 0.0) * 1e3
    shown, share = format_fixed(apart_ms, 2, plus=True), format_fixed(ppm, 0, plus=True)
    text = f"{shown} ms against {other} in {seconds:.0f} s ({share} parts in a million)"
    figures = {"apart_ms": apart_ms, "seconds": seconds, "ppm": ppm}
    means = f"It drifts or jumps: at most {allowed_ms:.1f} ms are expected."
    return _clock_check(name, text, means, figures, good=abs(apart_ms) <= allowed_ms)


def _time_work(clocks: Clocks, work: Work, units: int) -> float:
    """Milliseconds of so many units of work, by the device's clock where there is one."""
    if clocks.device is None:
        began = clocks.host()
        work(units)
        return (clocks.host() - began) / 1e6
    first = clocks.device.read()
    work(units)
    start, end = clocks.device.resolve([first, clocks.device.read()])
    return 0.0 if start is None or end is None else (end - start) / 1e6


def _clock_check(name: str, seen: str, means: str, figures: Mapping[str, float], *, good: bool) -> SelfCheck:
    """A clock that fails, unless it is ``good``."""
    do = "Do not trust times of this machine; a virtual machine may need another clock source."
    return SelfCheck.judge("clock", name, good, seen, means, do, bad="fails", evidence=figures)
