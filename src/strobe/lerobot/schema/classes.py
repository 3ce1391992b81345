"""Dataclasses as their source declares them: their fields, those of their bases included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from strobe.lerobot.schema.source import Module, Unreadable, module, resolve

# Packages whose classes have no fields; a base from any other has to be imported to be known.
_WITHOUT_FIELDS = ("abc", "draccus", "enum", "typing", "huggingface_hub", "collections")
REGISTRIES = ("ChoiceRegistry", "PluginRegistry")  # draccus's: a class below one is chosen by `type`


@dataclass(frozen=True)
class Class:
    """A class in the module that defines it."""

    module: Module
    node: ast.ClassDef

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def key(self) -> tuple[str, str]:
        """Module and name, by which two are the same."""
        return self.module.name, self.node.name


@dataclass(frozen=True)
class Field:
    """One field: its annotation and default as they are written, in the module where they mean something."""

    name: str
    module: Module
    annotation: ast.expr
    default: ast.expr | None
    init: bool


def find(where: str) -> Class:
    """The class at ``'package.module:Class'``. Raises Unreadable."""
    name, _, cls = where.partition(":")
    found = class_of(module(name), ast.Name(cls))
    if found is None:
        raise Unreadable(f"no class {where}")
    return found


def class_of(within: Module, expression: ast.expr) -> Class | None:
    """The class that an expression names; None where it is of another package, or no class."""
    if not isinstance(expression, ast.Name):
        return None
    found = resolve(within, expression.id)
    return Class(found[0], found[1]) if found is not None and isinstance(found[1], ast.ClassDef) else None


def fields(of: Class) -> dict[str, Field]:
    """The fields of a dataclass by name, in the order of `dataclasses.fields`. Raises Unreadable."""
    return _fields(*of.key, of.module.file.stat().st_mtime_ns, of)


_kept: dict[tuple[str, str, int], dict[str, Field]] = {}


def _fields(name: str, cls: str, changed: int, of: Class) -> dict[str, Field]:
    key = (name, cls, changed)
    if key not in _kept:
        found: dict[str, Field] = {}
        for base in reversed(bases(of)):
            found |= fields(base)
        if _is_dataclass(of):
            found |= {item.name: item for item in _own(of)}
        _kept[key] = found
    return _kept[key]


def bases(of: Class) -> list[Class]:
    """The bases that are LeRobot's or a plug-in's. Raises Unreadable for one of which nothing is known."""
    found = []
    for base in of.node.bases:
        if isinstance(base, ast.Subscript):  # Generic[T]
            base = base.value
        cls = class_of(of.module, base)
        if cls is not None:
            found.append(cls)
        elif not _without_fields(of.module, base):
            raise Unreadable(f"the base {ast.unparse(base)} of {of.name}")
    return found


def lineage(of: Class) -> Iterator[Class]:
    """The class and all its bases."""
    yield of
    for base in bases(of):
        yield from lineage(base)


def is_choice(of: Class) -> bool:
    """Whether draccus chooses among the classes below it by their `type`."""
    named = (ast.unparse(base).rpartition(".")[2] for cls in lineage(of) for base in cls.node.bases)
    return any(name in REGISTRIES for name in named)


def is_enum(of: Class) -> bool:
    """Whether it is an enumeration."""
    named = (ast.unparse(base).rpartition(".")[2] for cls in lineage(of) for base in cls.node.bases)
    return any(name in ("Enum", "StrEnum", "IntEnum") for name in named)


def _without_fields(within: Module, base: ast.expr) -> bool:
    head = base
    while isinstance(head, ast.Attribute):
        head = head.value
    if not isinstance(head, ast.Name):
        return False
    if head.id in within.imports:
        return within.imports[head.id][0].partition(".")[0] in _WITHOUT_FIELDS
    return head.id in ("object", "str", "int", "float", "dict", "list", "tuple", "Exception", "ValueError")


def _is_dataclass(of: Class) -> bool:
    for decorator in of.node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(called).rpartition(".")[2] == "dataclass":
            return True
    return False


def _own(of: Class) -> Iterator[Field]:
    for node in of.node.body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        annotation = unquoted(node.annotation)
        said = ast.unparse(annotation).split("[")[0].rpartition(".")[2]
        if said in ("ClassVar", "InitVar", "KW_ONLY"):
            continue
        default, init = node.value, True
        if isinstance(default, ast.Call) and ast.unparse(default.func).rpartition(".")[2] == "field":
            init = not any(one.arg == "init" and ast.unparse(one.value) == "False" for one in default.keywords)
        yield Field(node.target.id, of.module, annotation, default, init)


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def unquoted(annotation: ast.expr) -> ast.expr:
    """An annotation that is written as a string, as the expression in it."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return _parsed(annotation.value)
        except SyntaxError:
            raise Unreadable(f"the annotation {annotation.value!r}") from None
    return annotation
