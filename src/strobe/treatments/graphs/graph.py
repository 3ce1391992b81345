"""CUDA graphs: the prefix pass, the denoising loop or the whole sampling recorded once and replayed as one launch.

A denoising step of a flow policy is hundreds of small kernels, and on a fast device most of its time is Python and
launches. A graph has the same kernels in the same order, reads its inputs from fixed places and writes its outputs to
fixed places; so inputs are copied in and outputs copied out (`Regions`). What the host does in between (numbers sent
to the device, noise) is in `host`.
"""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from operator import attrgetter
from types import FunctionType, MethodType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from strobe.errors import UserError, nearest
from strobe.subjects.policy_subject import PolicySubject
from strobe.subjects.subject import Subject
from strobe.timeline import section
from strobe.timeline.sections import CAPTURED as UNSEEN
from strobe.timeline.sections import note_unseen, recording
from strobe.treatments.graphs.host import Changed, Host
from strobe.treatments.parts import EXPERT, PREFIX, STEP, VISION, is_flow
from strobe.treatments.patch import Patches, identity, patched
from strobe.treatments.treatment import CAPTURED, FOR_INFERENCE, Effect, Entry, Spec, Treatment, Undo, policy_of

VALUES = ("prefix", "loop", "chunk")
LOOP = "denoising loop"  # the section around a replay of all steps

_WARMUPS = 3  # runs before a capture: libraries set themselves up, allocators grow
_KEPT = 8  # captures of one region that are kept, each with a memory pool of its own

# What the whole sampling is, by anatomy. SmolVLA's vision tower looks at values on the host, which no graph can hold.
_CHUNK = {
    "pi": ("model", "sample_actions"),
    "diffusion": ("diffusion", "generate_actions"),
    "act": ("model", "forward"),
}
_JOINT = {"pi": "model.paligemma_with_expert", "smolvla": "model.vlm_with_expert"}
_EMBEDDING = {
    "pi": ("model", "embed_prefix", "prefix embedding"),
    "smolvla": ("model.vlm_with_expert.vlm.model.vision_model.encoder", "forward", "vision encoder"),
}

Run = Callable[[], Any]


class Capture(Protocol):
    """How work on a device is recorded."""

    def require(self, subject: Subject, what: str) -> None:
        """Raises UserError where it cannot be."""
        ...

    def record(self, warm: Run, run: Run, device: torch.device) -> tuple[Run, Any]:
        """Warm up, record ``run``; what replays it, and what it returned, which every replay writes anew."""
        ...


class Cuda:
    """``torch.cuda.graph``, with a memory pool for each capture."""

    def require(self, subject: Subject, what: str) -> None:
        if subject.device.type != "cuda":
            raise UserError(f"graph={what} is a CUDA graph: {subject.info.name} is on {subject.device.type}")

    def record(self, warm: Run, run: Run, device: torch.device) -> tuple[Run, Any]:
        with torch.cuda.device(device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(_WARMUPS):
                    warm()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            # Other threads (loaders, recorders) may use the device meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                made = run()
        return graph.replay, made


@dataclass
class CudaGraph(Treatment):
    """``what``: prefix (embedding and KV cache), loop (all denoising steps), or chunk (the policy's whole sampling)."""

    what: str
    capture: Capture = field(default_factory=Cuda)
    effect: Effect = "exact"
    _regions: Regions | None = field(default=None, init=False, repr=False)
    _module: nn.Module | None = field(default=None, init=False, repr=False)
    key = "graph"
    phases = FOR_INFERENCE
    builds = "captured"

    def facts(self) -> dict[str, str | int | float | bool | None]:
        return {"captured": True, f"graph.{self.what}": True}

    def apply(self, subject: Subject) -> Undo:
        policy = policy_of(subject)
        self.capture.require(subject, self.what)
        if self._regions is None or self._module is not subject.module:
            self._regions, self._module = Regions(self.what, policy, self.capture), subject.module
        regions = self._regions
        regions.look()
        patches = Patches()
        try:
            self._put(policy, regions, patches)
        except BaseException:
            patches.undo()
            raise
        return patches.undo

    def _put(self, subject: PolicySubject, regions: Regions, patches: Patches) -> None:
        name, kind = subject.anatomy.name, subject.info.kind
        if self.what == "chunk":
            if name not in _CHUNK:
                raise UserError(f"graph=chunk: the whole sampling of '{kind}' cannot be captured; {_others(subject)}")
            path, method = _CHUNK[name]
            patches.wrap(attrgetter(path)(subject.policy), method, lambda call: _chunk(call, regions, subject))
        elif not is_flow(subject):
            raise UserError(f"graph={self.what} is for flow policies (pi0, pi05, smolvla); {_others(subject)}")
        elif self.what == "prefix":
            path, method, label = _EMBEDDING[name]
            patches.wrap(attrgetter(path)(subject.policy), method, lambda call: _always(call, regions, label))
            patches.wrap(attrgetter(_JOINT[name])(subject.policy), "forward", lambda call: _prefix(call, regions))
        else:
            model: Any = subject.policy.model
            modeling = sys.modules[type(model).__module__]
            if not hasattr(modeling, "euler_integrate"):
                raise UserError("graph=loop: this LeRobot has another denoising loop than 0.6.1")
            patches.wrap(modeling, "euler_integrate", lambda call: _loop(call, regions, subject))
        patches.wrap(subject.policy, "predict_action_chunk", regions.watched)


def _others(subject: PolicySubject) -> str:
    possible = [str(spec["graph"]) for spec in _possible(subject)]
    return f"possible here: {', '.join(possible)}" if possible else "none of its kind can be"


# --- the regions: from a call to the one that is captured


def _always(call: Callable[..., Any], regions: Regions, label: str) -> Callable[..., Any]:
    def captured(*args: Any, **kwargs: Any) -> Any:
        return regions.run(label, lambda given: call(*given[0], **given[1]), (args, kwargs))

    return captured


def _prefix(call: Callable[..., Any], regions: Regions) -> Callable[..., Any]:
    def captured(*args: Any, **kwargs: Any) -> Any:
        embeds = kwargs.get("inputs_embeds")
        if embeds is None or len(embeds) != 2 or embeds[1] is not None:  # a denoising step, or training
            return call(*args, **kwargs)
        return regions.run(PREFIX, lambda given: call(*given[0], **given[1]), (args, kwargs))

    return captured


def _chunk(call: Callable[..., Any], regions: Regions, subject: PolicySubject) -> Callable[..., Any]:
    def captured(*args: Any, **kwargs: Any) -> Any:
        _require_closed_form(subject, kwargs.get("prev_chunk_left_over"))
        args = tuple(_with_tensors(value) for value in args)
        return regions.run("chunk", lambda given: call(*given[0], **given[1]), (args, kwargs))

    return captured


def _loop(call: Callable[..., Any], regions: Regions, subject: PolicySubject) -> Callable[..., Any]:
    """Around a policy module's ``euler_integrate``; another policy's loop passes through."""
    model = subject.policy.model

    def captured(denoise: Any, noise: Tensor, num_steps: int, **options: Any) -> Any:
        cells = _cells(denoise)
        if not any(value is model for value in cells.values()):
            return call(denoise, noise, num_steps, **options)
        processor = options.pop("rtc_processor", None)
        if options.get("rtc_enabled"):
            _require_closed_form(subject, options.get("prev_chunk_left_over"))

        def run(given: Any) -> Any:
            inside = _rebound(denoise, given["cells"])
            return call(inside, given["noise"], num_steps, rtc_processor=processor, **given["options"])

        return regions.run(LOOP, run, {"cells": cells, "noise": noise, "options": options}, num_steps)

    return captured


def _cells(call: Any) -> dict[str, Any]:
    """What a closure closes over, by name."""
    if not isinstance(call, FunctionType):
        return {}
    return {
        name: cell.cell_contents for name, cell in zip(call.__code__.co_freevars, call.__closure__ or (), strict=True)
    }


def _rebound(call: FunctionType, cells: dict[str, Any]) -> FunctionType:
    """``call`` over other contents: LeRobot's loop finds the KV cache and the masks in the closure of its step."""
    closure = tuple(_cell(cells[name]) for name in call.__code__.co_freevars)
    rebound = FunctionType(call.__code__, call.__globals__, call.__name__, call.__defaults__, closure)
    rebound.__kwdefaults__ = call.__kwdefaults__
    return rebound


def _cell(value: Any) -> Any:
    return (lambda: value).__closure__[0]  # type: ignore[index]


def _with_tensors(value: Any) -> Any:
    """A batch without what no model reads: the task in words would make every sentence a capture of its own."""
    if type(value) is not dict:
        return value
    return {
        name: kept for name, kept in value.items() if any(isinstance(leaf, Tensor) for leaf in tree_flatten(kept)[0])
    }


def _require_closed_form(subject: PolicySubject, previous: Tensor | None) -> None:
    processor: Any = getattr(subject.policy, "rtc_processor", None)
    if processor is None or previous is None:
        return
    if "denoise_step" not in vars(processor):
        raise UserError("RTC's autograd cannot be captured in a CUDA graph: put guidance='closed form' before graph")
    if processor.is_debug_enabled():
        raise UserError("RTC's debug tracking does not see into a CUDA graph: leave out --rtc.debug")


# --- captures


class Regions:
    """Captures of a subject's regions, each for inputs of one kind under one state of the subject."""

    def __init__(self, what: str, subject: PolicySubject, capture: Capture) -> None:
        self.what = what
        self.ran = 0
        self._subject = subject
        self._capture = capture
        self._kept: dict[str, OrderedDict[Hashable, _Region]] = {}
        self._weights: list[Tensor] = []
        self._state: Hashable = None
        self._holding: list[Any] = []

    def look(self) -> None:
        """Take note of the subject's state: its settings, and what other treatments have put there."""
        module = self._subject.module
        self._weights = [*module.parameters(), *module.buffers()]
        self._holding, others = patched(module)
        processor: Any = getattr(module, "rtc_processor", None)
        guidance = None if processor is None else (str(processor.rtc_config), "denoise_step" in vars(processor))
        self._state = (others, _settings(module), guidance)

    def run(self, label: str, call: Callable[[Any], Any], given: Any, *settings: Hashable) -> Any:
        """``call(given)``, from a graph. Raises UserError where it cannot be captured."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():  # training; the whole sampling is compiled
            return call(given)
        self.ran += 1
        parts = _Parts(given, f"graph={self.what}: the {label}")
        device = self._subject.device
        if any(tensor.device.type != device.type for tensor in parts.tensors):
            raise UserError(f"graph={self.what}: the {label} is given a tensor that is not on {device}")
        addresses = tuple([weight.data_ptr() for weight in self._weights])
        key = (parts.key, settings, self._state, addresses)
        kept = self._kept.setdefault(label, OrderedDict())
        if key not in kept:
            kept[key] = self._build(label, call, parts)
            if len(kept) > _KEPT:
                kept.popitem(last=False)
        kept.move_to_end(key)
        with section(label):
            return kept[key].replay(parts.tensors)

    def watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call``, the whole sampling; raises UserError if no region was met in it."""

        def sampling(*args: Any, **kwargs: Any) -> Any:
            before = self.ran
            made = call(*args, **kwargs)
            if self.ran == before and not torch.is_grad_enabled():
                raise UserError(
                    f"graph={self.what}: another treatment computes this part in its own way; leave one out"
                )
            return made

        return sampling

    def _build(self, label: str, call: Callable[[Any], Any], parts: _Parts) -> _Region:
        device = self._subject.device
        inputs = [tensor.detach().clone() for tensor in parts.tensors]
        host = Host(device)

        def warm() -> Any:
            with host.warming():
                return call(parts.rebuilt(inputs))

        def run() -> Any:
            with host.capturing():
                return call(parts.rebuilt(inputs))

        random = _random_state(device)
        try:
            with recording(_unseen):
                replay, made = self._capture.record(warm, run, device)
        except (RuntimeError, Changed) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            text = " ".join(str(error).split())
            raise UserError(f"graph={self.what}: the {label} cannot be captured: {text[:200]}") from error
        finally:
            _set_random_state(device, random)
        outputs = _Parts(made, f"graph={self.what}: what the {label} returns")
        return _Region(replay, host, inputs, outputs, [*self._holding, call])


@dataclass
class _Region:
    """A capture, with the places that it reads from and writes to."""

    graph: Run
    host: Host
    inputs: list[Tensor]
    outputs: _Parts
    holding: list[Any]  # the key is made of their addresses

    def replay(self, tensors: Sequence[Tensor]) -> Any:
        """Run on ``tensors``; what comes back is the caller's own."""
        if tensors:
            torch._foreach_copy_(self.inputs, list(tensors))
        self.host.draw()
        self.graph()
        return self.outputs.rebuilt([tensor.clone() for tensor in self.outputs.tensors])


class _Parts:
    """A structure of tensors (lists, dictionaries, transformers' outputs and KV caches) taken apart.

    Raises UserError for an object that may hold more than is seen here.
    """

    def __init__(self, value: Any, what: str) -> None:
        self._leaves, self._spec = tree_flatten(value, is_leaf=_is_cache)
        self.tensors: list[Tensor] = []
        kinds: list[Hashable] = [str(self._spec)]
        for leaf in self._leaves:
            held = _tensors_of(leaf)
            self.tensors += held
            if held or _is_cache(leaf):
                kinds.append((type(leaf), *((tensor.shape, tensor.dtype) for tensor in held)))
            else:
                kinds.append(_constant(leaf, what))
        self.key: Hashable = tuple(kinds)

    def rebuilt(self, tensors: Sequence[Tensor]) -> Any:
        """The structure with other tensors, of the same kinds; caches are new ones."""
        left = iter(tensors)
        return tree_unflatten([_filled(leaf, left) for leaf in self._leaves], self._spec)


def _is_cache(value: Any) -> bool:
    layers = getattr(value, "layers", None)
    return not isinstance(value, nn.Module) and isinstance(layers, list) and all(hasattr(one, "keys") for one in layers)


def _tensors_of(leaf: Any) -> list[Tensor]:
    if isinstance(leaf, Tensor):
        return [leaf]
    if not _is_cache(leaf):
        return []
    return [held for layer in leaf.layers for held in (layer.keys, layer.values) if isinstance(held, Tensor)]


def _filled(leaf: Any, tensors: Iterator[Tensor]) -> Any:
    if isinstance(leaf, Tensor):
        return next(tensors)
    if not _is_cache(leaf):
        return leaf
    cache = copy.copy(leaf)
    cache.layers = [copy.copy(layer) for layer in leaf.layers]
    for layer in cache.layers:
        for name in ("keys", "values"):
            if isinstance(getattr(layer, name), Tensor):
                setattr(layer, name, next(tensors))
    return cache


def _constant(leaf: Any, what: str) -> Hashable:
    if leaf is None or isinstance(leaf, bool | int | float | str | Enum | torch.dtype | torch.device):
        return (type(leaf), leaf)
    if isinstance(leaf, nn.Module):
        return id(leaf)
    if isinstance(leaf, FunctionType | MethodType):
        return identity(leaf)
    raise UserError(f"{what} holds a {type(leaf).__name__}, which cannot be captured")


def _settings(module: nn.Module) -> Hashable:
    """Plain values that the policy and the modules below it read as they run, and its config's."""
    owners = [getattr(module, "config", None), module, *module.children()]
    return tuple(
        (where, name, value if not is_dataclass(value) else str(value))
        for where, owner in enumerate(owners)
        if owner is not None
        for name, value in vars(owner).items()
        if isinstance(value, bool | int | float | str | Enum) or is_dataclass(value)
    )


def _unseen(name: str) -> Any:
    note_unseen(name, UNSEEN)
    return nullcontext()


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _set_random_state(device: torch.device, state: tuple[Tensor, Tensor | None]) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)


def _make(spec: Spec) -> CudaGraph:
    if spec["graph"] not in VALUES:
        raise UserError(f"graph={spec['graph']}: {nearest(str(spec['graph']), VALUES)}")
    return CudaGraph(str(spec["graph"]))


def _possible(subject: Subject) -> list[Spec]:
    if not isinstance(subject, PolicySubject):
        return []
    found: list[Spec] = [{"graph": "loop"}, {"graph": "prefix"}] if is_flow(subject) else []
    return [*found, {"graph": "chunk"}] if subject.anatomy.name in _CHUNK else found


def _candidates(subject: Subject) -> list[Spec]:
    return _possible(subject) if subject.device.type == "cuda" else []


def _parts(_: Subject, spec: Spec) -> Sequence[str]:
    return {"prefix": (VISION, PREFIX), "loop": (STEP, EXPERT)}.get(str(spec["graph"]), ())


ENTRY = Entry(
    "graph",
    f"a CUDA graph of a flow policy's prefix or its denoising loop, or of the whole sampling: {', '.join(VALUES)}",
    "exact",
    CAPTURED,
    _make,
    candidates=_candidates,
    parts=_parts,
)
