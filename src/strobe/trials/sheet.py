"""Trials that were run, from the table that an operator filled in: CSV with commas, semicolons or tabs.

Spreadsheets leave a mark at the beginning and empty rows. What else is odd is a mistake, and is named by its line.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strobe.core.errors import UserError, os_error_reason
from strobe.core.runs.contents import contents
from strobe.trials.results import Code, Trial

REQUIRED = ("pair", "trial", "code", "success")


@dataclass(frozen=True)
class SheetLimits:
    """The limits that a row is checked against: the number of pairs, and the seconds of a trial (None: no limit)."""

    pairs: int
    limit_s: float | None


def read_sheet(file: Path, limits: SheetLimits) -> list[Trial]:
    """Return the trials that were run, by their place in the plan. A row without a success was not run.

    Raises:
        UserError: not a table of trials; or rows with a missing or odd value, the first of them with its line.
    """
    columns, rows = _table(file)
    trials, wrong = [], list[str]()
    seen = dict[object, int]()  # what may stand in one row only → its line
    for line, cells in rows:
        try:
            trial = _trial(line, _cells(columns, cells), limits)
            if trial is not None:
                _require_unique(seen, trial)
                trials.append(trial)
        except ValueError as error:
            wrong.append(f"line {line}: {error}")
    if wrong:
        more = f" (and {len(wrong) - 1} more rows)" if len(wrong) > 1 else ""
        raise UserError(f"{file}, {wrong[0]}{more}")
    return sorted(trials, key=lambda trial: trial.trial)


def _table(file: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the names of the columns, and the rows that are not empty, each with its line."""
    text = _text(file)
    try:
        separator = csv.Sniffer().sniff(text.partition("\n")[0], ",;\t").delimiter
    except csv.Error:
        raise UserError(f"{file} is no table: its first line needs {', '.join(REQUIRED)}, and commas") from None
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    header: list[str] = []
    rows = []
    while True:
        line = reader.line_num + 1  # before the row is read: a note may have several lines
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UserError(f"{file}, line {line}: {error}") from None
        if cells is None:
            break
        if not any(cell.strip() for cell in cells):
            continue
        if header:
            rows.append((line, cells))
        else:
            header = [cell.strip().lower() for cell in cells]
    if missing := [name for name in REQUIRED if name not in header]:
        raise UserError(f"{file} has no column '{missing[0]}': it needs {', '.join(REQUIRED)}")
    return header, rows


def _text(file: Path) -> str:
    try:
        return contents(file).decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"no table of trials at {file}") from None
    except OSError as error:
        raise UserError(f"cannot read {file}: {os_error_reason(error)}") from None
    except UnicodeDecodeError:
        raise UserError(f"{file} is no text: save it as CSV in UTF-8") from None


def _cells(columns: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """Return column → cell, without spaces around it. Raises ValueError for a row that is longer than the header."""
    if any(cell.strip() for cell in cells[len(columns) :]):
        raise ValueError(f"{len(cells)} cells under {len(columns)} columns: put a number with a comma in quotes")
    padded = [*cells, *[""] * (len(columns) - len(cells))]
    return {name: cell.strip() for name, cell in zip(columns, padded, strict=False)}


def _trial(line: int, cells: dict[str, str], limits: SheetLimits) -> Trial | None:
    """Return the trial of a row; None if it was not run. Raises ValueError for an odd value."""
    said, seconds = cells["success"], cells.get("seconds", "")
    if not said:
        if seconds:
            raise ValueError("seconds without a success: write yes or no, or clear the row")
        return None
    success = _success(said)
    pair, trial = _number("pair", cells["pair"]), _number("trial", cells["trial"])
    if not 1 <= pair <= limits.pairs:
        raise ValueError(f"pair {pair} is not in the plan, which has {limits.pairs}")
    if trial not in (2 * pair - 1, 2 * pair):
        raise ValueError(f"trial {trial} is not of pair {pair}, whose trials are {2 * pair - 1} and {2 * pair}")
    return Trial(
        line=line,
        pair=pair,
        trial=trial,
        code=_code(cells["code"]),
        success=success,
        seconds=_seconds(seconds, success, limits.limit_s),
        condition=cells.get("condition", ""),
        note=cells.get("note", ""),
    )


def _success(text: str) -> bool:
    if text.lower() not in ("yes", "no"):
        raise ValueError(f"success is '{text}': write yes or no")
    return text.lower() == "yes"


def _code(text: str) -> Code:
    if (code := text.upper()) in ("A", "B"):
        return code
    raise ValueError(f"code is '{text}': write A or B" if text else "code is missing: write A or B")


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{name} is '{text}': write a number" if text else f"{name} is missing")
    return int(text[:9])


def _seconds(text: str, success: bool, limit_s: float | None) -> float | None:
    """Return ``'12.5'`` as a number; None for ''. Raises ValueError."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"seconds is '{text}': write a number, such as 12.5")
    if success and not seconds:
        raise ValueError("a success after 0 seconds: leave the seconds empty, or measure them")
    if success and limit_s is not None and seconds > limit_s:
        raise ValueError(f"a success after {seconds:g} s, and the limit of a trial is {limit_s:g} s: write no")
    return seconds


def _require_unique(seen: dict[object, int], trial: Trial) -> None:
    """Raises ValueError for a trial that stands in two rows, or a pair with one code twice."""
    for what, words in (
        (trial.trial, f"trial {trial.trial}"),
        ((trial.pair, trial.code), f"code {trial.code} of pair {trial.pair}"),
    ):
        if what in seen:
            raise ValueError(f"{words} stands in line {seen[what]} too: a pair has one A and one B")
        seen[what] = trial.line
