"""Trends over runs: what changed, in which run, and as a gate."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.examples import runs

from strobe.core import kinds
from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.core.results.answer import Result
from strobe.core.results.traits import PolicyTraits, Traits, TreatmentTraits
from strobe.core.runs import store
from strobe.core.runs.saved_runs import Run, UnreadableRun
from strobe.history.history_command import gate, history
from strobe.history.results import History

DAY = datetime(2026, 11, 1, tzinfo=UTC)
CALM = [148.0] * 10


def result_on_day(day: int, ms: float, **more: object) -> Result:
    """A run of ACT on a day, with noise of its own."""
    measured = runs.measurement("inference", runs.ACT, ms, seed=day)
    return runs.act(measurements=[measured], started=DAY + timedelta(days=day), **more)


def name_runs(*results: Result) -> list[Run]:
    return [runs.make_run(f"run-{index}", result) for index, result in enumerate(results)]


def save_runs(folder: Path, *results: Result) -> Path:
    for index, result in enumerate(results):
        (folder / f"run-{index}").mkdir(parents=True)
        store.save(result, folder / f"run-{index}")
    return folder


def days(*times: float, **more: object) -> list[Result]:
    return [result_on_day(day, ms, **more) for day, ms in enumerate(times)]


def outcome(found: History, allowed: float = 0.0) -> set[str]:
    return {one.outcome for one in gate(found, allowed)}


def failed_gates_text(found: History, allowed: float = 0.0) -> str:
    return " ".join(f"{one.what} {one.why}" for one in gate(found, allowed) if one.outcome != "held")


def test_a_change_is_found_where_it_is_and_runs_after_it_are_judged_against_it():
    results = days(*CALM, 121, 120.4, 121.2)
    # Out of order, as a folder may hold them.
    (trend,) = history(name_runs(*results[::-1]), "runs").trends
    assert [point.started for point in trend.points] == [result.started for result in results]
    assert [point.change for point in trend.points] == [None] * 10 + ["faster", None, None]
    change = trend.points[10].verdict
    assert change is not None
    assert change.ratio == pytest.approx(121 / 148, rel=0.02)
    assert trend.reference == ["run-2", "run-1"]
    said = kinds.document(history(name_runs(*results), "runs")).answers
    assert said == [
        "inference of act is 18 % faster since run-10.",
        "act, breakdown: inference: 149 → 122 ms over 13 runs.",
        "Next: strobe diff run-9 run-10",
    ]
    found = history(name_runs(*results), "runs")
    for config, following in (
        ({"folder": "my runs"}, "Next: strobe diff 'my runs/run-9' 'my runs/run-10'"),
        ({"git": True}, ""),
    ):
        (*_, last) = kinds.document(found.model_copy(update={"config": config})).answers
        assert last.startswith(following or "act, breakdown"), "a commit is no folder"


@pytest.mark.parametrize(
    "other",
    [
        {"device_name": "another CPU"},
        {"cores": 8},
        {"threads": 1},
        {"inputs": "other frames"},
        {"dtypes": {"bfloat16": 51_597_190}},
        {"source": "another/checkpoint"},
        {"parameters": 7},
        {"traits": Traits(treatments=[TreatmentTraits(key="precision", value="bf16")])},
        {"traits": Traits(policy=PolicyTraits(denoising_steps=5))},
    ],
    ids=lambda other: next(iter(other)),
)
def test_runs_that_are_not_alike_are_another_trend_and_the_newest_is_not_judged_by_them(other):
    first, last = result_on_day(1, 148), result_on_day(10, 300)
    for name, value in other.items():
        if name == "traits":
            last.measurements[0].traits = value
        else:
            owner = "machine" if hasattr(last.machine, name) else "subject"
            setattr(last, owner, getattr(last, owner).model_copy(update={name: value}))
    with pytest.raises(UserError, match=r"no two runs measured the same thing on the same machine \(2 measured runs"):
        history(name_runs(first, last), "runs")
    found = history(name_runs(*days(*CALM), last), "runs")
    assert outcome(found) == {"held", "not judged"}
    assert "in run-10" in failed_gates_text(found)
    assert "→" in failed_gates_text(found)


def test_trends_of_one_measurement_are_told_apart_by_what_differs():
    both = [*days(148, 148, 148), *days(60, 60, 60)]
    for result in both[3:]:
        result.subject = result.subject.model_copy(update={"dtypes": {"bfloat16": 1}})
    said = " ".join(kinds.document(history(name_runs(*both), "runs")).answers)
    assert "dtype bfloat16" in said
    assert "dtype float32" in said
    assert "parameters" not in said


def test_another_version_is_named_and_parts_no_trend_and_nor_does_what_builds_found():
    results = [*days(148, 148, 148), result_on_day(4, 148, strobe_version="9.9.9")]
    (trend,) = history(name_runs(*results), "runs").trends
    assert [bool(point.differs) for point in trend.points] == [False, False, False, True]
    assert "9.9.9" in trend.points[-1].differs[0]
    for seconds, result in enumerate(results):
        engine = TreatmentTraits(key="engine", value="openvino", build_s=seconds, from_cache=seconds > 0)
        result.measurements[0].traits = Traits(treatments=[engine], build_s=seconds)
    assert len(history(name_runs(*results), "runs").trends) == 1


def test_a_copy_of_a_run_is_no_further_run():
    once = result_on_day(1, 148)
    with pytest.raises(UserError, match="no two runs"):
        history(name_runs(once, once), "runs")


def small_result(day: int, ms: float) -> Result:
    """A run of five samples."""
    result = result_on_day(day, ms)
    result.measurements[0].samples = runs.samples(ms, n=5)
    return result


def other_measurement_result() -> Result:
    result = result_on_day(11, 148)
    result.measurements[0].name = "training forward"
    return result


WIDE = [148 * factor for factor in (1, 1.09, 0.94, 1.07, 0.93, 1.1, 0.92, 1.06, 0.95, 1.0)]
# The runs, the files that cannot be read, what is allowed, the outcomes, and words that say why.
GATES: dict[str, tuple[list[Result], list[UnreadableRun], float, str, str]] = {
    "the same again and again": (days(*CALM), [], 0, "held", ""),
    "two runs alike": (days(148, 148), [], 0, "not judged", "more of its kind would do"),
    "two runs apart": (days(148, 1480), [], 0, "not judged", "more of its kind would do"),
    "runs that differ among themselves": (days(*WIDE), [], 0.05, "not judged", "--fail-on-regression="),
    "runs that differ by less than is allowed": (days(*WIDE), [], 0.5, "held", ""),
    "another level explains it": (days(*[148.0] * 12, *[153.5] * 4), [], 0, "not judged", "would have to stay for"),
    "few samples": ([*days(*CALM), small_result(10, 148)], [], 0, "not judged", "5 samples"),
    "few samples do not open the gate": ([*days(*CALM, 165, 165), small_result(12, 165)], [], 0, "broken", ""),
    "the newest is interrupted": ([*days(*CALM), result_on_day(11, 148, status="interrupted")], [], 0,
                                  "held, not judged", ""),
    "an old one is interrupted": ([*days(*CALM), result_on_day(0, 148, status="interrupted")], [], 0, "held", ""),
    "the newest is no JSON": (days(*CALM), [UnreadableRun("run-x", "not JSON", last=True)], 0, "held, not judged", ""),
    "an old one is no JSON": (days(*CALM), [UnreadableRun("run-x", "not JSON", last=False)], 0, "held", ""),
    "the newest lacks a measurement": (
        [*days(*CALM), other_measurement_result()], [], 0, "held, not judged", "in run-10: it was not measured"),
}  # fmt: skip


@pytest.mark.parametrize("case", GATES)
def test_a_gate_passes_what_it_has_judged_alone(case: str):
    results, unread, allowed, expected, words = GATES[case]
    found = history(name_runs(*results), "runs", unread)
    assert not any(point.changes for point in found.trends[0].points) or expected == "broken"
    assert outcome(found, allowed) == set(expected.split(", "))
    assert words in failed_gates_text(found, allowed)
    answers = kinds.document(found).answers
    if expected == "held":
        assert " slower than before." in answers[0]
        assert all("at most" in one.why for one in gate(found, allowed))
    if "stay" in words:
        assert answers[0] == "Inconclusive: inference of act may be slower than before."


def test_what_is_accepted_of_one_policy_is_not_accepted_of_another():
    results = days(*CALM, 165, 165)
    for number, result in enumerate(days(*CALM, 165, 165)):
        other = result.model_copy(update={"subject": result.subject.model_copy(update={"name": "other"})})
        results.append(other.model_copy(update={"started": other.started + timedelta(hours=1 + number)}))
    found = history(name_runs(*results), "runs", accept="run-10")
    assert [one.what.split(",")[0] for one in gate(found) if one.outcome == "broken"] == ["other"]


def test_running_once_more_does_not_open_the_gate_and_accepting_or_fixing_does(tmp_path, capsys):
    slow = save_runs(tmp_path / "slow", *days(*CALM, 165, 165, 165))
    assert main(["history", str(slow)]) == 0
    assert main(["history", str(slow), "--fail-on-regression"]) == 1
    said = capsys.readouterr().out
    assert "regression: act, breakdown: inference, in run-12" in said
    assert "shown in run-10" in said
    assert main(["history", "--fail-on-regression=20", str(slow)]) == 0
    assert main(["history", "--fail-on-regression", str(slow), "--accept=run-10"]) in (0, 3)
    assert "regression" not in capsys.readouterr().out
    assert main(["history", str(slow), "--accept=run-99"]) == 2
    fixed = save_runs(tmp_path / "fixed", *days(*CALM, 165, 165, 148, 148))
    assert main(["history", "--fail-on-regression", str(fixed)]) == 0


def test_slow_runs_from_the_third_on_pass_no_gate():
    slow = [148.0 * 1.11 * factor for factor in (1, 1.002, 0.998, 1.001, 0.999, 1, 1.002, 0.998, 1)]
    found = [outcome(history(name_runs(*days(148, 148, *slow[:count])), "runs")) for count in range(1, 10)]
    assert {"held"} not in found
    assert found[-5:] == [{"broken"}] * 5


def test_the_exit_code_of_what_is_not_judged_is_3_unless_that_is_allowed(tmp_path, capsys):
    young = save_runs(tmp_path / "young", *days(148, 1480))
    assert main(["history", str(young)]) == 0
    assert main(["history", str(young), "--fail-on-regression=5"]) == 3
    assert "not judged: act, breakdown: inference, in run-1" in capsys.readouterr().out
    assert main(["history", str(young), "--fail-on-regression=5", "--allow-not-judged"]) == 0


def test_what_cannot_be_read_is_told_and_left_out(tmp_path, capsys):
    folder = save_runs(tmp_path, result_on_day(1, 148), result_on_day(2, 148))
    (folder / "broken").mkdir()
    (folder / "broken" / "result.json").write_text("{")
    assert main(["history", str(folder), "--full"]) == 0
    assert "left out broken:" in capsys.readouterr().out
    assert main(["history", str(folder), "--only=smolvla"]) == 2
    assert main(["history", str(tmp_path / "none")]) == 2
    assert "no folder at" in capsys.readouterr().err


def test_commits_of_one_run_are_its_history(tmp_path, capsys):
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True)

    git("init", "-q")
    for day, ms in ((1, 148.0), (2, 121.0)):
        store.save(result_on_day(day, ms), tmp_path)
        git("add", "result.json")
        git("commit", "-qm", f"day {day}")
    assert main(["history", str(tmp_path), "--git"]) == 0
    assert "149 → 122 ms over 2 runs" in capsys.readouterr().out
    assert main(["history", str(tmp_path / "none"), "--git"]) == 2
