"""A folder of runs as one page: search them, open their reports, and lay some beside each other by a click."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from markupsafe import Markup

from strobe.report import facts, units
from strobe.report.document import Document
from strobe.report.pages import as_json, hashed, part, template
from strobe.results.answer import Answer, Result
from strobe.runs.store import REPORT

DEEPEST = 2  # levels of parts that are laid side by side


@dataclass(frozen=True)
class Line:
    """One run in the list.

    Args:
        folder: its path from the page's folder.
        figures: name → milliseconds, the first of them the one that the list shows.
    """

    folder: str
    study: str
    subject: str
    answer: str
    started: str
    machine: str
    status: str
    figures: dict[str, float] = field(default_factory=dict)


def line(answer: Answer, document: Document, folder: str) -> Line:
    """Return a run's line."""
    machine = facts.machine(answer.machine) if answer.machine is not None else ""
    return Line(
        folder=folder,
        study=answer.study,
        subject=units.plain(answer.about),
        answer=units.plain(document.answers[0] if document.answers else answer.title),
        started=f"{answer.started:%Y-%m-%d %H:%M}",
        machine=machine,
        status=answer.status,
        figures=_figures(answer),
    )


def _figures(answer: Answer) -> dict[str, float]:
    if not isinstance(answer, Result):
        return {}
    found: dict[str, float] = {}
    told = list(answer.advised()) or answer.measurements
    for one in told:
        if one.samples.values:
            found[units.plain(one.name)] = one.samples.summary.median
            for part in one.components:
                if part.depth <= DEEPEST:
                    found[units.plain(f"{one.name} / {' / '.join(part.path)}")] = part.summary.median
    return {name: float(f"{value:.6g}") for name, value in found.items()}


def render(lines: Sequence[Line], title: str) -> str:
    """Return the page. The latest run comes first."""
    ordered = sorted(lines, key=lambda one: (one.started, one.folder), reverse=True)
    script = part("runs_page.js")
    shown = [asdict(one) | {"report": f"{one.folder}/{REPORT}", "ms": _first(one)} for one in ordered]
    return template("runs_page.html.j2").render(
        title=title,
        runs=shown,
        data=as_json([{"folder": one.folder, "figures": one.figures} for one in ordered]),
        style=Markup(part("page.css") + part("runs_page.css")),
        script=Markup(script),
        digest=Markup(hashed(script)),
    )


def _first(one: Line) -> str:
    return next((units.rate(value) for value in one.figures.values()), "")
