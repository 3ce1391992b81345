"""A sweep's hold on the server that forks its cells: starts it when a cell needs it, replaces it when it has died.

A cell forked from a process that has imported torch and LeRobot starts in a fraction of a second, instead of the
seconds of those imports. On systems other than Linux, where frameworks do not outlive a fork, there is no server.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from strobe.sweeps.forks import Ended, Order, Started

_LOOK_EVERY_S = 0.25
# Read when they are needed. All other variables may have been read by an import, and a cell that has others than the
# server gets a process of its own.
_READ_LATE = re.compile(r"STROBE_\w+")
# Imports that ask for devices then ask the driver's library of figures, which does not rule out a fork (torch.cuda).
_OF_SERVER = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
STARTS_AT_MOST = 3  # a server that died so often is not started again


class Forked:
    """A running cell, with what `subprocess.Popen` has: ``pid``, ``wait``, ``returncode``."""

    def __init__(self, pid: int, connection: Connection[Any, Any]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.lost = False  # whether the server died, and took the cell with it
        self._connection = connection

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        if self.returncode is None:
            try:
                if not self._connection.poll(timeout):
                    raise subprocess.TimeoutExpired("cell", timeout or 0)
                ended: Ended = self._connection.recv()
                self.returncode = ended.code
            except (EOFError, ConnectionResetError):
                self.lost, self.returncode = True, -signal.SIGKILL
        return self.returncode


class Server:
    """The server, for one thread at a time: its cells end with the thread that had it started."""

    def __init__(self) -> None:
        self.pid: int | None = None  # while it runs
        self.unfit = "" if sys.platform == "linux" else "only Linux forks"  # why cells get processes of their own
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._environment: Mapping[str, str] = {}
        self._starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def fork(self, order: Order, look: Callable[[str], None], limit_s: float) -> Forked | None:
        """Return the cell that ``order`` asks for, running; None where it needs a process of its own.

        The first call waits for the server's imports, ``limit_s`` seconds at most. An exception from ``look``, or
        Ctrl-C, ends the server.
        """
        if self.unfit or not self._has_environment(order.environment):
            return None
        try:
            connection = self._connected(order.environment)
            connection.send(order)
            if not self._answered(connection, look, limit_s):
                self.close()
                return None
            answer = connection.recv()
        except (EOFError, OSError):  # it died; the next cell starts another
            self.close()
            return None
        except BaseException:
            self.close()
            raise
        if isinstance(answer, Started):
            return Forked(answer.pid, connection)
        self.unfit = answer.why
        self.close()
        return None

    def close(self) -> None:
        """End the server; a cell that runs ends with it."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
        self._connection = self._process = self.pid = None

    def _has_environment(self, wanted: Mapping[str, str]) -> bool:
        if self._process is None:
            return True  # it will be started with it
        have, names = self._environment, {*self._environment, *wanted}
        return all(have.get(name) == wanted.get(name) or _READ_LATE.fullmatch(name) for name in names)

    def _connected(self, environment: Mapping[str, str]) -> Connection[Any, Any]:
        if self._connection is not None and self._connection.poll():  # it says nothing unasked: its end is closed
            self.close()
        if self._connection is not None:
            return self._connection
        self._starts += 1
        if self._starts > STARTS_AT_MOST:
            self.unfit = f"it died {STARTS_AT_MOST} times"
            raise EOFError
        ours, theirs = multiprocessing.Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "strobe.sweeps.forks", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**environment, **_OF_SERVER},
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the sweep's to handle
            )
        self._connection, self._environment, self.pid = ours, environment, self._process.pid
        return ours

    @staticmethod
    def _answered(connection: Connection[Any, Any], look: Callable[[str], None], limit_s: float) -> bool:
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            if connection.poll(_LOOK_EVERY_S):
                return True
            look("importing what the cells need")
        return False
