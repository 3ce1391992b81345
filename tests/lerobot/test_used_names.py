"""The names of LeRobot that Strobe uses: the installed one has them all, and a private one is listed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import lerobot
import pytest

import strobe
from strobe.lerobot import versions
from strobe.lerobot.versions import PRIVATE, MissingName
from strobe.studies.doctor.versions import names_of_lerobot

STROBE, LEROBOT = Path(strobe.__file__).parent, Path(lerobot.__file__).parent


def test_this_lerobot_has_every_name_that_is_used():
    assert versions.missing_names() == []
    assert len(list(versions.used_names())) > 100


def test_a_name_that_a_newer_lerobot_lacks_is_found_with_its_file(monkeypatch: pytest.MonkeyPatch):
    plain = versions.has_name
    monkeypatch.setattr(versions, "has_name", lambda module, name: name != "RTCConfig" and plain(module, name))
    monkeypatch.setitem(PRIVATE, "_gone", ("lerobot.envs.metaworld", ("0.6.1",)))
    found = {one.name: one for one in versions.missing_names()}
    assert found["lerobot.envs.metaworld:_gone"].seen_in == ("0.6.1",)
    of_rtc = next(one for name, one in found.items() if name.endswith(":RTCConfig"))
    assert (STROBE / of_rtc.used_in).is_file()


def test_the_doctor_names_what_is_missing():
    assert names_of_lerobot([]).outcome == "holds"
    check = names_of_lerobot([MissingName("lerobot.configs.train:TrainPipelineConfig", "lerobot/argument_names.py")])
    assert check.outcome == "doubtful"
    assert "lerobot.configs.train:TrainPipelineConfig (for lerobot/argument_names.py)" in check.seen


def private_names_of_lerobot() -> set[str]:
    """Return the private attributes and methods that LeRobot's classes define."""
    found: set[str] = set()
    for file in (LEROBOT / "policies").rglob("*.py"):
        found |= set(re.findall(r"self\.(_[a-zA-Z]\w*)\s*(?::[^=\n]+)?=", file.read_text()))
    return found


def test_a_private_name_of_a_policy_that_is_used_is_listed():
    """Attributes of other objects, not of self, that some policy of LeRobot defines."""
    theirs = private_names_of_lerobot()
    for file in STROBE.rglob("*.py"):
        tree = ast.parse(file.read_text())
        own = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in theirs and node.attr not in own:
                assert node.attr in PRIVATE, f"{file.relative_to(STROBE)}, line {node.lineno}: {node.attr}"
