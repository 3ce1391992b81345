"""Any answer can be shown, judged and read again, whatever its numbers and texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checks.renderings import console_text
from support.examples import any_result
from support.examples.findings_results import make_measurement
from support.suite.example_count import scale_count
from support.suite.health import EVERY_CHECK

from strobe.core import kinds
from strobe.core.report import markdown, tables
from strobe.core.results.measurement import Measurement
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


def measurement(name: str, parts: Mapping[str, float]) -> Measurement:
    return make_measurement(dict(parts), name=name, n=1)


BARE = {
    "policy": 90, "policy/prefix": 40, "policy/denoise step": 45, "policy/denoise step/expert": 41,
    "policy/denoise step/other": 4, "policy/other": 5, "other": 10,
}  # fmt: skip
WRAPPED = {
    "policy": 95, "policy/prefix": 40, "policy/RTC step": 52, "policy/RTC step/denoise step": 46,
    "policy/RTC step/denoise step/expert": 42, "policy/RTC step/denoise step/other": 4,
    "policy/RTC step/autograd correction": 2, "policy/RTC step/other": 4, "policy/other": 3, "other": 5,
}  # fmt: skip


def test_the_bare_part_moves_beside_the_wrapped_one():
    bare, wrapped = tables.side_by_side([measurement("a", BARE), measurement("b", WRAPPED)], None)
    for path, ms in {
        "policy/RTC step/denoise step": 45,
        "policy/RTC step/denoise step/expert": 41,
        "policy/RTC step/denoise step/other": 4,
        "policy/other": 5,
        "other": 10,
    }.items():
        assert bare[tuple(path.split("/"))].summary.median == ms
    assert ("policy", "RTC step") not in bare
    assert ("policy", "RTC step", "other") not in bare
    assert len(bare) == len(BARE)
    assert len(wrapped) == len(WRAPPED)


def test_the_split_of_rtc_is_relative_to_its_base_denoising():
    table = tables.guidance([measurement("a", BARE), measurement("b", WRAPPED)])
    cells = {row.cells[0]: row.cells[1:] for row in table.rows}
    assert list(cells) == ["Base denoising", "Guidance", "Autograd correction", "RTC overhead"]
    assert cells["Base denoising"][1] == "100.0 %"
    assert cells["RTC overhead"] == ["6.00", "13.0 %"]
    assert cells["Guidance"][0] == "4.00"
    assert tables.guidance([measurement("a", BARE)]) is None
