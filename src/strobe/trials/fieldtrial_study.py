"""A plan as a study of fieldtrial 0.3, and its trials read back.

fieldtrial (Apache-2.0, another project) schedules trials and puts them on a phone at the robot. A study is a folder: a
study.yaml, which it locks, and a database. Our study names its arms A and B as the plan does, so it tells the operator
nothing that key.json keeps. fieldtrial draws an order and blind codes of its own.
"""

from __future__ import annotations

import csv
import importlib.util
import tempfile
from pathlib import Path

from strobe.core.errors import UserError, in_a_line
from strobe.core.json_text import JsonObject
from strobe.core.runs import store
from strobe.trials.plan import Drawn, TrialPlan, script_of
from strobe.trials.results import Code, Trial

STUDY = "study.yaml"
INSTALL = "pip install fieldtrial"
FIELDS = ("seq", "block", "condition", "arm", "status", "success", "duration_s", "notes")


def write(drawn: Drawn, folder: Path) -> str:
    """Write the plan as a study, if fieldtrial is installed. Return what happened, in a line."""
    if importlib.util.find_spec("fieldtrial") is None:
        return f"none: fieldtrial is not installed ({INSTALL})"
    import yaml

    text = yaml.safe_dump(_study(drawn, folder), sort_keys=False, allow_unicode=True)
    try:
        from fieldtrial.design import parse_study  # pyright: ignore[reportMissingImports]

        parse_study(text)
    except Exception as error:  # another version of it, or one without its own requirements
        return f"none: this fieldtrial does not take the study: {in_a_line(error, 200)}"
    store.write_text(folder / STUDY, text)
    return f"{folder / STUDY} of fieldtrial: fieldtrial lock {folder}"


def _study(drawn: Drawn, folder: Path) -> JsonObject:
    plan = drawn.plan
    arms = [
        {"id": code, "runner": "command", "policy": {"script": str(script_of(folder.resolve(), code))}}
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


def read(file: Path, plan: TrialPlan, *, blind: bool) -> tuple[TrialPlan, list[Trial], bool]:
    """Return the plan in fieldtrial's own order, the trials that were run, and whether the codes are those of the plan.

    A block of fieldtrial is a pair.

    Raises:
        UserError: fieldtrial is not installed, the study is not locked, still blinded, or not one that Strobe wrote.
    """
    rows = [row for row in _exported(file) if row["status"] == "completed"]
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
        trials += [_trial(latest[code], number, orders[number - 1].index(code), code) for code in places]
    return plan.model_copy(update={"orders": orders}), trials, named


def _trial(row: dict[str, str], pair: int, place: int, code: Code) -> Trial:
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


def _exported(file: Path) -> list[dict[str, str]]:
    """Return the rows of fieldtrial's own export. Raises UserError."""
    if importlib.util.find_spec("fieldtrial") is None:
        raise UserError(f"{file} is a study of fieldtrial, which is not installed: {INSTALL}")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "trials.csv"
        try:
            from fieldtrial.services.transfer import export_trials  # pyright: ignore[reportMissingImports]

            export_trials(file.parent, table, fmt="csv")
        except Exception as error:  # not locked, another version, or one without its own requirements
            raise UserError(f"fieldtrial cannot read {file}: {in_a_line(error, 200)}") from None
        with table.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            if missing := [name for name in FIELDS if name not in (reader.fieldnames or ())]:
                raise UserError(f"fieldtrial's export of {file} has no column '{missing[0]}': it is another version")
            return list(reader)
