"""The loader's side of a `LoaderProcess`: open the dataset, start the workers, deliver batches, answer what is asked.

This module is imported in a fresh process, before any worker is forked: it must not decode video or start threads.
"""

from __future__ import annotations

import importlib.util
import math
import multiprocessing as mp
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import psutil
from lerobot.configs.train import TrainPipelineConfig

from strobe.errors import UserError
from strobe.lerobot.quiet import quiet
from strobe.measure.lifetime import end_with
from strobe.results.dataloader import LoaderSettings
from strobe.subjects.shared_memory import SHARED

PATIENCE_S = 120.0  # without an answer, after which a loader counts as hung
LEAST_BLOCKS = 2  # enough to rank a loader by; an interval takes three
SHORTEST_BLOCK_S = 0.05


def serve(
    connection: Connection, config: TrainPipelineConfig, settings: LoaderSettings, like_lerobot_train: bool
) -> None:
    """Answer requests (a method's name, its arguments) on ``connection`` until it closes.

    An answer is True with what the method returned, or False with the reason why it failed, in a line.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks, which ends this one
    if like_lerobot_train:
        # Workers that are spawned import the main module again: lerobot-train's, when it is lerobot-train.
        sys.modules["__main__"].__spec__ = importlib.util.find_spec("lerobot.scripts.lerobot_train")
    with quiet():
        served = ServedLoader(config, settings)
        died = ""  # why a worker did, while nothing was asked
        while True:
            try:
                what, arguments = connection.recv()
            except (EOFError, OSError):
                return _wake_workers()  # workers end with this process
            except RuntimeError as error:  # raised by torch, wherever Python is, when a worker dies
                died = _reason(error)
                continue
            try:
                answer = (False, died) if died else (True, getattr(served, what)(*arguments))
            except Exception as error:
                answer = False, _reason(error)
            try:
                connection.send(answer)
            except OSError:
                return _wake_workers()


def _wake_workers() -> None:
    """Let halted workers go on: they could not end otherwise, and this process would wait for them for ever."""
    for child in mp.active_children():
        if child.pid is not None and hasattr(signal, "SIGCONT"):
            os.kill(child.pid, signal.SIGCONT)


@dataclass
class ServedLoader:
    """The loader in its process; `serve` calls its public methods by name and sends back what they return."""

    config: TrainPipelineConfig
    settings: LoaderSettings
    batches: Iterator[Any] | None = None
    loader: Any = None
    rounds_in_block: int = 0  # 0 while unknown
    shared_before: int | None = None
    shared_most: int = 0
    dataset: Any = None

    def facts(self) -> dict[str, Any]:
        """Values of `DatasetFacts` less the name, and the dataset's folder as ``root``."""
        from strobe.datasets.train_loader import open_dataset, sample_bytes

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
        """Start the workers. Returns seconds to the first batch, and their process ids."""
        self._open_loader(None)
        began = time.perf_counter()
        self.batches = iter(self.loader)
        next(self.batches)
        return time.perf_counter() - began, [child.pid for child in mp.active_children() if child.pid is not None]

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

    def memory(self) -> tuple[int | None, int | None, int | None]:
        """Fields of `process.WorkerMemory`, in bytes."""
        seen = []
        for child in mp.active_children():
            if child.pid is not None:
                seen.append(psutil.Process(child.pid).memory_full_info())
        uss = sum(one.uss for one in seen) // len(seen) if seen else None
        pss = sum(one.pss for one in seen) // len(seen) if seen and hasattr(seen[0], "pss") else None
        return pss, uss, self.shared_most if self.shared_before is not None and seen else None

    def start_epochs(self, start_method: str) -> tuple[float, float]:
        """See `LoaderProcess.start_epochs`."""
        self.batches = None  # ends the workers of the method before
        self.settings = self.settings.model_copy(update={"start_method": start_method})
        self._open_loader(2 * max(1, self.settings.num_workers) * self.settings.batch_size)
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

    def _open_loader(self, epoch: int | None) -> None:
        from strobe.datasets.train_loader import open_dataset, open_loader

        self.dataset = self.dataset or open_dataset(self.config, self.settings)
        self.loader = open_loader(
            self.config, self.settings, self.dataset, epoch=epoch, prepare_worker=_preparation(self.settings)
        )
        self.shared_before = _shared_used()

    def _deliver(self, batches: int) -> None:
        assert self.batches is not None
        for _ in range(batches):
            next(self.batches)
            used = _shared_used()
            if used is not None and self.shared_before is not None:
                self.shared_most = max(self.shared_most, used - self.shared_before)


def _preparation(settings: LoaderSettings) -> Callable[[int], None] | None:
    """The function called first in every worker; None where workers are to be lerobot-train's, with nothing of ours."""
    threads = settings.torch_threads is not None or settings.decoder_threads is not None
    if threads or settings.start_method == "fork":
        return partial(_prepare, os.getpid(), settings.torch_threads, settings.decoder_threads)
    return None


def _prepare(parent: int, torch_threads: int | None, decoder_threads: int | None, worker: int) -> None:
    if os.getppid() == parent:
        end_with(parent)  # a halted worker would outlast a process that was killed
    if torch_threads is not None:
        import torch

        torch.set_num_threads(torch_threads)
    if decoder_threads is not None:
        from strobe.datasets.train_loader import limit_decoder

        limit_decoder(decoder_threads)


def _shared_used() -> int | None:
    return shutil.disk_usage(SHARED).used if SHARED.is_dir() else None


def _reason(error: Exception) -> str:
    """The reason in a line: the worker's own words, not the trace that torch wraps around them."""
    if isinstance(error, UserError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, RuntimeError) and lines and "DataLoader worker" in lines[0]:
        killed = "Bus error" in str(error) or "shared memory" in str(error)
        return f"{lines[0]}{' (too little shared memory)' if killed else ''}"[:300]
    last = lines[-1] if lines else ""
    return (last if ":" in last else f"{type(error).__name__}: {last}")[:300]
