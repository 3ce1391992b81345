"""A process in another environment that runs one side of the comparison."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from strobe.environments.options import SideOptions
from strobe.errors import UserError
from strobe.processes.command import last_line
from strobe.processes.lifetime import Closing, Ending

CARRIED = Path(__file__).parent / "carried"
GRACE_S = 1.0  # in which a side ends by itself once its input has closed
_FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")  # of this environment, not of another


class SideEndedError(UserError):
    """A side's process ended, or did not answer in time, before it had answered."""


class SideFailedError(UserError):
    """An order failed on a side; the process goes on."""


class Side(Closing):
    """A process that holds the policy in its environment and answers one order after the other.

    Ctrl-C is this process's to answer. The other one ends with its input, so it never outlives this one.

    Args:
        log: takes what the side prints.
    """

    def __init__(self, options: SideOptions, log: Path) -> None:
        self.options, self.log = options, log
        self._answers: queue.Queue[str | None] = queue.Queue()
        environment = dict(os.environ)
        if options.python:
            environment = {name: value for name, value in environment.items() if name not in _FOREIGN}
        if options.lerobot:
            environment["PYTHONPATH"] = os.pathsep.join(
                filter(None, (str(options.source()), environment.get("PYTHONPATH", "")))
            )
        with log.open("wb") as written:
            self._process = subprocess.Popen(
                [options.python or sys.executable, "-u", str(CARRIED)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=written,
                env=environment,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
        self.pid: int = self._process.pid
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def name(self) -> str:
        """The side's name."""
        return self.options.name

    def ask(self, do: str, limit_s: float, **order: Any) -> dict[str, Any]:
        """Return the answer to an order. Raises as `order` and `answer` do."""
        self.order(do, **order)
        return self.answer(limit_s)

    def order(self, do: str, **order: Any) -> None:
        """Give an order, whose answer is to be fetched before the next one. Raises SideEndedError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise self._ended() from None

    def answer(self, limit_s: float) -> dict[str, Any]:
        """Return the answer to the order that was given last.

        Raises:
            SideFailedError: the order failed there.
            SideEndedError: the process ended, or took longer than ``limit_s`` seconds, and was ended for it.
        """
        try:
            line = self._answers.get(timeout=limit_s)
        except queue.Empty:
            self.close()
            raise SideEndedError(f"'{self.name}' did not answer within {limit_s:.0f} s and was ended") from None
        if line is None:
            raise self._ended()
        answer = json.loads(line)
        if "error" in answer:
            place = f" ({answer['place']})" if answer["place"] else ""
            raise SideFailedError(f"'{self.name}' failed: {answer['error']}: {answer['text']}{place}")
        return answer

    def close(self) -> None:
        """End it with all that it started. May be called twice."""
        process = self._process
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        ends = time.monotonic() + GRACE_S
        while process.poll() is None and time.monotonic() < ends:
            time.sleep(0.01)
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _ended(self) -> SideEndedError:
        self.close()
        ending = Ending(self._process.returncode)
        said = last_line(self.log)
        why = " (the kernel does that where memory runs out)" if ending.killed else f": {said}" if said else ""
        return SideEndedError(f"'{self.name}' ended with {ending}{why}"[:400])
