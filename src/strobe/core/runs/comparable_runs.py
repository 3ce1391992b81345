"""Runs held against each other: what makes their times comparable, and the gate that a slow-down breaks.

A gate is *held*, *broken*, or *not judged* where neither is shown. It is held only where the interval excludes a
slow-down above the allowed one, or above `WIDEST` where less is allowed: no noise lets an interval exclude everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from strobe.core.results.agreement import Outcome
from strobe.core.results.answer import Result
from strobe.core.results.measurement import Measurement
from strobe.core.results.subject import Machine

WIDEST = 0.10  # slow-down that an interval must exclude, at the least: 10 %


def settings(result: Result, measurement: Measurement) -> dict[str, str]:
    """Return the machine, policy, inputs and traits of a run, by name: what must be equal in runs that are compared."""
    subject, traits = result.subject, measurement.traits
    return {
        "policy type": subject.kind,
        "checkpoint": subject.source,
        "parameters": f"{subject.parameters:,}",
        "dtype": ", ".join(sorted(subject.dtypes)),
        **{name: str(value) for name, value in traits.without().labelled().items()},
        **_machine(result.machine),
        "inputs": subject.inputs,
        "batch size": str(traits.batch_size),
        "denoising steps": str(traits.denoising_steps),
        "chunk size": str(traits.chunk_size),
    }


def versions(result: Result) -> dict[str, str]:
    """Return the versions that a run was made with, Strobe's among them."""
    return {"strobe": result.strobe_version, **{k: v for k, v in result.machine.versions.items() if k != "strobe"}}


def unlike(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """Return the differences between two of the above, in words: ``'name: old → new'``."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return [f"{name}: {old.get(name, 'none')} → {new.get(name, 'none')}" for name in names]


def device_of(machine: Machine) -> str:
    """Return the device in words."""
    return f"{machine.device_name or machine.cpu} ({machine.device})"


def _machine(machine: Machine) -> dict[str, str]:
    waits = machine.power.get("waiting threads")
    settings = {"device": device_of(machine), "cores": str(machine.cores), "threads": str(machine.threads)}
    return settings | ({"waiting threads": waits} if waits else {})


@dataclass(frozen=True)
class Gated:
    """One measurement at a gate.

    Args:
        what: the measurement, in words.
        why: what was seen and, where it is not judged, what is missing and what to give.
    """

    outcome: Outcome
    what: str
    why: str


def excluded(allowed: float) -> float:
    """Return the slow-down that the interval must exclude where one of ``allowed`` (0.05 is 5 %) is accepted."""
    return max(allowed, WIDEST)
