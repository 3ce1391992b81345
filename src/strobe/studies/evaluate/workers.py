"""Processes that play episodes side by side, each with a policy and a simulator of its own."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import psutil
from tqdm import tqdm

from strobe.errors import UserError
from strobe.lerobot.quiet import quiet
from strobe.measure.lifetime import end_with, how_it_ended, kill, with_children
from strobe.runs.episode_log import EpisodeLine

if TYPE_CHECKING:  # torch is not needed here, and takes seconds
    from strobe.studies.evaluate.variants import Candidate

# Imported while the parent loads its policy; they take seconds.
PRELOADED = ("strobe.studies.evaluate.alike", "lerobot.scripts.lerobot_eval", "lerobot.policies.factory")

Play = Callable[[str, str, int], EpisodeLine]  # variant's name, task, seed


@dataclass(eq=False)
class _Worker:
    process: Any
    connection: Connection
    ready: bool = False
    busy: bool = False


class Workers:
    """A crew of processes. Each plays whole episodes by the code that one player would play them by.

    They are started, not forked: torch has threads. They end with this process, however it ends; Ctrl-C is this
    process's to answer.

    Args:
        count: processes.
        preloaded: modules that they import at once.
    """

    def __init__(self, count: int, preloaded: Sequence[str] = PRELOADED) -> None:
        self._handed = 0
        self._workers: list[_Worker] = []
        context = multiprocessing.get_context("spawn")
        try:
            with _no_ctrl_c():  # inherited: a process that is still being started ends with a traceback otherwise
                for _ in range(count):
                    ours, theirs = context.Pipe()
                    process = context.Process(target=_work, args=(theirs, os.getpid(), tuple(preloaded)))
                    process.start()
                    theirs.close()
                    self._workers.append(_Worker(process, ours))
        except BaseException:
            self.close()
            raise

    def begin(self, make: Callable[[], Play]) -> None:
        """Let each process make what it plays with. ``make`` must be picklable; what it raises, `ended` raises."""
        for worker in self._workers:
            self._send(worker, make)

    @property
    def free(self) -> int:
        """How many more episodes they can take now."""
        return len(self._workers) - self._handed

    def hand(self, candidate: Candidate, task: str, seed: int) -> None:
        """Let a process that is free play an episode; it waits there while the process still makes its policy."""
        worker = min((one for one in self._workers if not one.busy), key=lambda one: not one.ready)
        worker.busy = True
        self._handed += 1
        self._send(worker, (candidate.name, task, seed))

    def ended(self) -> EpisodeLine:
        """Wait for an episode to end.

        Raises:
            UserError: it failed, or a process ended.
        """
        while True:
            ready = wait([one.connection for one in self._workers])
            for worker in (one for one in self._workers if one.connection in ready):
                kind, value = self._answer(worker)
                if kind == "wrong":
                    raise UserError(value)
                if kind == "episode":
                    worker.busy = False
                    self._handed -= 1
                    return value.model_copy(update={"beside": len(self._workers) - 1})
                worker.ready = True

    def close(self) -> None:
        """End them with all that they started, at once: an episode that is being played is lost."""
        families = [with_children(one.process.pid) for one in self._workers]
        for family in families:
            kill(family)
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()
        psutil.wait_procs([process for family in families for process in family], timeout=5)
        self._workers = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, worker: _Worker) -> tuple[str, Any]:
        try:
            return worker.connection.recv()
        except (EOFError, OSError):
            raise self._died(worker) from None

    def _send(self, worker: _Worker, what: Any) -> None:
        try:
            worker.connection.send(what)
        except OSError:
            raise self._died(worker) from None

    def _died(self, worker: _Worker) -> UserError:
        worker.process.join(5)
        how = how_it_ended(worker.process.exitcode)
        what = f"one of the {len(self._workers)} processes that play episodes ended ({how})"
        return UserError(f"{what}: where memory ran out, take a smaller --parallel")


@contextlib.contextmanager
def _no_ctrl_c() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(connection: Connection, parent: int, preloaded: tuple[str, ...]) -> None:
    """Make what is played with, and play what is asked for, until there is no one who asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)
    with open(os.devnull, "w") as nowhere:  # the terminal is the parent's
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    # tqdm's own lock is a semaphore of the system, of which Python would say that it leaked when this is killed.
    tqdm.set_lock(threading.RLock())
    try:
        with quiet():
            for name in preloaded:
                importlib.import_module(name)
            play: Play = connection.recv()()
        connection.send(("ready", None))
        while True:
            connection.send(("episode", play(*connection.recv())))
    except EOFError:  # the parent has closed its end
        return
    except Exception as error:
        why = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            connection.send(("wrong", " ".join(why.split())[:400]))
