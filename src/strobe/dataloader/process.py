"""One data loader, measured in a process of its own.

A loader's workers must not be forked from a process that has decoded video or started torch's threads (they would hang
in locks that nobody holds any more), so each loader lives in a fresh process that does nothing else, forked from a
server that has LeRobot imported. Between measurements its workers are halted (SIGSTOP): they keep their memory and
their place, and take no time from the loader that is measured meanwhile.

This module is imported in that process, before any worker is forked: it must not decode video or start threads.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from lerobot.configs.train import TrainPipelineConfig

from strobe.core.errors import UserError
from strobe.core.measure.memory import SHARED
from strobe.core.processes.isolate import (
    FORKED,
    FRESH,
    CallRaisedError,
    CallTimeoutError,
    ProcessEndedError,
    Worker,
    start_server,
)
from strobe.core.processes.lifetime import Closing, bind_to_parent
from strobe.dataloader.results import LoaderSettings

PRELOADED = (__name__, "strobe.dataloader.train_loader", "lerobot.scripts.lerobot_train")
PATIENCE_S = 120.0  # time without an answer after which a loader counts as hung
GRACE_S = 3.0  # time to end by itself
LEAST_BLOCKS = 2  # enough to rank a loader by; an interval takes three
SHORTEST_BLOCK_S = 0.05


class LoaderError(Exception):
    """A loader that did not deliver, with the reason in a line."""


@dataclass(frozen=True)
class WorkerMemory:
    """Memory of one worker, the mean over all, and the most shared memory seen in use by all together, in bytes."""

    pss_bytes: int | None
    uss_bytes: int | None
    shared_bytes: int | None


def warm_up() -> None:
    """Start the server that loaders are forked from; it imports LeRobot in the background."""
    start_server(PRELOADED)


class LoaderProcess(Closing):
    """A DataLoader of lerobot-train's making, in a process of its own.

    Every method raises LoaderError where the loader fails, or has not answered for ``patience_s`` seconds.
    """

    def __init__(
        self,
        config: TrainPipelineConfig,
        settings: LoaderSettings,
        *,
        like_lerobot_train: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.patience_s = patience_s
        self.worker_pids: list[int] = []
        # What LeRobot's own process costs its workers is only seen in an interpreter of its own.
        self._process = Worker(FRESH if like_lerobot_train else FORKED)
        self.pid = self._process.pid
        self._process.make(_Loader, config, settings, like_lerobot_train)

    def facts(self) -> dict[str, Any]:
        """Return the values of `DatasetFacts` less the name, with a sample decoded, and the dataset's folder as 'root'.

        Only for a process that will start no workers.
        """
        return self._ask("facts")

    def keep(self, file: Path, most_bytes: int, seconds: float) -> tuple[int, int]:
        """Decode samples into ``file``, up to ``most_bytes`` and for ``seconds``; see `train_loader.keep_samples`.

        Only for a process that will start no workers.
        """
        return self._ask("keep", file, most_bytes, seconds, extra_s=seconds)

    def start(self) -> float:
        """Start the workers; seconds to the first batch."""
        seconds, self.worker_pids = self._ask("start")
        return seconds

    def sample(self, seconds: float) -> tuple[int, list[float]]:
        """Deliver as fast as it goes for ``seconds``: samples in a block, and seconds that each block took.

        A block is as many batches as there are workers, or a multiple of that: workers that work in step deliver in
        bursts, and each block holds as many batches of each of them. Blocks last 50 ms at least. The first round is
        left out: it holds what was ready before. At least two blocks are taken, unless they need far longer.
        """
        _signal(self.worker_pids, "SIGCONT")
        try:
            return self._ask("sample", seconds, extra_s=seconds)
        finally:
            _signal(self.worker_pids, "SIGSTOP")

    def memory(self) -> WorkerMemory:
        """Memory that the workers hold."""
        return self._ask("memory")

    def start_epochs(self, start_method: str) -> tuple[float, float]:
        """Start workers by ``start_method``: seconds to the first batch, and to that of a later epoch."""
        return self._ask("start_epochs", start_method)

    def close(self) -> None:
        """End the process and its workers."""
        self._process.close(GRACE_S)

    def _ask(self, method: str, *arguments: object, extra_s: float = 0.0) -> Any:
        try:
            return self._process.ask(method, *arguments, limit_s=self.patience_s + extra_s)
        except UserError as error:
            raise LoaderError(str(error)) from error
        except CallTimeoutError as error:
            raise LoaderError(f"hung: no batch for {self.patience_s:g} s") from error
        except ProcessEndedError as error:
            raise LoaderError(f"the loader's process died ({error.ending})") from error
        except CallRaisedError as error:
            raise LoaderError(_reason(error)) from error


class _Loader:
    """The loader in its process: opens the dataset, starts the workers, delivers batches."""

    def __init__(self, config: TrainPipelineConfig, settings: LoaderSettings, like_lerobot_train: bool) -> None:
        if like_lerobot_train:
            # Workers that are spawned import the main module again: lerobot-train's, when it is lerobot-train.
            sys.modules["__main__"].__spec__ = importlib.util.find_spec("lerobot.scripts.lerobot_train")
        self.config, self.settings = config, settings
        self.dataset: Any = None
        self.loader: Any = None
        self.batches: Iterator[object] = iter(())
        self.rounds_in_block = 0  # 0 while unknown
        self.shared_before: int | None = None
        self.shared_most = 0

    def facts(self) -> dict[str, Any]:
        """See `LoaderProcess.facts`."""
        from strobe.dataloader.train_loader import open_dataset, sample_bytes

        dataset = open_dataset(self.config, self.settings)
        meta = dataset.meta
        return {
            "frames": dataset.num_frames,
            "episodes": dataset.num_episodes,
            "fps": float(meta.fps),
            "cameras": {key: list(meta.features[key]["shape"]) for key in meta.camera_keys},
            "video": bool(meta.video_keys),
            "sample_bytes": sample_bytes(dataset),
            "root": str(dataset.root),
        }

    def keep(self, file: Path, most_bytes: int, seconds: float) -> tuple[int, int]:
        """See `LoaderProcess.keep`."""
        from strobe.dataloader.train_loader import keep_samples, open_dataset

        return keep_samples(open_dataset(self.config, self.settings), file, most_bytes, seconds)

    def start(self) -> tuple[float, list[int]]:
        """Start the workers. Return seconds to the first batch, and their process ids."""
        self._open_loader(None)
        seconds = self._first_batch()
        return seconds, [child.pid for child in multiprocessing.active_children() if child.pid is not None]

    def sample(self, seconds: float) -> tuple[int, list[float]]:
        """See `LoaderProcess.sample`."""
        every = max(1, self.settings.num_workers)
        self._deliver(every)
        began = last = time.perf_counter()
        blocks: list[float] = []
        if not self.rounds_in_block:
            self._deliver(every)
            last = time.perf_counter()
            self.rounds_in_block = max(1, math.ceil(SHORTEST_BLOCK_S / (last - began)))
            if self.rounds_in_block == 1:
                blocks.append(last - began)
        while True:
            self._deliver(self.rounds_in_block * every)
            now = time.perf_counter()
            blocks.append(now - last)
            last = now
            spent = now - began
            if (spent >= seconds and len(blocks) >= LEAST_BLOCKS) or spent >= seconds + PATIENCE_S / 2:
                return self.rounds_in_block * every * self.settings.batch_size, blocks

    def memory(self) -> WorkerMemory:
        """See `LoaderProcess.memory`."""
        workers = [
            psutil.Process(child.pid).memory_full_info()
            for child in multiprocessing.active_children()
            if child.pid is not None
        ]
        uss = sum(worker.uss for worker in workers) // len(workers) if workers else None
        pss = sum(worker.pss for worker in workers) // len(workers) if workers and hasattr(workers[0], "pss") else None
        return WorkerMemory(pss, uss, self.shared_most if self.shared_before is not None and workers else None)

    def start_epochs(self, start_method: str) -> tuple[float, float]:
        """See `LoaderProcess.start_epochs`."""
        self.batches = iter(())  # ends the workers of the method before
        self.settings = self.settings.model_copy(update={"start_method": start_method})
        self._open_loader(2 * max(1, self.settings.num_workers) * self.settings.batch_size)
        first = self._first_batch()
        for _ in self.batches:
            pass
        return first, self._first_batch()

    def close(self) -> None:
        """Let halted workers go on: they could not end otherwise, and this process would wait for them for ever."""
        _signal([child.pid for child in multiprocessing.active_children() if child.pid is not None], "SIGCONT")

    def _open_loader(self, epoch: int | None) -> None:
        from strobe.dataloader.train_loader import open_dataset, open_loader

        self.dataset = self.dataset or open_dataset(self.config, self.settings)
        self.loader = open_loader(
            self.config, self.settings, self.dataset, epoch=epoch, prepare_worker=_preparation(self.settings)
        )
        self.shared_before = _shared_used()

    def _first_batch(self) -> float:
        began = time.perf_counter()
        self.batches = iter(self.loader)
        next(self.batches)
        return time.perf_counter() - began

    def _deliver(self, batches: int) -> None:
        for _ in range(batches):
            next(self.batches)
            used = _shared_used()
            if used is not None and self.shared_before is not None:
                self.shared_most = max(self.shared_most, used - self.shared_before)


def _preparation(settings: LoaderSettings) -> Callable[[int], None] | None:
    """Return what is called first in every worker; None if they are to be lerobot-train's, with nothing of ours."""
    threads = settings.torch_threads is not None or settings.decoder_threads is not None
    if threads or settings.start_method == "fork":
        return partial(_prepare, os.getpid(), settings.torch_threads, settings.decoder_threads)
    return None


def _prepare(parent: int, torch_threads: int | None, decoder_threads: int | None, worker: int) -> None:
    if os.getppid() == parent:
        bind_to_parent(parent)  # a halted worker would outlast a process that was killed
    if torch_threads is not None:
        import torch

        torch.set_num_threads(torch_threads)
    if decoder_threads is not None:
        from strobe.dataloader.train_loader import limit_decoder

        limit_decoder(decoder_threads)


def _signal(pids: list[int], name: str) -> None:
    if hasattr(signal, name):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, getattr(signal, name))


def _shared_used() -> int | None:
    return shutil.disk_usage(SHARED).used if SHARED.is_dir() else None


def _reason(error: CallRaisedError) -> str:
    lines = [line.strip() for line in error.text.splitlines() if line.strip()]
    if lines and "DataLoader worker" in lines[0]:
        killed = "Bus error" in error.text or "shared memory" in error.text
        return f"{lines[0]}{' (too little shared memory)' if killed else ''}"[:300]
    last = lines[-1] if lines else ""
    return (last if ":" in last else f"{error.kind}: {last}")[:300]
