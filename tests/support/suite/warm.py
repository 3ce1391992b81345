"""Fresh Pythons without the seconds of their imports: forks of a process that has imported torch and LeRobot.

A fork of the parent (`warm_parent.py`) becomes what ``python ARGUMENTS…`` is: it gets a folder, variables, streams and
a session, runs the program from its first line on, and ends as Python ends. It is a child of this process: signals,
waiting and CPU times are as ever. Nothing of Strobe's is imported before the fork.

A test whose subject is the start (what an import brings in, how long it takes) starts a Python of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from strobe.core.processes.forkable import FORK_SAFE

LIMIT_S = 600.0
# What takes long in LeRobot's commands. lerobot_train is not there: a process that has imported it is a training to
# Strobe's plug-in.
MODULES = (
    "lerobot.policies.factory", "lerobot.datasets.factory", "lerobot.scripts.lerobot_rollout",
    "lerobot.scripts.lerobot_eval", "accelerate",
)  # fmt: skip
# Variables that imports read, or Python itself: what needs another value of one starts a Python of its own.
_READ_EARLY = re.compile(
    r"(HF|TRANSFORMERS|XDG|LC)_\w+|(OMP|MKL|OPENBLAS)_NUM_THREADS|HOME|LANG|PYTHON(?!PATH|BREAKPOINT)\w+"
)
_VARIABLES = dict(os.environ)  # while tests are collected: none has changed one yet
_PARENT = Path(__file__).with_name("warm_parent.py")
_ADOPT = 36  # prctl's PR_SET_CHILD_SUBREAPER: be the parent of orphans among the own descendants


@dataclass
class Program:
    """A program that was started; at the end of its ``with`` it is killed.

    Attributes:
        returncode: None while it runs; negative, the number of the signal that ended it.
    """

    args: list[str]
    pid: int
    reap: Callable[[float | None], int] = field(repr=False)
    streams: tuple[IO[str], IO[str]] = field(repr=False)
    returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = LIMIT_S) -> int:
        """Return the exit code. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self.returncode = self.reap(timeout)
        return self.returncode

    def wait_for_end(self, timeout: float | None = LIMIT_S) -> subprocess.CompletedProcess[str]:
        """Wait for its end. Return its exit code and all that it printed."""
        code = self.wait(timeout)
        return subprocess.CompletedProcess(self.args, code, *(self._text(stream) for stream in self.streams))

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        for stream in self.streams:
            stream.close()

    @staticmethod
    def _text(stream: IO[str]) -> str:
        stream.seek(0)
        return stream.read()


def start(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, session: bool = False
) -> Program:
    """Start ``python ARGUMENTS…``; they begin with ``-m MODULE`` or ``-c CODE``. Its stdin is empty.

    Args:
        env: all of its variables; None for those of this process.
        session: whether it has a session and a process group of its own.
    """
    args, variables = [sys.executable, *map(str, arguments)], dict(os.environ if env is None else env)
    out, err = _stream(), _stream()
    if sys.platform == "linux":
        pid = _parent().fork(
            {"arguments": args[1:], "cwd": str(cwd or Path.cwd()), "env": variables, "session": session}, out, err
        )
        return Program(args, pid, functools.partial(_reap, pid), (out, err))
    process = subprocess.Popen(
        args, cwd=cwd, env=variables, start_new_session=session, stdin=subprocess.DEVNULL, stdout=out, stderr=err
    )
    return Program(args, process.pid, process.wait, (out, err))


def run(*arguments: str | Path, timeout: float = LIMIT_S, **options: Any) -> subprocess.CompletedProcess[str]:
    """Start ``python ARGUMENTS…`` with the options of `start`, and wait for its end."""
    with start(*arguments, **options) as program:
        return program.wait_for_end(timeout)


def _stream() -> IO[str]:
    return tempfile.TemporaryFile("w+", errors="replace")


class _Parent:
    """The process that is forked, and orders to it; it ends with this process."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._log = _stream()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(_PARENT), str(theirs.fileno()), *MODULES],
                stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, env=_VARIABLES,
                pass_fds=[theirs.fileno()],
            )  # fmt: skip
        atexit.register(self._close)
        self._answer()
        tasks = Path(f"/proc/{self._process.pid}/task")
        threads = [(task / "comm").read_text().strip() for task in tasks.iterdir() if task.name != tasks.parent.name]
        assert {*threads} <= {*FORK_SAFE}, f"a fork would lose threads: {threads}"

    def fork(self, order: dict[str, object], *streams: IO[str]) -> int:
        """Return the process id of a child of this process that has the streams as its stdout and stderr."""
        env: dict[str, str] = order["env"]  # type: ignore[assignment]
        other = sorted(name for name in {*env, *_VARIABLES} if env.get(name) != _VARIABLES.get(name))
        early = list(filter(_READ_EARLY.fullmatch, other))
        assert not early, f"imports have read {', '.join(early)}: start a Python of its own"
        _adopt(True)
        try:
            socket.send_fds(self._connection, [json.dumps(order).encode()], [one.fileno() for one in streams])
            return int(self._answer())
        finally:
            _adopt(False)

    def _answer(self) -> bytes:
        answer = self._connection.recv(100)
        if not answer:
            self._log.seek(0)
            raise AssertionError(f"the warm parent ended: {self._log.read()[-3000:]}")
        return answer

    def _close(self) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self._connection.shutdown(socket.SHUT_RDWR)  # a fork of this process may hold the socket as well
        self._process.wait()


@functools.cache
def _parent() -> _Parent:
    return _Parent()


def _adopt(orphans: bool) -> None:
    ctypes.CDLL(None).prctl(_ADOPT, int(orphans))


def _reap(pid: int, timeout: float | None) -> int:
    """Wait for a child's end. Return its exit code. Raises subprocess.TimeoutExpired."""
    process = os.pidfd_open(pid)
    try:
        over, _, _ = select.select([process], [], [], timeout)
    finally:
        os.close(process)
    if not over:
        raise subprocess.TimeoutExpired("program", timeout or 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
