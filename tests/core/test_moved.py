"""Packages of others find modules under their former names, for one version, with one warning each."""

from __future__ import annotations

import importlib
import sys
import warnings

import pytest

NAMES = {
    "strobe.policies.families.family": "strobe.core.families.family",
    "strobe.policies.subject": "strobe.core.subjects.subject",
    "strobe.treatments.treatment": "strobe.core.treatments.treatment",
    "strobe.findings.rules": "strobe.core.findings.rules",
    "strobe.results.answer": "strobe.core.results.answer",
    "strobe.timeline.probe": "strobe.core.timeline.probe",
    "strobe.advice": "strobe.core.findings.rules",
    "strobe.subjects.anatomy": "strobe.core.families.registry",
}


@pytest.mark.slow("the first of them imports torch, by a former name", each_change=True)
@pytest.mark.parametrize("former", NAMES)
def test_a_former_name_is_the_same_module_and_warns_once(former: str) -> None:
    sys.modules.pop(former, None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first, again = importlib.import_module(former), importlib.import_module(former)
    assert first is again is importlib.import_module(NAMES[former])
    assert [str(warning.message) for warning in caught if former in str(warning.message)] == [
        f"{former} is called {NAMES[former]} now; the former name goes with the next version"
    ]


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_room"):
        importlib.import_module("strobe.no_such_room.anything")
