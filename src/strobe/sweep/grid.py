"""The grid: which settings vary, over which values, and the cells that this makes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from strobe.core.errors import UserError, error_line, nearest
from strobe.core.runs.recipe_file import read_yaml
from strobe.core.untrusted import JsonObject, parse_json
from strobe.sweep.results import Axis, label

# What the numbers of an axis count, by the last word of its name; the rest are counted by that word itself.
UNITS = {
    "batch_size": "samples",
    "num_inference_steps": "steps",
    "num_steps": "steps",
    "img_size": "pixels",
    "num_workers": "workers",
    "num_frames": "frames",
}
NAMING = (".path=", ".root=", ".video=")  # flags whose value is a folder or a file
RECIPE = re.compile(r"(?:^--|^--variant=.*[:,]\s*)recipe\s*=([^,]+)")  # recipe of all variants, or of one
# A sweep's numbers can be compared with those of another day only if these packages' versions are the same.
PACKAGES = ("strobe", "lerobot", "torch", "transformers")


@dataclass(frozen=True)
class Cell:
    """One configuration: the values of the axes, and all flags of the study that it amounts to."""

    settings: Mapping[str, str]
    argv: tuple[str, ...]
    key: str

    @property
    def label(self) -> str:
        """The cell's settings in words."""
        return label(self.settings) or "baseline"


def parse_axis(text: str) -> tuple[str, list[str]]:
    """``'batch_size=8,16'`` as name and values; commas inside brackets or quotes do not separate.

    Raises:
        UserError: no name, no values, or a value twice.
    """
    name, equals, rest = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    values = [value.strip().strip("'\"") for value in _split(rest)]
    if not equals or not name or not all(values):
        raise UserError(f"--grid '{text}': write NAME=VALUE,VALUE, such as --grid 'batch_size=8,16'")
    _unique(name, values)
    return name, values


MOST_YAML = 2**20  # bytes: YAML takes seconds to read as much
MOST_CELLS = 10_000
# What anybody's file may not set: flags and keys of variants that name code, a file, a peer, or something on the Hub.
_NAMED = r"path|factory|root|repo|repo_id|model_id|base|(?:model|encoder|tokenizer|package)_name|functions|python"
_NAMED += r"|recipe|exported|server|video|launcher|address|host|dir|file"
_NAMING = re.compile(rf"(?:^|[^a-z])(?:{_NAMED})[\"']?\s*[=:]|[/\\~]|\.py\b", re.IGNORECASE)


def read_file(path: Path, given: Container[str] = ()) -> JsonObject:
    """A grid from YAML: ``study``, ``flags``, ``grid``, ``cells`` (further combinations), and the sweep's own settings.

    Args:
        given: names of the flags on the command line, which take the place of the file's.

    Raises:
        UserError: no such file, not YAML, a key that is not known, or a setting that names code.
    """
    document = read_yaml(path, "grid", MOST_YAML)
    if not isinstance(document, dict):
        raise UserError(f"--file={path}: expected keys such as study, flags and grid")
    known = {"study": str, "flags": dict, "grid": dict, "cells": list, "sweep": dict}
    for key, value in document.items():
        if key not in known:
            raise UserError(f"--file={path}: unknown key '{key}': {nearest(str(key), known)}")
        if not isinstance(value, known[key]):
            raise UserError(f"--file={path}: '{key}' must be a {known[key].__name__}, not {type(value).__name__}")
    flags, grid, sweep = (
        {str(name): value for name, value in document.get(key, {}).items() if str(name) not in given}
        for key in ("flags", "grid", "sweep")
    )
    axes = {name: _values(path, name, value) for name, value in grid.items()}
    more = [_settings(path, cell) for cell in document.get("cells", [])]
    for name, value in [setting for settings in (flags, sweep, axes, *more) for setting in settings.items()]:
        if _NAMING.search(setting := f"--{name.replace('-', '_')}={flag_text(value)}"):
            raise UserError(
                f"--file={path}: {error_line(setting, 200)} names code, a file or an address, which only your own "
                "command line may: give the flag there"
            )
    flags, sweep = ([f"--{name}={flag_text(value)}" for name, value in own.items()] for own in (flags, sweep))
    return {"study": document.get("study"), "flags": flags, "grid": axes, "cells": more, "sweep": sweep}


def flag_text(value: object) -> str:
    """A YAML value as a flag spells it: ``true``, ``[a, b]``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(flag_text, value))}]"
    return json.dumps(value) if isinstance(value, dict) else str(value)


def cells(
    study: str,
    flags: Sequence[str],
    grid: Mapping[str, Sequence[str]],
    more: Iterable[Mapping[str, str]] = (),
    *,
    chain: bool = False,
) -> list[Cell]:
    """Every combination of the grid's values, then ``more``; none twice.

    Args:
        chain: from the first value of each axis, change one value at a time, axis by axis, and leave it changed.

    Raises:
        UserError: an axis that is also a flag, or nothing to vary.
    """
    named = {flag.split("=", 1)[0].removeprefix("--") for flag in flags}
    further = [dict(one) for one in more]
    axes = dict.fromkeys([*grid, *(name for one in further for name in one)])
    for name in axes:
        if name in named:
            raise UserError(f"--{name} is both a flag and an axis of the grid: leave the flag out")
    if not axes:
        raise UserError("nothing to sweep over: add --grid 'batch_size=8,16', or --file=GRID.yaml")
    if (count := math.prod(map(len, grid.values()))) > MOST_CELLS and not chain:
        raise UserError(f"the grid has {count:,} combinations: leave values out; {MOST_CELLS:,} are the most")
    if chain:
        combinations = [{name: values[0] for name, values in grid.items()}]
        for name, value in ((name, value) for name, values in grid.items() for value in values[1:]):
            combinations.append({**combinations[-1], name: value})
    else:
        combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    by_key: dict[str, Cell] = {}
    for settings in [*(combinations if grid else []), *further]:
        argv = (*flags, *(f"--{name}={value}" for name, value in settings.items()))
        key = _key(study, argv)
        by_key.setdefault(key, Cell(settings, argv, key))
    return list(by_key.values())


def swept_subject(made: Sequence[Cell]) -> str:
    """Return the policy or model that the cells run, for names and titles; 'policies' or 'models' where it varies."""
    named = dict(flag.removeprefix("--").split("=", 1) for flag in made[0].argv if "=" in flag)
    for family, several in (("policy", "policies"), ("model", "models")):
        flags = [f"{family}.{name}" for name in ("path", "type", "factory")]
        if {*flags} & set(made[0].settings):
            return several
        *known, factory = map(named.get, flags)
        if name := next(filter(None, known), None):
            return Path(name).name
        if factory:
            return Path(factory.rpartition(":")[0]).name.removesuffix(".py")
    return "sweep"


def grid_axes(made: Sequence[Cell]) -> list[Axis]:
    """The axes of cells, with the values in the order they first appear, as numbers where all of them are."""
    names = dict.fromkeys(name for cell in made for name in cell.settings)
    axes = []
    for name in names:
        values = list(dict.fromkeys(cell.settings[name] for cell in made if name in cell.settings))
        numbers = [axis_number(value) for value in values]
        last = name.rsplit(".", 1)[-1]
        sized = all("x" in value.lower() for value in values)
        unit = "pixels" if sized else UNITS.get(last, last.replace("_", " "))
        known = [number for number in numbers if number is not None]
        complete = len(known) == len(values)
        axes.append(Axis(name=name, values=values, numbers=known if complete else None, unit=unit if complete else ""))
    return axes


def axis_number(value: str) -> float | None:
    """``'8'`` → 8, ``'240x320'`` → its 76,800 pixels, anything else → None."""
    size = re.fullmatch(r"(\d+)x(\d+)", value.lower())
    if size:
        return float(int(size[1]) * int(size[2]))
    return float(value) if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", value.lower()) else None


def shuffle_in_blocks(made: Sequence[Cell], repeats: int, seed: int = 0) -> list[tuple[Cell, int]]:
    """The order to run in: every cell once, shuffled, then every cell again, shuffled otherwise (randomised blocks).

    A drift of the machine then spreads over all cells. A cell's place depends on the seed and on itself only, so
    that a sweep that goes on, or that has grown, keeps its order.
    """

    def place(cell: Cell, repeat: int) -> str:
        return hashlib.sha256(f"{seed}:{repeat}:{cell.key}".encode()).hexdigest()

    return [
        (cell, repeat)
        for repeat in range(1, repeats + 1)
        for cell in sorted(made, key=lambda cell, repeat=repeat: place(cell, repeat))
    ]


def _key(study: str, argv: Sequence[str]) -> str:
    stamps: JsonObject = {
        flag: _stamp(Path(flag.partition("=")[2])) for flag in argv if any(name in flag for name in NAMING)
    }
    stamps |= {path: _content(Path(path.strip())) for flag in argv for path in RECIPE.findall(flag)}
    # Of a factory's file with the modules next to it, which it may import.
    made = [flag.partition("=")[2].rpartition(":")[0] for flag in argv if flag.startswith("--policy.factory=")]
    folders = [Path(file).parent for file in made if file.endswith(".py")]
    stamps |= {str(path): _content(path) for folder in folders for path in folder.glob("*.py")}
    whole = json.dumps([study, sorted(argv), _versions(), stamps], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


@functools.cache
def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def _stamp(folder: Path) -> list[float] | None:
    if not folder.exists():
        return None
    states = [file.stat() for file in (folder, *folder.rglob("*")) if file.is_file()]
    return [sum(state.st_size for state in states), max((state.st_mtime for state in states), default=0.0)]


def _content(file: Path) -> str | None:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return None


def _split(text: str) -> list[str]:
    return list(re.findall(r"(?:\[[^\]]*\]|\{[^}]*\}|'[^']*'|\"[^\"]*\"|[^,])+|(?<=,)(?=,|$)|^$", text))


def _unique(name: str, values: Sequence[str]) -> None:
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise UserError(f"--grid {name}: {twice[0]} is given twice; for repeated measurements use --repeats")


def _values(path: Path, name: object, value: object) -> list[str]:
    if not isinstance(value, list) or not value:
        raise UserError(f"--file={path}: grid '{name}' must be a list of values, such as [8, 16]")
    values = [flag_text(item) for item in value]
    _unique(str(name), values)
    return values


def _settings(path: Path, entry: object) -> dict[str, str]:
    if not isinstance(entry, dict) or not entry:
        raise UserError(f"--file={path}: each of 'cells' must be settings, such as {{batch_size: 8}}")
    return {str(name): flag_text(value) for name, value in entry.items()}


_FLAG = re.compile(r"^--(?:policy\.)?device=(.*)$")
_NUMBERED = re.compile(r"^(cuda|xpu):[1-9]\d*$")


def requested_device(argv: Sequence[str]) -> str | None:
    """Return the device that a study's flags ask for; None if they leave it to the machine that runs them."""
    values = dict(flag.split("=", 1) for flag in argv if "=" in flag)
    device = values.get("--policy.device") or values.get("--device") or ""
    if device.lower() not in ("null", "none", ""):
        return device
    if any(name in values for name in ("--model.type", "--model.path")):
        return "cpu"  # a backbone's default; a policy's is the best device that there is
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return parse_json((Path(values.get("--policy.path", "")) / "config.json").read_text())["device"]
    return None


def use_single_device(argv: Sequence[str]) -> tuple[list[str], str | None]:
    """Return ``argv`` for a cell that sees one accelerator, and in words what was asked for where that was another."""
    arguments, words = [], None
    for flag in argv:
        match = _FLAG.match(flag)
        if match and _NUMBERED.match(match[1]):
            name, device = flag.split("=", 1)
            kind = device.split(":")[0]
            words = f"{flag} was asked for: the cluster gave this cell one device, which is {kind}:0 there"
            flag = f"{name}={kind}:0"
        arguments.append(flag)
    return arguments, words


def remove_device(argv: Sequence[str]) -> list[str]:
    """Return ``argv`` without the device, which need not be there on the machine that only hands out the cells."""
    return [flag for flag in argv if not _FLAG.match(flag)]
