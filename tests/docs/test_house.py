"""The house as a newcomer finds it: no circles, no giants, few words of its own, and pages that name what is there."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.suite.places import ROOT
from support.suite.scripts import load_script

SOURCES = ROOT / "src" / "strobe"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("house")


@pytest.fixture(scope="module")
def house(script: ModuleType) -> Any:
    return script.House()


def test_no_modules_import_each_other_in_a_circle(house: Any) -> None:
    assert house.circle == []


def test_no_function_is_too_long_or_takes_too_much(script: ModuleType, house: Any) -> None:
    assert house.list_long_functions(script.LONGEST) == {}
    assert house.list_many_parameter_functions(script.MANY) == {}


def test_sizes_keep_their_budgets(script: ModuleType, house: Any) -> None:
    lines = script.judge(house.budgeted_figures | script.budgeted_of_tests(), script.read_budgets())
    assert lines == [], "\n".join([*lines, f"{house.bare_names=}", f"{house.small_with_one_importer=}"])


def test_the_seconds_of_the_suite_are_measured(script: ModuleType) -> None:
    assert script.DURATIONS.is_file(), "tests/durations.json is missing: no budget holds the seconds of the tests"
    assert {"seconds of tests", "seconds of tests at each change"} <= script.read_budgets().keys()


BUDGETS = {"lines of cli": 8500, "modules": 600}
FIGURES = {"lines of cli": 8440, "modules": 600}


def judge(script: ModuleType, figures: dict[str, int]) -> list[str]:
    """Return the names of the figures that the judge complains about."""
    return [line.partition(":")[0] for line in script.judge(figures, BUDGETS)]


def test_a_budget_holds_growth_and_asks_to_be_lowered(script: ModuleType) -> None:
    assert judge(script, FIGURES) == []
    assert judge(script, FIGURES | {"modules": 601}) == ["modules"], "over"
    assert judge(script, FIGURES | {"lines of cli": 8501}) == ["lines of cli"], "over"
    assert judge(script, FIGURES | {"lines of cli": 8301}) == [], "a small change needs no other budget"
    assert judge(script, FIGURES | {"lines of cli": 8300}) == ["lines of cli"], "room to spare"
    assert judge(script, FIGURES | {"modules": 598}) == ["modules"], "room to spare"
    assert judge(script, FIGURES | {"lines of trials": 1}) == ["lines of trials"], "a new folder has no budget"
    assert judge(script, {"modules": 600}) == ["lines of cli"], "the folder is gone, and its budget is there"


def test_budgets_are_lowered_and_never_raised(script: ModuleType, tmp_path: Path) -> None:
    file, budgets = tmp_path / "budgets.toml", dict(BUDGETS)
    for figures, expected in (
        (FIGURES, BUDGETS),
        (FIGURES | {"modules": 610}, BUDGETS),
        ({"lines of cli": 8001, "modules": 590}, {"lines of cli": 8100, "modules": 590}),
        ({"modules": 590, "lines of trials": 3}, {"modules": 590}),
    ):
        script.write_budgets(script.lower(figures, budgets), file)
        budgets = script.read_budgets(file)
        assert budgets == expected


def test_the_house_is_measured(script: ModuleType, tmp_path: Path) -> None:
    room = tmp_path / "src" / "strobe" / "room"
    room.mkdir(parents=True)
    (room / "a.py").write_text("from typing import Any\n\nx: Any = 1\n")
    late = "    import strobe.room.a\n\n    def later():\n        from strobe.room import a\n        import os\n"
    (room / "b.py").write_text(f"def late():\n{late}")
    (room / "c.py").write_text("import strobe.room.b\n")
    assert script.House(tmp_path / "src").budgeted_figures == {
        "Any": 1, "bare names": 0, "imports from strobe inside functions": 2, "lines": 10, "lines of room": 10,
        "modules": 3, "modules with one importer": 2, "modules with one importer, small": 2,
    }  # fmt: skip
    durations = tmp_path / "durations.json"
    assert script.budgeted_of_tests(tmp_path / "src", durations) == {
        "lines of tests": 10,
        "lines of golden and approved data": 0,
    }
    times = {"wall": 12.0, "cpu": 9.0, "each_change": 3.5, "tests": {}}
    durations.write_text(json.dumps({"tests/test_a.py": times, "tests/test_b.py": times}))
    seconds = script.budgeted_of_tests(tmp_path / "src", durations)
    assert {name: figure for name, figure in seconds.items() if name.startswith("seconds")} == {
        "seconds of tests": 24,
        "seconds of tests at each change": 7,
    }


def test_the_architecture_has_the_floors_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (floors,) = [contract["layers"] for contract in contracts if contract["name"] == "floors of the core"]
    text = (
        (ROOT / "docs" / "architecture.md").read_text().split("The floors of the core:\n\n", 1)[1].split("\n\n", 1)[0]
    )
    assert [set(line.replace("|", " ").split()) for line in text.splitlines()] == [
        set(floor.replace("|", " ").split()) for floor in floors
    ]


def test_a_circle_is_found(script: ModuleType, tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")):
        (tmp_path / f"{name}.py").write_text(f"def late():\n    import {other}\n    return {other}\n")
    assert set(script.House(tmp_path).circle) == {"a", "b", "c"}


def test_few_words_are_the_houses_own(script: ModuleType) -> None:
    words = script.house_words()
    assert 10 < len(words) <= 25


def test_the_architecture_names_every_room() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = {path.parent.name for folder in (SOURCES, SOURCES / "core") for path in folder.glob("*/__init__.py")}
    rooms -= {"core"}
    for room in sorted(rooms):
        assert f"\n| `{room}` | " in text, f"docs/architecture.md has no row for {room}"


@pytest.mark.parametrize("page", ["architecture", "decisions"])
def test_the_pages_for_developers_name_files_that_are_there(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    bases = (SOURCES, ROOT, SOURCES / "core", SOURCES / "lerobot")
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)", text))
    assert len(named) > 20
    assert sorted(name for name in named if not any((base / name).exists() for base in bases)) == []


SETTINGS = ("README.md", "SECURITY.md", "Makefile", "pyproject.toml", ".ci/run")
PATH = re.compile(r"(?<![\w/.{<*-])((?:src/strobe|scripts|tests|requirements)/[\w./-]*\w)(?![\w*{<…(/])")


def test_paths_that_pages_and_settings_name_exist() -> None:
    pages = [ROOT / name for name in SETTINGS] + [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/guides/*.md")]
    named = {(path.name, name) for path in pages for name in PATH.findall(path.read_text())}
    assert len(named) > 50
    assert sorted(pair for pair in named if not (ROOT / pair[1]).exists()) == []


# Text that Strobe or its own child process wrote a moment ago; a trace, whose reader hooks into each object.
OWN_JSON = {
    "core/cli/runner.py", "rehearse/emulator/arm.py", "rehearse/emulator/served.py", "core/untrusted.py",
    "loops/header.py", "lerobot/policies/standins.py", "traces/trace_file.py", "traces/operators.py",
}  # fmt: skip


def test_json_of_files_and_peers_is_read_by_what_refuses_deep_nesting() -> None:
    """`json.loads` raises RecursionError for it, which nobody catches who catches ValueError."""
    reads = {
        str(file.relative_to(SOURCES)) for file in SOURCES.rglob("*.py")
        if re.search(r"json\.loads?\(", file.read_text()) and "carried" not in file.parts
    }  # fmt: skip
    assert reads == OWN_JSON, "use strobe.core.untrusted.parse_json"
