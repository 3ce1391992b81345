"""Anatomies: the declarative lists of probes that name the parts of a policy family.

A new policy needs one of these and nothing else: ``register`` it, or let an installed package offer it under the
entry-point group ``strobe.anatomies``. A policy without one is cut along its modules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points

from lerobot.policies.pretrained import PreTrainedPolicy
from torch import nn

from strobe.timeline.probe import Hook, Probe, hooks_of

Probes = Callable[[PreTrainedPolicy], Sequence[Probe]]


def _no_probes(_: PreTrainedPolicy) -> Sequence[Probe]:
    return ()


@dataclass(frozen=True)
class Anatomy:
    """The parts of one policy family.

    Args:
        name: shown with the result.
        types: LeRobot policy types (``--policy.type``) it is for.
        probes: policy → probes, for every phase. Level 1 is the default cut, 2 the blocks, 3 the inside of blocks.
        training: further probes for the training phases, where the forward pass takes another way.
        inference: further probes for inference alone.
        compiled: what ``--compile`` compiles, as (path of the object, method).
    """

    name: str
    types: tuple[str, ...]
    probes: Probes
    training: Probes = _no_probes
    inference: Probes = _no_probes
    compiled: tuple[tuple[str, str], ...] = ()

    def hooks(self, policy: PreTrainedPolicy, *, training: bool, depth: int = 1) -> list[Hook]:
        """Where to attach, down to ``depth`` levels.

        Raises:
            ProbeError: the anatomy does not fit the installed LeRobot; the message starts with the probe's name.
        """
        phase = self.training if training else self.inference
        return hooks_of([probe for probe in (*self.probes(policy), *phase(policy)) if probe.level <= depth], policy)


_registry: dict[str, Anatomy] = {}


def register(anatomy: Anatomy) -> Anatomy:
    """Make ``anatomy`` the one for its policy types; the last one registered for a type wins."""
    for policy_type in anatomy.types:
        _registry[policy_type] = anatomy
    return anatomy


def anatomy_of(policy: PreTrainedPolicy) -> Anatomy:
    """The anatomy registered for this policy's type, else one cut along its modules."""
    policy_type = policy.config.type
    if policy_type not in _registry:
        for entry in entry_points(group="strobe.anatomies", name=policy_type):
            register(entry.load())
    return _registry.get(policy_type) or along_modules(policy)


def along_modules(policy: PreTrainedPolicy) -> Anatomy:
    """Cut ``policy`` along its modules: the first level at which it forks, then two levels below."""
    name, root = "", policy
    while len(children := list(_callable_children(root))) == 1:  # wrappers such as policy.model say nothing
        step, root = children[0]
        name = f"{name}.{step}" if name else step

    def probes(_: PreTrainedPolicy) -> Sequence[Probe]:
        return list(_below(root, name, 1))

    return Anatomy("modules", (policy.config.type,), probes)


def blocks(path: str, name: str, level: int = 2) -> Probe:
    """Each child of the container at ``path``, as '<name> <index>'."""
    return Probe.module(f"{path}.*", f"{name} {{}}", level=level)


def _below(module: nn.Module, path: str, level: int) -> Iterable[Probe]:
    if level > 3:
        return
    for step, child in _callable_children(module):
        full = f"{path}.{step}" if path else step
        yield Probe.module(full, re.sub(r"[{}]", "", step), level=level)
        yield from _below(child, full, level + 1)


def _callable_children(module: nn.Module) -> Iterable[tuple[str, nn.Module]]:
    # Containers are looked through: they have no forward pass of their own. A module used twice is probed once.
    for step, child in module.named_children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict) and type(child).forward is nn.Module.forward:
            for inner, grandchild in _callable_children(child):
                yield f"{step}.{inner}", grandchild
        else:
            yield step, child
