"""A server that forks commands: one starts in a fraction of a second, not in the seconds of its imports. Linux only.

`Server` is the side that gives orders: it starts the server's process when a command needs it, and replaces it when it
has died. That process (``python -m strobe.core.processes.fork_server CONNECTION PARENT``) imports what commands need
and computes nothing, so that it has no thread and no device when it forks. It makes sure of both (`forkable.unfit`),
and refuses to fork otherwise. It forks one command at a time and waits for its end. It dies with its parent, and its
command with it.

It is not multiprocessing's own server because that checks nothing, imports by name alone, and has one environment for
all.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import NoReturn

from strobe.core.processes.command import PARENT, PYTHON_M, Command
from strobe.core.processes.forkable import Ranges, file_pages, map_pages, unfit
from strobe.core.processes.lifetime import Closing, bind_to_parent

STARTS_AT_MOST = 3  # a server that died so often is not started again
_LOOK_EVERY_S = 0.25
# Read when they are needed. All other variables may have been read by an import, and a command that has others than
# the server gets a process of its own.
_READ_LATE = re.compile(r"STROBE_\w+")
# Imports that ask for devices then ask the driver's library of figures, which does not rule out a fork (torch.cuda).
_OF_SERVER = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


class Forked:
    """A running command, with ``pid`` and ``wait`` as `subprocess.Popen` has them."""

    def __init__(self, pid: int, connection: Connection) -> None:
        self.pid = pid
        self.lost = False  # whether the server died, and took the command with it
        self._code: int | None = None
        self._connection = connection

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        if self._code is None:
            try:
                if not self._connection.poll(timeout):
                    raise subprocess.TimeoutExpired("command", timeout or 0)
                code: int = self._connection.recv()
                self._code = code
            except (EOFError, ConnectionResetError):
                self.lost, self._code = True, -signal.SIGKILL
        return self._code


class Server(Closing):
    """The server, for one thread at a time: its commands end with the thread that had it started.

    Attributes:
        pid: the process's id while it runs.
        unfit: why commands get processes of their own, in words.
    """

    def __init__(self) -> None:
        self.pid: int | None = None
        self.unfit = None if sys.platform == "linux" else "only Linux forks"
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._environment: Mapping[str, str] = {}
        self._starts = 0

    def fork(self, command: Command, look: Callable[[], None], limit_s: float) -> Forked | None:
        """Return ``command``, running; None if it needs a process of its own.

        The first call waits for the server's imports, ``limit_s`` seconds at most, and calls ``look`` a few times a
        second meanwhile. An exception of its, or Ctrl-C, ends the server.
        """
        if self.unfit or not self._has_environment(command.environment):
            return None
        try:
            connection = self._ensure_connection(command.environment)
            connection.send(command)
            if not _await_answer(connection, look, limit_s):
                self.close()
                return None
            answer: int | str = connection.recv()
        except (EOFError, OSError):  # it died; the next command starts another
            self.close()
            return None
        except BaseException:
            self.close()
            raise
        if isinstance(answer, int):
            return Forked(answer, connection)
        self.unfit = answer
        self.close()
        return None

    def close(self) -> None:
        """End the server; a command that runs ends with it."""
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

    def _ensure_connection(self, environment: Mapping[str, str]) -> Connection:
        if self._connection is not None and self._connection.poll():  # it answers orders alone: its end is closed
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
                [*PYTHON_M, __name__, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**environment, **_OF_SERVER},
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
        self._connection, self._environment, self.pid = ours, environment, self._process.pid
        return ours


def _await_answer(connection: Connection, look: Callable[[], None], limit_s: float) -> bool:
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if connection.poll(_LOOK_EVERY_S):
            return True
        look()
    return False


def main() -> None:
    """Serve the process at the other end of the connection until it closes it.

    The answer to a command is its process id, and later its exit code; or text, why it cannot be forked.
    """
    connection: Connection = Connection(int(sys.argv[1]))
    bind_to_parent(int(sys.argv[2]))
    known, pages = 0, file_pages()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            command: Command = connection.recv()
            reason = _prepare(command)
            if not reason and len(sys.modules) != known:
                reason = unfit()
                known, pages = len(sys.modules), file_pages()
            if reason:
                connection.send(reason)
                continue
            pid = _fork(command, connection, pages)
            connection.send(pid)
            connection.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _prepare(command: Command) -> str | None:
    """Import what the command needs. Return in words why that failed."""
    try:
        getattr(importlib.import_module(command.module), "prepare", lambda *_: None)(*command.needs)
    except Exception as error:  # any import can raise anything; the command's own process will say it better
        return f"{type(error).__name__}: {error}"
    return None


def _fork(command: Command, connection: Connection, pages: Ranges) -> int:
    """Return the command's process id, once it is in a session of its own and ends with this process."""
    server = os.getpid()
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        bind_to_parent(server)
        connection.close()
        os.close(read)
        os.close(write)
        map_pages(pages)
        _run(command, server)
    os.close(write)
    os.read(read, 1)  # returns when the child has closed its end, or died
    os.close(read)
    return pid


def _run(command: Command, server: int) -> NoReturn:
    code = 1
    try:
        log = os.open(command.log, os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.chdir(command.home)
        for name in set(os.environ) - set(command.environment):
            del os.environ[name]
        os.environ.update({**command.environment, PARENT: str(server)})
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed()  # from the system, as in a fresh process; Python's own generator does so by itself
        module = sys.modules[command.module]
        sys.argv = [module.__file__ or command.module, *command.arguments]
        code = int(module.main() or 0)
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
