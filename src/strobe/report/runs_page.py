"""A folder of runs as one page: search them, open their reports, and lay some beside each other by a click."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from markupsafe import Markup

from strobe.report import frame, units
from strobe.report.document import Document
from strobe.report.html import as_json, part, script_hash, template
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
    machine = frame.machine(answer.machine) if answer.machine is not None else ""
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
    figures: dict[str, float] = {}
    measurements = list(answer.advised()) or answer.measurements
    for measurement in measurements:
        if measurement.samples.values:
            figures[units.plain(measurement.name)] = measurement.samples.summary.median
            for part in measurement.components:
                if part.depth <= DEEPEST:
                    figures[units.plain(f"{measurement.name} / {' / '.join(part.path)}")] = part.summary.median
    return {name: float(f"{value:.6g}") for name, value in figures.items()}


def render(lines: Sequence[Line], title: str) -> str:
    """Return the page. The latest run comes first."""
    ordered = sorted(lines, key=lambda run: (run.started, run.folder), reverse=True)
    script = part("runs_page.js")
    shown = [asdict(line) | {"report": f"{line.folder}/{REPORT}", "ms": _first(line)} for line in ordered]
    return template("runs_page.html.j2").render(
        title=title,
        runs=shown,
        data=as_json([{"folder": line.folder, "figures": line.figures} for line in ordered]),
        style=Markup(part("page.css") + part("runs_page.css")),
        script=Markup(script),
        digest=Markup(script_hash(script)),
    )


def _first(line: Line) -> str:
    return next((units.rate(value) for value in line.figures.values()), "")
