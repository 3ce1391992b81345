"""Find the family of a type, Strobe's own record or an installed package's, and do with it what the record says."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lerobot.configs import PreTrainedConfig

from strobe.core import families
from strobe.core.errors import UserError
from strobe.core.families.family import Family, HubNeed
from strobe.core.families.modules import along_modules
from strobe.lerobot.families import answers

if TYPE_CHECKING:
    from strobe.core.subjects.subject import Batch

GROUPS = ("strobe.families", "strobe.anatomies")  # the second is the former name of the first


def _own_families() -> Iterator[Family]:
    """Yield the records of this folder: ``FAMILY`` of each file."""
    for entry in iter_modules(families.__path__):
        if entry.name != "registry":
            family = getattr(import_module(f"{families.__name__}.{entry.name}"), "FAMILY", ())
            yield from family if isinstance(family, tuple) else (family,)


_registry: dict[str, Family] = {kind: family for family in _own_families() for kind in family.types}


def register(family: Family) -> Family:
    """Make ``family`` the one for its types; the last one registered for a type wins."""
    for kind in family.types:
        _registry[kind] = family
    return family


def registered(kind: str) -> Family | None:
    """Return the record for this type, Strobe's own or an installed package's; None without one.

    A package whose record cannot be loaded causes a warning and does not stop the run.
    """
    if kind not in _registry and (entry := _offered().pop(kind, None)) is not None:
        try:
            register(entry.load())
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            warnings.warn(f"the family '{kind}' that '{entry.value}' offers cannot be loaded: {text}", stacklevel=2)
    return _registry.get(kind)


def family_of(policy: Any, kind: str | None = None) -> Family:
    """Return the record for this policy's type; without one, or without parts in it, one along the policy's modules.

    ``kind``: its type; None to read it from the policy's config.
    """
    family = registered(kind if kind is not None else policy.config.type)
    if family is None:
        return along_modules(policy)
    if family.probes is None:
        return replace(family, name="modules", probes=along_modules(policy).probes)
    return family


def unregistered_modules(policy: object) -> Sequence[Any]:
    """Return the modules that ``policy`` holds but does not register."""
    return family_of(policy).outside(policy)


def types_with(has: Callable[[Family], object]) -> list[str]:
    """Return the types whose record ``has`` something, sorted, for messages."""
    known_families()
    return sorted(kind for kind, family in _registry.items() if has(family))


def known_families() -> list[Family]:
    """Return all records: Strobe's own, and those of installed packages."""
    for kind in list(_offered()):
        registered(kind)
    return list(dict.fromkeys(_registry.values()))


def hub_needs() -> list[HubNeed]:
    """Return the needs from the Hub of all known families."""
    return [need for family in known_families() for need in family.hub]


def building(config: Any, tiny: bool) -> AbstractContextManager[Sequence[str] | None]:
    """Return the context in which the policy of ``config`` is made with random weights; it may give notes."""
    family = registered(config.type)
    if family is None or family.building is None:
        return nullcontext()
    return family.building(config, tiny)


def predict(policy: Any, batch: Batch, options: Mapping[str, object] = MappingProxyType({})) -> Any:
    """Return one chunk, (B, chunk, action dim), of a preprocessed ``batch``, in the way of the policy's family.

    Args:
        options: of ``predict_action_chunk``.
    """
    family = registered(getattr(policy.config, "type", ""))
    if family is not None and family.chunk is not None:
        return family.chunk(policy, batch, options)
    return answers.chunk(policy, batch, options)


def steps_field(config: object) -> str:
    """Return the field of ``config`` with the number of denoising steps; '' without any.

    A type without a record is assumed to name it as one of the known families does.
    """
    return _named(config, lambda family: family.steps_of(config))


def steps_of(config: object) -> int | None:
    """Return the number of denoising steps in ``config``; None if the policy has none."""
    steps = getattr(config, steps_field(config), None)
    if steps is None:
        steps = getattr(config, _named(config, lambda family: family.every_step), None)
    return steps if isinstance(steps, int) else None


def _named(config: object, field: Callable[[Family], str]) -> str:
    family = registered(getattr(config, "type", ""))
    if family is not None:
        return field(family)
    names = dict.fromkeys(field(known) for known in _registry.values())
    return next((name for name in names if name and hasattr(config, name)), "")


@cache
def _offered() -> dict[str, EntryPoint]:
    """Return type → the entry point that brings its record, of all installed packages."""
    return {entry.name: entry for group in reversed(GROUPS) for entry in entry_points(group=group)}


def shrink(config: PreTrainedConfig) -> None:
    """Change ``config`` in place to its tiny version. Chunk and observation lengths stay as they are.

    Raises UserError for a policy type that has no tiny version.
    """
    family = _shrinking(config)
    if family is None or family.tiny is None:
        known = types_with(lambda family: family.tiny)
        raise UserError(
            f"policy.size=tiny is not available for '{config.type}', only for {', '.join(known)}; "
            "leave it out to build the full size"
        )
    for name, value in family.tiny.fields.items():
        setattr(config, name, value)
    for name, value in family.tiny.defaults.items():
        if getattr(config, name, None) is None:
            setattr(config, name, value)


def _shrinking(config: PreTrainedConfig) -> Family | None:
    """Return the record of the config's type; for a type without one, of the type whose config it extends."""
    family = registered(config.type)
    if family is not None:
        return family
    known = {kind: name for name, kind in PreTrainedConfig.get_known_choices().items()}
    return next(
        (
            family_of_base
            for base in type(config).__mro__
            if (family_of_base := registered(known.get(base, ""))) is not None
        ),
        None,
    )
