"""Rules on traces of torch.profiler: a device that waits, launches, copies, collectives, ranks, a host outside torch.

A share is one of the time under the profiler, which slows the host. How long the program takes without it nobody knows
here, so a finding says what the trace has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import NANOSECOND_MS, ms, percent
from strobe.core.results.finding import Finding, good, warning
from strobe.traces.findings.profiles import BETWEEN_OPERATORS, IDLE_DEVICE, causes_text, longest_gap
from strobe.traces.launches import blindness_text
from strobe.traces.results import DeviceTime, Gaps, TraceAnswer, TracedRank, short_kernel

BUSY_DEVICE = 0.95  # share from which only faster kernels make the program faster
LAUNCH_BOUND = 0.05  # share of the device's time that it idles in launch-bound stretches
HOST_WAITS = 0.05  # share of the device's time for which the host waits …
STILL_IDLE = 0.05  # … while the device idles for as much: without that, the host is simply ahead
COPIES = 0.05  # share in which copies run and no kernel does
COLLECTIVES = 0.1  # share in which collectives run and nothing is computed
RANK_WAITS = 0.05  # share of a rank's time that it waits for others
LATE = 0.75  # share of the collectives in which a rank comes last from which it is the late one
LOST = 0.01  # share of the launches without a kernel
GRAPHS = "CUDA graphs, as torch.compile(mode='reduce-overhead') makes them, or larger batches"
# In the names of calls that take milliseconds only when they are made for the first time.
FIRST_CALLS = ("malloc", "free", "hostalloc", "launchkernel", "moduleload", "getdeviceproperties")
PROFILED = "The profiler slows the host, so a part of these gaps is its own."


def device_idle(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    for rank, device, share, others in _worst(answer, lambda device: device.gaps.idle_ms, IDLE_DEVICE):
        gaps = device.gaps
        yield warning(
            rule="trace-device-idle",
            title=f"The device idles for {percent(share)} of its time in the trace",
            found=f"{rank.device_label(device)}: idle for {ms(gaps.idle_ms)} of {ms(gaps.span_ms)}, from its first "
            f"work to its last, in {gaps.gaps:,} gaps over {gaps.threshold_us:g} "
            f"µs{causes_text(gaps)}.{longest_gap(gaps)}{others}",
            why="In a gap the device waits: for the host to launch work, or for a copy or a synchronisation. "
            f"{PROFILED}",
            do=_gap_remedy(gaps),
            gain=_gain(gaps.span_ms, gaps.idle_ms),
            evidence={"gain_share": share},
        )


def lost_kernels(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    """The trace lacks kernels that ran."""
    for rank in answer.ranks:
        lost, share = rank.lost_launches, rank.lost_launches / max(rank.launches, 1)
        if share < LOST and all(device.gaps.is_judged for device in rank.devices):
            continue
        title = f"{percent(share)} of the launches have no kernel in the trace"
        found = "; ".join(device.lacks for device in rank.devices if device.lacks)
        do = "Trace again, with work on the device before the profiler starts, and a few steps of schedule(warmup=…)."
        if not rank.devices:
            title, found = "The profiler had no access to the device", blindness_text(rank.launches)
            do = "Let the profiler read the device: --cap-add=SYS_ADMIN for a container, on the host the driver's "
            do += "option NVreg_RestrictProfilingToAdminUsers=0, no second profiler (DCGM, Nsight), and no WSL."
        elif not lost:
            title = "Kernels of replayed graphs seem to be missing in the trace"
            do = "Trace fewer replays at a time (schedule(active=1)), or the same work without graphs. While it runs, "
            do += "nvidia-smi or rocm-smi shows whether the device is busy."
        yield warning(
            rule="trace-lost-kernels",
            title=title,
            found=f"{rank.name}: {found}.",
            why="The profiler lost these kernels; the device ran them. Time from which kernels are missing looks idle.",
            do=do,
        )
        return


def launch_bound(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    for rank, device, share, others in _worst(answer, _launch_idle_ms, LAUNCH_BOUND):
        bound = device.launch_bound
        assert bound is not None
        stretches = "one stretch" if bound.stretches == 1 else f"{bound.stretches:,} stretches"
        within = f", in {bound.within}" if bound.within else ""
        yield warning(
            rule="trace-launch-bound",
            title=f"The host's launches limit the device for {percent(device.gaps.share(bound.ms))} of its time",
            found=f"{rank.device_label(device)}: {bound.kernels:,} kernels, in {stretches}, that each began within 10 "
            f"µs of their launch; they take {ms(bound.ms)}, of which {ms(bound.idle_ms)} without any work. The "
            f"longest takes {ms(bound.longest_ms)}{within}.{others}",
            why=f"Each kernel is over before the host has launched the next one. {PROFILED}",
            do=f"Fewer launches: {GRAPHS}; fused or foreach operators.",
            gain=_gain(device.gaps.span_ms, bound.idle_ms),
            evidence={"gain_share": share},
        )


def host_waits(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    for rank, device in _judged_devices(answer):
        share, waited, idle = device.gaps.share(device.waited_ms or 0.0), device.waited_ms, device.gaps.idle_ms
        if waited is None or share < HOST_WAITS or device.gaps.share(idle) < STILL_IDLE:
            continue
        calls = sum(sync.calls for sync in rank.syncs) + sum(copy.waited for copy in rank.copies)
        named = [f"{sync.calls:,} × {sync.name} {ms(sync.ms)}" for sync in rank.syncs]
        named += [f"{copy.waited:,} × {copy.kind} {ms(copy.waited_ms)}" for copy in rank.copies if copy.waited]
        callers = dict.fromkeys(name for one in (*rank.copies, *rank.syncs) for name in one.callers)
        come_from = f" The calls come from {', '.join(list(callers)[:4])}." if callers else ""
        yield warning(
            rule="trace-host-waits",
            title=f"The host waits for the device {calls:,} times, for {percent(share)} of its time",
            found=f"{rank.name}: {ms(waited)} in {'; '.join(named[:4])}. The device idles for {ms(idle)} of "
            f"{ms(device.gaps.span_ms)}.{come_from}",
            why="While it waits the host launches nothing: the device runs dry, and the next kernels come one by one.",
            do="Look for .item(), .cpu(), .nonzero(), boolean masks and prints in the loop; keep such values on the "
            "device, or read them once in many steps. Copies from pinned memory with non_blocking=True do not wait.",
            gain="unknown; at most the idle time of the device",
        )
        return


def exposed_copies(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    for rank, device, share, others in _worst(answer, lambda device: device.exposed_copies_ms, COPIES):
        kinds = ", ".join(f"{copy.calls:,} × {copy.kind} {ms(copy.ms)}" for copy in rank.copies[:3])
        pin = ""
        if any("Pageable" in copy.kind and "HtoD" in copy.kind for copy in rank.copies):
            pin = "Pin the memory of batches (DataLoader(pin_memory=True)): these come from pageable memory. "
        yield warning(
            rule="trace-exposed-copies",
            title=f"Copies that overlap no kernel take {percent(share)} of the device's time",
            found=f"{rank.device_label(device)}: {ms(device.exposed_copies_ms)} of {ms(device.gaps.span_ms)}, of "
            f"{ms(device.copies_ms)} in copies ({kinds}).{others}",
            why="The device moves data and computes nothing during that time.",
            do=f"{pin}Copy the next batch on a stream of its own, with non_blocking=True, while this one is computed.",
            gain=_gain(device.gaps.span_ms, device.exposed_copies_ms),
            evidence={"gain_share": share},
        )


def exposed_collectives(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    for rank, device, share, others in _worst(answer, lambda device: device.exposed_communication_ms, COLLECTIVES):
        unknown = ""
        do = "Let collectives overlap the computation: DDP bucketing, FSDP prefetching, an earlier exchange."
        if answer.waits is None:
            unknown = " One trace cannot show how much of that is waiting for a slow rank."
            do = "Give the traces of all ranks to `strobe report` to see who waits. Then let collectives overlap the "
            do += "computation: smaller or larger DDP buckets, FSDP prefetching, embeddings exchanged earlier."
        yield warning(
            rule="trace-exposed-collectives",
            title=f"Collectives that overlap no computation take {percent(share)} of the device's time",
            found=f"{rank.device_label(device)}: {ms(device.exposed_communication_ms)} of {ms(device.gaps.span_ms)}, "
            f"of {ms(device.communication_ms)} in collectives.{unknown}{others}",
            why="The device exchanges data with other ranks, or waits for them, and computes nothing during that time.",
            do=do,
            gain=_gain(device.gaps.span_ms, device.exposed_communication_ms),
            evidence={"gain_share": share},
        )


def late_rank(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    """Ranks that wait for others in collectives."""
    waits = answer.waits
    if waits is None or not waits.ranks:
        return
    longest = max(waits.ranks, key=lambda rank: rank.waiting_ms)
    latest = max(waits.ranks, key=lambda rank: rank.last)
    devices = next((rank.devices for rank in answer.ranks if rank.name == longest.name), [])
    span = max((device.gaps.span_ms + device.gaps.unjudged_ms for device in devices), default=0.0)
    if span < NANOSECOND_MS or longest.waiting_ms < RANK_WAITS * span:
        return
    title = "The ranks wait for each other"
    do = "Even out what differs from batch to batch: lengths, sparse inputs, loading."
    if latest.last >= LATE * waits.collectives:
        title = f"The other ranks wait for {latest.name}"
        do = f"Compare the parts of {latest.name} with those of {longest.name}. Usual causes: a larger batch, slower "
        do += "loading, thermal throttling."
    shown = ", ".join(f"{rank.name} {ms(rank.waiting_ms)}" for rank in waits.ranks[:8])
    yield warning(
        rule="trace-late-rank",
        title=title,
        found=f"In {waits.collectives:,} collectives, waiting beyond the rank that came last: {shown}. {latest.name} "
        f"came last in {latest.last:,} of them.",
        why="A collective ends when the last rank has arrived. If ranks exchange uneven data, that is a part of the "
        "difference.",
        do=do,
        gain=_gain(span, longest.waiting_ms),
        evidence={"waiting_ms": longest.waiting_ms, "last": latest.last, "gain_share": longest.waiting_ms / span},
    )


def host_between_operators(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    for rank in answer.ranks:
        host = rank.operators.host
        if rank.devices or host is None or not rank.operators.operator_calls or host.span_ms < NANOSECOND_MS:
            continue
        share = host.long_ms / host.span_ms
        if share >= BETWEEN_OPERATORS:
            yield warning(
                rule="trace-host-delay",
                title=f"Long pauses between torch's operators take {percent(share)} of the trace",
                found=f"{rank.name}: {ms(host.long_ms)} of {ms(host.span_ms)} in gaps over a "
                f"millisecond.{longest_gap(host)}",
                why="No operator takes that long to start: Python, another library, a file, a lock or another program "
                "delays the host.",
                do="Annotate the code around it with torch.profiler.record_function, and trace again: the pause then "
                "has a name.",
                gain=_gain(host.span_ms, host.long_ms),
                evidence={"gain_share": share},
            )
            return


def device_busy(answer: TraceAnswer, _: Thresholds) -> Iterator[Finding]:
    shares = [(device.gaps.share(device.gaps.busy_ms), rank, device) for rank, device in _judged_devices(answer)]
    share, rank, device = min(shares, key=lambda each: each[0], default=(0.0, None, None))
    if rank is not None and device is not None and share >= BUSY_DEVICE:
        first = rank.operators.kernels[:1]
        most = f" Most of it is {short_kernel(first[0].name)[:80]}: {ms(first[0].own_ms)}." if first else ""
        yield good(
            rule="trace-device-busy",
            title=f"The device is busy for {percent(share)} of its time",
            found=f"{rank.device_label(device)}: {ms(device.gaps.busy_ms)} of {ms(device.gaps.span_ms)}.{most}",
            why="A faster host would change nothing. Only other kernels, fewer kernels or smaller dtypes make it "
            "faster.",
        )


def _judged_devices(answer: TraceAnswer) -> list[tuple[TracedRank, DeviceTime]]:
    return [(rank, device) for rank in answer.ranks for device in rank.devices if device.gaps.is_judged]


_Worst = tuple[TracedRank, DeviceTime, float, str]


def _worst(answer: TraceAnswer, ms_of: Callable[[DeviceTime], float], limit: float) -> list[_Worst]:
    """Return the device with the largest share, and in words how many others reach the limit; [] if none does."""
    found = [(rank, device, device.gaps.share(ms_of(device))) for rank, device in _judged_devices(answer)]
    reached = [each for each in found if each[2] >= limit]
    others = f" Of {len(found):,} devices, {len(reached):,} reach {percent(limit)}." if len(found) > 1 else ""
    return [(*each, others) for each in sorted(reached, key=lambda each: -each[2])[:1]]


def _launch_idle_ms(device: DeviceTime) -> float:
    return device.launch_bound.idle_ms if device.launch_bound is not None else 0.0


def _gap_remedy(gaps: Gaps) -> str:
    first_calls = sum(gap.ms for gap in gaps.longest if any(word in gap.host.lower() for word in FIRST_CALLS))
    if gaps.long_ms > gaps.idle_ms / 2:
        first = "Most idle time is in gaps over a millisecond, which no launch explains: look for the host's work there"
        if first_calls > gaps.long_ms / 2:
            return f"{first}. They look like first calls (memory, loading of kernels): trace after a few iterations."
        return f"{first}; record_function around loading, logging and first calls names them."
    cause = gaps.causes[0].kind if gaps.causes else None
    if cause in ("wait", "copy"):
        return "Look for .item(), .cpu() and prints in the loop, and read such values once in many steps."
    if cause == "unknown":
        return "The trace does not say when kernels were launched: trace again, with the activities CPU and CUDA."
    if cause == "queued":
        return "Work was launched: look for what its stream waits for (other streams, events, other processes)."
    return f"Launch the work earlier: {GRAPHS}. Prepare the next inputs while the device works."


def _gain(span_ms: float, free_ms: float) -> str:
    return f"at most: {ms(span_ms)} → {ms(max(span_ms - free_ms, 0.0))} without it (computed)"


RULES = (
    lost_kernels,
    device_idle,
    launch_bound,
    host_waits,
    exposed_copies,
    exposed_collectives,
    late_rank,
    host_between_operators,
    device_busy,
)
