"""Dataclasses as their source declares them, with their fields and those of their bases."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from strobe.lerobot.schema.source import Module, UnreadableSourceError, module, resolve

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
        """Module and name: two classes are the same if these are."""
        return self.module.name, self.node.name


@dataclass(frozen=True)
class Field:
    """One field: its annotation and default as written, and the module that gives them their meaning."""

    name: str
    module: Module
    annotation: ast.expr
    default: ast.expr | None
    init: bool


def find(where: str) -> Class:
    """Return the class at ``'package.module:Class'``. Raises UnreadableSourceError."""
    name, _, cls = where.partition(":")
    found_class = class_of(module(name), ast.Name(cls))
    if found_class is None:
        raise UnreadableSourceError(f"no class {where}")
    return found_class


def class_of(within: Module, expression: ast.expr) -> Class | None:
    """Return the class that an expression names; None for a class of another package, or no class."""
    if not isinstance(expression, ast.Name):
        return None
    definition = resolve(within, expression.id)
    return (
        Class(definition[0], definition[1])
        if definition is not None and isinstance(definition[1], ast.ClassDef)
        else None
    )


def fields(of: Class) -> dict[str, Field]:
    """Return the fields of a dataclass by name, in the order of `dataclasses.fields`. Raises UnreadableSourceError."""
    return _fields(*of.key, of.module.file.stat().st_mtime_ns, of)


_known_fields: dict[tuple[str, str, int], dict[str, Field]] = {}


def _fields(name: str, cls: str, changed: int, of: Class) -> dict[str, Field]:
    key = (name, cls, changed)
    if key not in _known_fields:
        known: dict[str, Field] = {}
        for base in reversed(bases(of)):
            known |= fields(base)
        if _is_dataclass(of):
            known |= {item.name: item for item in _own(of)}
        _known_fields[key] = known
    return _known_fields[key]


def bases(of: Class) -> list[Class]:
    """Return the bases of LeRobot or a plug-in. Raises UnreadableSourceError for a base that cannot be read."""
    classes = []
    for base in of.node.bases:
        if isinstance(base, ast.Subscript):  # Generic[T]
            base = base.value
        cls = class_of(of.module, base)
        if cls is not None:
            classes.append(cls)
        elif not _without_fields(of.module, base):
            raise UnreadableSourceError(f"the base {ast.unparse(base)} of {of.name}")
    return classes


def lineage(of: Class) -> Iterator[Class]:
    """Yield the class and all its bases."""
    yield of
    for base in bases(of):
        yield from lineage(base)


def is_choice(of: Class) -> bool:
    """Return whether draccus chooses among its subclasses by their `type`."""
    named = (ast.unparse(base).rpartition(".")[2] for cls in lineage(of) for base in cls.node.bases)
    return any(name in REGISTRIES for name in named)


def is_enum(of: Class) -> bool:
    """Return whether the class is an enumeration."""
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
        name = ast.unparse(annotation).split("[")[0].rpartition(".")[2]
        if name in ("ClassVar", "InitVar", "KW_ONLY"):
            continue
        default, init = node.value, True
        if isinstance(default, ast.Call) and ast.unparse(default.func).rpartition(".")[2] == "field":
            init = not any(k.arg == "init" and ast.unparse(k.value) == "False" for k in default.keywords)
        yield Field(node.target.id, of.module, annotation, default, init)


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def unquoted(annotation: ast.expr) -> ast.expr:
    """Return an annotation; one that is written as a string, as the expression in it. Raises UnreadableSourceError."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return _parsed(annotation.value)
        except SyntaxError:
            raise UnreadableSourceError(f"the annotation {annotation.value!r}") from None
    return annotation
