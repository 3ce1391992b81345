"""Modules of a subject and what its family calls them: what ``Entry.parts`` says of a treatment of modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import nn

from strobe.errors import UserError, nearest
from strobe.policies.families.flow_parts import EXPERT, PREFIX, STEP, VISION
from strobe.policies.policy_subject import PolicySubject
from strobe.policies.subject import Subject

__all__ = ["EXPERT", "PREFIX", "STEP", "VISION", "dominant", "is_flow", "part_of", "parts_of"]


def dominant(subject: Subject) -> list[str]:
    """Return the paths of the modules that ``subject`` spends its time in, as its family's record has them."""
    modules = dict(subject.module.named_modules())
    found: list[str] = []
    for path in subject.family.costly:
        held = modules.get(path)
        if isinstance(held, nn.ModuleList):  # an encoder for each camera
            found += [f"{path}.{step}" for step, _ in held.named_children()]
        elif held is not None:
            found.append(path)
    return found


def parts_of(subject: Subject, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the parts, as the family names them, that the modules at ``paths`` belong to or hold, each once."""
    return tuple(dict.fromkeys(part for path in paths for part in _parts(subject, path)))


def part_of(module: nn.Module, path: str) -> nn.Module:
    """The module at ``path``, '' for all of it. Raises UserError."""
    modules = dict(module.named_modules())
    if path not in modules:
        raise UserError(f"no part '{path}' in {type(module).__name__}: {nearest(path, [n for n in modules if n])}")
    return modules[path]


def is_flow(subject: Subject) -> bool:
    """Whether it is a flow policy: a prefix pass fills a cache, denoising steps read it."""
    return isinstance(subject, PolicySubject) and subject.family.flow is not None


def _parts(subject: Subject, path: str) -> list[str]:
    """Return the parts that ``path`` belongs to; where it is in none, those of the dominant modules inside it."""
    return list(_around(subject, path)) or [
        part for held in dominant(subject) if held.startswith(f"{path}.") for part in _around(subject, held)
    ]


def _around(subject: Subject, path: str) -> Iterator[str]:
    family = subject.family
    if family.working:
        for step in path.split("."):
            yield from family.working.get(step, ())
        for begin, parts in family.working.items():
            if "." in begin and f"{path}.".startswith(f"{begin}."):
                yield from parts
        return
    for probe in family.probes(subject.module) if family.probes is not None else ():
        if probe.level == 1 and probe.attribute == "forward" and (stars := _match(probe.path, path)) is not None:
            yield probe.name.format(*stars)


def _match(pattern: str, path: str) -> list[str] | None:
    """Return what each star of ``pattern`` stands for in ``path``.

    None where ``path`` is neither the module that ``pattern`` names nor one below it.
    """
    steps, wanted = path.split("."), pattern.split(".")
    if len(steps) < len(wanted) or any(one not in ("*", step) for one, step in zip(wanted, steps, strict=False)):
        return None
    return [step for one, step in zip(wanted, steps, strict=False) if one == "*"]
