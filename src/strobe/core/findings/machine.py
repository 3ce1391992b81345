"""Rules on how well the work fits the machine."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from strobe.core.findings.texts import Evidence, Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import (
    CENTURY_MS,
    CUDA_GRAPHS,
    Part,
    examined_measurements,
    first_level,
    free,
    ms,
    percent,
    subtract_share,
    top,
    whole_ms,
)
from strobe.core.results.answer import BreakdownResult, Result
from strobe.core.results.device_waits import host_and_device
from strobe.core.results.finding import Finding
from strobe.core.results.numerals import significant
from strobe.core.results.subject import Machine

MIN_KERNEL_SHARE = 0.05  # share of the time: with less, memory that stays with the process cannot pay
MIN_PAGE_FAULTS = 1000  # per iteration: fewer are a process's start
MIN_GAP_COST = 0.1  # least slow-down of calls at the robot's pace against calls back to back
LOW_CEILING = 0.1  # share of the measured ceiling: a big part under it is bound by something else than arithmetic
HALF_FASTER = 1.5  # ceiling in half precision over that in float32: with less, changing the dtype buys little
# Milliseconds up to which a part is good, and over which it is poor, on Apple silicon (the RTC profiling toolkit).
MPS_MS = {"policy": (150.0, 250.0), "preprocessing": (20.0, 50.0)}

HALF = ("bfloat16", "float16")
SHORT = {"bfloat16": "bf16", "float16": "fp16"}  # dtypes as --precision calls them
# glibc's names (mallopt(3)): 64 GiB until memory is given back, and 256 MiB of address space at a time.
IN_ENVIRONMENT = "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=68719476736 MALLOC_TOP_PAD_=268435456"
KEEP_MEMORY = (
    "On Linux, measure the fix with `strobe compare --variant memory=kept`. `strobe optimize` applies it if it "
    "saves time, and writes it into the recipe. For a program without a recipe, put this before the command: "
    f"{IN_ENVIRONMENT}."
)


@finding("host-bound", "warning")
def host_bound(result: Result, _: Thresholds) -> Found:
    """The device waits for the host in the {measurement.phase}.

    Found: The parts of {measurement.name:name} take {host_ms:ms} on the host and {device_ms:ms} on
        {result.machine.device_name}, waiting included.
    Why: If the device were the limit, the host would run ahead of it. Here Python and kernel launches set the pace, so
        a faster device would change nothing.
    Do: Try {graphs}; --operators shows the gaps.
    Gain: unknown before you try it: events do not separate waiting from work
    """
    for measurement in examined_measurements(result):
        parts, graphs = host_and_device(measurement), CUDA_GRAPHS
        if parts.waits_for_host:
            host, device = parts.host_ms, parts.device_ms
            yield {"host_ms": host, "device_ms": device, "host_over_device": host / device}, locals()


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
            evidence: Evidence = {"kernel_ms": kernel, "page_faults": faults, "gain_share": saved}
            fixed = [m.name for m in result.measurements if any(each.key == "memory" for each in m.traits.treatments)]
            do = KEEP_MEMORY
            if fixed:
                do = f"Use '{fixed[0]}' of this comparison; `strobe optimize` writes it into recipe.yaml."
            yield from churn(measurement.phase, share, seen, do, gain, evidence)


@finding("memory-churn", "warning")
def churn(what: str, share: float, seen: str, do: str, gain: str, evidence: Evidence) -> Found:
    """The {what} spends {share:percent} of its time on page faults of the operating system.

    Found: {seen}
    Why: The C library gives the buffer of each freed large tensor back to the operating system. For the next tensor it
        fetches a buffer again, and the operating system zeroes and maps each page again.
    Do: {do}
    Gain: {gain}
    """
    yield evidence


@finding("below-ceiling", "info")
def ceiling_gap(result: Result, thresholds: Thresholds) -> Found:
    """The {part} reaches {ceiling_share:percent} of this machine's peak.

    Found: The {part} takes {part_ms:ms}, {share:percent} of {measurement.name:name}. Its arithmetic would take
        {at_ceiling:ms} at the measured peak.
    Why: The limit is not arithmetic but reading weights, launches, small shapes, or copies.
    Do: Repeat with --operators to see the cause. Compilation removes launches, smaller data types reduce the reading of
        weights, and a larger batch helps small shapes.
    Gain: at most: at the peak the {measurement.phase} would go from {whole:ms} to {rest:ms} (computed)
    """
    for measurement in examined_measurements(result):
        whole = whole_ms(measurement)
        for part in first_level(measurement):
            reached = _ceiling_share(part)
            if reached is not None and part.share >= thresholds.big_part and reached < LOW_CEILING:
                saved, at_ceiling = min(part.share, 1.0) * (1 - reached), part.ms * reached
                rest = subtract_share(whole, saved)
                evidence = {"part": part.name, "share": part.share, "part_ms": part.ms}
                yield {**evidence, "ceiling_share": reached, "gain_share": saved}, locals()


@finding("single-precision", "warning")
def single_precision(result: Result, thresholds: Thresholds) -> Found:
    """The {part} computes in float32, although the weights are mostly {half}.

    Found: {single:percent} of the part's {gflop:figures} GFLOP, in {took:ms} of {measurement.name:name}. Here a large
        product runs at {slow_rate} GFLOP/s in float32 and {fast_rate} GFLOP/s in {half}.
    Why: A cast to float32 before a part makes every product in the part run at the slower rate.
    Do: `strobe compare --precision {short}` shows how much time the whole policy in {half} saves, and how far its
        actions change. --variant 'NAME: precision={short}, precision.part=MODULE' shows that for one part.
    Gain: at most: at {half}'s rate the {measurement.phase} would go from {whole:ms} to {rest:ms} (computed from the
        measured peaks)
    """
    # A part's FLOP, time and share of the ceiling give the ceiling that its share is of. This lies between those of
    # float32 and of half precision as the part's FLOP do.
    dtypes, gflops = result.subject.dtypes, result.machine.ceiling.gflops
    half = max(HALF, key=lambda dtype: dtypes.get(dtype, 0))
    if dtypes.get(half, 0) <= dtypes.get("float32", 0) or not {half, "float32"} <= gflops.keys():
        return
    slow, fast = gflops["float32"], gflops[half]
    if not (1e-6 < slow < 1e12 and 1e-6 < fast < 1e12 and fast >= HALF_FASTER * slow and fast > slow):
        return
    short, slow_rate, fast_rate = SHORT[half], significant(slow, 4), significant(fast, 4)
    for measurement in examined_measurements(result):
        whole = whole_ms(measurement)
        for part in first_level(measurement):
            reached, gflop, took = _ceiling_share(part), sum(c.gflop or 0.0 for c in part.components), part.ms
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
            rest = subtract_share(whole, saved)
            evidence = {"part": part.name, "share": part.share, "float32_share_of_flop": single}
            yield {**evidence, "float32_gflops": slow, "half_gflops": fast, "gain_share": saved}, locals()


@finding("half-slower", "warning")
def half_slower(result: Result, thresholds: Thresholds) -> Found:
    """The {measurement.phase} computes in {half}, in which this machine is slower.

    Found: Here a large product runs at {half_rate} GFLOP/s in {half} and at {wide_rate} GFLOP/s in float32; {count}
        GFLOP of {measurement.name:name} ({whole:ms}) are in {half}.
    Why: The CPU's 16-bit instructions may be slower. Weights in 16 bits then save memory, but no time.
    Do: `strobe compare --precision fp32` shows how much time the whole policy in float32 saves. If two copies of the
        weights do not fit into memory, --variant 'NAME: precision=fp32, precision.part=MODULE' takes one part.
    Gain: about {gain_share:percent}: at float32's rate the {measurement.phase} would go from {whole:ms} to {rest:ms}
        (computed from the measured peaks)
    """
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
                half_rate, wide_rate, count = (significant(number, 4) for number in (rate, wide, gflop))
                rest = subtract_share(whole, saved)
                evidence = {"half_gflops": rate, "float32_gflops": wide, "gflop": gflop, "gain_share": saved}
                yield evidence, locals()


@finding("several-nodes", "info")
def several_nodes(result: Result, _: Thresholds) -> Found:
    """{machine.threads} threads use {machine.nodes} memory nodes (NUMA).

    Found: {machine.cores} processors on {machine.nodes} nodes.
    Why: A thread waits longer for weights that lie on another node. A call on one observation has little work for many
        threads, and may be faster on one node.
    Do: Put `numactl --cpunodebind=0 --membind=0` before the command, run it again, and compare both runs with `strobe
        diff RUN RUN`.
    """
    machine = result.machine
    if machine.device.startswith("cpu") and machine.nodes >= 2 and machine.threads * machine.nodes > machine.cores:
        yield {"nodes": float(machine.nodes), "threads": float(machine.threads)}, {"machine": machine}


@finding("mps-{name}", "{level}")
def apple(result: Result, _: Thresholds) -> Found:
    """The {name} takes {part_ms:ms}: {judgement} for MPS.

    Found: {part_ms:ms} of {whole:ms} in {measurement.name:name}.
    Why: On Apple silicon up to {good_ms:ms} is good and over {poor_ms:ms} poor (the RTC profiling toolkit, for this
        policy).
    Do: {do}
    Gain: {gain}
    """
    if not result.machine.device.startswith("mps") or not result.subject.mps_known:
        return
    for measurement in examined_measurements(result, "inference"):
        for name, (good, poor) in MPS_MS.items():
            component, whole = top(measurement, name), whole_ms(measurement)
            if component is None:
                continue
            level, judgement, do, gain = "good", "good", "", ""
            if component.ms > good:
                level, judgement = ("warning", "poor") if component.ms > poor else ("info", "acceptable")
                do = "Find the biggest part, and check that it runs on the device."
                gain = free(measurement, component.share)
            yield {"part_ms": component.ms, "good_ms": good, "poor_ms": poor}, locals()


@finding("gap-costs", "warning")
def gap_costs(result: BreakdownResult, _: Thresholds) -> Found:
    """At the robot's pace a call takes {ratio:more} longer than back to back.

    Found: {slow:ms} {every}, {fast:ms} back to back: {ratio:more} [{low:more}, {high:more}] more, {gap.verdict.pairs:,}
        pairs.
    Why: A benchmark without gaps promises a latency that the robot does not get. In the gaps clocks fall and caches
        lose their content.
    Do: {do}
    Gain: at best {fast:ms} per call, as measured back to back
    """
    gap = result.gap
    if gap is None or not {gap.baseline, gap.candidate} <= {m.name for m in result.measurements}:
        return
    ratio, interval = gap.verdict.ratio, gap.verdict.interval
    if gap.verdict.kind == "slower" and ratio >= 1 + MIN_GAP_COST:
        together, paced = result.measurement(gap.baseline), result.measurement(gap.candidate)
        fast, slow, do = whole_ms(together), whole_ms(paced), steadier_clocks(result.machine)
        every = f"with a call every {ms(paced.cadence.period_ms)}" if paced.cadence is not None else "after a gap"
        yield {"ratio": ratio, "low": interval.low, "high": interval.high, "gain_share": 1 - 1 / ratio}, locals()


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


RULES = (memory_churn, host_bound, ceiling_gap, single_precision, half_slower, several_nodes, apple)
