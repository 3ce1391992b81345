"""Run calls in a process of its own: what crashes, hangs or breaks a library there costs that process and nothing else.

`run` does it for one call. A `Worker` lives longer: it makes an object, and answers one order after the other. Either
is a process that has computed nothing: it is forked from a server that imports and does nothing else (`start_server`),
or started from nothing.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, TypeVar
from unittest import mock

import psutil
from typing_extensions import Self

from strobe.core.errors import UserError
from strobe.core.processes.lifetime import Closing, Ending, bind_to_parent, ctrl_c_ignored, kill, process_tree

LIMIT_S = 150.0
FORKED, FRESH = "forkserver", "spawn"  # multiprocessing's start methods
CHECK = "strobe.core.processes.fork_check"
_EXIT_S = 5.0  # time for a process to exit after its pipe has closed
_unfit: list[str] = []  # why the server is, once a process of it has answered so

Runner = Callable[..., Any]  # `run`, or a test's own


class IsolatedCallError(Exception):
    """There is no answer; the reason is one line."""


class CallRaisedError(IsolatedCallError):
    """The call raised an exception that is not the user's: ``kind``, its type's name, and ``text``."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)  # by which it is pickled
        self.kind, self.text = kind, text

    def __str__(self) -> str:
        lines = self.text.strip().splitlines()
        return f"{self.kind}: {lines[0][:300].rstrip(': ') if lines else 'no reason given'}"


class ProcessEndedError(IsolatedCallError):
    """The process ended before it answered, as ``ending`` says."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(f"its process died ({ending})")
        self.ending = ending


class CallTimeoutError(IsolatedCallError):
    """It did not answer in time."""


class _UnfitServerError(IsolatedCallError):
    """The server that the process was forked from was not fit for it."""


class _Order(NamedTuple):
    call: Callable[..., Any] | str  # a string names a method of the object that was made there
    arguments: tuple[Any, ...]
    makes: bool  # whether the value stays there, as that object


class _Answer(NamedTuple):
    value: Any
    error: Exception | None = None

    @classmethod
    def from_error(cls, error: BaseException) -> Self:
        users = isinstance(error, UserError)
        return cls(None, UserError(str(error)) if users else CallRaisedError(type(error).__name__, str(error)))


def start_server(preloaded: Sequence[str]) -> None:
    """Start the server that processes are forked from; it imports the modules ``preloaded`` in the background.

    It ignores Ctrl-C, which is this process's to answer, and what it starts complains about nothing that was killed.
    Nothing happens where the system does not fork.
    """
    if FORKED not in multiprocessing.get_all_start_methods():
        return
    multiprocessing.set_forkserver_preload([*preloaded, CHECK])
    warnings = ",".join(filter(None, [os.environ.get("PYTHONWARNINGS"), "ignore:resource_tracker:UserWarning"]))
    with ctrl_c_ignored(), mock.patch.dict(os.environ, PYTHONWARNINGS=warnings):
        forkserver.ensure_running()


def unfit() -> str | None:
    """Return in words why `run` does not fork processes from the server, once it has run."""
    return _unfit[0] if _unfit else None


T = TypeVar("T")


def run(call: Callable[..., T], *arguments: Any, limit_s: float = LIMIT_S) -> T:
    """Return ``call(*arguments)``, computed in a process of its own. Both must be picklable.

    It is forked from the server; where the server is unfit, it is started from nothing, and `unfit` says why.

    Raises:
        UserError: ``call`` raised it.
        IsolatedCallError: it raised something else, its process ended, or it took longer than ``limit_s`` seconds.
    """
    worker, answered = Worker(FRESH if _unfit else FORKED, checked=not _unfit), True
    try:
        return worker.ask(call, *arguments, limit_s=limit_s)
    except _UnfitServerError as error:
        _unfit.append(str(error))
    except (UserError, CallRaisedError):
        raise
    except BaseException:
        answered = False
        raise
    finally:
        worker.close(_EXIT_S if answered else 0.0)
    return run(call, *arguments, limit_s=limit_s)


class Worker(Closing):
    """A process that does one order after the other. It prints nothing, and ends with this one, however that ends.

    Ctrl-C is this process's to answer.

    Args:
        method: 'forkserver', in place of which a system that does not fork takes 'spawn'; or 'spawn'.
        checked: whether it refuses to work where the server that it was forked from is unfit.

    Attributes:
        unanswered: for each order that it has not answered yet, whether it is to make something.
    """

    def __init__(self, method: str, *, checked: bool = False) -> None:
        methods = multiprocessing.get_all_start_methods()
        context: Any = multiprocessing.get_context(method if method in methods else FRESH)
        self.connection, theirs = context.Pipe()
        self.unanswered: deque[bool] = deque()
        self._process = context.Process(target=_serve, args=(theirs, checked))
        with ctrl_c_ignored():  # a process that is still starting ends with a traceback otherwise
            self._process.start()
        self.pid: int = self._process.pid
        theirs.close()

    def make(self, call: Callable[..., object], *arguments: object) -> None:
        """Let it make the object whose methods are called, by ``call(*arguments)``; its ``close()`` is called last."""
        self._send(_Order(call, arguments, makes=True))

    def order(self, call: Callable[..., object] | str, *arguments: object) -> None:
        """Let it call something picklable, or a method, by name, of the object it made. Raises ProcessEndedError."""
        self._send(_Order(call, arguments, makes=False))

    def receive(self) -> tuple[bool, Any]:
        """Wait for the answer to its oldest order. Return whether that was to make something, and the value.

        Raises:
            UserError: the call raised it.
            IsolatedCallError: it raised something else, or the process ended.
        """
        try:
            value, error = self.connection.recv()
        except (EOFError, OSError):
            raise self._process_ended_error() from None
        makes = self.unanswered.popleft()
        if error is not None:
            raise error
        return makes, value

    def ask(self, call: Callable[..., object] | str, *arguments: object, limit_s: float) -> Any:
        """Return the value of an order, within ``limit_s`` seconds. Raises as `receive` does, and CallTimeoutError."""
        self.order(call, *arguments)
        makes, value = True, None
        while makes:
            if not self._await_answer(limit_s):
                raise CallTimeoutError(f"no answer within {limit_s:g} s")
            makes, value = self.receive()
        return value

    def close(self, grace_s: float = 0.0) -> None:
        """End it with all that it started. It has ``grace_s`` seconds to end by itself."""
        family = process_tree(self.pid) if self._process.is_alive() else []
        self.connection.close()  # which lets it end
        self._process.join(grace_s)
        kill(family)  # workers of a loader that hangs would outlive it
        self._process.join()
        psutil.wait_procs(family, timeout=_EXIT_S)

    def _send(self, order: _Order) -> None:
        try:
            try:
                self.connection.send(order)
            except RuntimeError:  # torch has no shared memory for its tensors: they go as copies
                self.connection.send_bytes(pickle.dumps(order))
        except OSError:
            raise self._process_ended_error() from None
        self.unanswered.append(order.makes)

    def _await_answer(self, limit_s: float) -> bool:
        return self.connection.poll(limit_s)

    def _process_ended_error(self) -> ProcessEndedError:
        self._process.join(_EXIT_S)
        return ProcessEndedError(Ending(self._process.exitcode))


def _serve(connection: Connection, checked: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    bind_to_parent(os.getppid())
    with open(os.devnull, "w") as nowhere:  # the terminal is the parent's
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    check = sys.modules.get(CHECK)  # imported by the server, if at all
    failure = _Answer(None, _UnfitServerError(check.REASON)) if checked and check is not None and check.REASON else None
    made: Any = None
    with contextlib.suppress(EOFError, OSError):  # the connection has closed
        while True:
            try:
                content = connection.recv_bytes()
            except RuntimeError as error:  # torch raises it, wherever Python is, when a worker of a loader dies
                failure = _Answer.from_error(error)
                continue
            made, answer = (made, failure) if failure is not None else _obey(content, made)
            try:
                connection.send(answer)
            except OSError:
                raise
            except Exception as error:  # the value cannot be pickled
                connection.send(_Answer.from_error(error))
    if hasattr(made, "close"):
        made.close()


def _obey(content: bytes, made: object) -> tuple[object, _Answer]:
    try:
        order: _Order = pickle.loads(content)
        call = getattr(made, order.call) if isinstance(order.call, str) else order.call
        value = call(*order.arguments)
    except BaseException as error:
        return made, _Answer.from_error(error)
    return (value, _Answer(None)) if order.makes else (made, _Answer(value))


class Pool(Closing):
    """``count`` workers, started from nothing at once."""

    def __init__(self, count: int) -> None:
        self.workers: list[Worker] = []
        self._busy: set[Worker] = set()
        try:
            for _ in range(count):
                self.workers.append(Worker(FRESH))
        except BaseException:
            self.close()
            raise

    def make(self, call: Callable[..., object], *arguments: object) -> None:
        """Let each make the object that is called by orders; what goes wrong there, `answer` raises."""
        for worker in self.workers:
            worker.make(call, *arguments)

    @property
    def free(self) -> int:
        """The number of orders that can be given now."""
        return len(self.workers) - len(self._busy)

    def order(self, *arguments: object) -> None:
        """Let a free worker call what it made, once it has. Raises ProcessEndedError where the worker has ended."""
        worker = min((free for free in self.workers if free not in self._busy), key=lambda free: len(free.unanswered))
        self._busy.add(worker)
        worker.order("__call__", *arguments)

    def answer(self) -> Any:
        """Wait for the answer to any order.

        Raises:
            UserError: a call raised it.
            IsolatedCallError: a call raised something else, or a process ended.
        """
        while True:
            ready = wait([worker.connection for worker in self.workers])
            for worker in self.workers:
                if worker.connection in ready:
                    makes, value = worker.receive()
                    if not makes:
                        self._busy.remove(worker)
                        return value

    def close(self) -> None:
        """End all at once: what they do is lost."""
        for worker in self.workers:
            worker.close()
        self.workers = []
        self._busy.clear()
