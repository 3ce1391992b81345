"""Functions of NumPy are compared, broken down and verified without LeRobot, and where torch is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import strobe
from strobe.core.cli import main
from strobe.core.errors import UserError

# Python's own finder, which finds what is installed except what is hidden: as if it were not.
HIDDEN = """
import importlib.machinery, sys
class Rest(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = ("torch", "torchvision", "lerobot", "transformers")
        return None if name.partition(".")[0] in hidden else super().find_spec(name, path, target)
sys.meta_path = [Rest if each is importlib.machinery.PathFinder else each for each in sys.meta_path]
"""
PROGRAM = """
import numpy, sys, strobe
from strobe.core.errors import UserError
calls = {"quick": lambda x: numpy.sort(x), "stable": lambda x: numpy.sort(x, kind="stable")}
given = numpy.arange(1000.0)[::-1]
compared = strobe.compare(calls, given, seconds=0.2).result
print(compared.comparisons[0].agreement.largest_error, compared.machine.device)
broken_down = strobe.breakdown(calls["quick"], given, seconds=0.2)
print(broken_down.result.measurements[0].samples.summary.median > 0)
print(strobe.verify(calls["quick"], lambda x: numpy.sort(x) + 1, given, guard="largest_error<=0.1").has_passed)
try:
    strobe.compare(calls, given, device="nonsense")
except UserError as error:
    print(error)
print(sorted({"lerobot", "transformers", "torch"} & sys.modules.keys()))
"""


@pytest.mark.slow("a fresh Python that imports the core and measures three times", each_change=True)
@pytest.mark.parametrize("torch_is_there", [False, True])
def test_functions_of_numpy_need_neither_torch_nor_lerobot(torch_is_there: bool, tmp_path: Path) -> None:
    program = PROGRAM if torch_is_there else HIDDEN + PROGRAM
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    *answers, refused, imported = ran.stdout.splitlines()
    assert answers == ["0.0 cpu", "True", "False"]
    assert "no device 'nonsense'" in refused if torch_is_there else "torch is not installed" in refused
    assert imported == ("['torch']" if torch_is_there else "[]")


@pytest.mark.parametrize("name", ["optimize", "load_policy", "apply_recipe", "revert_recipe"])
def test_what_needs_lerobot_says_so_in_a_line(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(strobe, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=rf"^strobe\.{name} needs LeRobot: pip install 'strobe-lab\[lerobot\]'$"):
        getattr(strobe, name)


def test_a_command_that_needs_lerobot_says_so_before_its_flags(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(main, "find_spec", lambda _: None)
    of_server = ["breakdown", "--policy.server=ws://localhost:1", "--wrong"]
    for argv, needs in ((["tune"], True), (["train", "--wrong"], True), (["report", "x"], False), (of_server, False)):
        assert main.main(argv) == 2
        assert ("needs LeRobot: pip install" in capsys.readouterr().err) is needs
    main.main(["verify", "--policy.factory=FILE.py:make"])
    assert "; strobe.verify in Python does not" in capsys.readouterr().err
