"""Modules of a subject: what its family calls them, and where flow policies hold what their treatments change."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeVar

import torch
from torch import nn

from strobe.core.errors import UserError, nearest
from strobe.core.families.capabilities import Capability, Parts
from strobe.core.families.registry import list_types_having
from strobe.core.subjects.subject import Subject
from strobe.lerobot.sampling import Flow, denoising_steps

C = TypeVar("C", bound=Capability)


def capability(subject: Subject, kind: type[C]) -> C | None:
    """Return this capability of ``subject``'s family; None without it, and for a subject that does not act."""
    return subject.family.get(kind) if subject.acting is not None else None


def require_capability(subject: Subject, kind: type[C], what: str = "this") -> C:
    """Return this capability, which ``what`` needs. Raises UserError, with the types that have it, without it."""
    if (held := capability(subject, kind)) is None:
        raise UserError(f"{subject.info.name}: {what} is for {', '.join(list_types_having(kind))}")
    return held


def dominant(subject: Subject) -> list[str]:
    """Return the paths of the modules that ``subject`` spends its time in, as its family's record has them."""
    modules = dict(subject.module.named_modules())
    paths: list[str] = []
    for path in subject.family.costly:
        held = modules.get(path)
        if isinstance(held, nn.ModuleList):  # an encoder for each camera
            paths += [f"{path}.{step}" for step, _ in held.named_children()]
        elif held is not None:
            paths.append(path)
    return paths


def named_parts(subject: Subject, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the parts, as the family names them, that the modules at ``paths`` belong to or hold, each once."""
    return tuple(dict.fromkeys(part for path in paths for part in _parts(subject, path)))


def parts_at(kind: type[C], path: Callable[[C], str]) -> Callable[[Subject, object], tuple[str, ...]]:
    """Return a treatment's ``parts``: those at the ``path`` of a capability, none without it."""

    def parts(subject: Subject, _: object) -> tuple[str, ...]:
        held = capability(subject, kind)
        return () if held is None else named_parts(subject, [path(held)])

    return parts


def find_part(module: nn.Module, path: str) -> nn.Module:
    """Return the module at ``path``, as torch's `named_modules` has it. Raises UserError."""
    modules = dict(module.named_modules())
    if path not in modules:
        raise UserError(f"no part '{path}' in {type(module).__name__}: {nearest(path, [n for n in modules if n])}")
    return modules[path]


def match_parts(module: nn.Module, pattern: str) -> list[str]:
    """Return the paths that ``pattern`` names, in which a * is any one step. Raises UserError for none."""
    alike = [path for path, _ in module.named_modules() if path.count(".") == pattern.count(".")]
    found = [path for path in alike if _match(pattern, path) is not None]
    if not found:
        find_part(module, pattern)
    return found


def is_flow(subject: Subject) -> bool:
    """Return whether it is a flow policy: a prefix pass fills a cache, denoising steps read it."""
    return capability(subject, Flow) is not None


def _parts(subject: Subject, path: str) -> list[str]:
    return list(_enclosing_parts(subject, path)) or [
        part for held in dominant(subject) if held.startswith(f"{path}.") for part in _enclosing_parts(subject, held)
    ]


def _enclosing_parts(subject: Subject, path: str) -> Iterator[str]:
    family, working = subject.family, Parts.from_family(subject.family).working
    if working:
        for step in path.split("."):
            yield from working.get(step, ())
        for begin, parts in working.items():
            if "." in begin and f"{path}.".startswith(f"{begin}."):
                yield from parts
        return
    for probe in family.probes(subject.module) if family.probes is not None else ():
        if probe.level == 1 and probe.attribute == "forward" and (stars := _match(probe.path, path)) is not None:
            yield probe.name.format(*stars)


def _match(pattern: str, path: str) -> list[str] | None:
    """Return what each star of ``pattern`` stands for in ``path``.

    None if ``path`` is neither the module that ``pattern`` names nor one below it.
    """
    steps, wanted = path.split("."), pattern.split(".")
    if len(steps) < len(wanted) or any(
        expected not in ("*", step) for expected, step in zip(wanted, steps, strict=False)
    ):
        return None
    return [step for expected, step in zip(wanted, steps, strict=False) if expected == "*"]


# Flow policies (such as pi0.5 and SmolVLA) share one way of inference (`sample_actions`): `embed_prefix` turns images
# and words into tokens, a pass over them fills the key-value cache, and `denoise_step` runs over it, from t = 1 to t =
# 0. Treatments are for that way alone: where gradients are wanted (training, RTC's autograd) they step aside, since
# what they reuse would hold its graph.


@dataclass(frozen=True)
class FlowModules:
    """A flow policy's modules: ``joint`` holds both transformers, whose layers are ``language`` and ``expert``'s."""

    sampling: Flow
    policy: Any
    model: Any
    joint: Any
    language: Any
    expert: Any
    steps: int  # denoising steps of a chunk

    def step_arguments(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Any]:
        """Return what ``denoise_step`` was called with, by name."""
        names = list(signature(type(self.model).denoise_step).parameters)[1:]  # without self
        return {**dict(zip(names, args, strict=False)), **kwargs}

    def defining_module(self, model: object) -> Any:
        """Return the module of LeRobot that defines ``model``'s class, with the functions that it calls."""
        return sys.modules[type(model).__module__]


def require_flow(subject: Subject) -> FlowModules:
    """Return ``subject``'s modules. Raises UserError if its family's record has no flow."""
    sampling = require_capability(subject, Flow)
    module: Any = subject.module
    joint, language, expert = map(module.get_submodule, (sampling.joint, sampling.language, sampling.expert))
    steps = denoising_steps(module.config)
    return FlowModules(sampling, module, module.model, joint, language, expert, steps or 0)


def deriving() -> bool:
    """Return whether gradients are wanted of what is computed now."""
    return torch.is_grad_enabled()


def weights_seen(*modules: nn.Module) -> tuple[tuple[int, int, torch.dtype], ...]:
    """Return a fingerprint of the weights of ``modules``: another one where a weight was replaced or changed."""
    return tuple((p.data_ptr(), p._version, p.dtype) for module in modules for p in module.parameters())
