"""The example runs that are committed were written by earlier versions of Strobe: they load and can be shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.checks.golden import EXAMPLES

from strobe.core import kinds
from strobe.core.cli.keep import render_text
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
