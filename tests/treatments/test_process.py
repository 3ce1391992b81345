"""The process's heap and threads as treatments, checked in a process of their own (`support/process_checks.py`).

The heap of a process that has run other tests is full of holes, in which page faults cannot be counted.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKS = Path(__file__).parents[1] / "support" / "process_checks.py"


def test_memory_and_threads_are_switched_and_put_back_in_a_fresh_process():
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(CHECKS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "[100%]" in done.stdout
