"""The catalogue's entries read from the source of their files, for help and flags: no treatment is imported.

A treatment's file imports torch, which takes seconds. What its `Entry` says in words stands in the source as constants:
key, help, effect, options, and the one value of a treatment that takes one.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from strobe.devices.untried import Feature
from strobe.errors import UserError
from strobe.lerobot.schema.source import Module, Unreadable, module, resolve
from strobe.treatments.written import Spec, belongs, entry_of

_CATALOGUE = "strobe.treatments.catalogue"
_POSITIONS = ("key", "help", "effect", "rank", "make", "options")


@dataclass(frozen=True)
class Declared:
    """The words of an `Entry`; see there."""

    key: str
    help: str
    effect: str
    options: tuple[str, ...] = ()
    untried: tuple[Feature, ...] = ()
    only: str | bool | None = None  # the one value that it takes; None where it takes others

    def check(self, spec: Spec) -> None:
        """Raises UserError for a value other than the only one, in the words of the treatment itself."""
        given = spec.get(self.key, self.only)
        if self.only is True and given is not True:
            raise UserError(f"{self.key}={given}: {self.key} takes no value")
        if isinstance(self.only, str) and given != self.only:
            raise UserError(f"{self.key}={given}: '{self.only}' is the only value")


def declared() -> tuple[Declared, ...]:
    """All entries, those that other packages bring among them, in the order of `catalogue.entries`."""
    return _asked() if _CATALOGUE in sys.modules else _read()


def _asked() -> tuple[Declared, ...]:
    from strobe.treatments.catalogue import entries

    return tuple(Declared(one.key, one.help, one.effect, one.options, one.untried) for one in entries())


@cache
def _read() -> tuple[Declared, ...]:
    try:
        catalogue = module(_CATALOGUE)
        found = [one for element in _elements(catalogue.names["ENTRIES"]) for one in _entries(catalogue, element)]
        for point in entry_points(group="strobe.treatments"):
            name, _, attribute = point.value.partition(":")
            found += _entries(module(name), ast.Name(attribute))
        if len({one.key.split(".")[0] for one in found}) < len(found):
            raise Unreadable("two of one name: the catalogue says which one counts")
        return tuple(found)
    except Unreadable:
        return _asked()


def check_words(spec: Spec) -> None:
    """Check the keys of a spec, and its value where its treatment takes one value. Raises UserError."""
    if not spec:
        return  # said where it is made
    first, *others = spec
    entry = entry_of(first, declared())
    for key in others:
        if not belongs(key, entry):
            raise UserError(f"'{key}' is no option of '{first}': write it as a treatment of its own")
    entry.check(spec)


def _elements(node: Any) -> list[ast.expr]:
    if not isinstance(node, ast.Tuple | ast.List):
        raise Unreadable("entries that are not written out")
    return [one.value if isinstance(one, ast.Starred) else one for one in node.elts]


def _entries(within: Module, node: Any) -> list[Declared]:
    """The entries of an expression: an `Entry(…)`, a tuple of them, a name of either, or such a name in a module."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Entry":
        return [_entry(within, node)]
    if isinstance(node, ast.Tuple | ast.List):
        return [one for element in _elements(node) for one in _entries(within, element)]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in within.imports:
        package, name = within.imports[node.value.id]
        return _entries(module(f"{package}.{name}"), ast.Name(node.attr))
    if isinstance(node, ast.Name) and (found := resolve(within, node.id)) is not None:
        return _entries(*found)
    raise Unreadable(f"an entry of {within.name}")


def _entry(within: Module, call: ast.Call) -> Declared:
    given: dict[str, ast.expr] = dict(zip(_POSITIONS, call.args, strict=False))
    given |= {one.arg: one.value for one in call.keywords if one.arg is not None}
    words = [name for name in ("key", "help", "effect", "options", "untried") if name in given]
    return Declared(**{name: _value(within, given[name]) for name in words}, only=_only(given["make"]))


def _only(make: ast.expr) -> str | bool | None:
    """The one value that ``only(key, value, …)`` and ``switch(key, …)`` take."""
    if isinstance(make, ast.Call) and isinstance(make.func, ast.Name):
        if make.func.id == "switch":
            return True
        if make.func.id == "only" and isinstance(make.args[1], ast.Constant):
            return str(make.args[1].value)
    return None


def _value(within: Module, node: Any) -> Any:
    """A constant: written out, by its name, or a text with ``{', '.join(NAME)}`` in it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_value(within, one) for one in node.values)
    if isinstance(node, ast.FormattedValue):
        return _value(within, node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join":
        return _value(within, node.func.value).join(_value(within, node.args[0]))
    if isinstance(node, ast.Name) and (found := resolve(within, node.id)) is not None:
        return _value(*found)
    if isinstance(node, ast.Tuple):
        return tuple(_value(within, one) for one in node.elts)
    if isinstance(node, ast.Constant):
        return node.value
    raise Unreadable(f"{ast.unparse(node)} in {within.name}")
