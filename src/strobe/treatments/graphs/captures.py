"""Captures of a region: by ``torch.cuda.graph``, undone where one fails, and the same played on the CPU.

The first are on a stream and in a memory pool of ours.

``torch.cuda.graph`` does not undo a capture that fails: `capture_end` raises as soon as CUDA says that the capture was
invalidated, and what it would have done after that is left out (torch 2.11, ``aten/src/ATen/cuda/CUDAGraph.cpp``). The
capture's stream stays the current one. The allocator goes on asking whether memory is for the capture. The device's
generator believes that it is in a capture, so that every later draw raises "Offset increment outside graph capture".

None of this has run on a card yet: it was written from torch's source, and is tested on a model of its states.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from strobe.core.devices.accelerators import Pool, number_device
from strobe.core.errors import UserError
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.layers import Call

Run = Callable[[], object]

_WARMUPS = 3  # runs before a capture: libraries set themselves up, allocators grow
_streams: dict[int, torch.cuda.Stream] = {}  # number of a device → the stream on which its captures are made
_failed: list[torch.cuda.CUDAGraph] = []


class Cuda:
    """A `Capture` by ``torch.cuda.graph``, each with a memory pool of its own."""

    def __init__(self) -> None:
        self.pools: list[Pool] = []

    def require(self, subject: Subject, what: str) -> None:
        """Raise UserError if the subject is not on CUDA."""
        if subject.device.type != "cuda":
            raise UserError(f"graph={what} needs CUDA, but {subject.info.name} is on {subject.device.type}")

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


# A CUDA graph played on the CPU: the operators of a capture are kept, and replayed on the tensors they had.
#
# No Python runs in a replay, as none does on a card. So a value that a treatment kept from a warm-up, a mask of another
# prompt, a copy that was not captured: all come out wrong. What would wait for the device in a capture raises, and so
# does a replay that reads memory which was freed since: a graph knows addresses, and keeps nothing alive.
#
# A graph holds work of its device alone. A tensor of another device is a number that was read once, in the capture.

# Operators that read a number of the device on the host, which no capture allows.
_WAITS = {"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::equal", "aten::is_nonzero"}


class Replayed:
    """A `Capture`: ``recorded`` counts the captures, ``operators`` those of the last one."""

    def __init__(self, warmups: int = 3) -> None:
        self.warmups = warmups
        self.recorded = self.operators = 0
        self.pools: list[Pool] = []

    def require(self, subject: Subject, what: str) -> None: ...

    def record(self, warm: Run, run: Run, device: torch.device) -> tuple[Run, object]:
        for _ in range(self.warmups):
            warm()
        tape = _Tape(device)
        with tape:
            made = run()
        self.recorded += 1
        self.operators = len(tape.steps)
        return tape.replay, made


class _Tape(TorchDispatchMode):
    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.steps: list[tuple[Call, tuple[object, ...], dict[str, object], list[Tensor]]] = []
        self._device = device.type
        self._own: set[int] = set()  # memory that the capture took, which the graph keeps
        self._numbers: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        named = dict(kwargs or {})
        given = [tensor for tensor in tree_leaves((args, named)) if isinstance(tensor, Tensor)]
        here = any(self._is_on_device(tensor) for tensor in given)
        if here and func._schema.name in _WAITS:
            raise RuntimeError(f"{func._schema.name} waits for the device: operation not permitted in a capture")
        if func._schema.name == "aten::lift_fresh":  # made of Python's numbers just now, by no operator
            self._numbers += given
            self._own.update(_place(tensor) for tensor in given)
        recorded: Any = tree_map(self._recorded_value, (args, named)) if here else (args, named)
        made = func(*args, **named)
        places = {_place(tensor) for tensor in given}
        # Views, and what was written in place, share memory with what was given: the operator itself writes there.
        fresh = [tensor for tensor in tree_leaves(made) if isinstance(tensor, Tensor) and _place(tensor) not in places]
        if (fresh and any(self._is_on_device(tensor) for tensor in fresh)) or (here and func._schema.is_mutable):
            self._own.update(_place(tensor) for tensor in fresh)
            self.steps.append((func, recorded[0], recorded[1], fresh))
        return made

    def replay(self) -> None:
        """Run the operators again, each on the very memory that it had, into the very tensors that it made.

        Casts by autocast are among them. Raises RuntimeError where that memory was freed.
        """
        with torch.autocast("cpu", enabled=False):
            for func, args, kwargs, fresh in self.steps:
                args, kwargs = tree_map(_resolve_address, (args, kwargs))
                results = [tensor for tensor in tree_leaves(func(*args, **kwargs)) if isinstance(tensor, Tensor)]
                for place, new in zip(fresh, results[-len(fresh) :] if fresh else [], strict=True):
                    place.copy_(new)

    def _is_on_device(self, tensor: Tensor) -> bool:
        return tensor.device.type == self._device

    def _recorded_value(self, value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        if not self._is_on_device(value):
            return value.clone()
        return value if _place(value) in self._own else _Address(value)


class _Address:
    """Memory that is not the graph's own, and how a tensor lies in it."""

    def __init__(self, tensor: Tensor) -> None:
        self._storage = weakref.ref(tensor.untyped_storage())
        self._dtype = tensor.dtype
        self._layout = tensor.storage_offset(), tuple(tensor.shape), tensor.stride()

    def tensor(self) -> Tensor:
        """Return the tensor. Raises RuntimeError where its memory was freed."""
        storage = self._storage()
        if storage is None:
            raise RuntimeError("a replay reads memory that was freed since the capture")
        return torch.empty(0, dtype=self._dtype, device=storage.device).set_(storage, *self._layout)


def _resolve_address(value: object) -> object:
    return value.tensor() if isinstance(value, _Address) else value


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
