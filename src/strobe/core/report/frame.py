"""The frame of every report: findings, notes, the machine, the run, and the data that it was made from."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol, TypeVar

from strobe.core import slices
from strobe.core.report.charts import Plot
from strobe.core.report.document import Document, Section
from strobe.core.results import units
from strobe.core.results.answer import Answer
from strobe.core.results.subject import Machine

LEVELS: dict[str, int] = {"warning": 0, "info": 1, "good": 2}
Plots = dict[str, list[Plot]]  # of each section, by its key


A = TypeVar("A", bound=Answer, contravariant=True)


class Page(Protocol[A]):
    """The report on one kind of answer: the module that the kind's slice names as its page.

    ``depth`` is the number of levels to show of an answer's trees, None for all.
    """

    def answers(self, answer: A, /) -> list[str]:
        """Return the sentences that the report begins with."""
        ...

    def outline(self, answer: A, depth: int | None = None, /) -> Document:
        """Return the words and the tables."""
        ...

    def plots(self, answer: A, depth: int | None = None, /) -> Plots:
        """Return the plots of each section, by its key."""
        ...


def document(
    answer: Answer,
    answers: Sequence[str],
    sections: Sequence[Section],
    *,
    kind: str = "",
    banner: str | None = None,
    notes: Sequence[str] | None = None,
    facts: Sequence[tuple[str, str | None]] = (),
    raw: Mapping[str, object] | None = None,
) -> Document:
    """Return the document of ``answer``: what its study says, within what all say alike.

    Args:
        answers: the sentences that come first.
        kind: the command that gives such an answer, where it is not called like the study.
        notes: in place of the answer's own.
        facts: in front of those of the run; without those that are empty.
        raw: data to show as JSON, besides the config.
    """
    findings, said = sorted(answer.findings, key=lambda finding: LEVELS[finding.level]), list(answers)
    if said and not any(text.startswith("Next: ") for text in said):
        said[2:2] = [f"Next: {each.first_step}" for each in findings if each.level != "good" and each.do][:1]
    return Document(
        kind=f"strobe {kind or answer.study}",
        title=answer.title,
        banner=banner,
        answers=[*said[:1], *(f"{units.capital(text)}." for text in answer.caveats), *said[1:]],
        findings=findings,
        sections=list(sections),
        notes=list(dict.fromkeys(answer.notes if notes is None else notes)),
        facts=[(name, text) for name, text in facts if text] + run(answer),
        raw=_raw(answer.command, {"Config": answer.config, **(raw or {})}),
    )


def group_flags(argv: Sequence[str]) -> list[list[str]]:
    """Return each flag of a command line with the values that follow it."""
    groups: list[list[str]] = []
    for word in argv:
        if word.startswith("--") or not groups:
            groups.append([])
        groups[-1].append(word)
    return groups


def pick_flags(argv: Sequence[str], prefixes: tuple[str, ...]) -> list[str]:
    """Return the flags of ``argv`` that begin with one of ``prefixes``, each with its values."""
    return [word for group in group_flags(argv) if group[0].startswith(prefixes) for word in group]


def machine(m: Machine) -> str:
    """Return where the numbers come from, in a line."""
    words = [f"{m.device_name} ({m.device})" if m.device_name else m.device]
    if m.device != "cpu":
        words += [m.cpu]
    if m.device_memory_bytes is not None:
        words += [f"{units.size(m.device_memory_bytes)} on it"]
    threads = [units.count(m.threads, "thread")] if m.threads else []
    words += [units.count(m.cores, "core"), *threads, units.size(m.memory_bytes)]
    return ", ".join([*words, m.system])


def ceiling(m: Machine) -> str | None:
    """Return the rates that the machine was measured to reach, in a line; None if none was measured."""
    rates = [f"{rate:,.0f} GFLOP/s {dtype}" for dtype, rate in m.ceiling.gflops.items()]
    if m.ceiling.vector_gflops is not None:
        rates += [f"{m.ceiling.vector_gflops:,.0f} GFLOP/s elementwise"]
    if m.ceiling.memory_gbps is not None:
        rates += [f"{m.ceiling.memory_gbps:,.1f} GB/s"]
    return ", ".join(rates) or None


def versions(answer: Answer, m: Machine | None) -> str:
    """Return the versions of Strobe and of what it ran with, in a line."""
    known = {"strobe": answer.strobe_version, **(m.versions if m is not None else {})}
    return ", ".join(f"{name} {version}" for name, version in known.items())


def power(m: Machine) -> str:
    """Return the machine's settings of power, in a line."""
    return ", ".join(f"{name} {value}" for name, value in m.power.items())


def run(answer: Answer) -> list[tuple[str, str]]:
    """Return when the answer was made, how long that took, and by which command."""
    pairs = [
        ("Run", f"{answer.started:%Y-%m-%d %H:%M %Z}, {answer.duration_s:,.0f} s"),
        ("Command", shlex.join(answer.command)),
    ]
    return [(name, text) for name, text in pairs if text]


def _raw(command: Sequence[str], data: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the command, ready to be pasted, and data as JSON; empty ones are left out."""
    shown = [(name, json.dumps(d, indent=2, ensure_ascii=False, default=str)) for name, d in data.items() if d]
    return [("Command", shlex.join(command)), *shown] if command else shown


def added_sections(answer: Answer) -> list[Section]:
    """Return the sections that slices add to the page of ``answer``."""
    return [section for module in _modules(answer) for section in module.sections(answer)]


def added_answers(answer: Answer) -> list[str]:
    """Return the sentences that slices add to those of ``answer``."""
    say: list[Any] = [getattr(module, "answers", None) for module in _modules(answer)]
    return [sentence for sentences in say if sentences is not None for sentence in sentences(answer)]


def _modules(answer: Answer) -> list[ModuleType]:
    return [slices.load(name) for each in slices.slices().values() for name in each.shows.get(answer.study, ())]
