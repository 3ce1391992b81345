"""Read Python modules as source: none of their code runs, and no package above them is imported."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path


class UnreadableSourceError(Exception):
    """The source does not show it in a form that is read here; only importing the module would."""


@dataclass(frozen=True, eq=False)
class Module:
    """The top level of one module: its imports, classes and constants by name."""

    name: str
    file: Path
    names: dict[str, ast.stmt | ast.expr] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)  # name → module, name there ('' for the module)

    @property
    def package(self) -> str:
        """The package that relative imports of the module begin at."""
        return self.name if self.file.name == "__init__.py" else self.name.rpartition(".")[0]

    def classes(self) -> Iterator[ast.ClassDef]:
        """Yield the classes of its top level, in their order."""
        yield from (node for node in self.names.values() if isinstance(node, ast.ClassDef))


def file_of(name: str) -> Path | None:
    """Return the file of the module ``name``; None without a source file."""
    top, *below = name.split(".")
    try:
        spec = importlib.util.find_spec(top)  # of a top-level name: finds it, and imports nothing
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not below:
        return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    for folder in spec.submodule_search_locations or ():
        base = Path(folder, *below)
        for file in (base / "__init__.py", base.with_suffix(".py")):
            if file.is_file():
                return file
    return None


def module(name: str) -> Module:
    """Read the module ``name``. Raises UnreadableSourceError if it has no source, or none that can be parsed."""
    file = file_of(name)
    if file is None:
        raise UnreadableSourceError(f"no source of {name}")
    return _read(name, file, file.stat().st_mtime_ns)


@cache
def _read(name: str, file: Path, _changed: int) -> Module:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise UnreadableSourceError(f"{file}: {error}") from None
    source = Module(name, file)
    _add_names(tree.body, source)
    return source


def _add_names(statements: list[ast.stmt], into: Module) -> None:
    for node in statements:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            into.names[node.name] = node
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            into.names[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            into.names[node.target.id] = node.value
        elif isinstance(node, ast.ImportFrom):
            origin = _absolute(node, into)
            for alias in node.names:
                into.imports.setdefault(alias.asname or alias.name, (origin, alias.name))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                into.imports.setdefault(alias.asname or alias.name.partition(".")[0], (alias.name, ""))
        elif isinstance(node, ast.If):  # the first branch counts: `if TYPE_CHECKING or _available: import …`
            _add_names(node.orelse, into)
            _add_names(node.body, into)
        elif isinstance(node, ast.Try):
            _add_names(node.body, into)


def _absolute(node: ast.ImportFrom, within: Module) -> str:
    if not node.level:
        return node.module or ""
    parts = within.package.split(".")
    base = parts[: len(parts) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def resolve(within: Module, name: str) -> tuple[Module, ast.AST] | None:
    """Return the definition of ``name`` in the module ``within``, through imports; None if it is of another package.

    Packages other than the module's own are searched only if they are LeRobot's.

    Raises:
        UnreadableSourceError: an import that leads to nothing.
    """
    seen = set()
    while (within.name, name) not in seen:
        seen.add((within.name, name))
        if name in within.names:
            return within, within.names[name]
        if name not in within.imports:
            return None
        origin, original = within.imports[name]
        if not origin.startswith("lerobot") and origin.partition(".")[0] != within.name.partition(".")[0]:
            return None
        if not original:
            raise UnreadableSourceError(f"{name} of {within.name} is a module")
        if file_of(f"{origin}.{original}") is not None and original not in module(origin).names:
            raise UnreadableSourceError(f"{name} of {within.name} is a module")
        within, name = module(origin), original
    raise UnreadableSourceError(f"{name} of {within.name} goes round in a circle")
