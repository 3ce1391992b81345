"""Names: a function is a verb phrase, or a noun where it returns a property."""

from __future__ import annotations

from types import ModuleType

import pytest
from support.suite.places import ROOT
from support.suite.scripts import load_script


@pytest.fixture(scope="module")
def words() -> ModuleType:
    return load_script("words")


def test_no_function_is_named_by_a_preposition_or_a_participle_alone(words: ModuleType) -> None:
    named = list(words.functions(ROOT))
    assert len(named) > 8000
    faults = [
        f"{each.file}:{each.line}: {each.name} {fault}" for each in named if (fault := words.naming_fault(each.name))
    ]
    assert faults == []


@pytest.mark.parametrize(
    ("name", "sound"),
    [
        ("of_actions", False), ("with_baseline", False), ("_kept", False), ("seen", False), ("stands_still", False),
        ("_not_judged", False), ("action_guard", True), ("is_judged", True), ("_read_header", True), ("speed", True),
    ],
)  # fmt: skip
def test_the_rule_tells_names_apart(words: ModuleType, name: str, sound: bool) -> None:
    assert (words.naming_fault(name) is None) is sound
