"""The process that a sweep's cells are forked from: ``python -m strobe.sweeps.forks CONNECTION DRIVER``. Linux only.

It imports what the cells need and computes nothing, so that it has no thread and no device when it forks: a thread
would be missing in the cell, and CUDA does not outlive a fork. It makes sure of both, and refuses to fork otherwise.
It forks one cell at a time and waits for its end. It dies with the process that started it, and its cell with it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from strobe.measure.forkable import unfit
from strobe.measure.lifetime import end_with
from strobe.sweeps import resident
from strobe.sweeps.execute import DRIVER


@dataclass(frozen=True)
class Order:
    """One cell to fork."""

    module: str  # it has `main()`, and may have `prepare(study, argv)`, which imports and does nothing else
    study: str
    argv: tuple[str, ...]
    folder: str  # absolute
    log: str  # absolute; what the cell prints goes there
    home: str  # the folder that relative paths among the flags start from
    environment: dict[str, str]


@dataclass(frozen=True)
class Unfit:
    """The server cannot fork this cell; another process has to run it."""

    why: str


@dataclass(frozen=True)
class Started:
    """The cell runs, in a session of its own."""

    pid: int


@dataclass(frozen=True)
class Ended:
    """The cell has ended, with this exit code; negative, the signal that killed it."""

    code: int


def main() -> None:
    """Serve the process at the other end of the connection until it closes it."""
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    end_with(int(sys.argv[2]))
    known, pages = 0, resident.file_pages()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            order = connection.recv()
            why = prepare(order)
            if not why and len(sys.modules) != known:
                why = unfit()
                known, pages = len(sys.modules), resident.file_pages()
            if why:
                connection.send(Unfit(why))
                continue
            pid = _fork(order, connection, pages)
            connection.send(Started(pid))
            _, status = os.waitpid(pid, 0)
            connection.send(Ended(os.waitstatus_to_exitcode(status)))


def prepare(order: Order) -> str:
    """Import what the cell needs. Return in words why that failed; '' where it did not."""
    try:
        getattr(importlib.import_module(order.module), "prepare", lambda *_: None)(order.study, order.argv)
    except Exception as error:  # any import can raise anything; the cell's own process will say it better
        return f"{type(error).__name__}: {error}"
    return ""


def _fork(order: Order, connection: Connection[Any, Any], pages: resident.Ranges) -> int:
    """Return the cell's process id, once it is in a session of its own and ends with this process."""
    server = os.getpid()
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        end_with(server)
        connection.close()
        os.close(read)
        os.close(write)
        resident.bring(pages)
        _run(order, server)
    os.close(write)
    os.read(read, 1)  # returns when the child has closed its end, or died
    os.close(read)
    return pid


def _run(order: Order, server: int) -> NoReturn:
    """Be what a fresh ``python -m MODULE FOLDER STUDY FLAGS…`` is, with its imports done."""
    code = 1
    try:
        log = os.open(order.log, os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.chdir(order.home)
        for name in set(os.environ) - set(order.environment):
            del os.environ[name]
        os.environ.update(order.environment | {DRIVER: str(server)})
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed()  # from the system, as in a fresh process; Python's own generator does so by itself
        module = sys.modules[order.module]
        sys.argv = [module.__file__ or order.module, order.folder, order.study, *order.argv]
        code = int(module.main() or 0)
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    from strobe.sweeps import forks  # the classes that are sent are those of the importable module

    forks.main()
