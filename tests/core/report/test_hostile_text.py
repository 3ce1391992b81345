"""Whatever names, notes and reasons in an answer hold, a report shows it as text: on a terminal, in Markdown, in HTML.

Every free text of every result on disk is given a beginning that each of the three would act on.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from markdown_it import MarkdownIt
from pydantic import BaseModel
from rich.console import Console
from support.checks.golden import ALL, result_name

from strobe.core import kinds
from strobe.core.report import console, markdown
from strobe.core.report.charts import SHOWN
from strobe.core.results.answer import Answer
from strobe.core.runs import store

HOSTILE = (
    "\x1b[31m\x07\"'><script>alert(1)</script><img src=x onerror=alert(1)>&lt;i&gt;[red]{{7*7}}%{x}"
    "| *a* | _b_ `c` [d](http://e) ![f](g)\r\n# h\n\n- i\u202e"
)
STEERING = {"figures", "evidence"}  # dictionaries with keys that a report looks for


def poison_texts(value: Any, annotation: Any = None, name: str = "") -> Any:
    """Return ``value`` with the hostile text in front of each text that is not one of a few fixed words."""
    match value:
        case BaseModel():
            fields = type(value).model_fields
            changed = {
                key: poison_texts(inside, fields[key].annotation if key in fields else None, key)
                for key, inside in value
            }
            return value.model_copy(update=changed)
        case dict():
            of_keys, of_values = key_and_value(annotation)
            keys = (lambda key: key) if name in STEERING or has_fixed_words(of_keys) else poison_texts
            return {keys(key): poison_texts(inside, of_values) for key, inside in value.items()}
        case list() | tuple():
            return type(value)(poison_texts(inside, annotation) for inside in value)
        case str() if value and not has_fixed_words(annotation):
            return HOSTILE + value
    return value


def key_and_value(annotation: Any) -> tuple[Any, Any]:
    """Return the types of a mapping's keys and values; a type that is none is that of its values."""
    return get_args(annotation) if get_origin(annotation) is dict else (None, annotation)


def has_fixed_words(annotation: Any) -> bool:
    return get_origin(annotation) is Literal or any(map(has_fixed_words, get_args(annotation)))


@cache
def hostile(file: Path) -> Answer:
    answer = store.load_answer(file)
    changed = poison_texts(answer)
    return changed.model_copy(update={"study": answer.study})


def strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text within a figure, with the key that it is under."""
    match value:
        case dict():
            for inside_key, inside in value.items():
                yield from strings(inside, inside_key if key not in SHOWN else key)
        case list() | tuple():
            for inside in value:
                yield from strings(inside, key)
        case str():
            yield key, value


class Tags(HTMLParser):
    """The elements of a page, with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.scripts = 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.scripts += tag == "script"


@pytest.mark.parametrize("file", ALL, ids=result_name)
def test_a_terminal_gets_no_escapes_and_no_markup(file: Path):
    document, printed = kinds.document(hostile(file)), io.StringIO()
    console.render(document, Console(file=printed, width=200, color_system=None))
    text = printed.getvalue()
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert "[red]{{7*7}}" in re.sub(r"\s", "", text), "markup is shown, and not obeyed"


@pytest.mark.parametrize("file", ALL, ids=result_name)
def test_markdown_gets_no_markup(file: Path):
    text = markdown.render(kinds.document(hostile(file)))
    tokens = [
        inside
        for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
        for inside in (token, *(token.children or ()))
    ]
    assert {token.type for token in tokens} <= {
        *("heading_open", "heading_close", "paragraph_open", "paragraph_close", "inline", "text", "text_special"),
        *("bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close", "softbreak", "hardbreak"),
        *("blockquote_open", "blockquote_close", "strong_open", "strong_close", "em_open", "em_close"),
        *("table_open", "table_close", "thead_open", "thead_close", "tbody_open", "tbody_close", "tr_open", "tr_close"),
        *("th_open", "th_close", "td_open", "td_close"),
    }
    # The only emphasis is the kind of report, below the title; headings and rows are the document's own.
    assert sum(token.type == "em_open" for token in tokens) == 1
    document = kinds.document(hostile(file))
    tables = [section.table for section in document.sections if section.table is not None]
    assert sum(token.type == "tr_open" for token in tokens) == sum(1 + len(table.rows) for table in tables)
    cells = sum(len(table.columns) * len(table.rows) for table in tables)
    assert sum(token.type == "td_open" for token in tokens) == cells


@pytest.mark.parametrize("file", ALL, ids=result_name)
def test_a_page_gets_no_elements_and_no_attributes(file: Path):
    own, page = Tags(kinds.page(store.load_answer(file))), Tags(kinds.page(hostile(file)))
    assert page.scripts == own.scripts
    assert page.seen <= own.seen | {"td", "p", "ul", "li", "code"}
    assert page.attributes <= own.attributes | {"class", "style"}


@pytest.mark.parametrize("file", ALL, ids=result_name)
def test_a_plot_gets_no_markup_and_no_templates(file: Path):
    for plots in kinds.figures(hostile(file)).values():
        for plot in plots:
            for key, text in strings(asdict(plot)["data"] + [plot.layout]):
                if key.endswith("template"):
                    assert "alert" not in text, "Plotly would fill in what a name has in %{…}"
                elif key in SHOWN:
                    assert "<" not in text.replace("<br>", "")
                    assert text.isprintable()
            assert plot.title.isprintable()
            assert plot.caption.isprintable()
