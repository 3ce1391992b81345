"""Rules on how well the work fits the machine."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import (
    CENTURY_MS,
    CUDA_GRAPHS,
    Part,
    examined_measurements,
    first_level,
    ms,
    percent,
    subtract_share,
    whole_ms,
)
from strobe.core.results import units
from strobe.core.results.answer import BreakdownResult, Result
from strobe.core.results.finding import Finding, warning
from strobe.core.results.measurement import host_and_device
from strobe.core.results.numerals import significant
from strobe.core.results.subject import Machine

MIN_KERNEL_SHARE = 0.05  # share of the time: with less, memory that stays with the process cannot pay
MIN_PAGE_FAULTS = 1000  # per iteration: fewer are a process's start
MIN_GAP_COST = 0.1  # least slow-down of calls at the robot's pace against calls back to back
HALF_FASTER = 1.5  # ceiling in half precision over that in float32: with less, changing the dtype buys little

HALF = ("bfloat16", "float16")
SHORT = {"bfloat16": "bf16", "float16": "fp16"}  # dtypes as --precision calls them
# glibc's names (mallopt(3)): 64 GiB until memory is given back, and 256 MiB of address space at a time.
IN_ENVIRONMENT = "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=68719476736 MALLOC_TOP_PAD_=268435456"
KEEP_MEMORY = (
    "On Linux, measure the fix with `strobe compare --variant memory=kept`. `strobe optimize` applies it if it "
    "saves time, and writes it into the recipe. For a program without a recipe, put this before the command: "
    f"{IN_ENVIRONMENT}."
)


def host_bound(result: Result, _: Thresholds) -> Iterator[Finding]:
    for measurement in examined_measurements(result):
        parts = host_and_device(measurement)
        if parts.waits_for_host:
            yield warning(
                rule="host-bound",
                title=f"The device waits for the host in the {measurement.phase}",
                found=f"The parts of {units.quote(measurement.name)} take {ms(parts.host_ms)} on the host and "
                f"{ms(parts.device_ms)} on {result.machine.device_name}, waiting included.",
                why="If the device were the limit, the host would run ahead of it. Here Python and kernel launches "
                "set the pace, so a faster device would change nothing. A part that ends with a synchronisation "
                "(.item(), .cpu()) looks alike.",
                do=f"Try {CUDA_GRAPHS}; --operators shows the gaps.",
                gain="unknown before you try it: events do not separate waiting from work",
            )


def memory_churn(result: Result, _: Thresholds) -> Iterator[Finding]:
    """Memory of tensors that goes back to the operating system and is fetched again, page by page, on every call."""
    for measurement in examined_measurements(result):
        kernel, faults = measurement.memory.kernel_ms, measurement.memory.page_faults
        if kernel is None or faults is None or measurement.clock == "device":
            continue
        whole, threads = whole_ms(measurement), max(result.machine.threads, 1)
        share = kernel / threads / whole if whole > 0 else 0.0
        if share >= MIN_KERNEL_SHARE and faults >= MIN_PAGE_FAULTS:
            saved = min(share, 1.0)
            seen = (
                f"{ms(kernel)} of operating-system time over {threads} threads and {faults:,} page faults "
                f"({faults * 4096 / 2**20:,.0f} MiB) in every call of '{measurement.name}' ({ms(whole)})."
            )
            gain = (
                f"about {percent(saved)}: without kernel time the {measurement.phase} would go from {ms(whole)} to "
                f"{ms(subtract_share(whole, saved))} (computed); the memory stays with the process"
            )
            fixed = [m.name for m in result.measurements if any(each.key == "memory" for each in m.traits.treatments)]
            do = KEEP_MEMORY
            if fixed:
                do = f"Use '{fixed[0]}' of this comparison; `strobe optimize` writes it into recipe.yaml."
            yield from churn(measurement.phase, share, seen, do, gain)


def churn(what: str, share: float, seen: str, do: str, gain: str) -> Iterator[Finding]:
    yield warning(
        rule="memory-churn",
        title=f"The {what} spends {percent(share)} of its time on page faults of the operating system",
        found=seen,
        why="The C library gives the buffer of each freed large tensor back to the operating system. For the next "
        "tensor it fetches a buffer again, and the operating system zeroes and maps each page again.",
        do=do,
        gain=gain,
        evidence={"gain_share": min(share, 1.0)},
    )


def single_precision(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    # A part's FLOP, time and share of the ceiling give the ceiling that its share is of. This lies between those of
    # float32 and of half precision as the part's FLOP do.
    dtypes, gflops = result.subject.dtypes, result.machine.ceiling.gflops
    half = max(HALF, key=lambda dtype: dtypes.get(dtype, 0))
    if dtypes.get(half, 0) <= dtypes.get("float32", 0) or not {half, "float32"} <= gflops.keys():
        return
    slow, fast = gflops["float32"], gflops[half]
    if not (1e-6 < slow < 1e12 and 1e-6 < fast < 1e12 and fast >= HALF_FASTER * slow and fast > slow):
        return
    for measurement in examined_measurements(result):
        whole = whole_ms(measurement)
        for part in first_level(measurement):
            reached, gflop = _ceiling_share(part), sum(component.gflop or 0.0 for component in part.components)
            if reached is None or gflop <= 1e-12 or part.share < thresholds.big_part:
                continue
            seconds = sum(fmean(c.values) for c in part.components if c.values) / 1e3
            ceiling = gflop / (seconds * reached) if seconds > 1e-12 else 0.0
            if not slow * 0.99 <= ceiling <= fast * 1.01:
                continue
            single = min(max((1 / ceiling - 1 / fast) / (1 / slow - 1 / fast), 0.0), 1.0)
            if single < 0.5:
                continue
            of_time = single / slow / (single / slow + (1 - single) / fast)
            saved = min(part.share, 1.0) * of_time * (1 - slow / fast)
            yield warning(
                rule="single-precision",
                title=f"The {part.name} computes in float32, although the weights are mostly {half}",
                found=f"{percent(single)} of the part's {significant(gflop)} GFLOP, in {ms(part.ms)} of "
                f"{units.quote(measurement.name)}. Here a large product runs at {significant(slow, 4)} GFLOP/s in "
                f"float32 and {significant(fast, 4)} GFLOP/s in {half}.",
                why="A cast to float32 before a part makes every product in the part run at the slower rate.",
                do=f"`strobe compare --precision {SHORT[half]}` shows how much time the whole policy in {half} saves, "
                f"and how far its actions change. --variant 'NAME: precision={SHORT[half]}, precision.part=MODULE' "
                "shows that for one part.",
                gain=f"at most: at {half}'s rate the {measurement.phase} would go from {ms(whole)} to "
                f"{ms(subtract_share(whole, saved))} (computed from the measured peaks)",
                evidence={"gain_share": saved},
            )


def half_slower(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    gflops = result.machine.ceiling.gflops
    wide = gflops.get("float32", 0.0)
    for measurement in examined_measurements(result):
        counts = [part.gflop_by_dtype for part in measurement.components if part.depth == 1 and not part.other]
        for half in HALF:
            rate, gflop = gflops.get(half, 0.0), sum(count.get(half, 0.0) for count in counts)
            whole = whole_ms(measurement)
            if not (1e-6 < rate * HALF_FASTER <= wide < 1e12) or whole <= 0:
                continue
            saved = min(1e3 * gflop * (1 / rate - 1 / wide) / whole, 1.0)
            if saved >= thresholds.big_part:
                yield warning(
                    rule="half-slower",
                    title=f"The {measurement.phase} computes in {half}, in which this machine is slower",
                    found=f"Here a large product runs at {significant(rate, 4)} GFLOP/s in {half} and at "
                    f"{significant(wide, 4)} GFLOP/s in float32; {significant(gflop, 4)} GFLOP of "
                    f"{units.quote(measurement.name)} ({ms(whole)}) are in {half}.",
                    why="The CPU's 16-bit instructions may be slower. Weights in 16 bits then save memory, but no "
                    "time.",
                    do="`strobe compare --precision fp32` shows how much time the whole policy in float32 saves. If "
                    "two copies of the weights do not fit into memory, --variant 'NAME: precision=fp32, "
                    "precision.part=MODULE' takes one part.",
                    gain=f"about {percent(saved)}: at float32's rate the {measurement.phase} would go from "
                    f"{ms(whole)} to {ms(subtract_share(whole, saved))} (computed from the measured peaks)",
                    evidence={"gain_share": saved},
                )


def gap_costs(result: BreakdownResult, _: Thresholds) -> Iterator[Finding]:
    gap = result.gap
    if gap is None or not {gap.baseline, gap.candidate} <= {m.name for m in result.measurements}:
        return
    ratio, interval = gap.verdict.ratio, gap.verdict.interval
    if gap.verdict.kind == "slower" and ratio >= 1 + MIN_GAP_COST:
        together, paced = result.measurement(gap.baseline), result.measurement(gap.candidate)
        fast = whole_ms(together)
        every = f"with a call every {ms(paced.cadence.period_ms)}" if paced.cadence is not None else "after a gap"
        yield warning(
            rule="gap-costs",
            title=f"At the robot's pace a call takes {percent(ratio - 1)} longer than back to back",
            found=f"{ms(whole_ms(paced))} {every}, {ms(fast)} back to back: {percent(ratio - 1)} "
            f"[{percent(interval.low - 1)}, {percent(interval.high - 1)}] more, {gap.verdict.pairs:,} pairs.",
            why="A benchmark without gaps promises a latency that the robot does not get. In the gaps clocks may fall "
            "and caches may lose their content.",
            do=steadier_clocks(result.machine),
            gain=f"at best {ms(fast)} per call, as measured back to back",
            evidence={"gain_share": 1 - 1 / ratio},
        )


def steadier_clocks(machine: Machine) -> str:
    """Return what keeps the clocks of ``machine`` up in the gaps between calls."""
    steps = []
    if machine.device.startswith("cuda"):
        steps.append("Lock the GPU's clocks (sudo nvidia-smi -lgc MIN,MAX; nvidia-smi -rgc unlocks them).")
    if machine.system.startswith("Linux"):
        governor = machine.power.get("governor", "")
        if governor == "performance":
            steps.append(
                "The CPU's governor is already 'performance'. Deep sleep states may still cost time: sudo cpupower "
                "idle-set -D 10 switches them off."
            )
        else:
            now = f" (it is '{governor}')" if governor else ", if this machine has one"
            steps.append(f"Set the CPU's governor{now}: sudo cpupower frequency-set -g performance.")
    steps.append("Then measure again. If nothing changes, plan with the time at the robot's pace.")
    return " ".join(steps)


def _ceiling_share(part: Part) -> float | None:
    # Of several components of a name: the time at the ceiling of all over the time they took.
    shares = [component.ceiling_share for component in part.components]
    took = sum(sum(component.values) for component in part.components)
    if took <= 0 or any(share is None or not 0 < share <= CENTURY_MS for share in shares):
        return None
    least = sum((share or 0.0) * sum(c.values) for share, c in zip(shares, part.components, strict=True))
    return least / took if least > 0 else None


RULES = (memory_churn, host_bound, single_precision, half_slower)
