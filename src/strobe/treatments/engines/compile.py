"""``torch.compile`` on what LeRobot's own ``compile_model`` compiles, or on one part, without building twice.

What is compiled is what the other treatments have made of it by then. The probes that stand around a part stay outside
of the compiled region, so that the part is still timed as a whole; those inside it cannot be.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import nn

from strobe.core.devices.accelerators import Pool, number_device
from strobe.core.errors import UserError, nearest
from strobe.core.results.traits import TreatmentTraits
from strobe.core.subjects.subject import ActingSubject, Subject
from strobe.core.timeline.layers import Call, peel_layers, rewrap_layers
from strobe.core.treatments.patch import Patches, identity
from strobe.core.treatments.switch import entry
from strobe.core.treatments.treatment import Spec, Treatment, Undo
from strobe.core.treatments.words import MODES
from strobe.treatments.graphs.host_work import aside
from strobe.treatments.parts import is_flow, named_parts

_GRAPHS = ("reduce-overhead", "max-autotune")  # modes that capture CUDA graphs, all in one pool

# The parts of flow policies that gain by being compiled on their own, as far as a policy has them.
_FLOW_PARTS = (
    "model.paligemma_with_expert.paligemma.model.vision_tower",
    "model.paligemma_with_expert.paligemma.model.language_model",
    "model.vlm_with_expert.vlm.model.vision_model",
    "model.denoise_step",
)


@dataclass
class Compile(Treatment, key="compile"):
    """Compile the methods that the anatomy names, else the whole forward pass; compiled once, at the first call.

    ``part``: the path of a method or of a module (its forward pass), to compile that alone.
    """

    mode: str = "default"
    part: str = ""
    # What was compiled of which function; the function is kept, as its key is made of addresses.
    _compiled: dict[Hashable, tuple[Any, Any]] = field(default_factory=dict, init=False, repr=False)
    _flag: str = field(default="", init=False, repr=False)
    builds = "compiled"

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(
            key=self.key, value=self.mode, part=self.part, builds=self.builds, lerobot_flag=self._flag
        )

    def pools(self, device: torch.device) -> Sequence[Pool]:
        trees: Any = sys.modules.get("torch._inductor.cudagraph_trees")
        if device.type != "cuda" or self.mode not in _GRAPHS or trees is None:
            return ()
        manager = trees.get_manager(number_device(device).index, create_if_none_exists=False)
        return () if manager is None else (manager.cuda_graphs_thread_pool,)

    def apply(self, subject: Subject) -> Undo:
        config = getattr(subject.module, "config", None)
        if not self.part and hasattr(config, "compile_model"):  # not every policy's config has it
            self._flag = f"--policy.compile_model=true --policy.compile_mode={self.mode}"
        patches, targets = Patches(), list(self._targets(subject))
        if not targets:
            raise UserError(f"{subject.info.name} contains no torch module, so there is nothing to compile")
        for owner, method in targets:
            patches.wrap(owner, method, self._wrap_call)
        return patches.undo

    def _targets(self, subject: Subject) -> Iterator[tuple[object, str]]:
        if self.part:
            yield target(subject.module, self.part)
            return
        for path, method in subject.compiled_methods:
            yield attrgetter(path)(subject.module) if path else subject.module, method

    def _wrap_call(self, call: Call) -> Call:
        bottom, layers = peel_layers(call)
        inside = rewrap_layers([layer for layer in layers if not layer.probe], bottom)
        key = identity(inside)
        if key not in self._compiled:
            self._compiled[key] = inside, aside(torch.compile(inside, mode=self.mode))
        return rewrap_layers([layer for layer in layers if layer.probe], self._compiled[key][1])


def target(module: nn.Module, path: str) -> tuple[object, str]:
    """Return the owner and the name of the method at ``path``, or of the forward pass of the module at ``path``.

    Raises UserError.
    """
    owner: Any = module
    *parents, last = path.split(".")
    for step in parents:
        owner = _step(owner, step, path)
    called = _step(owner, last, path)
    if isinstance(called, nn.Module):
        return called, "forward"
    if not callable(called) or not hasattr(owner, "__dict__"):
        raise UserError(f"compile.part={path}: {type(called).__name__} cannot be called: use a method or a module")
    return owner, last


def _step(owner: Any, step: str, path: str) -> object:
    try:
        return owner[int(step)] if step.isdecimal() else getattr(owner, step)
    except (AttributeError, IndexError, KeyError, TypeError):
        known = list(owner._modules) if isinstance(owner, nn.Module) else []
        known += [name for name, value in vars(type(owner)).items() if callable(value) and not name.startswith("_")]
        raise UserError(
            f"compile.part={path}: {type(owner).__name__} has no '{step}': {nearest(step, known)}"
        ) from None


def _make(spec: Spec) -> Compile:
    mode = "default" if spec["compile"] is True else str(spec["compile"])
    if mode not in MODES:
        raise UserError(f"compile={mode}: {nearest(mode, MODES)}")
    return Compile(mode, str(spec.get("compile.part", "")))


def _candidates(subject: Subject) -> list[Spec]:
    if not is_flow(subject):
        return [{"compile": "default"}]
    return [{"compile": "default", "compile.part": path} for path in _FLOW_PARTS if _has(subject.module, path)]


def _has(module: nn.Module, path: str) -> bool:
    try:
        target(module, path)
    except UserError:
        return False
    return True


def _parts(subject: Subject, spec: Spec) -> Sequence[str]:
    path = str(spec.get("compile.part", ""))
    if not path:
        return ()
    if parts := named_parts(subject, [path]):
        return parts
    if not isinstance(subject, ActingSubject):
        return ()
    hooks = subject.family.hooks(subject.policy, training=False)
    owner, name = target(subject.module, path)
    return tuple(dict.fromkeys(hook.name for hook in hooks if hook.owner is owner and hook.attribute == name))


ENTRY = entry("compile", _make, candidates=_candidates, parts=_parts, of_torch=True)
