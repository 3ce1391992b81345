"""Anatomies: the declarative lists of probes that name the parts of a family of policies or backbones.

A new family needs one of these and nothing else: ``register`` it, or let an installed package offer it under the
entry-point group ``strobe.anatomies``. What has none is cut along its modules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import Any

from lerobot.policies.pretrained import PreTrainedPolicy
from torch import nn

from strobe.timeline.probe import Hook, Probe, hooks_of

Probes = Callable[[Any], Sequence[Probe]]


def _no_probes(_: nn.Module) -> Sequence[Probe]:
    return ()


@dataclass(frozen=True)
class Anatomy:
    """The parts of one family.

    Args:
        name: shown with the result.
        types: LeRobot policy types (``--policy.type``) or transformers model types (``--model.type``) it is for.
        probes: policy or model → probes, for every phase. Level 1 is the default cut, 2 the blocks, 3 the inside of
            blocks; a backbone has its blocks at level 1.
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

    def hooks(self, module: nn.Module, *, training: bool, depth: int = 1) -> list[Hook]:
        """Where to attach, down to ``depth`` levels.

        Raises:
            ProbeError: the anatomy does not fit the installed LeRobot or transformers; the message starts with the
                probe's name.
        """
        phase = self.training if training else self.inference
        return hooks_of([probe for probe in (*self.probes(module), *phase(module)) if probe.level <= depth], module)


_registry: dict[str, Anatomy] = {}


def register(anatomy: Anatomy) -> Anatomy:
    """Make ``anatomy`` the one for its types; the last one registered for a type wins."""
    for kind in anatomy.types:
        _registry[kind] = anatomy
    return anatomy


def anatomy_of(policy: PreTrainedPolicy) -> Anatomy:
    """The anatomy registered for this policy's type, else one cut along its modules."""
    return registered(policy.config.type) or along_modules(policy)


def registered(kind: str) -> Anatomy | None:
    """The anatomy registered for this type, here or by an installed package."""
    if kind not in _registry:
        for entry in entry_points(group="strobe.anatomies", name=kind):
            register(entry.load())
    return _registry.get(kind)


def along_modules(module: nn.Module) -> Anatomy:
    """Cut ``module`` along its modules: the first level at which it forks, then two levels below."""
    name, root = "", module
    while len(children := list(_callable_children(root))) == 1:  # wrappers such as policy.model say nothing
        step, root = children[0]
        name = f"{name}.{step}" if name else step

    def probes(_: nn.Module) -> Sequence[Probe]:
        return list(_below(root, name, 1))

    return Anatomy("modules", (), probes)


def along_blocks(module: nn.Module) -> Anatomy:
    """Cut a backbone along its modules: every part on the way down to its blocks, and each block.

    The blocks are the longest list of modules of one class that is in no other list; they are stages where they hold
    lists themselves, since stages differ by design. What has no such list is cut like a policy.
    """
    lists = [
        (path, child)
        for path, child in module.named_modules()
        if isinstance(child, nn.ModuleList) and len({type(one) for one in child}) == 1 and len(child) > 1
    ]
    lists = [(path, child) for path, child in lists if not any(step.isdecimal() for step in path.split("."))]
    if not lists:
        return along_modules(module)
    where, repeated = max(lists, key=lambda found: len(found[1]))
    inside = repeated[0]
    name = "stage" if any(isinstance(one, nn.ModuleList | nn.Sequential) for one in inside.modules()) else "block"

    def probes(_: nn.Module) -> Sequence[Probe]:
        found, owner, path = [], module, ""
        for step in where.split("."):
            for child, _ in _callable_children(owner):
                full = f"{path}.{child}" if path else child
                if not f"{full}.".startswith(f"{where}."):
                    found.append(Probe.module(full, re.sub(r"[{}]", "", child), optional=True))
            owner, path = owner.get_submodule(step), f"{path}.{step}" if path else step
        found.append(blocks(where, name, level=1))
        return found + [replace(one, path=f"{where}.*.{one.path}", optional=True) for one in _below(inside, "", 2)]

    return Anatomy("modules", (), probes)


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
