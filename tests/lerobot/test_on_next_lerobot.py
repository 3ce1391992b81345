"""The loops on LeRobot's next version, by the same tests: STROBE_NEXT_LEROBOT names its wheel, else this is skipped."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

WHEEL = os.environ.get("STROBE_NEXT_LEROBOT", "")
HERE = Path(__file__).parent
LOOPS = ("test_rollout.py", "test_other_loops.py", "test_remote_inference.py")


@pytest.mark.skipif(not WHEEL, reason="STROBE_NEXT_LEROBOT names no wheel")
@pytest.mark.parametrize("name", LOOPS)
def test_the_loops_are_watched_on_it(name, tmp_path):
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(tmp_path / "next")
    path = os.pathsep.join([str(tmp_path / "next"), *filter(None, [os.environ.get("PYTHONPATH")])])
    there = {**os.environ, "PYTHONPATH": path}
    which = "import lerobot, pathlib; print(pathlib.Path(lerobot.__file__).parents[1])"
    found = subprocess.run([sys.executable, "-c", which], capture_output=True, text=True, env=there, check=True)
    assert found.stdout.strip() == str(tmp_path / "next")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--show-capture=no", "--tb=short",
         str(HERE / name)],
        capture_output=True, text=True, check=False, env=there, cwd=HERE.parents[1],
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-5000:]
