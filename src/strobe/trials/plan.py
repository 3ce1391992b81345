"""A plan of trials, and its folder.

Which setting is A, and which code comes first in a pair, are coins of their own. So an effect of the order, such as a
gripper that grows warm, speaks for neither setting, whatever its size. A design that balances the orders would know the
last coin of a block before it falls.
"""

from __future__ import annotations

import csv
import io
import random
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from strobe.core.errors import UserError, error_line, nearest, os_error_reason
from strobe.core.results.data import Data, Finite
from strobe.core.runs import store
from strobe.core.untrusted import contents, parse_json
from strobe.evaluate.pairs import Score
from strobe.trials.results import Code
from strobe.tune.results import SettingRow, TuneResult, Tuning
from strobe.version import __version__

D = TypeVar("D", bound=Data)
RECIPE = "--recipe"
PROGRAM = "lerobot-rollout"
# What a tuning sets. A flag that names a file, a policy or a plug-in is no setting: a run's file may be anybody's.
_PLAIN = re.compile(
    r"--(fps|interpolation_multiplier|(inference|policy)\.(?!.*(path|repo_id|type=[^a-z]))[a-z_.]+)=[\w.+-]*"
)


class Setting(Data):
    """One setting of lerobot-rollout.

    Args:
        flags: as ``--name=value``, in addition to what both settings share.
        recipe: the path of its recipe, else empty.
    """

    name: str
    flags: list[str]
    recipe: str = Field(default="")


def spelt_settings(texts: Sequence[str]) -> tuple[Setting, Setting]:
    """Return two settings from ``'NAME: --flag=value --flag=value'``, the default first. Raises UserError."""
    if len(texts) != 2:
        raise UserError(f"a plan has two settings, and --setting is given {len(texts)} times: give the default first")
    first, second = (_parse_setting(text) for text in texts)
    if first.name == second.name:
        raise UserError(f"both settings are called '{first.name}': give them two names")
    if (first.flags, first.recipe) == (second.flags, second.recipe):
        raise UserError(f"'{first.name}' and '{second.name}' have the same flags: there is nothing to compare")
    return first, second


def _parse_setting(text: str) -> Setting:
    name, colon, rest = text.partition(":")
    if not colon or not name.strip() or name.strip().startswith("-"):
        raise UserError(f"--setting '{text}': write 'NAME: --flag=value --flag=value'")
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise UserError(f"--setting '{text}': {str(error).lower()}") from None
    flags, recipe = [], ""
    for word in words:
        flag, equals, value = word.partition("=")
        if not word.startswith("--") or not equals:
            raise UserError(f"--setting '{text}': '{word}' is no flag with its value: write --flag=value")
        if flag == RECIPE:
            recipe = value
        else:
            flags.append(word)
    return Setting(name=name.strip(), flags=flags, recipe=_file(recipe))


def load_tuning(run: Path) -> TuneResult:
    """Return the answer of a run of `strobe tune`. Raises UserError for another one."""
    answer = store.load_answer(run)
    if not isinstance(answer, TuneResult):
        raise UserError(f"{run} is a {answer.study}: --of takes a run of strobe tune")
    return answer


def tuned_settings(result: TuneResult, latency: str = "") -> tuple[Setting, Setting]:
    """Return the default and the winner of a tuning.

    Args:
        latency: the latency that was tuned for, as its answer calls it; empty if it has one alone.

    Raises:
        UserError: no such latency, or nothing to compare.
    """
    tuning = _tuning(result, latency)
    default, winner = tuning.row(tuning.default), tuning.row(tuning.winner)
    if tuning.hopeless or default is None or winner is None:
        raise UserError(f"this tuning found no setting at {tuning.latency}: there is nothing to compare on the robot")
    if winner.name == default.name:
        raise UserError(f"at {tuning.latency} the default was the best: there is nothing to compare on the robot")
    recipes = _recipes(result.config.get("recipe"))
    return _row_setting("default", default, recipes), _row_setting("tuned", winner, recipes)


def _tuning(result: TuneResult, latency: str) -> Tuning:
    names = [tuning.latency for tuning in result.tunings]
    if not names:
        raise UserError("this tuning has no latency: it ended before its first round")
    if not latency and len(names) > 1:
        raise UserError(f"this tuning has several latencies: name one with --latency: {', '.join(names)}")
    wanted = {latency, f"{latency} ms"} if latency else {names[0]}
    found = next((tuning for tuning in result.tunings if tuning.latency in wanted), None)
    if found is None:
        raise UserError(f"--latency={latency}: {nearest(latency, names)}")
    return found


def _row_setting(name: str, row: SettingRow, recipes: dict[str, str]) -> Setting:
    if row.program != PROGRAM:
        raise UserError(f"the setting '{row.name}' runs with {row.program}, and trials start {PROGRAM}")
    if row.recipe and row.recipe not in recipes:
        raise UserError(f"the setting {row.name} has the recipe {row.recipe}: spell both with --setting, with its path")
    if odd := [flag for flag in row.flags if not _PLAIN.fullmatch(flag)]:
        raise UserError(
            f"the setting {row.name} has {odd[0]}, which is no setting of a loop or a policy: spell it yourself"
        )
    return Setting(name=f"{name} ({row.name})", flags=row.flags, recipe=_file(recipes.get(row.recipe, "")))


def _recipes(given: object) -> dict[str, str]:
    """Return name → path of the recipes that a tuning's --recipe named; earlier tunings have them in one text."""
    paths = given if isinstance(given, list) else [part for part in map(str.strip, str(given or "").split(",")) if part]
    return {Path(path).name: path for path in paths}


def _file(path: str) -> str:
    """Return the absolute path of a recipe, because the scripts may start elsewhere. Raises UserError."""
    if not path:
        return ""
    if not Path(path).is_file():
        raise UserError(f"no recipe at {path}")
    return str(Path(path).resolve())


def tuned_policy(result: TuneResult) -> str | None:
    """Return the policy that was tuned, by its answer, if it has a checkpoint.

    It is a file's word: the scripts load what the user names.
    """
    policy = result.config.get("policy")
    path = policy.get("path") if isinstance(policy, dict) else None
    return error_line(path, 200) if path else None


PLAN, KEY, SHEET, README = "plan.json", "key.json", "trials.csv", "README.txt"
COLUMNS = ("pair", "trial", "code", "condition", "success", "progress", "seconds", "note")


class TrialPlan(Data):
    """The statements made before the first trial, without those that are blinded."""

    strobe_version: str
    orders: list[tuple[Code, Code]] = Field(min_length=1, description="order of the two settings in each pair")
    score: Score = Field(default="success", description="what decides")
    margin: Finite = Field(gt=0, lt=1, description="loss of the score that counts as not worse")
    limit_s: Finite | None = Field(default=None, gt=0, description="longest trial; None: times are not judged")


class TrialKey(Data):
    """Which code is which setting."""

    default: Code
    settings: dict[Code, Setting]
    seed: int


def draw(
    settings: tuple[Setting, Setting], pairs: int, seed: int, stated: Mapping[str, object]
) -> tuple[TrialPlan, TrialKey]:
    """Draw the codes and the order of each pair.

    Args:
        settings: the default first.
        stated: the fields of the plan that somebody chose, by name.
    """
    coins = random.Random(seed)
    codes: list[Code] = ["A", "B"]
    coins.shuffle(codes)
    orders: list[tuple[Code, Code]] = [("A", "B") if coins.random() < 0.5 else ("B", "A") for _ in range(pairs)]
    plan = TrialPlan.model_validate({"strobe_version": __version__, "orders": orders, **stated})
    return plan, TrialKey(default=codes[0], settings=dict(zip(codes, settings, strict=True)), seed=seed)


def write(plan: TrialPlan, key: TrialKey, command: Sequence[str], folder: Path) -> None:
    """Write the folder of a plan, whose scripts run ``command`` with the flags of a setting.

    Raises UserError where it holds a plan already, or cannot be written.
    """
    if (folder / SHEET).exists() or (folder / KEY).exists():
        raise UserError(f"--output={folder} holds a plan already: name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {folder}: {os_error_reason(error)}") from None
    store.write_text(folder / PLAN, plan.model_dump_json(indent=1))
    store.write_text(folder / KEY, key.model_dump_json(indent=1))
    store.write_text(folder / SHEET, trial_sheet(plan))
    store.write_text(folder / README, _readme(plan))
    for code in ("A", "B"):
        file = folder / f"{code.lower()}.sh"
        store.write_text(file, _script(key, command, code))
        file.chmod(0o755)


def trial_sheet(plan: TrialPlan) -> str:
    """Return the table that the operator fills in, as CSV."""
    text = io.StringIO()
    columns = [name for name in COLUMNS if name != "progress" or plan.score == "progress"]
    writer = csv.writer(text)
    writer.writerow(columns)
    for trial, code in enumerate((code for order in plan.orders for code in order), 1):
        writer.writerow([(trial + 1) // 2, trial, code, *[""] * (len(columns) - 3)])
    return text.getvalue()


def _script(key: TrialKey, command: Sequence[str], code: Code) -> str:
    setting = key.settings[code]
    recipes = any(each.recipe for each in key.settings.values())
    export = f"export STROBE_RECIPE={shlex.quote(setting.recipe or 'off')}\n" if recipes else ""
    log = f"{code.lower()}.log"
    return (
        "#!/bin/sh\n"
        f"# A trial of code {code}. Do not read on: the setting stands below.\n"
        f'log="$(dirname "$0")/{log}"\n'
        f'echo "A trial of code {code} starts. What the program prints goes to {log}. Ctrl-C ends the trial."\n'
        "trap : INT\n"  # the shell outlives Ctrl-C, so that the program can bring the arm to rest
        f"{export}"
        f'{shlex.join([*command, *setting.flags])} "$@" >>"$log" 2>&1\n'
        "code=$?\n"
        f'[ "$code" -eq 0 ] || echo "It ended with exit code $code. If that was not you, somebody who does not run'
        f' the trials should read {log}."\n'
        'exit "$code"\n'
    )


def _readme(plan: TrialPlan) -> str:
    stages, reached = "", ""
    if plan.score == "progress":
        stages = " Write down the stages of the task too: they\n   say how far a trial got, and that decides."
        reached = "   Of a failure write in the column progress what it did: stages, as 2 of 4, or a share, as 0.5.\n"
    limit = (
        f"A trial lasts {plan.limit_s:g} seconds. A task that takes longer has failed: write no.\n"
        if plan.limit_s
        else "The plan states no limit of a trial, so seconds are not judged. End every trial by the same rule.\n"
    )
    return (
        f"Trials of two settings, A and B: {len(plan.orders)} pairs.\n\n"
        "Before the first trial\n"
        f"1. Write down when a trial counts as a success. Do not change that rule.{stages}\n"
        "2. Write down the start of each pair: where the object lies, how the arm stands. Cover what the robot will "
        "meet.\n"
        f"3. Do not open {KEY}, a.sh, b.sh or the logs. Somebody who does not run the trials may: to see that each "
        "starts.\n"
        "4. Calibrate the arm. What the program asks goes to its log, where you do not see it.\n\n"
        "Each trial\n"
        f"1. Take the next row of {SHEET}. Bring the scene to the start of its pair, the same for both trials.\n"
        "2. Code A: sh a.sh. Code B: sh b.sh. Watch the arm, with a hand on the emergency stop.\n"
        "3. Write yes or no in the column success, and the seconds from the first motion until the task is done. "
        f"Write the start in the column condition.\n{reached}"
        "4. If a trial went wrong for another reason (a cable, a person), run it again from the same start, before "
        "you go on. Decide that before you know its result.\n"
        f"{limit}\n"
        "When to stop\n"
        "You may look at any time, and stop at any time: the verdict holds at every number of pairs.\n"
        "  strobe trials --judge=FOLDER --blind    says whether it is decided, and not for which code\n"
        "  strobe trials --judge=FOLDER            opens the key and judges. After that you are no longer blind.\n"
    )


def load_plan(folder: Path) -> TrialPlan:
    """Read a folder's plan. Raises UserError."""
    return _load(folder / PLAN, TrialPlan, "no plan of trials: `strobe trials --output=FOLDER` writes one")


def load_key(folder: Path) -> TrialKey:
    """Read a folder's key. Raises UserError."""
    key = _load(folder / KEY, TrialKey, "no key")
    if set(key.settings) != {"A", "B"}:
        raise UserError(f"{folder / KEY} does not name the settings A and B: it is not as Strobe wrote it")
    return key


def _load(file: Path, kind: type[D], missing: str) -> D:
    try:
        return kind.model_validate(parse_json(contents(file)))
    except FileNotFoundError:
        raise UserError(f"{file.parent} has {missing}") from None
    except OSError as error:
        raise UserError(f"cannot read {file}: {os_error_reason(error)}") from None
    except (ValueError, RecursionError):  # no JSON, or other fields
        raise UserError(f"{file} is not as Strobe wrote it") from None
