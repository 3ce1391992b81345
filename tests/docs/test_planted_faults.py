"""The list of planted faults: each can still be planted, and names a test that `make test` runs."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from support.suite.places import ROOT
from support.suite.scripts import load_script

ROOMS = 20  # rooms of the core, and slices
LEFT_OUT = {"matrix", "slow", "gpu"}  # marks of what `make test` does not run

script = load_script("planted_faults")
FAULTS = script.faults()


def test_twenty_rooms_have_a_fault_of_a_name_of_its_own() -> None:
    assert len({fault.room for fault in FAULTS}) >= ROOMS
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted_and_make_test_runs_what_sees_it(fault: Any) -> None:
    source = (ROOT / fault.file).read_text()
    assert source.count(fault.text) == 1, f"{fault.file} changed: plant the fault in what does this now"
    compile(fault.plant_fault(source), fault.file, "exec")
    file, _, name = fault.seen_by.partition("::")
    module = ast.parse((ROOT / file).read_text())
    tests = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name.startswith(name or "test")]
    assert [test for test in tests if (not name or test.name == name) and not marks(test.decorator_list) & LEFT_OUT]
    of_the_file = [node for node in module.body if ast.unparse(node).startswith("pytestmark = ")]
    assert not marks(of_the_file) & LEFT_OUT


def marks(nodes: list[Any]) -> set[str]:
    """Return the attributes in some syntax trees, among them pytest's marks; but for a slow test's of each change."""
    stay = [each for each in nodes if "each_change=True" not in ast.unparse(each)]
    return {node.attr for each in stay for node in ast.walk(each) if isinstance(node, ast.Attribute)}
