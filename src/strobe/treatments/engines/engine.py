"""A part of the subject in an engine: OpenVINO on CPUs, TensorRT on NVIDIA's GPUs.

The part is recorded in one real inference, exported with torch.export for its shapes, built once, and kept in a cache.
Other shapes are built for when they come, up to a few; torch computes those that cannot be built, as where memory is
short. A part with a key-value cache sees as many shapes as there are lengths of prompts: there torch computes what was
not recorded, for a robot cannot wait for an engine.
Around a call the part's ``forward`` is the engine's, whose results have the classes, shapes and dtypes that torch's
had: neighbours in another dtype notice nothing. That was the fault of a pi0.5 whose vision tower ran in TensorRT in
half precision and its projector in bfloat16: "mat1 and mat2 must have the same dtype, but got Half and BFloat16".

With ``engine.steps=all`` the engine holds the method that calls the part in every denoising step, and goes through all
steps in one call. What the method draws at random is drawn by torch before, in the same order.

An engine is compared with the part that it stands for before it is used, one from the cache too. What has been built is
a second copy of the part's weights. The inside of the part cannot be timed or counted, only the part as a whole.
"""

from __future__ import annotations

import io
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from strobe.core.devices.accelerators import generators_restored
from strobe.core.errors import UserError, error_line, nearest
from strobe.core.families.capabilities import Parts
from strobe.core.measure.traffic import counted_as
from strobe.core.results.traits import TreatmentTraits
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.sections import note_unseen, recording, section
from strobe.core.treatments.patch import replaced_method
from strobe.core.treatments.room import fits, numbers, require_room
from strobe.core.treatments.treatment import FOR_INFERENCE, Treatment, Undo
from strobe.core.treatments.words import precision_name
from strobe.treatments.engines.backends import ENGINES, FP8, INT8, Engine, Run, engine_file, mark_used, trim_engines
from strobe.treatments.engines.built import Built, Target
from strobe.treatments.engines.draws import Draw, RecordedDraws, schedulers_laid_out
from strobe.treatments.engines.partitions import OnCard
from strobe.treatments.engines.recorded import (
    Call,
    Flat,
    Results,
    caches_restored,
    cast_to_float32,
    has_cache,
    least_cosine,
    run_flattened,
)
from strobe.treatments.graphs.host_work import separate_epoch
from strobe.treatments.numbers.precision import DTYPES, Precision
from strobe.treatments.parts import find_part, match_parts

INSIDE = "runs inside an engine, where only the part as a whole can be timed"
SHAPES = 4  # shapes built for one part, each an engine of its own; torch computes the others
RECORDING_S = 8.0  # time after which no further inference is recorded
# Cosine between the engine's results and the part's own, on what was recorded.
LEAST = {"fp32": 0.999, "bf16": 0.99, "fp16": 0.99, INT8: 0.98, FP8: 0.98}
# What OpenVINO last read of a part, and what that hangs on: in another precision it is the same.
_READ: WeakKeyDictionary[nn.Module, tuple[object, object]] = WeakKeyDictionary()
_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


@dataclass
class PartInEngine(Treatment, key="engine"):
    """The module at the path ``part`` in an engine; each module of a path with a * in an engine of its own.

    Args:
        engine: 'openvino' or 'tensorrt'.
        precision: 'fp32', 'bf16' or 'fp16', as the device has them; '' for that of the part's weights.
        all_steps: whether one call goes through all denoising steps.
    """

    engine: str
    part: str
    precision: str = ""
    all_steps: bool = False
    _built: dict[object, Built] = field(default_factory=dict, init=False, repr=False)
    _in_torch: set[object] = field(default_factory=set, init=False, repr=False)  # shapes that cannot be built
    _cached: bool = field(default=False, init=False, repr=False)  # whether it is given or makes a key-value cache
    _weights: Any = field(default=None, init=False, repr=False)
    _sources: list[Tensor] = field(default_factory=list, init=False, repr=False)
    _looked: bool = field(default=True, init=False, repr=False)  # whether the weights are those that it was built of
    _names: list[str] = field(default_factory=list, init=False, repr=False)
    _each: list[PartInEngine] = field(default_factory=list, init=False, repr=False)  # those of a path with a *
    phases = FOR_INFERENCE
    builds = "built"
    inferences = 1  # that the part is recorded in
    recorded = 1  # calls of each shape
    grows = True  # it builds for shapes that come later

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UserError(f"engine={self.engine}: {nearest(self.engine, ENGINES)}")
        if not self.part:
            raise UserError(f"{self.key}: the part is missing, such as {self.key}.part=model.backbone")
        if self.all_steps and self.engine != "openvino":
            raise UserError(f"engine.steps=all: only openvino supports it, but this is engine={self.engine}")
        if self.precision:
            self.precision = self._precision_name(self.precision)
            self.dtypes = (str(_product_dtype(self.precision)).removeprefix("torch."),)
        self._engine: Engine = ENGINES[self.engine]()

    def traits(self) -> TreatmentTraits:
        each = self._each or [self]
        traits = TreatmentTraits(
            key=self.key, value=self.engine, part=self.part, builds=self.builds, precision=each[0].precision
        )
        if built := [engine for one in each for engine in one._built.values()]:
            traits.build_s = round(sum(engine.seconds for engine in built), 2)
            traits.from_cache = all(engine.cached for engine in built)
            cut = [engine.call.partitions for engine in built if isinstance(engine.call, OnCard)]
            for found in filter(None, cut):
                traits.engines = (traits.engines or 0) + found.engines
                traits.torch_partitions = (traits.torch_partitions or 0) + found.in_torch
                traits.torch_operators = list(dict.fromkeys([*traits.torch_operators, *found.operators]))
        return traits

    def apply(self, subject: Subject) -> Undo:
        if "*" in self.part:
            return self._apply_each(subject, PartInEngine.apply)
        self.check_device(subject.device)
        target = self._find_target(subject)
        self._prepare(subject, target)
        inner = target.call
        names = self._names
        weights = [weight for weight in target.module.parameters() if weight.requires_grad]

        # The engine is no torch code: a compiled region around it calls it unchanged.
        @torch.compiler.disable
        def forward(*args: object, **kwargs: object) -> object:
            if torch.compiler.is_exporting():  # an engine around this part is being built, of torch's own code
                return inner(*args, **kwargs)
            call = Call.from_arguments(args, kwargs, self.part)
            if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*call.tensors, *weights)):
                self._looked = False  # a training changes the weights
                return inner(*args, **kwargs)  # training, and RTC's guidance, which derives through a denoising step
            if (self.all_steps or not self._looked) and target.state() != self._weights:
                return inner(*args, **kwargs)  # until it is applied again
            self._looked = True
            if call.key not in self._built and not self._add_shape(subject, target, call):
                return inner(*args, **kwargs)
            built = self._built[call.key]
            with ExitStack() as stack:
                for name in names:
                    stack.enter_context(section(name))
                return caches_restored(built.run(call.tensors), call.caches)

        return replaced_method(target.owner, target.method, forward)

    def unbuilt(self, subject: Subject) -> Undo:
        if "*" in self.part:
            return self._apply_each(subject, PartInEngine.unbuilt)
        target, dtype = self._find_target(subject), _product_dtype(self.precision or "fp32")

        def forward(*args: object, **kwargs: object) -> object:
            with counted_as(dtype):
                return target.call(*args, **kwargs)

        return replaced_method(target.owner, target.method, forward)

    def _apply_each(self, subject: Subject, apply: Callable[[PartInEngine, Subject], Undo]) -> Undo:
        paths = match_parts(subject.module, self.part)
        self._each = self._each or [replace(self, part=path) for path in paths]
        with ExitStack() as stack:
            for each in self._each:
                stack.callback(apply(each, subject))
            return stack.pop_all().close

    def _precision_name(self, precision: str) -> str:
        """Return the name of ``precision`` that is used here. Raises UserError for one that there is not."""
        return precision_name(precision)

    def check_device(self, device: torch.device) -> None:
        self._engine.require(device)

    def _find_target(self, subject: Subject) -> Target:
        """Return what the engine stands for. Raises UserError for a part that is not there."""
        part = find_part(subject.module, self.part)
        if not self.all_steps:
            return Target(part, part, "forward", part.forward)
        sampling = Parts.from_family(subject.family).sampling
        if self.part not in sampling:
            known = f"use {self.key}.part={next(iter(sampling))}" if sampling else f"leave {self.key}.steps out"
            raise UserError(f"{self.key}.steps=all: no method is known that calls '{self.part}' in all steps: {known}")
        path, _, method = sampling[self.part].rpartition(".")
        owner = find_part(subject.module, path)
        return Target(part, owner, method, getattr(owner, method))

    def _cached_file(self, file: Path, subject: Subject) -> Path:
        return file

    def _least(self, subject: Subject) -> float:
        return LEAST[self.precision]

    def _prepare(self, subject: Subject, target: Target) -> None:
        state, part = target.state(), target.module
        if state == self._weights:
            return
        self._built.clear()  # they were built of other weights
        self._in_torch.clear()
        _require_plain(part, self.part)
        self._precise(part, subject.device)
        require_room(self._building(part), f"building '{self.part}' in {self.engine}", subject)  # before any call
        for calls in self._record(subject, target):
            self._build(subject, target, calls)
        self._weights = state
        # Held, as OpenVINO reads on in their memory, and so that no other weights come to their addresses.
        self._sources = [tensor.data for tensor in (*part.parameters(), *part.buffers())]
        inside = set(map(id, part.modules()))
        for hook in subject.hooks("inference", 3):
            if hook.owner is part and hook.attribute == "forward":
                self._names = list(dict.fromkeys([*self._names, hook.name]))
            elif id(hook.owner) in inside:
                note_unseen(hook.name, INSIDE)

    def _precise(self, part: nn.Module, device: torch.device) -> None:
        able = self._engine.precisions(device)
        if not self.precision:
            sizes: dict[torch.dtype, int] = {}
            for weight in part.parameters():
                sizes[weight.dtype] = sizes.get(weight.dtype, 0) + weight.numel()
            held = _NAMES.get(max(sizes, key=lambda dtype: sizes[dtype]) if sizes else torch.float32, "fp32")
            self.precision = held if held in able else "fp32"
        if self.precision not in able:
            raise UserError(f"engine.precision={self.precision}: {self.engine} has {', '.join(able)} here")

    def _add_shape(self, subject: Subject, target: Target, call: Call) -> bool:
        """Build for the shapes of ``call``, which come later. Return whether that was done; else torch computes it."""
        if self._cached or self.all_steps or not self.grows or len(self._built) >= SHAPES or call.key in self._in_torch:
            return False
        try:
            self._build(subject, target, [call])
        except (UserError, torch.OutOfMemoryError):
            self._in_torch.add(call.key)
            return False
        return True

    def _building(self, part: nn.Module) -> float:
        """Return the bytes that building takes, besides a copy of the weights to export from."""
        return self._engine.building(self.precision) * numbers(_floating(part))

    def _record(self, subject: Subject, target: Target) -> list[list[Call]]:
        """Return the calls in real inferences, some for each of the shapes, `SHAPES` of them at most."""
        calls: dict[object, list[Call]] = {}
        inner = target.call

        def watching(*args: object, **kwargs: object) -> object:
            call = Call.from_arguments(args, kwargs, self.part)
            if call.key in calls or len(calls) < SHAPES:
                like_it = calls.setdefault(call.key, [])
                if len(like_it) < self.recorded:
                    like_it.append(call.clone_tensors())
            return inner(*args, **kwargs)

        undo = replaced_method(target.owner, target.method, watching)
        try:
            with _suspend_observation(subject.device):
                run, until = subject.call("inference", 1), time.perf_counter() + RECORDING_S
                for index in range(self.inferences):
                    run(index)
                    if time.perf_counter() > until:
                        break
        finally:
            undo()
        if not calls:
            how = target.method if self.all_steps else "a module"
            raise UserError(f"'{self.part}' is not called as {how} in an inference of {subject.info.name}")
        return list(calls.values())

    def _build(self, subject: Subject, target: Target, calls: Sequence[Call]) -> None:
        call = calls[0]
        own = vars(target.owner).get(target.method)
        # A further shape is met while the engine is there.
        undo = replaced_method(target.owner, target.method, target.call)
        started = time.perf_counter()
        try:
            with _suspend_observation(subject.device):
                with separate_epoch(building=True), RecordedDraws() as drawn:
                    results = run_flattened(target.call, call.args, call.kwargs)
                self._cached |= has_cache(results)
                template = Results.from_value(results, self.part)
                self._built[call.key] = self._build_and_compare(subject, target, calls, template, drawn.draws)
        finally:
            undo()
            assert vars(target.owner).get(target.method) is own
        self._built[call.key].seconds = time.perf_counter() - started

    def _build_and_compare(
        self, subject: Subject, target: Target, calls: Sequence[Call], results: Results, draws: Sequence[Draw]
    ) -> Built:
        call, part, noise = calls[0], target.module, [draw.values for draw in draws]
        about = repr((target.settings(), [(draw.kind, draw.values.shape, draw.values.dtype) for draw in draws]))
        file = engine_file(part, call, results, self.engine, self._engine, self.precision, subject.device, about)
        cached_file = self._cached_file(file, subject)
        if cached_file.is_file() and fits(cached_file.stat().st_size + self._building(part), subject):
            try:
                run = self._engine.load(cached_file, self.precision, subject.device)
                mark_used(cached_file)
                built = Built(run, call.dtypes, results, draws, cached=True)
                if least_cosine(built.run(call.tensors, noise), results) >= self._least(subject):
                    return built
            except Exception:  # each engine has exceptions of its own for a file that it does not understand
                pass
        partial = cached_file.with_name(f"{cached_file.stem}.{os.getpid()}{cached_file.suffix}")
        try:
            run = self._build_engine(subject, target, calls, results.places, noise, partial)
            built = Built(run, call.dtypes, results, draws)
            agreed = least_cosine(built.run(call.tensors, noise), results)
            if agreed < self._least(subject):
                raise UserError(
                    f"'{self.part}' in {self.engine} in {self.precision} differs from torch (cosine {agreed:.4f})"
                )
            if partial.is_file():
                partial.replace(cached_file)
                trim_engines()
        finally:
            with suppress(OSError):
                partial.unlink()
        return built

    def _build_engine(
        self,
        subject: Subject,
        target: Target,
        calls: Sequence[Call],
        places: Sequence[int],
        noise: Sequence[Tensor],
        keep: Path,
    ) -> Run:
        part = target.module
        exported = DTYPES[self._engine.export_precision(self.precision)]
        copied = exported.itemsize * numbers(tensor for tensor in _floating(part) if tensor.dtype != exported)
        require_room(copied + self._building(part), f"building '{self.part}' in {self.engine}", subject)
        inputs = [tuple(cast_to_float32(value) for value in (*call.tensors, *noise)) for call in calls]
        # With what treatments of its inside say in the modules' repr, as in the cache's key.
        call, state = calls[0], repr(target.state())
        form = (self.engine, exported, call.key, tuple(call.dtypes), tuple(places), state, repr(part), self.all_steps)
        undo = Precision(self._engine.export_precision(self.precision), self.part).apply(subject)
        try:
            last, model = _READ.get(part, (None, None))
            if last != form:
                flat = Flat(part, calls[0], places, target.call, [value.dtype for value in noise]).eval()
                # Where it fails, torch prints the graph so far.
                with redirect_stderr(io.StringIO()), schedulers_laid_out([target.owner]), separate_epoch(building=True):
                    program = torch.export.export(flat, inputs[0], strict=False)
                model = self._engine.read(program, inputs[0])
                if not copied and self.engine == "openvino":
                    _READ[part] = (form, model)
            return self._engine.build(model, inputs, self.precision, keep)
        except Exception as error:
            if isinstance(error, torch.OutOfMemoryError | UserError):
                raise
            lines = error_line(error)
            if "data-dependent" in lines:
                lines = "its shapes depend on values of its inputs, such as the grid of an image"
            raise UserError(f"'{self.part}' cannot be built in {self.engine}: {lines[-200:].rstrip('.')}") from error
        finally:
            undo()


def _product_dtype(precision: str) -> torch.dtype:
    return {INT8: torch.int8, FP8: torch.float8_e4m3fn}.get(precision) or DTYPES[precision]


def _floating(part: nn.Module) -> list[Tensor]:
    return [tensor for tensor in (*part.parameters(), *part.buffers()) if tensor.is_floating_point()]


@contextmanager
def _suspend_observation(device: torch.device) -> Iterator[None]:
    eager = torch.compiler.set_stance("force_eager")
    with recording(None), torch.no_grad(), generators_restored(device), eager, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.export about torch's own code
        yield


def _require_plain(part: nn.Module, path: str) -> None:
    if any(type(weight) not in (nn.Parameter, Tensor) for weight in part.parameters()):
        raise UserError(
            f"'{path}' has quantised weights, and an engine needs floating-point weights: use one of the two"
        )
