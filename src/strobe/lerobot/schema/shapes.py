"""Make a config's shape: a dataclass with the fields, plain types and written defaults of a config of LeRobot's.

draccus checks a flag's kind against the shape as it would against LeRobot's own class, in the same words. Until LeRobot
is imported, the shape holds the user's request. A type that is not plain (a dictionary, a class of torch) is Any there:
LeRobot's own class checks it later, with everything that its ``__post_init__`` checks.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import enum
import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal, Optional, Union

from draccus.cfgparsing import parse_string
from draccus.parsers.decoding import get_decoding_fn

from strobe.core.cli.placeholders import quote_text
from strobe.lerobot.schema import registries
from strobe.lerobot.schema.source import (
    Class,
    Field,
    Module,
    UnreadableSourceError,
    fields,
    find,
    is_choice,
    is_enum,
    last_name,
    resolve,
    resolve_class,
)

_PLAIN: dict[str, Any] = {"int": int, "float": float, "bool": bool, "str": str, "Path": Path, "None": NoneType}
_REQUEST = "_strobe_request"  # attribute of a shape's object: what it was built from


class Unread:
    """Stands for a default whose expression is not read."""

    def __repr__(self) -> str:
        return "…"


UNREAD = Unread()


@cache
def shape(of: Class) -> type:
    """Return the shape of a config. Raises UnreadableSourceError."""
    items = [item for item in fields(of).values() if item.init]
    parts = [(item.name, _type(item.module, item.annotation), _default(item)) for item in items]
    return dataclasses.make_dataclass(of.name, parts, kw_only=True, module=of.module.name)


def options(of: Class) -> list[str]:
    """Return the names of a config's flags, those of inner configs with their dots. Raises UnreadableSourceError.

    A name that ends in ``.*`` stands for all names that begin so, where a `type` decides which there are.
    """
    names = []
    for item in fields(of).values():
        if not item.init:
            continue
        names.append(item.name)
        for inner in _annotated_configs(item.module, item.annotation):
            if is_choice(inner):
                names.append(f"{item.name}.*")
            elif fields(inner):
                names += [f"{item.name}.{name}" for name in options(inner)]
    return list(dict.fromkeys(names))


def find_config(where: str, kind: str | None) -> Class:
    """Return the config at ``where``, ``'module:Class'``; in a registry, the config of the type ``kind``.

    Raises:
        UnreadableSourceError: the source does not show it.
        KeyError: there is no such type.
    """
    return registries.choices(where)[kind or ""] if where in registries.FOLDERS else find(where)


def build(where: str, given: Mapping[str, Any], path: Sequence[str] = ()) -> Any:
    """Return an object of the shape of the config at ``where``, with ``given`` (field → value, as YAML has them).

    Args:
        path: prefix of the fields' names in messages, such as ``('dataset',)``.

    Raises:
        UnreadableSourceError: the source does not show enough of it.
        KeyError: there is no such type.
        Exception: draccus's own, for a missing value or one of the wrong kind.
    """
    fields_given = dict(given)
    kind = fields_given.pop("type", None) if where in registries.FOLDERS else None
    built: Any = get_decoding_fn(shape(find_config(where, kind)))(fields_given, tuple(path))
    if kind is not None:
        built.type = kind
    setattr(built, _REQUEST, Request(where, dict(given), tuple(path)))
    return built


@dataclasses.dataclass(frozen=True)
class Request:
    """The request that an object of a shape was built from: the config's place, its fields as given, their prefix."""

    where: str
    given: dict[str, Any]
    path: tuple[str, ...]

    @property
    def kind(self) -> str | None:
        """The chosen type, for a registry."""
        return self.given.get("type") if self.where in registries.FOLDERS else None


def read_request(value: object) -> Request | None:
    """Return what an object of a shape was built from; None for any other object."""
    return getattr(value, _REQUEST, None)


def build_real(request: Request) -> Any:
    """Build LeRobot's own object. Imports LeRobot, whose registry must know the type.

    Raises:
        Exception: LeRobot's or draccus's own, for a value that they refuse.
    """
    module, _, name = request.where.partition(":")
    cls, given = getattr(importlib.import_module(module), name), dict(request.given)
    if request.kind is not None:
        cls = cls.get_choice_class(given.pop("type"))
    return get_decoding_fn(cls)(given, request.path)


def nest_fields(where: str, given: Mapping[str, str]) -> dict[str, Any]:
    """Return dotted fields of the config at ``where`` and their texts as draccus reads them: nested dictionaries.

    Values follow YAML's rules, but for those of a field that holds text or a path.
    """
    config = None
    with contextlib.suppress(UnreadableSourceError, KeyError):
        config = shape(find_config(where, given.get("type")))
    outer: dict[str, Any] = {}
    for name, text in given.items():
        *path, last = name.split(".")
        inner = outer
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = parse_string(quote_text(config, name, text))
    return outer


def _annotated_configs(within: Module, annotation: ast.expr) -> list[Class]:
    if isinstance(annotation, ast.BinOp):
        return [*_annotated_configs(within, annotation.left), *_annotated_configs(within, annotation.right)]
    if isinstance(annotation, ast.Subscript) and last_name(annotation.value) == "Optional":
        return _annotated_configs(within, annotation.slice)
    cls = resolve_class(within, annotation)
    return [cls] if cls is not None and not is_enum(cls) else []


def _type(within: Module, annotation: ast.expr) -> Any:
    if isinstance(annotation, ast.Constant):
        return NoneType if annotation.value is None else Any
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        either = (_type(within, annotation.left), _type(within, annotation.right))
        return Any if Any in either else Union[either]  # noqa: UP007
    if isinstance(annotation, ast.Subscript):
        return _subscript(within, last_name(annotation.value), annotation.slice)
    if isinstance(annotation, ast.Name):
        if annotation.id in _PLAIN and annotation.id not in within.names:
            return _PLAIN[annotation.id]
        cls = resolve_class(within, annotation)
        if cls is not None and is_enum(cls):
            return _enumeration(cls)
        if cls is not None and fields(cls) and not is_choice(cls):
            return shape(cls)
    return Any


def _subscript(within: Module, name: str, inner: ast.expr) -> Any:
    if name == "Literal":
        values = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        plain = [value.value for value in values if isinstance(value, ast.Constant)]
        return Literal[tuple(plain)] if len(plain) == len(values) else Any
    if name in ("list", "List"):
        item = _type(within, inner)
        return Any if item is Any else list[item]
    if name == "Optional":
        item = _type(within, inner)
        return Any if item is Any else Optional[item]  # noqa: UP045
    return Any


@cache
def _enumeration(of: Class) -> Any:
    assigned = [node for node in of.node.body if isinstance(node, ast.Assign)]
    members = {
        node.targets[0].id: node.value.value
        for node in assigned
        if isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant)
    }
    if not members or len(members) < len(assigned):
        return Any
    return enum.Enum(of.name, members, module=of.module.name)


def _default(item: Field) -> Any:
    if item.default is None:
        return dataclasses.field()
    if isinstance(item.default, ast.Call) and last_name(item.default.func) == "field":
        keywords = {keyword.arg: keyword.value for keyword in item.default.keywords}
        if "default" in keywords:
            return dataclasses.field(default_factory=_value(item.module, keywords["default"]))
        if "default_factory" not in keywords:
            return dataclasses.field()
        factory = ast.unparse(keywords["default_factory"])
        return dataclasses.field(default_factory={"list": list, "dict": dict}.get(factory, lambda: UNREAD))
    return dataclasses.field(default_factory=_value(item.module, item.default))


def _value(within: Module, expression: ast.expr) -> Any:
    try:
        value: Any = ast.literal_eval(expression)
    except ValueError:
        value = UNREAD
        if isinstance(expression, ast.Name):
            value = _constant(within, expression.id)
        elif isinstance(expression, ast.Attribute):
            cls = resolve_class(within, expression.value)
            if cls is not None and is_enum(cls) and _enumeration(cls) is not Any:
                value = getattr(_enumeration(cls), expression.attr, UNREAD)
    return lambda: value


def _constant(within: Module, name: str) -> Any:
    try:
        _, node = resolve(within, name) or (within, None)
        return ast.literal_eval(node) if isinstance(node, ast.expr) else UNREAD
    except (UnreadableSourceError, ValueError):
        return UNREAD
