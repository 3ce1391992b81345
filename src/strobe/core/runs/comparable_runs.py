"""Runs compared with each other: what makes their times comparable."""

from __future__ import annotations

from strobe.core.results.answer import Result
from strobe.core.results.measurement import Measurement
from strobe.core.results.subject import Machine


def settings(result: Result, measurement: Measurement) -> dict[str, str]:
    """Return the machine, policy, inputs and traits of a run, by name: what must be equal in runs that are compared."""
    subject, traits = result.subject, measurement.traits
    return {
        "policy type": subject.kind,
        "checkpoint": subject.source,
        "parameters": f"{subject.parameters:,}",
        "dtype": ", ".join(sorted(subject.dtypes)),
        **{name: str(value) for name, value in traits.drop_treatments().labelled_values().items()},
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


def device_words(machine: Machine) -> str:
    """Return the device in words."""
    return f"{machine.device_name or machine.cpu} ({machine.device})"


def _machine(machine: Machine) -> dict[str, str]:
    waits = machine.power.get("waiting threads")
    settings = {"device": device_words(machine), "cores": str(machine.cores), "threads": str(machine.threads)}
    return settings | ({"waiting threads": waits} if waits else {})
