"""Where the processes of one training meet: each leaves what it recorded in a folder, and the first gathers it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from typing_extensions import Self

from strobe.core.runs import store
from strobe.train.results import Rank

PATIENCE_S = 60.0  # time that the first rank waits for the others, once it has ended


@dataclass
class Meeting:
    """The meeting of ``processes`` in ``folder``, which all of them see; ``rank`` is this one."""

    folder: Path
    rank: int
    processes: int
    patience_s: float = PATIENCE_S

    @classmethod
    def of_environment(cls, root: Path) -> Self | None:
        """The meeting that torchrun's or accelerate's variables describe; None if this process trains alone."""
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        if processes < 2:
            return None
        # The same for all processes of a launch, and no other's: two launches at once have two ports.
        name = f".ranks-{os.environ.get('MASTER_ADDR', 'here')}-{os.environ.get('MASTER_PORT', '0')}"
        meeting = cls(root / name, int(os.environ.get("RANK", "0")), processes)
        meeting._file(meeting.rank).unlink(missing_ok=True)  # of an earlier launch
        return meeting

    def hand_over(self, own: Rank) -> list[Rank] | None:
        """Leave ``own``. Returns those of all processes that came, to the first process; None to the others."""
        self.folder.mkdir(parents=True, exist_ok=True)
        store.replace(self._file(self.rank), own.model_dump_json().encode())
        if self.rank:
            return None
        end = time.monotonic() + self.patience_s
        while len(self._present()) < self.processes and time.monotonic() < end:
            time.sleep(0.1)
        present = self._present()
        shutil.rmtree(self.folder, ignore_errors=True)
        return sorted(present, key=lambda rank: rank.rank)

    def missing(self, met: Sequence[Rank]) -> list[str]:
        """A note on the ranks that did not come."""
        absent = sorted(set(range(self.processes)) - {rank.rank for rank in met})
        return [f"nothing came from rank {', '.join(map(str, absent))}: it ended early or sees other files"] * bool(
            absent
        )

    def _file(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}.json"

    def _present(self) -> list[Rank]:
        present = []
        for rank in range(self.processes):
            try:
                present.append(Rank.model_validate_json(self._file(rank).read_bytes()))
            except (OSError, ValidationError):
                continue
        return present
