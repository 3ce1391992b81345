"""Which tests are of which slice, by the folder that they lie in and what they import; and what the slices import.

    python scripts/slices.py                 a table: slice, files of tests, seconds
    python scripts/slices.py --files tune    the files that `make test SLICE=tune` runs
    python scripts/slices.py --floors        the floors, as docs/architecture.md shows them

A slice's run has its own tests, the contracts (the house, its words, its floors), and the core's quick tests.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES, TESTS = ROOT / "src" / "strobe", ROOT / "tests"
CORE = "core"
# A name as a whole string, as `strobe.core.slices.load` takes it; not the name of an entry point's group.
NAMED = r"""(?<=["'])strobe\.\w+(?:\.\w+|:\w+)+(?=["'])"""
CONTRACTS = ("tests/docs/test_house.py", "tests/docs/test_durations.py", "tests/docs/test_slices.py")
# The core's files that take longer are not in a slice's run: `make test` has them.
QUICK_S = 4.0


@cache
def floors() -> list[list[str]]:
    """Return the floors of the slices in pyproject.toml, the top one first; the core is the last."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["name"] == "floors of the slices"]
    return [layer.split(" | ") for layer in layers]


def draw_floors() -> str:
    """Return the floors as a block of Markdown."""
    return "\n".join(f"    {' | '.join(floor)}" for floor in floors())


@cache
def names() -> tuple[str, ...]:
    """Return the slices: the folders besides the core."""
    return tuple(sorted({path.parent.name for path in SOURCES.glob("*/__init__.py")} - {CORE}))


def module_slices(module: str) -> set[str]:
    """Return the slice that ``module``, a dotted name below strobe, lies in; none for the core's."""
    return {module.partition(".")[0]} & set(names())


def tested_slices(path: Path) -> set[str]:
    """Return the slices that a file of tests is of, by its folder and its imports; the core where it is of none."""
    found = {part for part in path.relative_to(TESTS).parts[:-1] if part in names()}
    for module in find_imports(path):
        found |= module_slices(module)
    return found or {CORE}


@cache
def find_imports(path: Path) -> set[str]:
    """Return the modules below strobe that a file names in its imports, with and without the names it takes of them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("strobe"):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("strobe.")}
    return {name.removeprefix("strobe.") for name in found if name != "strobe"}


@cache
def find_strings(path: Path) -> set[str]:
    """Return the modules below strobe that a file names in strings: ``'strobe.tune.command'``, ``'strobe.x.y:Z'``."""
    return {text.removeprefix("strobe.").partition(":")[0] for text in re.findall(NAMED, path.read_text())}


def imports() -> dict[str, set[str]]:
    """Return the core and each slice with the slices that it imports, at whatever level, or names in strings."""
    found: dict[str, set[str]] = {name: set() for name in (CORE, *names())}
    for name in found:
        for path in (SOURCES / name).rglob("*.py"):
            for module in find_imports(path) | find_strings(path):
                found[name] |= module_slices(module) - {name}
    return found


def find_users(name: str, other: str) -> list[str]:
    """Return the files of the slice ``name`` that import the slice ``other``, or name it in strings."""
    paths = sorted((SOURCES / name).rglob("*.py"))
    return [
        str(path.relative_to(ROOT))
        for path in paths
        if any(other in module_slices(module) for module in find_imports(path) | find_strings(path))
    ]


def table() -> dict[str, list[str]]:
    """Return each slice with its files of tests, the core last."""
    rows: dict[str, list[str]] = {name: [] for name in (*names(), CORE)}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name in tested_slices(path):
            rows[name].append(str(path.relative_to(ROOT)))
    return rows


def files(name: str) -> list[str]:
    """Return the files that a run of the slice ``name`` has. Raises KeyError where there is no such slice."""
    rows, took = table(), seconds()
    quick = [path for path in rows[CORE] if took.get(path, 0.0) <= QUICK_S]
    return sorted({*rows[name], *CONTRACTS, *quick})


def seconds() -> dict[str, float]:
    """Return the recorded seconds of each file's tests at each change."""
    record = TESTS / "durations.json"
    times = json.loads(record.read_text()) if record.is_file() else {}
    return {name: of_file["each_change"] for name, of_file in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", metavar="SLICE", help="print the files of one slice's run")
    parser.add_argument("--floors", action="store_true", help="print the floors of the slices")
    arguments = parser.parse_args()
    wanted = arguments.files
    if arguments.floors:
        print(draw_floors())
        return 0
    if wanted is None:
        took = seconds()
        for name, rows in table().items():
            print(f"{name:14} {len(rows):4} files {sum(took.get(path, 0.0) for path in rows):7.0f} s")
        return 0
    if wanted not in (*names(), CORE):
        print(f"SLICE={wanted}: there are {', '.join((*names(), CORE))}", file=sys.stderr)
        return 2
    print("\n".join(files(wanted)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
