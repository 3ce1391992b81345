"""What becomes of a ladder in a simulator: real episodes of a tiny policy, and every way in which they can end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from lerobot.envs.factory import make_env_config
from support.examples.runs import MACHINE, measurement
from support.fakes.sleeper import Lines

from strobe.core.errors import UserError
from strobe.core.measure.guard import Guards
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.results.subject import Machine, SubjectInfo
from strobe.core.studies.shared.measuring import Options
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Variant
from strobe.evaluate.measure.episodes import judge
from strobe.evaluate.pairs import EpisodePair
from strobe.ladder.answer import Choosing
from strobe.ladder.candidates import Bounds, make_candidate
from strobe.ladder.climb import BASELINE, Climb, Step
from strobe.ladder.closing import look_closely, prove, start_episodes
from strobe.ladder.earlier import Earlier
from strobe.ladder.episodes import CandidateError, Episodes
from strobe.ladder.results import OptimizeResult, Try
from strobe.ladder.runner import ActionGuard, Runs, prepare_checks
from strobe.ladder.settings import Aim
from strobe.ladder.trial import Climber
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.simulators.results import Episode

VARIANTS = [Variant(BASELINE), Variant("step 1"), Variant("step 2")]


@pytest.fixture(scope="module")
def env():
    return make_env_config("pusht", episode_length=12)


@pytest.fixture(scope="module")
def subject(env):
    return load_subject(PolicyOptions(type="smolvla", size="tiny", overrides=["--device=cpu"]), InputOptions(env=env))


@pytest.fixture
def episodes(env, subject):
    made = Episodes(env, subject, Variant(BASELINE), 2, seed=5)
    yield made
    made.close()


def variant(name: str, text: str) -> Variant:
    return Variant(name, tuple(catalogue.make(spec) for spec in catalogue.parse(text)))


def test_an_exact_treatment_acts_the_same_to_the_bit_and_a_lossy_one_does_not(episodes):
    lines = Lines()
    exact, interrupted = episodes.play_against_baseline(variant("step 1", "masks=once, prefix_cache=static"), lines)
    assert not interrupted
    assert exact is not None
    assert [pair.seed for pair in exact.pairs] == [5, 6]
    assert all(pair.baseline.ticks == pair.candidate.ticks == 12 for pair in exact.pairs)
    lossy, _ = episodes.play_against_baseline(variant("step 2", "policy.num_steps=1"), lines)
    assert lossy is not None
    assert lossy.kind == "too few"
    assert exact.kind == "the same"
    assert min(pair.largest_error for pair in lossy.pairs) > 0
    levels = exact.success_interval.level, lossy.success_interval.level
    assert levels == (0.95, 0.975), "each further rung is another chance to be wrong"
    assert [pair.baseline for pair in lossy.pairs] == [pair.baseline for pair in exact.pairs]
    assert lines.lines[0].startswith("pair 1 of 2: pusht, seed 5: failure, reward ")
    assert episodes.subject.policy.config.num_steps != 1, "what was on for an episode is off again"


@pytest.mark.parametrize(
    ("tasks", "ends", "played", "kind"),
    [
        (["pusht"], "L" * 60, 8, "worse"),
        (["pusht"], "S" * 60, 48, "not worse by more than the margin"),
        (["a", "b", "c"], "L" * 60, 9, "worse"),  # a whole round of them
        (["pusht"], "SSSSL" * 4, 20, "no difference shown"),
    ],
)
def test_a_rung_is_played_until_it_is_decided(tasks, ends, played, kind, episodes, monkeypatch):
    starts: list[tuple[str, int]] = []

    def play_scripted_pair(_self, _other, _candidate, task: str, seed: int) -> EpisodePair:
        starts.append((task, seed))
        sides = [
            Episode(success=success, reward=0.0, best_reward=0.0, ticks=3)
            for success in (True, ends[len(starts) - 1] == "S")
        ]
        return EpisodePair(task=task, seed=seed, baseline=sides[0], candidate=sides[1], same_ticks=0, largest_error=1.0)

    monkeypatch.setattr(Episodes, "_pair", play_scripted_pair)
    episodes.tasks, episodes.count = tasks, len(ends) // len(tasks)
    judged, interrupted = episodes.play_against_baseline(Variant("step 1"), Lines())
    assert judged is not None
    assert not interrupted
    assert (len(judged.pairs), judged.kind, judged.planned) == (played, kind, len(ends))
    assert starts[: len(tasks)] == [(task, 5) for task in tasks], "tasks in turn"


def test_ctrl_c_keeps_the_pairs_that_were_played(episodes, monkeypatch):
    class Pressing(Lines):
        def say(self, line: str) -> None:
            raise KeyboardInterrupt

    judged, interrupted = episodes.play_against_baseline(Variant("step 1"), Pressing())
    assert interrupted
    assert judged is not None
    assert (len(judged.pairs), judged.planned, judged.kind) == (1, 2, "the same")


def test_a_candidate_that_fails_is_told_apart_from_a_simulator_that_does(episodes, monkeypatch):
    play = episodes.simulator.__class__.play
    monkeypatch.setattr(
        "strobe.simulators.simulator.Simulator.play",
        lambda self, task, seed: play(self, task, seed) if self is episodes.simulator else fails("no such shape"),
    )
    with pytest.raises(CandidateError, match="no such shape"):
        episodes.play_against_baseline(Variant("step 1"), Lines())

    class Breaks:
        def apply(self, _):
            raise RuntimeError("no such\nkernel")

    with pytest.raises(CandidateError, match="RuntimeError: no such kernel"):
        episodes.play_against_baseline(Variant("step 1", (Breaks(),)), Lines())  # type: ignore[arg-type]
    monkeypatch.setattr("strobe.simulators.simulator.Simulator.play", lambda *_: fails("no such file"))
    episodes.played.clear()
    with pytest.raises(UserError, match="no such file"):
        episodes.play_against_baseline(Variant("step 1"), Lines())


def fails(words: str):
    raise UserError(words)


def test_a_guard_that_the_episodes_cannot_meet_is_refused_before_anything_runs(env, subject):
    with pytest.raises(
        UserError, match=r"success_drop<=0\.1 needs at least 48 pairs of episodes, even if all of them agree"
    ):
        start_episodes(subject, env, 5, Guards.parse("success_drop<=0.1"))
    made = start_episodes(subject, env, 50, Guards.parse("success_drop<=0.1"))
    made.close()
    assert (made.margin, made.planned_pairs) == (0.1, 50)


@dataclass
class Scripted:
    """Episodes that end as planned: rung → pairs lost of 12, or what is raised."""

    ends: dict[str, object]
    interrupted: bool = False
    asked: list[str] = field(default_factory=list)
    environment: str = "pusht"

    def play_against_baseline(self, candidate: Variant, _):
        self.asked.append(candidate.name)
        lost: Any = self.ends[candidate.name]
        if isinstance(lost, Exception):
            raise lost
        if lost is None:
            return None, True
        sides = {success: Episode(success=success, reward=0.0, best_reward=0.0, ticks=3) for success in (True, False)}
        pairs = [
            EpisodePair(
                task="t", seed=n, baseline=sides[True], candidate=sides[n >= lost], same_ticks=0, largest_error=1.0
            )
            for n in range(12)
        ]  # fmt: skip
        judged = judge(pairs, baseline=BASELINE, candidate=candidate.name, environment="pusht")
        return judged, self.interrupted


class Chosen(Choosing):
    """Nothing but episodes and what is refused from the start speaks against a rung."""

    def rejection_reason(self, name: str) -> str | None:
        return self.refused.get(name)


def prove_rungs(ends: dict[str, object], guard: str = "cosine>=0.9", interrupted: bool = False, top: int = 2):
    result = OptimizeResult(
        strobe_version="0", title="t",
        subject=SubjectInfo(name="s", kind="s", source="here", parameters=1, weight_bytes=1, inputs=""),
        machine=Machine(
            system="s", cpu="c", cores=1, threads=1, memory_bytes=1, device="cpu", device_name="c"
        ),
    )  # fmt: skip
    tried = Try(treatment="", rung=0, before_ms=1, outcome="kept")
    steps = [Step(variant, (), measurement(variant.name, {}, 1.0), tried) for variant in VARIANTS]
    choosing = Chosen(result, steps, interleaved=False)
    choosing.refused = {variant.name: "guard" for variant in VARIANTS[top + 1 :]}
    scripted = Scripted(ends, interrupted)
    prove(choosing, VARIANTS, scripted, Guards.parse(guard), Lines())  # type: ignore[arg-type]
    return choosing, scripted.asked


def test_the_highest_rung_stays_where_nothing_speaks_against_it():
    choosing, asked = prove_rungs({"step 2": 0})
    assert (choosing.chosen_rung, asked) == ("step 2", ["step 2"])
    assert [one.kind for one in choosing.result.episodes] == ["no difference shown"]


def test_what_does_worse_is_refused_and_the_next_one_below_is_played():
    choosing, asked = prove_rungs({"step 2": 9, "step 1": 1})
    assert (choosing.chosen_rung, asked) == ("step 1", ["step 2", "step 1"])
    assert choosing.refused["step 2"] == "it does worse in pusht"
    choosing, asked = prove_rungs({"step 2": 9, "step 1": 9})
    assert choosing.chosen_rung == BASELINE


def test_a_drop_that_is_not_excluded_counts_only_where_the_guard_asks():
    assert prove_rungs({"step 2": 2})[0].chosen_rung == "step 2"
    choosing, _ = prove_rungs({"step 2": 2, "step 1": 0}, "success_drop<=0.4")
    assert choosing.chosen_rung == "step 1"
    assert "12 pairs do not exclude a success drop of" in choosing.refused["step 2"]


def test_a_rung_whose_episodes_fail_is_refused_and_a_simulator_that_fails_costs_no_rung():
    choosing, _ = prove_rungs({"step 2": CandidateError("the environment 'pusht' failed"), "step 1": 0})
    assert choosing.chosen_rung == "step 1"
    assert choosing.refused["step 2"] == "the environment 'pusht' failed"
    choosing, _ = prove_rungs({"step 2": UserError("it does not start alike")})
    assert choosing.chosen_rung == "step 2"
    assert choosing.result.notes == ["no paired episodes: it does not start alike"]


def test_what_was_not_shown_is_not_promised():
    choosing, asked = prove_rungs({"step 2": UserError("it does not start alike")}, "success_drop<=0.4")
    assert (choosing.chosen_rung, asked) == (BASELINE, ["step 2"])
    choosing, asked = prove_rungs({"step 2": 6}, "success_drop<=0.4", interrupted=True)
    assert (choosing.chosen_rung, choosing.result.status, asked) == (BASELINE, "interrupted", ["step 2"])
    assert choosing.refused["step 1"] == "no episodes show its success"
    choosing, _ = prove_rungs({"step 2": 0}, interrupted=True)
    assert (choosing.chosen_rung, choosing.result.status) == ("step 2", "interrupted")


def test_ctrl_c_before_the_first_pair_leaves_the_ladder_and_a_note():
    choosing, _ = prove_rungs({"step 2": None})
    assert (choosing.chosen_rung, choosing.result.status, choosing.result.episodes) == ("step 2", "interrupted", [])
    assert choosing.result.notes == ["no paired episodes: interrupted before the first pair was played"]


def test_a_ladder_without_a_rung_has_nothing_to_play_and_says_so():
    choosing, asked = prove_rungs({}, top=0)
    assert asked == []
    assert choosing.result.notes == ["no paired episodes: no treatment was accepted"]


@pytest.mark.parametrize(("text", "holds"), [("masks=once", True), ("precision=bf16", False)])
def test_a_closer_check_of_the_actions_costs_the_rung_that_fails_it(subject, text, holds):
    lines = Lines()
    runs = Runs(subject, Options(SamplingBudget(iterations=2), batch_size=1, counted=False), (), lines, None)
    start = Variant(BASELINE)
    guard = ActionGuard(runs, Guards.parse("worst<=1e-9"), [runs.run_once(start)[0]])
    guard.same, guard.yardsticks = prepare_checks(runs, 0.01)
    shown = measurement(BASELINE, {"policy": (1.0, {})}, 10.0)
    step = Step(start, (), shown, Try(treatment="", rung=0, before_ms=10.0, outcome="kept"))
    climb = Climb(Aim(), Earlier(subject.info, MACHINE, {}, "none"), Bounds(shown, None), step, glanced=False)
    trial = climb.plan(make_candidate(subject, tuple(catalogue.parse(text))), begun=True)
    climb = climb.add(trial.accept(runs.variant(1, trial.specs), shown))
    after = look_closely(Climber(runs, guard, lines, 0.0, 60.0, by_effect=False), replace(climb, ended="over"))
    assert (after.top.seen_closely is not None, after.ended) == ((True, "over") if holds else (False, None))
    assert [one.outcome for one in after.tries] == ["kept" if holds else "guard"]
    assert ["closer check" in line for line in lines.lines] == ([] if holds else [True])
    assert look_closely(Climber(runs, guard, lines, 0.0, 60.0, by_effect=False), after) is after, "it is checked once"
