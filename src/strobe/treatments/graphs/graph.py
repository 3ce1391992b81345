"""CUDA graphs: the prefix pass, the denoising loop or the whole sampling recorded once and replayed as one launch.

A denoising step of a flow policy is hundreds of small kernels, and on a fast device most of its time is Python and
launches. A graph has the same kernels in the same order, reads its inputs from fixed places and writes its outputs to
fixed places; so inputs are copied in and outputs copied out (`Regions`). What the host does in between (numbers sent
to the device, noise) is in `host_work`.

``torch.cuda.graph`` does not undo a capture that fails: `capture_end` raises as soon as CUDA says that the capture was
invalidated, and what it would have done after that is left out (torch 2.11, ``aten/src/ATen/cuda/CUDAGraph.cpp``). The
capture's stream stays the current one. The allocator goes on asking whether memory is for the capture. The device's
generator believes that it is in a capture, so that every later draw raises "Offset increment outside graph capture".
So `Cuda` captures on a stream and in a memory pool of ours, and undoes what fails. None of this has run on a card yet:
it was written from torch's source, and is tested on a model of its states.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from operator import attrgetter
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from strobe.core.devices.accelerators import Pool, number_device
from strobe.core.errors import UserError, nearest
from strobe.core.families.registry import list_types_having
from strobe.core.results.traits import TreatmentTraits
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.layers import Call
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import entry
from strobe.core.treatments.treatment import FOR_INFERENCE, Spec, Treatment, Undo
from strobe.core.treatments.words import GRAPHS
from strobe.lerobot.config_fields import require_policy
from strobe.lerobot.families.flow_parts import EXPERT, PREFIX, STEP, VISION
from strobe.lerobot.sampling import Flow, Graphs
from strobe.treatments.graphs.regions import Capture, Regions
from strobe.treatments.parts import capability, is_flow

if TYPE_CHECKING:
    from strobe.lerobot.policies.policy_subject import PolicySubject

Run = Callable[[], object]

_WARMUPS = 3  # runs before a capture: libraries set themselves up, allocators grow
_streams: dict[int, torch.cuda.Stream] = {}  # number of a device → the stream on which its captures are made
_failed: list[torch.cuda.CUDAGraph] = []


class Cuda:
    """A `Capture` by ``torch.cuda.graph``, each with a memory pool of its own."""

    def __init__(self) -> None:
        self.pools: list[Pool] = []

    def require(self, device: torch.device, what: str) -> None:
        """Raise UserError if ``device`` is not CUDA's."""
        if device.type != "cuda":
            raise UserError(f"graph={what} needs CUDA, but the policy is on {device.type}")

    def record(self, warm: Run, run: Run, device: torch.device) -> tuple[Run, object]:
        """Warm up, and capture ``run``. An exception of either is raised unchanged, and nothing is left in capture."""
        index = number_device(device).index
        with torch.cuda.device(device):
            # Not torch.cuda.graph's own stream: there is one for the process, on the device that captured first.
            side = _streams[index] if index in _streams else _streams.setdefault(index, torch.cuda.Stream())
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(_WARMUPS):
                    warm()
            torch.cuda.current_stream().wait_stream(side)
            graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
            with _undone(graph, pool, side, index):
                made = _capture_run(graph, pool, side, run)
        self.pools.append(pool)
        return graph.replay, made


def _capture_run(graph: torch.cuda.CUDAGraph, pool: Any, stream: torch.cuda.Stream, run: Run) -> object:
    """Return what ``run`` returned; raises its own exception, not the one about an invalid capture that follows."""
    first: BaseException | None = None
    try:
        # Other threads (loaders, recorders) may use the device meanwhile.
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            try:
                return run()
            except BaseException as error:
                first = error
                raise
    except BaseException:
        if first is not None:
            raise first from None
        raise


@contextmanager
def _undone(graph: torch.cuda.CUDAGraph, pool: Pool, stream: torch.cuda.Stream, index: int) -> Iterator[None]:
    before = torch.cuda.current_stream()
    try:
        yield
    except BaseException:
        _streams.pop(index, None)
        _end(graph, stream)
        torch.cuda.set_stream(before)
        if not _has_capture_ended(graph):
            # The allocator may still ask this graph whether memory is for its capture: it must not be freed.
            _failed.append(graph)
            for function in (torch._C._cuda_endAllocateToPool, torch._C._cuda_releasePool):
                with suppress(RuntimeError):  # it may have got that far by itself
                    function(index, pool)
            _free_generator()
        raise


def _end(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> None:
    with torch.cuda.stream(stream), suppress(RuntimeError):
        if torch.cuda.is_current_stream_capturing():
            graph.capture_end()


def _has_capture_ended(graph: torch.cuda.CUDAGraph) -> bool:
    try:
        graph.pool()
    except RuntimeError:
        return False
    return True


def _free_generator() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the graph is empty
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
            pass


LOOP = "denoising loop"  # the section around a replay of all steps


def _capturing(call: Call, regions: Regions, label: str) -> Call:
    def run_captured(*args: object, **kwargs: Any) -> object:
        return regions.run(label, lambda given: call(*given[0], **given[1]), (args, kwargs))

    return run_captured


def _capturing_prefix(call: Call, regions: Regions) -> Call:
    def run_captured(*args: object, **kwargs: Any) -> object:
        embeds = kwargs.get("inputs_embeds")
        if embeds is None or len(embeds) != 2 or embeds[1] is not None:  # a denoising step, or training
            return call(*args, **kwargs)
        return regions.run(PREFIX, lambda given: call(*given[0], **given[1]), (args, kwargs))

    return run_captured


def _capturing_chunk(call: Call, regions: Regions, subject: PolicySubject) -> Call:
    def run_captured(*args: object, **kwargs: Any) -> object:
        if _steps_aside(regions, subject, kwargs.get("prev_chunk_left_over")):
            return call(*args, **kwargs)
        args = tuple(_drop_tensorless_entries(value) for value in args)
        return regions.run("chunk", lambda given: call(*given[0], **given[1]), (args, kwargs))

    return run_captured


def _capturing_loop(call: Call, regions: Regions, subject: PolicySubject) -> Call:
    model = subject.policy.model

    def run_captured(denoise: Any, noise: Tensor, num_steps: int, **options: Any) -> object:
        cells = _cells(denoise)
        if not any(value is model for value in cells.values()):
            return call(denoise, noise, num_steps, **options)
        if options.get("rtc_enabled") and _steps_aside(regions, subject, options.get("prev_chunk_left_over")):
            return call(denoise, noise, num_steps, **options)
        processor = options.pop("rtc_processor", None)

        def run(given: Any) -> Any:
            inside = _rebound(denoise, given["cells"])
            return call(inside, given["noise"], num_steps, rtc_processor=processor, **given["options"])

        return regions.run(LOOP, run, {"cells": cells, "noise": noise, "options": options}, num_steps)

    return run_captured


def _cells(call: Any) -> dict[str, object]:
    if not isinstance(call, FunctionType):
        return {}
    return {
        name: cell.cell_contents for name, cell in zip(call.__code__.co_freevars, call.__closure__ or (), strict=True)
    }


def _rebound(call: FunctionType, cells: dict[str, object]) -> FunctionType:
    closure = tuple(_cell(cells[name]) for name in call.__code__.co_freevars)
    rebound = FunctionType(call.__code__, call.__globals__, call.__name__, call.__defaults__, closure)
    rebound.__kwdefaults__ = call.__kwdefaults__
    return rebound


def _cell(value: object) -> Any:
    return (lambda: value).__closure__[0]  # type: ignore[index]


def _drop_tensorless_entries(value: object) -> object:
    if type(value) is not dict:
        return value
    return {
        name: entry for name, entry in value.items() if any(isinstance(leaf, Tensor) for leaf in tree_flatten(entry)[0])
    }


def _steps_aside(regions: Regions, subject: PolicySubject, previous: Tensor | None) -> bool:
    """Return whether this call is guided by RTC in a way that no graph holds, and so runs without one.

    Raises UserError if RTC was on before the graph was applied: then the graph would never run. RTC
    that is turned on later, as a rollout does, must not end the robot's loop.
    """
    processor: Any = getattr(subject.policy, "rtc_processor", None)
    if processor is None or previous is None:
        return False
    if "denoise_step" not in vars(processor):
        return regions.step_aside("RTC's autograd cannot be captured in a CUDA graph: add guidance='closed form'")
    if processor.is_debug_enabled():
        return regions.step_aside("RTC's debug tracking does not work in a CUDA graph: remove --rtc.debug")
    return False


@dataclass
class CudaGraph(Treatment, key="graph"):
    """``what``: prefix (embedding and KV cache), loop (all denoising steps), or chunk (the policy's whole sampling)."""

    what: str
    capture: Capture = field(default_factory=Cuda)
    _regions: Regions | None = field(default=None, init=False, repr=False)
    _module: nn.Module | None = field(default=None, init=False, repr=False)
    phases = FOR_INFERENCE
    builds = "captured"

    def traits(self) -> TreatmentTraits:
        traits = TreatmentTraits(key=self.key, value=self.what, builds=self.builds)
        if self._regions is not None and self._regions.captures:
            traits.captures, traits.capture_s = self._regions.captures, round(self._regions.capture_s, 2)
        return traits

    def pools(self, device: torch.device) -> Sequence[Pool]:
        return self.capture.pools

    def check_device(self, device: torch.device) -> None:
        self.capture.require(device, self.what)

    def apply(self, subject: Subject) -> Undo:
        policy = require_policy(subject)
        self.check_device(subject.device)
        if self._regions is None or self._module is not subject.module:
            self._regions, self._module = Regions(self.what, policy, self.capture), subject.module
        regions = self._regions
        regions.look()
        patches = Patches()
        try:
            self._wrap_regions(policy, regions, patches)
        except BaseException:
            patches.undo()
            raise
        return patches.undo

    def _wrap_regions(self, subject: PolicySubject, regions: Regions, patches: Patches) -> None:
        graphs, flow, kind = Graphs.from_family(subject.family), capability(subject, Flow), subject.info.kind
        if self.what == "chunk":
            if graphs.whole is None:
                raise UserError(f"graph=chunk: the whole sampling of '{kind}' cannot be captured; {_others(subject)}")
            for owner, name, around in graphs.without_waits(subject.policy):
                patches.wrap(owner, name, around)
            path, method = graphs.whole
            patches.wrap(
                attrgetter(path)(subject.policy), method, lambda call: _capturing_chunk(call, regions, subject)
            )
        elif self.what == "loop" and graphs.loop is not None:
            path, method = graphs.loop
            patches.wrap(attrgetter(path)(subject.policy), method, lambda call: _capturing(call, regions, LOOP))
        elif flow is None:
            types = ", ".join(list_types_having(Flow))
            raise UserError(f"graph={self.what} is for flow policies ({types}); {_others(subject)}")
        elif self.what == "prefix":
            if graphs.embedding is not None:
                path, method, label = graphs.embedding
                patches.wrap(attrgetter(path)(subject.policy), method, lambda call: _capturing(call, regions, label))
            joint = attrgetter(flow.joint)(subject.policy)
            patches.wrap(joint, "forward", lambda call: _capturing_prefix(call, regions))
        else:
            model: Any = subject.policy.model
            modeling = sys.modules[type(model).__module__]
            if not hasattr(modeling, "euler_integrate"):
                raise UserError("graph=loop: this LeRobot's denoising loop differs from 0.6.1")
            patches.share(modeling, "euler_integrate", lambda call: _capturing_loop(call, regions, subject))
        patches.wrap(subject.policy, "predict_action_chunk", regions.wrap_sampling)
        patches.wrap(subject.policy, "eval", lambda call: lambda: call() if subject.policy.training else subject.policy)


def _others(subject: PolicySubject) -> str:
    possible = [str(spec["graph"]) for spec in _possible(subject)]
    return f"possible here: {', '.join(possible)}" if possible else "none of its kind can be"


def _make(spec: Spec) -> CudaGraph:
    if spec["graph"] not in GRAPHS:
        raise UserError(f"graph={spec['graph']}: {nearest(str(spec['graph']), GRAPHS)}")
    return CudaGraph(str(spec["graph"]))


def _possible(subject: Subject) -> list[Spec]:
    if subject.acting is None:
        return []
    graphs = Graphs.from_family(subject.family)
    there = {"loop": is_flow(subject) or graphs.loop, "prefix": is_flow(subject), "chunk": graphs.whole}
    return [{"graph": what} for what, possible in there.items() if possible]


def _candidates(subject: Subject) -> list[Spec]:
    return _possible(subject) if subject.device.type == "cuda" else []


def _parts(_: Subject, spec: Spec) -> Sequence[str]:
    return {"prefix": (VISION, PREFIX), "loop": (STEP, EXPERT)}.get(str(spec["graph"]), ())


ENTRY = entry("graph", _make, candidates=_candidates, parts=_parts)
