"""A notebook's page of an answer: small, without scripts or links, whatever its names say."""

from __future__ import annotations

import html.parser
import xml.etree.ElementTree

from support.examples import runs as example_runs

from strobe.core.report import compare, notebook
from strobe.core.report.document import Column, Document, Row, Section, Table
from strobe.core.results.finding import Finding

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&\u202e\n]]>"


class Tags(html.parser.HTMLParser):
    """The tags and attributes of a page, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


ALLOWED = {
    "div", "p", "b", "ul", "li", "br", "table", "thead", "tbody", "tr", "th", "td"
}  # fmt: skip


def check_page(page: str) -> list[tuple[str, dict[str, str | None]]]:
    """Check what holds for each page. Return its tags."""
    assert len(page.encode()) <= notebook.MOST_BYTES
    xml.etree.ElementTree.fromstring(page.replace("<br>", "<br/>"))  # it is closed where it should be
    tags = Tags()
    tags.feed(page)
    assert {tag for tag, _ in tags.found} <= ALLOWED
    for _, attributes in tags.found:
        assert not any(name.startswith("on") or name in ("href", "src", "class", "id") for name in attributes)
        assert not any("url(" in (value or "") or "http" in (value or "") for value in attributes.values())
    return tags.found


def test_a_comparison_shows_its_headline_findings_and_table():
    result = example_runs.rtc()
    page = notebook.render(compare.outline(result))
    tags = check_page(page)
    assert result.comparisons[0].verdict.sentence.split(" [")[0] in page
    assert [tag for tag, _ in tags].count("table") == 1
    assert "Median (ms)" in page


def test_the_longest_texts_fit():
    long = HOSTILE * 400
    finding = Finding(rule="x", level="warning", title=long, found=long, why=long, do=long)
    table = Table([Column(long)] * 12, [Row([long] * 12)] * 100)
    section = Section("k", long, table)
    facts = [("Subject", long), ("Machine", long)]
    document = Document("strobe compare", long, long, [long] * 20, [finding] * 20, [section], [], facts, [])
    check_page(notebook.render(document))
