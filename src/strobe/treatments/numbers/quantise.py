"""int8 and fp8: the weights of linear layers in 8 bits, and in the faster forms what the layers are given too.

A product of 8-bit numbers takes half the time of one of 16 bits where the processor has the instructions (AVX-512 VNNI,
tensor cores), and half the memory to read. Measured here, one core with AVX-512 VNNI and bfloat16, 512 tokens, 1024 to
4096 features, eagerly: float32 45 ms, bfloat16 21.5, int8 'dynamic' 12.7; for 50 tokens 6.0, 2.6 and 1.5 ms. 'weights'
alone halves the memory and makes a CPU slower (50 tokens: 6.9 and 3.3 ms), because they are made floats again in every
call. Neither needs torch.compile to be fast.

The 8-bit copies are made once. Around a call they take the place of the parameters, and the very same parameters come
back, so other variants, probes and the optimizer see what they knew. To the outside a copy has the dtype that it was
made from, which LeRobot's pi policies ask a layer for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from strobe.core.devices.accelerators import generators_restored
from strobe.core.errors import UserError, install, nearest
from strobe.core.results.traits import TreatmentTraits
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.layers import Call
from strobe.core.timeline.sections import recording
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.room import numbers, require_room
from strobe.core.treatments.switch import entry
from strobe.core.treatments.treatment import FOR_INFERENCE, Entry, Spec, Treatment, Undo
from strobe.treatments.parts import dominant, find_part, named_parts

FORMS = {"int8": ("weights", "dynamic"), "fp8": ("weights", "dynamic", "static")}

# What turns states, noise and times into tokens, and tokens into actions or words: small, and what they round is all
# the policy's.
BORDERS = (
    "action_in_proj",
    "action_out_proj",
    "action_head",
    "state_proj",
    "time_mlp_in",
    "time_mlp_out",
    "action_time_mlp_in",
    "action_time_mlp_out",
    "lm_head",
)
SMALLEST = 32  # features in or out; below, the scaling costs more than the product saves
MULTIPLE = 16  # multiple of features that 8-bit products on CUDA need
WORTH_TRYING = 0.35  # least share of a part's weights that can be quantised; convolutions cannot
LEAST_FP8 = (8, 9)  # compute capability with products of float8: Ada, Hopper, later
CALIBRATED = 8  # observations that 'static' measures its scales on


@dataclass
class Quantised(Treatment):
    """Linear layers in 8 bits, of the whole or of the module at the path ``part``.

    Args:
        kind: 'int8' (CPU, CUDA), or 'fp8' (CUDA, compute capability 8.9 or later).
        form: 'weights' alone; 'dynamic': the inputs of the layers too, scaled as they come; 'static' (fp8): scaled by
            what ``CALIBRATED`` of the subject's own observations showed, which spares looking at every input first.

    Left as they are: ``BORDERS``, layers below ``SMALLEST`` or of sizes that are no multiple of ``MULTIPLE``, those
    that hold quantised weights already, and attention that keeps its weights outside of linear layers (torch's
    MultiheadAttention, as in ACT). 'static' also leaves what no observation reached.
    """

    kind: Literal["int8", "fp8"]
    form: str = "dynamic"
    part: str = ""
    _layers: list[_Layer] = field(default_factory=list, init=False, repr=False)
    _skipped: list[str] = field(default_factory=list, init=False, repr=False)
    _prepared: bool = field(default=False, init=False, repr=False)
    effect = "lossy"
    phases = FOR_INFERENCE
    copies_weights = True

    def __post_init__(self) -> None:
        if self.form not in FORMS[self.kind]:
            raise UserError(f"{self.kind}={self.form}: {nearest(self.form, FORMS[self.kind])}")
        self.key, self.dtypes = self.kind, ("int8" if self.kind == "int8" else "float8_e4m3fn",)

    def traits(self) -> TreatmentTraits:
        traits = TreatmentTraits(key=self.key, value=self.form, part=self.part)
        if self._prepared:
            traits.layers, traits.left_out = len(self._layers), list(self._skipped)
        return traits

    def apply(self, subject: Subject) -> Undo:
        self.check_device(subject.device)
        if not self._prepared:
            self._prepare(subject)
        for layer in self._layers:
            layer.quantise()
        stack = ExitStack()
        try:
            stack.callback(_back, self._layers)
            for layer in self._layers:
                layer.to_copy()
        except BaseException:
            stack.close()
            raise
        return stack.close

    def check_device(self, device: torch.device) -> None:
        try:
            importlib.import_module("torchao")
        except ImportError:
            raise UserError(f"{self.kind} needs torchao: {install('quantise')}") from None
        if self.kind == "int8" and device.type not in ("cpu", "cuda"):
            raise UserError(f"int8 products need a CPU or CUDA, not {device.type}")
        if self.kind == "fp8":
            require_fp8(device)

    def _prepare(self, subject: Subject) -> None:
        part = find_part(subject.module, self.part)
        chosen, self._skipped = find_quantizable_layers(part)
        what = f"'{self.part}'" if self.part else subject.info.name
        if not chosen:
            raise UserError(f"{what} has no linear layer to quantise: {', '.join(self._skipped) or 'none at all'}")
        from strobe.treatments.numbers import quantised_weights

        kind = quantised_weights.INT8 if self.kind == "int8" else quantised_weights.FLOAT8
        inputs = "float" if self.form == "weights" else self.form
        scales: dict[int, Tensor] = {}
        if self.form == "static":
            largest = quantised_weights.LARGEST[kind]
            scales = {key: seen / largest for key, seen in observe_input_maxima(subject, chosen).items()}
            unseen = [module for module in chosen if id(module) not in scales]
            self._skipped += [f"{len(unseen)} that no observation reached"] if unseen else []
            chosen = [module for module in chosen if id(module) in scales]
        made = partial(quantised_weights.quantize_weight, kind=kind, inputs=inputs)
        require_room(numbers(module.weight for module in chosen), f"a copy in {self.kind}", subject)
        copies: dict[object, nn.Parameter] = {}  # of tied weights there is one
        self._layers = [_Layer(module, made, scales.get(id(module)), copies) for module in chosen]
        self._prepared = True


@dataclass(eq=False)
class _Layer:
    """A linear layer, its own parameter, and the copies in 8 bits, of which there may be several under a precision."""

    module: nn.Module
    made: Call
    input_scale: Tensor | None
    copies: dict[object, nn.Parameter]
    _own: Any = None
    _copy: nn.Parameter | None = None
    _key: object = None

    def quantise(self) -> None:
        """Make the copy where there is none of the weights as they are now."""
        weight = self.module._parameters["weight"]
        assert weight is not None
        key = (weight.data_ptr(), weight._version, weight.dtype, tuple(weight.shape))
        if key == self._key:
            return
        self.copies.pop(self._key, None)  # weights that have changed will not come back
        if key not in self.copies:
            data = self.made(weight.detach(), input_scale=self.input_scale)
            self.copies[key] = nn.Parameter(data, requires_grad=False)
        self._key, self._copy = key, self.copies[key]

    def to_copy(self) -> None:
        self._own = self.module._parameters["weight"]
        self.module._parameters["weight"] = self._copy

    def to_own(self) -> None:
        if self._own is not None:
            self.module._parameters["weight"], self._own = self._own, None


def _back(layers: Sequence[_Layer]) -> None:
    for layer in layers:
        layer.to_own()


def find_quantizable_layers(part: nn.Module) -> tuple[list[nn.Linear], list[str]]:
    """Return the layers to quantise, and those left as they are, in words."""
    chosen: list[nn.Linear] = []
    borders: dict[str, None] = {}
    small = packed = outside = 0
    for path, module in part.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            outside += 1
        if not isinstance(module, nn.Linear) or isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear):
            continue
        if type(module.weight) is not nn.Parameter or not module.weight.is_floating_point():
            packed += 1
        elif path.rsplit(".", 1)[-1] in BORDERS:
            borders[path.rsplit(".", 1)[-1]] = None
        elif min(module.weight.shape) < SMALLEST or any(size % MULTIPLE for size in module.weight.shape):
            small += 1
        else:
            chosen.append(module)
    others = list(borders)
    others += [f"{small} small layers"] if small else []
    others += [f"{packed} quantised already"] if packed else []
    others += [f"{outside} attentions that keep their weights outside of linear layers"] if outside else []
    return chosen, others


def _share(part: nn.Module) -> float:
    linear = sum(module.weight.numel() for module in find_quantizable_layers(part)[0])
    return linear / max(1, sum(weight.numel() for weight in part.parameters()))


def observe_input_maxima(subject: Subject, layers: Iterable[nn.Module]) -> dict[int, Tensor]:
    """Return ``id`` of a layer → the largest number that it was given in ``CALIBRATED`` observations, a float32 scalar.

    The policy runs unchanged, with the treatments below this one on. Layers that were not called are left out.
    """
    seen: dict[int, Tensor] = {}

    def watching(inner: Call, key: int) -> Call:
        def forward(input: Tensor) -> object:
            highest = input.detach().abs().amax().float()
            seen[key] = torch.maximum(seen[key], highest) if key in seen else highest
            return inner(input)

        return forward

    patches = Patches()
    try:
        for layer in layers:
            patches.wrap(layer, "forward", partial(watching, key=id(layer)))
        call = subject.call("inference", 1)
        # Not on the timeline, and eagerly: what is compiled would not see the watchers come and go.
        with recording(None), torch.compiler.set_stance("force_eager"), generators_restored(subject.device):
            for index in range(CALIBRATED):
                call(index)
    finally:
        patches.undo()
    return {key: highest for key, highest in seen.items() if highest > 0 and highest.isfinite()}


def require_fp8(device: torch.device) -> None:
    """Raise UserError if the device has no products of float8."""
    if device.type != "cuda":
        raise UserError(f"fp8 needs CUDA and compute capability 8.9 or later; on {device.type} use int8")
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) < LEAST_FP8:
        raise UserError(f"fp8 needs compute capability 8.9 or later, this device has {major}.{minor}: use int8")


def _make(spec: Spec, kind: Literal["int8", "fp8"]) -> Quantised:
    form = "dynamic" if spec[kind] is True else str(spec[kind])
    return Quantised(kind, form, str(spec.get(f"{kind}.part", "")))


def _candidates(subject: Subject, kind: Literal["int8", "fp8"]) -> list[Spec]:
    """Return each part that the time goes to, then all of it; fp8 where the device has it."""
    try:
        if kind == "fp8":
            require_fp8(subject.device)
        elif subject.device.type not in ("cpu", "cuda"):
            return []
    except UserError:
        return []
    modules = dict(subject.module.named_modules())
    parts = [path for path in dominant(subject) if _share(modules[path]) > WORTH_TRYING]
    forms = ("static", "dynamic") if kind == "fp8" else ("dynamic",)
    whole: list[Spec] = [{kind: form} for form in forms] if parts else []
    return [*whole, *({kind: forms[0], f"{kind}.part": path} for path in parts)]


def _parts(subject: Subject, spec: Spec) -> tuple[str, ...]:
    kind = next(iter(spec))
    path = str(spec.get(f"{kind}.part", ""))
    return named_parts(subject, [path] if path else [])


def _entry(kind: Literal["int8", "fp8"]) -> Entry:
    return entry(kind, partial(_make, kind=kind), candidates=partial(_candidates, kind=kind), parts=_parts)


INT8, FP8 = _entry("int8"), _entry("fp8")
