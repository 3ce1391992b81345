"""Chunks that take long for the time limit: treatments of one effect climb together, and one run judges them all."""

from __future__ import annotations

import functools

import pytest
import torch
from support.sleeper import Clock, Planted, Sleeper, entry

from strobe.measure.sampling import SamplingBudget
from strobe.studies.measuring import Options
from strobe.studies.optimize import limits
from strobe.studies.optimize.aim import Aim, Climbing
from strobe.studies.optimize.candidates import Candidate, groups
from strobe.studies.optimize.ladder import AS_IT_IS, recipe_of
from strobe.studies.optimize.optimize import optimize
from strobe.treatments import catalogue

SKIP = Planted("skip", lambda _: {"vision": 1.0})
TIDY = Planted("tidy", lambda _: {"head": 1.0})
HALF = Planted("half", lambda now: {"vision": now.ms["vision"] / 2}, effect="rounding")


@pytest.fixture
def climb(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "TRY_S", (0.02, 0.04))
    clock = Clock().wind(monkeypatch)
    return functools.partial(climbed, monkeypatch, clock)


def climbed(monkeypatch, clock, *entries, hz: float = 1000.0, reporter: Climbing | None = None, **aim):
    monkeypatch.setattr(catalogue, "ENTRIES", entries)
    options = Options(SamplingBudget(iterations=10, seconds=10.0), batch_size=1, counted=False)
    # A chunk takes 12 ms: a try of one candidate 0.3 s.
    wanted = Aim(target_hz=hz, **{"time_limit": 0.5, **aim})
    result, _ = optimize(Sleeper(clock), wanted, options, reporter=reporter)
    return result


def outcomes(result):
    return {one.treatment: one.outcome for one in result.ladder.tries}


def test_those_of_one_effect_are_one_rung_and_all_are_judged_in_one_run(climb):
    result = climb(entry(SKIP, "vision"), entry(TIDY, "head"), entry(HALF, "vision", effect="rounding"))
    ladder = result.ladder
    assert [rung.treatment for rung in ladder.rungs] == ["", "skip=true, tidy=true", "half=true"]
    assert ladder.rungs[2].treatments == [{"skip": True}, {"tidy": True}, {"half": True}]
    assert ladder.interleaved
    assert {c.verdict.kind for c in result.comparisons} == {"faster"}
    assert all(c.verdict.pairs >= 6 for c in result.comparisons)
    assert all(one.verdict is not None for one in ladder.tries[1:])
    assert recipe_of(result).treatments == ladder.rungs[2].treatments
    assert "nothing was left to try together" in ladder.ended


def test_with_time_enough_they_climb_one_by_one(climb):
    result = climb(entry(SKIP, "vision"), entry(TIDY, "head"), time_limit=5.0)
    assert [rung.treatment for rung in result.ladder.rungs] == ["", "skip=true", "tidy=true"]


def test_what_spoils_a_group_is_left_out(climb):
    wrong = Planted("wrong", lambda _: {"head": 0.0}, lambda chunk, _, __: chunk + torch.tensor([0.5, 0.0]))
    result = climb(entry(SKIP, "vision"), entry(wrong, "head"), time_limit=0.8)
    assert outcomes(result) == {"skip=true, wrong=true": "guard", "skip=true": "kept", "wrong=true": "guard"}
    assert recipe_of(result).treatments == [{"skip": True}]


def test_a_group_that_is_slower_or_no_faster_is_not_kept(climb):
    slow = Planted("slow", lambda now: {"vision": now.ms["vision"] + 2.0}, effect="rounding")
    result = climb(entry(SKIP, "vision"), entry(slow, "vision", effect="rounding"))
    assert outcomes(result)["slow=true"] == "slower"
    same = Planted("same", effect="rounding")
    result = climb(entry(SKIP, "vision"), entry(same, "vision", effect="rounding"))
    (one,) = [one for one in result.ladder.tries if one.treatment == "same=true"]
    assert one.outcome == "no difference shown"
    assert one.verdict.pairs >= 6
    assert [rung.name for rung in result.ladder.rungs] == [AS_IT_IS, "rung 1"]
    assert [m.name for m in result.measurements] == [AS_IT_IS, "rung 1"]
    assert [(c.baseline, c.candidate) for c in result.comparisons] == [(AS_IT_IS, "rung 1")]


def test_a_start_stays_whatever_it_buys(climb):
    result = climb(entry(Planted("same"), "vision", offered=False), start=({"same": True},))
    assert [rung.treatment for rung in result.ladder.rungs] == ["", "same=true"]
    assert [m.name for m in result.measurements] == [AS_IT_IS, "rung 1"]
    assert recipe_of(result) is None


def test_it_ends_where_the_target_is_reached(climb):
    result = climb(entry(SKIP, "vision"), entry(HALF, "vision", effect="rounding"), hz=150.0)
    assert outcomes(result) == {"skip=true": "kept", "half=true": "not tried"}
    assert (result.ladder.met, result.ladder.ended) == (True, "the target was reached")


def test_ctrl_c_keeps_what_was_put_on(climb):
    def press():
        raise KeyboardInterrupt

    pressed = Planted("pressed", on_apply=press, effect="rounding")
    result = climb(entry(SKIP, "vision"), entry(pressed, "vision", effect="rounding"))
    assert result.status == "interrupted"
    assert [m.name for m in result.measurements] == [AS_IT_IS, "rung 1"]
    assert recipe_of(result) is None, "nothing was shown yet"


def test_of_several_forms_the_one_for_the_whole_is_taken_else_one_for_each_part():
    part, whole = {"precision": "bf16", "precision.part": "model.backbone"}, {"precision": "bf16"}
    found = [Candidate((spec,), (), "rounding", 0) for spec in (part, whole, {"attention": "sdpa"})]
    (group,) = groups(found, "rounding")
    assert group.specs == (whole, {"attention": "sdpa"})
    engines = [
        {"engine": "openvino", "engine.part": part, "engine.precision": precision}
        for part in ("unet", "encoder")
        for precision in ("bf16", "fp32")
    ]
    (group,) = groups([Candidate((spec,), (), "rounding", 0) for spec in engines], "rounding")
    assert group.specs == (engines[0], engines[2])
    steps = [Candidate(({"policy.num_steps": n},), (), "lossy", 0) for n in (5, 3)]
    assert groups(steps, "lossy") == steps, "each alone: together they would surely be wrong"
    assert groups(steps, "exact") == []
