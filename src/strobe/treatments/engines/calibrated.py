"""A part of the subject in an engine of 8 bits, calibrated on the subject's own observations: OpenVINO, TensorRT.

A product of 8-bit numbers takes half the time of one in bfloat16 where the processor has the instructions: int8 on CPUs
with AVX-512 VNNI or AMX, convolutions included, and fp8 on tensor cores. What it takes is scales, and these are of the
observations that they were measured on. So an engine is kept under the name of the observations. A robot's program
loads the policy before it has seen anything: it takes the newest engine that was calibrated on data, and never makes
one of made-up pictures.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from strobe.core.errors import UserError
from strobe.core.results.traits import TreatmentTraits
from strobe.core.subjects.subject import InputSource, Subject
from strobe.core.timeline.layers import Call as Forward
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import entry
from strobe.core.treatments.treatment import Spec, Treatment
from strobe.treatments.engines.backends import FP8, INT8, MODELOPT, Run, require_nncf
from strobe.treatments.engines.built import Target
from strobe.treatments.engines.engine import PartInEngine
from strobe.treatments.engines.offered import ENTRY as ENGINE
from strobe.treatments.engines.offered import find_engine, list_cacheless_parts, slow_to_build
from strobe.treatments.engines.recorded import Call
from strobe.treatments.numbers.quantise import find_quantizable_layers, observe_input_maxima, require_fp8

LARGE = 2e8  # numbers of a part's weights, from which calibrating takes a minute or more


@dataclass
class _Calibrated(PartInEngine):
    """A part in an engine with scales of the observations. Shapes that no observation had are torch's."""

    inferences = 4
    grows = False

    def _precision_name(self, precision: str) -> str:
        return precision

    def _cached_file(self, file: Path, subject: Subject) -> Path:
        fed = subject.input_source
        if fed.kind != "pending":
            return file.with_name(f"{file.stem}.{fed.name}{file.suffix}")
        made_up = InputSource("made up").name
        of_data = [engine for engine in file.parent.glob(f"{file.stem}.*{file.suffix}") if made_up not in engine.name]
        return max(of_data, key=lambda engine: engine.stat().st_mtime, default=file)

    def _least(self, subject: Subject) -> float:
        # Pictures that are made up may be brighter than any that it was calibrated on.
        return 0.0 if subject.input_source.kind == "pending" else super()._least(subject)

    def _build_engine(
        self,
        subject: Subject,
        target: Target,
        calls: Sequence[Call],
        places: Sequence[int],
        noise: Sequence[Tensor],
        keep: Path,
    ) -> Run:
        if subject.input_source.kind == "pending":
            raise UserError(
                f"'{self.part}' in {self.precision} is calibrated on observations, and this machine has no such "
                "engine: run strobe verify RECIPE with --dataset.root=FOLDER here first"
            )
        with self._calibrated_layers(subject, target.module):
            return super()._build_engine(subject, target, calls, places, noise, keep)

    def _calibrated_layers(self, subject: Subject, part: nn.Module) -> AbstractContextManager[None]:
        return nullcontext()  # the engine finds its scales itself


@dataclass
class CalibratedPart(_Calibrated, key="int8_engine"):
    """The module at the path ``part`` in an engine in int8; what does not gain from it stays in bfloat16 or float32."""

    precision: str = INT8
    recorded = 32

    def __post_init__(self) -> None:
        if self.engine != "openvino":
            raise UserError(f"int8_engine={self.engine}: only openvino supports it")
        super().__post_init__()

    def check_device(self, device: torch.device) -> None:
        """Raise UserError off the CPU, and without OpenVINO or NNCF."""
        super().check_device(device)
        require_nncf()


@dataclass
class Float8Part(_Calibrated, key="engine"):
    """The module at the path ``part`` in an engine whose linear layers multiply in float8, those of ``fp8=static``.

    Each is given its input and its weights by way of ModelOpt's operator, with one scale of each: what TensorRT takes
    (https://github.com/pytorch/TensorRT, ``dynamo/conversion/impl/quantize.py``).
    """

    precision: str = FP8
    _layers: int | None = field(default=None, init=False, repr=False)
    _skipped: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.engine != "tensorrt":
            raise UserError(f"engine.precision=fp8: only tensorrt supports it, but this is engine={self.engine}")
        super().__post_init__()
        self.effect = "lossy"

    def traits(self) -> TreatmentTraits:
        """Return what a result says of it. An engine from the cache does not know its layers."""
        traits = super().traits()
        traits.layers, traits.left_out = self._layers, list(self._skipped)
        return traits

    def check_device(self, device: torch.device) -> None:
        """Raise UserError off a card that has float8, and without torch-tensorrt or ModelOpt."""
        super().check_device(device)
        require_fp8(device)
        try:
            importlib.import_module(f"{MODELOPT}.torch.quantization")
        except ImportError:
            raise UserError("engine.precision=fp8 needs ModelOpt: pip install nvidia-modelopt") from None

    @contextmanager
    def _calibrated_layers(self, subject: Subject, part: nn.Module) -> Iterator[None]:
        layers, self._skipped = find_quantizable_layers(part)
        largest = observe_input_maxima(subject, layers)
        if unseen := sum(id(layer) not in largest for layer in layers):
            self._skipped.append(f"{unseen} that no observation reached")
        self._layers = len(layers) - unseen
        if not self._layers:
            raise UserError(f"'{self.part}' has no linear layer for fp8: {', '.join(self._skipped) or 'none at all'}")
        patches = Patches()
        try:
            for layer in layers:
                if id(layer) in largest:
                    patches.wrap(
                        layer, "forward", partial(_wrap_float8_forward, layer=layer, largest=largest[id(layer)])
                    )
            yield
        finally:
            patches.undo()


def _wrap_float8_forward(_: Forward, layer: nn.Linear, largest: Tensor) -> Forward:
    """Return the forward of ``layer`` with its input and weights rounded to float8; ``largest``: of its inputs."""
    of_weights = layer.weight.detach().abs().amax().float()

    def round_to_float8(value: Tensor, most: Tensor) -> Tensor:
        return torch.ops.tensorrt.quantize_op(value, most, 8, 4, False, False)  # 8 bits, 4 of them the exponent

    return lambda input: functional.linear(
        round_to_float8(input, largest), round_to_float8(layer.weight, of_weights), layer.bias
    )


def _make_engine(spec: Spec) -> Treatment:
    if str(spec.get("engine.precision", "")).lower() == FP8:
        return Float8Part(str(spec["engine"]), str(spec.get("engine.part", "")))
    return ENGINE.make(spec)


WITH_FP8 = replace(ENGINE, make=_make_engine)


def _make(spec: Spec) -> CalibratedPart:
    return CalibratedPart(str(spec["int8_engine"]), str(spec.get("int8_engine.part", "")))


def _candidates(subject: Subject) -> list[Spec]:
    try:
        require_nncf()
    except UserError:
        return []
    if INT8 not in find_engine(subject.device)[1]:
        return []
    return [{"int8_engine": "openvino", "int8_engine.part": path} for path in list_cacheless_parts(subject)]


ENTRY = entry(
    "int8_engine",
    _make,
    candidates=_candidates,
    parts=ENGINE.parts,
    replaces=True,
    alone=partial(slow_to_build, large=LARGE),
    slot="engine",
)
