"""Several workers that make the same thing and then answer orders side by side; one that ends is noticed."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

from strobe.processes.isolate import FRESH, Worker
from strobe.processes.lifetime import Closing


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

    def make(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Let each make the object that is called by orders; what goes wrong there, `answer` raises."""
        for worker in self.workers:
            worker.make(call, *arguments)

    @property
    def free(self) -> int:
        """The number of orders that can be given now."""
        return len(self.workers) - len(self._busy)

    def order(self, *arguments: Any) -> None:
        """Let a free worker call what it made; the order waits while it is still made. Raises ProcessEndedError."""
        worker = min((one for one in self.workers if one not in self._busy), key=lambda one: len(one.unanswered))
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
