"""The example runs that are committed were written by earlier versions of Strobe: they load and can be shown."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from support.places import ROOT

from strobe.core import kinds
from strobe.core.cli.keep import render_text
from strobe.core.results.answer import Answer
from strobe.core.runs import store

EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*/result.json"))


@cache
def load_example(path: Path) -> Answer:
    return store.load_answer(path)


def test_there_are_examples_of_each_study_that_is_swept_or_run():
    assert {load_example(path).study for path in EXAMPLES} >= {"breakdown", "compare", "train", "optimize", "sweep"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_is_shown_with_all_that_it_holds(path: Path):
    answer = load_example(path)
    document, figures = kinds.document(answer), kinds.figures(answer)
    text, page = render_text(answer), kinds.page(answer)
    assert document.answers[0].split()[0] in text
    for section in document.sections:
        assert section.detail or section.title.upper() in text
        assert section.title.replace("&", "&amp;") in page.replace("&#39;", "'")
    shown = {section.key for section in document.sections}
    assert {key for key, drawn in figures.items() if drawn} <= shown, "a plot without a section is never seen"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_is_kept_as_it_was(path: Path, tmp_path: Path):
    store.save(load_example(path), tmp_path)
    assert store.load_answer(tmp_path) == load_example(path)
