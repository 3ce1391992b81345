"""Trials are judged as episodes are: by pairs, with sequences that hold at every number of pairs.

They are read from the table that an operator filled in: CSV with commas, semicolons or tabs. Spreadsheets leave a mark
at the beginning and empty rows. What else is odd is a mistake, and is named by its line.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strobe.core.errors import UserError, os_error_reason
from strobe.core.untrusted import contents
from strobe.evaluate.measure.planning import fewest_pairs, fewest_pairs_apart
from strobe.evaluate.measure.success_rates import paired_rates, paired_scores, success_rate
from strobe.evaluate.measure.time_to_task import Ended, judge_times, time_to_task
from strobe.trials.plan import KEY, SHEET, TrialKey, TrialPlan, load_key, load_plan
from strobe.trials.results import Code, OfOrder, Trial, TrialsResult, TriedSetting
from strobe.version import __version__

REQUIRED = ("pair", "trial", "code", "success")


def read_sheet(file: Path, plan: TrialPlan) -> list[Trial]:
    """Return the trials of ``plan`` that were run, by their place in it. A row without a success was not run.

    Raises:
        UserError: not a table of trials; or rows with a missing or odd value, the first of them with its line.
    """
    columns, rows = _table(file)
    trials, wrong = [], list[str]()
    seen = dict[object, int]()  # what may stand in one row only → its line
    for line, cells in rows:
        try:
            trial = _trial(line, _cells(columns, cells), plan)
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


def _trial(line: int, cells: dict[str, str], plan: TrialPlan) -> Trial | None:
    """Return the trial of a row; None if it was not run. Raises ValueError for an odd value."""
    said, progress, seconds = cells["success"], cells.get("progress"), cells.get("seconds", "")
    if not said:
        if odd := "seconds" if seconds else "progress" if progress else "":
            raise ValueError(f"{odd} without a success: write yes or no, or clear the row")
        return None
    success = _success(said)
    pair, trial = _number("pair", cells["pair"]), _number("trial", cells["trial"])
    if not 1 <= pair <= len(plan.orders):
        raise ValueError(f"pair {pair} is not in the plan, which has {len(plan.orders)}")
    if trial not in (2 * pair - 1, 2 * pair):
        raise ValueError(f"trial {trial} is not of pair {pair}, whose trials are {2 * pair - 1} and {2 * pair}")
    return Trial(
        line=line,
        pair=pair,
        trial=trial,
        code=_code(cells["code"]),
        success=success,
        progress=_progress(progress, success),
        seconds=_seconds(seconds, success, plan.limit_s),
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


def _progress(text: str | None, success: bool) -> float | None:
    """Return ``'0.5'``, ``'2/4'`` or ``'2 of 4'`` as a share. Without text: 1 for a success, else None. ValueError."""
    if not text:
        return None if text is None or not success else 1.0
    reached, _, stages = text.lower().replace("of", "/").partition("/")
    try:
        share = float(reached) / float(stages or 1)
    except (ValueError, ZeroDivisionError):
        share = math.nan
    if not 0 <= share <= 1:
        raise ValueError(f"progress is '{text}': write a share from 0 to 1, such as 0.5, or stages, such as 2 of 4")
    if success != (share == 1):
        raise ValueError(f"progress is '{text}' and success is '{'yes' if success else 'no'}': all of it is a success")
    return share


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


@dataclass(frozen=True)
class Pair:
    """Two trials from one start, by their code and by their place."""

    of: dict[Code, Trial]
    first: Trial
    second: Trial


def judge(
    plan: TrialPlan, trials: Sequence[Trial], key: TrialKey | None, source: str, blind: str | None = None
) -> TrialsResult:
    """Judge the trials that were run.

    Args:
        trials: by their place in the plan.
        key: None for a blind look: whether it is decided, and not for which setting.
        source: the file that was read.
        blind: why there is no key.
    """
    pairs = _pairs(trials)
    result = TrialsResult(
        strobe_version=__version__,
        title="two settings on the robot",
        source=source,
        planned=len(plan.orders),
        score=plan.score,
        margin=plan.margin,
        limit_s=plan.limit_s,
        blind=blind if key is None else None,
        trials=list(trials),
        counted=len(pairs),
    )
    _record_deviations(result, plan, pairs)
    # Without the key the two have no order: the second code is compared with the first.
    codes: tuple[Code, Code] = ("B", "A") if key is not None and key.default == "B" else ("A", "B")
    _judge(result, [[pair.of[code] for pair in pairs] for code in codes])
    if key is None:
        result.rates = result.progress = result.times = None
    else:
        result.settings = [_setting(result, key, code, pairs) for code in codes]
        result.title = " against ".join(setting.name for setting in reversed(result.settings))
        result.orders = [_order_effect(key, code, codes, pairs) for code in codes]
    return result


def _pairs(trials: Sequence[Trial]) -> list[Pair]:
    by_pair: dict[int, list[Trial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.trial):
        by_pair.setdefault(trial.pair, []).append(trial)
    return [
        Pair({trial.code: trial for trial in both}, both[0], both[1])
        for _, both in sorted(by_pair.items())
        if {trial.code for trial in both} == {"A", "B"}
    ]


def _record_deviations(result: TrialsResult, plan: TrialPlan, pairs: Sequence[Pair]) -> None:
    run = {trial.pair for trial in result.trials}
    whole = {pair.first.pair for pair in pairs}
    result.half_run = sorted(run - whole)
    result.passed_over = [pair for pair in range(1, max(run, default=0)) if pair not in run]
    result.other_order = sorted({t.pair for t in result.trials if plan.orders[t.pair - 1][(t.trial - 1) % 2] != t.code})
    starts = [(pair.first.pair, pair.first.condition, pair.second.condition) for pair in pairs]
    result.other_start = [pair for pair, one, other in starts if one and other and _plain(one) != _plain(other)]
    if pairs:
        firsts = [pair.first.success for pair in pairs]
        result.places = paired_rates(firsts, [pair.second.success for pair in pairs], every=None)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _judge(result: TrialsResult, played: Sequence[Sequence[Trial]]) -> None:
    """Judge both settings' trials, ``played``, by success, progress and time, or say why not."""
    first, second = played
    result.rates_not_judged = _shortage_reason(result)
    if not result.rates_not_judged:
        result.rates = paired_rates([t.success for t in first], [t.success for t in second], result.margin)
    if result.score == "progress":
        missing = sorted(trial.trial for trial in [*first, *second] if trial.progress is None)
        of = f"{len(missing)} of {2 * result.counted} trials have no progress"
        result.progress_not_judged = f"{of} (trial {missing[0]} is the first)" if missing else _shortage_reason(result)
        if not result.progress_not_judged:
            before, after = ([trial.progress or 0.0 for trial in trials] for trials in played)
            result.progress = paired_scores(before, after, result.margin)
    elif any(trial.progress is not None for trial in result.trials):
        result.progress_not_judged = "the plan says that success decides"
    result.times_not_judged = _times_unjudged_reason(result, [*first, *second])
    if not result.times_not_judged:
        result.times = judge_times(_trial_ends(result, first), _trial_ends(result, second))
    if result.comparison is not None and result.comparison.decision.kind in ("better", "worse"):
        result.decided.append(result.score)
    if result.times is not None and result.times.kind in ("sooner", "later"):
        result.decided.append("time")


def _shortage_reason(result: TrialsResult) -> str | None:
    fewest = min(fewest_pairs_apart(), fewest_pairs(result.margin))
    complete = "1 pair is complete" if result.counted == 1 else f"{result.counted} pairs are complete"
    return f"{complete}, and fewer than {fewest} decide nothing" if result.counted < fewest else None


def _times_unjudged_reason(result: TrialsResult, trials: Sequence[Trial]) -> str | None:
    """Return why the times of these trials are not judged; None if they are."""
    if result.limit_s is None:
        return "the plan states no limit of a trial (--limit_s)"
    done = sorted((trial for trial in trials if trial.success), key=lambda trial: trial.trial)
    if not done:
        return "no trial of a complete pair succeeded"
    if missing := [trial for trial in done if trial.seconds is None]:
        return f"{len(missing)} of {len(done)} successes have no seconds (trial {missing[0].trial} is the first)"
    if all(trial.seconds == result.limit_s for trial in done):
        return "every success has the limit of a trial as its seconds"
    if result.counted < fewest_pairs_apart():
        return f"fewer than {fewest_pairs_apart()} pairs decide nothing"
    return None


def _trial_ends(result: TrialsResult, trials: Sequence[Trial]) -> list[Ended]:
    limit = result.limit_s
    assert limit is not None  # else times are not judged
    return [Ended(limit if each.seconds is None else each.seconds, each.success, limit) for each in trials]


def _setting(result: TrialsResult, key: TrialKey, code: Code, pairs: Sequence[Pair]) -> TriedSetting:
    setting, trials = key.settings[code], [pair.of[code] for pair in pairs]
    outcomes = [trial.success for trial in trials]
    shares = [trial.progress for trial in trials if trial.progress is not None]
    paired = result.times if code != key.default else None
    return TriedSetting(
        name=setting.name,
        code=code,
        flags=setting.flags,
        recipe=setting.recipe,
        success=success_rate(outcomes) if outcomes else None,
        progress=sum(shares) / len(shares) if shares and len(shares) == len(trials) else None,
        time=time_to_task(_trial_ends(result, trials), paired) if result.times is not None and any(outcomes) else None,
    )


def _order_effect(key: TrialKey, code: Code, codes: tuple[Code, Code], pairs: Sequence[Pair]) -> OfOrder:
    these = [pair for pair in pairs if pair.first.code == code]
    won = [(pair.of[codes[0]].success, pair.of[codes[1]].success) for pair in these]
    lost, gained = won.count((True, False)), won.count((False, True))
    return OfOrder(first=key.settings[code].name, pairs=len(these), lost=lost, won=gained)


def judge_trials(path: Path, *, blind: bool = False) -> TrialsResult:
    """Judge the trials of a plan.

    Args:
        path: the plan's folder, or its table.
        blind: leave the key closed.

    Raises:
        UserError: no plan there, a damaged file, or a row with a missing or odd value.
    """
    folder = path if path.is_dir() else path.parent
    if not path.exists():
        raise UserError(f"--judge={path}: there is no such folder or file")
    plan = load_plan(folder)
    file = folder / SHEET if path.is_dir() else path
    trials = read_sheet(file, plan)
    missing = None if (folder / KEY).exists() else f"{folder} has no {KEY}"
    why = "--blind leaves the key closed" if blind else missing
    key = None if why else load_key(folder)
    return judge(plan, trials, key, str(file), why)
