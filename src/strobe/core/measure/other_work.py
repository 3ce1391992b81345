"""Whether this machine is busy with other programs, or slows down: measurements are then slower and less steady."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

LOOK_S = 0.2
# Share of the cores from which other work is worth a line: a desktop at rest uses a few per cent.
NOTABLE = 0.25
_STAT = Path("/proc/stat")
# What says how torch's threads wait for each other; the first is a standard that each OpenMP reads when it is loaded.
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


@dataclass(frozen=True)
class OtherWork:
    """The time that other programs took of this machine while this one slept.

    Args:
        cores: that this process may run on.
        busy: cores' worth of time that others took, 0 to ``cores``.
        waiting: programs that ran or waited for a core, on average; ``busy`` where the system does not say.
    """

    cores: int
    busy: float
    waiting: float

    @property
    def times_as_long(self) -> float:
        """Return how many times as long work on all cores takes while the others run, if each gets an equal share."""
        return 1 + max(self.busy, self.waiting) / self.cores

    def words(self, *, timed: bool = True) -> str | None:
        """Describe the other work in a line; None on a machine at rest.

        Args:
            timed: whether times are measured while it runs.
        """
        if self.busy < NOTABLE * self.cores:
            return None
        taken = max(1, round(self.busy))
        busy = f"{taken} of {self.cores} cores {'is' if taken == 1 else 'are'} busy with other work"
        wide = "expect wide confidence intervals; " if timed else ""
        return f"{busy}: {wide}work on the CPU takes about {self.times_as_long:.2g} times as long"


def usable_processors() -> list[int]:
    """Return the numbers of the processors that this process may run on."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def look(seconds: float = LOOK_S) -> OtherWork:
    """Sleep ``seconds``, and return what others took of the cores meanwhile; nothing where it cannot be read."""
    usable = usable_processors()
    try:
        before = _time_taken(usable)
        waiting = _sleep(seconds)
        after = _time_taken(usable)
    except (OSError, IndexError, RuntimeError, psutil.Error):
        return OtherWork(len(usable), 0.0, 0.0)
    whole, taken, all_taken = (now - then for now, then in zip(after, before, strict=True))
    if whole <= 0:
        return OtherWork(len(usable), 0.0, 0.0)
    busy = len(usable) * min(max(taken / whole, 0.0), 1.0)
    # Programs that give way, and those on cores that this one may not run on, are among those that wait.
    yielding = taken / all_taken if all_taken > 0 else 0.0
    return OtherWork(len(usable), busy, waiting * yielding if waiting is not None else busy)


def give_way() -> str | None:
    """Have the threads of torch, which is not imported yet, sleep while they wait for each other.

    Threads that spin take the core from the thread that they wait for, where programs share the cores.

    Returns:
        A note that says so; None if it cannot be done any more, or the user has said how they wait.
    """
    if "torch" in sys.modules or waiting():
        return None
    os.environ[WAITING[0]] = "passive"
    return (
        f"torch's threads sleep while they wait for each other ({waiting()}), which is quicker on a busy machine: hold "
        "these times against runs with the same setting"
    )


def waiting() -> str:
    """Return the settings of how torch's threads wait, such as 'OMP_WAIT_POLICY=passive', that are not torch's own."""
    return ", ".join(f"{name}={os.environ[name]}" for name in WAITING if os.environ.get(name))


def _time_taken(usable: list[int]) -> tuple[float, float, float]:
    """Return seconds of the ``usable`` cores: all; those that were taken from this process; those that were taken.

    Work of a lower priority (`nice`) takes nothing from a process of the usual one.
    """
    each = psutil.cpu_times(percpu=True)
    gives_way = psutil.Process().nice() <= 0 if os.name == "posix" else False
    whole = taken = all_taken = 0.0
    for index, times in enumerate(each):
        fields = {name: getattr(times, name) for name in times._fields if not name.startswith("guest")}
        used = sum(fields.values()) - fields["idle"] - fields.get("iowait", 0.0)
        all_taken += used
        if index in usable:
            whole += sum(fields.values())
            taken += used - (fields.get("nice", 0.0) if gives_way else 0.0)
    return whole, taken, all_taken


def _sleep(seconds: float) -> float | None:
    """Sleep, and return how many other programs ran or waited for a core, on average; None if it is not known."""
    seen: list[int] = []
    end = time.monotonic() + seconds
    while (remaining := end - time.monotonic()) > 0:
        time.sleep(min(remaining, seconds / 8))
        with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
            line = next(line for line in _STAT.read_text().splitlines() if line.startswith("procs_running"))
            seen.append(max(int(line.split()[1]) - 1, 0))  # the reader runs
    return sum(seen) / len(seen) if seen else None


class MachinePace:
    """Times a fixed piece of work (0.1 ms) now and then: it takes longer once the CPU's clock has fallen."""

    EVERY_S = 0.05

    def __init__(self) -> None:
        self._took: list[float] = []
        self._due = 0.0

    def look_if_due(self) -> None:
        """Do the work, unless that was done a moment ago."""
        if (begun := time.perf_counter()) >= self._due:
            sum(range(6000))
            self._took.append(time.perf_counter() - begun)
            self._due = begun + self.EVERY_S

    def change(self) -> float | None:
        """Return the time in the last quarter over that in the first (medians); None after few looks."""
        few = len(self._took) // 4
        first = median(self._took[:few]) if few >= 5 else 0.0
        return median(self._took[-few:]) / first if first > 0 else None
