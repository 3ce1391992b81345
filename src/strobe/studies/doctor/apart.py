"""Work in a process of its own: what crashes, hangs or breaks torch there costs that self-check and nothing else."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import psutil

from strobe.errors import UserError
from strobe.lerobot.quiet import muted_stderr, quiet
from strobe.measure.lifetime import end_with, how_it_ended, kill, start_fork_server, with_children

# Imported once, by the server that the processes are forked from.
FIT = "strobe.studies.doctor.fit"
PRELOADED = ["strobe.studies.doctor.one_treatment", "strobe.studies.doctor.supplies", "lerobot.policies.factory", FIT]
LIMIT_S = 150.0
FORKED = "forkserver"
_unfit: list[str] = []  # why the server is, once a process of it has said so

Runner = Callable[..., Any]  # `run`, or a test's own


class Died(Exception):
    """The process ended, or hung, before it answered; the reason is one line."""


def warm_up() -> None:
    """Start the server that the processes are forked from; it imports torch and LeRobot in the background."""
    start_fork_server(PRELOADED)


def run[T](call: Callable[..., T], *arguments: Any, limit_s: float = LIMIT_S) -> T:
    """Return ``call(*arguments)``, computed in a fresh process. Both must be picklable.

    It is forked from the server; where the server is unfit, it is started from nothing, and `unfit` says why.

    Raises:
        UserError: ``call`` raised it.
        Died: it raised something else, ended without an answer, or took longer than ``limit_s`` seconds.
    """
    forks = FORKED in mp.get_all_start_methods() and not _unfit
    kind, value = _run(FORKED if forks else "spawn", call, arguments, limit_s)
    if kind == "unfit":
        _unfit.append(value)
        kind, value = _run("spawn", call, arguments, limit_s)
    if kind == "wrong":
        raise UserError(value)
    if kind == "failed":
        raise Died(value)
    return value


def unfit() -> str:
    """Return in words why processes are not forked from the server; '' where they are, or none was asked for yet."""
    return _unfit[0] if _unfit else ""


def _run(method: str, call: Callable[..., Any], arguments: tuple[Any, ...], limit_s: float) -> tuple[str, Any]:
    """Return what became of ``call`` in a process started by ``method``, and its value or the reason."""
    context: Any = mp.get_context(method)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, os.getpid(), call, arguments))
    process.start()
    theirs.close()
    try:
        if not _answered(ours, limit_s):
            raise Died(f"no answer within {limit_s:g} s")
        return ours.recv()
    except EOFError:
        process.join(5)
        raise Died(f"its process died ({how_it_ended(process.exitcode)})") from None
    finally:
        _end(process, answered=process.is_alive() and ours.poll())
        ours.close()


def _answered(connection: Any, limit_s: float) -> bool:
    return connection.poll(limit_s)


def _end(process: Any, *, answered: bool) -> None:
    """End ``process`` with all that it started: workers of a loader that hangs would outlive it."""
    family = with_children(process.pid)
    process.join(5 if answered else 0)
    kill(family)
    process.join()
    psutil.wait_procs(family, timeout=5)


def _answer(connection: Connection, parent: int, call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer, which then ends this one
    if "forkserver" not in mp.get_all_start_methods():
        end_with(parent)
    # Imported by the server, if at all.
    if (fit := sys.modules.get(FIT)) is not None and fit.WHY:
        connection.send(("unfit", fit.WHY))
        return
    try:
        with quiet(), muted_stderr():
            value = call(*arguments)
        connection.send(("ok", value))
    except UserError as error:
        connection.send(("wrong", str(error)))
    except BaseException as error:
        lines = str(error).strip().splitlines()
        connection.send(
            ("failed", f"{type(error).__name__}: {lines[0][:300].rstrip(': ') if lines else 'no reason given'}")
        )
