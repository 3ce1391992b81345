"""Sides of a comparison of environments that stay open, so that many tests share what each takes to import LeRobot.

They are the real processes. A side that is given a policy again lets go of the one before.
"""

from __future__ import annotations

from pathlib import Path

import psutil

from strobe.environments.side import EnvironmentWorker, SideOptions


class KeptSides:
    """Hands out a running side of the same interpreter and checkout where one is free, else starts one."""

    def __init__(self) -> None:
        self._free: list[KeptSide] = []

    def side(self, options: SideOptions, log: Path) -> EnvironmentWorker:
        """In place of the class `EnvironmentWorker`."""
        for side in self._free:
            if (side.options.python, side.options.lerobot) == (options.python, options.lerobot):
                self._free.remove(side)
                side.options = options
                return side
        return KeptSide(options, log, self._free)

    def end(self) -> None:
        """End all of them."""
        while self._free:
            self._free.pop().end()


class KeptSide(EnvironmentWorker):
    """A side that is free again, not ended, once a comparison closes it; one that died stays dead."""

    def __init__(self, options: SideOptions, log: Path, free: list[KeptSide]) -> None:
        self._among = free
        super().__init__(options, log)

    def close(self) -> None:
        """Give it back."""
        if not psutil.pid_exists(self.pid) or psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE:
            self.end()
        elif self not in self._among:
            self._among.append(self)

    def end(self) -> None:
        """End the process."""
        super().close()
