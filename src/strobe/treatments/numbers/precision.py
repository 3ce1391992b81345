"""Precision: the weights of a subject, or of one part of it, in another floating-point format.

Applied and undone around every call, so both are a swap of ``.data``: the parameters, the modules and the probes on
them stay the same objects, and the original weights come back as the same storage. The price is the memory of the
converted copy, kept for as long as the treatment lives.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from strobe.core.devices.accelerators import computes_bf16
from strobe.core.errors import UserError, error_line
from strobe.core.families.capabilities import Parts
from strobe.core.measure.ceiling import faster_in_bfloat16
from strobe.core.results.traits import TreatmentTraits
from strobe.core.subjects.callable_subject import CallableSubject
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.layers import Call, add_layer
from strobe.core.treatments.patch import replaced_method
from strobe.core.treatments.room import numbers, require_room
from strobe.core.treatments.switch import entry
from strobe.core.treatments.treatment import ANY_PHASE, Spec, Treatment, Undo
from strobe.core.treatments.words import precision_name
from strobe.treatments.numbers import casts
from strobe.treatments.numbers.casts import SameNoise
from strobe.treatments.parts import dominant, find_part, named_parts
from strobe.treatments.process_settings import set_tensor_float

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

# The least share of weights in other formats with which a part is a candidate. A smaller share is that on purpose, like
# norms, and takes next to no time.
_WORTH = 0.05
# The methods by which a subject is called.
_ENTRIES = ("forward", "predict_action_chunk")
# How torch says that an operator does not take these dtypes.
_UNFIT = re.compile(r"not implemented for '|dtype|scalar type|same type|BFloat16|Half", re.IGNORECASE)


@dataclass
class Precision(Treatment, key="precision"):
    """Weights in ``dtype``, of the whole subject or of the module at the path ``part``; inputs are cast to it.

    Outputs of a part are cast back to the dtype that most of its weights had, outputs of the whole to float32. Of an
    object in Python so are those of each module that it calls.
    """

    dtype: str
    part: str = ""
    _swaps: list[_Swap] = field(default_factory=list, init=False, repr=False)
    _wraps: list[_Wrap] = field(default_factory=list, init=False, repr=False)
    _border: casts.Border = field(default_factory=lambda: casts.Border(torch.float32), init=False, repr=False)
    _noise: SameNoise = field(default_factory=SameNoise, init=False, repr=False)
    _prepared: bool = field(default=False, init=False, repr=False)
    phases = ANY_PHASE - {"training step"}
    because = "a training step would train a copy of the weights in each precision"
    copies_weights = True

    def __post_init__(self) -> None:
        self.dtype = precision_name(self.dtype)
        self.dtypes = (str(DTYPES[self.dtype]).removeprefix("torch."), *(["tf32"] if self.dtype == "tf32" else []))

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key=self.key, value=self.dtype, part=self.part)

    def check_device(self, device: torch.device) -> None:
        if self.dtype == "tf32" and device.type != "cuda":
            raise UserError(f"tf32 is a mode of CUDA's tensor cores; on {device.type} use fp32 or bf16")

    def apply(self, subject: Subject) -> Undo:
        self.check_device(subject.device)
        if not self._prepared:
            self._prepare(subject)
        # Which weights differ is looked up every time: another treatment may have been applied before.
        swaps = [swap for swap in self._swaps if swap.let_go or swap.tensor.dtype != swap.dtype]
        self.effect = "rounding" if swaps else "exact"
        stack = ExitStack()
        try:
            if subject.device.type == "cuda" and DTYPES[self.dtype] is torch.float32:
                self._tensor_float(stack, subject)
            if swaps:
                if not any(swap.let_go for swap in swaps):
                    self._border.outside = _majority([swap.tensor for swap in self._swaps])
                copies: dict[object, Tensor] = {}  # tied weights share one
                for swap in swaps:
                    swap.convert(copies)
                stack.callback(_swap_back, swaps)  # one callback for all: a policy has a thousand of them
                for swap in swaps:
                    swap.to_copy()
                for wrap in self._wraps:
                    stack.callback(wrap.install())
        except BaseException:
            stack.close()
            raise
        return stack.close

    def settle(self) -> bool:
        """Free the original weights, which only undoing needs: the treatment then stays on.

        Return whether there were any.
        """
        return sum(swap.settle() for swap in self._swaps) > 0

    def _prepare(self, subject: Subject) -> None:
        part = find_part(subject.module, self.part)
        held = _weights(part)
        _require_floating(part, held, f"'{self.part}'" if self.part else subject.info.name)
        self._swaps = [_Swap(tensor, DTYPES[self.dtype]) for tensor in held]
        copied = numbers(swap.tensor for swap in self._swaps if swap.tensor.dtype != swap.dtype)
        what = f"a copy of {self.part or 'the weights'} in {self.dtype}"
        require_room(copied * DTYPES[self.dtype].itemsize, what, subject)
        self._wraps = list(self._casting(subject, part))
        self._prepared = True

    def _casting(self, subject: Subject, part: nn.Module) -> Iterable[_Wrap]:
        dtype = DTYPES[self.dtype]
        inside = {module for module in part.modules() if _weights(module)}
        self._border = casts.Border(dtype)
        for module in subject.module.modules():
            own = [tensor for tensor in _own(module) if tensor.is_floating_point()]
            if own and (module in inside or isinstance(module, casts.STRICT)):
                yield _Wrap(module, "forward", partial(casts.to_weights, weight=own[0]))
            elif module in inside and module is not subject.module:
                yield _Wrap(module, "forward", partial(casts.wrap_container, dtype=dtype))
                yield _Wrap(module, "forward", partial(self._noise.wrap_forward, module=module))
            # Somebody else's object may call any of its modules, and goes on with what that returns.
            if module in inside and (self.part or isinstance(subject, CallableSubject)):
                yield _Wrap(module, "forward", self._border.wrap_call)
        for name in _ENTRIES:
            if not hasattr(subject.module, name):
                continue
            if not self.part:
                yield _Wrap(subject.module, name, partial(casts.returning, dtype=torch.float32))
            yield _Wrap(subject.module, name, partial(self._refusing, subject=subject))

        for name in (*_ENTRIES, "select_action"):
            if hasattr(subject.module, name):
                yield _Wrap(subject.module, name, partial(self._noise.entry, name=name))

    def _tensor_float(self, stack: ExitStack, subject: Subject) -> None:
        wanted = "high" if self.dtype == "tf32" else "highest", self.dtype == "tf32"
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        if before != wanted:
            self.effect = "rounding"
        stack.callback(set_tensor_float(*wanted, subject))

    def _refusing(self, inner: Call, subject: Subject) -> Call:
        where = f"{self.part} of {subject.info.name}" if self.part else subject.info.name

        def call(*args: object, **kwargs: object) -> object:
            try:
                return inner(*args, **kwargs)
            except (RuntimeError, TypeError) as error:
                text = error_line(error)
                if isinstance(error, torch.OutOfMemoryError) or not _UNFIT.search(text):
                    raise
                raise UserError(
                    f"{where} does not run in {self.dtype} on {subject.device.type}: {text[:200]}"
                ) from error

        return call


@dataclass(eq=False)
class _Swap:
    """One parameter or buffer, and its converted copy.

    ``let_go``: the tensor is the copy for good, in ``dtype``.
    """

    tensor: Tensor
    dtype: torch.dtype
    let_go: bool = False
    _source: Tensor | None = None
    _copy: Tensor | None = None
    _version: int = -1

    def convert(self, copies: dict[object, Tensor]) -> None:
        """Make the copy where there is none, or where the weights are others than those it was made of."""
        self.let_go &= self.tensor.dtype == self.dtype  # else the program has cast it since
        if self.let_go:
            self._copy = self.tensor.data
            return
        data, version = self.tensor.data, self.tensor._version
        known = self._source is not None and data.data_ptr() == self._source.data_ptr()
        if not known or version != self._version:
            key = (data.data_ptr(), data.shape, data.stride(), data.dtype)
            if key not in copies:
                copies[key] = data.to(self.dtype)
            self._copy, self._version = copies[key], version
        self._source = data

    def to_copy(self) -> None:
        assert self._copy is not None
        self.tensor.data = self._copy

    def to_source(self) -> None:
        if self._source is not None:
            self.tensor.data = self._source

    def settle(self) -> bool:
        """Return whether it held weights in another dtype until now."""
        if self._source is None or self._source.dtype == self.dtype:
            return False
        self._source, self.let_go = None, True
        return True


@dataclass(eq=False)
class _Wrap:
    """A wrapper around a method; made again only where what it wraps is another (a probe came or went)."""

    module: nn.Module
    name: str
    make: Callable[[Call], Call]
    _around: Any = None
    _made: Any = None

    def install(self) -> Undo:
        own = vars(self.module).get(self.name)
        if self._made is None or own is not self._around:
            self._around, self._made = own, add_layer(self.make, getattr(self.module, self.name))
        return replaced_method(self.module, self.name, self._made)


def _swap_back(swaps: Sequence[_Swap]) -> None:
    for swap in swaps:
        swap.to_source()


def _own(module: nn.Module) -> list[Tensor]:
    """Parameters and persistent buffers that ``module`` itself holds.

    Buffers that no checkpoint keeps are tables computed in float32 for a reason (rotary frequencies), and stay.
    """
    buffers = (b for name, b in module._buffers.items() if name not in module._non_persistent_buffers_set)
    return [tensor for tensor in (*module._parameters.values(), *buffers) if tensor is not None]


def _weights(module: nn.Module) -> list[Tensor]:
    """Floating tensors of the whole tree that hold weights, each once."""
    weights = {id(tensor): tensor for child in module.modules() for tensor in _own(child) if tensor.is_floating_point()}
    return list(weights.values())


def _majority(tensors: Sequence[Tensor]) -> torch.dtype:
    counted: Counter[torch.dtype] = Counter()
    for tensor in tensors:
        counted[tensor.dtype] += tensor.numel()
    return counted.most_common(1)[0][0]


def _require_floating(part: nn.Module, held: Sequence[Tensor], what: str) -> None:
    for module in part.modules():
        others = [p for p in module._parameters.values() if p is not None and not _plain(p)]
        packed = type(module).__module__.startswith(("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized"))
        if others or packed:
            kind = str(others[0].dtype).removeprefix("torch.") if others else "integers"
            raise UserError(f"{what} has quantised weights ({type(module).__name__}, {kind}), whose precision is fixed")
    if not held:
        raise UserError(f"{what} has no floating-point weights, so there is no precision to change")


def _plain(tensor: Tensor) -> bool:
    # A quantised tensor may say that it is float32: tensors of a class of their own are not cast.
    dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    return tensor.dtype in dtypes and type(tensor) in (Tensor, nn.Parameter) and type(tensor.data) is Tensor


def _make(spec: Spec) -> Precision:
    return Precision(str(spec["precision"]), str(spec.get("precision.part", "")))


def _candidates(subject: Subject) -> list[Spec]:
    """Return the specs of formats that the device has arithmetic for, where the weights are not in them already.

    For each narrower format: the part that processes images alone, then the whole. Where a CPU is slower in bfloat16,
    weights in 16 bits are offered float32: each of the costly parts alone, then the whole.
    """
    modules = dict(subject.module.named_modules())
    seeing = [path for path in _seeing(subject).values() if path in modules]
    specs: list[Spec] = []
    for name in _fast(subject.device):
        specs += _offer_specs(name, [*seeing, ""], modules, lambda held, wanted: held.itemsize > wanted.itemsize)
    wide = _offer_specs("fp32", [*dominant(subject), ""], modules, lambda held, wanted: held.itemsize < wanted.itemsize)
    if wide and subject.device.type == "cpu" and not faster_in_bfloat16():
        specs += wide
    return specs


def _offer_specs(
    name: str,
    places: Sequence[str],
    modules: Mapping[str, nn.Module],
    differs: Callable[[torch.dtype, torch.dtype], bool],
) -> list[Spec]:
    specs: list[Spec] = []
    for path in places:
        held = [tensor for tensor in _weights(modules[path]) if _plain(tensor)]
        other = sum(tensor.numel() for tensor in held if differs(tensor.dtype, DTYPES[name]))
        if held and other >= _WORTH * sum(tensor.numel() for tensor in held):
            specs.append({"precision": name, "precision.part": path} if path else {"precision": name})
    return specs


def _fast(device: torch.device) -> tuple[str, ...]:
    """Return the 16-bit formats that ``device`` has arithmetic for, the one with float32's range first."""
    if device.type == "cpu":
        checks = [getattr(torch.cpu, f"_is_{what}_supported", None) for what in ("avx512_bf16", "amx_tile")]
        return ("bf16",) if any(supported() for supported in checks if supported is not None) else ()
    if device.type == "cuda":
        return ("bf16", "fp16") if computes_bf16(device, emulated=False) else ("fp16",)
    return ("fp16",)


def _parts(subject: Subject, spec: Spec) -> tuple[str, ...]:
    path = spec.get("precision.part")
    if not path:
        return ()
    return tuple(name for name, module_path in _seeing(subject).items() if module_path == path) or named_parts(
        subject, [path]
    )


def _seeing(subject: Subject) -> dict[str, str]:
    return dict(list(Parts.from_family(subject.family).seeing.items())[:1])


ENTRY = entry("precision", _make, candidates=_candidates, parts=_parts)
