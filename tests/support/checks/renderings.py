"""Answers as they are shown: on a terminal, and as a page in a browser, also with hostile text in them."""

from __future__ import annotations

import io
import re
from typing import Any

from rich.console import Console

from strobe.core import kinds
from strobe.core.report import console

PAYLOAD = (
    "<script>document.documentElement.dataset.pwned=1</script></script>"
    '"\'><img src=x onerror="document.documentElement.dataset.pwned=1"><b>bold</b>{{7*7}}%{x}&lt;i&gt;<br>'
)
MANY, FEW = 9, 3  # values of a trace from which only the first are shown
FIXED = {"phase", "clock", "cause", "level", "size", "study", "status", "started", "of", "judged_by"}
KINDS = {"faster", "slower", "no difference shown", "inconclusive"}


def console_text(answer: Any, width: int = 130, depth: int | None = None, **more: Any) -> str:
    out = io.StringIO()
    console.render(kinds.document(answer, depth), Console(file=out, width=width, **more))
    return out.getvalue()


def answer_text(answer: Any) -> str:
    """What an answer says in sentences: its own, what is written in its sections, its notes, and what rules find."""
    document = kinds.document(answer)
    lines = [document.banner or "", *document.answers]
    for section in document.sections:
        lines += [] if section.detail else [f"{section.title}: {text}" for text in section.text]
    lines += [f"· {note}" for note in document.notes]
    for one in kinds.advise(answer):
        lines.append(f"[{one.level}] {one.rule}: {one.title}")
        lines += [f"    {text}" for text in (one.found, one.why, one.do, one.gain) if text]
    return "\n".join(line for line in lines if line)


def whole(answer: Any, *keys: str, depth: int | None = None) -> str:
    """The sentences of an answer, then tables and plots of the sections whose keys begin with one of ``keys``."""
    lines = [answer_text(answer)]
    for section in kinds.document(answer, depth).sections:
        if section.table is not None and section.key.startswith(keys):
            title = f"{section.title} ({section.key}{', not on the console' if section.detail else ''})"
            lines += ["", title, " | ".join(column.title for column in section.table.columns)]
            marks = {"whole": "* ", "other": "~ ", "part": ""}
            lines += [marks[row.kind] + "  " * row.depth + " | ".join(cell or "–" for cell in row.cells)
                      for row in section.table.rows]  # fmt: skip
    for key, plots in kinds.figures(answer, depth).items():
        if key.startswith(keys):
            lines += [
                line for one in plots for line in ("", f"{key}: {one.title}", f"  {one.caption}", *describe_plot(one))
            ]
    return "\n".join(lines)


def describe_plot(plot: Any) -> list[str]:
    """The drawing of a plot in words: a line for its axes and one for each trace, with its first figures."""
    axes = {key: {name: value for name, value in axis.items() if name in ("type", "range", "ticktext")}
            for key, axis in plot.layout.items() if re.fullmatch("[xy]axis", key)}  # fmt: skip
    marks = [(shape.get("x0"), shape.get("y0")) for shape in plot.layout.get("shapes", ())]
    drawn = [f"  axes {_short(axes)}, marks {_short(marks)}"]
    for trace in plot.data:
        parts = {key: trace[key] for key in ("x", "y", "z", "text", "values", "error_y", "customdata") if key in trace}
        hidden = "" if trace.get("showlegend", True) else ", not in the legend"
        drawn.append(f"  {trace['type']} {trace.get('name', '')!r}{hidden}: {_short(parts)}")
    return drawn


def _short(value: Any) -> Any:
    """The same data with figures of four digits, and of long lists the first ones and their length."""
    match value:
        case float():
            return float(f"{value:.4g}")
        case dict():
            return {key: _short(inside) for key, inside in value.items() if inside is not None}
        case list() | tuple() if len(value) > MANY:
            return [*map(_short, value[:FEW]), f"… {len(value)}"]
        case list() | tuple():
            return list(map(_short, value))
    return value


def root(dom: str) -> str:
    """The opening tag of the document, where the page keeps its errors."""
    return dom[dom.index("<html") : dom.index(">", dom.index("<html"))]


def drop_content_policy(page: str) -> str:
    """The page without its content policy: what is left is the escaping alone."""
    return re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", page)


def count_plots(dom: str) -> int:
    return len(re.findall(r'<div class="plot js-plotly-plot"', dom))


def poison_texts(data: Any, key: str = "") -> Any:
    """The same data with the payload before every string and key that is free."""
    if isinstance(data, dict):
        free = key in ("dtypes", "power", "versions", "gflops", "notes", "unseen", "config", "evidence")
        return {(PAYLOAD + k if free else k): poison_texts(v, k) for k, v in data.items()}
    if isinstance(data, list):
        return [poison_texts(v, key) for v in data]
    fixed = not isinstance(data, str) or key in FIXED or (key == "kind" and data in KINDS)
    return data if fixed else PAYLOAD + data
