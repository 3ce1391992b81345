"""Answers on disk: each is shown with all that it holds, its decision first, with what was not judged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.checks.golden import ALL, EXAMPLES, golden, result_name

from strobe.core import kinds
from strobe.core.cli.keep import render_text
from strobe.core.report import markdown
from strobe.core.runs import store


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_is_shown_with_all_that_it_holds(path: Path):
    answer = store.load_answer(path)
    document, figures = kinds.document(answer), kinds.figures(answer)
    text, page = render_text(answer), kinds.page(answer)
    assert document.answers[0].split()[0] in text
    for section in document.sections:
        assert section.detail or section.title.upper() in text
        assert section.title.replace("&", "&amp;") in page.replace("&#39;", "'")
    shown = {section.key for section in document.sections}
    assert {key for key, drawn in figures.items() if drawn} <= shown, "a plot without a section is never seen"


MOST = 12  # words of a decision


@pytest.mark.parametrize("file", ALL, ids=result_name)
def test_the_first_line_is_a_short_sentence_without_brackets(file: Path) -> None:
    decision = kinds.document(store.load_answer(file)).answers[0]
    words = re.sub(r"`[^`]*`", "name", decision)  # a variant's name may have any characters
    assert decision.endswith(".")
    assert len(words.split()) <= MOST
    assert not re.search(r"[\[\](){};]", words)


@pytest.mark.parametrize("file", ALL, ids=result_name)
def test_no_sentence_of_an_answer_is_said_twice(file: Path) -> None:
    answers = kinds.document(store.load_answer(file)).answers
    assert len(answers) == len(set(answers))


NOT_JUDGED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "server": ({"not_judged": ["the age of actions: give the robot's rate"]}, ("not judged: the age of actions",)),
    "trials": (
        {"rates": None, "rates_not_judged": "3 pairs are complete", "times": None, "times_not_judged": "no seconds"},
        ("is not judged: 3 pairs are complete", "Time to task is not judged: no seconds"),
    ),
}


@pytest.mark.parametrize("name", NOT_JUDGED)
def test_what_was_not_judged_is_on_the_page(name: str) -> None:
    fields, said = NOT_JUDGED[name]
    page = markdown.render(kinds.document(golden(name).model_copy(update=fields)))
    assert [words for words in said if words not in page] == []
