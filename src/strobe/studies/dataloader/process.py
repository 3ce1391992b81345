"""One data loader, measured in a process of its own.

A loader's workers must not be forked from a process that has decoded video or started torch's threads (they would hang
in locks that nobody holds any more), so each loader lives in a fresh process that does nothing else, forked from a
server that has LeRobot imported. Between measurements its workers are halted (SIGSTOP): they keep their memory and
their place, and take no time from the loader that is measured meanwhile.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import multiprocessing as mp
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

import psutil
from lerobot.configs.train import TrainPipelineConfig

from strobe.errors import UserError
from strobe.measure.lifetime import end_with
from strobe.results.dataloader import Settings
from strobe.subjects.dataset_faults import SHARED
from strobe.subjects.quiet import quiet

PRELOADED = ["strobe.studies.dataloader.process", "strobe.subjects.train_data", "lerobot.scripts.lerobot_train"]
GRACE_S = 3.0  # to end by itself
PATIENCE_S = 120.0  # without a word, after which a loader counts as hung
LEAST_BLOCKS = 2  # enough to rank a loader by; an interval takes three
SHORTEST_BLOCK_S = 0.05


class LoaderFailed(Exception):
    """A loader that did not deliver, with the reason in a line."""


@dataclass(frozen=True)
class Memory:
    """Of one worker, averaged over them, and the most shared memory seen in use by all together."""

    pss_bytes: int | None
    uss_bytes: int | None
    shared_bytes: int | None


def warm_up() -> None:
    """Start the server that loaders are forked from; it imports LeRobot in the background."""
    mp.set_forkserver_preload(PRELOADED)
    forkserver.ensure_running()


class LoaderProcess:
    """A DataLoader of lerobot-train's making, in a process of its own. Close it, or use it in a ``with``.

    Every method raises LoaderFailed where the loader fails or says nothing for ``patience_s``.
    """

    def __init__(
        self,
        config: TrainPipelineConfig,
        settings: Settings,
        *,
        like_lerobot_train: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        # What LeRobot's own process costs its workers is only seen in an interpreter of its own.
        context: Any = mp.get_context("spawn" if like_lerobot_train else "forkserver")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, config, settings, like_lerobot_train))
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
        """The dataset's facts, read with a sample decoded; only for a process that will start no workers."""
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

    def memory(self) -> Memory:
        """What the workers hold."""
        return Memory(*self._ask("memory"))

    def start_epochs(self, start_method: str) -> tuple[float, float]:
        """Start workers by ``start_method``: seconds to the first batch, and to that of a later epoch."""
        return self._ask("start_epochs", start_method)

    def close(self) -> None:
        """End the process and its workers; fine to call twice."""
        if self._process.pid is None or not self._process.is_alive():
            return
        family = _family(self._process.pid)
        self._connection.close()  # which asks it to end, and to end its workers
        self._process.join(GRACE_S)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.join()

    def _ask(self, what: str, *arguments: Any, extra_s: float = 0.0) -> Any:
        try:
            self._connection.send((what, arguments))
            if not self._connection.poll(self._patience_s + extra_s):
                raise LoaderFailed(f"hung: no batch for {self._patience_s:g} s")
            ok, value = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(1)
            code = self._process.exitcode
            how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
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


def _family(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return []


# What follows runs in the loader's process.


def _serve(connection: Connection, config: TrainPipelineConfig, settings: Settings, like_lerobot_train: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks, which ends this one
    if like_lerobot_train:
        # Workers that are spawned import the main module again: lerobot-train's, when it is lerobot-train.
        sys.modules["__main__"].__spec__ = importlib.util.find_spec("lerobot.scripts.lerobot_train")
    with quiet():
        loading = _Loading(config, settings)
        while True:
            try:
                what, arguments = connection.recv()
            except (EOFError, OSError):
                return _wake()  # workers end with this process
            try:
                answer = True, getattr(loading, what)(*arguments)
            except Exception as error:
                answer = False, _reason(error)
            try:
                connection.send(answer)
            except OSError:
                return _wake()


def _wake() -> None:
    """Let halted workers go on: they could not end otherwise, and this process would wait for them for ever."""
    for child in mp.active_children():
        if child.pid is not None and hasattr(signal, "SIGCONT"):
            os.kill(child.pid, signal.SIGCONT)


@dataclass
class _Loading:
    config: TrainPipelineConfig
    settings: Settings
    batches: Iterator[Any] | None = None
    loader: Any = None
    rounds: int = 0  # in a block; 0 while unknown
    shared_before: int | None = None
    shared_most: int = 0
    dataset: Any = field(default=None)

    def facts(self) -> dict[str, Any]:
        from strobe.subjects.train_data import open_dataset, sample_bytes

        dataset = open_dataset(self.config, self.settings)
        meta = dataset.meta
        shapes = {key: list(meta.features[key]["shape"]) for key in meta.camera_keys}
        return {
            "frames": dataset.num_frames,
            "episodes": dataset.num_episodes,
            "fps": float(meta.fps),
            "cameras": shapes,
            "video": bool(meta.video_keys),
            "sample_bytes": sample_bytes(dataset),
            "root": str(dataset.root),
        }

    def start(self) -> tuple[float, list[int]]:
        self._open(None)
        began = time.perf_counter()
        self.batches = iter(self.loader)
        next(self.batches)
        return time.perf_counter() - began, [child.pid for child in mp.active_children() if child.pid is not None]

    def sample(self, seconds: float) -> tuple[int, list[float]]:
        every = max(1, self.settings.num_workers)
        self._deliver(every)
        began = last = time.perf_counter()
        blocks: list[float] = []
        if not self.rounds:
            self._deliver(every)
            last = time.perf_counter()
            self.rounds = max(1, math.ceil(SHORTEST_BLOCK_S / (last - began)))
            if self.rounds == 1:
                blocks.append(last - began)
        while True:
            self._deliver(self.rounds * every)
            now = time.perf_counter()
            blocks.append(now - last)
            last = now
            spent = now - began
            if (spent >= seconds and len(blocks) >= LEAST_BLOCKS) or spent >= seconds + PATIENCE_S / 2:
                return self.rounds * every * self.settings.batch_size, blocks

    def memory(self) -> tuple[int | None, int | None, int | None]:
        seen = []
        for child in mp.active_children():
            if child.pid is not None:
                seen.append(psutil.Process(child.pid).memory_full_info())
        uss = sum(one.uss for one in seen) // len(seen) if seen else None
        pss = sum(one.pss for one in seen) // len(seen) if seen and hasattr(seen[0], "pss") else None
        return pss, uss, self.shared_most if self.shared_before is not None and seen else None

    def start_epochs(self, start_method: str) -> tuple[float, float]:
        self.batches = None  # ends the workers of the method before
        self.settings = self.settings.model_copy(update={"start_method": start_method})
        self._open(2 * max(1, self.settings.num_workers) * self.settings.batch_size)
        began = time.perf_counter()
        self.batches = iter(self.loader)
        next(self.batches)
        first = time.perf_counter() - began
        for _ in self.batches:
            pass
        began = time.perf_counter()
        self.batches = iter(self.loader)
        next(self.batches)
        return first, time.perf_counter() - began

    def _open(self, epoch: int | None) -> None:
        from strobe.subjects.train_data import open_dataset, open_loader

        self.dataset = self.dataset or open_dataset(self.config, self.settings)
        prepare = partial(_prepare, os.getpid(), self.settings.torch_threads, self.settings.decoder_threads)
        self.loader = open_loader(
            self.config, self.settings, self.dataset, epoch=epoch, prepare_worker=_only_forked(self.settings, prepare)
        )
        self.shared_before = _shared_used()

    def _deliver(self, batches: int) -> None:
        assert self.batches is not None
        for _ in range(batches):
            next(self.batches)
            used = _shared_used()
            if used is not None and self.shared_before is not None:
                self.shared_most = max(self.shared_most, used - self.shared_before)


def _only_forked(settings: Settings, prepare: Callable[[int], None]) -> Callable[[int], None] | None:
    threads = settings.torch_threads is not None or settings.decoder_threads is not None
    return prepare if threads or settings.start_method == "fork" else None


def _prepare(parent: int, torch_threads: int | None, decoder_threads: int | None, worker: int) -> None:
    if os.getppid() == parent:
        end_with(parent)  # a halted worker would outlast a process that was killed
    if torch_threads is not None:
        import torch

        torch.set_num_threads(torch_threads)
    if decoder_threads is not None:
        from strobe.subjects.train_data import limit_decoder

        limit_decoder(decoder_threads)


def _shared_used() -> int | None:
    return shutil.disk_usage(SHARED).used if SHARED.is_dir() else None


def _reason(error: Exception) -> str:
    """What went wrong, in a line: the worker's own words, not the trace that torch wraps around them."""
    if isinstance(error, UserError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, RuntimeError) and lines and "DataLoader worker" in lines[0]:
        killed = "Bus error" in str(error) or "shared memory" in str(error)
        return f"{lines[0]}{' (too little shared memory)' if killed else ''}"[:300]
    said = lines[-1] if lines else ""
    return (said if ":" in said else f"{type(error).__name__}: {said}")[:300]
