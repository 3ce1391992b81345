"""The tests of a slice, and what slices import: the tables are made of the files."""

from __future__ import annotations

from types import ModuleType

import pytest
from support.places import ROOT
from support.scripts import load_script


@pytest.fixture(scope="module")
def slices() -> ModuleType:
    return load_script("slices")


def test_every_file_of_tests_belongs_to_a_slice_or_to_the_core(slices: ModuleType) -> None:
    named = {name for rows in slices.table().values() for name in rows}
    assert named == {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}


def test_a_slice_has_its_own_tests_and_the_contracts(slices: ModuleType) -> None:
    servers, tune = slices.files("servers"), slices.files("tune")
    assert {"tests/servers/test_findings_server.py", *slices.CONTRACTS} <= set(servers)
    assert "tests/tune/test_tune_search.py" in tune
    assert "tests/tune/test_tune_search.py" not in servers
