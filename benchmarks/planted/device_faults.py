"""Faults of the device path, each with what puts it back and what sees it.

Beside each fix stands the behaviour before it, as a patch, and a check that says what it sees. With the patch the
check must see the fault, without it nothing.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
from planted.graph_faults import (
    MANY,
    SHARED,
    TASKS,
    always_captured,
    astray,
    casts_of_the_warm_up,
    closed_mappings,
    drop_refusal_words,
    freed_casts,
    graphs_of_the_first,
    looks_at_the_host,
    noise_of_the_capture,
    refusal,
    tasks_as_inputs,
    wrong,
)
from support.devices.emulated_device import EmulatedDevice

CACHE, MASKS, SDPA = "prefix_cache=static", "masks=once", "attention=sdpa"


@dataclass(frozen=True)
class Fault:
    """A fault, by its number in docs/hardware.md.

    Args:
        undone: a context in which its fix is undone.
        seen: returns what is seen of it; "" for nothing.
    """

    number: int
    what: str
    undone: Callable[[], AbstractContextManager[Any]]
    seen: Callable[[], str]

    @property
    def name(self) -> str:
        return f"{self.number}. {self.what}"


def faults() -> list[Fault]:
    """All of them that can be put back here."""
    return [
        Fault(1, "static cache, graph=loop: what a warm-up laid down", kept_for_ever, wrong((CACHE,), "loop")),
        Fault(2, "masks=once, graph=loop: another prompt's mask", kept_for_ever, wrong((MASKS,), "loop")),
        Fault(2, "masks=once, graph=loop: freed when taken off", kept_for_ever, wrong((MASKS,), "loop", once=False)),
        Fault(3, "sdpa, graph=loop: never captures", mask_of_the_warm_up, wrong((SDPA,), "loop")),
        Fault(3, "sdpa, graph=chunk: never captures", mask_of_the_warm_up, wrong((SDPA,), "chunk")),
        Fault(4, "static cache, graph=prefix: the living cache", living_moulds, wrong((CACHE,), "prefix", once=False)),
        Fault(7, "float8 of zeros is no number", zeros_as_scales, float8_of_zeros),
        Fault(8, "device clock: steps after an hour", from_the_start, hour_long),
        Fault(10, "a fork destroys its parent's events", events_dropped, fork_with_events),
        Fault(11, "cuBLAS without memory taken for a crash", few_words, cublas_without_memory),
        Fault(12, "an unknown timestep becomes row 0", first_row, unknown_timestep),
        Fault(13, "graph=chunk: the capture's noise for ever", noise_of_the_capture, wrong((), "chunk")),
        Fault(14, "act, graph=chunk: a capture for each task", tasks_as_inputs, astray(TASKS, most=1)),
        Fault(15, "smolvla, graph=chunk: refused", looks_at_the_host, wrong((), "chunk", kind="smolvla")),
        Fault(16, "one treatment, two policies: the first's weights", graphs_of_the_first, astray(SHARED)),
        Fault(17, "more prompts than graphs: captures and captures", always_captured, astray(MANY)),
        Fault(18, "graph under autocast: casts that are freed", casts_of_the_warm_up, freed_casts),
        Fault(19, "groot, graph=loop: its mappings are refused", closed_mappings, wrong((), "loop", kind="groot")),
        Fault(20, "a refusal names no line", drop_refusal_words, refusal),
    ]


# --- 1 to 4: what graphs read


def kept_for_ever() -> AbstractContextManager[Any]:
    """Values that treatments keep are not dropped where a warm-up or a capture begins."""
    from strobe.treatments.graphs.host_work import EpochCache

    return mock.patch.object(EpochCache, "now", lambda self: self)


def mask_of_the_warm_up() -> AbstractContextManager[Any]:
    """The last mask is kept in a warm-up, and made for each layer in a capture."""
    from strobe.treatments.layers import attention

    def additive_mask(self: Any, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if mask.is_inference() or (mask.is_cuda and torch.cuda.is_current_stream_capturing()):
            return attention.additive(mask, dtype)
        source, version, made = self._kept.get(attention.LAST, (None, -1, None))
        if made is None or source is not mask or version != mask._version or made.dtype != dtype:
            made = attention.additive(mask, dtype)
            self._kept[attention.LAST] = mask, mask._version, made
        return made

    return mock.patch.object(attention.Masks, "additive_mask", additive_mask)


def living_moulds() -> AbstractContextManager[Any]:
    """The form of what a graph returns is the very cache that a treatment empties."""
    from torch.utils._pytree import tree_flatten

    from strobe.treatments.graphs import regions

    init = regions.Structure.__init__

    def keep_leaves(self: Any, value: Any, what: str) -> None:
        init(self, value, what)
        self._leaves = tree_flatten(value, is_leaf=regions.is_cache)[0]

    return mock.patch.object(regions.Structure, "__init__", keep_leaves)


# --- 7: numbers in 8 bits


def float8_of_zeros() -> str:
    """Returns what a weight with a row of zeros, and one of nothing else, become."""
    from strobe.treatments.numbers import quantised_weights

    row = torch.ones(32, 32)
    row[3] = 0
    for what, weight in (("a row of zeros", row), ("zeros", torch.zeros(32, 32))):
        made = quantised_weights.quantize_weight(weight, quantised_weights.FLOAT8, "float").dequantize()
        if not torch.equal(made, weight):
            return f"{what} in float8: {int(made.isnan().sum())} of {made.numel()} are no numbers"
    return ""


def zeros_as_scales() -> AbstractContextManager[Any]:
    """Scales as torchao gives them, 0 where all is 0."""
    from torchao.quantization import Float8Tensor, PerRow
    from torchao.quantization.quantize_.common import KernelPreference

    from strobe.treatments.numbers import quantised_weights

    def quantize_with_zeros(weight: torch.Tensor, kind: torch.dtype, inputs: str) -> Any:
        made: Any = Float8Tensor.from_hp(
            weight, float8_dtype=kind, granularity=PerRow(), kernel_preference=KernelPreference.TORCH
        )
        scale = made.scale.float().reshape(-1, 1)
        return quantised_weights.QuantisedWeight(made.qdata.contiguous(), scale, weight.dtype, inputs)

    return mock.patch.object(quantised_weights, "quantize_weight", quantize_with_zeros)


# --- 8: the clock


class _Accelerator:
    """Stands for `torch.cuda`: its events tell the time between them as a float32 of milliseconds."""

    def __init__(self) -> None:
        self.now_ns = 0
        outer = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                self.ns = 0

            def record(self, stream: Any = None) -> None:
                self.ns = outer.now_ns

            def elapsed_time(self, other: Any) -> float:
                return float(np.float32((other.ns - self.ns) / 1e6))

        self.Event = Event

    def current_stream(self, device: Any) -> int:
        return 0

    def synchronize(self, device: Any = None) -> None: ...


def hour_long() -> str:
    """Returns how far a section of 87 µs, after an hour of them, is off."""
    from strobe.core.timeline import clock

    made_up = _Accelerator()
    with mock.patch.object(torch, "get_device_module", return_value=made_up):
        device: Any = clock.device_clock("cuda:0")
        marks = []
        for _ in range(3600):
            made_up.now_ns += 1_000_000_000
            marks.append(device.read())
        made_up.now_ns += 87_000
        start, end = device.resolve([*marks, device.read()])[-2:]
    off = abs(end - start - 87_000) / 1e3
    return f"87 µs are told as {(end - start) / 1e3:.0f} µs" if off > 1 else ""


def from_the_start() -> AbstractContextManager[Any]:
    """Each mark is read against the clock's first one."""
    from strobe.core.timeline.clock import EventClock

    def resolve(self: Any, marks: Any) -> list[int | None]:
        return [
            None if mark is None else self._base_ns + round(self._base.elapsed_time(mark[1]) * 1e6) for mark in marks
        ]

    return mock.patch.object(EventClock, "resolve", resolve)


# --- 10: events in a fork


class _Event:
    """A device's event, which ends the process if it is destroyed in another one than its own."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self._process:
            os._exit(77)


def fork_with_events() -> str:
    """Returns how a forked worker of a process that records ends."""
    from strobe.core.timeline.workers import Spool

    records: list[tuple[Any, ...]] = [("section", _Event())]
    spool = Spool(records)
    try:
        worker = multiprocessing.get_context("fork").Process(target=int)
        worker.start()
        worker.join()
    finally:
        spool.gather()
    return "" if worker.exitcode == 0 else f"the worker ended with {worker.exitcode}"


def events_dropped() -> AbstractContextManager[Any]:
    """A fork lets go of what its parent recorded."""
    from strobe.core.timeline import workers

    class Nothing(list[Any]):
        def append(self, _: Any) -> None: ...

    return mock.patch.object(workers, "_INHERITED", Nothing())


# --- 11: memory


def cublas_without_memory() -> str:
    """Returns what a cell says of cuBLAS without memory."""
    from strobe.sweep import cell_command as cell

    error = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
    with mock.patch.object(cell, "keep", side_effect=error), mock.patch.object(cell.traceback, "print_exc"):
        status, _ = cell.attempt(None, "", [])  # type: ignore[arg-type]
    return "" if status == "out of memory" else status


def few_words() -> AbstractContextManager[Any]:
    """Only allocators' own words are known."""
    from strobe.lerobot import refusals

    known = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory")
    return mock.patch.object(refusals, "_NO_MEMORY", known)


# --- 12: timesteps


def unknown_timestep() -> str:
    """Returns what a table without the timestep 0.25 gives for it, where it cannot look."""
    from strobe.treatments.flow.step_values import _Table

    with EmulatedDevice():
        device = torch.device("cuda")
        rows = torch.tensor([[1.0], [2.0], [torch.nan]], device=device)
        table = _Table(torch.tensor([1.0, 0.5], device=device), rows, None, [])
        index = table.index(torch.tensor([0.25], device=device))
        found = None if index is None else table.embeddings.index_select(0, index).cpu()
    return "" if found is None or bool(found.isnan().all()) else f"it takes the row of {float(found)}"


@contextmanager
def first_row() -> Iterator[None]:
    """Where no row is equal, the first one is the greatest."""
    from strobe.treatments.flow.step_values import _Table

    def index(self: Any, timestep: torch.Tensor) -> torch.Tensor:
        return (self.times == timestep[:1]).int().argmax(0, keepdim=True)

    with mock.patch.object(_Table, "index", index):
        yield
