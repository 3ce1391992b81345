"""A document and its plots as one HTML page: no network, no other file; Plotly travels in it, compressed.

Everything that came from outside is escaped three times over: by Jinja for the page, as JSON without ``<`` for the
plots' data, and for Plotly's own reading of HTML (`plots.text`). A content security policy that lets only this page's
two scripts run stands behind that.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from markupsafe import Markup

from strobe.report import units
from strobe.report.clips import contents
from strobe.report.document import Document
from strobe.report.pages import as_json, hashed, part, template
from strobe.report.plots import Plot


def render(document: Document, plots: Mapping[str, Sequence[Plot]], folder: Path | None = None) -> str:
    """The whole page; ``plots`` are those of each section, by its key, and ``folder`` is where its videos are."""
    script = part("page.js")
    library, compressed = _plotly()
    figures = {s.key: [asdict(plot) for plot in plots.get(s.key, [])] for s in document.sections}
    return template("page.html.j2").render(
        page=document,
        figures=figures,
        data=as_json([figure for of_section in figures.values() for figure in of_section]),
        style=Markup(part("page.css")),
        script=Markup(script),
        plotly=Markup(compressed),
        scripts=Markup(" ".join([hashed(script), library])),
        media=contents([row for section in document.sections for row in section.clips], folder),
        NONE=units.NONE,
    )


@cache
def _plotly() -> tuple[str, str]:
    """Plotly's hash for the content policy, and its source compressed: 2 MB rather than 5."""
    from plotly.offline import get_plotlyjs

    source = get_plotlyjs()
    return hashed(source), base64.b64encode(gzip.compress(source.encode(), 9, mtime=0)).decode()
