"""Work of the host in a region that a CUDA graph captures: numbers it sends to the device, noise it draws.

LeRobot makes tensors of Python's numbers on the device as it goes (``torch.tensor(time, device=…)`` in every denoising
step, masks from lists, ``zeros(…).to(device)``, ``torch.where`` with numbers). Each is a copy from the host, which a
capture forbids, and each gives the same tensor in every run over the same shapes and settings. So they are kept
while the region warms up, and reused when it is captured. New noise is drawn before each replay, by the same
calls in the same order, so that a seed means the same as without a graph.

Both are noticed by a mode of torch's function overrides, which is in force only on this thread and only while the
region is prepared; nothing is replaced in any module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode
from typing_extensions import Self

from strobe.core.timeline.layers import Call

K = TypeVar("K")
V = TypeVar("V")

_SENDING = {torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.to, torch.Tensor.cuda}
_DRAWING = {torch.randn, torch.rand, torch.randint, torch.normal}
_DRAWING_LIKE = {torch.randn_like, torch.rand_like}


class RegionChangedError(RuntimeError):
    """A region did other things when it was captured than when it warmed up."""


@dataclass
class _Draw:
    """A call that draws noise, and where the region finds it."""

    call: Callable[[], Tensor]
    buffer: Tensor


@dataclass
class _Remembered:
    sent: list[tuple[Call, Tensor | None]] = field(default_factory=list)  # function → what it gave; None for no copy
    draws: list[_Draw] = field(default_factory=list)


class Stepping(TorchFunctionMode):
    """A mode of a treatment: it steps aside for what is compiled (`aside`)."""


class Host(Stepping):
    """Keeps tensors and draws of noise in ``warming``, and hands them out in ``capturing``."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device.type
        self._kept = _Remembered()
        self._capturing = False
        self._sent = self._drawn = 0
        self.failed = ""  # the function of torch that raised in the last run

    @contextmanager
    def warming(self) -> Iterator[None]:
        """Run as ever, and keep what is sent and drawn; what an earlier run left is dropped."""
        self._kept = _Remembered()
        with self._enter_region(capturing=False):
            yield

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Copy nothing from the host and draw nothing. Raises RegionChangedError for a run that differs."""
        with self._enter_region(capturing=True):
            yield
        if (self._sent, self._drawn) != (len(self._kept.sent), len(self._kept.draws)):
            raise RegionChangedError("it sends or draws less than before")

    def draw(self) -> None:
        """Draw new noise, as the region would have drawn it now."""
        for draw in self._kept.draws:
            draw.buffer.copy_(draw.call())

    def __torch_function__(
        self, func: Call, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, object] | None = None
    ) -> Any:
        try:
            return self._run(func, args, kwargs or {})
        except Exception:
            self.failed = getattr(func, "__name__", str(func))
            raise

    def _run(self, func: Call, args: Sequence[Any], kwargs: dict[str, object]) -> Any:
        if func is torch.where and len(args) == 3:
            return func(args[0], *_device_tensors(args[0], *args[1:]))
        if func in _SENDING:
            return self._send(func, args, kwargs)
        if func in _DRAWING_LIKE or (func in _DRAWING and not _tensors(args, kwargs)):
            return self._draw(func, args, kwargs)
        return func(*args, **kwargs)

    @contextmanager
    def _enter_region(self, *, capturing: bool) -> Iterator[None]:
        self._capturing, self._sent, self._drawn, self.failed = capturing, 0, 0, ""
        with separate_epoch(), self:
            yield

    def _send(self, func: Call, args: Sequence[object], kwargs: dict[str, object]) -> object:
        if not self._capturing:
            made = func(*args, **kwargs)
            source = args[0] if args else next(iter(kwargs.values()), None)
            from_host = not isinstance(source, Tensor) or source.device.type != self._device
            arrives = isinstance(made, Tensor) and made.device.type == self._device
            self._kept.sent.append((func, made.clone() if arrives and from_host else None))
            return made
        known, sent = self._next(self._kept.sent, self._sent)
        self._sent += 1
        if known is not func:
            raise RegionChangedError(f"it calls {func.__name__} where it called {known.__name__}")
        return func(*args, **kwargs) if sent is None else sent.clone()  # the region may write into it

    def _draw(self, func: Call, args: Sequence[object], kwargs: dict[str, object]) -> Tensor:
        if not self._capturing:
            made = func(*args, **kwargs)
            if made.device.type != self._device:
                return made
            buffer = made.clone()
            given = (buffer, *args[1:]) if func in _DRAWING_LIKE else tuple(args)
            self._kept.draws.append(_Draw(lambda: func(*given, **kwargs), buffer))
            return made
        draw = self._next(self._kept.draws, self._drawn)
        self._drawn += 1
        return draw.buffer.clone()

    @staticmethod
    def _next(remembered: list[Any], index: int) -> Any:
        if index >= len(remembered):
            raise RegionChangedError("it sends or draws more than before")
        return remembered[index]


_epoch: object | None = None  # the warm-up, the capture or the building that runs now
_building = False


@contextmanager
def separate_epoch(*, building: bool = False) -> Iterator[None]:
    """Around a call in which nothing may be found that an `EpochCache` kept before it.

    Args:
        building: whether an engine of a part is built from the call: what a treatment kept of an earlier step or
            observation would become a constant of it. `is_building` tells it to what keeps values by itself.
    """
    global _epoch, _building
    before, _epoch, _building = (_epoch, _building), object(), building
    try:
        yield
    finally:
        _epoch, _building = before


def is_building() -> bool:
    """Return whether an engine is being built."""
    return _building


def is_in_region() -> bool:
    """Return whether a region is being warmed up, captured or built: then nothing may be read from the device."""
    return _epoch is not None


class EpochCache(dict[K, V]):
    """Values that a treatment keeps from one step or call to the next, for as long as the epoch lasts.

    Each warm-up and each capture of a region is an epoch of its own, as is each call that an engine is built from; all
    that is outside of them is one. What was made in a warm-up must not be found in the capture: the work that made it
    would be missing in the graph, and a replay would read the first observation's values for ever, from memory that may
    be somebody else's by then.
    """

    _made_in: object | None = None

    def now(self) -> Self:
        """This, emptied where it was filled in another epoch."""
        if self._made_in is not _epoch:
            self.clear()
            self._made_in = _epoch
        return self

    def forget(self) -> None:
        """Drop all values."""
        self.clear()


def aside(call: Call) -> Call:
    """Hide ``call``, a compiled region, from the modes in force.

    It makes its numbers on the device by itself, and a mode in force would be traced into it.
    """

    def call_outside_region(*args: object, **kwargs: object) -> object:
        if not isinstance(_get_current_function_mode(), Stepping):
            return call(*args, **kwargs)
        with stepped_aside():
            return call(*args, **kwargs)

    return call_outside_region


@contextmanager
def stepped_aside() -> Iterator[None]:
    """Inside, the modes of treatments are not in force, as far as no other is on top of them."""
    modes: list[Stepping] = []
    while isinstance(mode := _get_current_function_mode(), Stepping):
        mode.__exit__(None, None, None)
        modes.append(mode)
    try:
        yield
    finally:
        for mode in reversed(modes):
            mode.__enter__()


def _device_tensors(condition: Tensor, *values: Any) -> list[Tensor]:
    dtype = torch.result_type(*values)
    return [
        value if isinstance(value, Tensor) else torch.full((), value, dtype=dtype, device=condition.device)
        for value in values
    ]


def _tensors(args: Sequence[object], kwargs: dict[str, object]) -> bool:
    return any(isinstance(value, Tensor) for value in (*args, *kwargs.values()))
