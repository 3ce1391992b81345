"""The family of a module without a record: along its submodules."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strobe.core.families.capabilities import Unregistered
from strobe.core.families.family import Family, blocks
from strobe.core.timeline.probe import Probe
from strobe.core.torch_there import is_module

if TYPE_CHECKING:
    from torch import nn


def build_module_family(module: nn.Module) -> Family:
    """Return a family that divides ``module`` at the first level at which it forks, then two levels below.

    Modules that it holds without registering them are parts too.
    """
    name, root = "", module
    while len(children := list(_callable_children(root))) == 1:  # skip wrappers such as policy.model
        step, root = children[0]
        name = f"{name}.{step}" if name else step

    def probes(_: nn.Module) -> Sequence[Probe]:
        unlisted = [
            Probe.module(path, re.sub(r"[{}]", "", path), optional=True)
            for path, _ in iter_unregistered_modules(module)
        ]
        return [*_methods(module, root, name), *_nested_probes(root, name, 1), *unlisted]

    held = Unregistered(outside=lambda _: [child for _, child in iter_unregistered_modules(module)])
    return Family("modules", (), probes, capabilities=(held,))


def iter_unregistered_modules(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the path of each module that ``module`` holds in a list, a dictionary or an object of its own package.

    ``parameters``, ``eval`` and ``state_dict`` reach none of them.
    """
    from torch import nn

    package, registers = type(module).__module__.partition(".")[0], vars(nn.Module())
    seen = {id(child) for child in module.modules()}
    looked_at = [
        (f"{path}.{name}" if path else name, value)
        for path, child in module.named_modules()
        for name, value in vars(child).items()
        if name not in registers
    ]
    while looked_at:
        path, value = looked_at.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if is_module(value):
            seen |= {id(child) for child in value.modules()}
            yield path, value
        else:
            looked_at += [(f"{path}.{name}", child) for name, child in _children(value, package)]


def _children(value: Any, package: str) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, list | tuple):
        return enumerate(value)
    if isinstance(value, dict):
        return value.items()
    if type(value).__module__.partition(".")[0] == package and hasattr(value, "__dict__"):
        return vars(value).items()
    return ()


def build_block_family(module: nn.Module) -> Family:
    """Return a family that divides a backbone: every part on the way down to its blocks, and each block.

    The blocks are the longest list of modules of one class that is in no other list. They are stages if they hold lists
    themselves, since stages differ by design. A backbone without such a list is divided like a policy.
    """
    from torch import nn

    lists = [
        (path, child)
        for path, child in module.named_modules()
        if isinstance(child, nn.ModuleList) and len({type(block) for block in child}) == 1 and len(child) > 1
    ]
    lists = [(path, child) for path, child in lists if not any(step.isdecimal() for step in path.split("."))]
    if not lists:
        return build_module_family(module)
    where, repeated = max(lists, key=lambda entry: len(entry[1]))
    inside = repeated[0]
    name = "stage" if any(isinstance(child, nn.ModuleList | nn.Sequential) for child in inside.modules()) else "block"

    def probes(_: nn.Module) -> Sequence[Probe]:
        parts, owner, path = [], module, ""
        for step in where.split("."):
            for child, _ in _callable_children(owner):
                full = f"{path}.{child}" if path else child
                if not f"{full}.".startswith(f"{where}."):
                    parts.append(Probe.module(full, re.sub(r"[{}]", "", child), optional=True))
            owner, path = owner.get_submodule(step), f"{path}.{step}" if path else step
        parts.append(blocks(where, name, level=1))
        inner = _nested_probes(inside, "", 2)
        return parts + [replace(probe, path=f"{where}.*.{probe.path}", optional=True) for probe in inner]

    return Family("modules", (), probes)


def _methods(policy: nn.Module, root: nn.Module, path: str) -> Iterable[Probe]:
    package = type(policy).__module__.rpartition(".")[0]
    if not package:
        return
    for step, child in _callable_children(root):
        kind = type(child)
        if not kind.__module__.startswith(package):
            continue
        for method, function in vars(kind).items():
            if inspect.isfunction(function) and not method.startswith("_") and method != "forward":
                where = f"{path}.{step}" if path else step
                yield Probe.method(where, method, f"{re.sub(r'[{}]', '', step)}.{method}", optional=True)


def _nested_probes(module: nn.Module, path: str, level: int) -> Iterable[Probe]:
    if level > 3:
        return
    for step, child in _callable_children(module):
        full = f"{path}.{step}" if path else step
        yield Probe.module(full, re.sub(r"[{}]", "", step), level=level)
        yield from _nested_probes(child, full, level + 1)


def _callable_children(module: nn.Module) -> Iterable[tuple[str, nn.Module]]:
    from torch import nn

    # Containers are skipped: they have no forward pass of their own. A module used twice is probed once.
    for step, child in module.named_children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict) and type(child).forward is nn.Module.forward:
            for inner, grandchild in _callable_children(child):
                yield f"{step}.{inner}", grandchild
        else:
            yield step, child
