"""The house in figures: modules, rooms, functions that are too long, names that say nothing.

    .venv/bin/python scripts/house.py            # a table of this checkout
    .venv/bin/python scripts/house.py --json     # the same for programs
    .venv/bin/python scripts/house.py --budgets  # lower each budget of scripts/budgets.toml that has room to spare

Read by people who tidy up, and by `tests/docs/test_house.py`, which holds what must not come back, and that each figure
keeps its budget.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
TESTS = ROOT / "tests"
DURATIONS = TESTS / "durations.json"  # of each file, as tests/support/suite/durations.py records them
BUDGETS = ROOT / "scripts" / "budgets.toml"
DATA = ("golden", "approved")  # folders of tests
SMALL = 100  # lines of a module that hardly needs a file of its own
LONG = 60  # lines of a function
LONGEST = 80
MANY = 8  # parameters
STEPS = {"lines": 100, "seconds": 60}  # by which budgets of these rise and fall; of others by one

# Names of functions and classes that leave out what they are about.
BARE = frozenset(
    {
        "told", "asked", "kept", "left", "anew", "beside", "apart", "alone", "had",
        "said", "found", "few", "there", "got", "wins", "became", "alike", "sparing",
        "taken", "lent", "owed", "wanted", "given", "worth", "yet", "again", "gone",
        "done", "put", "thus", "else", "here", "away",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Module:
    """A module of ``src``: its dotted name, its lines, its syntax tree."""

    name: str
    lines: int
    tree: ast.Module

    @property
    def room(self) -> str:
        """The package below ``strobe`` that it lies in, or its own name."""
        return self.name.split(".")[1] if "." in self.name else self.name

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    @property
    def late_imports(self) -> int:
        """How many imports from ``strobe`` stand inside its functions."""
        nodes = {node for function in self.functions for node in ast.walk(function)}
        sources = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        sources += [node.names[0].name for node in nodes if isinstance(node, ast.Import)]
        return sum(source.partition(".")[0] == "strobe" for source in sources)

    def find_imports(self, names: set[str]) -> set[str]:
        """Return the modules among ``names`` that it imports, at whatever level of its code."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= (members & names) or ({node.module} & names)
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names} & names
        return found - {self.name}


class House:
    """All modules below a folder of sources."""

    def __init__(self, sources: Path = SOURCES) -> None:
        self.modules = {module.name: module for module in _modules(sources)}
        names = set(self.modules)
        self.imports = {name: module.find_imports(names) for name, module in self.modules.items()}

    @property
    def single_importer_modules(self) -> list[str]:
        importers = Counter(target for targets in self.imports.values() for target in targets)
        return sorted(name for name in self.modules if importers[name] == 1)

    @property
    def small_with_one_importer(self) -> list[str]:
        return [name for name in self.single_importer_modules if self.modules[name].lines < SMALL]

    @property
    def circle(self) -> list[str]:
        """Modules that import each other in a circle; none if there is no circle."""
        try:
            TopologicalSorter(self.imports).prepare()
        except CycleError as error:
            return list(error.args[1])
        return []

    def functions(self) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for name, module in self.modules.items():
            for function in module.functions:
                yield f"{name}:{function.name}", function

    def list_long_functions(self, lines: int) -> dict[str, int]:
        """Return functions of more than ``lines`` lines, with their lines."""
        sizes = {name: (f.end_lineno or f.lineno) - f.lineno + 1 for name, f in self.functions()}
        return {name: size for name, size in sizes.items() if size > lines}

    def list_many_parameter_functions(self, count: int) -> dict[str, int]:
        """Return functions of more than ``count`` parameters, ``self`` not counted."""
        sizes = {name: _parameters(f) for name, f in self.functions()}
        return {name: size for name, size in sizes.items() if size > count}

    @property
    def bare_names(self) -> list[str]:
        """Functions and classes whose whole name is one of `BARE`."""
        return sorted(
            f"{name}:{node.name}"
            for name, module in self.modules.items()
            for node in ast.walk(module.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name.strip("_").lower() in BARE
        )

    @property
    def anys(self) -> int:
        """How often ``Any`` stands in an annotation or elsewhere, imports not counted."""
        nodes = (node for module in self.modules.values() for node in ast.walk(module.tree))
        return sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes)

    @property
    def lines_by_room(self) -> dict[str, int]:
        lines: Counter[str] = Counter()
        for module in self.modules.values():
            lines[module.room] += module.lines
        return dict(lines.most_common())

    @property
    def budgeted_figures(self) -> dict[str, int]:
        """The figures that have a budget: name → size."""
        return {
            "Any": self.anys,
            "bare names": len(self.bare_names),
            "imports from strobe inside functions": sum(module.late_imports for module in self.modules.values()),
            "lines": sum(self.lines_by_room.values()),
            "modules": len(self.modules),
            "modules with one importer": len(self.single_importer_modules),
            "modules with one importer, small": len(self.small_with_one_importer),
            **{f"lines of {room}": lines for room, lines in self.lines_by_room.items()},
        }


def budgeted_of_tests(tests: Path = TESTS, durations: Path = DURATIONS) -> dict[str, int]:
    """Return what has a budget of the tests; without their seconds where nobody has measured these."""
    data = [path for name in DATA for path in (tests / name).rglob("*") if path.is_file()]
    figures = {
        "lines of tests": sum(len(path.read_text().splitlines()) for path in tests.rglob("*.py")),
        "lines of golden and approved data": sum(path.read_bytes().count(b"\n") for path in data),
    }
    if durations.is_file():
        files = json.loads(durations.read_text()).values()
        figures["seconds of tests"] = round(sum(file["wall"] for file in files))
        figures["seconds of tests at each change"] = round(sum(file["each_change"] for file in files))
    return figures


def judge(figures: Mapping[str, int], budgets: Mapping[str, int]) -> list[str]:
    """Return a sentence for each figure that does not keep its budget, and for each budget without a figure."""
    lines = [f"{name}: it has a budget, and does not exist (scripts/house.py --budgets)"
             for name in budgets.keys() - figures.keys()]  # fmt: skip
    for name, figure in figures.items():
        budget = budgets.get(name)
        if budget is None:
            lines.append(f"{name}: it has no budget in scripts/budgets.toml")
        elif figure > budget:
            lines.append(f"{name}: {figure:,} is {figure - budget:,} over the budget: remove something first")
        elif budget - figure >= 2 * figure_step(name):
            lines.append(f"{name}: {figure:,} leaves room in the budget of {budget:,} (scripts/house.py --budgets)")
    return sorted(lines)


def lower(figures: Mapping[str, int], budgets: Mapping[str, int]) -> dict[str, int]:
    """Return the budgets, lowered to the figures of today; those of what does not exist are gone."""
    return {
        name: min(budgets[name], round_up_step(figure, figure_step(name)))
        for name, figure in figures.items()
        if name in budgets
    }


def round_up_step(figure: int, step: int) -> int:
    """Return ``figure`` rounded up to a multiple of ``step``."""
    return -(-figure // step) * step


def figure_step(name: str) -> int:
    return STEPS.get(name.split()[0], 1)


def read_budgets(path: Path = BUDGETS) -> dict[str, int]:
    return tomllib.loads(path.read_text())


def write_budgets(budgets: Mapping[str, int], path: Path = BUDGETS) -> None:
    lines = ["# How large each part may be. No budget is raised: what does not fit removes something first."]
    lines += [f"{json.dumps(name)} = {budget}" for name, budget in sorted(budgets.items())]
    path.write_text("\n".join(lines) + "\n")


def public_thresholds() -> int:
    """Return how many thresholds a user can set."""
    from strobe.core.kinds import Thresholds

    return len(Thresholds.__dataclass_fields__)


def house_words() -> list[str]:
    """Return the words of the table 'The house's words' in docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.split("### The house's words", 1)[1].split("\n## ", 1)[0]
    return [row.split("|")[1].strip() for row in re.findall(r"^\|.*\|$", table, re.M)[2:]]


def _modules(sources: Path) -> Iterator[Module]:
    for path in sorted(sources.rglob("*.py")):
        name = ".".join(path.relative_to(sources).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text()
        yield Module(name, len(text.splitlines()), ast.parse(text))


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def figures(house: House) -> dict[str, object]:
    """Return the table's rows: what is counted, and the count."""
    return {
        "modules": len(house.modules),
        "modules with one importer": len(house.single_importer_modules),
        "modules under 100 lines with one importer": len(house.small_with_one_importer),
        "lines": sum(module.lines for module in house.modules.values()),
        "lines by room": house.lines_by_room,
        f"functions over {LONG} lines": len(house.list_long_functions(LONG)),
        f"functions over {LONGEST} lines": len(house.list_long_functions(LONGEST)),
        f"functions over {MANY} parameters": len(house.list_many_parameter_functions(MANY)),
        "Any": house.anys,
        "public thresholds": public_thresholds(),
        "house words": len(house_words()),
        "functions and classes named by a bare word": len(house.bare_names),
        "circle": house.circle,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object in place of a table")
    parser.add_argument("--names", action="store_true", help="also name what is too long, too wide or badly named")
    parser.add_argument("--budgets", action="store_true", help="lower the budgets that have room to spare")
    options = parser.parse_args()
    house = House()
    if options.budgets:
        sizes = house.budgeted_figures | budgeted_of_tests()
        write_budgets(lower(sizes, read_budgets()))
        sys.exit("\n".join(judge(sizes, read_budgets())))
    rows = figures(house)
    if options.json:
        print(json.dumps(rows))
        return
    for name, value in rows.items():
        print(f"{name:48} {value}")
    if options.names:
        for title, names in (
            (f"over {LONG} lines", house.list_long_functions(LONG)),
            (f"over {MANY} parameters", house.list_many_parameter_functions(MANY)),
            ("bare names", house.bare_names),
            ("small, one importer", house.small_with_one_importer),
        ):
            print(f"\n{title}")
            for name in names:
                print(f"  {name} {names[name] if isinstance(names, dict) else ''}")


if __name__ == "__main__":
    main()
