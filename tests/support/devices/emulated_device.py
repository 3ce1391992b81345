"""``cuda:0`` played on the CPU, for what Strobe does on a GPU where there is none.

Memory is tagged as the device's: `Tensor.device` and `is_cuda` say so, factories, ``.to()`` and their like obey, and
what an operator makes of the device's memory is there too. All arithmetic is the CPU's. What CUDA would refuse is
refused: operators on tensors of two devices, a device's tensor as a numpy array. Copies between host and device, and
waits for the device, are noted with the line that made them; in a capture they raise.

Device and host share one random generator, so that a run on this device draws what a run on the CPU draws. There are no
streams, no allocator (but see `Replayed`: freed memory is seen), no times, no kernels of CUDA's own.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from strobe.lerobot.policies.policy_subject import PolicySubject
from support.devices.replayed_graph import Replayed

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
TO_DEVICE, TO_HOST, WAIT = "copy to the device", "copy to the host", "wait for the device"

# Operators whose result, or its shape, the host must know before it can go on.
_WAITING = {
    "aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::is_nonzero",
    "aten::_unique2", "aten::unique_consecutive", "aten::unique_dim", "aten::bincount",
}  # fmt: skip
# Operators that take no number of the host's in the place of a tensor; pointwise ones do.
_NO_NUMBERS = {
    "aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::linear", "aten::convolution", "aten::cat",
    "aten::stack", "aten::embedding", "aten::index_select", "aten::gather", "aten::scatter", "aten::native_layer_norm",
}  # fmt: skip
_INDEXED = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
_ATTENTION = torch.nn.functional.scaled_dot_product_attention
_MADE_OF_DATA = {torch.tensor, torch.as_tensor, torch.asarray}


class NotPermittedError(RuntimeError):
    """An operation that CUDA refuses while a stream is capturing."""


@dataclass(frozen=True)
class Note:
    """A copy between host and device, or a wait, with the line that made it."""

    kind: str
    what: str
    where: str


class EmulatedDevice:
    """The device, for as long as its context is open; one at a time, and on one thread."""

    def __init__(self) -> None:
        self.notes: Counter[Note] = Counter()
        self.recording = False  # whether a graph is being captured
        self.placing: str | None = None  # where a factory that runs was told to put its tensor
        self.given: Any = ()  # what the function of torch that runs was given
        self.attending = False  # whether that is fused attention, which makes its numbers where its mask is
        self._functions, self._operators = _Functions(self), _Operators(self)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for owner, name, value in self._instead():
                stack.enter_context(mock.patch.object(owner, name, value))
            stack.enter_context(self._functions)
            stack.enter_context(self._operators)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """The stream is capturing."""
        self.recording = True
        try:
            yield
        finally:
            self.recording = False

    @contextmanager
    def holding(self, subject: PolicySubject) -> Iterator[PolicySubject]:
        """``subject`` with its weights on the device, and told so."""
        config: Any = subject.policy.config
        tensors = [*subject.module.parameters(), *subject.module.buffers()]
        steps = [step for step in subject.loaded.preprocessor.steps if hasattr(step, "tensor_device")]
        before = config.device, [(step, dict(vars(step))) for step in steps]
        for tensor in tensors:
            put(tensor)
        config.device = "cuda"
        for step in steps:
            step.device, step.tensor_device, step.non_blocking = "cuda", CUDA, True
        try:
            yield subject
        finally:
            for tensor in tensors:
                take(tensor)
            config.device = before[0]
            for step, values in before[1]:
                vars(step).update(values)

    def note(self, kind: str, what: str) -> None:
        """Note a copy or a wait. Raises NotPermittedError in a capture."""
        note = Note(kind, what, _line())
        self.notes[note] += 1
        if self.recording:
            raise NotPermittedError(f"operation not permitted when stream is capturing: {kind}, {what}, {note.where}")

    def _instead(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield what takes the place of torch's own: owner, name, value."""
        yield Tensor, "device", property(tensor_device)
        yield Tensor, "is_cuda", property(lambda tensor: tensor_device(tensor).type == "cuda")
        yield Tensor, "is_cpu", property(lambda tensor: tensor_device(tensor).type == "cpu")
        yield Tensor, "get_device", lambda tensor: 0 if is_on_device(tensor) else -1
        cuda = torch.cuda
        yield cuda, "is_available", lambda: True
        yield cuda, "device_count", lambda: 1
        yield cuda, "current_device", lambda: 0
        yield cuda, "device", lambda device: nullcontext()
        yield cuda, "is_bf16_supported", lambda *_, **__: True
        yield cuda, "get_device_capability", lambda device=None: (9, 0)
        yield cuda, "synchronize", lambda device=None: self.note(WAIT, "synchronize")
        yield cuda, "is_current_stream_capturing", lambda: self.recording
        # What an optimizer of torch 2.15 reads.
        yield (
            torch.accelerator,
            "current_stream",
            lambda device=None: SimpleNamespace(is_capturing=lambda: self.recording),
        )
        yield cuda, "get_rng_state", lambda device="cuda": torch.get_rng_state()
        yield cuda, "set_rng_state", lambda state, device="cuda": torch.set_rng_state(state)
        yield cuda, "mem_get_info", lambda device=None: (2**36, 2**36)
        yield torch.autograd, "_engine_run_backward", self._backward(torch.autograd._engine_run_backward)
        yield from _autocasts()

    def _backward(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The engine, with our functions on: ``Tensor.backward`` takes them off, and checkpoints run Python again."""

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            before, self.given = self.given, tensors
            try:
                with self._functions:
                    return run(tensors, *args, **kwargs)
            finally:
                self.given = before

        return backward


class Graph(Replayed):
    """A graph of an emulated device: what the device cannot do in a capture raises."""

    def __init__(self, device: EmulatedDevice, warmups: int = 2) -> None:
        super().__init__(warmups)
        self._device = device

    def record(self, warm: Callable[[], Any], run: Callable[[], Any], device: torch.device) -> tuple[Any, Any]:
        def run_captured() -> Any:
            with self._device.capturing():
                return run()

        return super().record(warm, run_captured, device)


def is_on_device(tensor: Tensor) -> bool:
    """Whether the memory of ``tensor`` is tagged as the device's."""
    return hasattr(_storage(tensor), "emulated")


def put(tensor: Tensor) -> None:
    """Tag the memory of ``tensor`` as the device's."""
    _storage(tensor).emulated = True


def take(tensor: Tensor) -> None:
    """Take the tag off again."""
    if is_on_device(tensor):
        del _storage(tensor).emulated


def tensor_device(tensor: Tensor) -> torch.device:
    """Return ``cuda:0`` for what is tagged, else the device that torch knows."""
    if is_on_device(tensor):
        return CUDA
    with torch._C.DisableTorchFunction():
        return torch._C.TensorBase.device.__get__(tensor)


class _Functions(TorchFunctionMode):
    """Functions that name a device."""

    def __init__(self, device: EmulatedDevice) -> None:
        super().__init__()
        self._device = device
        self._own: dict[Any, Callable[[Any, dict[str, Any]], Any]] = {
            Tensor.to: self._to,
            Tensor.type_as: self._to,
            Tensor.cpu: lambda args, kwargs: self._move_tensor(args[0], "cpu", None),
            Tensor.cuda: lambda args, kwargs: self._move_tensor(args[0], "cuda", None),
            Tensor.tolist: self._convert_to_list,
            Tensor.numpy: self._guard_array(Tensor.numpy),
            Tensor.__array__: self._guard_array(Tensor.__array__),
            Tensor.__deepcopy__: self._deep_copy,
        }

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        before = self._device.given, self._device.attending
        self._device.given, self._device.attending = (args, kwargs), func is _ATTENTION
        try:
            if func in self._own:
                return self._own[func](args, kwargs)
            if (target := _type(kwargs.get("device"))) in ("cuda", "cpu"):
                return self._create_on_target(func, args, kwargs, target)
            return func(*args, **kwargs)
        finally:
            self._device.given, self._device.attending = before

    def _create_on_target(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], target: str) -> Any:
        if func in _MADE_OF_DATA:
            data, *more = args or (kwargs["data" if "data" in kwargs else "obj"],)
            others = {key: value for key, value in kwargs.items() if key not in ("device", "data", "obj")}
            if isinstance(data, Tensor) and func is not torch.tensor:
                return self._move_tensor(func(data, *more, **others), target, None)
            if target == "cuda":
                self._device.note(TO_DEVICE, func.__name__)
        with self._set_placement(target):
            made = func(*args, **{**kwargs, "device": CPU})
        for tensor in _tensors(made):
            (put if target == "cuda" else take)(tensor)
        return made

    def _to(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        source, *asked = args
        options = dict(kwargs)
        copy = options.pop("copy", False)
        other = options.pop("other", asked[0] if asked and isinstance(asked[0], Tensor) else None)
        if other is not None:
            return self._move_tensor(source, tensor_device(other).type, other.dtype, copy)
        if len(asked) > 1 and isinstance(asked[-1], bool) and isinstance(asked[-2], bool):
            copy = asked.pop()
        parse: Any = torch._C._nn._parse_to  # pyright: ignore[reportAttributeAccessIssue]
        device, dtype, _, layout = parse(*asked, **options)
        return self._move_tensor(source, _type(device), dtype, copy, layout)

    def _move_tensor(
        self, source: Tensor, target: str | None, dtype: torch.dtype | None, copy: bool = False, layout: Any = None
    ) -> Tensor:
        """``source`` on ``target`` (None: where it is) in ``dtype`` (None: its own)."""
        here = tensor_device(source).type
        options = {} if layout is None else {"memory_format": layout}
        if target in (None, here):
            return source.to(dtype=dtype or source.dtype, copy=copy, **options)
        self._device.note(TO_HOST if target == "cpu" else TO_DEVICE, "to")
        with self._set_placement(target):
            return source.to(dtype=dtype or source.dtype, copy=True, **options)

    def _convert_to_list(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_on_device(args[0]):
            self._device.note(WAIT, "tolist")
        return args[0].tolist()

    def _guard_array(self, func: Any) -> Callable[[Any, dict[str, Any]], Any]:
        def array(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if is_on_device(args[0]):
                raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")
            return func(*args, **kwargs)

        return array

    def _deep_copy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        copied = Tensor.__deepcopy__(*args, **kwargs)
        if is_on_device(args[0]):
            put(copied)
        return copied

    @contextmanager
    def _set_placement(self, target: str | None) -> Iterator[None]:
        before, self._device.placing = self._device.placing, target
        try:
            yield
        finally:
            self._device.placing = before


class _Operators(TorchDispatchMode):
    """Operators: those on tensors of two devices are refused, and what they make is where their tensors are."""

    def __init__(self, device: EmulatedDevice) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = _tensors((args, kwargs))
        here = [is_on_device(one) for one in given]
        if self._device.placing is not None:
            there = self._device.placing == "cuda"
        elif given:
            there = any(here)
            if there:
                self._check(func, args, kwargs, given, here)
        else:  # a factory: of the host's, or one that torch calls on the way, as backward does; numbers stay the host's
            number = func._schema.name == "aten::scalar_tensor" and not self._device.attending
            there = not number and any(map(is_on_device, _tensors(self._device.given)))
        made = func(*args, **kwargs)
        if there:
            places = {id(_storage(one)) for one in given}
            for one in _tensors(made):
                if id(_storage(one)) not in places:
                    put(one)
        return made

    def _check(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: list[Tensor], here: list[bool]
    ) -> None:
        name, note = func._schema.name, self._device.note
        if name in _WAITING or (name == "aten::repeat_interleave" and kwargs.get("output_size") is None):
            note(WAIT, name)
        elif name == "aten::copy_":
            if here[0] != here[1]:
                note(TO_DEVICE if here[0] else TO_HOST, name)
        elif name in _INDEXED:
            self._check_indices(name, [one for one in args[1] if one is not None], args[0], args[2:])
        elif name == "aten::where" and not all(here) and here[0]:
            note(TO_DEVICE, "a number in torch.where")
        elif not all(here):
            strangers = [
                one
                for one, is_here in zip(given, here, strict=True)
                if not is_here and (one.dim() or name in _NO_NUMBERS)
            ]
            if strangers:
                shapes = ", ".join(str(tuple(one.shape)) for one in strangers)
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
                    f"({name}: {shapes} on the cpu, {_line()})"
                )

    def _check_indices(self, name: str, indices: list[Tensor], source: Tensor, values: Sequence[Any]) -> None:
        if not is_on_device(source):
            raise RuntimeError(
                f"indices should be either on cpu or on the same device as the indexed tensor ({_line()})"
            )
        if any(one.dtype in (torch.bool, torch.uint8) for one in indices):
            self._device.note(WAIT, f"{name} by a mask")
        if not all(is_on_device(one) for one in indices):
            self._device.note(TO_DEVICE, f"indices of {name}")
        if values and isinstance(values[0], Tensor) and not is_on_device(values[0]) and values[0].dim():
            raise RuntimeError(f"Expected all tensors to be on the same device: values of {name} ({_line()})")


def _autocasts() -> Iterator[tuple[Any, str, Any]]:
    """Yield autocast for the device: the CPU's, on the same tensors, with CUDA's default dtype."""
    init, enabled, dtype = torch.autocast.__init__, torch.is_autocast_enabled, torch.get_autocast_dtype

    def begin(self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or now("cuda")
        init(self, device_type, dtype, *args, **kwargs)

    def now(device_type: str) -> torch.dtype:
        return dtype("cpu" if device_type == "cuda" and enabled("cpu") else device_type)

    yield torch.autocast, "__init__", begin
    yield torch, "is_autocast_enabled", lambda kind="cuda": enabled("cpu" if kind == "cuda" else kind)
    yield torch, "get_autocast_dtype", now


def _storage(tensor: Tensor) -> Any:
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage()


def _tensors(tree: Any) -> list[Tensor]:
    return [one for one in tree_leaves(tree) if isinstance(one, Tensor)]


def _type(device: Any) -> str | None:
    if device is None:
        return None
    return "cuda" if isinstance(device, int) else torch.device(device).type


def _line() -> str:
    """The line, outside of torch and of this file, that runs now."""
    frame = sys._getframe(1)
    while frame.f_back is not None and any(
        part in frame.f_code.co_filename for part in ("/torch/", __file__, "graphs/replayed.py", "graphs/host_work.py")
    ):
        frame = frame.f_back
    folder, name = frame.f_code.co_filename.split("/")[-2:]
    return f"{folder}/{name}:{frame.f_lineno} ({frame.f_code.co_name})"
