"""Descriptions of fields, and comments of constants, are whole: nobody has to guess what they are about."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from support.places import ROOT

SOURCES = ROOT / "src" / "strobe"

# A clause whose noun is missing, and words that say nothing.
ELLIPSIS = re.compile(
    r"^(of|that|whose|with|without) "
    r"|^(in|on|by|to|for|from|after|within|behind|under) (which|whom|whose)\b"
    r"|\b[Nn]one (where|for|of) none\b|\bthe same where\b|(None|''|\[\]|empty|\b0) where\b"
)


def descriptions() -> Iterator[tuple[str, str]]:
    """Yield where a description stands, and its words: of a field, or in the comment behind a constant."""
    for path in sorted(SOURCES.rglob("*.py")):
        text, name = path.read_text(), str(path.relative_to(SOURCES))
        for node in ast.walk(ast.parse(text)):
            for keyword in node.keywords if isinstance(node, ast.Call) else ():
                if keyword.arg == "description" and isinstance(keyword.value, ast.Constant):
                    yield f"{name}:{keyword.value.lineno}", str(keyword.value.value)
        for number, line in enumerate(text.splitlines(), 1):
            if constant := re.match(r"_?[A-Z][A-Z0-9_]+(?:: [^=]+)? = .*  # (.*)", line):
                yield f"{name}:{number}", constant[1]


def test_descriptions_are_whole() -> None:
    found = list(descriptions())
    assert len(found) > 1500
    assert [f"{place}: {words}" for place, words in found if ELLIPSIS.search(words)] == []


@pytest.mark.parametrize("words", [
    "of it, valid at every number of pairs at once", "with which a median is within the target",
    "within which a chunk must be ready", "loss of the worst dimension; None where none decides",
    "the same where a new chunk begins", "the file's name; '' where it has none",
])  # fmt: skip
def test_an_ellipsis_is_seen(words: str) -> None:
    assert ELLIPSIS.search(words)
