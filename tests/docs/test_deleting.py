"""A slice goes with its folder: without it, the core and the other slices work as before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import warm
from support.places import ROOT
from support.scripts import load_script

# Slices that no other slice imports, each with another slice whose tests are run without it.
GONE = {"trials": "history", "history": "budget", "doctor": "trials"}
OF_ALL = {"docs", "test_golden.py", "test_kinds.py"}  # they read the answers of all slices
CORE_TESTS = ("measure", "results", "timeline")  # folders in tests/core

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
        [*command, *kept],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
