"""Settings of the whole process, as treatments: the threads of torch, freed memory that stays, TensorFloat-32.

More threads than the physical cores seldom help: two threads of a core share its arithmetic units. One fewer leaves a
core to the cameras and the control loop, which a measurement of the policy alone does not see.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from strobe.core.errors import UserError
from strobe.core.results.measurement import Measurement
from strobe.core.results.traits import TreatmentTraits
from strobe.core.subjects.subject import Subject
from strobe.core.treatments.switch import Switch, entry
from strobe.core.treatments.treatment import ANY_PHASE, Spec, Treatment, Undo
from strobe.treatments import glibc


@dataclass
class SharedSetting:
    """``read`` gives the setting's value, ``write`` sets it."""

    read: Callable[[], Any]
    write: Callable[[Any], None]
    _values: dict[object, object] = field(default_factory=dict, init=False, repr=False)
    _before: Any = field(default=None, init=False, repr=False)

    def hold(self, value: object) -> Undo:
        """Set ``value`` until the result is called."""
        if not self._values:
            self._before = self.read()
        mine = object()
        self._values[mine] = value
        self.write(value)

        def undo() -> None:
            if mine in self._values:
                del self._values[mine]
                self.write(next(reversed(self._values.values()), self._before))

        return undo


# Threads that torch computes an operator with on the CPU.

_PROCESSORS = Path("/sys/devices/system/cpu")


@dataclass
class Threads(Treatment, key="threads"):
    """``torch.set_num_threads``; engines (OpenVINO) have threads of their own."""

    count: int

    def __post_init__(self) -> None:
        self.arithmetic = min(1.0, self.count / torch.get_num_threads())

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key=self.key, value=self.count)

    def apply(self, subject: Subject) -> Undo:
        if subject.device.type != "cpu":
            raise UserError(f"threads={self.count} is for the CPU: this policy computes on {subject.device.type}")
        return _THREAD_COUNT.hold(self.count)


def _set_threads(count: int) -> None:
    torch.set_num_threads(count)
    torch.zeros(count * 2**16).add_(1)  # threads start here, and not in the call that is timed


_THREAD_COUNT = SharedSetting(torch.get_num_threads, _set_threads)


def cores() -> tuple[int, int]:
    """Return the processors that this process may run on, and how many physical cores these are."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    siblings = {_siblings(processor) for processor in usable}
    return len(usable), len(siblings)


def _siblings(processor: int) -> str:
    """Return the processors of the core of ``processor``; itself where the system does not say."""
    try:
        return (_PROCESSORS / f"cpu{processor}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(processor)


def _make_threads(spec: Spec) -> Threads:
    count = spec["threads"]
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise UserError(f"threads={count}: write a number of threads, such as threads=4")
    most = os.cpu_count() or count
    if count > most:
        raise UserError(f"threads={count}: this machine has {most} processors")
    return Threads(count)


def _thread_counts(subject: Subject) -> list[Spec]:
    if subject.device.type != "cpu":
        return []
    usable, physical = cores()
    counts = dict.fromkeys((physical, physical - 1, usable, usable - 1))
    return [{"threads": count} for count in counts if count > 0 and count != torch.get_num_threads()]


THREADS = entry("threads", _make_threads, candidates=_thread_counts, alone=lambda _, __: True, of_torch=True)


# Memory kept: large buffers are not given back to the kernel at every tensor's end and fetched again for the next.

WORTHWHILE_FAULTS = 1000  # page faults in a chunk from which they are worth a try: a millisecond or so


@dataclass
class KeptMemory(Switch, key="memory"):
    """glibc's heap gives nothing back: no page faults after the first calls, and more memory that stays."""

    _held: int = field(default=0, init=False, repr=False)  # bytes, free, at its last end
    phases = ANY_PHASE

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        return subject.device.type == "cpu" and not glibc.why_not()

    def stays(self) -> int:
        return self._held

    def apply(self, subject: Subject) -> Undo:
        if subject.device.type != "cpu":
            raise UserError(f"memory=kept is for the CPU: on {subject.device.type} torch keeps memory by itself")
        if why := glibc.why_not():
            raise UserError(f"memory=kept: {why}")
        glibc.HEAP.keep(self._held)

        def undo() -> None:
            self._held = glibc.HEAP.plain() or self._held

        return undo


def _kernel_share(now: Measurement) -> float:
    """Return the kernel's share of the time, as if no two threads were in it at once."""
    if (now.memory.page_faults or 0) < WORTHWHILE_FAULTS:
        return 0.0
    whole_ms, kernel_ms = now.samples.summary.median, now.memory.kernel_ms
    if kernel_ms is None or whole_ms <= 0:
        return 1.0
    return min(kernel_ms / whole_ms, 1.0)


MEMORY = KeptMemory.entry(saves=_kernel_share)


# TensorFloat-32: products of float32 on CUDA's tensor cores, with ten bits after the point instead of 23.


@dataclass
class TensorFloat32(Switch, key="tf32"):
    """TF32 for matrix products and convolutions, as ``lerobot-train`` always has it (torch: convolutions only)."""

    phases = ANY_PHASE
    dtypes = ("tf32",)

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        floats = any(parameter.dtype is torch.float32 for parameter in subject.module.parameters())
        return subject.device.type == "cuda" and floats

    def apply(self, subject: Subject) -> Undo:
        if subject.device.type != "cuda":
            raise UserError(f"tf32 is a mode of CUDA's tensor cores: there is none on {subject.device.type}")
        return set_tensor_float("high", True)


def set_tensor_float(products: str, convolutions: bool) -> Undo:
    """Float32's ``products`` ('high' is TF32, 'highest' is not), and whether convolutions use TF32."""
    return _TENSOR_FLOAT.hold((products, convolutions))


def _products_and_convolutions() -> tuple[str, bool]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


def _set_products_and_convolutions(value: tuple[str, bool]) -> None:
    torch.set_float32_matmul_precision(value[0])
    torch.backends.cudnn.allow_tf32 = value[1]


_TENSOR_FLOAT = SharedSetting(_products_and_convolutions, _set_products_and_convolutions)


TF32 = TensorFloat32.entry()
