"""The names of LeRobot that Strobe uses: the installed one has them all, and a private one is listed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import lerobot
import pytest

import strobe
from strobe.doctor import versions as used_names
from strobe.doctor.versions import OPTIONAL, PRIVATE, MissingName, names_of_lerobot

STROBE, LEROBOT = Path(strobe.__file__).parent, Path(lerobot.__file__).parent


def test_this_lerobot_has_every_name_that_is_used():
    assert used_names.missing_names() == []
    assert len(list(used_names.used_names())) > 100


def test_a_name_that_a_newer_lerobot_lacks_is_found_with_its_file(monkeypatch: pytest.MonkeyPatch):
    plain = used_names.has_name
    monkeypatch.setattr(used_names, "has_name", lambda module, name: name != "RTCConfig" and plain(module, name))
    monkeypatch.setitem(PRIVATE, "rollout.strategies.core", ("_log_telemetry", "_gone"))
    monkeypatch.setitem(PRIVATE, "gone_module", ("_log_telemetry",))
    found = {one.name: one for one in used_names.missing_names()}
    assert "lerobot.rollout.strategies.core:_gone" in found
    assert found["lerobot.gone_module:_log_telemetry"].used_in == "loops/rollout.py"
    of_rtc = next(one for name, one in found.items() if name.endswith(":RTCConfig"))
    assert (STROBE / of_rtc.used_in).is_file()


def test_the_doctor_names_what_is_missing():
    assert names_of_lerobot([]).outcome == "holds"
    check = names_of_lerobot(
        [MissingName("lerobot.configs.train:TrainPipelineConfig", "lerobot/flags/argument_names.py")]
    )
    assert check.outcome == "doubtful"
    assert "lerobot.configs.train:TrainPipelineConfig (for lerobot/flags/argument_names.py)" in check.seen


# LeRobot has private names that other libraries have too, and Strobe means the others' ones.
OF_OTHERS = {"_apply": "torch", "_buffers": "torch", "_version": "torch", "_builder": "timm"}


def private_names_of_lerobot() -> set[str]:
    """Return the private attributes, methods, functions and constants that LeRobot's source defines."""
    made = re.compile(
        r"self\.(_[a-zA-Z]\w*)\s*(?::[^=\n]+)?=|^\s*(?:async )?def (_[a-zA-Z]\w*)\(|^(_[a-zA-Z]\w*)\s*(?::[^=\n]+)?=",
        re.MULTILINE,
    )
    return {
        name for file in LEROBOT.rglob("*.py") for found in made.findall(file.read_text()) for name in found if name
    }


def find_private_names(file: Path) -> Iterator[tuple[str, int]]:
    """Yield the private names that a file uses of other objects: as an attribute, or as a part of a name in quotes."""
    tree = ast.parse(file.read_text())
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            own.add(node.attr)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr not in own:
            yield node.attr, node.lineno
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.]+", node.value):
            yield from ((part, node.lineno) for part in node.value.split("."))


def test_a_private_name_of_lerobot_that_is_used_is_listed():
    theirs = private_names_of_lerobot() - set(OF_OTHERS)
    listed = {name for names in (*PRIVATE.values(), *OPTIONAL.values()) for name in names}
    for file in STROBE.rglob("*.py"):
        for name, line in find_private_names(file):
            assert name not in theirs or name in listed, f"{file.relative_to(STROBE)}, line {line}: {name}"
