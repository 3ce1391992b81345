"""The words that all reports share: findings, the machine, the run, and the data a report was made from."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence

from strobe.report import units
from strobe.results.answer import Answer
from strobe.results.finding import Finding
from strobe.results.machine import Machine

LEVELS: dict[str, int] = {"warning": 0, "info": 1, "good": 2}


def findings(drawn: Sequence[Finding]) -> list[Finding]:
    """The findings as they are shown, warnings first."""
    return sorted(map(_plain, drawn), key=lambda f: LEVELS[f.level])


def _plain(finding: Finding) -> Finding:
    texts = {name: units.plain(getattr(finding, name)) for name in ("rule", "title", "seen", "why", "do", "gain")}
    return finding.model_copy(update=texts)


def machine(m: Machine) -> str:
    """Where the numbers come from, in a line."""
    said = [f"{m.device_name} ({m.device})" if m.device_name else m.device]
    if m.device != "cpu":
        said += [m.cpu]
    if m.device_memory_bytes is not None:
        said += [f"{units.size(m.device_memory_bytes)} on it"]
    said += [
        f"{units.count(m.cores, 'core')}",
        units.count(m.threads, "thread"),
        f"{units.size(m.memory_bytes)}",
    ]
    return units.plain(", ".join([*said, m.system]))


def ceiling(m: Machine) -> str | None:
    """The rates that the machine was measured to reach, in a line."""
    said = [f"{rate:,.0f} GFLOP/s {dtype}" for dtype, rate in m.ceiling.gflops.items()]
    if m.ceiling.vector_gflops is not None:
        said += [f"{m.ceiling.vector_gflops:,.0f} GFLOP/s elementwise"]
    if m.ceiling.memory_gbps is not None:
        said += [f"{m.ceiling.memory_gbps:,.1f} GB/s"]
    return units.plain(", ".join(said)) or None


def run(answer: Answer) -> list[tuple[str, str]]:
    """When the answer was made, how long that took, and by which command."""
    pairs = [
        ("Run", f"{answer.started:%Y-%m-%d %H:%M %Z}, {answer.duration_s:,.0f} s"),
        ("Command", shlex.join(answer.command)),
    ]
    return [(name, units.plain(text)) for name, text in pairs if text]


def raw(command: Sequence[str], data: Mapping[str, object]) -> list[tuple[str, str]]:
    """The command, ready to be pasted, and data as JSON; empty ones are left out."""
    shown = [(name, json.dumps(d, indent=2, ensure_ascii=False, default=str)) for name, d in data.items() if d]
    return [("Command", shlex.join(command)), *shown] if command else shown
