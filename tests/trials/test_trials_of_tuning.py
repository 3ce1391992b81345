"""A plan's settings are the default and the winner of a tuning, with their recipes; the policy is named by the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strobe.core.errors import UserError
from strobe.core.results.subject import Machine, SubjectInfo
from strobe.evaluate.measure.success_rates import success_rate
from strobe.trials.plan import tuned_policy, tuned_settings
from strobe.tune.results import SettingRow, TuneResult, Tuning


def row(name: str, flag: str, recipe: str = "") -> SettingRow:
    return SettingRow(name=name, flags=[flag], recipe=recipe, success=success_rate([True, False]), mean_s=3.0)


def tuning(latency: str, winner: str, **other: Any) -> Tuning:
    best = row("rtc", "--inference.type=rtc", other.pop("recipe", ""))
    rows = [row("sync, 8 actions", "--policy.n_action_steps=8"), best]
    given: dict[str, Any] = {
        "ticks": 3, "left_out": {}, "starts": 8, "exhaustive": 16, "played": 16, "hopeless": False, "closing": None,
    }  # fmt: skip
    return Tuning(latency=latency, settings=rows, winner=winner, **(given | other))


def tuning_result(*tunings: Tuning, recipe: str = "") -> TuneResult:
    return TuneResult(
        strobe_version="0", title="a tuning", environment="pusht", tasks=["pusht"], fps=10, margin=0.1,
        tunings=list(tunings), config={"policy": {"path": "checkpoint"}, "recipe": recipe},
        subject=SubjectInfo(name="act", kind="act", source="checkpoint", parameters=1, weight_bytes=4, inputs="pusht"),
        machine=Machine(system="Linux", cpu="c", cores=1, threads=1, memory_bytes=1, device="cpu", device_name="cpu"),
    )  # fmt: skip


def test_the_default_and_the_winner_are_taken_with_their_flags_and_the_policy() -> None:
    result = tuning_result(tuning("100 ms", "rtc"))
    default, winner = tuned_settings(result)
    assert (default.name, default.flags) == ("default (sync, 8 actions)", ["--policy.n_action_steps=8"])
    assert (winner.name, winner.flags) == ("tuned (rtc)", ["--inference.type=rtc"])
    assert tuned_policy(result) == "checkpoint"


@pytest.mark.parametrize(
    "flag",
    ["--policy.path=evil/p", "--policy.discover_packages_path=evil", "--inference.type=a/b", "--robot.port=x", "-c"],
)
def test_a_run_sets_no_flag_that_loads_something(flag: str) -> None:
    chosen = tuning("100 ms", "rtc")
    chosen.settings[1].flags.append(flag)
    with pytest.raises(UserError, match="spell it yourself"):
        tuned_settings(tuning_result(chosen))


def test_one_of_several_latencies_is_chosen_by_its_number_or_its_name() -> None:
    result = tuning_result(tuning("100 ms", "rtc"), tuning("300 ms", "sync, 8 actions"))
    assert tuned_settings(result, "100")[1].name == tuned_settings(result, "100 ms")[1].name == "tuned (rtc)"
    with pytest.raises(UserError, match="several latencies: name one with --latency: 100 ms, 300 ms"):
        tuned_settings(result)
    with pytest.raises(UserError, match="at 300 ms the default was the best"):
        tuned_settings(result, "300")
    with pytest.raises(UserError, match="--latency=200: known: 100 ms, 300 ms"):
        tuned_settings(result, "200")


def test_a_recipe_is_found_by_its_name_among_those_that_were_tuned(tmp_path: Path) -> None:
    recipe = tmp_path / "fast.yaml"
    recipe.write_text("")
    _, winner = tuned_settings(
        tuning_result(tuning("100 ms", "rtc", recipe="fast.yaml"), recipe=f"other.yaml,{recipe}")
    )
    assert winner.recipe == str(recipe)
    with pytest.raises(UserError, match=r"has the recipe fast\.yaml: spell both with --setting"):
        tuned_settings(tuning_result(tuning("100 ms", "rtc", recipe="fast.yaml")))


def test_a_tuning_without_a_winner_has_nothing_to_try() -> None:
    for nothing in (tuning("100 ms", "", hopeless=True), tuning("100 ms", "")):
        with pytest.raises(UserError, match="found no setting at 100 ms"):
            tuned_settings(tuning_result(nothing))
    with pytest.raises(UserError, match="ended before its first round"):
        tuned_settings(tuning_result())
