"""Build a policy at full size with random weights, fast and without a second copy in memory.

While the policy's own constructor runs, large uninitialised tensors go to the meta device, and every operation on
them is recorded on a *tape* instead of being computed. After the constructor, each large tensor is allocated once, in
its final dtype on its device, and its tape is played.
"""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import psutil
import torch
from lerobot.configs import PreTrainedConfig
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from strobe.core.devices.accelerators import find_device_memory, generators_restored
from strobe.core.errors import UserError
from strobe.core.families.family import Family
from strobe.core.families.registry import find_family, list_types_having
from strobe.core.timeline.layers import Call

_FOR_WEIGHTS = 0.9  # usable share of the free memory: a machine whose memory is full stands still
_CPU = torch.device("cpu")
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


# torch's own work of `nn.init.trunc_normal_`, and the name that `trunc_normal_` calls it by; a torch may lack it.
_TRUNCATING = "_no_grad_trunc_normal_"
_truncated_normal: Any = getattr(nn.init, _TRUNCATING, None)


class FastBuildError(Exception):
    """A tensor has no values after the build: the constructor must be run the usual way."""


@dataclass(frozen=True)
class _Step:
    """One in-place operation or cast on a view of the storage; without a geometry, on every element alike."""

    func: Call
    args: tuple[object, ...]
    kwargs: tuple[tuple[str, object], ...] = ()
    geometry: tuple[tuple[int, ...], tuple[int, ...], int] | None = None

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


def _list_tensors(values: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


class _DeferredInit(TorchDispatchMode):
    """Puts large empty tensors on the meta device and keeps a tape for each of their storages.

    A tensor whose values are needed while the mode is on gets them at once.
    """

    def __init__(self, device: torch.device, seed: int, above: int) -> None:
        super().__init__()
        self.device = device
        self.above = above
        self.tapes: dict[int, list[_Step]] = {}
        self.places: dict[int, torch.device] = {}  # where the constructor put each
        self.made: dict[int, Tensor] = {}
        self.held: list[Tensor] = []
        self.blocks: dict[tuple[tuple[_Step, ...], torch.dtype, torch.device], Tensor] = {}
        self.offsets = random.Random(seed)

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _EMPTY and self._is_large(func, args, kwargs):
            return self._defer_tensor(func(*args, **kwargs | {"device": "meta"}), [], kwargs.get("device") or _CPU)
        if func is _aten.scalar_tensor.default:
            # `weight[3] = 0.0` makes its scalar where the weight is, and there the value would be lost.
            kwargs["device"] = None
        if func is _aten._to_copy.default and torch.device(kwargs.get("device") or "cpu").type == "meta":
            # A move to the device of a deferred weight: a tensor with values keeps them.
            kwargs["device"] = None
        known = [tensor for tensor in _list_tensors((args, kwargs)) if self.knows(tensor)]
        if not known or func.is_view:
            return func(*args, **kwargs)
        first = args[0]
        if func in _COPY and first.numel() == _length(first):
            return self._copy(first, kwargs.get("dtype"), kwargs.get("device"))
        in_place = func._schema.name.endswith("_")
        if in_place and len(known) == 1 and known[0] is first and self._write(first, func, args[1:], kwargs):
            return first
        # Weights made here outlive an inference mode in which the constructor may try them out.
        with torch.inference_mode(False):
            args, kwargs = tree_map(self._materialise, (args, kwargs))
        result = func(*args, **kwargs)
        return first if in_place else result

    def knows(self, tensor: Tensor) -> bool:
        return tensor.is_meta and (_storage(tensor) in self.tapes or _storage(tensor) in self.made)

    def _is_large(self, func: object, args: Any, kwargs: dict[str, Any]) -> bool:
        size = args[1] if func is _aten.new_empty.default else args[0]
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        device = torch.device(kwargs.get("device") or "cpu")
        return device.type != "meta" and dtype.is_floating_point and torch.Size(size).numel() >= self.above

    def _defer_tensor(self, tensor: Tensor, tape: list[_Step], place: torch.device | str) -> Tensor:
        # A freed storage's address may be reused; while the tensor is held, an address means one storage only.
        self.held.append(tensor)
        self.tapes[_storage(tensor)] = tape
        self.places[_storage(tensor)] = torch.device(place)
        return tensor

    def _copy(self, tensor: Tensor, dtype: torch.dtype | None, device: torch.device | None) -> Tensor:
        # A move to a device is deferred too: the final device is known at the end.
        place = device or self.places[_storage(tensor)]
        copied = self._defer_tensor(torch.empty_like(tensor, dtype=dtype), [], place)
        if _storage(tensor) in self.made:
            self.made[_storage(copied)] = self.made[_storage(tensor)].to(copied.dtype, copy=True)
        else:
            cast = _Step(_aten._to_copy.default, (), (("dtype", copied.dtype),))
            self.tapes[_storage(copied)] = [*self.tapes[_storage(tensor)], cast]
        return copied

    def _write(self, tensor: Tensor, func: Call, args: Any, kwargs: dict[str, object]) -> bool:
        if _storage(tensor) in self.made:
            return False
        tape, whole = self.tapes[_storage(tensor)], tensor.numel() == _length(tensor)
        sources = _list_tensors((args, kwargs))
        if sources and not (whole and func is _aten.copy_.default):
            return False
        if whole and func in _OVERWRITE:
            tape.clear()
        alike = whole and not sources
        geometry = None if alike else (tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))
        tape.append(_Step(func, args, tuple((k, v) for k, v in kwargs.items() if k != "generator"), geometry))
        return True

    def _materialise(self, leaf: Any) -> object:
        known = isinstance(leaf, Tensor) and self.knows(leaf)
        return self._value(leaf, self.places[_storage(leaf)]) if known else leaf

    def truncated_normal(
        self, tensor: Tensor, mean: float, std: float, a: float, b: float, **options: object
    ) -> Tensor:
        """Take the place of torch's: from torch 2.15 on it draws until all values lie within the limits."""
        if self.knows(tensor) and _storage(tensor) in self.tapes and tensor.numel() == _length(tensor):
            self.tapes[_storage(tensor)][:] = [_Step(_truncated_normal, (mean, std, a, b))]
            return tensor
        return _truncated_normal(tensor, mean, std, a, b, **options)

    def value(self, tensor: Tensor) -> Tensor:
        """Return the tensor with its values, on the device; tensors that shared a storage still share one."""
        return self._value(tensor, self.device)

    def _value(self, tensor: Tensor, device: torch.device) -> Tensor:
        key = _storage(tensor)
        if key in self.made:
            self.made[key] = self.made[key].to(device)
        else:
            # Popped, so that the tensors a checkpoint was read into are freed one by one.
            self.made[key] = self._play(_length(tensor), tensor.dtype, self.tapes.pop(key), device)
        return self.made[key].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    @torch.no_grad()
    def _play(self, length: int, dtype: torch.dtype, tape: list[_Step], device: torch.device) -> Tensor:
        local = next((i for i, step in enumerate(tape) if step.geometry), len(tape))
        flat = self._tile(length, dtype, tuple(tape[:local]), device)
        for step in tape[local:]:
            # The tensor has its last dtype from the start: no wider copy is ever in memory.
            if not step.cast:
                step.play(flat)
        return flat

    def _tile(self, length: int, dtype: torch.dtype, steps: tuple[_Step, ...], device: torch.device) -> Tensor:
        block = self.blocks.get((steps, dtype, device))
        if block is None:
            # Drawn on the CPU, so that a seed gives the same weights on every device.
            block = torch.zeros(BLOCK)
            for step in steps:
                block = step.play(block)
            block = self.blocks[steps, dtype, device] = block.to(device, dtype)
        flat = torch.empty(length, dtype=dtype, device=device)
        half = BLOCK // 2
        for start in range(0, length, half):
            piece = flat[start : start + half]
            offset = self.offsets.randrange(half)
            piece.copy_(block[offset : offset + len(piece)])
        return flat


class _NoMeta(TorchFunctionMode):
    """No tensor is a meta tensor to torch's initialisers: from torch 2.15 on they would leave it unchanged."""

    def __torch_function__(self, func: Call, types: object, args: Any = (), kwargs: Any = None) -> Any:
        if func == _is_meta and sys._getframe(1).f_globals.get("__name__") == nn.init.__name__:
            return False
        return func(*args, **(kwargs or {}))


_is_meta = Tensor.is_meta.__get__  # pyright: ignore[reportAttributeAccessIssue]
_initialising = _NoMeta if "is_meta" in nn.init.orthogonal_.__code__.co_names else contextlib.nullcontext


def build_fast(
    make: Callable[[], nn.Module],
    device: str | torch.device = "cpu",
    seed: int = 0,
    *,
    above: int = 1 << 18,
    outside: Callable[[Any], Sequence[nn.Module]] = lambda _: (),
    known: bool = False,
) -> nn.Module:
    """Call ``make`` with the initialisation of its large tensors deferred, then fill them fast.

    Tensors below ``above`` elements are initialised by ``make`` itself. A larger one gets the distribution
    of its constructor, but its values are slices, at random offsets, of one block of 4 Mi random values per
    distribution: weights repeat each other in pieces. They behave as random weights do in everything that is timed, and
    are no start for training. Names, shapes, dtypes, ties and ``requires_grad`` are the constructor's own.

    The same ``seed`` gives the same weights on every device. The global random state does not change.
    Memory peaks at the weights plus one block per distribution.

    ``make`` may also read a checkpoint into the module: a weight then holds the values that were copied into it.

    Args:
        outside: the module → others that ``make`` made and that it holds but does not register.
        known: nothing else holds tensors that ``make`` makes; else they are searched for, which takes half a second.

    Raises:
        FastBuildError: a tensor has no values after the build.
        UserError: there is too little memory for the weights.
    """
    device = torch.device(device)
    with generators_restored(device):
        torch.manual_seed(seed)
        deferred = _DeferredInit(device, seed, above)
        truncating = mock.patch.object(nn.init, _TRUNCATING, deferred.truncated_normal, create=True)
        with deferred, _initialising(), truncating, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*which is a no-op")
            module = make()
        owners = [owner for root in (module, *outside(module)) for owner in root.modules()]
        _require_memory(type(module).__name__, owners, deferred, device)
        for owner in owners:
            for tensor in _tensors(owner):
                if deferred.knows(tensor):
                    _swap(tensor, deferred.value(tensor))
    empty = sum(tensor.is_meta for owner in owners for tensor in _tensors(owner))
    if not empty and not known:
        empty = _held_elsewhere(deferred)
    if empty:
        raise FastBuildError(f"{empty} tensors of {type(module).__name__} got no values")
    return module.to(device)


def _require_memory(name: str, owners: Sequence[nn.Module], deferred: _DeferredInit, device: torch.device) -> None:
    put_off = {
        _storage(tensor): _length(tensor) * tensor.element_size()
        for owner in owners
        for tensor in _tensors(owner)
        if tensor.is_meta and _storage(tensor) in deferred.tapes
    }
    memory = None if device.type == "mps" else find_device_memory(device)  # MPS takes the machine's
    free = psutil.virtual_memory().available if memory is None else memory.free()
    if free is not None and (needed := sum(put_off.values())) > _FOR_WEIGHTS * free:
        where = "this machine" if memory is None else str(device)
        raise UserError(
            f"{name}: its weights take {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free "
            f"on {where}; --policy.size=tiny is the same architecture"
        )


def _held_elsewhere(deferred: _DeferredInit) -> int:
    if not deferred.tapes:
        return 0
    gc.collect()  # an unreachable cycle holds nothing
    tapes = {id(tensor) for tensor in deferred.held}
    return sum(
        Tensor in type(item).__mro__ and id(item) not in tapes and item.is_meta and _storage(item) in deferred.tapes
        for item in gc.get_objects()
    )


def _swap(tensor: Tensor, value: Tensor) -> None:
    # Swapped in place, so that other holders of the parameter (a tied layer, a list) hold the one with values.
    if isinstance(tensor, nn.Parameter):
        value = nn.Parameter(value, requires_grad=tensor.requires_grad)
    vars(value).update(vars(tensor))  # pyright: ignore[reportAttributeAccessIssue]
    torch.utils.swap_tensors(tensor, value)


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    for values in (module._parameters, module._buffers, vars(module)):
        yield from (value for value in values.values() if isinstance(value, Tensor))


# The tiny version of a policy's config.


def shrink(config: PreTrainedConfig) -> None:
    """Change ``config`` in place to its tiny version. Chunk and observation lengths stay as they are.

    Raises UserError for a policy type that has no tiny version.
    """
    family = _shrinking(config)
    if family is None or family.tiny is None:
        known = list_types_having(lambda family: family.tiny)
        raise UserError(
            f"policy.size=tiny is not available for '{config.type}', only for {', '.join(known)}; "
            "remove it to build the full size"
        )
    for name, value in family.tiny.fields.items():
        setattr(config, name, value)
    for name, value in family.tiny.defaults.items():
        if getattr(config, name, None) is None:
            setattr(config, name, value)


def _shrinking(config: PreTrainedConfig) -> Family | None:
    family = find_family(config.type)
    if family is not None:
        return family
    known = {kind: name for name, kind in PreTrainedConfig.get_known_choices().items()}
    return next(
        (
            family_of_base
            for base in type(config).__mro__
            if (family_of_base := find_family(known.get(base, ""))) is not None
        ),
        None,
    )
