"""Where the flow policies (pi0, pi0.5, SmolVLA) keep what their treatments change.

They share one way of inference (`sample_actions`): `embed_prefix` turns images and words into tokens, a pass over them
fills the key-value cache, and `denoise_step` runs over it, from t = 1 to t = 0. Treatments are for that way alone:
where gradients are wanted (training, RTC's autograd) they step aside, since what they reuse would hold its graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from strobe.errors import UserError
from strobe.subjects.anatomies import pi, smolvla
from strobe.subjects.subject import Subject
from strobe.treatments.parts import is_flow
from strobe.treatments.treatment import Spec, Treatment

SMOLVLA = "smolvla"

_STEP = ("prefix_pad_masks", "past_key_values", "x_t", "timestep")
STEP_ARGUMENTS = {"pi0": ("state", *_STEP), "pi05": _STEP, SMOLVLA: _STEP}


@dataclass(frozen=True)
class Flow:
    """A flow policy's modules: ``joint`` holds both transformers, whose layers are ``language`` and ``expert``'s."""

    kind: str
    policy: Any
    model: Any
    joint: Any
    language: Any
    expert: Any

    def step_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What ``denoise_step`` was called with, by name."""
        return {**dict(zip(STEP_ARGUMENTS[self.kind], args, strict=False)), **kwargs}

    def module_of(self, model: Any) -> Any:
        """The module of LeRobot that defines ``model``'s class, with the functions that it calls."""
        return sys.modules[type(model).__module__]


def flow_of(subject: Subject) -> Flow:
    """``subject``'s modules. Raises UserError if it is no pi0, pi0.5 or SmolVLA."""
    if not is_flow(subject):
        raise UserError(f"{subject.info.name}: this is for pi0, pi0.5 and SmolVLA")
    kind, module = subject.info.kind, subject.module
    if kind == SMOLVLA:
        joint: Any = module.get_submodule(smolvla.JOINT)
        return Flow(kind, module, module.model, joint, joint.get_vlm_model().text_model, joint.lm_expert)
    joint = module.get_submodule(pi.JOINT)
    language, expert = module.get_submodule(pi.LANGUAGE), module.get_submodule(pi.EXPERT)
    return Flow(kind, module, module.model, joint, language, expert)


def worth(*specs: Spec) -> Callable[[Subject], list[Spec]]:
    """``Entry.candidates`` of what every flow policy can have."""
    return lambda subject: list(specs) if is_flow(subject) else []


def one_value(spec: Spec, key: str, value: str) -> None:
    """Raises UserError unless ``spec`` gives ``key`` the one value that it has."""
    if spec[key] != value:
        raise UserError(f"{key}={spec[key]}: '{value}' is the only value")


def only(key: str, value: str, make: Callable[[], Treatment]) -> Callable[[Spec], Treatment]:
    """``Entry.make`` of a treatment that has one value and no options."""

    def made(spec: Spec) -> Treatment:
        one_value(spec, key, value)
        return make()

    return made


def deriving() -> bool:
    """Whether gradients are wanted of what is computed now."""
    return torch.is_grad_enabled()


def weights_seen(*modules: nn.Module) -> tuple[tuple[int, int, torch.dtype], ...]:
    """What tells whether the weights of ``modules`` are those that were there before."""
    return tuple((p.data_ptr(), p._version, p.dtype) for module in modules for p in module.parameters())
