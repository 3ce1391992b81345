"""Captures of a subject's regions: a region is recorded once for inputs of one kind, and replayed on others."""

from __future__ import annotations

import copy
import time
import traceback
import warnings
from collections import OrderedDict, UserDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import strobe
from strobe.core.devices.accelerators import Pool, generators_restored
from strobe.core.errors import UserError, error_line
from strobe.core.timeline import section
from strobe.core.timeline.layers import Call
from strobe.core.timeline.sections import CAPTURED as UNSEEN
from strobe.core.timeline.sections import note_unseen, recording
from strobe.core.treatments.patch import find_replacements, identity
from strobe.treatments.graphs import host_work
from strobe.treatments.graphs.host_work import Host, RegionChangedError

if TYPE_CHECKING:
    from strobe.lerobot.policies.policy_subject import PolicySubject

KEPT = 8  # captures of one region that are kept, each with a memory pool of its own

Run = Callable[[], object]


class Capture(Protocol):
    """How work on a device is recorded.

    Attributes:
        pools: where on the device its captures keep memory of their own.
    """

    pools: list[Pool]

    def require(self, device: torch.device, what: str) -> None:
        """Raise UserError if it cannot be."""

    def record(self, warm: Run, run: Run, device: torch.device) -> tuple[Run, object]:
        """Warm up, record ``run``; what replays it, and what it returned, which every replay overwrites."""
        ...


class Regions:
    """Captures of a subject's regions, each for inputs of one kind under one state of the subject."""

    def __init__(self, what: str, subject: PolicySubject, capture: Capture) -> None:
        self.what = what
        self.ran = 0
        self.captures = 0  # made so far, dropped ones too
        self.capture_s = 0.0  # seconds of them, with their warm-ups
        self._subject = subject
        self._capture = capture
        # Of each region, the last used last; None for a kind of input that came when there was no room.
        self._kept: dict[str, OrderedDict[Hashable, _Region | None]] = {}
        self._weights: list[Tensor] = []
        self._state: Hashable = None
        self._holding: list[object] = []
        self._guided = False  # whether RTC was on when the graph was applied
        self._warned = False
        self._full: set[str] = set()  # regions of which it was said that no more graphs are kept

    def look(self) -> None:
        """Take note of the subject's state: its settings, and what other treatments have put there."""
        module = self._subject.module
        self._weights = [*module.parameters(), *module.buffers()]
        self._holding, others = find_replacements(module)
        processor: Any = getattr(module, "rtc_processor", None)
        self._guided = processor is not None
        guidance = None if processor is None else (str(processor.rtc_config), "denoise_step" in vars(processor))
        self._state = (others, _settings(module), guidance)

    def run(self, label: str, call: Callable[[Any], object], given: object, *settings: Hashable) -> object:
        """Return ``call(given)``, from a graph. Raises UserError if it cannot be captured.

        Of each region `KEPT` graphs are there at a time. A kind of input beyond them runs without a graph. It takes the
        place of the least recently used one where it comes twice before that is used again: else more prompts than
        graphs, in turn, would make a capture in every call.
        """
        if torch.is_grad_enabled() or torch.compiler.is_compiling():  # training; the whole sampling is compiled
            return call(given)
        self.ran += 1
        parts = Structure(given, f"graph={self.what}: the {label}")
        device = self._subject.device
        if any(tensor.device.type != device.type for tensor in parts.tensors):
            raise UserError(f"graph={self.what}: the {label} is given a tensor that is not on {device}")
        addresses = tuple([weight.data_ptr() for weight in self._weights])
        cast = torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type)
        key = (parts.key, settings, self._state, addresses, cast)
        captures = self._kept.setdefault(label, OrderedDict())
        region = captures.get(key)
        if region is None:
            if not _has_room(captures, key):
                self._say_full(label)
                return call(given)
            with torch.inference_mode(False), torch.no_grad():  # calls in and out of that mode replay it
                region = captures[key] = self._build(label, call, parts)
        captures.move_to_end(key)
        with section(label):
            return region.replay(parts.tensors)

    def step_aside(self, why: str) -> bool:
        """Let this call run without a graph and warn the first time. Raises UserError if RTC was on before."""
        if self._guided:
            raise UserError(why)
        self.ran += 1
        if not self._warned:
            self._warned = True
            warnings.warn(f"graph={self.what} is not used in calls with RTC: {why}", stacklevel=2)
        return True

    def _say_full(self, label: str) -> None:
        if label not in self._full:
            self._full.add(label)
            warnings.warn(
                f"graph={self.what}: {KEPT} graphs of the {label} are in memory, the maximum; inputs of another shape "
                "run without a graph until they are frequent",
                stacklevel=2,
            )

    def wrap_sampling(self, call: Call) -> Call:
        """Return ``call``, the whole sampling; raises UserError if no region was met in it."""

        def sampling(*args: object, **kwargs: object) -> object:
            before = self.ran
            made = call(*args, **kwargs)
            if self.ran == before and not torch.is_grad_enabled():
                raise UserError(
                    f"graph={self.what}: another treatment already changes this part: remove one of the two"
                )
            return made

        return sampling

    def _build(self, label: str, call: Callable[[object], object], parts: Structure) -> _Region:
        device = self._subject.device
        inputs = [tensor.detach().clone() for tensor in parts.tensors]
        host, began = Host(device), time.perf_counter()

        def warm() -> object:
            with host.warming():
                return call(parts.rebuilt(inputs))

        def run() -> object:
            with host.capturing():
                return call(parts.rebuilt(inputs))

        try:
            with recording(_unseen), generators_restored(device), _casts_inside():
                replay, made = self._capture.record(warm, run, device)
        except (RuntimeError, RegionChangedError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            text, where = error_line(error), _failure_place(error, host.failed)
            raise UserError(f"graph={self.what}: the {label} cannot be captured: {where}{text[:200]}") from error
        self.captures, self.capture_s = self.captures + 1, self.capture_s + time.perf_counter() - began
        outputs = Structure(made, f"graph={self.what}: what the {label} returns")
        return _Region(replay, host, inputs, outputs, [*self._holding, call])


@dataclass
class _Region:
    """A capture, with the places that it reads from and writes to."""

    graph: Run
    host: Host
    inputs: list[Tensor]
    outputs: Structure
    holding: list[object]  # the key is made of their addresses

    def replay(self, tensors: Sequence[Tensor]) -> object:
        """Run on ``tensors``; what comes back is the caller's own."""
        if tensors:
            torch._foreach_copy_(self.inputs, list(tensors))
        self.host.draw()
        self.graph()
        return self.outputs.rebuilt([tensor.clone() for tensor in self.outputs.tensors])


def _has_room(captures: OrderedDict[Hashable, _Region | None], key: Hashable) -> bool:
    captured = [each for each, region in captures.items() if region is not None]
    if len(captured) < KEPT:
        return True
    places = list(captures)
    if key in captures and places.index(key) > places.index(captured[0]):
        del captures[captured[0]]
        return True
    captures[key] = None
    captures.move_to_end(key)
    seen = [each for each, region in captures.items() if region is None]
    if len(seen) > KEPT:
        del captures[seen[0]]
    return False


def _failure_place(error: BaseException, operator: str) -> str:
    """Return the operator that could not be captured and the policy's line that called it, if that is known.

    What CUDA says at the end of a capture has no line.
    """
    line = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.name == "__torch_function__" and frame.filename == host_work.__file__:
            break
        if not frame.filename.startswith(_OURS):
            line = f"{'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno} ({frame.name})"
    return f"{operator} in {line}: " if operator and line else ""


_OURS = (f"{Path(torch.__file__).parent}/", f"{Path(strobe.__file__).parent}/")  # no code of a policy


def _settings(module: nn.Module) -> Hashable:
    owners = [getattr(module, "config", None), module, *module.children()]
    return tuple(
        (where, name, value if not is_dataclass(value) else str(value))
        for where, owner in enumerate(owners)
        if owner is not None
        for name, value in vars(owner).items()
        if isinstance(value, bool | int | float | str | Enum) or is_dataclass(value)
    )


@contextmanager
def _casts_inside() -> Iterator[None]:
    """Let autocast cast each weight where it is read.

    It keeps casts until its block ends, those of a warm-up too: a graph would read memory that is freed by then.
    """
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def _unseen(name: str) -> Any:
    note_unseen(name, UNSEEN)
    return nullcontext()


# Structures of tensors taken apart and put together again: a graph has fixed places for tensors, not for objects.


class Structure:
    """A structure of tensors (lists, dictionaries, transformers' outputs and KV caches) taken apart.

    Raises UserError for an object that may hold more than is seen here.
    """

    def __init__(self, value: object, what: str) -> None:
        leaves, self._spec = tree_flatten(value, is_leaf=is_cache)
        if any(isinstance(leaf, UserDict) for leaf in leaves):
            leaves, self._spec = tree_flatten(_open_dicts(value), is_leaf=is_cache)
        # A cache may be a living one, which its owner empties: what is kept is its form.
        self._leaves = [copy.copy(leaf) if is_cache(leaf) else leaf for leaf in leaves]
        self.tensors: list[Tensor] = []
        kinds: list[Hashable] = [str(self._spec)]
        for leaf in self._leaves:
            held = leaf_tensors(leaf)
            self.tensors += held
            if held or is_cache(leaf):
                kinds.append((type(leaf), *((tensor.shape, tensor.dtype) for tensor in held)))
            else:
                kinds.append(_constant(leaf, what))
        self.key: Hashable = tuple(kinds)

    def rebuilt(self, tensors: Sequence[Tensor]) -> object:
        """Return the structure with other tensors, of the same kinds; caches are new ones."""
        remaining = iter(tensors)
        return _close_dicts(tree_unflatten([_fill_leaf(leaf, remaining) for leaf in self._leaves], self._spec))


class _Opened(NamedTuple):
    """What a mapping of transformers (`BatchFeature`) holds: torch does not look into one."""

    kind: type
    entries: dict[object, Any]


def _open_dicts(value: object) -> Any:
    def open_leaf(leaf: object) -> object:
        return _Opened(type(leaf), _open_dicts(dict(leaf))) if isinstance(leaf, UserDict) else leaf

    return tree_map(open_leaf, value, is_leaf=is_cache)


def _close_dicts(value: object) -> object:
    def close_leaf(leaf: object) -> object:
        return leaf.kind(_close_dicts(leaf.entries)) if isinstance(leaf, _Opened) else leaf

    return tree_map(close_leaf, value, is_leaf=lambda one: isinstance(one, _Opened) or is_cache(one))


def is_cache(value: object) -> bool:
    """Return whether ``value`` is a key-value cache of transformers: layers with keys, and no module."""
    layers = getattr(value, "layers", None)
    return (
        not isinstance(value, nn.Module)
        and isinstance(layers, list)
        and all(hasattr(layer, "keys") for layer in layers)
    )


def leaf_tensors(leaf: Any) -> list[Tensor]:
    """Return the tensors in a leaf of a structure: itself, a cache's keys and values, or none."""
    if isinstance(leaf, Tensor):
        return [leaf]
    if not is_cache(leaf):
        return []
    return [held for layer in leaf.layers for held in (layer.keys, layer.values) if isinstance(held, Tensor)]


def _fill_leaf(leaf: Any, tensors: Iterator[Tensor]) -> object:
    if isinstance(leaf, Tensor):
        return next(tensors)
    if not is_cache(leaf):
        return leaf
    cache = copy.copy(leaf)
    cache.layers = [copy.copy(layer) for layer in leaf.layers]
    for layer in cache.layers:
        for name in ("keys", "values"):
            if isinstance(getattr(layer, name), Tensor):
                setattr(layer, name, next(tensors))
    return cache


def _constant(leaf: object, what: str) -> Hashable:
    if leaf is None or isinstance(leaf, bool | int | float | str | Enum | torch.dtype | torch.device | type):
        return (type(leaf), leaf)
    if isinstance(leaf, nn.Module):
        return id(leaf)
    if isinstance(leaf, FunctionType | MethodType):
        return identity(leaf)
    raise UserError(f"{what} holds a {type(leaf).__name__}, which cannot be captured")
