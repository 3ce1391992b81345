"""Any answer can be shown, judged and read again, whatever its numbers and texts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checks.renderings import console_text
from support.examples import any_result
from support.suite.example_count import scale_count
from support.suite.health import EVERY_CHECK

from strobe.core import kinds
from strobe.core.report import markdown
from strobe.core.runs import store

KINDS: dict[str, st.SearchStrategy[Any]] = {
    "results": any_result.results, "sweeps": any_result.sweeps, "loaders": any_result.loaders,
    "traces": any_result.traces, "servers": any_result.servers, "trials": any_result.trials,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=scale_count(40), deadline=None, suppress_health_check=EVERY_CHECK)
@given(data=st.data())
def test_any_answer_can_be_shown_judged_and_kept(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    answer = data.draw(KINDS[kind])
    document = kinds.document(answer)
    assert document.answers
    assert console_text(answer)
    assert markdown.render(document)
    if kind in ("results", "sweeps", "loaders"):
        assert "</html>" in kinds.page(answer)
    else:
        kinds.figures(answer)
    if kind != "results":  # whose names may be empty, as no field of a config is
        assert not [finding for finding in kinds.advise(answer) if finding.rule == "rule-failed"]
    assert type(answer).model_validate_json(answer.model_dump_json()) == answer
    if kind == "loaders":
        folder = tmp_path_factory.mktemp("run")
        store.save(answer, folder)
        assert store.load_answer(folder) == answer
    if kind == "sweeps":  # no cell is left out, whatever became of it
        (table,) = (section.table for section in document.sections if section.key == "cells")
        assert len(table.rows) == sum(max(1, len(cell.rows)) for cell in answer.cells)
