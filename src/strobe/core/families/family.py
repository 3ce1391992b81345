"""The record of a family: all that Strobe knows of one kind of policy or backbone.

A new family is one file with one record. All other code reads the record; none knows a family's name. Another
package offers its record under the entry-point group ``strobe.families``, with the policy's type as the entry's name.
A type without a record is divided along its modules, and gets the treatments that need nothing but modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from strobe.core.families.capabilities import Capability, Method
from strobe.core.timeline.probe import Hook, Probe, resolve_hooks

Probes = Callable[[Any], Sequence[Probe]]
C = TypeVar("C", bound=Capability)


def list_no_probes(_: object) -> Sequence[Probe]:
    """Return no probes."""
    return ()


def always(*probes: Probe) -> Probes:
    """Return ``probes`` for a family whose policies all have these parts."""
    return lambda _: probes


@dataclass(frozen=True)
class Tiny:
    """How a family is shrunk to a tiny policy of the same architecture.

    Args:
        fields: values for fields of the config. Lengths that decide how often a part runs (chunk, denoising steps) are
            left alone.
        defaults: values for fields that the config leaves at None.
    """

    fields: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Family:
    """One family of policies or backbones.

    Args:
        name: shown with the result.
        types: LeRobot policy types (``--policy.type``) or transformers model types (``--model.type``) it is for.
        probes: policy or model → probes, for every phase; None to divide it along its modules. Level 1 is the default,
            2 the blocks, 3 the inside of blocks; a backbone has its blocks at level 1.
        training: further probes for the training phases, where the forward pass takes another way.
        inference: further probes for inference alone.
        compiled: what ``--compile`` compiles.
        costly: paths of the modules that take its time, the usually costliest first.
        tiny: how it is shrunk.
        capabilities: what else is known of it, one of each kind at most.
    """

    name: str
    types: tuple[str, ...]
    probes: Probes | None = None
    training: Probes = list_no_probes
    inference: Probes = list_no_probes
    compiled: tuple[Method, ...] = ()
    costly: tuple[str, ...] = ()
    tiny: Tiny | None = None
    capabilities: tuple[Capability, ...] = ()

    def get(self, kind: type[C]) -> C | None:
        """Return its capability of this kind; None without one. Of `Facts`, ``kind.of(family)`` has the usual ones."""
        return next((held for held in self.capabilities if isinstance(held, kind)), None)

    def hooks(self, module: object, *, training: bool, depth: int = 1) -> list[Hook]:
        """Return the hooks of the probes, down to ``depth``. Raises ProbeError for a probe, with its name."""
        phase = self.training if training else self.inference
        every = self.probes(module) if self.probes is not None else ()
        return resolve_hooks([probe for probe in (*every, *phase(module)) if probe.level <= depth], module)


def blocks(path: str, name: str, level: int = 2) -> Probe:
    """Return a probe on each child of the container at ``path``, called '<name> <index>'."""
    return Probe.module(f"{path}.*", f"{name} {{}}", level=level)


def transformer(path: str, name: str, *, attention: str = "self_attn", mlp: str = "mlp", level: int = 2) -> list[Probe]:
    """Return the probes of a transformer's blocks at ``path``: each block, and inside of it attention and MLP.

    Args:
        name: of a block; 'layer' gives 'layer 0', 'layer 1' and so on.
        attention, mlp: names of the two modules in a block.
        level: of the blocks; their inside is one level below.
    """
    return [
        blocks(path, name, level),
        Probe.module(f"{path}.*.{attention}", "attention", level=level + 1),
        Probe.module(f"{path}.*.{mlp}", "MLP", level=level + 1),
    ]
