"""The house as a newcomer finds it: no circles, no giants, few words of its own, and pages that name what is there."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import load_script

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "strobe"
MOST_BARE_NAMES = 1
MOST_SMALL = 15


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("house")


def test_no_modules_import_each_other_in_a_circle(script: ModuleType) -> None:
    assert script.House().circle == []


def test_no_function_is_too_long_or_takes_too_much(script: ModuleType) -> None:
    house = script.House()
    assert house.longer_than(script.LONGEST) == {}
    assert house.with_more_parameters_than(script.MANY) == {}


def test_names_that_say_nothing_and_files_that_hold_nothing_only_get_fewer(script: ModuleType) -> None:
    house = script.House()
    assert len(house.bare_names) <= MOST_BARE_NAMES, house.bare_names
    assert len(house.small_with_one_importer) <= MOST_SMALL, house.small_with_one_importer


def test_a_circle_is_found(script: ModuleType, tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")):
        (tmp_path / f"{name}.py").write_text(f"def late():\n    import {other}\n    return {other}\n")
    assert set(script.House(tmp_path).circle) == {"a", "b", "c"}


def test_few_words_are_the_houses_own(script: ModuleType) -> None:
    words = script.house_words()
    assert 10 < len(words) <= 25


def test_the_architecture_names_every_room() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = {path.name for path in SOURCES.iterdir() if (path / "__init__.py").is_file()} - {"subjects"}
    for room in sorted(rooms):
        assert f"\n| `{room}` | " in text, f"docs/architecture.md has no row for {room}"


@pytest.mark.parametrize("page", ["architecture", "decisions"])
def test_the_pages_for_developers_name_files_that_are_there(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    bases = (SOURCES, ROOT, SOURCES / "policies", SOURCES / "studies")
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)", text))
    assert len(named) > 20
    assert sorted(name for name in named if not any((base / name).exists() for base in bases)) == []
