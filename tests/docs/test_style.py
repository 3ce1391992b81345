"""Phrases that a reader stumbles over do not come back: docs/style.md has what stands in their place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from support.literals import literals
from support.places import ROOT

# Of texts that users read. Each was in a headline, a finding or an error once.
STUMBLES = (
    r"no difference shown between", r"would have: ", r"would have been seen", r"was asked otherwise",
    r"do not exclude that", r"are missed by", r"bought nothing that", r"decides otherwise", r"unlike times",
    r"there can be no", r"of a Strobe that", r"-bound: a step", r"not shown to be worse is",
)  # fmt: skip
# House words used as nouns, and turns of phrase that hide the subject. Help, findings, errors and captions have none.
HOUSE_WORDS = (
    r"\banew\b", r"\btaught\b", r"\bone's\b", r"\b(?:was|were|is|are|been) told\b",
    r"\bwhat (?:was|is|were) (?:asked|told|kept|left|taught|found)\b",
    r"\b(?:the|every|each|no) (?:asked|told|kept|taught)\b", r"\bwired otherwise\b",
    r"\b(?:held|set) (?:against|beside)\b", r"\bnot kept\b", r"\bno number\b", r"\bfor want of\b",
    r"\bis there (?:twice|already)\b", r"\b(?:whatever|however) (?:the|its|it|old|slow)\b", r"\bmeanwhile\b",
)  # fmt: skip
SHOWN_ROOMS = ("findings", "report", "cli")  # every text in their code is shown; elsewhere those of errors
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


def _shown_literals(path: Path, tree: ast.AST) -> Iterator[str]:
    if {path.stem, *path.relative_to(ROOT / "src" / "strobe").parent.parts} & set(SHOWN_ROOMS):
        yield from literals(tree)
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name.endswith(("Error", "Fault", "Finding")):
                yield from literals(node)


def find_house_words(texts: Iterable[tuple[str, str]]) -> list[str]:
    """Return "where: text" of each of ``texts`` (where, text) that has one."""
    return [f"{where}: {text}" for where, text in texts for word in HOUSE_WORDS if re.search(word, text, re.IGNORECASE)]


def test_no_finding_error_or_caption_has_house_words():
    strobe = [path for path in SOURCES if (ROOT / "src" / "strobe") in path.parents]
    texts = [
        (str(path.relative_to(ROOT)), text)
        for path in strobe
        for text in _shown_literals(path, ast.parse(path.read_text()))
    ]
    assert len(texts) > 3000
    assert find_house_words(texts) == []


def test_no_help_has_house_words():
    helps = sorted((ROOT / "tests" / "approved" / "help").glob("*.txt"))
    assert len(helps) > 20
    assert find_house_words((path.name, " ".join(path.read_text().split())) for path in helps) == []


def test_a_house_word_is_seen():
    code = 'raise UserError(f"{name}: what was kept is not of this recipe; start anew")'
    (text,) = (text for text in literals(ast.parse(code)) if " " in text)
    assert len(find_house_words([("here", text)])) == 2
