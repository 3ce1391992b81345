"""The first lines of an answer: the decision first, in a sentence that can be read aloud (docs/style.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.checks.golden import ALL, result_name

from strobe.core import kinds
from strobe.core.runs import store

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
