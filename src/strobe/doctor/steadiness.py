"""Steadiness: other load, a quota, power and a GPU's clock; and noise, the same compared with itself."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil

from strobe.core.measure.sampling import SamplingBudget, collect
from strobe.core.measure.verdicts import paired_verdict
from strobe.doctor.results import SelfCheck

OTHERS_CORES = 0.25  # processor time of other programs, in cores, from which on they are in the way
LOOK_S = 1.0
# Bits of nvidia-smi's clocks_throttle_reasons.active (NVML, nvmlClocksThrottleReasons); idle and settings of the
# user's own are none of them.
GPU_REASONS: Mapping[int, str] = {
    0x04: "its power limit",
    0x08: "a slow-down by the hardware",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "a power brake",
}


def own_group(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> Path:
    """Return the folder of this process's control group for processor time; ``root`` where nothing says."""
    group = root
    with contextlib.suppress(OSError, ValueError):
        for line in groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            # A container sees its own group as the root, and may be told a path that is not there.
            if "cpu" in controllers.split(","):
                return next(
                    folder for folder in (root / "cpu" / path.lstrip("/"), root / "cpu", root) if folder.is_dir()
                )
            if not controllers:
                group = next(folder for folder in (root / path.lstrip("/"), root) if folder.is_dir())
    return group


@dataclass
class System:
    """Where the state of the machine is read (Linux).

    Args:
        group: the folder of this process's control group for processor time; of version 1 or 2.
    """

    group: Path = field(default_factory=own_group)

    def quota_cores(self) -> float | None:
        """Return how many cores' time this process may use; None if there is no limit."""
        with contextlib.suppress(OSError, ValueError):
            quota, period = (self.group / "cpu.max").read_text().split()
            return None if quota == "max" else int(quota) / int(period)
        with contextlib.suppress(OSError, ValueError):
            limit = int((self.group / "cpu.cfs_quota_us").read_text())
            return None if limit < 0 else limit / int((self.group / "cpu.cfs_period_us").read_text())
        return None

    def held_up(self) -> tuple[int, float] | None:
        """Return how often the quota has stopped this group, and for how many seconds; None if nothing says."""
        with contextlib.suppress(OSError, ValueError):
            pairs = (line.split() for line in (self.group / "cpu.stat").read_text().splitlines())
            counters = {name: int(value) for name, value in pairs}
            if "nr_throttled" in counters:  # version 2 counts microseconds, version 1 nanoseconds
                seconds = counters.get("throttled_usec", 0) / 1e6 + counters.get("throttled_time", 0) / 1e9
                return counters["nr_throttled"], seconds
        return None


def examine_steadiness(
    system: System, held_up_before: tuple[int, float] | None, power: Mapping[str, str]
) -> Iterator[SelfCheck]:
    """Yield the self-checks of what else slows this machine down.

    Args:
        system: where the quota is read.
        held_up_before: what it said before there was work to do (`System.held_up`).
        power: the machine's power facts (`measure.machine.describe`).
    """
    yield others()
    yield from _quota(system, held_up_before)
    yield from _power(power)
    yield from _gpu(power)


def others(look_s: float = LOOK_S, processes: Callable[[], Sequence[psutil.Process]] | None = None) -> SelfCheck:
    """Return how much processor time programs other than this one take, with the busiest of them.

    Args:
        look_s: seconds to look for.
        processes: those that count as others; by default all but this one and its children.
    """
    watched = list((processes or _others)())
    before = {process.pid: _cpu_s(process) for process in watched}
    began = time.perf_counter()
    time.sleep(look_s)
    seconds = time.perf_counter() - began
    used = {process.pid: max(_cpu_s(process) - before[process.pid], 0.0) / seconds for process in watched}
    total = sum(used.values())
    busiest = sorted(watched, key=lambda process: -used[process.pid])[:3]
    named = ", ".join(f"{_name(process)} {used[process.pid]:.1f}" for process in busiest if used[process.pid] >= 0.05)
    seen = f"{total:.1f} cores' time over {seconds:.1f} s" + (f": {named}" if named else "")
    return SelfCheck.judge(
        "steadiness",
        "other programs",
        total <= OTHERS_CORES,
        seen,
        "They share cores and memory with the measurement: times grow and scatter.",
        "Close the other programs, then run `strobe doctor` again.",
    )


def _quota(system: System, before: tuple[int, float] | None) -> Iterator[SelfCheck]:
    cores, after = system.quota_cores(), system.held_up()
    if cores is None and (after is None or before is None):
        return
    times, seconds = 0, 0.0
    if after is not None and before is not None:
        times, seconds = after[0] - before[0], after[1] - before[1]
    limit = f"at most {cores:.2g} of {os.cpu_count()} cores" if cores is not None else "no limit"
    fewer = f"OMP_NUM_THREADS={max(1, int(cores))}, or a larger quota (docker run --cpus)" if cores is not None else ""
    yield SelfCheck.judge(
        "steadiness",
        "processor quota",
        not times,
        f"{limit}; stopped {times} times, {seconds:.1f} s in all, while this ran",
        "The system stops all threads when the quota is used up: single calls stall for tens of ms.",
        fewer,
    )


def _power(power: Mapping[str, str]) -> Iterator[SelfCheck]:
    governor, supply = power.get("governor"), power.get("supply", "")
    if governor is None and not supply:
        return
    slow = governor in ("powersave", "conservative") or supply.startswith("battery")
    seen = ", ".join([*([f"governor {governor}"] if governor else []), *([supply] if supply else [])])
    yield SelfCheck.judge(
        "steadiness",
        "power mode",
        not slow,
        seen,
        "Clocks follow the load late, or stay low: short calls at a robot's rate are slower.",
        "sudo cpupower frequency-set -g performance; plug a laptop in",
    )


def _gpu(power: Mapping[str, str]) -> Iterator[SelfCheck]:
    reasons = power.get("throttled because")
    if reasons is None:
        return
    with contextlib.suppress(ValueError):
        bits = int(reasons, 16)
        reasons = [words for bit, words in GPU_REASONS.items() if bits & bit]
        now, largest, heat = (power.get(name, "?") for name in ("sm clock", "largest sm clock", "temperature"))
        clock = f"{now} of {largest}, {heat} °C"
        yield SelfCheck.judge(
            "steadiness",
            "the GPU's clock",
            not reasons,
            clock + (f"; held down by {', '.join(reasons)}" if reasons else ""),
            "The GPU runs below its clock: times depend on heat and power.",
            "nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE shows more",
        )


def _others() -> list[psutil.Process]:
    mine = psutil.Process()
    family = {mine.pid, *(child.pid for child in mine.children(recursive=True))}
    return [process for process in psutil.process_iter() if process.pid not in family]


def _cpu_s(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error, OSError):
        times = process.cpu_times()
        return times.user + times.system
    return 0.0


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error, OSError):
        return process.name()
    return "one that has ended"


TRIES = 12
PAIRS = 20
TRY_S = 2.0  # time for one try, on a machine where a call takes long
# A claim is wrong in about 1 % of such tries (see core/measure/verdicts.py): three of twelve happen once in 5,000 runs.
MOST_CLAIMS = 2
WIDE = 0.05  # the smallest difference that could be shown; beyond it most treatments' gains are lost in the noise


def examine_noise(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> Iterator[SelfCheck]:
    """Compare ``call`` with itself, `TRIES` times, as ``strobe compare`` compares.

    Args:
        call: one run of something that takes milliseconds.
        clock: seconds.
    """

    def time_call() -> float:
        began = clock()
        call()
        return (clock() - began) * 1e3

    claims, widths, usual, pairs = 0, [], [], []
    for _ in range(TRIES):
        budget = SamplingBudget(iterations=PAIRS, seconds=TRY_S)
        collected = collect({"a": time_call, "b": time_call}, budget, clock=clock)
        if collected.interrupted:  # it keeps its rounds; here Ctrl-C ends all
            raise KeyboardInterrupt
        first, second = collected.samples["a"].values, collected.samples["b"].values
        verdict = paired_verdict(first, second)
        pairs.append(verdict.pairs)
        claims += verdict.kind in ("faster", "slower")
        widths.append(max(verdict.interval.high / verdict.ratio, verdict.ratio / verdict.interval.low) - 1)
        usual.append(median(first))
    width = median(widths)
    yield SelfCheck.judge(
        "noise",
        "verdicts on the same (A/A)",
        claims <= MOST_CLAIMS,
        f"{claims} of {TRIES} comparisons of the same work with itself claim a difference; 1 in 100 is expected",
        "You cannot trust the verdicts 'faster' and 'slower' here: something changes the pace between calls.",
        "Close other programs, fix the clocks' rate (a power mode without boost), then run it again.",
        bad="fails",
    )
    yield SelfCheck.judge(
        "noise",
        "smallest detectable difference",
        width <= WIDE,
        f"{100 * width:.1f} % with {median(pairs):.0f} pairs of a {median(usual):.1f} ms call",
        "The noise hides small gains: comparisons need more time here.",
        "Close other programs, or give comparisons more time: --seconds=120",
    )
