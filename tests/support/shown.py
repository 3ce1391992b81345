"""Answers as they are shown: on a terminal, and as a page in a browser, also with hostile text in them."""

from __future__ import annotations

import io
import re
from typing import Any

from rich.console import Console

from strobe import kinds
from strobe.report import console

PAYLOAD = (
    "<script>document.documentElement.dataset.pwned=1</script></script>"
    '"\'><img src=x onerror="document.documentElement.dataset.pwned=1"><b>bold</b>{{7*7}}%{x}&lt;i&gt;<br>'
)
FIXED = {"phase", "clock", "level", "size", "study", "status", "started", "of", "judged_by"}
KINDS = {"faster", "slower", "no difference shown", "too noisy"}


def printed(answer: Any, width: int = 130, depth: int | None = None, **more: Any) -> str:
    out = io.StringIO()
    console.render(kinds.document(answer, depth), Console(file=out, width=width, **more))
    return out.getvalue()


def spoken(answer: Any) -> str:
    """What an answer says in sentences: its own, what is written in its sections, its notes, and what rules find."""
    document = kinds.document(answer)
    lines = [document.banner or "", *document.answers]
    for section in document.sections:
        lines += [] if section.detail else [f"{section.title}: {text}" for text in section.text]
    lines += [f"· {note}" for note in document.notes]
    for one in kinds.advise(answer):
        lines.append(f"[{one.level}] {one.rule}: {one.title}")
        lines += [f"    {text}" for text in (one.seen, one.why, one.do, one.gain) if text]
    return "\n".join(line for line in lines if line)


def root(dom: str) -> str:
    """The opening tag of the document, where the page keeps its errors."""
    return dom[dom.index("<html") : dom.index(">", dom.index("<html"))]


def without_policy(page: str) -> str:
    """The page without its content policy: what is left is the escaping alone."""
    return re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", page)


def drawn(dom: str) -> int:
    return len(re.findall(r'<div class="plot js-plotly-plot"', dom))


def poisoned(data: Any, key: str = "") -> Any:
    """The same data with the payload before every string and key that is free."""
    if isinstance(data, dict):
        free = key in ("dtypes", "power", "versions", "gflops", "notes", "unseen", "config", "evidence")
        return {(PAYLOAD + k if free else k): poisoned(v, k) for k, v in data.items()}
    if isinstance(data, list):
        return [poisoned(v, key) for v in data]
    fixed = not isinstance(data, str) or key in FIXED or (key == "kind" and data in KINDS)
    return data if fixed else PAYLOAD + data
