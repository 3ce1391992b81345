"""The two settings of a plan: from a tuning, or as they are spelt on the command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from strobe.core.errors import UserError, in_a_line, nearest
from strobe.core.results.data import Data
from strobe.core.runs import store
from strobe.tune.results import SettingRow, TuneResult, Tuning

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
        recipe: the path of its recipe, '' for none.
    """

    name: str
    flags: list[str]
    recipe: str = Field(default="")


def spelt_settings(texts: Sequence[str]) -> tuple[Setting, Setting]:
    """Return two settings from ``'NAME: --flag=value --flag=value'``, the default first. Raises UserError."""
    if len(texts) != 2:
        raise UserError(f"a plan has two settings, and --setting is given {len(texts)} times: give the default first")
    first, second = (_spelt(text) for text in texts)
    if first.name == second.name:
        raise UserError(f"both settings are called '{first.name}': give them two names")
    if (first.flags, first.recipe) == (second.flags, second.recipe):
        raise UserError(f"'{first.name}' and '{second.name}' have the same flags: there is nothing to compare")
    return first, second


def _spelt(text: str) -> Setting:
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


def tuning_of(run: Path) -> TuneResult:
    """Return the answer of a run of `strobe tune`. Raises UserError for another one."""
    answer = store.load_answer(run)
    if not isinstance(answer, TuneResult):
        raise UserError(f"{run} is a {answer.study}: --of takes a run of strobe tune")
    return answer


def settings_of(result: TuneResult, latency: str = "") -> tuple[Setting, Setting]:
    """Return the default and the winner of a tuning.

    Args:
        latency: the latency that was tuned for, as its answer calls it; '' if there is one.

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
    return _of_row("default", default, recipes), _of_row("tuned", winner, recipes)


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


def _of_row(name: str, row: SettingRow, recipes: dict[str, str]) -> Setting:
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
    """Return name → path of the recipes that a tuning's --recipe named."""
    paths = [part.strip() for part in str(given or "").split(",") if part.strip()]
    return {Path(path).name: path for path in paths}


def _file(path: str) -> str:
    """Return the absolute path of a recipe, since the scripts may start elsewhere. Raises UserError."""
    if not path:
        return ""
    if not Path(path).is_file():
        raise UserError(f"no recipe at {path}")
    return str(Path(path).resolve())


def policy_of(result: TuneResult) -> str:
    """Return the policy that was tuned, by its answer; '' if it has no checkpoint.

    It is a file's word: the scripts load what the user names.
    """
    policy: Any = result.config.get("policy")
    return in_a_line(policy["path"], 200) if isinstance(policy, dict) and policy.get("path") else ""
