"""Trials that were run, from the table that an operator filled in, or from a study of fieldtrial.

Spreadsheets save a table with a mark at the beginning or without one, with commas, semicolons or tabs, with decimal
commas, with empty rows, with true for yes. What is left is a mistake, and is named by its line.

fieldtrial 0.3 (Apache-2.0, another project) schedules trials and puts them on a phone at the robot. A study is a
folder: a study.yaml, which it locks, and a database. Our study names its arms A and B as the plan does, so it tells the
operator nothing that key.json keeps. fieldtrial draws an order and blind codes of its own.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strobe.core.errors import UserError, error_line, os_error_reason
from strobe.core.json_text import JsonObject
from strobe.core.runs import store
from strobe.core.runs.contents import contents
from strobe.trials.plan import Drawn, TrialPlan, trial_script
from strobe.trials.results import Code, Trial

YES = frozenset(["yes", "y", "ja", "j", "oui", "si", "sí", "true", "wahr", "vrai", "t", "1", "1.0", "1,0", "x"])
NO = frozenset(["no", "n", "nein", "non", "false", "falsch", "faux", "f", "0", "0.0", "0,0"])
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
    lines = list(io.StringIO(_text(file), newline=""))
    separator, above = _separator(lines)
    reader = csv.reader(lines[above:], delimiter=separator)
    header: list[str] = []
    rows = []
    while True:
        line = above + reader.line_num + 1  # before the row is read: a note may have several lines
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


def _separator(lines: Sequence[str]) -> tuple[str, int]:
    head = lines[0].strip() if lines else ""
    if head.lower().startswith("sep=") and len(head) == 5:
        return head[4], 1
    return max(",;\t", key=head.count), 0


def _text(file: Path) -> str:
    try:
        content = contents(file)
    except FileNotFoundError:
        raise UserError(f"no table of trials at {file}") from None
    except OSError as error:
        raise UserError(f"cannot read {file}: {os_error_reason(error)}") from None
    for encoding in ["utf-16"] if content[:2] in (b"\xff\xfe", b"\xfe\xff") else ["utf-8-sig", "cp1252"]:
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise UserError(f"{file} is no text: save it as CSV")


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
    if text.lower() in YES:
        return True
    if text.lower() in NO:
        return False
    raise ValueError(f"success is '{text}': write yes or no")


def _code(text: str) -> Code:
    if text.upper() == "A":
        return "A"
    if text.upper() == "B":
        return "B"
    raise ValueError(f"code is '{text}': write A or B" if text else "code is missing: write A or B")


def _number(name: str, text: str) -> int:
    whole = text.removesuffix(".0").removesuffix(",0")
    if not (whole.isascii() and whole.isdecimal()):
        raise ValueError(f"{name} is '{text}': write a number" if text else f"{name} is missing")
    return int(whole[:9])


def _seconds(text: str, success: bool, limit_s: float | None) -> float | None:
    """Return ``'12,5 s'`` as a number; None for ''. Raises ValueError."""
    if not text:
        return None
    try:
        seconds = float(text.lower().removesuffix("s").replace(",", "."))
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


STUDY = "study.yaml"
INSTALL = "pip install fieldtrial"
FIELDS = ("seq", "block", "condition", "arm", "status", "success", "duration_s", "notes")


def write_study(drawn: Drawn, folder: Path) -> str:
    """Write the plan as a study, if fieldtrial is installed. Return what happened, in a line."""
    if importlib.util.find_spec("fieldtrial") is None:
        return f"none: fieldtrial is not installed ({INSTALL})"
    import yaml

    text = yaml.safe_dump(_study(drawn, folder), sort_keys=False, allow_unicode=True)
    try:
        from fieldtrial.design import parse_study  # pyright: ignore[reportMissingImports]

        parse_study(text)
    except Exception as error:  # another version of it, or one without its own requirements
        return f"none: this fieldtrial does not take the study: {error_line(error, 200)}"
    store.write_text(folder / STUDY, text)
    return f"{folder / STUDY} of fieldtrial: fieldtrial lock {folder}"


def _study(drawn: Drawn, folder: Path) -> JsonObject:
    plan = drawn.plan
    arms = [
        {"id": code, "runner": "command", "policy": {"script": str(trial_script(folder.resolve(), code))}}
        for code in ("A", "B")
    ]
    study: JsonObject = {
        "fieldtrial": 1,
        "name": "trials",
        "title": "Two settings on the robot",
        "rubric": {"stages": [{"id": "done", "label": "The task is done"}], "success": "done"},
        "arms": arms,
        "conditions": {"factors": {"pair": {"range": [1, len(plan.orders)]}}},
        # Its seed must not be the plan's, which would tell the key.
        "design": {"type": "randomized_block", "order": "fixed", "blinding": "operator", "seed": len(plan.orders)},
        "analysis": {
            "primary": {"comparison": {"treatment": "B", "control": "A"}},
            "secondary": ["time_to_success"],
            "stopping": {"rule": "anytime"},
        },
        "runners": {"command": {"template": "sh {policy.script}"}},
    }
    if plan.limit_s is not None:
        study["limits"] = {"timeout_s": plan.limit_s}
    return study


def read_study(file: Path, plan: TrialPlan, *, blind: bool) -> tuple[TrialPlan, list[Trial], bool]:
    """Return the plan in fieldtrial's own order, the trials that were run, and whether the codes are those of the plan.

    A block of fieldtrial is a pair.

    Raises:
        UserError: fieldtrial is not installed, the study is not locked, still blinded, or not one that Strobe wrote.
    """
    rows = [row for row in _read_export(file) if row["status"] == "completed"]
    arms = sorted({row["arm"] for row in rows})
    named = set(arms) <= {"A", "B"}
    if not named and not blind:
        raise UserError(f"{file} is still blinded: fieldtrial unblind {file.parent}, or look with --blind")
    if len(arms) > 2:
        raise UserError(f"{file} has more than two arms: it is not a study that strobe trials wrote")
    codes: dict[str, Code] = {"A": "A", "B": "B"} if named else dict(zip(arms, ("A", "B"), strict=False))
    trials, orders = [], list(plan.orders)
    for number in sorted({int(row["block"]) for row in rows}):
        if not 1 <= number <= len(orders):
            raise UserError(f"{file} has a pair {number}, and the plan has {len(orders)}")
        of_pair = sorted((row for row in rows if int(row["block"]) == number), key=lambda row: int(row["seq"]))
        latest: dict[Code, dict[str, str]] = {codes[row["arm"]]: row for row in of_pair}
        places: list[Code] = sorted(latest, key=lambda code: int(latest[code]["seq"]))
        if len(places) == 2:
            orders[number - 1] = (places[0], places[1])
        else:  # its place in the block is known by the number of its slot, and there are two in a block
            other: Code = "B" if places[0] == "A" else "A"
            first = int(latest[places[0]]["seq"]) % 2 == 1
            orders[number - 1] = (places[0], other) if first else (other, places[0])
        trials += [_trial_of_study(latest[code], number, orders[number - 1].index(code), code) for code in places]
    return plan.model_copy(update={"orders": orders}), trials, named


def _trial_of_study(row: dict[str, str], pair: int, place: int, code: Code) -> Trial:
    return Trial(
        line=0,
        pair=pair,
        trial=2 * pair - 1 + place,
        code=code,
        success=row["success"].lower() in ("true", "1"),
        seconds=float(row["duration_s"]) if row["duration_s"] else None,
        condition=row["condition"],
        note=row["notes"],
    )


def _read_export(file: Path) -> list[dict[str, str]]:
    """Return the rows of fieldtrial's own export. Raises UserError."""
    if importlib.util.find_spec("fieldtrial") is None:
        raise UserError(f"{file} is a study of fieldtrial, which is not installed: {INSTALL}")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "trials.csv"
        try:
            from fieldtrial.services.transfer import export_trials  # pyright: ignore[reportMissingImports]

            export_trials(file.parent, table, fmt="csv")
        except Exception as error:  # not locked, another version, or one without its own requirements
            raise UserError(f"fieldtrial cannot read {file}: {error_line(error, 200)}") from None
        with table.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            if missing := [name for name in FIELDS if name not in (reader.fieldnames or ())]:
                raise UserError(f"fieldtrial's export of {file} has no column '{missing[0]}': it is another version")
            return list(reader)
