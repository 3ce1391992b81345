"""Read the data set in the folder that is named, in a process without torch, and print what it took as JSON.

With --command `strobe preflight` reads it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from strobe.core.measure.memory import peak_process
from strobe.core.measure.sampling import Progress
from strobe.lerobot.datasets.truth import Reading, read_truth


def read_here(folder: Path) -> dict[str, Any]:
    """Read the data set, and return seconds, the most memory, and what was said of progress."""
    reports: list[Progress] = []
    began = time.monotonic()
    # Not getrusage's ru_maxrss: a process begins with that of the one that started it, which may hold torch.
    with peak_process() as peak:
        truth = read_truth(folder, Reading(progress=reports.append))
    seconds = time.monotonic() - began
    guessed = [each.seconds + (each.seconds_left or 0.0) for each in reports if 0.2 < each.seconds / seconds < 0.9]
    return {
        "episodes": truth.episodes,
        "frames": truth.frames,
        "said": [each.what for each in truth.faults] + truth.unjudged,
        "seconds": round(seconds, 1),
        "peak_gb": round(peak.bytes / 1e9, 2),
        "reports": len(reports),
        "guessed_seconds": [round(edge(guessed, default=0.0), 1) for edge in (min, max)],
    }


def run_command(folder: Path) -> dict[str, float]:
    """Run `strobe preflight` on the data set, and return seconds and the most memory, imports included."""
    began = time.monotonic()
    with peak_process() as peak, tempfile.TemporaryDirectory() as runs, redirect_stdout(sys.stderr):
        from strobe.core.cli.main import main

        main(["preflight", f"--dataset.root={folder}", f"--output_dir={runs}"])
    return {"command_seconds": round(time.monotonic() - began, 1), "command_peak_gb": round(peak.bytes / 1e9, 2)}


if __name__ == "__main__":
    asked = run_command if "--command" in sys.argv else read_here
    print(json.dumps(asked(Path(sys.argv[1]))))
