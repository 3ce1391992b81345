"""Captures of a region by ``torch.cuda.graph``, on a stream and in a memory pool of ours; undone where one fails.

``torch.cuda.graph`` does not undo a capture that fails: `capture_end` raises as soon as CUDA says that the capture was
invalidated, and what it would have done after that is left out (torch 2.11, ``aten/src/ATen/cuda/CUDAGraph.cpp``). The
capture's stream stays the current one. The allocator goes on asking whether memory is for the capture. The device's
generator believes that it is in a capture, so that every later draw raises "Offset increment outside graph capture".

None of this has run on a card yet: it was written from torch's source, and is tested on a model of its states.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from strobe.core.devices.accelerators import Pool, number_device
from strobe.core.errors import UserError

Run = Callable[[], object]

_WARMUPS = 3  # runs before a capture: libraries set themselves up, allocators grow
_streams: dict[int, torch.cuda.Stream] = {}  # number of a device → the stream on which its captures are made
_failed: list[torch.cuda.CUDAGraph] = []


class Cuda:
    """A `Capture` by ``torch.cuda.graph``, each with a memory pool of its own."""

    def __init__(self) -> None:
        self.pools: list[Pool] = []

    def require(self, device: torch.device, what: str) -> None:
        """Raise UserError if ``device`` is not CUDA's."""
        if device.type != "cuda":
            raise UserError(f"graph={what} needs CUDA, but the policy is on {device.type}")

    def record(self, warm: Run, run: Run, device: torch.device) -> tuple[Run, object]:
        """Warm up, and capture ``run``. An exception of either is raised unchanged, and nothing is left in capture."""
        index = number_device(device).index
        with torch.cuda.device(device):
            # Not torch.cuda.graph's own stream: there is one for the process, on the device that captured first.
            side = _streams[index] if index in _streams else _streams.setdefault(index, torch.cuda.Stream())
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(_WARMUPS):
                    warm()
            torch.cuda.current_stream().wait_stream(side)
            graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
            with _undone(graph, pool, side, index):
                made = _capture_run(graph, pool, side, run)
        self.pools.append(pool)
        return graph.replay, made


def _capture_run(graph: torch.cuda.CUDAGraph, pool: Any, stream: torch.cuda.Stream, run: Run) -> object:
    """Return what ``run`` returned; raises its own exception, not the one about an invalid capture that follows."""
    first: BaseException | None = None
    try:
        # Other threads (loaders, recorders) may use the device meanwhile.
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            try:
                return run()
            except BaseException as error:
                first = error
                raise
    except BaseException:
        if first is not None:
            raise first from None
        raise


@contextmanager
def _undone(graph: torch.cuda.CUDAGraph, pool: Pool, stream: torch.cuda.Stream, index: int) -> Iterator[None]:
    before = torch.cuda.current_stream()
    try:
        yield
    except BaseException:
        _streams.pop(index, None)
        _end(graph, stream)
        torch.cuda.set_stream(before)
        if not _has_capture_ended(graph):
            # The allocator may still ask this graph whether memory is for its capture: it must not be freed.
            _failed.append(graph)
            for function in (torch._C._cuda_endAllocateToPool, torch._C._cuda_releasePool):
                with suppress(RuntimeError):  # it may have got that far by itself
                    function(index, pool)
            _free_generator()
        raise


def _end(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> None:
    with torch.cuda.stream(stream), suppress(RuntimeError):
        if torch.cuda.is_current_stream_capturing():
            graph.capture_end()


def _has_capture_ended(graph: torch.cuda.CUDAGraph) -> bool:
    try:
        graph.pool()
    except RuntimeError:
        return False
    return True


def _free_generator() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the graph is empty
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
            pass
