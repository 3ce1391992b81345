"""Read Python modules as source: their names, and their dataclasses with the fields of these and of their bases.

None of their code runs, and no package above them is imported.
"""

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
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)  # name → module, name there (None: all)

    @property
    def package(self) -> str:
        """The package that relative imports of the module begin at."""
        return self.name if self.file.name == "__init__.py" else self.name.rpartition(".")[0]

    def classes(self) -> Iterator[ast.ClassDef]:
        """Yield the classes of its top level, in their order."""
        yield from (node for node in self.names.values() if isinstance(node, ast.ClassDef))


def module_file(name: str) -> Path | None:
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
    file = module_file(name)
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
                into.imports.setdefault(alias.asname or alias.name.partition(".")[0], (alias.name, None))
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
        if module_file(f"{origin}.{original}") is not None and original not in module(origin).names:
            raise UnreadableSourceError(f"{name} of {within.name} is a module")
        within, name = module(origin), original
    raise UnreadableSourceError(f"{name} of {within.name} goes round in a circle")


# Classes as their source declares them.

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
        """The class's own name."""
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
    if (declared := resolve_class(module(name), ast.Name(cls))) is None:
        raise UnreadableSourceError(f"no class {where}")
    return declared


def resolve_class(within: Module, expression: ast.expr) -> Class | None:
    """Return the class that an expression names; None for a class of another package, or no class."""
    owner, node = (isinstance(expression, ast.Name) and resolve(within, expression.id)) or (within, None)
    return Class(owner, node) if isinstance(node, ast.ClassDef) else None


@cache  # a file that changes gives other modules and so other classes
def fields(of: Class) -> dict[str, Field]:
    """Return the fields of a dataclass by name, in the order of `dataclasses.fields`. Raises UnreadableSourceError."""
    known: dict[str, Field] = {}
    for base in reversed(bases(of)):
        known |= fields(base)
    if any(last_name(getattr(node, "func", node)) == "dataclass" for node in of.node.decorator_list):
        known |= {item.name: item for item in _own(of)}
    return known


def bases(of: Class) -> list[Class]:
    """Return the bases of LeRobot or a plug-in. Raises UnreadableSourceError for a base that cannot be read."""
    classes = []
    for base in of.node.bases:
        if isinstance(base, ast.Subscript):  # Generic[T]
            base = base.value
        cls = resolve_class(of.module, base)
        if cls is not None:
            classes.append(cls)
        elif not _is_fieldless(of.module, base):
            raise UnreadableSourceError(f"the base {ast.unparse(base)} of {of.name}")
    return classes


def lineage(of: Class) -> Iterator[Class]:
    """Yield the class and all its bases."""
    yield of
    for base in bases(of):
        yield from lineage(base)


def is_choice(of: Class) -> bool:
    """Return whether draccus chooses among its subclasses by their `type`."""
    return not _base_names(of).isdisjoint(REGISTRIES)


def is_enum(of: Class) -> bool:
    """Return whether the class is an enumeration."""
    return not _base_names(of).isdisjoint(("Enum", "StrEnum", "IntEnum"))


def _base_names(of: Class) -> set[str]:
    return {last_name(base) for cls in lineage(of) for base in cls.node.bases}


def last_name(expression: ast.AST) -> str:
    """Return what comes after the last dot of an expression such as ``dataclasses.field``."""
    return ast.unparse(expression).rpartition(".")[2]


def _is_fieldless(within: Module, base: ast.expr) -> bool:
    head = base
    while isinstance(head, ast.Attribute):
        head = head.value
    if not isinstance(head, ast.Name):
        return False
    if head.id in within.imports:
        return within.imports[head.id][0].partition(".")[0] in _WITHOUT_FIELDS
    return head.id in ("object", "str", "int", "float", "dict", "list", "tuple", "Exception", "ValueError")


def _own(of: Class) -> Iterator[Field]:
    for node in of.node.body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        annotation = unquote_annotation(node.annotation)
        name = ast.unparse(annotation).split("[")[0].rpartition(".")[2]
        if name in ("ClassVar", "InitVar", "KW_ONLY"):
            continue
        default, init = node.value, True
        if isinstance(default, ast.Call) and last_name(default.func) == "field":
            init = not any(k.arg == "init" and ast.unparse(k.value) == "False" for k in default.keywords)
        yield Field(node.target.id, of.module, annotation, default, init)


@cache
def _parse_expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def unquote_annotation(annotation: ast.expr) -> ast.expr:
    """Return an annotation; one that is written as a string, as the expression in it. Raises UnreadableSourceError."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return _parse_expression(annotation.value)
        except SyntaxError:
            raise UnreadableSourceError(f"the annotation {annotation.value!r}") from None
    return annotation
