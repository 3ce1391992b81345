"""A training step on an emulated device, beside the same on the plain CPU: are loss, gradient and moments equal?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from strobe.commands.variants import parse_levers
from strobe.core.treatments.treatment import Variant
from strobe.core.treatments.words import LEVERS
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject
from support.devices.emulated_device import EmulatedDevice

CHECKPOINTS = "gradient_checkpointing"  # a setting of the policy's config, where there is one
ON_BASELINE = "untouched"
# Lever on the device → the same on a CPU, where it is written in another way.
ON_A_CPU = {"amp": "amp=fp16", "tf32": ON_BASELINE, "tf32=false": ON_BASELINE, "cudnn=default": ON_BASELINE}
WRITTEN = {"tf32": "tf32=false", "cudnn": "cudnn=default"}  # what a training step has on already
BATCH = 2


@dataclass(frozen=True)
class Trained:
    """The outcome of a lever on one policy: which of loss, gradient, moments are not equal, or why there are none.

    ``refused``: in what words the CPU's own torch refuses the lever, which the device must do in the same words.
    """

    kind: str
    lever: str
    checkpoints: bool
    unequal: tuple[str, ...]
    error: str = ""
    refused: str = ""

    @property
    def holds(self) -> bool:
        """Whether all bits are equal."""
        return not self.error and not self.unequal

    @property
    def lever_text(self) -> str:
        """The lever, and whether activations are computed again."""
        return f"{self.lever}{', activation checkpoints' if self.checkpoints else ''}"


def all_levers(*, half: bool = True) -> list[str]:
    """Return every lever, and several together; none that compiles, which cannot be emulated.

    ``half``: also those in float16, which is slow on a CPU.
    """
    alone = [WRITTEN.get(name, name) for name in LEVERS if name not in ("amp", "compile", "accumulate")]
    halves = ["amp", "amp=fp16"] if half else []
    return [ON_BASELINE, *alone, *halves, "amp=bf16", "accumulate=2", "tf32+amp=bf16+channels_last+fused+accumulate=2"]


def has_checkpoints(kind: str) -> bool:
    """Whether a type of policy can compute its activations again in the backward pass."""
    return hasattr(pair(kind, False)[0].policy.config, CHECKPOINTS)


@cache
def pair(kind: str, checkpoints: bool) -> tuple[PolicySubject, PolicySubject]:
    """Two tiny policies of the same weights, fed the same batch: one for the CPU, one for the device."""
    settings = ["--device=cpu", *([f"--{CHECKPOINTS}=true"] if checkpoints else [])]
    one, other = (
        load_subject(PolicyOptions(type=kind, size="tiny", overrides=settings), InputOptions(image_size=(64, 64)))
        for _ in range(2)
    )
    batch = one.inputs.batch(BATCH)
    one.inputs.make_batch = other.inputs.make_batch = lambda _: batch
    return one, other


def train_both_ways(kind: str, lever: str, checkpoints: bool = False) -> Trained:
    """Take a step both ways, and compare."""
    plain, held = pair(kind, checkpoints)
    expected = _try_step(plain, "+".join(ON_A_CPU.get(one, one) for one in _effective_levers(lever)))
    with EmulatedDevice() as device, device.holding(held):
        found = _try_step(held, lever)
    if isinstance(found, str) or isinstance(expected, str):
        if found == expected:
            return Trained(kind, lever, checkpoints, (), refused=str(found))
        return Trained(kind, lever, checkpoints, (), f"here {_word(found)}, on a CPU {_word(expected)}")
    unequal = tuple(name for name, tensors in expected.items() if not _equal(tensors, found[name]))
    return Trained(kind, lever, checkpoints, unequal)


def _try_step(subject: PolicySubject, lever: str) -> dict[str, list[Tensor]] | str:
    try:
        return _step(subject, lever)
    except Exception as error:  # of whatever kind: it is the answer
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _word(found: dict[str, list[Tensor]] | str) -> str:
    return found if isinstance(found, str) else "it runs"


def _effective_levers(lever: str) -> Sequence[str]:
    parts = lever.split("+")
    return [one for one in parts if ON_A_CPU.get(one) != ON_BASELINE] or [ON_BASELINE]


def _step(subject: PolicySubject, lever: str) -> dict[str, list[Tensor]]:
    variant = Variant(ON_BASELINE) if lever == ON_BASELINE else parse_levers(lever)[0]
    training: Any = subject.training
    undo = variant.apply(subject)
    try:
        loss = subject.gradient(subject.inputs.batch(BATCH))
        gradient = [p.grad.clone() for p in subject.policy.parameters() if p.grad is not None]
        subject.policy.zero_grad()
        stepped = subject.call("training step", BATCH)(0)
        states = training.optimizer.state.values()
        moments = [one.clone() for state in states for name, one in sorted(state.items()) if name != "step"]
        return {"loss": [loss.detach(), stepped.detach()], "gradient": gradient, "moments": moments}
    finally:
        undo()
        subject.policy.zero_grad()
        training.optimizer.state.clear()
        training._scaler = None


def _equal(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    same_gaps = [one.isnan().equal(other.isnan()) for one, other in zip(some, others, strict=True)]
    return all(same_gaps) and all(
        torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(some, others, strict=True)
    )
