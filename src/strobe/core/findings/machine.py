"""Rules on how well the work fits the machine."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import (
    CENTURY_MS,
    CUDA_GRAPHS,
    Part,
    examined,
    first_level,
    free,
    ms,
    percent,
    top,
    whole_ms,
    without,
)
from strobe.core.results.answer import Result
from strobe.core.results.device_waits import host_and_device
from strobe.core.results.finding import Finding
from strobe.core.results.numerals import significant

MIN_KERNEL_SHARE = 0.05  # share of the time: with less, memory that stays with the process cannot pay
MIN_PAGE_FAULTS = 1000  # per iteration: fewer are a process's start
LOW_CEILING = 0.1  # share of the measured ceiling: a big part under it is bound by something else than arithmetic
HALF_FASTER = 1.5  # ceiling in half precision over that in float32: with less, changing the dtype buys little
# Milliseconds up to which a part is good, and over which it is poor, on Apple silicon (the RTC profiling toolkit).
MPS_MS = {"policy": (150.0, 250.0), "preprocessing": (20.0, 50.0)}

HALF = ("bfloat16", "float16")
SHORT = {"bfloat16": "bf16", "float16": "fp16"}  # dtypes as --precision calls them
# glibc's names (mallopt(3)): 64 GiB until memory is given back, and 256 MiB of address space at a time.
IN_ENVIRONMENT = "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=68719476736 MALLOC_TOP_PAD_=268435456"
KEEP_MEMORY = (
    "On Linux: `strobe compare --variant 'kept: memory=kept'` judges it. `strobe optimize` uses it if it saves "
    f"time, and a recipe contains it. For lerobot-rollout or another program without a recipe, put {IN_ENVIRONMENT} "
    "before the command."
)


def host_bound(result: Result, _: Thresholds) -> Iterator[Finding]:
    """An accelerator that waits for Python to tell it what to do."""
    for measurement in examined(result):
        parts = host_and_device(measurement)
        if not parts.waits_for_host:
            continue
        host, device = parts.host_ms, parts.device_ms
        yield Finding(
            rule="host-bound",
            level="warning",
            title=f"The device waits for the host in the {measurement.phase}",
            seen=f"The parts take {ms(host)} on the host and {ms(device)} on {result.machine.device_name}, waiting "
            f"included, in '{measurement.name}'.",
            why="If the device is the limit, the host runs ahead of it. Here Python and kernel launches set the "
            "pace. A faster device would change nothing.",
            do=f"Try {CUDA_GRAPHS}; --operators shows the gaps.",
            gain="not known before you try it: events do not separate waiting from working",
            evidence={"host_ms": host, "device_ms": device, "host_over_device": host / device},
        )


def memory_churn(result: Result, _: Thresholds) -> Iterator[Finding]:
    """Tensors whose memory is given back to the kernel and fetched again, page by page, on every call."""
    for measurement in examined(result):
        kernel, faults = measurement.memory.kernel_ms, measurement.memory.page_faults
        if kernel is None or faults is None or measurement.clock == "device":
            continue
        whole, threads = whole_ms(measurement), max(result.machine.threads, 1)
        share = kernel / threads / whole if whole > 0 else 0.0
        if share < MIN_KERNEL_SHARE or faults < MIN_PAGE_FAULTS:
            continue
        saved = min(share, 1.0)
        yield churn_finding(
            measurement.phase,
            share,
            seen=f"{ms(kernel)} of kernel time over {threads} threads and {faults:,} page faults "
            f"({faults * 4096 / 2**20:,.0f} MiB) in every iteration of '{measurement.name}' ({ms(whole)}).",
            do=KEEP_MEMORY,
            gain=f"about {percent(saved)}: without kernel time the {measurement.phase} would go from "
            f"{ms(whole)} to {ms(without(whole, saved))} (computed); the memory stays with the process",
            evidence={"kernel_ms": kernel, "page_faults": faults, "gain_share": saved},
        )


def churn_finding(
    what: str, share: float, *, seen: str, do: str, gain: str, evidence: dict[str, float | str | None]
) -> Finding:
    """Return the finding on ``what`` (such as 'training step'), which fetches memory for ``share`` of its time."""
    return Finding(
        rule="memory-churn",
        level="warning",
        title=f"The {what} spends {percent(share)} of its time in the kernel, fetching memory",
        seen=seen,
        why="When a tensor is freed, the C library gives its large buffer back to the kernel. It fetches a buffer "
        "again for the next tensor, and the kernel zeroes and maps each page again.",
        do=do,
        gain=gain,
        evidence=evidence,
    )


def below_ceiling(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    """A big part that does its arithmetic at a small share of what the machine was measured to do."""
    for measurement in examined(result):
        for part in first_level(measurement):
            reached = _ceiling_share(part)
            if reached is None or part.share < thresholds.big_part or reached >= LOW_CEILING:
                continue
            saved = min(part.share, 1.0) * (1 - reached)
            yield Finding(
                rule="below-ceiling",
                level="info",
                title=f"{part.name} reaches {percent(reached)} of this machine's ceiling",
                seen=f"It takes {ms(part.ms)}, {percent(part.share)} of '{measurement.name}'. Its arithmetic would "
                f"take {ms(part.ms * reached)} at the measured ceiling.",
                why="Something other than arithmetic limits it: reading weights, launches, small shapes, or copies.",
                do="--operators shows which of them. Larger batches, compilation and smaller data types each remove "
                "one of them.",
                gain=f"at most: at the ceiling the {measurement.phase} would go from {ms(whole_ms(measurement))} to "
                f"{ms(without(whole_ms(measurement), saved))} (computed)",
                evidence={
                    "part": part.name,
                    "share": part.share,
                    "part_ms": part.ms,
                    "ceiling_share": reached,
                    "gain_share": saved,
                },
            )


def single_precision(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    """Weights mostly in half precision, and a big part that computes in float32 all the same.

    A part's FLOP, time and share of the ceiling give the ceiling it was held against, which lies between that of
    float32 and that of half precision as its FLOP do.
    """
    dtypes, gflops = result.subject.dtypes, result.machine.ceiling.gflops
    half = max(HALF, key=lambda dtype: dtypes.get(dtype, 0))
    if dtypes.get(half, 0) <= dtypes.get("float32", 0) or not {half, "float32"} <= gflops.keys():
        return
    slow, fast = gflops["float32"], gflops[half]
    if not (1e-6 < slow < 1e12 and 1e-6 < fast < 1e12 and fast >= HALF_FASTER * slow and fast > slow):
        return
    for measurement in examined(result):
        for part in first_level(measurement):
            reached, gflop = _ceiling_share(part), sum(c.gflop or 0.0 for c in part.components)
            if reached is None or gflop <= 1e-12 or part.share < thresholds.big_part:
                continue
            seconds = sum(fmean(c.values) for c in part.components if c.values) / 1e3
            held_against = gflop / (seconds * reached) if seconds > 1e-12 else 0.0
            if not slow * 0.99 <= held_against <= fast * 1.01:
                continue
            single = min(max((1 / held_against - 1 / fast) / (1 / slow - 1 / fast), 0.0), 1.0)
            if single < 0.5:
                continue
            of_time = single / slow / (single / slow + (1 - single) / fast)
            saved = min(part.share, 1.0) * of_time * (1 - slow / fast)
            yield Finding(
                rule="single-precision",
                level="warning",
                title=f"{part.name} computes in float32, though the weights are mostly {half}",
                seen=f"{percent(single)} of its {significant(gflop)} GFLOP, in {ms(part.ms)} of '{measurement.name}'. "
                f"Here a large product runs at {significant(slow, 4)} GFLOP/s in float32 and {significant(fast, 4)} in "
                f"{half}.",
                why="A cast to float32 before a part makes every product in the part run at the slower rate.",
                do=f"`strobe compare --precision {SHORT[half]}` shows how much time the whole policy in {half} "
                "saves, and how far its actions move. --variant 'NAME: precision=…, precision.part=MODULE' shows "
                "that for one part.",
                gain=f"at most: at {half}'s rate the {measurement.phase} would go from {ms(whole_ms(measurement))} to "
                f"{ms(without(whole_ms(measurement), saved))} (computed from the ceilings)",
                evidence={
                    "part": part.name,
                    "share": part.share,
                    "float32_share_of_flop": single,
                    "float32_gflops": slow,
                    "half_gflops": fast,
                    "gain_share": saved,
                },
            )


def half_slower(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    """Products in half precision on a machine that is slower in it than in float32."""
    gflops = result.machine.ceiling.gflops
    wide = gflops.get("float32", 0.0)
    for measurement in examined(result):
        counts = [part.gflop_by_dtype for part in measurement.components if part.depth == 1 and not part.other]
        for half in HALF:
            rate, gflop = gflops.get(half, 0.0), sum(count.get(half, 0.0) for count in counts)
            whole = whole_ms(measurement)
            if not (1e-6 < rate * HALF_FASTER <= wide < 1e12) or whole <= 0:
                continue
            saved = min(1e3 * gflop * (1 / rate - 1 / wide) / whole, 1.0)
            if saved < thresholds.big_part:
                continue
            yield Finding(
                rule="half-slower",
                level="warning",
                title=f"The {measurement.phase} computes in {half}, in which this machine is slower",
                seen=f"Here a large product runs at {significant(rate, 4)} GFLOP/s in {half} and at "
                f"{significant(wide, 4)} in float32; "
                f"{significant(gflop, 4)} GFLOP of '{measurement.name}' ({ms(whole)}) are in {half}.",
                why="A CPU may have instructions for 16 bits that take longer. Weights in 16 bits then save memory, "
                "and no time.",
                do="`strobe compare --precision fp32` shows how much time the whole policy in float32 saves. If two "
                "copies of the weights do not fit into memory, --variant 'NAME: precision=fp32, "
                "precision.part=MODULE' takes one part.",
                gain=f"about {percent(saved)}: at float32's rate the {measurement.phase} would go from {ms(whole)} to "
                f"{ms(without(whole, saved))} (computed from the ceilings)",
                evidence={"half_gflops": rate, "float32_gflops": wide, "gflop": gflop, "gain_share": saved},
            )


def several_nodes(result: Result, _: Thresholds) -> Iterator[Finding]:
    """Threads on more than one memory node: some of what they read comes from another node."""
    machine = result.machine
    if not machine.device.startswith("cpu") or machine.nodes < 2 or machine.threads * machine.nodes <= machine.cores:
        return
    yield Finding(
        rule="several-nodes",
        level="info",
        title=f"{machine.threads} threads lie on {machine.nodes} memory nodes (NUMA)",
        seen=f"{machine.cores} processors on {machine.nodes} nodes.",
        why="A thread waits longer for weights that lie on another node. A call on one observation has little work "
        "for many threads, and may be faster on one node.",
        do="Run the command again with `numactl --cpunodebind=0 --membind=0` before it, and compare both runs: "
        "`strobe diff RUN RUN`.",
        evidence={"nodes": float(machine.nodes), "threads": float(machine.threads)},
    )


def apple(result: Result, _: Thresholds) -> Iterator[Finding]:
    """Policies whose times on Apple silicon are known, against what others saw there."""
    if not result.machine.device.startswith("mps") or not result.subject.mps_known:
        return
    for measurement in examined(result, "inference"):
        for name, (good, poor) in MPS_MS.items():
            component = top(measurement, name)
            if component is None:
                continue
            if component.ms > poor:
                level, judgement = "warning", "poor"
            elif component.ms > good:
                level, judgement = "info", "acceptable"
            else:
                level, judgement = "good", "good"
            yield Finding(
                rule=f"mps-{name}",
                level=level,
                title=f"{name} takes {ms(component.ms)}: {judgement} for MPS",
                seen=f"{ms(component.ms)} of {ms(whole_ms(measurement))} in '{measurement.name}'.",
                why=f"On Apple silicon up to {ms(good)} is good and over {ms(poor)} poor "
                "(the RTC profiling toolkit, for this policy).",
                do="" if level == "good" else "Find the biggest part, and check that it ran on the device.",
                gain="" if level == "good" else free(measurement, component.share),
                evidence={"part_ms": component.ms, "good_ms": good, "poor_ms": poor},
            )


def _ceiling_share(part: Part) -> float | None:
    # Of several components of a name: the time at the ceiling of all over the time they took.
    shares = [component.ceiling_share for component in part.components]
    took = sum(sum(component.values) for component in part.components)
    if took <= 0 or any(share is None or not 0 < share <= CENTURY_MS for share in shares):
        return None
    least = sum((share or 0.0) * sum(c.values) for share, c in zip(shares, part.components, strict=True))
    return least / took if least > 0 else None


RULES = (memory_churn, host_bound, below_ceiling, single_precision, half_slower, several_nodes, apple)
