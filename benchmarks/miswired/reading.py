"""Read the data set in the folder that is named, in a process without torch, and print what it took as JSON."""

from __future__ import annotations

import json
import sys
import time
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


if __name__ == "__main__":
    print(json.dumps(read_here(Path(sys.argv[1]))))
