"""The climb: what is faster and right is kept, what is not is refused with its reason, alone or in combination."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.checks.presence import require_value
from support.fakes.sleeper import HEAD_MS, Clock, Lines, Planted, Sleeper, entry

from strobe.budget.command import budget
from strobe.core.errors import UserError
from strobe.core.measure.guard import Guards
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.runs import store
from strobe.core.studies.shared.measuring import Options
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import COMPILED
from strobe.ladder import run, runner, settings
from strobe.ladder.answer import build_recipe
from strobe.ladder.candidates import Choice, together
from strobe.ladder.climb import BASELINE
from strobe.ladder.run import optimize
from strobe.ladder.settings import Aim, Climbing, SilentClimb

SKIP = Planted("skip", lambda _: {"vision": 0.0})
SLOW = Planted("slow", lambda _: {"vision": 14.0})
WRONG = Planted("wrong", lambda _: {"vision": 0.0}, lambda chunk, _, __: chunk + torch.tensor([0.5, 0.0]))
ROUGH = replace(WRONG, effect="rounding")  # claims less: what a guard of one's own may allow
TIDY = Planted("tidy", lambda _: {"head": 0.0})


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(settings, "TRY_S", (0.2, 0.4))
    return Clock().wind(monkeypatch)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch):
    def plant_entries(*entries):
        monkeypatch.setattr(catalogue, "own_entries", lambda: entries)

    return plant_entries


@pytest.fixture
def climb(clock):
    return functools.partial(run_climb, clock)


def run_climb(clock, hz: float = 1000.0, iterations: int = 10, reporter: Climbing | None = None, **aim):
    options = Options(SamplingBudget(iterations=iterations, seconds=10.0), batch_size=1, counted=False)
    result, _ = optimize(Sleeper(clock), Aim(target_hz=hz, **{"time_limit": 30.0, **aim}), options, reporter=reporter)
    return result


def outcomes(result):
    return {one.treatment: one.outcome for one in result.ladder.tries}


def test_what_is_faster_and_exact_is_kept_and_told(plant, climb):
    plant(entry(SKIP, "vision"))
    lines = Lines()
    result = climb(hz=150.0, reporter=lines)
    ladder = result.ladder
    assert [rung.treatment for rung in ladder.rungs] == ["", "skip=true"]
    assert [m.name for m in result.measurements] == [BASELINE, "step 1"]
    assert (ladder.met, ladder.chosen, ladder.interleaved) == (True, "step 1", True)
    assert ladder.ended == "the target was reached"
    assert ladder.rungs[1].treatments == [{"skip": True}]
    assert ladder.rungs[0].parts["vision"] > ladder.rungs[0].parts["head"] > ladder.rungs[1].parts["vision"]
    (comparison,) = result.comparisons
    assert comparison.verdict.kind == "faster"
    assert comparison.agreement.cosine == pytest.approx(1)
    assert comparison.agreement.observations == 10
    assert ladder.needs == []
    said = next(line for line in lines.lines if line.startswith("candidate 1"))
    assert "skip=true on vision (6" in said
    assert said.endswith("the same features to the bit → accepted as step 1")
    assert "× as fast [" in said


def test_what_claims_to_be_exact_and_is_not_is_refused(plant, climb):
    plant(entry(WRONG, "vision"))
    (one,) = climb(guards=Guards.parse("cosine>=0.9")).ladder.tries
    assert one.outcome == "guard"
    assert "it is not exact" in one.reason


def test_without_a_yardstick_what_claims_to_be_exact_is_not_judged_and_not_kept(plant, climb, monkeypatch):
    nearly = Planted("nearly", lambda _: {"vision": 0.0}, lambda chunk, _, __: chunk + 1e-7 * chunk)
    plant(entry(nearly, "vision"), entry(SKIP, "vision"))
    monkeypatch.setattr(runner, "features_reordered", lambda *_, **__: None)
    result = climb()
    assert outcomes(result) == {"nearly=true": "not judged", "skip=true": "kept"}
    assert "floating-point noise" in result.ladder.tries[0].reason


def test_episodes_that_nobody_plays_hold_no_limit(plant, climb):
    plant(entry(SKIP, "vision"))
    with pytest.raises(UserError, match=r"success_drop needs episodes"):
        climb(guards=Guards.parse("success_drop<=0.1"))


def test_what_is_faster_but_wrong_is_refused_with_its_cosine(plant, climb):
    plant(entry(ROUGH, "vision", effect="rounding"))
    result = climb()
    (one,) = result.ladder.tries
    assert one.outcome == "guard"
    assert one.reason.startswith("exceeds its limit: cosine 0.9")
    assert one.reason.endswith("limit 0.999")
    assert one.agreement.cosine < 0.999
    assert [rung.name for rung in result.ladder.rungs] == [BASELINE]
    assert build_recipe(result) is None


def test_a_looser_guard_keeps_it_and_another_figure_refuses_it_again(plant, climb):
    plant(entry(ROUGH, "vision", effect="rounding"))
    assert outcomes(climb(guards=Guards.parse("cosine>=0.9")))["wrong=true"] == "kept"
    result = climb(guards=Guards.parse("cosine>=0.9, largest_error<=0.4"))
    assert result.ladder.tries[0].reason == "exceeds its limit: largest error 0.5, limit 0.4"


def test_what_is_slower_is_refused(plant, climb):
    plant(entry(SLOW, "vision"))
    (one,) = climb().ladder.tries
    assert one.outcome == "slower"
    assert one.reason.startswith("slower: 1.")
    assert one.verdict.kind == "slower"


def test_right_alone_and_wrong_together_is_refused(plant, climb):
    def together_wrong(chunk, _, on):
        return -chunk if {"first", "second"} <= on else chunk

    first = Planted("first", lambda _: {"vision": 0.0}, together_wrong)
    second = Planted("second", lambda _: {"head": 0.0})
    plant(entry(first, "vision"), entry(second, "head"))
    result = climb()
    assert outcomes(result) == {"first=true": "kept", "second=true": "guard"}
    assert result.ladder.tries[1].agreement.cosine < 0
    plant(entry(second, "head"))
    assert outcomes(climb()) == {"second=true": "kept"}


def test_two_rungs_are_judged_against_the_first_and_the_one_before(plant, climb):
    plant(entry(TIDY, "head"), entry(SKIP, "vision"))
    result = climb()
    assert [rung.treatment for rung in result.ladder.rungs] == ["", "skip=true", "tidy=true"], "the costly part first"
    assert {(c.baseline, c.candidate) for c in result.comparisons} == {
        (BASELINE, "step 1"),
        (BASELINE, "step 2"),
        ("step 1", "step 2"),
    }
    assert result.ladder.met, "1000 Hz are nothing where nothing is left to do"
    recipe = build_recipe(result)
    assert recipe is not None
    assert recipe.treatments == [{"skip": True}, {"tidy": True}]
    assert require_value(recipe.ms) < require_value(recipe.baseline_ms)
    assert [rung.name for rung in recipe.rungs] == ["skip=true", "tidy=true"]
    assert recipe.agreement.cosine == pytest.approx(1)


def test_exact_comes_before_rounding_and_a_part_before_the_whole(plant, climb):
    nothing = [Planted(name) for name in ("rounds", "whole", "exact", "small")]
    plant(
        entry(nothing[0], "vision", effect="rounding"),
        entry(nothing[1]),
        entry(nothing[2], "vision"),
        entry(nothing[3], "head"),
        entry(Planted("late"), "vision", rank=COMPILED),
    )
    result = climb(time_limit=20.0)
    tried = [one.treatment for one in result.ladder.tries]
    assert tried == ["exact=true", "rounds=true", "whole=true", "small=true", "late=true"]
    late = result.ladder.tries[-1]
    assert late.outcome == "not tried"
    assert "it can take 60 s to build" in late.reason
    assert "all slow to build" in result.ladder.ended


def test_what_showed_no_difference_gets_another_chance_after_a_rung(plant, climb):
    second = Planted("second", lambda subject: {"vision": 1.0} if "first" in subject.on else {})
    first = Planted("first", lambda _: {"head": 0.0})
    plant(entry(first, "head", rank=0), entry(second, "vision"))
    result = climb()
    assert [(one.treatment, one.outcome) for one in result.ladder.tries] == [
        ("second=true", "no difference shown"),
        ("first=true", "kept"),
        ("second=true", "kept"),
    ]
    assert [rung.treatment for rung in result.ladder.rungs] == ["", "first=true", "second=true"]


def test_the_target_stops_the_climb_unless_all_is_asked_for(plant, climb):
    plant(entry(SKIP, "vision"), entry(TIDY, "head"))
    result = climb(hz=150.0)
    assert outcomes(result) == {"skip=true": "kept", "tidy=true": "not tried"}
    assert outcomes(climb(hz=150.0, everything=True)) == {"skip=true": "kept", "tidy=true": "kept"}
    met = climb(hz=10.0)
    assert met.ladder.ended == "the baseline reaches the target"
    assert [m.name for m in met.measurements] == [BASELINE]


def test_the_ladder_does_not_end_on_a_rung_that_its_closing_run_shows_slower(plant, climb):
    closing: list[str] = []

    class Closing(SilentClimb):
        def stage(self, what: str) -> None:
            closing.append(what)

    def tiring(now: Sleeper) -> dict[str, float]:
        done = any(what.startswith("the closing run") for what in closing)
        return {"head": 5.0 if done else 1.0}  # the machine has changed its pace since

    plant(entry(SKIP, "vision"), entry(Planted("tiring", tiring), "head"))
    result = climb(reporter=Closing())
    ladder = result.ladder
    assert ladder.chosen == "step 1"
    assert [rung.treatment for rung in ladder.rungs] == ["", "skip=true"]
    (one,) = [one for one in ladder.tries if one.treatment == "tiring=true"]
    assert one.outcome == "slower"
    assert one.reason.endswith("in the closing run")
    recipe = build_recipe(result)
    assert recipe is not None
    assert recipe.treatments == [{"skip": True}]


def late(share: float, seed: int = 0) -> Planted:
    """A vision that takes 3 ms, and 9 ms in ``share`` of the chunks."""
    draw = random.Random(seed)
    return Planted("late", lambda _: {"vision": 9.0 if draw.random() < share else 3.0})


def test_a_target_is_reached_where_its_chunks_are_in_time_and_the_climb_goes_on_until_they_are(plant, climb):
    plant(entry(late(0.4), "vision"), entry(TIDY, "head"))
    result = climb(hz=1e3 / 8.5)  # with 'late' the median is 7 ms, and two chunks in five take 13
    assert outcomes(result) == {"late=true": "kept", "tidy=true": "kept"}, "a median in time does not end the climb"
    assert result.ladder.in_time.outcome == "missed"
    assert not result.ladder.met
    assert result.measurement(result.ladder.chosen).samples.summary.median < result.ladder.target_ms
    plant(entry(late(0.0), "vision"), entry(TIDY, "head"))
    result = climb(hz=1e3 / 8.5)
    assert outcomes(result) == {"late=true": "kept", "tidy=true": "not tried"}
    assert (result.ladder.met, result.ladder.in_time.outcome) == (True, "reached")
    assert result.ladder.in_time.low >= 0.95
    assert len(result.ladder.alone.values) == result.ladder.in_time.chunks >= 59


def test_what_share_must_be_in_time_is_the_users(plant, climb):
    plant(entry(late(0.2), "vision"))
    assert climb(hz=1e3 / 8.5, in_time=0.5).ladder.met
    assert climb(hz=1e3 / 8.5, in_time=0.95).ladder.in_time.outcome == "missed"


def test_too_few_chunks_are_not_judged(plant, climb, monkeypatch):
    monkeypatch.setattr(settings, "IN_TIME_S", (0.1, 0.1))
    plant(entry(SKIP, "vision"))
    found = climb(hz=150.0).ladder
    assert (found.met, found.in_time.outcome) == (False, "not judged")
    assert found.in_time.needed >= 59
    assert found.alone is None


def test_a_missed_target_says_what_must_shrink_and_what_was_tried(plant, climb):
    plant(entry(SKIP, "vision"), entry(Planted("idle"), "head"))
    result = climb(hz=1e3 / (HEAD_MS / 2))
    assert not result.ladder.met
    (need,) = [need for need in result.ladder.needs if need.part == "head"]
    assert 0 < need.needed_ms < need.ms
    assert "idle=true" in outcomes(result)


def test_the_time_limit_leaves_the_rest_untried_and_keeps_the_run(plant, climb):
    plant(entry(SKIP, "vision", rank=COMPILED))
    result = climb(time_limit=10.0)
    assert outcomes(result) == {"skip=true": "not tried"}
    assert "8 s of the time limit of 10 s were left, too few for another try" in result.ladder.ended
    assert result.ladder.tries[0].reason.endswith("it can save at most 67 % of a chunk")
    assert result.status == "complete"
    assert len(result.measurements[0].samples.values) >= 8


def test_what_does_not_apply_or_fails_costs_nothing_but_itself(plant, climb):
    def refuse():
        raise UserError("it needs a GPU")

    def fail():
        raise RuntimeError("shapes\ndo not fit")

    plant(entry(Planted("needy", on_apply=refuse), "vision"), entry(Planted("broken", on_apply=fail), "vision"),
          entry(SKIP, "vision"))  # fmt: skip
    result = climb()
    reasons = {one.treatment: (one.outcome, one.reason) for one in result.ladder.tries}
    assert reasons["needy=true"] == ("does not apply", "it needs a GPU")
    assert reasons["broken=true"] == ("failed", "RuntimeError: shapes do not fit")
    assert reasons["skip=true"][0] == "kept"


def test_ctrl_c_while_the_policy_as_it_is_is_measured_ends_it(plant, clock):
    plant(entry(SKIP, "vision"))
    sleeper, seen = Sleeper(clock), []

    def press(chunk, index):
        seen.append(index)
        if len(seen) == 6:
            raise KeyboardInterrupt
        return chunk

    sleeper.change = press
    options = Options(SamplingBudget(iterations=10, seconds=10.0), batch_size=1, counted=False)
    result, _ = optimize(sleeper, Aim(target_hz=1000.0, time_limit=30.0), options)
    assert (result.status, result.ladder.ended, result.ladder.tries) == ("interrupted", "interrupted", [])
    assert [m.name for m in result.measurements] == [BASELINE]


def test_ctrl_c_in_a_try_keeps_what_was_climbed(plant, climb):
    def press():
        raise KeyboardInterrupt

    plant(entry(SKIP, "vision"), entry(Planted("pressed", on_apply=press), "head"))
    result = climb()
    assert result.status == "interrupted"
    assert [m.name for m in result.measurements] == [BASELINE, "step 1"]
    assert (result.ladder.ended, result.ladder.interleaved) == ("interrupted", False)
    assert result.comparisons[0].verdict.kind == "faster"
    assert result.comparisons[0].agreement.cosine == pytest.approx(1)
    assert build_recipe(result) is not None
    assert any("interrupted before its closing run" in note for note in result.notes)


def test_ctrl_c_in_the_closing_run_keeps_the_tries(plant, climb):
    class Press(SilentClimb):
        pressed = False

        def stage(self, what: str) -> None:
            self.pressed |= what.startswith("the closing run")

    reporter, calls = Press(), []

    def press():
        if reporter.pressed:
            calls.append(1)
            if len(calls) > 3:
                raise KeyboardInterrupt

    skip = Planted("skip", lambda _: {"vision": 0.0}, on_apply=press)
    plant(entry(skip, "vision"), entry(TIDY, "head"))
    result = climb(reporter=reporter)
    assert result.status == "interrupted"
    assert [m.name for m in result.measurements] == [BASELINE, "step 1", "step 2"]
    assert {c.verdict.pairs == 0 for c in result.comparisons} == {True, False}, "two runs are not paired"


def test_lossy_ones_are_tried_only_where_they_are_allowed_or_named(plant, climb):
    lossy = entry(SKIP, "vision", effect="lossy")
    plant(lossy)
    assert climb().ladder.tries == []
    assert outcomes(climb(choice=Choice(effects=("lossy",)))) == {"skip=true": "kept"}
    assert outcomes(climb(choice=Choice(own=(({"skip": True},),)))) == {"skip=true": "kept"}
    plant(lossy, entry(TIDY, "head"))
    every = ("exact", "rounding", "lossy")
    assert outcomes(climb(choice=Choice(effects=every, only=("tidy",)))) == {"tidy=true": "kept"}
    assert outcomes(climb(choice=Choice(effects=every, skip=("tidy",)))) == {"skip=true": "kept"}


def test_a_start_is_on_from_the_first_rung_and_must_hold_the_guard(plant, climb):
    plant(entry(SKIP, "vision"), entry(WRONG, "vision"))
    result = climb(start=({"skip": True},), choice=Choice(only=("skip",)))
    assert [rung.treatment for rung in result.ladder.rungs] == ["", "skip=true"]
    assert result.ladder.tries == []
    with pytest.raises(UserError, match=r"--start='wrong=true' exceeds the limits: .* it is not exact"):
        climb(start=({"wrong": True},))


def test_a_rung_that_breaks_the_guard_on_more_observations_is_not_chosen(plant, climb):
    late = Planted(
        "late",
        lambda _: {"head": 0.0},
        lambda chunk, index, _: -chunk if index > settings.GUARDED_OBSERVATIONS else chunk,
    )
    plant(entry(SKIP, "vision"), entry(late, "head"))
    result = climb(iterations=settings.GUARDED_OBSERVATIONS + 10)
    assert outcomes(result) == {"skip=true": "kept", "late=true": "kept"}
    assert [rung.guarded for rung in result.ladder.rungs] == [True, True, False]
    assert result.ladder.chosen == "step 1"
    recipe = build_recipe(result)
    assert recipe is not None
    assert recipe.treatments == [{"skip": True}]


def test_the_run_is_kept_read_again_and_has_a_budget(plant, climb, tmp_path):
    plant(entry(SKIP, "vision"))
    result = climb()
    store.save(result, tmp_path / "run")
    assert store.load(tmp_path / "run") == result
    found = budget([tmp_path / "run"], 1000.0, 30.0)
    assert [one.source for one in found.latencies] == ["step 1"], "rungs are not repeats of one another"
    assert next(need for need in found.needs if need.part == "vision").treatments == ["skip=true: kept"]


def test_a_setting_takes_the_place_of_another_value_of_it():
    ten, five = {"policy.num_inference_steps": 10}, {"policy.num_inference_steps": 5}
    vision = {"precision": "bf16", "precision.part": "model.backbone"}
    whole, half = {"precision": "bf16"}, {"precision": "fp16", "precision.part": "model.backbone"}
    assert together([ten, vision], [five]) == (vision, five)
    assert together([vision], [whole]) == (vision, whole)
    assert together([vision, ten], [half]) == (ten, half)
    engines = [{"engine": "openvino", "engine.part": "model.encoder", "engine.precision": p} for p in ("bf16", "fp32")]
    assert together(engines[:1], engines[1:]) == (engines[1],)


def test_another_form_of_what_was_kept_is_not_tried_unless_it_is_the_users_own(plant, climb):
    both = entry(SKIP, "vision")
    forms: Any = [{"skip": "one"}, {"skip": "two"}]
    plant(replace(both, candidates=lambda _: forms), entry(TIDY, "head"))
    assert outcomes(climb()) == {"skip=one": "kept", "tidy=true": "kept"}
    assert "skip=two" in outcomes(climb(choice=Choice(own=(({"skip": "two"},),))))


def test_of_one_part_what_usually_buys_most_is_tried_first(plant, climb):
    planted = [entry(Planted(name), "vision", effect="rounding") for name in ("other", "channels_last")]
    plant(*planted, entry(Planted("exact"), "vision"))
    result = climb(time_limit=20.0)
    assert [one.treatment for one in result.ladder.tries] == ["exact=true", "channels_last=true", "other=true"]


def test_what_can_save_next_to_nothing_is_left_out(plant, climb, monkeypatch):
    monkeypatch.setattr(settings, "MIN_SAVING", 0.4)  # the head is a third of a chunk of 12 ms
    plant(entry(TIDY, "head"))
    result = climb(hz=200.0)
    assert outcomes(result) == {}
    assert "; skipped: 1 that can save at most 33 % of a chunk (--all tries all)" in result.ladder.ended
    assert outcomes(climb(hz=200.0, everything=True)) == {"tidy=true": "kept"}
    assert outcomes(climb(hz=200.0, choice=Choice(own=(({"tidy": True},),)))) == {"tidy=true": "kept"}


def test_what_tells_that_it_saves_next_to_nothing_is_left_out_and_what_saves_little_comes_last(plant, climb):
    plant(replace(entry(SKIP, "vision"), saves=lambda _: 0.01))
    result = climb(hz=170.0)
    assert outcomes(result) == {}
    assert "skipped: 1 that can save at most 1 % of a chunk" in result.ladder.ended
    plant(replace(entry(SKIP, "vision"), saves=lambda _: 0.1), entry(TIDY, "head"))
    assert [one.treatment for one in climb(hz=170.0).ladder.tries] == ["tidy=true", "skip=true"]
    plant(replace(entry(SKIP, "vision"), saves=lambda _: 0.0))
    assert "no treatment remained to try" in climb(hz=170.0, everything=True).ladder.ended, "nothing to be saved"


def test_what_a_closer_check_refuses_is_climbed_past(plant, climb, monkeypatch):
    rounds = Planted("rounds", lambda _: {"vision": 0.0})
    seen = []

    def check_closely(_, state):
        seen.append(state.top.tried.treatment)
        return state.refuse_top("guard", "too far") if {"rounds": True} in state.top.specs else state

    plant(entry(rounds, "vision", effect="rounding"), entry(TIDY, "head"))
    monkeypatch.setattr(run, "look_closely", check_closely)
    ladder = climb().ladder
    assert seen == ["tidy=true", "tidy=true"], "once beside what is refused, and once without it"
    assert [rung.treatment for rung in ladder.rungs] == ["", "tidy=true"]
    assert [(one.treatment, one.outcome) for one in ladder.tries] == [("rounds=true", "guard"), ("tidy=true", "kept")]
    assert ladder.ended.startswith("no treatment remained")
