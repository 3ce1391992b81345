"""Do two runs measure the same thing? What makes their times comparable, by name, and the versions they ran with."""

from __future__ import annotations

from strobe.results.answer import Result
from strobe.results.machine import Machine
from strobe.results.measurement import Measurement


def work(result: Result, measurement: Measurement) -> dict[str, str]:
    """Return what a run was asked to do and on what, by name: it must be equal where times are held against times."""
    traits = measurement.traits
    sizes = {
        "batch size": traits.batch_size,
        "denoising steps": traits.denoising_steps,
        "chunk size": traits.chunk_size,
    }
    inputs = result.subject.inputs
    return {**_machine(result.machine), "inputs": inputs, **{name: str(size) for name, size in sizes.items()}}


def settings(result: Result, measurement: Measurement) -> dict[str, str]:
    """Return all that makes a trend's runs alike, by name: the work, the policy, and what was put on it."""
    subject = result.subject
    given = {name: str(value) for name, value in measurement.traits.without().labelled().items()}
    return {
        "policy type": subject.kind,
        "checkpoint": subject.source,
        "parameters": f"{subject.parameters:,}",
        "dtype": ", ".join(sorted(subject.dtypes)),
        **given,
        **work(result, measurement),
    }


def versions(result: Result) -> dict[str, str]:
    """Return the versions that a run was made with, Strobe's among them."""
    return {"strobe": result.strobe_version, **{k: v for k, v in result.machine.versions.items() if k != "strobe"}}


def unlike(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """Return in words where two of the above differ."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return [f"{name}: {old.get(name, 'none')} → {new.get(name, 'none')}" for name in names]


def device_of(machine: Machine) -> str:
    """Return the device in words."""
    return f"{machine.device_name or machine.cpu} ({machine.device})"


def _machine(machine: Machine) -> dict[str, str]:
    return {"device": device_of(machine), "cores": str(machine.cores), "threads": str(machine.threads)}
