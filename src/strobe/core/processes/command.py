"""Run a Python module as a command of its own, within limits of time and memory."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import psutil

from strobe.core.processes.lifetime import Ending

PARENT = "STROBE_SWEEP_DRIVER"  # variable: the process whose death ends the command, for `lifetime.end_with`
_LOOK_EVERY_S = 0.25
# Starts a module. -P: no file of the folder that the user happens to be in takes the place of another module.
PYTHON_M = (sys.executable, *(["-P"] if sys.version_info >= (3, 11) else []), "-m")


@dataclass(frozen=True)
class Command:
    """A module to run as ``python -m MODULE ARGUMENTS…``.

    Args:
        module: has ``main()``, and may have ``prepare(*needs)``, which imports and does nothing else.
        log: an absolute path, of an empty file: it takes what the command prints.
        home: the folder that relative paths among the arguments start from.
        environment: all of its variables.
        needs: what the server that it is forked from imports for it.
    """

    module: str
    arguments: tuple[str, ...]
    log: str
    home: str
    environment: Mapping[str, str]
    needs: tuple[Any, ...] = ()


@dataclass(frozen=True)
class CommandLimits:
    """Limits of a command: seconds, and bytes of resident memory over all of its processes."""

    seconds: float
    memory_bytes: int


class Exceeded(NamedTuple):
    """A limit that stopped a command, and the seconds that it had taken, or the bytes that it held."""

    what: Literal["time", "memory"]
    value: float


class Running(Protocol):
    """A command that runs in a session of its own: a `subprocess.Popen` is one."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        ...


def start(command: Command) -> subprocess.Popen[bytes]:
    """Start ``command`` from nothing."""
    with open(command.log, "wb") as log:
        return subprocess.Popen(
            [*PYTHON_M, command.module, *command.arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**command.environment, PARENT: str(os.getpid())},
            cwd=command.home,
            start_new_session=True,  # Ctrl-C is the parent's to handle, and the command's own children end with it
        )


def supervise(process: Running, limits: CommandLimits, look: Callable[[], None]) -> tuple[Ending, Exceeded | None]:
    """Wait until ``process`` ends or exceeds a limit; then end it, and whatever it started.

    ``look`` is called a few times a second. An exception of its, or Ctrl-C, ends the process too.
    """
    began, exceeded = time.monotonic(), None
    try:
        while exceeded is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_EVERY_S)
                break
            exceeded = _find_exceeded_limit(limits, process.pid, time.monotonic() - began)
            look()
    finally:
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        elif isinstance(process, subprocess.Popen):
            process.kill()
        code = process.wait()
    return Ending(code), exceeded


def last_line(log: Path, of: int = 2000) -> str:
    """Return the last line of a log that is not blank, of its last ``of`` bytes; an empty one of an empty log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - of))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _find_exceeded_limit(limits: CommandLimits, pid: int, seconds: float) -> Exceeded | None:
    if seconds > limits.seconds:
        return Exceeded("time", seconds)
    resident = _resident_bytes(pid)
    return Exceeded("memory", resident) if resident > limits.memory_bytes else None


def _resident_bytes(pid: int) -> int:
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += member.memory_info().rss
    return total
