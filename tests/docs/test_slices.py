"""The tests of a slice, and what slices import: the tables are made of the files."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from support.suite.places import ROOT
from support.suite.scripts import load_script

from strobe.core.slices import slices as core_slices

ASKED = re.compile(r'\b(?:Offer(?:\[.*\])?|_foreign_family)\("([^"]+)"')


@pytest.fixture(scope="module")
def slices() -> ModuleType:
    return load_script("slices")


def test_every_file_of_tests_belongs_to_a_slice_or_to_the_core(slices: ModuleType) -> None:
    named = {name for rows in slices.table().values() for name in rows}
    assert named == {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}


def test_every_folder_has_its_floor(slices: ModuleType) -> None:
    assert sorted(name for floor in slices.floors() for name in floor) == sorted([slices.CORE, *slices.names()])


def test_a_slice_imports_and_names_in_strings_only_floors_below_it(slices: ModuleType) -> None:
    floor_of = {name: number for number, floor in enumerate(slices.floors()) for name in floor}
    wrong = [
        f"{name} names {other}: {slices.find_users(name, other)}"
        for name, others in slices.imports().items()
        for other in others
        if floor_of[other] <= floor_of[name]
    ]
    assert wrong == []


def test_a_name_in_a_string_counts_as_an_import(slices: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        'KIND = "strobe.tune.results:TuneResult"\nGROUP, SAID = "strobe.treatments", "strobe.x.y is"'
    )
    assert slices.find_strings(tmp_path / "a.py") == {"tune.results"}


def test_the_architecture_shows_the_floors(slices: ModuleType) -> None:
    assert f"\n{slices.draw_floors()}\n" in (ROOT / "docs" / "architecture.md").read_text()


def test_a_slice_has_its_own_tests_and_the_contracts(slices: ModuleType) -> None:
    servers, tune = slices.files("servers"), slices.files("tune")
    assert {"tests/servers/test_findings_server.py", *slices.CONTRACTS} <= set(servers)
    assert "tests/tune/test_tune_search.py" in tune
    assert "tests/tune/test_tune_search.py" not in servers


def test_slices_offer_what_is_asked_for_and_nothing_else() -> None:
    sources = [path.read_text() for path in (ROOT / "src").rglob("*.py")]
    asked = {name for text in sources for name in ASKED.findall(text)}
    assert asked == {name for each in core_slices().values() for name in each.offers}
