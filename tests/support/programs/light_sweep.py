"""A sweep of light cells, for a test to kill: ``python -m support.programs.light_sweep FOLDER CELLS``."""

from __future__ import annotations

import sys
from pathlib import Path

from filelock import FileLock

from strobe.core.processes.command import CommandLimits
from strobe.sweep import grid
from strobe.sweep.execute import Job, run_here
from strobe.sweep.table import execution_folder, read_cell_outcome


class Quiet:
    def began(self, job: Job, node: str = "") -> None: ...

    def say(self, job: Job, line: str) -> None: ...

    def report_lost(self, job: Job, why: str) -> None: ...


def main() -> None:
    root, count = Path(sys.argv[1]), int(sys.argv[2])
    log = f"--log={root / 'log'}"
    cells = grid.cells("light", [log, "--sleep=0.2"], {"name": [str(i) for i in range(count)]})
    with FileLock(root / ".lock", timeout=0):
        jobs = [
            Job(cell.key, repeat, "light", cell.argv, cell.label, execution_folder(root, cell, repeat),
                CommandLimits(600, 2**40), module="support.programs.acting_cell")
            for cell, repeat in grid.shuffle_in_blocks(cells, 1)
            if read_cell_outcome(root, cell, repeat) is None
        ]  # fmt: skip
        for _ in run_here(jobs, Quiet()):
            pass
    print("complete", flush=True)


if __name__ == "__main__":
    main()
