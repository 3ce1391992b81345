"""A LeRobot plug-in that nobody here has seen: installed, found by its type, cut along its modules.

It is tests/support/foreign, without the record that another package could bring of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.suite.places import TESTS

from strobe.core.runs import store


@pytest.mark.slow("a cold start of the real console script", each_change=True)
def test_a_plug_in_is_found_and_cut_along_its_modules(tmp_path):
    """A true cold start of strobe's own program, as in a user's shell."""
    command = [
        Path(sys.executable).with_name("strobe"), "breakdown", "--policy.type=small_flow", "--policy.shaped=true",
        "--iterations=5", "--phases=[inference, training step]", f"--output_dir={tmp_path}",
    ]  # fmt: skip
    paths = [str(TESTS / "support" / "foreign"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.rglob("result.json")
    result = store.load(file)
    assert result.subject.anatomy == "modules"
    assert result.subject.parameters > 2 * 16 * 2**15  # with those that only an object of the plug-in's own holds
    for measurement in result.measurements:
        assert {"encoder", "velocity", "shaping.layers.0", "other"} <= {part.name for part in measurement.components}
