"""Treatments as text, such as ``'precision=bf16, precision.part=model.backbone'``: read by the keys of entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import yaml

from strobe.errors import UserError, nearest

Spec = Mapping[str, Any]


class Keyed(Protocol):
    """The part of an entry that says how it is written."""

    @property
    def key(self) -> str: ...

    @property
    def options(self) -> tuple[str, ...]: ...


def entry_of[E: Keyed](key: str, entries: Sequence[E]) -> E:
    """The entry that ``key`` begins. Raises UserError."""
    for entry in entries:
        if key == entry.key or (entry.key.endswith(".") and key.startswith(entry.key) and key != entry.key):
            return entry
    known = [entry.key for entry in entries]
    raise UserError(f"no treatment '{key}': {nearest(key, known, many=len(known))}")


def parse(text: str, entries: Sequence[Keyed]) -> list[Spec]:
    """``'precision=bf16, precision.part=model.backbone, channels_last=true'`` as specs. Raises UserError.

    An option belongs to the treatment before it; settings of the policy are one treatment. A value holds no comma.
    """
    specs: list[dict[str, Any]] = []
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, equals, raw = (piece.strip() for piece in pair.partition("="))
        if not (key and equals and raw):
            raise UserError(f"'{pair}': write KEY=VALUE")
        try:
            value = yaml.safe_load(raw)
        except yaml.YAMLError:
            raise UserError(f"'{pair}': the value cannot be read") from None
        if specs and belongs(key, entry_of(next(iter(specs[-1])), entries)) and key not in specs[-1]:
            specs[-1][key] = value
        elif (owner := _owner(key, entries)) is not None:
            raise UserError(f"'{key}' is an option of '{owner}': write {owner}=… before it")
        else:
            entry_of(key, entries)
            specs.append({key: value})
    return list(specs)


def belongs(key: str, entry: Keyed) -> bool:
    """Whether ``key`` may follow the key of ``entry``."""
    if entry.key.endswith("."):
        return key.startswith(entry.key)
    return key in [f"{entry.key}.{option}" for option in entry.options]


def _owner(key: str, entries: Sequence[Keyed]) -> str | None:
    return next((entry.key for entry in entries if not entry.key.endswith(".") and belongs(key, entry)), None)
