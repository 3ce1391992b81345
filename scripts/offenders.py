"""Lists the files that do not hold ruff's rules yet, in scripts/offenders.toml; pyproject.toml reads the list.

    .venv/bin/python scripts/offenders.py            # write the list again, after files were moved or fixed
    .venv/bin/python scripts/offenders.py --show     # what the list hides: file, line and rule

A file in the list keeps ruff silent about the rules named there, and `tests/docs/test_offenders.py` holds that the list
only gets shorter. A new file, or a rule that a file holds today, is not spared: fix it, do not list it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "scripts" / "offenders.toml"
LISTED = ("D101", "D102", "D103", "D104", "PLR0915")  # the rules that a file may be listed for

Offenders = dict[str, list[str]]  # file, from the root → rules


def offences(root: Path = ROOT) -> list[tuple[str, int, str]]:
    """Return file, line and rule of all that ruff finds without the list, sorted."""
    command = [sys.executable, "-m", "ruff", "check", "--output-format=json", "--config=lint.per-file-ignores={}"]
    run = subprocess.run([*command, "."], cwd=root, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        raise RuntimeError(run.stderr)
    diagnostics = [one for one in json.loads(run.stdout) if one["code"] in LISTED]
    return sorted(
        (Path(one["filename"]).relative_to(root).as_posix(), one["location"]["row"], one["code"]) for one in diagnostics
    )


def offenders(root: Path = ROOT) -> Offenders:
    """Return the files that offend, with the rules."""
    rules: dict[str, set[str]] = {}
    for file, _, rule in offences(root):
        rules.setdefault(file, set()).add(rule)
    return {file: sorted(names) for file, names in rules.items()}


def read_listed(path: Path = LIST) -> Offenders:
    """Return the files that are listed, with the rules."""
    table = tomllib.loads(path.read_text())["lint"]["per-file-ignores"]
    return {pattern.removeprefix("../"): rules for pattern, rules in table.items()}


def write(found: Offenders, path: Path = LIST) -> None:
    """Write the list; ruff reads its paths from the folder that it lies in."""
    lines = [f'"../{file}" = {json.dumps(rules)}' for file, rules in sorted(found.items())]
    head = "# Files that do not hold a rule of ruff yet. Written by scripts/offenders.py; it only gets shorter."
    path.write_text("\n".join([head, "[lint.per-file-ignores]", *lines]) + "\n")


def main() -> None:
    """Write the list, or show what it hides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print what the list hides and write nothing")
    if parser.parse_args().show:
        for file, line, rule in offences():
            print(f"{file}:{line} {rule}")
        return
    write(offenders())
    files, rules = len(read_listed()), Counter(rule for _, _, rule in offences())
    print(f"{files} files: {', '.join(f'{count} {rule}' for rule, count in sorted(rules.items()))}")


if __name__ == "__main__":
    main()
