"""Exports of tiny policies, each made once for all files of this folder, which read them and change copies."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest
from support.builders.exports import TINY, Export, Exports, load_only_answer

from strobe.core.cli.main import main


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """Give the export of a tiny policy by the flags of `strobe export`."""

    @cache
    def run_export(*flags: str) -> Export:
        root = tmp_path_factory.mktemp("export")
        code = main(["export", *flags, *TINY, f"--to={root / 'export'}", f"--output_dir={root / 'runs'}"])
        return Export(root / "export", load_only_answer(root / "runs"), code)

    return run_export


@pytest.fixture(scope="session")
def act(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """The export of a tiny ACT in float32 for OpenVINO, by a process of its own: a library's warning comes once."""
    root = tmp_path_factory.mktemp("act")
    folders = [f"--to={root / 'export'}", f"--output_dir={root / 'runs'}"]
    command = [sys.executable, "-m", "strobe", "export", "--policy.type=act", *TINY, *folders]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return Export(root / "export", load_only_answer(root / "runs"), ran.returncode, ran.stderr)
