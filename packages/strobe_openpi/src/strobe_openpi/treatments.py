"""Exact treatments on openpi's own PyTorch pi0 and pi0.5, in openpi's environment. Needs neither openpi nor LeRobot.

import strobe_openpi

on = strobe_openpi.apply_treatments(policy, "prefix_cache=static, timesteps=precomputed, masks=once, graph=chunk")
policy.infer(observation)
on.revert()

openpi's ``sample_actions`` looks at the time in every denoising step on the host, which no CUDA graph allows. Here the
times are known before (`times`), so that the whole call can be one graph. The operators and their order are openpi's
(``src/openpi/models_pytorch/pi0_pytorch.py``, commit 15a9616, Apache-2.0).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import MethodType, SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from strobe.core.errors import UserError
from strobe.core.families.family import Family
from strobe.core.results.subject import SubjectInfo
from strobe.core.subjects.subject import Subject, count
from strobe.core.treatments.catalogue import compose, parse
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.treated import Treated, find_treated
from strobe.core.treatments.treatment import FOR_INFERENCE, Treatment, Undo, Variant
from strobe.lerobot.families import pi
from strobe.lerobot.other_projects import module_of_other_project
from strobe.lerobot.sampling import Flow, Graphs

EXACT = ("prefix_cache=static", "timesteps=precomputed", "masks=once", "graph=chunk")  # those that were held to the bit
STEPS = 10  # denoising steps that openpi's ``sample_actions`` takes by default


def times(steps: int) -> list[float]:
    """Return the times of ``steps`` denoising steps, as openpi adds them up in float32: 1, 1 - 1/steps and so on."""
    # Not by tensors: a graph is captured around this, and none of them may be looked at in it.
    step, time = np.float32(-1.0 / steps), np.float32(1.0)
    found: list[float] = []
    while time >= -step / np.float32(2):
        found.append(float(time))
        time = time + step
    return found


FLOW = Flow(
    joint=pi.JOINT,
    language=pi.LANGUAGE,
    expert=pi.EXPERT,
    chunk="predict_action_chunk",
    images="_preprocess_observation",
    suffix_pass=pi.suffix_pass,
    attention_mask=lambda model, mask: model._prepare_attention_masks_4d(mask),
    cache_on_request=True,
    times=times,
    periods=(4e-3, 4.0),  # as openpi's ``embed_suffix`` writes them
)
FAMILY = replace(pi.FAMILY, types=(), capabilities=(FLOW, Graphs(whole=("sampler", "run"))))


def sample(
    model: Any,
    images: Sequence[Tensor],
    image_masks: Sequence[Tensor],
    tokens: Tensor,
    token_masks: Tensor,
    state: Tensor,
    noise: Tensor,
    steps: int,
) -> Tensor:
    """Return the actions, (B, horizon, action dim), of prepared inputs: all that a graph of the whole call holds."""
    embedded, pads, order = model.embed_prefix(images, image_masks, tokens, token_masks)
    attention = model._prepare_attention_masks_4d(_modeling(model).make_att_2d_masks(pads, order))
    model.paligemma_with_expert.paligemma.language_model.config._attn_implementation = "eager"
    _, cache = model.paligemma_with_expert.forward(
        attention_mask=attention,
        position_ids=torch.cumsum(pads, dim=1) - 1,
        past_key_values=None,
        inputs_embeds=[embedded, None],
        use_cache=True,
    )
    step = torch.tensor(-1.0 / steps, dtype=torch.float32, device=noise.device)
    actions = noise
    for value in times(steps):
        time = torch.tensor(value, dtype=torch.float32, device=noise.device).expand(len(state))
        actions = actions + step * model.denoise_step(state, pads, cache, actions, time)
    return actions


class _Policy(nn.Module):
    """openpi's model in the place of a policy's ``model``, where treatments look for it."""

    def __init__(self, model: Any, steps: int) -> None:
        super().__init__()
        self.model, self.training = model, model.training
        self.config = SimpleNamespace(type="pi05" if model.pi05 else "pi0", num_inference_steps=steps)
        self.sampler = SimpleNamespace(run=partial(sample, model))

    def predict_action_chunk(self, *given: Any) -> Tensor:
        """Return what the sampler makes of tensors."""
        return self.sampler.run(*given)


@dataclass
class _Subject:
    """As much of an acting subject as these treatments ask for."""

    module: _Policy
    info: SubjectInfo
    family: Family = FAMILY

    @property
    def policy(self) -> _Policy:
        return self.module

    @property
    def acting(self) -> _Subject:
        return self

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device


@dataclass
class _Known(Treatment):
    """``sample_actions`` with its times known before; ``holder``: openpi's `Policy`, which has the method by itself.

    The first call is made by the baseline too.
    """

    holder: Any = None
    effect = "exact"
    phases = FOR_INFERENCE
    _tried: bool = field(default=False, init=False, repr=False)

    def apply(self, subject: Subject) -> Undo:
        policy: Any = subject.module
        model, steps = policy.model, policy.config.num_inference_steps

        @torch.no_grad()
        def sample_actions(device: Any, observation: Any, noise: Any = None, num_steps: int = STEPS) -> Tensor:
            if num_steps != steps:
                raise UserError(
                    f"the treatments are for {steps} denoising steps, not {num_steps}: apply_treatments(…, steps=…)"
                )
            if noise is None:
                shape = (observation.state.shape[0], model.config.action_horizon, model.config.action_dim)
                noise = model.sample_noise(shape, device)
            own = None if self._tried else _baseline_actions(model, device, observation, noise, num_steps)
            prepared = model._preprocess_observation(observation, train=False)
            actions = policy.predict_action_chunk(*prepared, noise, num_steps)
            if own is not None and not torch.equal(own.nan_to_num(), actions.nan_to_num()):
                raise UserError("this openpi samples differently from 15a9616, so the treatments are not exact")
            self._tried = True
            return actions

        patches = Patches()
        patches.put(model, "sample_actions", sample_actions)
        if self.holder is not None:
            patches.put(
                self.holder, "_sample_actions", MethodType(_sample_actions, model)
            )  # a copy calls its own model's
        return patches.undo


def apply_treatments(
    given: Any, treatments: str, *, steps: int | None = None, replacing: Mapping[str, Treatment] | None = None
) -> Treated:
    """Put exact treatments on openpi's model until ``off`` of the result is called.

    Args:
        given: a `PI0Pytorch`, or openpi's `Policy` with one. ``sample_actions`` that openpi compiled is not used
            meanwhile: the bits are those of the method as openpi wrote it.
        treatments: some of `EXACT`, with commas between them.
        steps: denoising steps of every call; None: those of the `Policy`, or `STEPS`.
        replacing: key → the treatment in the place of the one that is written.

    Raises:
        UserError: no such model, another treatment, fewer than one step, or treatments are on already. The first call
            raises it unless its actions are those of the baseline to the bit.
    """
    holder = given if hasattr(given, "_model") and hasattr(given, "_sample_actions") else None
    model = given if holder is None else given._model
    known = module_of_other_project(model)
    if known is None or known.name != pi.FAMILY.name or not hasattr(_modeling(model), "make_att_2d_masks"):
        raise UserError(f"{type(model).__name__}: pass openpi's PI0Pytorch, or its Policy with one")
    own: int = (getattr(holder, "_sample_kwargs", None) or {}).get("num_steps", STEPS)
    number = own if steps is None else steps
    if number < 1:
        raise UserError(f"steps={number}: must be at least 1")
    specs = parse(treatments)
    for key, value in ((key, value) for spec in specs for key, value in spec.items()):
        if f"{key}={value}" not in EXACT:
            raise UserError(f"{key}={value} is not for openpi's model: use {', '.join(EXACT)}")
    if (on := find_treated(model)) is not None:
        raise UserError(f"{on.variant.name} is already applied to this model: revert it first")
    policy = _Policy(model, number)
    named: Any = {"name": type(model).__name__, "kind": policy.config.type, "source": "an object", "inputs": "its own"}
    subject = _Subject(policy, SubjectInfo(**named, **count(model)))
    made = [(replacing or {}).get(each.key, each) for each in compose(specs)]
    return Treated(cast("Subject", subject), Variant(treatments, (_Known(holder), *made)))


def _sample_actions(model: Any, *args: Any, **given: Any) -> Tensor:
    return model.sample_actions(*args, **given)


def _modeling(model: Any) -> Any:
    return sys.modules[type(model).__module__]


def _baseline_actions(model: Any, device: Any, observation: Any, noise: Tensor, steps: int) -> Tensor:
    on = find_treated(model)
    with nullcontext() if on is None else on.restore_baseline("the first call"):
        return type(model).sample_actions(model, device, observation, noise=noise, num_steps=steps)
