"""Chunks that take long for the time limit: treatments of one effect climb together, and one run judges them all."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import pytest
import torch
from support.examples.runs import measurement
from support.fakes.sleeper import Clock, Lines, Planted, Sleeper, entry

from strobe.core.errors import UserError
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.studies.shared.measuring import Options
from strobe.core.treatments import catalogue
from strobe.ladder import settings
from strobe.ladder.answer import build_recipe
from strobe.ladder.candidates import Candidate, groups, stack, together
from strobe.ladder.climb import BASELINE
from strobe.ladder.run import optimize
from strobe.ladder.settings import Aim, Climbing

SKIP = Planted("skip", lambda _: {"vision": 1.0})
TIDY = Planted("tidy", lambda _: {"head": 1.0})
HALF = Planted("half", lambda now: {"vision": now.ms["vision"] / 2}, effect="rounding")
PARTS = {"vision": 0.3, "rest": 0.6, "head": 0.1}
NOW = measurement(BASELINE, {"policy": (1.0, {})}, 100.0)


@pytest.fixture
def climb(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(settings, "TRY_S", (0.02, 0.04))
    clock = Clock().wind(monkeypatch)
    return functools.partial(run_climb, monkeypatch, clock)


def run_climb(monkeypatch, clock, *entries, hz: float = 1000.0, reporter: Climbing | None = None, **aim):
    monkeypatch.setattr(catalogue, "own_entries", lambda: entries)
    options = Options(SamplingBudget(seconds=10.0, precision=0.1), batch_size=1, counted=False)
    # A chunk takes 12 ms: a try of one candidate 0.3 s.
    wanted = Aim(target_hz=hz, **{"time_limit": 0.5, **aim})
    result, _ = optimize(Sleeper(clock), wanted, options, reporter=reporter)
    return result


def outcomes(result):
    return {one.treatment: one.outcome for one in result.ladder.tries}


@pytest.mark.parametrize("limit_s", [0.5, 1.8])  # one try of a single candidate fits, and six
def test_those_of_one_effect_are_one_rung_and_all_are_judged_in_one_run(limit_s, climb):
    half = entry(HALF, "vision", effect="rounding")
    ladder = (result := climb(entry(SKIP, "vision"), entry(TIDY, "head"), half, time_limit=limit_s)).ladder
    assert [rung.treatment for rung in ladder.rungs] == ["", "skip=true, tidy=true", "half=true"]
    assert ladder.rungs[2].treatments == [{"skip": True}, {"tidy": True}, {"half": True}]
    assert ladder.interleaved
    assert {c.verdict.kind for c in result.comparisons} == {"faster"}
    assert all(c.verdict.pairs >= 6 for c in result.comparisons)
    assert all(one.verdict is not None for one in ladder.tries[1:])
    assert build_recipe(result).treatments == ladder.rungs[2].treatments
    assert "all groups of treatments were tried" in ladder.ended


PROGRAM, WIDE = (f"engine=true, engine.steps=all, engine.precision={form}" for form in ("bf16", "fp32"))


@pytest.mark.parametrize(
    ("moved", "limit_s", "tried"),
    [
        (0.0, None, {"skip=true": "kept", PROGRAM: "kept"}),
        (0.5, None, {"skip=true": "kept", PROGRAM: "guard", WIDE: "guard", "half=true": "kept"}),
        (0.0, 0.6, {"skip=true": "kept", "half=true": "kept", PROGRAM: "not tried", WIDE: "not tried"}),
    ],
)
def test_one_program_of_all_steps_comes_before_its_group_in_time_of_its_own(moved, limit_s, tried, climb, monkeypatch):
    monkeypatch.setattr("strobe.ladder.candidates.ALL_STEPS_S", 0.7)
    monkeypatch.setattr(settings, "default_time_limit", lambda _: 0.3)
    forms = [dict(part.split("=") for part in text.split(", ")) | {"engine": True} for text in (PROGRAM, WIDE)]
    moving = Planted("engine", lambda _: dict.fromkeys(PARTS, 0.5), lambda chunk, *_: chunk + moved, effect="rounding")
    made = replace(entry(moving, "vision", "head", effect="rounding"), options=("steps", "precision"))
    planted = replace(made, replaces=True, alone=lambda *_: True, candidates=lambda _: forms)
    lines, half = Lines(), entry(HALF, "vision", effect="rounding")
    result = climb(entry(SKIP, "vision"), half, planted, time_limit=limit_s, reporter=lines)
    assert outcomes(result) == tried
    assert any("2 s for the search (--time_limit)" in line for line in lines.lines) == (limit_s is None)


def test_with_time_enough_they_climb_one_by_one(climb):
    result = climb(entry(SKIP, "vision"), entry(TIDY, "head"), time_limit=5.0)
    assert [rung.treatment for rung in result.ladder.rungs] == ["", "skip=true", "tidy=true"]


def test_what_spoils_a_group_is_left_out(climb):
    wrong = Planted("wrong", lambda _: {"head": 0.0}, lambda chunk, _, __: chunk + torch.tensor([0.5, 0.0]))
    result = climb(entry(SKIP, "vision"), entry(wrong, "head"), time_limit=0.8)
    assert outcomes(result) == {"skip=true, wrong=true": "guard", "skip=true": "kept", "wrong=true": "guard"}
    assert build_recipe(result).treatments == [{"skip": True}]


def test_what_cannot_be_put_on_costs_its_group_nothing(climb):
    def refuse():
        raise UserError("takes 9.0 GiB more, and 4.0 GiB are free on this machine")

    def break_down():
        raise RuntimeError("no such kernel")

    lines = Lines()
    large, broken = Planted("large", on_apply=refuse), Planted("broken", on_apply=break_down)
    planted = entry(large, "vision"), entry(SKIP, "vision"), entry(broken, "head"), entry(TIDY, "head")
    result = climb(*planted, reporter=lines)
    assert outcomes(result) == {"large=true": "does not apply", "broken=true": "failed", "skip=true, tidy=true": "kept"}
    told = "large=true: rejected, does not apply: takes 9.0 GiB more, and 4.0 GiB are free on this machine"
    assert told in lines.lines
    assert build_recipe(result).treatments == [{"skip": True}, {"tidy": True}]
    alone = climb(entry(large, "vision"), entry(broken, "head"))
    assert outcomes(alone) == {"large=true": "does not apply", "broken=true": "failed"}
    assert [rung.name for rung in alone.ladder.rungs] == [BASELINE]


def test_another_form_takes_the_place_of_one_that_cannot_be_put_on(climb):
    def refuse():
        raise UserError("too large")  # as a copy of the whole in bfloat16, where one of a part fits

    def make(spec):
        whole = "form.part" not in spec
        return Planted("form", lambda _: {"vision": 1.0}, on_apply=refuse if whole else lambda: None)

    forms = [{"form": True}, {"form": True, "form.part": "vision"}]
    planted = replace(entry(Planted("form")), make=make, options=("part",), candidates=lambda _: forms)
    result = climb(planted, entry(TIDY, "head"))
    assert outcomes(result) == {"form=true": "does not apply", "form=true, form.part=vision, tidy=true": "kept"}


def test_what_may_make_things_slower_is_tried_by_itself(climb):
    slow = Planted("slow", lambda now: {"head": now.ms["head"] + 2.0})
    result = climb(entry(SKIP, "vision"), replace(entry(slow), alone=lambda _, __: True), entry(TIDY, "head"))
    assert outcomes(result) == {"skip=true, tidy=true": "kept", "slow=true": "slower"}


def test_without_a_limit_the_time_grows_with_the_chunk(climb, monkeypatch):
    monkeypatch.setattr(settings, "default_time_limit", lambda _: 0.3)
    lines = Lines()
    result = climb(entry(SKIP, "vision"), time_limit=None, reporter=lines)
    said = "a chunk takes 0.0 s: all treatments of one effect are tried together, in 1 s (--time_limit)"
    assert said in lines.lines
    assert outcomes(result) == {"skip=true": "kept"}


@pytest.mark.parametrize("disturbed", [range(3), [12]])  # at first sight; in the closing run
def test_one_call_that_was_held_up_costs_no_rung(disturbed, climb):
    calls = itertools.count()
    held_up = Planted("held", lambda _: {"vision": 60.0 if next(calls) in disturbed else 1.0})
    result = climb(entry(held_up, "vision"), entry(TIDY, "head"), time_limit=0.8)
    assert outcomes(result) == {"held=true, tidy=true": "kept"}


def test_a_group_that_is_slower_or_no_faster_is_not_kept(climb):
    slow = Planted("slow", lambda now: {"vision": now.ms["vision"] + 2.0}, effect="rounding")
    result = climb(entry(SKIP, "vision"), entry(slow, "vision", effect="rounding"))
    assert outcomes(result)["slow=true"] == "slower"
    same = Planted("same", effect="rounding")
    result = climb(entry(SKIP, "vision"), entry(same, "vision", effect="rounding"))
    (one,) = [one for one in result.ladder.tries if one.treatment == "same=true"]
    assert one.outcome == "no difference shown"
    assert one.verdict.pairs >= 6
    assert [rung.name for rung in result.ladder.rungs] == [m.name for m in result.measurements] == [BASELINE, "step 1"]
    assert [(c.baseline, c.candidate) for c in result.comparisons] == [(BASELINE, "step 1")]


def test_a_start_stays_whatever_it_buys(climb):
    result = climb(entry(Planted("same"), "vision", offered=False), start=({"same": True},))
    assert [rung.treatment for rung in result.ladder.rungs] == ["", "same=true"]
    assert [m.name for m in result.measurements] == [BASELINE, "step 1"]
    assert build_recipe(result) is None


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
    assert [m.name for m in result.measurements] == [BASELINE, "step 1"]
    assert build_recipe(result) is None, "nothing was shown yet"


def test_of_several_forms_the_one_for_the_whole_is_taken_else_one_for_each_part():
    part, whole = {"precision": "bf16", "precision.part": "model.backbone"}, {"precision": "bf16"}
    found = [Candidate((spec,), (), "rounding", 0) for spec in (part, whole, {"attention": "sdpa"})]
    (group,) = groups(found, "rounding", NOW)
    assert group.specs == (whole, {"attention": "sdpa"})
    engines = [
        {"engine": "openvino", "engine.part": part, "engine.precision": precision}
        for part in ("unet", "encoder")
        for precision in ("bf16", "fp32")
    ]
    (group,) = groups([Candidate((spec,), (), "rounding", 0) for spec in engines], "rounding", NOW)
    assert group.specs == (engines[0], engines[2])
    around = {"engine": "openvino", "engine.part": "model"}
    inside = {"engine": "openvino", "engine.part": "model.backbone"}
    (group,) = groups([Candidate((spec,), (), "rounding", 0) for spec in (inside, around)], "rounding", NOW)
    assert group.specs == (around,), "no engine in an engine"
    assert together((inside, {"attention": "sdpa"}), (around,)) == ({"attention": "sdpa"}, around)
    assert together((around,), ({"precision": "bf16"},)) == (around, {"precision": "bf16"})
    steps = [Candidate(({"policy.num_steps": n},), (), "lossy", 0) for n in (5, 3)]
    assert (groups(steps, "lossy", NOW), groups(steps, "exact", NOW)) == (steps, []), "each alone"


def test_an_engine_of_nearly_all_takes_the_place_of_what_else_rounds_in_torch():
    on = ({"masks": "once"}, {"attention": "sdpa"}, {"precision": "bf16"}, {"memory": "kept"})
    engine = {"engine": "openvino", "engine.part": "model.rest"}
    rest, now = Candidate((engine,), ("rest",), "rounding", 0), measurement(BASELINE, {"policy": (1.0, PARTS)}, 100.0)
    assert stack(on, rest, {}, now) == (*on, engine), "torch computes the vision tower"
    eyes = {"engine": "openvino", "engine.part": "model.rest.eyes"}
    engines = {"engine=openvino, engine.part=model.rest.eyes": ("vision",)}
    assert stack((*on, eyes), rest, engines, now) == (eyes, on[0], on[3], engine), "its path alone lies inside"
    assert stack((*on, eyes), Candidate(({"threads": 1},), (), "rounding", 0), engines, now)[:-1] == (*on, eyes)


def test_beside_engines_of_nearly_all_torchs_own_treatments_are_left_out():
    engine = {"engine": "openvino", "engine.part": "model.vision"}
    engines = Candidate((engine,), ("vision",), "rounding", 0, dtypes=("bfloat16",))
    half = Candidate(({"precision": "bf16"},), (), "rounding", 0, of_torch=True, dtypes=("bfloat16",))
    kept = Candidate(({"memory": "kept"},), (), "rounding", 0)
    for vision, specs in (
        (0.95, (engine, {"memory": "kept"})),
        (0.6, (engine, {"precision": "bf16"}, {"memory": "kept"})),
    ):
        now = measurement(BASELINE, {"policy": (1.0, {"vision": vision, "head": 1 - vision})}, 100.0)
        (group,) = groups([engines, half, kept], "rounding", now)
        assert group.specs == specs
        assert group.dtypes == ("bfloat16",)
