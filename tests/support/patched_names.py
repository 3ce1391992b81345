"""Names that a program patches, found in its syntax tree: a rename leaves them behind, and no checker of types sees."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOMS = ("strobe", "support", "lerobot")  # packages whose sources are read; nothing is imported
PATH = re.compile(rf"({'|'.join(ROOMS)})(\.[A-Za-z_]\w*)+")  # a text that is the path of a module
PATCHES = ("object", "setattr", "delattr", "put", "wrap")  # called with an owner and a name


def find_missing_names(source: str, defined: str) -> list[str]:
    """Return the patched names that are not there, each with its line.

    Looked at are `mock.patch` and its kin, `setattr` and its kin, the file's own functions that call these on what they
    are given, assignments to attributes of what was imported, paths of modules as text, and programs as text.

    Args:
        defined: sources; what is patched on an object that only a run makes must at least be a word of them.
    """
    return _Finder(defined).look(ast.parse(source))


class _Finder(ast.NodeVisitor):
    """Goes through a program in its order. A scope is a table of names → path of an import, dictionary, or None."""

    def __init__(self, defined: str, text: bool = False) -> None:
        self._defined, self._text = defined, text
        self._gone: list[str] = []
        self._scopes: list[dict[str, Any]] = [{}]
        self._patching: set[str] = set(PATCHES)

    def look(self, tree: ast.Module) -> list[str]:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and len(node.args.args) > 1:
                own = [one.arg for one in node.args.args[:2]]
                calls = [one for one in ast.walk(node) if isinstance(one, ast.Call) and _last(one.func) in PATCHES]
                if any([ast.unparse(given) for given in one.args[:2]] == own for one in calls):
                    self._patching.add(node.name)
        self.visit(tree)
        return self._gone

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            path = alias.name if alias.asname else alias.name.partition(".")[0]
            self._scopes[-1][alias.asname or path] = path
            self._add_text_import(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._scopes[-1][alias.asname or alias.name] = path = f"{node.module}.{alias.name}"
            self._add_text_import(path, node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._scopes.append(dict.fromkeys(one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)))
        self.generic_visit(node)
        self._scopes.pop()

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                self._look(self._value(target.value), target.attr, node)
            elif isinstance(target, ast.Name):
                self._scopes[-1][target.id] = node.value if isinstance(node.value, ast.Dict) else None

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit_Assign(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_Call(self, node: ast.Call) -> None:
        called, given = _last(node.func), node.args
        texts = [one.value if isinstance(one, ast.Constant) else None for one in given[:2]]
        if called == "multiple":
            for name in (name for word in node.keywords for name in self._keywords(word)):
                self._look(self._value(given[0]), name, node)
        elif called in self._patching and len(given) > 1 and isinstance(texts[1], str):
            owner, name = self._value(given[0]), texts[1]
            self._look(owner, name, node)
            if owner is None and not self._is_word(name):
                self._miss(name, node)
        self.generic_visit(node)  # `mock.patch` of a path: it is a path as text

    def visit_Constant(self, node: ast.Constant) -> None:
        text = node.value
        if not isinstance(text, str):
            return
        if PATH.fullmatch(text) and not is_defined(text):
            self._miss(text, node)
        elif "import " in text and "\n" in text:
            try:
                program = ast.parse(text)
            except SyntaxError:  # words, or a program with places to fill in
                return
            inside = _Finder(self._defined, text=True).look(program)
            self._gone += [f"line {node.lineno}, in its program {one}" for one in inside]

    def _add_text_import(self, path: str, node: ast.AST) -> None:
        """Look an import of a program in text up; those of files are seen by the checker of types."""
        if self._text and not is_defined(path):
            self._miss(path, node)

    def _value(self, node: ast.expr) -> Any:
        """Return the path of what an expression stands for, or None if only a run knows."""
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value)
            return f"{owner}.{node.attr}" if isinstance(owner, str) else None
        if not isinstance(node, ast.Name):
            return None
        return next((scope[node.id] for scope in reversed(self._scopes) if node.id in scope), None)

    def _keywords(self, word: ast.keyword) -> list[str]:
        """Return the names of a keyword, or of a dictionary that is unfolded."""
        if word.arg is not None:
            return [word.arg]
        table = self._value(word.value)
        return [str(key.value) for key in table.keys if isinstance(key, ast.Constant)] if table else []

    def _look(self, owner: Any, name: str, node: ast.AST) -> None:
        ours = isinstance(owner, str) and owner.partition(".")[0] in ROOMS
        if ours and not (
            is_defined(f"{owner}.{name}") and self._is_word(name)
        ):  # a base of another package hides a rename
            self._miss(f"{owner}.{name}", node)

    def _is_word(self, name: str) -> bool:
        return re.search(rf"\b{name}\b", self._defined) is not None

    def _miss(self, name: str, node: Any) -> None:
        self._gone.append(f"line {node.lineno}: {name}")


def is_defined(path: str) -> bool:
    """Return whether sources define ``path``; also True where they cannot say: of other packages, and of values."""
    root, *names = path.split(".")
    spec = importlib.util.find_spec(root) if root in ROOMS else None
    if spec is None or spec.submodule_search_locations is None:
        return True
    file, folder = Path(spec.origin or ""), Path(spec.submodule_search_locations[0])
    while names and names[0] not in _members(file):
        folder /= names.pop(0)
        file = folder.with_suffix(".py") if folder.with_suffix(".py").is_file() else folder / "__init__.py"
        if not file.is_file() and not folder.is_dir():
            return False
    return not names or _has_path(file, names)


def _has_path(file: Path, names: list[str]) -> bool:
    """Return whether what the first name stands for in ``file`` has the rest of the path."""
    node = _members(file).get(names[0])
    if node is None and (builtin := getattr(builtins, names[0], None)) is not None:
        return hasattr(builtin, names[1])
    if isinstance(node, ast.ImportFrom) and not node.level:
        return is_defined(".".join([f"{node.module}.{node.names[0].name}", *names[1:]]))
    if isinstance(node, ast.ClassDef) and len(names) > 1 and names[1] not in dict(_iter_definitions(node.body)):
        bases = [ast.unparse(base).partition("[")[0].split(".") for base in node.bases]
        return any(_has_path(file, [*base, names[1]]) for base in bases)
    return True


@cache
def _members(file: Path) -> dict[str, ast.AST]:
    """Return what defines each name of a module."""
    return dict(_iter_definitions(ast.parse(file.read_text()).body)) if file.is_file() else {}


def _iter_definitions(body: list[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    """Yield each name that statements define, with the statement."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                one = ast.ImportFrom(node.module, [alias], node.level) if isinstance(node, ast.ImportFrom) else node
                yield (alias.asname or alias.name).partition(".")[0], one
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from ((one.id, node) for one in ast.walk(target) if isinstance(one, ast.Name))
        else:
            inner = [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.stmt | ast.ExceptHandler)]
            yield from _iter_definitions([one for part in inner for one in getattr(part, "body", [part])])


def _last(called: ast.expr) -> str:
    return ast.unparse(called).rpartition(".")[2]
