"""How packages of others wrote a family's record before it had capabilities. All of it goes with the next version.

A record's arguments were all in `Family` itself (``Family(..., steps="num_steps", flow=Flow(...))``), and their kinds
lay in its module.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from strobe.core.families import capabilities, sampling
from strobe.core.families.capabilities import Capability

T = TypeVar("T")

# Keyword → the capability that it was a whole record of.
_RECORDS: dict[str, type[Capability]] = {
    "flow": sampling.Flow,
    "conditioning": sampling.Conditioning,
    "last_block": sampling.LastBlock,
    "rerun": sampling.Rerun,
    "views": sampling.Views,
    "words": sampling.Words,
    "backbone": capabilities.Backbone,
}
# Keyword → the capability with it as the only value.
_VALUES: dict[str, type[Capability]] = {
    "unread_head": sampling.UnreadHead,
    "word_tables": sampling.WordTables,
    "context": sampling.Context,
    "unread_half": sampling.UnreadHalf,
}
# Keyword → the facts that it is one of, under the same name.
_FACTS: dict[str, type[Capability]] = {
    each.name: kind
    for kind in (
        *(capabilities.Parts, capabilities.LiveFields, capabilities.InputFacts, capabilities.Construction),
        *(capabilities.Calls, capabilities.Unregistered, capabilities.MpsTimes, sampling.Attention, sampling.Graphs),
    )
    for each in fields(kind)
}
_KINDS = {**_RECORDS, **_VALUES, **_FACTS}
_LAY_IN_FAMILY = {kind.__name__: kind for kind in (*_RECORDS.values(), capabilities.Arm, capabilities.HubNeed)}


def accepting_former(kind: type[T]) -> type[T]:
    """Have ``kind``, the class of the record, take the former keywords too, with one warning for each record."""
    init: Any = kind.__init__

    @functools.wraps(init)
    def accepting(self: object, *args: object, **values: Any) -> None:
        former = {name: values.pop(name) for name in [*values] if name in _KINDS}
        if former:
            kinds = ", ".join(dict.fromkeys(_KINDS[name].__name__ for name in former))
            warnings.warn(
                f"{', '.join(former)}: arguments of Family that are capabilities now ({kinds}), see docs/families.md; "
                "the former ones go with the next version",
                DeprecationWarning,
                stacklevel=2,
            )
            values["capabilities"] = _translated(former, values.get("capabilities", ()))
        init(self, *args, **values)

    kind.__init__ = accepting
    return kind


def capability_named(name: str) -> type:
    """Return the kind of argument of this name that lay beside `Family`. Raises AttributeError."""
    if name not in _LAY_IN_FAMILY:
        raise AttributeError(f"module 'strobe.core.families.family' has no attribute '{name}'")
    return _LAY_IN_FAMILY[name]


def _translated(former: Mapping[str, Any], given: tuple[Capability, ...]) -> tuple[Capability, ...]:
    """Return the capabilities ``given`` with those of the former keywords in their places."""
    made: dict[type[Capability], Any] = {type(capability): capability for capability in given}
    for name, value in former.items():
        kind: Any = _KINDS[name]
        if name in _FACTS:
            made[kind] = replace(made.get(kind, kind()), **({name: value} if value is not None else {}))
        elif value:
            made[kind] = value if name in _RECORDS else kind(value)
        else:
            made.pop(kind, None)
    return tuple(made.values())
