"""Rules on traces of torch.profiler: a device that waits, launches, copies, collectives, ranks, a host beside torch.

A share is one of the time under the profiler, which slows the host. How long the program takes without it nobody knows
here, so a finding says what the trace has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import NANOSECOND_MS, ms, percent
from strobe.core.results.finding import Finding
from strobe.traces.findings.profiles import BETWEEN_OPERATORS, IDLE_DEVICE, MANY_KERNELS, SMALL_KERNEL_US
from strobe.traces.results import DeviceTime, Gaps, LongGap, TraceAnswer, TracedRank, short_kernel

BUSY_DEVICE = 0.95  # share from which only faster kernels make the program faster
LAUNCH_BOUND = 0.05  # share of the device's time that it idles in launch-bound stretches
HOST_WAITS = 0.05  # share of the device's time for which the host waits …
STILL_IDLE = 0.05  # … while the device idles for as much: without that, the host is simply ahead
COPIES = 0.05  # share in which copies run and no kernel does
COLLECTIVES = 0.1  # share in which collectives run and nothing is computed
RANK_WAITS = 0.05  # share of a rank's time that it waits for others
LATE = 0.75  # share of the collectives in which a rank comes last from which it is the late one

GRAPHS = "CUDA graphs, as torch.compile(mode='reduce-overhead') makes them, or larger batches"
# In the names of calls that take milliseconds only when they are made for the first time.
FIRST_CALLS = ("malloc", "free", "hostalloc", "launchkernel", "moduleload", "getdeviceproperties")
PROFILED = "The profiler slows the host, so a part of these gaps is its own."


def device_idle(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    """Gaps in a device's timeline."""
    found = _worst(answer, lambda device: _share(device.gaps.idle_ms, device), IDLE_DEVICE)
    if found is None:
        return
    rank, device, share, others = found
    gaps = device.gaps
    causes = ", ".join(f"{cause.cause} {ms(cause.ms)}" for cause in gaps.causes)
    yield Finding(
        rule="trace-device-idle",
        level="warning",
        title=f"The device idles for {percent(share)} of its time in the trace",
        seen=f"{_where(rank, device)}: idle for {ms(gaps.idle_ms)} of {ms(gaps.span_ms)}, from its first work to its "
        f"last, in {gaps.gaps:,} gaps over {gaps.threshold_us:g} µs{f' ({causes})' if causes else ''}."
        f"{_longest(gaps)}{others}",
        why=f"In a gap the device waits: for the host to launch work, or for a copy or a synchronisation. {PROFILED}",
        do=_mend(gaps),
        gain=_gain(gaps.span_ms, gaps.idle_ms),
        evidence={"idle_share": share, "idle_ms": gaps.idle_ms, "span_ms": gaps.span_ms, "gain_share": share},
    )


def launch_bound(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    """Stretches in which each kernel begins as soon as it is launched, and the device idles between them."""
    found = _worst(answer, _launch_share, LAUNCH_BOUND)
    if found is None:
        return
    rank, device, share, others = found
    bound = device.launch_bound
    assert bound is not None
    within = f", in {bound.within}" if bound.within else ""
    yield Finding(
        rule="trace-launch-bound",
        level="warning",
        title=f"For {percent(_share(bound.ms, device))} of its time the device is as fast as the host launches",
        seen=f"{_where(rank, device)}: {bound.kernels:,} kernels, in {_stretches(bound.stretches)}, "
        f"that each began within 10 µs of their launch; they take {ms(bound.ms)}, of which {ms(bound.idle_ms)} without "
        f"any work. The longest takes {ms(bound.longest_ms)}{within}.{others}",
        why=f"Each kernel is over before the host has launched the next one. {PROFILED}",
        do=f"Fewer launches: {GRAPHS}; fused or foreach operators.",
        gain=_gain(device.gaps.span_ms, bound.idle_ms),
        evidence={"launch_bound_ms": bound.ms, "idle_ms": bound.idle_ms, "gain_share": share},
    )


def small_kernels(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    """Kernels so small that starting them costs as much as they do, on a device that is not always busy."""
    for rank in answer.ranks:
        kernels = sum(device.kernels for device in rank.devices)
        small = sum(device.small_kernels for device in rank.devices)
        idle = max((_share(device.gaps.idle_ms, device) for device in rank.devices), default=0.0)
        its = rank.iterations
        each = kernels / max(len(its.ms), 1) if its is not None else kernels
        if small <= kernels / 2 or each <= MANY_KERNELS or idle < STILL_IDLE:
            continue
        per = f"{each:,.0f} in each {its.name}" if its is not None else "in the whole trace"
        yield Finding(
            rule="trace-small-kernels",
            level="warning",
            title="The program is many small kernels",
            seen=f"{rank.name}: {kernels:,} kernels ({per}), of which {small:,} take less than {SMALL_KERNEL_US:g} µs; "
            f"the device idles for {percent(idle)} of its time.",
            why="Each operator costs Python and a launch, however small it is.",
            do=f"Launch fewer and larger ones: {GRAPHS}.",
            gain="not known before it is tried; what the device is idle for is the most it can be",
            evidence={"kernels": kernels, "small_kernels": small, "idle_share": idle},
        )
        return


def host_waits(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    """Synchronisations and copies that hold the host, while the device runs dry."""
    for rank in answer.ranks:
        span = max((device.gaps.span_ms for device in rank.devices), default=0.0)
        waited = sum(sync.ms for sync in rank.syncs) + sum(copy.waited_ms for copy in rank.copies)
        idle = max((device.gaps.idle_ms for device in rank.devices), default=0.0)
        if span < NANOSECOND_MS or waited < HOST_WAITS * span or idle < STILL_IDLE * span:
            continue
        calls = sum(sync.calls for sync in rank.syncs) + sum(copy.waited for copy in rank.copies)
        named = [f"{sync.calls:,} × {sync.name} {ms(sync.ms)}" for sync in rank.syncs]
        named += [f"{copy.waited:,} × {copy.kind} {ms(copy.waited_ms)}" for copy in rank.copies if copy.waited]
        callers = dict.fromkeys(name for one in (*rank.copies, *rank.syncs) for name in one.callers)
        yield Finding(
            rule="trace-host-waits",
            level="warning",
            title=f"The host waits for the device {calls:,} times, for {percent(waited / span)} of its time",
            seen=f"{rank.name}: {ms(waited)} in {'; '.join(named[:4])}. The device idles for {ms(idle)} of {ms(span)}."
            + (f" The calls come from {', '.join(list(callers)[:4])}." if callers else ""),
            why="While it waits the host launches nothing: the device runs dry, and the next kernels come one by one.",
            do="Look for .item(), .cpu(), .nonzero(), boolean masks and prints in the loop; keep such values on the "
            "device, or read them once in many steps. Copies from pinned memory with non_blocking=True do not wait.",
            gain="not known before it is tried; what the device is idle for is the most it can be",
            evidence={"waited_ms": waited, "calls": calls, "idle_ms": idle},
        )
        return


def exposed_copies(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    """Copies that no kernel hides."""
    found = _worst(answer, lambda device: _share(device.exposed_copies_ms, device), COPIES)
    if found is None:
        return
    rank, device, share, others = found
    kinds = ", ".join(f"{copy.calls:,} × {copy.kind} {ms(copy.ms)}" for copy in rank.copies[:3])
    pageable = any("Pageable" in copy.kind and "HtoD" in copy.kind for copy in rank.copies)
    yield Finding(
        rule="trace-exposed-copies",
        level="warning",
        title=f"{percent(share)} of the device's time is copies that overlap no kernel",
        seen=f"{_where(rank, device)}: {ms(device.exposed_copies_ms)} of {ms(device.gaps.span_ms)}, of "
        f"{ms(device.copies_ms)} in copies ({kinds}).{others}",
        why="The device moves data and computes nothing during that time.",
        do=("Pin the memory of batches (DataLoader(pin_memory=True)): these come from pageable memory. " * pageable)
        + "Copy the next batch on a stream of its own, with non_blocking=True, while this one is computed.",
        gain=_gain(device.gaps.span_ms, device.exposed_copies_ms),
        evidence={"copies_share": share, "copies_ms": device.exposed_copies_ms, "gain_share": share},
    )


def exposed_collectives(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    """Collectives during which nothing is computed."""
    found = _worst(answer, lambda device: _share(device.exposed_communication_ms, device), COLLECTIVES)
    if found is None:
        return
    rank, device, share, others = found
    unknown = "" if answer.waits is not None else " How much of it is waiting for a slow rank, one trace cannot show."
    yield Finding(
        rule="trace-exposed-collectives",
        level="warning",
        title=f"Collectives without computing beside them take {percent(share)} of the device's time",
        seen=f"{_where(rank, device)}: {ms(device.exposed_communication_ms)} of {ms(device.gaps.span_ms)}, of "
        f"{ms(device.communication_ms)} in collectives.{unknown}{others}",
        why="The device exchanges data with other ranks, or waits for them, and computes nothing during that time.",
        do="Give the traces of all ranks to `strobe report` to see who waits. Then let collectives run beside the "
        "computing: smaller or larger buckets of DDP, prefetching of FSDP, embeddings exchanged earlier."
        if answer.waits is None
        else "Let collectives run beside the computing: buckets of DDP, prefetching of FSDP, an earlier exchange.",
        gain=_gain(device.gaps.span_ms, device.exposed_communication_ms),
        evidence={"share": share, "exposed_ms": device.exposed_communication_ms, "gain_share": share},
    )


def late_rank(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    """Ranks that wait for others in collectives."""
    waits = answer.waits
    if waits is None or not waits.ranks:
        return
    spans = {rank.name: max((d.gaps.span_ms for d in rank.devices), default=0.0) for rank in answer.ranks}
    longest = max(waits.ranks, key=lambda rank: rank.waiting_ms)
    latest = max(waits.ranks, key=lambda rank: rank.last)
    span = spans.get(longest.name, 0.0)
    if span < NANOSECOND_MS or longest.waiting_ms < RANK_WAITS * span:
        return
    one = latest.last >= LATE * waits.collectives
    shown = ", ".join(f"{rank.name} {ms(rank.waiting_ms)}" for rank in waits.ranks[:8])
    yield Finding(
        rule="trace-late-rank",
        level="warning",
        title=f"The other ranks wait for {latest.name}" if one else "The ranks wait for each other",
        seen=f"In {waits.collectives:,} collectives, waiting beyond the rank that came last: {shown}. {latest.name} "
        f"came last in {latest.last:,} of them.",
        why="A collective ends when the last rank has arrived. Where ranks exchange uneven data, that is a part of the "
        "difference.",
        do=f"Compare the parts of {latest.name} with those of {longest.name}: a larger batch, slower loading, a hotter "
        "card?"
        if one
        else "Even out what differs from batch to batch: lengths, sparse inputs, loading.",
        gain=_gain(span, longest.waiting_ms),
        evidence={"waiting_ms": longest.waiting_ms, "last": latest.last, "gain_share": longest.waiting_ms / span},
    )


def host_between_operators(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    """On a CPU: long stretches in which the host does something else than torch's operators."""
    for rank in answer.ranks:
        host = rank.operators.host
        if rank.devices or host is None or not rank.operators.operator_calls or host.span_ms < NANOSECOND_MS:
            continue
        share = host.long_ms / host.span_ms
        if share < BETWEEN_OPERATORS:
            continue
        yield Finding(
            rule="trace-host-delay",
            level="warning",
            title=f"{percent(share)} of the trace passes in long pauses between torch's operators",
            seen=f"{rank.name}: {ms(host.long_ms)} of {ms(host.span_ms)} in gaps over a millisecond.{_longest(host)}",
            why="No operator costs that much to start: Python, another library, a file or a lock holds the host up.",
            do="Annotate the code around it with torch.profiler.record_function and trace again: then it has a name.",
            gain=_gain(host.span_ms, host.long_ms),
            evidence={"between_share": share, "long_ms": host.long_ms, "gain_share": share},
        )
        return


def device_busy(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    """A device that is always at work."""
    devices = [(rank, device) for rank in answer.ranks for device in rank.devices]
    if not devices or any(_share(device.gaps.busy_ms, device) < BUSY_DEVICE for _, device in devices):
        return
    rank, device = min(devices, key=lambda pair: _share(pair[1].gaps.busy_ms, pair[1]))
    first = rank.operators.kernels[:1]
    yield Finding(
        rule="trace-device-busy",
        level="good",
        title=f"The device is busy for {percent(_share(device.gaps.busy_ms, device))} of its time",
        seen=f"{_where(rank, device)}: {ms(device.gaps.busy_ms)} of {ms(device.gaps.span_ms)}."
        + (f" Most of it is {short_kernel(first[0].name)[:80]}: {ms(first[0].own_ms)}." if first else ""),
        why="A faster host would change nothing: only other kernels, fewer of them or smaller types would.",
    )


_Found = tuple[TracedRank, DeviceTime, float, str]


def _worst(answer: TraceAnswer, share_of: Callable[[DeviceTime], float], limit: float) -> _Found | None:
    """Return the device with the largest share, and in words how many others reach the limit; None if none does."""
    found = [(rank, device, share_of(device)) for rank in answer.ranks for device in rank.devices]
    reached = [each for each in found if each[2] >= limit]
    if not reached:
        return None
    rank, device, share = max(reached, key=lambda each: each[2])
    others = f" Of {len(found):,} devices, {len(reached):,} reach {percent(limit)}." if len(found) > 1 else ""
    return rank, device, share, others


def _share(part_ms: float, device: DeviceTime) -> float:
    return part_ms / device.gaps.span_ms if device.gaps.span_ms >= NANOSECOND_MS else 0.0


def _launch_share(device: DeviceTime) -> float:
    return _share(device.launch_bound.idle_ms, device) if device.launch_bound is not None else 0.0


def _stretches(count: int) -> str:
    return "one stretch" if count == 1 else f"{count:,} stretches"


def _where(rank: TracedRank, device: DeviceTime) -> str:
    several = len(rank.devices) > 1
    return f"{rank.name}{f', device {device.device}' if several else ''}{f' ({device.name})' if device.name else ''}"


def _longest(gaps: Gaps) -> str:
    if not gaps.longest:
        return ""
    return f" The longest gap: {ms(gaps.longest[0].ms)}{_around(gaps.longest[0])}."


def _around(gap: LongGap) -> str:
    places = [f"after {short_kernel(gap.after)[:60]}"] if gap.after else []
    places += [f"before {short_kernel(gap.before)[:60]}"] if gap.before else []
    host = f", while the host was in {short_kernel(gap.host)[:60]}" if gap.host else ""
    return f" {' and '.join(places)}{host}" if places or host else ""


def _mend(gaps: Gaps) -> str:
    """Return what to do about the cause that most of the gaps have, and about long ones."""
    first_calls = sum(gap.ms for gap in gaps.longest if any(word in gap.host.lower() for word in FIRST_CALLS))
    if gaps.long_ms > gaps.idle_ms / 2:
        first = "Most of it is in gaps over a millisecond, which no launch explains: look at what the host did in them"
        if first_calls > gaps.long_ms / 2:
            return f"{first}. These look like first calls (memory, kernels being loaded): trace after a few of them."
        return f"{first}; record_function around loading, logging and first calls names them."
    cause = gaps.causes[0].kind if gaps.causes else None
    if cause in ("wait", "copy"):
        return "Look for .item(), .cpu() and prints in the loop, and read such values once in many steps."
    if cause == "queued":
        return "The work was there: look at what its stream waited for (other streams, events, other processes)."
    return f"The host launches too late: {GRAPHS}. Prepare the next inputs while the device works."


def _gain(span_ms: float, free_ms: float) -> str:
    return f"at most: without it, {ms(span_ms)} would be {ms(max(span_ms - free_ms, 0.0))} (computed)"


RULES = (
    device_idle,
    launch_bound,
    small_kernels,
    host_waits,
    exposed_copies,
    exposed_collectives,
    late_rank,
    host_between_operators,
    device_busy,
)
