"""Profiling by hand: the seven names that users of the RTC profiling toolkit know, on top of the timeline.

from strobe.profiling import enable_profiling, profile_section, print_profiling_summary

enable_profiling()
with profile_section("my operation"):
    ...
print_profiling_summary()
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from strobe.core.timeline import Attached, Probe, Section, Timeline, attach, section, timed
from strobe.core.timeline.layers import Call

RTC_STEP = "rtc.denoise_step"
RTC_BASE = "rtc.denoise_step.base_denoising"
RTC_AUTOGRAD = "rtc.denoise_step.autograd_correction"
RTC_GUIDANCE = "rtc.denoise_step.guidance_computation"

_RTC = "lerobot.policies.rtc.modeling_rtc"
_RTC_PROBES = (
    Probe.function(f"{_RTC}:RTCProcessor.denoise_step", RTC_STEP),
    Probe.function(f"{_RTC}:RTCProcessor.denoise_step", RTC_BASE, argument="original_denoise_step_partial"),
    Probe.function(f"{_RTC}:torch.autograd.grad", RTC_AUTOGRAD),
)

_timeline: Timeline | None = None
_running = False
_rtc: Attached | None = None


def enable_profiling(enabled: bool = True, *, serialised: bool = False) -> None:
    """Start recording sections; with ``enabled=False``, stop. What was recorded stays until it is cleared.

    On a machine with an accelerator the sections take its time, through events that nothing waits for.

    Args:
        serialised: synchronise the accelerator around each section (true host time per section, a slower whole).
    """
    global _timeline, _running
    if enabled == _running:
        return
    if enabled:
        if _timeline is None or _timeline.serialised != serialised:
            _timeline = Timeline(torch.accelerator.current_accelerator(check_available=True), serialised=serialised)
        _timeline.start()
    elif _timeline is not None:
        _timeline.stop()
    _running = enabled


def profile_section(name: str) -> AbstractContextManager[object]:
    """Time a block under ``name``; costs next to nothing while profiling is off."""
    return section(name)


def profile_method(name: str | Call | None = None) -> Any:
    """Decorate a function or method (``@profile_method`` or ``@profile_method("name")``) to time each call."""
    return timed(name)


def get_profiling_stats() -> dict[str, dict[str, float]]:
    """Summarise what was recorded so far, by section name.

    Returns:
        name → ``count`` (calls), ``mean``, ``std``, ``min``, ``max``, ``median``, ``p95`` (milliseconds, population
        standard deviation) and ``total`` (seconds); device time where there is an accelerator.
    """
    by_name: dict[str, list[float]] = {}
    sections = _timeline.sections() if _timeline is not None else []
    for recorded in sections:
        by_name.setdefault(recorded.name, []).append(recorded.ms)
    if RTC_STEP in by_name:
        by_name[RTC_GUIDANCE] = _own_time(sections, RTC_STEP)
    return {name: _stats(values) for name, values in by_name.items()}


def clear_profiling_stats() -> None:
    """Forget what was recorded so far."""
    if _timeline is not None:
        _timeline.clear()


def print_profiling_summary() -> None:
    """Print the table of ``get_profiling_stats``, the largest total first, and what could not be timed."""
    from rich.console import Console
    from rich.table import Table

    stats = get_profiling_stats()
    names = max(map(len, stats), default=0)
    console = Console()
    if not console.is_terminal:  # a file has no width: nothing need be cut
        console = Console(width=max(80, names + 80))
    if not stats:
        console.print("Nothing was recorded. Call enable_profiling() before the code that you want timed.")
        return
    table = Table(title="Profiling summary", title_justify="left")
    table.add_column("Section", overflow="fold")
    for heading in ("Count", "Mean (ms)", "Median (ms)", "p95 (ms)", "Min (ms)", "Max (ms)", "Total (s)"):
        table.add_column(heading, justify="right")
    for name, row in sorted(stats.items(), key=lambda item: -item[1]["total"]):
        figures = [row[key] for key in ("mean", "median", "p95", "min", "max")]
        table.add_row(name, f"{row['count']:.0f}", *(f"{ms:.3f}" for ms in figures), f"{row['total']:.3f}")
    console.print(table)
    for name, why in (_timeline.unseen if _timeline is not None else {}).items():
        console.print(f"not timed: {name}: {why}", markup=False)


def monkey_patch_rtc_profiling(enabled: bool = True) -> None:
    """Time the inside of Real-Time Chunking for every LeRobot policy; ``enabled=False`` takes the probes off.

    Sections: ``rtc.denoise_step`` and, of it, ``….base_denoising`` (the policy's own denoiser),
    ``….autograd_correction`` (``torch.autograd.grad``) and ``….guidance_computation`` (the rest).
    """
    global _rtc
    if enabled and _rtc is None:
        _rtc = attach(_RTC_PROBES, None)
    elif not enabled and _rtc is not None:
        _rtc.detach()
        _rtc = None


def _own_time(sections: list[Section], name: str) -> list[float]:
    own: list[float] = []
    parent: Section | None = None
    for recorded in sections:  # tree order: a parent comes right before its children
        if recorded.name == name:
            parent = recorded
            own.append(recorded.ms)
        elif parent is not None and recorded.path[:-1] == parent.path and recorded.end_ns <= parent.end_ns:
            own[-1] -= recorded.ms
    return own


def _stats(values: list[float]) -> dict[str, float]:
    samples = torch.tensor(values, dtype=torch.float64)
    return {
        "count": float(len(values)),
        "mean": float(samples.mean()),
        "std": float(samples.std(unbiased=False)),
        "min": float(samples.min()),
        "max": float(samples.max()),
        "median": float(samples.quantile(0.5)),
        "p95": float(samples.quantile(0.95)),
        "total": float(samples.sum() / 1e3),
    }
