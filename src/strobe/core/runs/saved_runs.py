"""Saved runs to look at together: all in a folder, or one run as git has it at each commit; what makes them alike."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.core.errors import UserError
from strobe.core.results.run_summary import RunSummary, SubjectSummary
from strobe.core.runs import store

if TYPE_CHECKING:  # the classes of all answers, which a list of summaries does without
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


Read = Callable[[Path], RunSummary]  # of a `result.json`. Raises UserError.


@dataclass(frozen=True)
class Run:
    """A measured run with the name it goes by."""

    name: str
    summary: RunSummary
    subject: SubjectSummary


@dataclass(frozen=True)
class UnreadableRun:
    """A run that cannot be read, and why; ``last``: it is listed after all that can."""

    name: str
    why: str
    last: bool


def load_git_versions(path: Path, read: Read) -> tuple[list[Run], list[UnreadableRun]]:
    """Return the versions of a run's result in git, and what cannot be read. Raises UserError where there is none."""
    file = path / store.RESULT if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"no {store.RESULT} at {path}: name a run's folder that is under git")
    where, name = file.resolve().parent, file.name
    listed = _git(where, "log", "--reverse", "--format=%H %h", "--", name).splitlines()
    if not listed:
        raise UserError(f"git knows no commit of {file}: commit it first")
    with tempfile.TemporaryDirectory() as scratch:

        def version(commit: str, short: str) -> RunSummary:
            copy = Path(scratch) / f"{short}.json"
            try:
                copy.write_text(_git(where, "show", f"{commit}:./{name}"), encoding="utf-8")
                return read(copy)
            except UserError as error:
                raise UserError(str(error).replace(str(copy), "its result")) from None

        commits = [line.split() for line in listed]
        return load_measured_runs((short, partial(version, commit, short)) for commit, short in commits)


def load_measured_runs(
    summaries: Iterable[tuple[str, Callable[[], RunSummary]]],
) -> tuple[list[Run], list[UnreadableRun]]:
    """Return the measured runs among ``summaries`` (name, what reads it), and what cannot be read."""
    runs: list[Run] = []
    unread: list[tuple[str, str, int]] = []
    for name, read in summaries:
        try:
            summary = read()
        except UserError as error:
            unread.append((name, str(error), len(runs)))
            continue
        if summary.subject is not None:
            runs.append(Run(name, summary, summary.subject))
    return runs, [UnreadableRun(name, why, before == len(runs)) for name, why, before in unread]


def _git(where: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(where), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError("--git needs git, which is not installed") from None
    if done.returncode:
        errors = done.stderr.strip().splitlines()
        raise UserError(f"git: {errors[-1] if errors else 'failed'}")
    return done.stdout
