"""Every fact of a measurement that some rule or table reads by its name is written somewhere.

Facts are keyed by text: one that is renamed where it is written goes missing without a word where it is read. So both
sides are collected from the source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

import pytest

import strobe

SOURCE = Path(strobe.__file__).parent
ANY = "*"  # what a name holds that is only known when it runs, such as the setting in 'policy.*'


@dataclass(frozen=True)
class Use:
    """A fact's name, or a pattern of names, and where it stands."""

    name: str
    place: str


@dataclass
class Source:
    """A module's tree, and what its names mean."""

    name: str
    tree: ast.Module
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            self.parents |= dict.fromkeys(ast.iter_child_nodes(node), node)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        while (parent := self.parents.get(node)) is not None:
            yield (node := parent)

    def place(self, node: ast.AST) -> str:
        return f"{self.name}:{getattr(node, 'lineno', 0)}"

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        found: dict[str, ast.expr] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                target, value = node.targets[0], node.value
                several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
                pairs = zip(target.elts, value.elts, strict=True) if several else [(target, value)]
                found |= {name.id: given for name, given in pairs if isinstance(name, ast.Name)}
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                found[node.target.id] = node.value
        return found

    @cached_property
    def imported(self) -> dict[str, tuple[str, str]]:
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
        return found


class Collected:
    """The facts that ``sources`` read and write."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = {name: Source(name, ast.parse(text)) for name, text in sources.items()}
        self.read: list[Use] = []
        self.written: list[Use] = []
        self.unknown: list[str] = []  # reads whose fact cannot be told from the source
        self._askers: dict[str, set[tuple[int, str]]] = {}  # functions that are given the name of a fact to read
        for source in self.sources.values():
            for node in ast.walk(source.tree):
                self._look(source, node)
        self._ask()

    def _look(self, source: Source, node: ast.AST) -> None:
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr="get"), args=[key, *_]) if _are_facts(source, value):
                self._read(source, key)
            case ast.Subscript(value=value, slice=key, ctx=ast.Load()) if _are_facts(source, value):
                self._read(source, key)
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[value]) if _are_facts(source, value):
                self._read(source, key)
            case ast.Subscript(value=value, slice=key, ctx=ast.Store()) if _are_facts(source, value):
                self._write(source, key)
            case ast.Subscript(value=ast.Name(id="facts"), slice=key, ctx=ast.Store()):
                self._write(source, key)
            case ast.Assign(targets=[ast.Attribute(attr="facts")], value=value):
                self._write_all(source, value)
            case ast.keyword(arg="facts", value=value):
                self._write_all(source, value)
            case ast.FunctionDef(name="facts" | "_facts"):
                self._write_all(source, node)

    def _write_all(self, source: Source, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                for key in node.keys:
                    if key is not None:
                        self._write(source, key)
            elif isinstance(node, ast.DictComp):
                self._write(source, node.key)

    def _write(self, source: Source, key: ast.expr) -> None:
        self.written += [Use(name, source.place(key)) for name in self._names(source, key) or () if name != ANY]

    def _read(self, source: Source, key: ast.expr) -> None:
        names = self._names(source, key, asks=True)
        if names is None or ANY in names:
            self.unknown.append(f"{source.place(key)}: {ast.unparse(key)}")
        else:
            self.read += [Use(name, source.place(key)) for name in names]

    def _ask(self) -> None:
        """Read what is given to the functions that take a fact's name."""
        for source in self.sources.values():
            for node in ast.walk(source.tree):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
                    continue
                called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                for index, pattern in self._askers.get(called, ()):
                    # A method of the same name elsewhere takes something else.
                    if isinstance(node.func, ast.Attribute) or index >= len(node.args):
                        continue
                    names = self._names(source, node.args[index])
                    if names is None:
                        self.unknown.append(f"{source.place(node)}: {ast.unparse(node)}")
                    self.read += [Use(pattern.replace(ANY, name), source.place(node)) for name in names or ()]

    def _names(self, source: Source, key: ast.expr, *, asks: bool = False) -> set[str] | None:
        """Return the names that ``key`` can be; None where they are unknown, or (``asks``) those who call are asked."""
        match key:
            case ast.Constant(value=str(name)):
                return {name}
            case ast.IfExp(body=one, orelse=other):
                both = [self._names(source, side, asks=asks) for side in (one, other)]
                return None if None in both else set().union(*(names or set() for names in both))
            case ast.JoinedStr(values=values):
                return self._joined(source, values, asks)
            case ast.Name(id=name):
                return self._named(source, key, name, asks)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return self._member(source, key, name)
        return None

    def _joined(self, source: Source, values: list[ast.expr], asks: bool) -> set[str] | None:
        made = {""}
        for value in values:
            if isinstance(value, ast.Constant):
                parts = {str(value.value)}
            else:
                inner = value.value if isinstance(value, ast.FormattedValue) else value
                asked = len(self._askers_of(source, inner))
                parts = self._names(source, inner) or {ANY}
                if asks and parts == {ANY} and asked:
                    for function, index in self._askers_of(source, inner):
                        pattern = "".join(str(v.value) if isinstance(v, ast.Constant) else ANY for v in values)
                        self._askers.setdefault(function, set()).add((index, pattern))
                    return set()
            made = {start + part for start in made for part in parts}
        return made

    def _named(self, source: Source, node: ast.AST, name: str, asks: bool) -> set[str] | None:
        for scope in source.above(node):
            for loop in _loops(scope):
                position = _position(loop.target, name)
                if position is not None:
                    return self._items(source, loop.iter, position)
        callers = self._askers_of(source, node)
        if callers:
            for function, index in callers if asks else ():
                self._askers.setdefault(function, set()).add((index, ANY))
            return set() if asks else None
        value = self._constant(source, name)
        return self._names(*value) if value is not None else None

    def _askers_of(self, source: Source, node: ast.AST) -> list[tuple[str, int]]:
        """The function that has the name ``node`` as a parameter, and which one it is."""
        if isinstance(node, ast.Name):
            for scope in source.above(node):
                if isinstance(scope, ast.FunctionDef):
                    given = [a.arg for a in scope.args.args]
                    annotated = {a.arg: ast.unparse(a.annotation) for a in scope.args.args if a.annotation is not None}
                    if node.id in given and annotated.get(node.id) == "str":
                        return [(scope.name, given.index(node.id))]
        return []

    def _constant(self, source: Source, name: str) -> tuple[Source, ast.expr] | None:
        if name in source.constants:
            return source, source.constants[name]
        module, original = source.imported.get(name, ("", ""))
        other = self.sources.get(module) or self.sources.get(f"{module}.__init__")
        return self._constant(other, original) if other is not None else None

    def _items(self, source: Source, iterable: ast.expr, position: int) -> set[str] | None:
        """The texts that a loop over ``iterable`` gives its variable (of a tuple: the one at ``position``)."""
        match iterable:
            case ast.Call(func=ast.Attribute(value=value, attr="items" | "keys")):
                return self._items(source, value, 0) if position == 0 else None
            case ast.Name(id=name):
                value = self._constant(source, name)
                return self._items(*value, position) if value is not None else None
            case ast.Dict(keys=keys):
                return self._texts(source, [key for key in keys if key is not None])
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                return self._texts(source, elements)
        return None

    def _texts(self, source: Source, elements: Iterable[ast.expr]) -> set[str] | None:
        found = [self._names(source, element) for element in elements]
        return None if None in found else set().union(*(names or set() for names in found))

    def _member(self, source: Source, node: ast.AST, name: str) -> set[str] | None:
        """The texts that a Literal lets ``self.name`` be."""
        for scope in source.above(node):
            if not isinstance(scope, ast.ClassDef):
                continue
            for line in scope.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.target.id == name:
                    return self._literal(source, line.annotation)
        return None

    def _literal(self, source: Source, annotation: ast.expr) -> set[str] | None:
        match annotation:
            case ast.Name(id=name):
                value = self._constant(source, name)
                return self._literal(*value) if value is not None else None
            case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=elements)):
                return self._texts(source, elements)
        return None


def _are_facts(source: Source, node: ast.expr) -> bool:
    """Whether ``node`` is ``….facts``, ``….facts()`` or a name called 'facts' that was assigned in its function."""
    match node:
        case ast.Attribute(attr="facts") | ast.Call(func=ast.Attribute(attr="facts")):
            return True
        case ast.Name(id="facts"):
            functions = [scope for scope in source.above(node) if isinstance(scope, ast.FunctionDef)]
            return any(
                isinstance(line, ast.Assign | ast.AnnAssign)
                and any(isinstance(target, ast.Name) and target.id == "facts" for target in _targets(line))
                and (line.value is None or _of_facts(functions[0].name, line.value))
                for line in (ast.walk(functions[0]) if functions else ())
            )
    return False


def _of_facts(function: str, value: ast.expr) -> bool:
    if function in ("facts", "_facts"):
        return True
    return isinstance(value.func if isinstance(value, ast.Call) else value, ast.Attribute) and "facts" in ast.unparse(
        value
    )


def _targets(line: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return line.targets if isinstance(line, ast.Assign) else [line.target]


def _loops(scope: ast.AST) -> list[ast.For | ast.comprehension]:
    if isinstance(scope, ast.For):
        return [scope]
    return list(getattr(scope, "generators", []))


def _position(target: ast.expr, name: str) -> int | None:
    if isinstance(target, ast.Name):
        return 0 if target.id == name else None
    if isinstance(target, ast.Tuple):
        names = [element.id if isinstance(element, ast.Name) else "" for element in target.elts]
        return names.index(name) if name in names else None
    return None


def missing(collected: Collected) -> list[str]:
    """Facts that are read and written nowhere, with the places that read them."""
    written = {use.name for use in collected.written}

    def known(name: str) -> bool:
        return any(fnmatchcase(name, pattern) or fnmatchcase(pattern, name) for pattern in written)

    return sorted(f"{use.place} reads {use.name!r}" for use in collected.read if not known(use.name))


@pytest.fixture(scope="module")
def collected() -> Collected:
    files = SOURCE.rglob("*.py")
    return Collected(
        {".".join(["strobe", *file.relative_to(SOURCE).with_suffix("").parts]): file.read_text() for file in files}
    )


def test_every_fact_that_is_read_is_written_somewhere(collected: Collected) -> None:
    nowhere = missing(collected)
    assert not nowhere, "no treatment, subject or study writes these facts:\n" + "\n".join(nowhere)


def test_of_every_read_it_is_known_which_fact_it_is(collected: Collected) -> None:
    assert not collected.unknown, (
        "write the fact's name where it is read, or loop over a constant of this module:\n"
        + "\n".join(collected.unknown)
    )


def test_both_sides_are_found(collected: Collected) -> None:
    # That nothing is missing would also be said if nothing were found.
    read, written = ({use.name for use in uses} for uses in (collected.read, collected.written))
    assert {"batch size", "compiled", "precision", "rtc.enabled", "delays", "frames per clip", "tokens"} <= read
    assert {"batch size", "compiled", "precision", "rtc.enabled", "policy.*", "build s", "micro-batches"} <= written


READER = """
SIZE, LEVERS = "batch size", {"amp": "amp", "tf32": "TF32"}
def number(measurement, fact: str):
    return measurement.facts.get(fact)
def rule(m):
    number(m, SIZE), m.facts["gone"], m.facts.get(f"policy.{m.name}"), "tokens" in m.facts
    facts = m.facts
    return [name for fact, name in LEVERS.items() if facts.get(fact)]
"""
WRITER = """
class Treatment:
    def facts(self):
        facts = {"amp": 1, **{f"policy.{name}": 1 for name in self.names}}
        facts["batch size"] = 2
        return facts
def study(measurement):
    measurement.facts["tokens"] = 3
"""


def test_what_is_read_and_written_nowhere_is_named_with_its_place() -> None:
    found = Collected({"a": READER, "b": WRITER})
    assert not found.unknown
    assert missing(found) == ["a:6 reads 'gone'", "a:8 reads 'tf32'"]
    assert Collected({"a": "def f(m, keys):\n    return [m.facts[k] for k in keys]"}).unknown == ["a:2: k"]
