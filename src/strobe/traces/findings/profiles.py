"""Rules on what profilers saw: a device that waits, operators too small for what they cost, Python that sets the pace.

A profiler slows what it watches, and how much of that is idle time nobody knows. So a share is what remains if all that
the profiler can have added to the gaps is reverted, over the time without it: it is at least that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import CUDA_GRAPHS, free, ms, percent, top, whole_ms
from strobe.core.results.answer import Profiled
from strobe.core.results.finding import Evidence, Finding, warning
from strobe.core.results.measurement import Measurement
from strobe.traces.results import Gaps, LongGap, OperatorProfile, PythonFunction, PythonProfile, short_kernel

P = TypeVar("P", bound="OperatorProfile | PythonProfile")

IDLE_DEVICE = 0.2  # share of an iteration in which the device runs nothing
BETWEEN_OPERATORS = 0.2  # share of an iteration on the CPU outside torch's operators
SMALL_KERNEL_US = 10.0  # median kernel: starting one takes as long
MANY_KERNELS = 1000  # kernels in an iteration: fewer small ones do not add up


def device_idle(result: Profiled, _: Thresholds) -> Iterator[Finding]:
    seen, measurement = _profiled_measurement(result, result.operators)
    if seen is None or seen.device is None or measurement is None:
        return
    device, share = seen.device, _least_idle_share(seen.device, measurement)
    if share >= IDLE_DEVICE:
        yield warning(
            rule="device-idle",
            title=f"The device idles for at least {percent(share)} of the {measurement.phase}",
            found=f"Under torch.profiler idle for {ms(device.idle_ms)} of {ms(device.span_ms)}, in {device.gaps:,} "
            f"gaps over {device.threshold_us:g} µs{causes_text(device)}; without it '{measurement.name}' takes "
            f"{ms(whole_ms(measurement))}.{longest_gap(device)}",
            why="In a gap the device waits for the host to launch work, for data, for a copy, or for a "
            "synchronisation.",
            do=f"If the host had launched nothing yet, try {CUDA_GRAPHS}. If it synchronised or copied, look for "
            ".item(), .cpu() and prints in the gaps of the trace. If the gap is before the first kernel, prepare the "
            "next inputs while the device works.",
            gain=free(measurement, share),
            evidence={"gain_share": share},
        )


def many_small_operators(result: Profiled, _: Thresholds) -> Iterator[Finding]:
    seen, measurement = _profiled_measurement(result, result.operators)
    if seen is None or measurement is None:
        return
    if (median := seen.kernel_median_us) is not None:
        # Kernels of a replayed graph cost the host no launch each.
        if median >= SMALL_KERNEL_US or seen.kernel_calls - seen.graph_kernels <= MANY_KERNELS:
            return
        many = f"{seen.kernel_calls:,} kernels and copies, of which half take less than {median:.1f} µs"
        gain = "not known before you try it; the idle time of the device is the most that it can save"
        evidence: Evidence = {}
    elif (share := _python_gap_share(result, seen.host, measurement)) and seen.host and not _long(seen.host):
        many = (
            f"{seen.operator_calls:,} operators, with {ms(seen.host.idle_ms)} of {ms(seen.host.span_ms)} between them "
            f"under torch.profiler: at least {percent(share)} of {ms(whole_ms(measurement))} without it"
        )
        gain = free(measurement, share)
        evidence = {"gain_share": share}
    else:
        return
    yield warning(
        rule="many-small-operators",
        title=f"The {measurement.phase} is many small operators",
        found=f"One iteration of '{measurement.name}' runs {many}.",
        why="Every operator costs time in Python and a launch, even if it computes little.",
        do=f"Try {CUDA_GRAPHS if seen.kernels else '--compile, which fuses them'}, or larger batches.",
        gain=gain,
        evidence=evidence,
    )


def host_delay(result: Profiled, _: Thresholds) -> Iterator[Finding]:
    seen, measurement = _profiled_measurement(result, result.operators)
    if seen is None or seen.host is None or measurement is None or not _long(seen.host):
        return
    if share := _python_gap_share(result, seen.host, measurement):
        host = seen.host
        yield warning(
            rule="host-delay",
            title=f"At least {percent(share)} of the {measurement.phase} passes outside of torch's operators",
            found=f"Under torch.profiler {ms(host.idle_ms)} of {ms(host.span_ms)}, of which {ms(host.long_ms)} in "
            f"gaps over a millisecond; without it '{measurement.name}' takes "
            f"{ms(whole_ms(measurement))}.{longest_gap(host)}",
            why="No launch takes that long. Python, a library other than torch, a file, a lock or another program "
            "holds the host up, and all later work waits.",
            do="--python-profile=cprofile names the function. If its work does not depend on the model's outputs, do "
            "it in a worker at the same time.",
            gain=free(measurement, share),
            evidence={"between_share": share, "long_ms": host.long_ms, "gain_share": share},
        )


def python_time(result: Profiled, _: Thresholds) -> Iterator[Finding]:
    seen, measurement = _profiled_measurement(result, result.python)
    if seen is None or seen.host is None or measurement is None:
        return
    share, on_cpu = _least_idle_share(seen.host, measurement), result.machine.device.startswith("cpu")
    # On an accelerator, Python counts only where the device waits for it.
    idle = _least_idle_share(seen.device, measurement) if seen.device is not None else 0.0
    if share >= BETWEEN_OPERATORS and (on_cpu or idle >= IDLE_DEVICE):
        first = [f for f in seen.functions if f.where != "built in"][:3]
        named = ", ".join(f"{f.name} ({f.where}) {ms(_own(f))}" for f in first) or "none"
        saved = share if on_cpu else min(share, idle)
        yield warning(
            rule="python-time",
            title=f"At least {percent(share)} of the {measurement.phase} is Python and what it calls, outside "
            "torch's operators",
            found=f"{ms(seen.host.idle_ms)} of {ms(seen.host.span_ms)} under torch.profiler; '{measurement.name}' "
            f"takes {ms(whole_ms(measurement))} without it. Under {seen.tool} the longest in Python: {named}.",
            why="Python runs on one core and sets the pace. Faster arithmetic would change nothing here.",
            do="Look at these functions. Compute once what depends only on shapes. --compile removes most of the "
            "Python.",
            gain=free(measurement, saved),
            evidence={"gain_share": saved},
        )


def _profiled_measurement(result: Profiled, profile: P | None) -> tuple[P | None, Measurement | None]:
    name = profile.measurement if profile is not None else None
    return profile, next((m for m in result.measurements if m.name == name), None)


def _least_idle_share(gaps: Gaps, measurement: Measurement) -> float:
    whole = whole_ms(measurement)
    longer = max(gaps.span_ms - whole, 0.0)
    added = max(longer * gaps.exposed, longer - gaps.busy_ms)  # what busy time cannot have held lies in the gaps
    return max(gaps.idle_ms - added, 0.0) / whole if whole > 0 else 0.0


def _python_gap_share(result: Profiled, gaps: Gaps | None, measurement: Measurement) -> float:
    """Share of the time between torch's operators on the CPU, where it is worth a finding of its own; else 0."""
    named = result.python is not None  # by python_time
    if not result.machine.device.startswith("cpu") or gaps is None or named:
        return 0.0
    decode = top(measurement, "decode")  # by a library outside torch, and a part that is named already
    share = max(_least_idle_share(gaps, measurement) - (decode.share if decode is not None else 0.0), 0.0)
    return share if share >= BETWEEN_OPERATORS else 0.0


def _long(gaps: Gaps) -> bool:
    return gaps.long_ms > gaps.idle_ms / 2


def causes_text(gaps: Gaps) -> str:
    """Return the causes of gaps in brackets."""
    return f" ({', '.join(f'{each.cause} {ms(each.ms)}' for each in gaps.causes)})" if gaps.causes else ""


def longest_gap(gaps: Gaps) -> str:
    """Return a sentence on the longest gap."""
    return f" The longest gap: {ms(gaps.longest[0].ms)}{_gap_place(gaps.longest[0])}." if gaps.longest else ""


def _gap_place(gap: LongGap) -> str:
    places = [f"after {short_kernel(gap.after)[:60]}"] if gap.after else []
    places += [f"before {short_kernel(gap.before)[:60]}"] if gap.before else []
    host = f", while the host was in {short_kernel(gap.host)[:60]}" if gap.host else ""
    return f" {' and '.join(places)}{host}" if places or host else ""


def _own(function: PythonFunction) -> float:
    return function.own_ms if function.own_ms is not None else function.cumulative_ms or 0.0


RULES = (device_idle, many_small_operators, host_delay, python_time)
