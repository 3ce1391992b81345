"""Read what was filled in, and judge it."""

from __future__ import annotations

from pathlib import Path

from strobe.errors import UserError
from strobe.results.trials import TrialsResult
from strobe.studies.trials import fieldtrial_study
from strobe.studies.trials.judge import judge
from strobe.studies.trials.plan import KEY, SHEET, load_key, load_plan
from strobe.studies.trials.sheet import Limits, read_sheet


def judged(path: Path, *, blind: bool = False) -> TrialsResult:
    """Judge the trials of a plan.

    Args:
        path: the plan's folder, its table, or its study.yaml of fieldtrial.
        blind: leave the key closed.

    Raises:
        UserError: no plan there, a damaged file, or a row with a missing or odd value.
    """
    of_study = path.name == fieldtrial_study.STUDY
    folder = path if path.is_dir() else path.parent
    if not path.exists():
        raise UserError(f"--judge={path}: there is no such folder or file")
    plan = load_plan(folder)
    named = True
    if of_study:
        plan, trials, named = fieldtrial_study.read(path, plan, blind=blind)
    else:
        file = folder / SHEET if path.is_dir() else path
        trials = read_sheet(file, Limits(len(plan.orders), plan.limit_s))
        path = file
    why = "--blind leaves the key closed" if blind else ""
    if not why and not (folder / KEY).exists():
        why = f"{folder} has no {KEY}"
    key = load_key(folder) if not why and named else None
    return judge(plan, trials, key, str(path), why)
