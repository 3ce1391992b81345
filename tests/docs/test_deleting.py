"""A slice goes with its folder: without it, the core and the other slices work as before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.suite import warm
from support.suite.places import ROOT
from support.suite.scripts import load_script

# Slices that no other slice imports, each with another slice whose tests are run without it.
GONE = {"trials": "history", "history": "budget", "doctor": "trials"}
OF_ALL = {"docs", "test_golden.py", "test_kinds.py"}  # they read the answers of all slices
CORE_TESTS = ("measure", "results", "timeline")  # folders in tests/core

# Deletes one floor of slices after the other, slice by slice, and starts Strobe after each. After each floor it also
# asks for the help of every command that is left. Prints a list of: slice, commands that are there, failures.
DELETES = """
import contextlib, io, json, shutil, sys
from pathlib import Path
rows = []
def text(*argv):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(list(argv))
    return out.getvalue() if code == 0 else f"exit code {code}: {out.getvalue()}"
for floor in json.loads(sys.argv[1]):
    for name in floor:
        shutil.rmtree(Path("src/strobe", name))
        for module in [each for each in sys.modules if each.partition(".")[0] == "strobe"]:
            del sys.modules[module]
        from strobe.core import slices
        from strobe.core.cli.main import main
        helped, there = text("--help"), sorted(slices.commands())
        wrong = [each for each in there if f"\\n  {each} " not in helped]
        if name == floor[-1]:
            said = {f"strobe {each}": text(each, "--help") for each in there}
            wrong += [f"{each}: {words[-300:]}" for each, words in said.items() if not words.startswith(each)]
        rows.append([name, there, wrong])
print(json.dumps(rows))
"""

slices = load_script("slices")


def covers_all_slices(file: Path) -> bool:
    """Return whether a file of tests has the answers of all slices."""
    return "any_result" in file.read_text() or not OF_ALL.isdisjoint(file.parts)


def copy_lacking_slice(name: str, folder: Path) -> str:
    """Copy the sources into ``folder`` without one slice. Return the PYTHONPATH of the copy."""
    assert not [other for other, used in slices.imports().items() if name in used]
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", name))
    assert not (folder / "src" / "strobe" / name).exists()
    return str(folder / "src")


@pytest.mark.slow("Strobe starts three times on a copy of the sources, whose bytecode is made", each_change=True)
def test_without_a_slice_its_command_is_gone_and_nothing_else(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": copy_lacking_slice("history", tmp_path)}
    run = next((ROOT / "docs" / "examples").glob("*breakdown*/result.json")).parent
    shutil.copytree(run, tmp_path / "run")
    helped = warm.run("-m", "strobe", "--help", cwd=tmp_path, env=environment)
    assert helped.returncode == 0, helped.stderr
    assert "\n  report " in helped.stdout
    assert "\n  history " not in helped.stdout
    shown = warm.run("-m", "strobe", "report", "run", cwd=tmp_path, env=environment)
    assert shown.returncode == 0, shown.stderr
    refused = warm.run("-m", "strobe", "history", "run", cwd=tmp_path, env=environment)
    assert refused.returncode == 2
    assert "unknown command 'history'" in refused.stderr


@pytest.mark.slow("Strobe starts once for each slice on a copy of the sources")
def test_the_slices_go_one_after_the_other_from_the_top_floor(tmp_path: Path) -> None:
    from strobe.core import slices as installed

    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    floors = [floor for floor in slices.floors() if floor != [slices.CORE]]
    command = [sys.executable, "-c", DELETES, json.dumps(floors)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-4000:]
    there = {name: {command.name for command in each.commands} for name, each in installed.slices().items()}
    used, rows = slices.imports(), json.loads(ran.stdout)
    assert [name for name, *_ in rows] == [name for floor in floors for name in floor]
    for name, left, wrong in rows:
        there.pop(name, None)
        used.pop(name)
        assert wrong == [], name
        assert set(left) == set().union(*there.values()), name
        assert [other for other, names in used.items() if name in names] == [], name


@pytest.mark.slow("the tests of the core and of another slice, on sources without one of three slices")
@pytest.mark.parametrize("name", GONE)
def test_without_a_slice_the_tests_of_the_others_pass(name: str, tmp_path: Path) -> None:
    path = copy_lacking_slice(name, tmp_path)
    rooms = {("core", room) for room in CORE_TESTS}
    files = [file for file in slices.table()["core"] if Path(file).parts[1:3] in rooms]
    files += slices.table()[GONE[name]]
    kept = [
        file for file in files if name not in slices.tested_slices(ROOT / file) and not covers_all_slices(ROOT / file)
    ]
    assert len(kept) > 20
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-m", "not slow and not matrix"]
    ran = subprocess.run(
        [*command, *kept], cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
