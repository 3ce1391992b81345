"""The list of files that do not hold ruff's rules yet: it is true, and it only gets shorter."""

from __future__ import annotations

from collections import Counter

import pytest
from support.suite.scripts import load_script

# What the list hides today. These numbers only go down: .venv/bin/python scripts/offenders.py --show
MOST_FILES = 67
MOST_OFFENCES = {"D102": 184, "D104": 5, "PLR0915": 1}

offenders = load_script("offenders")


@pytest.fixture(scope="module")
def offences() -> list[tuple[str, int, str]]:
    return offenders.offences()


def test_each_file_in_the_list_offends(offences: list[tuple[str, int, str]]) -> None:
    real = {(file, rule) for file, _, rule in offences}
    listed = {(file, rule) for file, rules in offenders.read_listed().items() for rule in rules}
    assert listed - real == set(), "run .venv/bin/python scripts/offenders.py: the list names more than there is"


def test_the_list_only_gets_shorter(offences: list[tuple[str, int, str]]) -> None:
    assert len(offenders.read_listed()) <= MOST_FILES
    counts = Counter(rule for _, _, rule in offences)
    assert {rule: n for rule, n in counts.items() if n > MOST_OFFENCES.get(rule, 0)} == {}
