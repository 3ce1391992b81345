"""HTML pages of one file each: an answer's report, and the list of a folder's runs.

They need no network and no other file; Plotly travels in a report's page, compressed.

Everything that came from outside is escaped three times over: by Jinja for the page, as JSON without ``<`` for the
plots' data, and for Plotly's own reading of HTML (`charts.Plot`). A content security policy that lets only a page's
own scripts run stands behind that.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from strobe.core.errors import legible
from strobe.core.report.charts import Plot
from strobe.core.report.document import ClipRow, Document
from strobe.core.results import units
from strobe.core.results.run_summary import RunSummary
from strobe.core.runs.store import REPORT
from strobe.core.untrusted import JsonObject, contents

HERE = Path(__file__).parent
MOST_BYTES = 8_000_000  # size of all videos together: above it the page would be too large to send
_IN_ONE_PIECE = re.compile(r"`[^`]{1,40}`|(?<!\S)--\S+|(?<![\w.,])[−+]?\d[\d.,]* %")
KINDS = {".mp4": "video/mp4", ".webp": "image/webp"}


def render(document: Document, plots: Mapping[str, Sequence[Plot]], folder: Path | None = None) -> str:
    """Return the report's page; ``plots`` are those of each section, by its key, and ``folder`` holds its videos."""
    script = part("page.js")
    library, compressed = _plotly()
    figures = {s.key: [asdict(plot) for plot in plots.get(s.key, [])] for s in document.sections}
    return template("page.html.j2").render(
        page=document,
        figures=figures,
        data=script_json([figure for of_section in figures.values() for figure in of_section]),
        style=Markup(part("page.css")),
        script=Markup(script),
        plotly=Markup(compressed),
        scripts=Markup(" ".join([script_hash(script), library])),
        media=media([row for section in document.sections for row in section.clips], folder),
        NONE=units.NONE,
    )


@cache
def _plotly() -> tuple[str, str]:
    """Return Plotly's hash for the content policy, and its source compressed: 2 MB rather than 5."""
    from plotly.offline import get_plotlyjs

    source = get_plotlyjs()
    return script_hash(source), base64.b64encode(gzip.compress(source.encode(), 9, mtime=0)).decode()


@cache
def template(name: str) -> jinja2.Template:
    """Return the template in the file ``name`` of this package; whatever it is given is escaped."""
    environment = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FileSystemLoader(HERE),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = unbroken
    return environment.get_template(name)


def unbroken(text: str) -> Markup:
    """Return escaped ``text`` with code, flags and percentages in one piece: a browser breaks lines at dashes."""

    def wrap(found: re.Match[str]) -> str:
        element = "code" if found[0].startswith("`") else "span"
        return f'<{element} class="unbroken">{found[0].strip("`")}</{element}>'

    return Markup(_IN_ONE_PIECE.sub(wrap, str(escape(text))))


def part(name: str) -> str:
    """Return the content of the file ``name`` of this package: a script, a style."""
    return (HERE / name).read_text(encoding="utf-8")


def script_hash(source: str) -> str:
    """Return a script's hash, as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def script_json(data: object) -> Markup:
    """Return JSON for a script element, which ``</script>`` in a string must not end."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def media(rows: Sequence[ClipRow], folder: Path | None) -> dict[str, str]:
    """Return file → data URL for the files of ``rows`` in ``folder``.

    Files that are gone are left out; and the videos all are where they are more than `MOST_BYTES` together, or where
    there is no folder to read from. Then the page links to them.
    """
    if folder is None:
        return {}
    clips = [clip for row in rows for clip in row.clips]
    videos = _read(folder, [clip.file for clip in clips])
    if sum(map(len, videos.values())) > MOST_BYTES:
        videos = {}
    read = _read(folder, [clip.poster for clip in clips if clip.poster is not None]) | videos
    encoded = {file: base64.b64encode(content).decode() for file, content in read.items()}
    return {file: f"data:{KINDS[Path(file).suffix]};base64,{content}" for file, content in encoded.items()}


def _read(folder: Path, files: Sequence[str]) -> dict[str, bytes]:
    found = {}
    for file in files:
        path = Path(file)
        if path.is_absolute() or ".." in path.parts or path.suffix not in KINDS:  # a result.json from elsewhere
            continue
        try:
            found[file] = contents(folder / path, MOST_BYTES)
        except OSError:
            continue
    return found


def render_runs(runs: Sequence[tuple[RunSummary, str]], title: str) -> str:
    """Return the page of ``runs``, each with its folder's path from the page's. The latest run comes first."""
    shown = sorted((_run_line(*run) for run in runs), key=lambda run: (run["started"], run["folder"]), reverse=True)
    script = part("runs_page.js")
    return template("runs_page.html.j2").render(
        title=legible(title),
        runs=shown,
        data=script_json([{"folder": run["folder"], "figures": run["figures"]} for run in shown]),
        style=Markup(part("page.css") + part("runs_page.css")),
        script=Markup(script),
        digest=Markup(script_hash(script)),
    )


def _run_line(summary: RunSummary, folder: str) -> JsonObject:
    figures = _figures(summary)
    return {
        "folder": legible(folder),
        "report": quote(os.fsencode(f"{folder}/{REPORT}")),
        "study": summary.study,
        "subject": units.plain(summary.about),
        "answer": units.plain(summary.headline),
        "started": f"{summary.started:%Y-%m-%d %H:%M}",
        "machine": summary.machine,
        "status": summary.status,
        "figures": figures,
        "ms": next(map(units.rate, figures.values()), ""),
    }


def _figures(summary: RunSummary) -> dict[str, float]:
    """Return milliseconds by name, the first of them the one that the list shows."""
    figures: dict[str, float] = {}
    advised = [measurement for measurement in summary.measurements if measurement.advised]
    for measurement in advised or summary.measurements:
        figures[units.plain(measurement.name)] = measurement.summary.median
        for part, its in measurement.parts.items():
            figures[units.plain(f"{measurement.name} / {part}")] = its.median
    return {name: float(f"{value:.6g}") for name, value in figures.items()}
