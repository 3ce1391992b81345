"""Where flow policies (such as pi0.5 and SmolVLA) keep what their treatments change.

They share one way of inference (`sample_actions`): `embed_prefix` turns images and words into tokens, a pass over them
fills the key-value cache, and `denoise_step` runs over it, from t = 1 to t = 0. Treatments are for that way alone:
where gradients are wanted (training, RTC's autograd) they step aside, since what they reuse would hold its graph.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import nn

from strobe.errors import UserError
from strobe.policies.families import family as families
from strobe.policies.families.registry import steps_of, types_with
from strobe.policies.policy_subject import PolicySubject
from strobe.policies.subject import Subject


@dataclass(frozen=True)
class FlowModules:
    """A flow policy's modules: ``joint`` holds both transformers, whose layers are ``language`` and ``expert``'s."""

    sampling: families.Flow
    policy: Any
    model: Any
    joint: Any
    language: Any
    expert: Any
    steps: int  # denoising steps of a chunk

    def step_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return what ``denoise_step`` was called with, by name."""
        names = list(signature(type(self.model).denoise_step).parameters)[1:]  # without self
        return {**dict(zip(names, args, strict=False)), **kwargs}

    def module_of(self, model: Any) -> Any:
        """The module of LeRobot that defines ``model``'s class, with the functions that it calls."""
        return sys.modules[type(model).__module__]


def flow_of(subject: Subject) -> FlowModules:
    """Return ``subject``'s modules. Raises UserError if its family's record has no flow."""
    sampling = subject.family.flow if isinstance(subject, PolicySubject) else None
    if sampling is None:
        raise UserError(f"{subject.info.name}: this is for {', '.join(types_with(lambda family: family.flow))}")
    module: Any = subject.module
    joint, language, expert = map(module.get_submodule, (sampling.joint, sampling.language, sampling.expert))
    steps = steps_of(module.config)
    return FlowModules(sampling, module, module.model, joint, language, expert, steps or 0)


def deriving() -> bool:
    """Whether gradients are wanted of what is computed now."""
    return torch.is_grad_enabled()


def weights_seen(*modules: nn.Module) -> tuple[tuple[int, int, torch.dtype], ...]:
    """Return a fingerprint of the weights of ``modules``: another one where a weight was replaced or changed."""
    return tuple((p.data_ptr(), p._version, p.dtype) for module in modules for p in module.parameters())
