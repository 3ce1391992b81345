"""Settings of the whole process, as treatments: torch's threads, freed memory that stays, TF32, cuDNN's choice.

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
from strobe.core.measure.other_work import usable_processors
from strobe.core.results.measurement import Measurement
from strobe.core.results.traits import TreatmentTraits
from strobe.core.subjects.subject import Subject
from strobe.core.treatments.switch import Switch, entry
from strobe.core.treatments.treatment import ANY_PHASE, FOR_INFERENCE, Spec, Treatment, Undo
from strobe.core.treatments.words import CUDNN
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

    def check_device(self, device: torch.device) -> None:
        """Raise UserError off the CPU."""
        if device.type != "cpu":
            raise UserError(f"threads={self.count} is for the CPU: this policy computes on {device.type}")

    def apply(self, subject: Subject) -> Undo:
        self.check_device(subject.device)
        return _THREAD_COUNT.hold(self.count)


def _set_threads(count: int) -> None:
    torch.set_num_threads(count)
    torch.zeros(count * 2**16).add_(1)  # threads start here, and not in the call that is timed


_THREAD_COUNT = SharedSetting(torch.get_num_threads, _set_threads)


def cores() -> tuple[int, int]:
    """Return the processors that this process may run on, and how many physical cores these are."""
    usable = usable_processors()
    siblings = {_siblings(processor) for processor in usable}
    return len(usable), len(siblings)


def _siblings(processor: int) -> str:
    try:
        return (_PROCESSORS / f"cpu{processor}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(processor)


def _make_threads(spec: Spec) -> Threads:
    count = spec["threads"]
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise UserError(f"threads={count}: must be a number of threads, such as threads=4")
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


# Not of torch alone: next to engines of all that computes, one thread was measured to be 5 % faster (Diffusion).
THREADS = entry("threads", _make_threads, candidates=_thread_counts, alone=lambda _, __: True)


# Memory kept: large buffers are not given back to the kernel at every tensor's end and fetched again for the next.

WORTHWHILE_FAULTS = 1000  # page faults in a chunk from which they are worth a try: a millisecond or so


@dataclass
class KeptMemory(Switch, key="memory"):
    """glibc's heap gives nothing back: no page faults after the first calls, and more memory that stays."""

    _held: int = field(default=0, init=False, repr=False)  # bytes, free, at its last end
    phases = ANY_PHASE

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        return subject.device.type == "cpu" and not glibc.unsupported_reason()

    def retained_bytes(self) -> int:
        return self._held

    def check_device(self, device: torch.device) -> None:
        """Raise UserError off the CPU, and where the heap is not glibc's own."""
        if device.type != "cpu":
            raise UserError(f"memory=kept is for the CPU: on {device.type} torch keeps memory by itself")
        if why := glibc.unsupported_reason():
            raise UserError(f"memory=kept: {why}")

    def apply(self, subject: Subject) -> Undo:
        self.check_device(subject.device)
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
class TensorFloat32(Treatment, key="tf32"):
    """Matrix products and convolutions in TF32, or neither (torch: convolutions; lerobot-train: both)."""

    on: bool = True
    because = "a training step already uses it, as in lerobot-train: tf32=false shows its gain"

    def __post_init__(self) -> None:
        self.dtypes = ("tf32",) if self.on else ()
        self.phases = FOR_INFERENCE if self.on else ANY_PHASE

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key=self.key, value=self.on)

    def check_device(self, device: torch.device) -> None:
        """Raise UserError off a CUDA device."""
        if device.type != "cuda":
            raise UserError(f"tf32 is a mode of CUDA's tensor cores, and the policy is on {device.type}")

    def apply(self, subject: Subject) -> Undo:
        self.check_device(subject.device)
        return set_tensor_float("high" if self.on else "highest", self.on, subject)


def set_tensor_float(products: str, convolutions: bool, subject: Subject | None = None) -> Undo:
    """Float32's ``products`` ('high' is TF32, 'highest' is not), and whether convolutions use TF32.

    The training steps of ``subject`` follow the products: without it they set what ``lerobot-train`` sets.
    """
    return _and_in_training(_TENSOR_FLOAT.hold((products, convolutions)), subject, "tensor_float", products == "high")


def _and_in_training(undo: Undo, subject: Subject | None, name: str, value: bool) -> Undo:
    if subject is None or subject.acting is None:
        return undo
    training = subject.acting.training
    before = getattr(training, name)
    setattr(training, name, value)

    def undo_both() -> None:
        setattr(training, name, before)
        undo()

    return undo_both


def _products_and_convolutions() -> tuple[str, bool]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


def _set_products_and_convolutions(value: tuple[str, bool]) -> None:
    torch.set_float32_matmul_precision(value[0])
    torch.backends.cudnn.allow_tf32 = value[1]


_TENSOR_FLOAT = SharedSetting(_products_and_convolutions, _set_products_and_convolutions)


def _make_tensor_float(spec: Spec) -> TensorFloat32:
    if not isinstance(spec["tf32"], bool):
        raise UserError(f"tf32={spec['tf32']}: true or false")
    return TensorFloat32(spec["tf32"])


def _tf32_specs(subject: Subject) -> list[Spec]:
    floats = any(parameter.dtype is torch.float32 for parameter in subject.module.parameters())
    return [{"tf32": True}] if subject.device.type == "cuda" and floats else []


TF32 = entry("tf32", _make_tensor_float, candidates=_tf32_specs)


# cuDNN's choice among its algorithms: measured for each new shape, or by a rule of its own.

_CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)


@dataclass
class CudnnChoice(Treatment, key="cudnn"):
    """``torch.backends.cudnn.benchmark``: on with 'benchmark', as in lerobot-train and lerobot-eval, else off."""

    how: str
    because = "a training step already uses it, as in lerobot-train: cudnn=default shows its gain"

    def __post_init__(self) -> None:
        self.phases = FOR_INFERENCE if self.how == "benchmark" else ANY_PHASE

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key=self.key, value=self.how)

    def check_device(self, device: torch.device) -> None:
        """Raise UserError off a CUDA device."""
        if device.type != "cuda":
            raise UserError(f"cudnn needs a CUDA device, and the policy is on {device.type}")

    def apply(self, subject: Subject) -> Undo:
        self.check_device(subject.device)
        tries = self.how == "benchmark"
        return _and_in_training(_TRIES.hold(tries), subject, "benchmark", tries)


def _set_tries(value: bool) -> None:
    torch.backends.cudnn.benchmark = value


_TRIES = SharedSetting(lambda: torch.backends.cudnn.benchmark, _set_tries)


def _make_cudnn(spec: Spec) -> CudnnChoice:
    how = str(spec["cudnn"])
    if how not in CUDNN:
        raise UserError(f"cudnn={'?' if spec['cudnn'] is True else how}: {' or '.join(CUDNN)}")
    return CudnnChoice(how)


def _cudnn_specs(subject: Subject) -> list[Spec]:
    # A single convolution is a transformer's patch embedding, too little to try.
    many = sum(isinstance(module, _CONVOLUTIONS) for module in subject.module.modules()) > 1
    return [{"cudnn": "benchmark"}] if many and subject.device.type == "cuda" else []


CUDNN_CHOICE = entry("cudnn", _make_cudnn, candidates=_cudnn_specs)
