"""Build a policy at full size with random weights, fast and without a second copy in memory.

While the policy's own constructor runs, large uninitialised tensors are put on the meta device and every
operation on them is written down on a *tape* instead of being computed. When the constructor is done, each
large tensor is allocated once, in its final dtype on its device, and its tape is played.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BLOCK = 1 << 22  # elements of the random block that the weights are cut from

_aten = torch.ops.aten
_EMPTY = {_aten.empty.memory_format, _aten.empty_strided.default, _aten.new_empty.default}
_COPY = {_aten._to_copy.default, _aten.clone.default}
_OVERWRITE = {
    _aten.zero_.default,
    _aten.fill_.Scalar,
    _aten.uniform_.default,
    _aten.normal_.default,
    _aten.copy_.default,
}


class CannotBuildFast(Exception):
    """The constructor needs the values of its large tensors; it has to be run the usual way."""


@dataclass(frozen=True)
class _Step:
    """One in-place operation (or cast) on a tensor of the given geometry; ``None`` is the whole storage."""

    func: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    geometry: tuple[tuple[int, ...], tuple[int, ...], int] | None

    @property
    def uniform(self) -> bool:
        """Whether it does the same to every element, so that it can be played on a block."""
        return self.geometry is None and not any(isinstance(leaf, Tensor) for leaf in tree_leaves(self.args))

    @property
    def cast(self) -> bool:
        return self.func is _aten._to_copy.default

    def play(self, tensor: Tensor) -> Tensor:
        if self.geometry is None:
            return self.func(tensor, *self.args, **dict(self.kwargs))
        self.func(tensor.as_strided(*self.geometry), *self.args, **dict(self.kwargs))
        return tensor


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _length(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes() // tensor.element_size()


@dataclass
class _Tapes(TorchDispatchMode):
    """Puts large empty tensors on the meta device and keeps a tape for each of their storages."""

    above: int
    tapes: dict[int, list[_Step]] = field(default_factory=dict)
    held: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _EMPTY and self._is_large_weight(func, args, kwargs):
            return self._track(func(*args, **kwargs | {"device": "meta"}), [])
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if first is None or not first.is_meta or _storage(first) not in self.tapes:
            return func(*args, **kwargs)
        tape = self.tapes[_storage(first)]
        if func in _COPY and first.numel() == _length(first) and first.is_contiguous():
            # A move to a device is put off with everything else: the device is known when the tape is played.
            cast = {"dtype": kwargs["dtype"]} if kwargs.get("dtype") else {}
            steps = [_Step(_aten._to_copy.default, (), (*cast.items(),), None)] if cast else []
            return self._track(_aten._to_copy.default(first, **cast), tape + steps)
        if func._schema.is_mutable and func._schema.name.endswith("_"):
            self._write(tape, first, func, args[1:], kwargs)
            return first
        return func(*args, **kwargs)

    def _is_large_weight(self, func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        size = args[1] if func is _aten.new_empty.default else args[0]
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        device = torch.device(kwargs.get("device") or "cpu")
        return device.type != "meta" and dtype.is_floating_point and torch.Size(size).numel() >= self.above

    def _track(self, tensor: Tensor, tape: list[_Step]) -> Tensor:
        # A freed storage's address may be taken by the next one; held, an address means one storage only.
        self.held.append(tensor)
        self.tapes[_storage(tensor)] = tape
        return tensor

    def _write(self, tape: list[_Step], tensor: Tensor, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor) and leaf.is_meta:
                raise CannotBuildFast(f"{func} takes its values from a tensor that has none yet")
        whole = tensor.numel() == _length(tensor)
        if whole and func in _OVERWRITE:
            tape.clear()
        geometry = None if whole else (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
        kept = tuple((k, v) for k, v in kwargs.items() if k != "generator")
        tape.append(_Step(func, tuple(args), kept, geometry))


@dataclass
class _Player:
    """Allocates each storage once and plays its tape; random fills are cut from one block per tape."""

    device: torch.device
    seed: int
    blocks: dict[tuple[tuple[_Step, ...], torch.dtype], Tensor] = field(default_factory=dict)
    done: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.offsets = random.Random(self.seed)

    def real(self, tensor: Tensor, tapes: dict[int, list[_Step]]) -> Tensor:
        """The tensor with its values, on the device; tensors that shared a storage share it still."""
        key = _storage(tensor)
        if key not in self.done:
            if key not in tapes:
                raise CannotBuildFast(f"a tensor of shape {tuple(tensor.shape)} was computed from values put off")
            # Popped, so that the tensors a checkpoint was read into are freed one by one.
            self.done[key] = self._play(_length(tensor), tensor.dtype, tapes.pop(key))
        return self.done[key].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def _play(self, length: int, dtype: torch.dtype, tape: list[_Step]) -> Tensor:
        local = next((i for i, step in enumerate(tape) if not step.uniform), len(tape))
        flat = self._tile(length, dtype, tuple(tape[:local]))
        for step in tape[local:]:
            # The tensor has its last dtype from the start: no wider copy is ever in memory.
            if not step.cast:
                step.play(flat)
        return flat

    def _tile(self, length: int, dtype: torch.dtype, steps: tuple[_Step, ...]) -> Tensor:
        block = self.blocks.get((steps, dtype))
        if block is None:
            # Drawn on the CPU, so that a seed gives the same weights on every device.
            block = torch.zeros(BLOCK)
            for step in steps:
                block = step.play(block)
            block = self.blocks[steps, dtype] = block.to(self.device, dtype)
        flat = torch.empty(length, dtype=dtype, device=self.device)
        half = BLOCK // 2
        for start in range(0, length, half):
            piece = flat[start : start + half]
            offset = self.offsets.randrange(half)
            piece.copy_(block[offset : offset + len(piece)])
        return flat


@contextlib.contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def build_fast(
    make: Callable[[], nn.Module], device: str | torch.device = "cpu", seed: int = 0, *, above: int = 1 << 18
) -> nn.Module:
    """Call ``make`` with the initialisation of its large tensors put off, then fill them in fast.

    Tensors below ``above`` elements are initialised by ``make`` itself. A larger one gets the distribution
    that its constructor asked for, but its values are slices, at random offsets, of one block of 4 Mi random
    values per distribution: weights repeat each other in pieces. They behave as random weights do in
    everything that is timed, and are no start for training. Names, shapes, dtypes, ties and ``requires_grad``
    are the constructor's own.

    The same ``seed`` gives the same weights on every device. The global random state is left as it was.
    Memory peaks at the weights plus one block per distribution.

    ``make`` may also read a checkpoint into the module: what it copies into a weight is what the weight
    holds.

    Raises CannotBuildFast where the constructor needs the values of a large tensor.
    """
    device = torch.device(device)
    with _seeded(seed, device):
        recording = _Tapes(above)
        try:
            with recording:
                module = make()
        except (NotImplementedError, RuntimeError) as error:
            if "meta" not in str(error):
                raise
            raise CannotBuildFast(str(error).splitlines()[0]) from error
        player = _Player(device, seed)
        with torch.no_grad():
            for owner in module.modules():
                for tensor in _tensors(owner):
                    if tensor.is_meta:
                        _become(tensor, player.real(tensor, recording.tapes))
    module.to(device)
    left = [name for name, tensor in module.state_dict(keep_vars=True).items() if tensor.is_meta]
    if left:
        raise CannotBuildFast(f"{len(left)} tensors were left without values, the first is {left[0]}")
    return module


def _become(tensor: Tensor, value: Tensor) -> None:
    # Swapped in place, so that whoever holds the parameter (a tied layer, a list) holds the one with values.
    if isinstance(tensor, nn.Parameter):
        value = nn.Parameter(value, requires_grad=tensor.requires_grad)
    value.__dict__.update(tensor.__dict__)
    torch.utils.swap_tensors(tensor, value)


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    """The module's own parameters, buffers and plain tensor attributes."""
    for values in (module._parameters, module._buffers, vars(module)):
        yield from (value for value in values.values() if isinstance(value, Tensor))
