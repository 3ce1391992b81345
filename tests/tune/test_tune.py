"""A tuning of a tiny real policy whose episodes are made up: its answer, its page, and what it costs to stop it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.checks.renderings import console_text
from support.fakes.made_up_episodes import start_digest
from support.fakes.made_up_simulator import Lines, make_request, plan

from strobe.core import kinds
from strobe.core.findings.thresholds import Thresholds
from strobe.core.report import markdown
from strobe.core.results.subject import Machine, SubjectInfo
from strobe.core.runs import store
from strobe.evaluate.episode_log import EpisodeLine, EpisodeLog
from strobe.evaluate.episodes.play import Candidate, Session
from strobe.evaluate.episodes.timings import fixed_latency
from strobe.lerobot.policies import loading
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.simulators.held_action import Hold
from strobe.tune.page import hopeless
from strobe.tune.results import SettingRow, TuneResult, Tuning
from strobe.tune.run import AtLatency, policy_facts, tune, tuned_rows
from strobe.tune.search import SearchPlan
from strobe.tune.settings import EngineFlag, TuneConfig, grid

LIMIT = 10.0
BEST = "sync, 4 actions"


@pytest.fixture(scope="module")
def subject() -> PolicySubject:
    options = PolicyOptions(path=None, type="diffusion", size="tiny", overrides=["--device=cpu"])
    return loading.load_subject(options, InputOptions(), seed=0)


def episode_seconds(name: str, lot: float) -> float:
    """Of an episode of a setting, by its start's ``lot``: `BEST` succeeds more often and sooner; 0 is a failure."""
    if name.startswith(BEST):
        return 3.0 + lot if lot < 0.9 else 0.0
    return 6.0 + lot if lot < 0.6 else 0.0


@dataclass
class MadeUpPlayer:
    """Plays episodes by lot, and is stopped by Ctrl-C after ``cut`` of them."""

    outcome: Any = episode_seconds
    cut: int | None = None
    played: list[tuple[str, int]] = field(default_factory=list)

    def play(self, candidate: Candidate, task: str, seed: int) -> EpisodeLine:
        if len(self.played) == self.cut:
            raise KeyboardInterrupt
        self.played.append((candidate.name, seed))
        seconds = self.outcome(candidate.name, random.Random(seed).random())
        return EpisodeLine(
            variant=candidate.name, task=task, seed=seed, start=start_digest(task, seed), success=bool(seconds),
            reward=0.0,
            ticks=20, call_ms=[5.0], policy_ms=5.0, step_ms=40.0, render_ms=None, reset_ms=5.0,
            seconds=seconds or LIMIT, limit_s=LIMIT,
        )  # fmt: skip


def run_tuning(subject: PolicySubject, folder: Path, player: MadeUpPlayer, lines: Lines | None = None) -> TuneResult:
    facts = policy_facts(subject)
    made = grid(facts, TuneConfig(inference=EngineFlag(("sync",)), n_action_steps=(2, 4, 8, 16)), 1)
    made.left_out["rtc"] = "a call lasts too long"
    settings = [(fixed_latency(100), setting) for setting in made.settings]
    rows = tuned_rows(subject, settings=settings, hold=Hold("last", None, True), fps=10.0)
    search = SearchPlan(rows, ["task"], 100, 0.1, held_out=200)
    log = EpisodeLog.begin(folder, make_request(plan()))
    session = Session("a made-up task", search, player, log, lines or Lines(), 10.0)
    return tune(subject, session, [AtLatency("100 ms", made, facts, search)])


def test_the_best_setting_is_found_and_judged_in_success_and_in_time(subject: PolicySubject, tmp_path: Path) -> None:
    result = run_tuning(subject, tmp_path, MadeUpPlayer())
    (tuning,) = result.tunings
    assert (tuning.winner, tuning.default) == (BEST, "sync, 32 actions")
    assert tuning.played <= 0.36 * tuning.exhaustive
    assert tuning.closing is not None
    assert tuning.closing.rates.decision.kind == "better"
    assert tuning.closing.times is not None
    assert tuning.closing.times.kind == "sooner"
    said = kinds.document(result).answers
    assert said[0] == "At 100 ms latency, execute 4 actions per chunk instead of 32."
    assert said[1].startswith("Held-out: ")
    assert said[1].endswith("; also finishes sooner.")
    assert said[2].endswith("--inference.type=sync --policy.n_action_steps=4")
    assert console_text(result)
    whole = markdown.render(kinds.document(result))
    assert "Success in held-out pairs" in whole
    assert "Success in selection" in whole
    assert "a call lasts too long" in whole
    assert "Not tried: " in whole
    assert not [finding for finding in kinds.advise(result) if finding.rule.startswith("tune-")]
    store.save(result, tmp_path)
    assert store.load_answer(tmp_path) == result
    assert "</html>" in kinds.page(result)


def test_a_winner_that_the_held_out_pairs_do_not_confirm_is_a_finding(subject: PolicySubject, tmp_path: Path) -> None:
    def lucky(name: str, lot: float) -> float:
        return 5.0 if lot < 0.7 else 0.0

    lines = Lines()
    result = run_tuning(subject, tmp_path, MadeUpPlayer(lucky), lines)
    (tuning,) = result.tunings
    rules = [finding.rule for finding in kinds.advise(result)]
    if tuning.closing is None:
        assert tuning.winner == tuning.default
    else:
        assert "tune-not-shown" in rules


def test_a_faster_policy_whose_task_takes_longer_is_called(subject: PolicySubject, tmp_path: Path) -> None:
    """All succeed alike; the settings with fewer actions a call finish later."""

    def paradox(name: str, lot: float) -> float:
        return (4.0 if "32" in name else 7.0) + lot if lot < 0.95 else 0.0

    result = run_tuning(subject, tmp_path, MadeUpPlayer(paradox))
    (tuning,) = result.tunings
    assert tuning.winner == tuning.default
    assert {row.left for row in tuning.settings[1:]} <= {"time", "rank"}
    assert "time" in {row.left for row in tuning.settings[1:]}
    assert "keep the default" in kinds.document(result).answers[0]


def test_ctrl_c_keeps_what_was_played(subject: PolicySubject, tmp_path: Path) -> None:
    result = run_tuning(subject, tmp_path, MadeUpPlayer(cut=31))
    assert result.status == "interrupted"
    (tuning,) = result.tunings
    assert 25 <= tuning.played <= 31
    assert "Inconclusive: at 100 ms the selection phase did not end" in kinds.document(result).answers[0]
    with pytest.raises(KeyboardInterrupt):
        run_tuning(subject, _new(tmp_path), MadeUpPlayer(cut=0))


def _new(folder: Path) -> Path:
    made = folder / "again"
    made.mkdir()
    return made


def test_a_setting_that_never_succeeds_has_no_time_to_task(subject: PolicySubject, tmp_path: Path) -> None:
    result = run_tuning(subject, tmp_path, MadeUpPlayer())
    row = result.tunings[0].settings[-1]
    assert row.success is not None
    row.success = row.success.model_copy(update={"successes": 0, "rate": 0.0})
    assert row.mean_s is not None
    rows = [line for line in markdown.render(kinds.document(result)).splitlines() if line.startswith(f"| {row.name} ")]
    assert " – " in rows[0]


def tuning_result(*latencies: tuple[int, bool]) -> TuneResult:
    """A search at each latency (control ticks), and whether no setting succeeded there."""
    rows = [SettingRow(name="sync", flags=[], success=None, mean_s=None)]
    return TuneResult(
        strobe_version="0", title="a tuning", environment="pusht", tasks=["pusht"], fps=10, margin=0.1,
        tunings=[
            Tuning(latency=f"{100 * ticks} ms", ticks=ticks, settings=rows, left_out={}, starts=8, exhaustive=16,
                   played=16, hopeless=fails, winner="" if fails else "sync", closing=None)
            for ticks, fails in latencies
        ],
        subject=SubjectInfo(name="act", kind="act", source="checkpoint", parameters=1, weight_bytes=4, inputs="pusht"),
        machine=Machine(system="Linux", cpu="c", cores=1, threads=1, memory_bytes=1, device="cpu", device_name="cpu"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("latencies", "why"),
    [
        ([(600, True)], "Whether the policy does the task without it was not judged"),
        ([(0, False), (600, True)], "The policy succeeds at 0 ms"),
        ([(0, True)], "They do not teach it the task"),
        ([(0, True), (600, True)], "They do not teach it the task"),
    ],
)
def test_a_latency_is_not_blamed_on_the_policy(latencies: list[tuple[int, bool]], why: str) -> None:
    assert all(why in finding.why for finding in hopeless(tuning_result(*latencies), Thresholds()))
