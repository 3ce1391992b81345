"""Weights that change in place below a recipe, in each way that programs do it; and what changes none of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from strobe.core.errors import UserError
from strobe.core.subjects.callable_subject import CallableSubject
from strobe.core.subjects.callables import make_target
from strobe.core.treatments.treated import Treated
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.treatments.layers.packed import PackedWeights
from strobe.treatments.numbers.precision import Precision

CALLS = 60  # more than there are shares of the weights
Net = Any

CHANGES: dict[str, Callable[[Net], object]] = {
    "copy_": lambda net: _each(net, lambda one: one.detach().copy_(1.1 * one)),
    ".data.copy_": lambda net: _each(net, lambda one: one.data.copy_(1.1 * one.data)),
    ".data.lerp_, as an average": lambda net: _each(net, lambda one: one.data.lerp_(torch.ones_like(one), 0.001)),
    ".data =": lambda net: _each(net, lambda one: setattr(one, "data", 1.1 * one.data)),
    "vector_to_parameters": lambda net: vector_to_parameters(
        1.1 * parameters_to_vector(net.parameters()).detach(), net.parameters()
    ),
    "one weight alone": lambda net: net[6].weight.data.mul_(1.1),
    "a new Parameter": lambda net: setattr(net[4], "weight", nn.Parameter(1.1 * net[4].weight.detach())),
    "a new module": lambda net: net.register_module("4", nn.Linear(128, 128)),
}
SOUND: dict[str, Callable[[Net], object]] = {
    "nothing": lambda net: None,
    "read": lambda net: [one.data.norm() for one in net.parameters()],
    "load_state_dict": lambda net: net.load_state_dict({k: 1.1 * v for k, v in net.state_dict().items()}),
    "eval": lambda net: net.eval(),
    "requires_grad_": lambda net: net.requires_grad_(False),
    "zero_grad": lambda net: net.zero_grad(),
    "to": lambda net: net.to("cpu"),
    "share_memory": lambda net: net.share_memory(),
}
TREATMENTS: dict[str, Callable[[], Treatment]] = {
    "packed": PackedWeights,
    "bf16": lambda: Precision("bf16"),
}


def judge_stale() -> dict[str, Any]:
    """Return how many changes there are, those that no call refused, and the sound uses that one did."""
    cases = [(name, way, kind) for kind in (CHANGES, SOUND) for way in kind for name in TREATMENTS]
    refused = {case[:2] for case in cases if _refuses(TREATMENTS[case[0]](), case[2][case[1]])}
    changes = [(name, way) for name, way, kind in cases if kind is CHANGES]
    sound = [(name, way) for name, way, kind in cases if kind is SOUND]
    return {
        "stale": len(changes),
        "stale_unseen": [f"{way} ({name})" for name, way in changes if (name, way) not in refused],
        "stale_sound": len(sound),
        "stale_sound_refused": [f"{way} ({name})" for name, way in sound if (name, way) in refused],
    }


def _refuses(treatment: Treatment, change: Callable[[Net], object]) -> bool:
    torch.manual_seed(0)
    net, given = nn.Sequential(*(nn.Linear(128, 128) for _ in range(8))).eval(), torch.ones(4, 128)
    treated = Treated(CallableSubject([make_target("net", net)], [given]), Variant("fast", (treatment,)))
    with torch.no_grad(), contextlib.ExitStack() as stack:
        stack.callback(treated.revert)
        net(given)
        change(net)
        try:
            for _ in range(CALLS):
                net(given)
        except UserError:
            return True
    return False


def _each(net: Net, change: Callable[[nn.Parameter], object]) -> None:
    for one in net.parameters():
        change(one)
