"""One data loader, measured in a process of its own.

A loader's workers must not be forked from a process that has decoded video or started torch's threads (they would hang
in locks that nobody holds any more), so each loader lives in a fresh process that does nothing else, forked from a
server that has LeRobot imported. Between measurements its workers are halted (SIGSTOP): they keep their memory and
their place, and take no time from the loader that is measured meanwhile.
"""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import signal
from dataclasses import dataclass
from typing import Any

from lerobot.configs.train import TrainPipelineConfig

from strobe.lerobot.quiet import quiet
from strobe.measure.lifetime import how_it_ended, kill, start_fork_server, with_children
from strobe.results.dataloader import LoaderSettings
from strobe.studies.dataloader.served import PATIENCE_S, serve

PRELOADED = ["strobe.studies.dataloader.served", "strobe.datasets.train_loader", "lerobot.scripts.lerobot_train"]
GRACE_S = 3.0  # to end by itself


class LoaderFailed(Exception):
    """A loader that did not deliver, with the reason in a line."""


@dataclass(frozen=True)
class WorkerMemory:
    """Memory of one worker, the mean over all, and the most shared memory seen in use by all together, in bytes."""

    pss_bytes: int | None
    uss_bytes: int | None
    shared_bytes: int | None


def warm_up() -> None:
    """Start the server that loaders are forked from; it imports LeRobot in the background."""
    start_fork_server(PRELOADED)


class LoaderProcess:
    """A DataLoader of lerobot-train's making, in a process of its own. Close it, or use it in a ``with``.

    Every method raises LoaderFailed where the loader fails, or has not answered for ``patience_s`` seconds.
    """

    def __init__(
        self,
        config: TrainPipelineConfig,
        settings: LoaderSettings,
        *,
        like_lerobot_train: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        # What LeRobot's own process costs its workers is only seen in an interpreter of its own.
        context: Any = mp.get_context("spawn" if like_lerobot_train else "forkserver")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, config, settings, like_lerobot_train))
        self._patience_s = patience_s
        self._workers: list[int] = []
        with quiet():
            self._process.start()
        theirs.close()

    def __enter__(self) -> LoaderProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def facts(self) -> Any:
        """Facts of the dataset, with a sample decoded, and its folder as 'root'.

        Only for a process that will start no workers.
        """
        return self._ask("facts")

    def start(self) -> float:
        """Start the workers; seconds to the first batch."""
        seconds, self._workers = self._ask("start")
        return seconds

    def sample(self, seconds: float) -> tuple[int, list[float]]:
        """Deliver as fast as it goes for ``seconds``: samples in a block, and seconds that each block took.

        A block is as many batches as there are workers, or a multiple of that: workers that work in step deliver in
        bursts, and each block holds as many batches of each of them. Blocks last 50 ms at least. The first round is
        left out: it holds what was ready before. At least two blocks are taken, unless they need far longer.
        """
        self._signal("SIGCONT")
        try:
            return self._ask("sample", seconds, extra_s=seconds)
        finally:
            self._signal("SIGSTOP")

    def memory(self) -> WorkerMemory:
        """Memory that the workers hold."""
        return WorkerMemory(*self._ask("memory"))

    def start_epochs(self, start_method: str) -> tuple[float, float]:
        """Start workers by ``start_method``: seconds to the first batch, and to that of a later epoch."""
        return self._ask("start_epochs", start_method)

    def close(self) -> None:
        """End the process and its workers; fine to call twice."""
        if self._process.pid is None or not self._process.is_alive():
            return
        family = with_children(self._process.pid)
        self._connection.close()  # which asks it to end, and to end its workers
        self._process.join(GRACE_S)
        kill(family)
        self._process.join()

    def _ask(self, what: str, *arguments: Any, extra_s: float = 0.0) -> Any:
        try:
            self._connection.send((what, arguments))
            if not self._connection.poll(self._patience_s + extra_s):
                raise LoaderFailed(f"hung: no batch for {self._patience_s:g} s")
            ok, value = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(1)
            how = how_it_ended(self._process.exitcode)
            raise LoaderFailed(f"the loader's process died ({how})") from error
        if not ok:
            raise LoaderFailed(value)
        return value

    def _signal(self, name: str) -> None:
        """Halt the workers or let them go on; where signals cannot (Windows), they fill their queues and wait."""
        number = getattr(signal, name, None)
        if number is None:
            return
        for pid in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
