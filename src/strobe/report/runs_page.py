"""A folder of runs as one page: search them, open their reports, and lay some beside each other by a click."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from strobe.report import facts, units
from strobe.report.document import Document
from strobe.results.answer import Answer, Result
from strobe.results.store import REPORT

HERE = Path(__file__).parent
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
    script = (HERE / "runs_page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    style = "".join((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "runs_page.css"))
    shown = [asdict(one) | {"report": f"{one.folder}/{REPORT}", "ms": _first(one)} for one in ordered]
    return _template().render(
        title=title,
        runs=shown,
        data=_json([{"folder": one.folder, "figures": one.figures} for one in ordered]),
        style=Markup(style),
        script=Markup(script),
        digest=Markup(f"'sha256-{digest}'"),
    )


def _first(one: Line) -> str:
    return next((units.rate(value) for value in one.figures.values()), "")


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FileSystemLoader(HERE),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("runs_page.html.j2")


def _json(data: Any) -> Markup:
    """JSON for a script element, which ``</script>`` in a string must not end."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
