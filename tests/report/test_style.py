"""Phrases that a reader stumbles over do not come back: docs/style.md has what stands in their place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Of texts that users read. Each was in a headline, a finding or an error once.
STUMBLES = (
    r"no difference shown between",
    r"would have: ",
    r"would have been seen",
    r"was asked otherwise",
    r"do not exclude that",
    r"are missed by",
    r"bought nothing that",
    r"decides otherwise",
    r"unlike times",
    r"there can be no",
    r"of a Strobe that",
    r"-bound: a step",
    r"not shown to be worse is",
)
SOURCES = sorted((ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize("phrase", STUMBLES)
def test_no_source_says(phrase):
    found = [str(path.relative_to(ROOT)) for path in SOURCES if re.search(phrase, path.read_text())]
    assert found == []


def pairs() -> list[tuple[str, str]]:
    """Return the pairs of docs/style.md, before and after."""
    rows = [line.split(" | ") for line in (ROOT / "docs" / "style.md").read_text().splitlines() if line.count("|") == 3]
    return [(before.strip("| "), after.strip("| ")) for before, after in rows[2:]]


def test_the_sentences_after_stand_on_the_pages_and_those_before_do_not():
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.name not in ("style.md", "report.md")]
    text = "\n".join(re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(path.read_text().split())) for path in pages)
    assert [after for _, after in pairs() if after not in text] == []
    assert [before for before, _ in pairs() if before in text] == []


def test_the_page_of_style_shows_thirty_before_and_after_and_takes_its_own_advice():
    assert len(pairs()) >= 30
    assert not [after for _, after in pairs() for phrase in STUMBLES if re.search(phrase, after)]
