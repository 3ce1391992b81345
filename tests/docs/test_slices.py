"""The tests of a question: the table is made of where tests lie and what they import."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import load_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def slices() -> ModuleType:
    return load_script("slices")


def test_every_file_of_tests_belongs_to_a_question_or_to_the_core(slices: ModuleType) -> None:
    named = {name for rows in slices.table().values() for name in rows}
    assert named == {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}


def test_every_pattern_names_a_module(slices: ModuleType) -> None:
    sources = ROOT / "src" / "strobe"
    names = [".".join(path.relative_to(sources).with_suffix("").parts) for path in sources.rglob("*.py")]
    of_each = {pattern: {name} for name, each in slices.patterns().items() for pattern in each}
    matched = {pattern for name in names for pattern in slices.matching(name)}
    assert set(of_each) - matched == set()


def test_a_question_has_its_own_tests_and_the_contracts(slices: ModuleType) -> None:
    servers, tune = slices.files("servers"), slices.files("tune")
    assert {"tests/findings/test_findings_server.py", *slices.CONTRACTS} <= set(servers)
    assert "tests/studies/test_tune_search.py" in tune
    assert "tests/studies/test_tune_search.py" not in servers
