"""Things to call with inputs of their own, as a subject: functions, torch modules, policies of other projects."""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from strobe.core.devices.accelerators import check_device, generators_restored
from strobe.core.errors import UserError, error_line
from strobe.core.families.family import Family, list_no_probes
from strobe.core.families.modules import build_module_family
from strobe.core.families.registry import find_family
from strobe.core.measure.agreement import agree
from strobe.core.measure.compilations import CompileLog, CompileWatch
from strobe.core.measure.guard import Of
from strobe.core.measure.time_limit import TimeUpError
from strobe.core.results import units
from strobe.core.results.subject import SubjectInfo
from strobe.core.results.traits import CallTraits, Traits
from strobe.core.slices import Offer
from strobe.core.subjects.callables import MODULE, Target
from strobe.core.subjects.leaves import describe_unfinished, leaves
from strobe.core.subjects.outputs import (
    await_output,
    copy_containers,
    extract_numbers,
    iter_tensors,
    list_unfinished_arrays,
    may_be_computing,
)
from strobe.core.subjects.subject import ITERATION, Abilities, InputSource, Latest, Phase, count, digest
from strobe.core.timeline.clock import synchronise
from strobe.core.timeline.probe import Hook, Probe
from strobe.core.timeline.sections import section
from strobe.core.torch_there import Processor, has_torch

if TYPE_CHECKING:
    import torch
    from torch import nn

    from strobe.core.results.agreement import Agreement

_MOST = 300  # characters of an error's own words
HANGS_MS, HANGS = 1000.0, 10.0  # a first call of more than that, and than so many times a later one, is far beyond


@dataclass
class CallableSubject(Abilities):
    """Targets and the inputs that all of them are called with; one target is on at a time.

    Args:
        targets: the first one is on from the beginning.
        inputs: each a tuple of positional arguments, or the only argument.
        on: torch's name of the device; None for that of the targets' weights, else of the inputs' tensors.
        label: name of the subject; None for the first target's own.
        source: where the targets are from, in words.
    """

    targets: Sequence[Target]
    inputs: Sequence[Any]
    seed: int = 0
    on: str | None = None
    label: str | None = None
    source: str = "an object in Python"

    returns: ClassVar[Of] = "outputs"

    def __post_init__(self) -> None:
        if not self.inputs:
            raise UserError("no inputs: give one input, or a list of them; () is a call without arguments")
        check_device(self.on)
        self.target = self.targets[0]
        self.notes: list[str] = []
        self._caveats: list[str] = []
        self._waits: dict[str, bool] = {}
        self._keeps: set[str] = set()  # targets whose work goes on in arrays that they do not return
        self._compiled: dict[str, CompileLog] = {}
        self._accelerator = _accelerator()
        self.device = self._device()
        first = self.targets[0]
        read = extract_numbers(self.inputs[0])
        many = f"{len(self.inputs)} input{'s' * (len(self.inputs) != 1)}"
        self.info = SubjectInfo(
            name=self.label or first.label,
            kind=first.kind,
            source=self.source,
            inputs=f"{many}, of shape {read.words}" if read.shapes else f"{many} without arrays",
            **count(*first.modules.values()),
        )

    @property
    def caveats(self) -> Sequence[str]:
        """Notes that every verdict must show."""
        return self._caveats

    @property
    def module(self) -> nn.Module:
        """The torch modules of the target that is on; an empty module for one without any."""
        return self.target.module

    @property
    def family(self) -> Family:
        """The record of the target's type where it is a policy that is known; else its modules."""
        return _family(self.target)

    @property
    def input_source(self) -> InputSource:
        """The kind and digest of its inputs."""
        return InputSource("data", digest([self.input_digest(index) for index in range(len(self.inputs))]))

    @property
    def compiled_methods(self) -> Sequence[tuple[str, str]]:
        """The methods that `compile` compiles, as (path, method): what the target calls of its torch modules.

        That is a module's own forward pass. Of an object it is that of each module inside, with the public methods of
        the module's own class: which of them it calls is not known, and one that is not called costs nothing.
        """
        if self.family.compiled:
            return self.family.compiled
        if self.target.kind == MODULE:
            return (("", "forward"),)
        probes = [probe for probe in _probes(self.target.modules) if probe.level == 1 and "*" not in probe.path]
        return [(probe.path, probe.attribute) for probe in probes if _has(self.module, probe)]

    def call(self, phase: Phase, batch_size: int = 1) -> Callable[[int], Any]:
        """Return a function of the iteration's index that calls the target that is on; the inputs wrap around.

        It returns the output's numbers as an array, an empty one where there are none. Their copying is not
        in the section. torch, NumPy and `random` draw the same numbers whenever the index is the same.

        Raises:
            UserError: a training phase; and by the function, that the target failed.
        """
        if phase != "inference":
            raise UserError(f"a call from Python is timed as a whole: no {phase}")

        def run(index: int) -> np.ndarray:
            numbers = extract_numbers(self.output(index))
            self.latest = replace(self.latest, form=replace(numbers, values=None))
            return numbers.values if numbers.values is not None else np.empty(0, np.float32)

        return run

    def hooks(self, phase: Phase, depth: int) -> list[Hook]:
        """Return the hooks on the modules inside the target that is on, down to ``depth`` levels."""
        if self.target.opaque or not self.target.modules:
            return []
        return self.family.hooks(self.target.owner, training=False, depth=depth)

    def traits(self, phase: Phase, batch_size: int) -> Traits:
        """Return how many inputs there are: what else a call works on is not known."""
        return Traits(call=CallTraits(inputs=len(self.inputs)))

    def first_calls(self, reporter: Callable[[str], None], targets: Sequence[Target] = ()) -> None:
        """Call each target with an input of each shape, before anything is timed, and note what would spoil a figure.

        What is compiled for a shape is compiled now. Each is called twice with the first input, to see whether it
        answers the same.

        Args:
            reporter: shows a stage, in words.
            targets: those to call; () for all.

        Raises:
            UserError: a target fails.
        """
        shapes = [extract_numbers(given).shapes for given in self.inputs]
        wanted = sorted({shape: index for index, shape in reversed(list(enumerate(shapes)))}.values())
        compiling = CompileWatch()
        for target in targets or self.targets:
            reporter(f"first calls of {target.name}")
            took_ms: list[float] = []
            with self.switch_target(target):
                for index in wanted:
                    before = self.input_digest(index)
                    output = self.output(index)
                    took_ms.append(self.latest.took_ms or 0.0)
                    if list_unfinished_arrays():
                        self._keeps.add(target.name)
                    if self.input_digest(index) != before:
                        self._caveats.append(
                            f"{target.name} changes an object in its inputs: later calls did not see what the first saw"
                        )
                    self._waits[target.name] = self._waits.get(target.name, False) or may_be_computing(output)
                self._note(target)
            if took_ms[0] > max(HANGS_MS, HANGS * (self.latest.took_ms or 0.0)):
                seconds = f"{took_ms[0] / 1e3:.3g} s, and a later one {units.short_ms(self.latest.took_ms or 0.0)} ms"
                self.notes.append(f"the first call of {target.name} took {seconds}: it is in no figure")
            compiling.look(self._compiled.setdefault(target.name, CompileLog()), -1)

    def compiled_before(self, name: str) -> CompileLog:
        """Return, once, what torch.compile did in the first calls of the target ``name``, or of the only target."""
        return self._compiled.pop(name if len(self.targets) > 1 else self.targets[0].name, CompileLog())

    @contextmanager
    def switch_target(self, target: Target) -> Iterator[None]:
        """Have ``target`` on for the time of the block."""
        before, self.target = self.target, target
        try:
            yield
        finally:
            self.target = before

    @contextmanager
    def generators_kept(self) -> Iterator[None]:
        """Restore the random generators of torch, NumPy and Python after the block."""
        numpy_state, python_state = np.random.get_state(), random.getstate()
        try:
            with generators_restored(self.device):
                yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)

    def output(self, index: int, *, reset: bool = True) -> object:
        """Return what the target that is on returns for input ``index``, once it is there.

        Args:
            reset: whether an object that has a `reset` is reset before.

        Raises:
            UserError: the target failed, or returned something that has not run yet.
        """
        target, place = self.target, index % len(self.inputs)
        given = self.inputs[place]
        arguments = copy_containers(given if type(given) is tuple else (given,))
        self._seed_generators(self.seed + index)
        waits = self._waits.get(target.name, True)
        try:
            if reset and target.before is not None:
                target.before()
            synchronise(self._accelerator)  # the copies of the input are there before the time begins
            with section(ITERATION):
                begun_s = time.perf_counter()
                output = target.call(*arguments)
                if waits:
                    await_output(output)
                if target.name in self._keeps:
                    await_output(list_unfinished_arrays())
                synchronise(self._accelerator)
                self.latest = Latest(took_ms=1e3 * (time.perf_counter() - begun_s), place=place)
        except TimeUpError:
            raise
        except (Exception, SystemExit) as error:
            words = f"{type(error).__name__}: {error_line(error, _MOST)}"
            raise UserError(f"'{target.name}' failed on input {place + 1} of {len(self.inputs)}: {words}") from error
        for _, leaf in leaves(output):
            if why := describe_unfinished(leaf):
                if hasattr(leaf, "close"):  # else a coroutine complains that nobody waited for it
                    leaf.close()
                raise UserError(f"'{target.name}' returned {why}")
        return output

    def _seed_generators(self, seed: int) -> None:
        if has_torch():
            import torch

            # Not torch.manual_seed: without a GPU in use it takes a millisecond, for a traceback of what it puts off.
            torch.default_generator.manual_seed(seed)
            if self._accelerator is not None:
                module: Any = torch.get_device_module(self._accelerator)
                getattr(module, "manual_seed_all", module.manual_seed)(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)

    def _note(self, target: Target) -> None:
        """Note what of ``target`` a reader of its figures must know."""
        first = extract_numbers(self.output(0))
        output = self.output(0)
        second = extract_numbers(output)
        if first.values is None or second.values is None:
            self._caveats.append(f"{target.name} returns no numbers to compare, but {first.kind or second.kind}")
        elif first.shapes != second.shapes:
            self._caveats.append(f"{target.name} answers one input in different shapes: {first.words}, {second.words}")
        elif words := first.unlike(second):
            self._caveats.append(f"{target.name} does not answer one input twice in the same way: {words}")
        elif (own := agree([first.values], [second.values])).largest_error > 0:
            self._caveats.append(
                f"{target.name} does not answer one input twice in the same way (largest difference "
                f"{own.largest_error:.3g}): how far it is from the others includes that"
            )
        if any(tensor.requires_grad for tensor in iter_tensors(output)):
            self.notes.append(f"{target.name} records gradients, as torch.no_grad() was not on around it")
        if any(getattr(module, "training", False) for inside in target.modules.values() for module in inside.modules()):
            self._caveats.append(f"{target.name} has modules in training mode: eval() was not called on all of them")

    def _device(self) -> torch.device:
        if not has_torch():
            return cast("torch.device", Processor())
        import torch

        if self.on:
            return torch.device(self.on)
        for target in self.targets:
            for parameter in target.module.parameters():
                return parameter.device
        tensors = [tensor for given in self.inputs for tensor in iter_tensors(given)]
        return next((tensor.device for tensor in tensors if tensor.device.type != "cpu"), torch.device("cpu"))

    def note_inputs(self, agreement: Agreement, places: Sequence[int]) -> None:
        """Write into ``agreement`` how many inputs differ; it is not judged where several inputs are one."""
        agreement.distinct = len({self.input_digest(place) for place in places})
        first = extract_numbers(self.inputs[0])
        if agreement.distinct == 1 < len(self.inputs) and not first.unseen and (first.shapes or first.texts):
            agreement.unjudged = f"all {len(self.inputs)} inputs are one: give others"

    def input_digest(self, index: int) -> str:
        """Return a digest of the numbers and the texts of input ``index``."""
        numbers = extract_numbers(self.inputs[index % len(self.inputs)])
        return digest([*([] if numbers.values is None else [numbers.values]), *numbers.texts])


def _accelerator() -> torch.device | None:
    if not has_torch():
        return None
    import torch

    return torch.accelerator.current_accelerator(check_available=True)


def _family(target: Target) -> Family:
    if "" in target.modules:
        module = target.modules[""]
        return _record(module) or build_module_family(module)
    if not target.modules:
        return Family("function", ())
    around = _foreign_family("policy of another project", target.owner)
    if around is None:
        return Family("modules", (), lambda _: _probes(target.modules))
    outer = around.probes or list_no_probes
    return Family(around.name, (), lambda owner: [*outer(owner), *_probes(target.modules)])


def _record(module: nn.Module) -> Family | None:
    """Return the record of a policy of a known type, or of a known class of another project; else None."""
    kind = getattr(getattr(module, "config", None), "type", None)
    known = find_family(kind) if isinstance(kind, str) else None
    return known if known and known.probes is not None else _foreign_family("module of another project", module)


def _has(module: nn.Module, probe: Probe) -> bool:
    try:
        return callable(getattr(attrgetter(probe.path)(module) if probe.path else module, probe.attribute, None))
    except AttributeError:
        return False


def _probes(modules: Mapping[str, nn.Module]) -> list[Probe]:
    probes: list[Probe] = []
    for name, module in modules.items():
        record = _foreign_family("module of another project", module)
        if record is None:
            probes += _method_probes(name, module)
            record = build_module_family(module)
        inside = record.probes or list_no_probes
        for probe in inside(module):
            probes.append(replace(probe, path=f"{name}.{probe.path}" if probe.path else name, optional=True))
    return probes


def _method_probes(name: str, module: nn.Module) -> Iterator[Probe]:
    label = name.replace("{", "").replace("}", "")
    yield Probe.module(name, label, optional=True)
    if not type(module).__module__.startswith(("torch.", "strobe.")):
        for method, function in vars(type(module)).items():
            works = inspect.isfunction(function) and not inspect.isgeneratorfunction(function)
            if works and not method.startswith("_") and method != "forward":
                yield Probe.method(name, method, f"{label}.{method}", optional=True)


def _foreign_family(what: str, target: object) -> Family | None:
    """Return the record of a module or a policy of openpi or Isaac-GR00T; None of any other object."""
    record_of = Offer[Callable[[object], Family | None]](what).find()
    return record_of(target) if record_of is not None else None
