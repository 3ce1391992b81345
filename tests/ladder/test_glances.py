"""Tries of chunks that take long begin with glances at few pairs; the closing run judges what those liked."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.fakes.sleeper import Clock, Lines, Planted, Sleeper, entry
from torch import Tensor

from strobe.core.measure.sampling import SamplingBudget
from strobe.core.studies.shared.measuring import Options
from strobe.core.subjects.subject import ITERATION, Phase
from strobe.core.timeline import section
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import PROCESS
from strobe.ladder import settings
from strobe.ladder.answer import build_recipe
from strobe.ladder.results import OptimizeResult
from strobe.ladder.run import optimize
from strobe.ladder.sequential import Glance, Looks
from strobe.ladder.settings import Aim

SKIP = Planted("skip", lambda _: {"vision": 1.0})
TIDY = Planted("tidy", lambda _: {"head": 1.0})
IDLE = Planted("idle")


@pytest.fixture
def climb(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(settings, "TRY_S", (0.2, 0.4))
    monkeypatch.setattr(settings, "GLANCE_FROM_S", 0.03)  # a chunk takes 12 ms: a try 0.3 s
    return functools.partial(run_climb, monkeypatch, Clock().wind(monkeypatch))


def run_climb(
    monkeypatch, clock, *entries, lines: Lines | None = None, kind=Sleeper, **aim
) -> tuple[OptimizeResult, float]:
    monkeypatch.setattr(catalogue, "own_entries", lambda: entries)
    options = Options(SamplingBudget(iterations=10, seconds=10.0), batch_size=1, counted=False)
    began = clock.now
    wanted = Aim(**{"target_hz": 1000.0, "time_limit": 30.0, **aim})
    result, _ = optimize(kind(clock), wanted, options, reporter=lines)
    return result, clock.now - began


def outcomes(result):
    return {one.treatment: one.outcome for one in result.ladder.tries}


def test_a_clear_gain_takes_two_pairs_and_the_closing_run_judges_it(climb, monkeypatch):
    lines = Lines()
    planted = entry(SKIP, "vision"), entry(TIDY, "head"), entry(IDLE, "head")
    result, took = climb(*planted, lines=lines)
    assert outcomes(result) == {"skip=true": "kept", "tidy=true": "kept", "idle=true": "no difference shown"}
    (said,) = [line for line in lines.lines if line.startswith("candidate 1: skip=true")]
    assert "× as fast in 2 pairs" in said
    assert {c.verdict.kind for c in result.comparisons} == {"faster"}
    assert all(c.verdict.pairs >= settings.CLOSING_MIN_PAIRS for c in result.comparisons)
    assert [one.verdict.kind for one in result.ladder.tries if one.outcome == "kept"] == ["faster", "faster"]
    (idle,) = [one for one in result.ladder.tries if one.treatment == "idle=true"]
    assert idle.reason.startswith("saves less than 3 %: 1.0")
    assert 0 <= idle.most_gain < 0.03
    assert build_recipe(result) is not None
    monkeypatch.setattr(settings, "GLANCE_FROM_S", 10.0)
    thorough, took_thoroughly = climb(*planted)
    assert outcomes(thorough) == outcomes(result)
    assert took < 0.6 * took_thoroughly


def judge_glance(*ratios: float) -> tuple[str | None, int]:
    """Return the judgement of a glance on pairs with these ratios of times, and the number of pairs it took."""
    glance = Glance(Looks("before", "after"))
    for pairs in range(1, len(ratios) + 1):
        if glance.due(pairs):
            after = np.array(ratios[:pairs])
            if glance.look({"before": np.ones(pairs), "after": after}):
                break
    return glance.seen, glance.pairs


def test_six_pairs_deny_a_gain_and_fewer_never_do():
    assert judge_glance(0.99, 1.01, 1.0, 0.99, 1.02) == (None, 4)
    assert judge_glance(0.99, 1.01, 1.0, 0.99, 1.02, 0.98) == ("no gain", 6)
    assert judge_glance(0.99, 1.01, 1.0, 0.99, 1.02, 0.96) == (None, 6)  # a gain of 4 % is not excluded
    assert judge_glance(1.12, 1.30) == ("a clear loss", 2)


def test_four_pairs_tell_what_two_cannot_and_one_spike_does_not():
    assert judge_glance(0.95, 0.80, 0.84, 0.86) == ("a clear gain", 4)
    assert judge_glance(0.95, 0.95, 0.20, 0.95) == (None, 4)  # a spike of the one before
    assert judge_glance(0.80, 2.00, 0.80, 0.85) == ("a clear gain", 4)  # a spike of the one after
    assert judge_glance(0.89, 0.88) == ("a clear gain", 2)


def test_what_glances_cannot_tell_gets_a_whole_try(climb):
    lines = Lines()
    little = Planted("little", lambda now: {"vision": now.ms["vision"] - 0.6})
    result, _ = climb(entry(little, "vision"), lines=lines)
    (one,) = result.ladder.tries
    assert (one.outcome, one.verdict.kind) == ("kept", "faster")
    assert [line for line in lines.lines if re.search(r"1\.0[56] × as fast \[", line)]


def test_what_the_closing_run_does_not_show_is_taken_off_again(climb):
    calls: list[None] = []

    def tiring(now: Sleeper) -> dict[str, float]:
        calls.append(None)
        return {"head": 1.0 if len(calls) <= 5 else now.ms["head"]}

    result, _ = climb(entry(SKIP, "vision"), entry(Planted("tiring", tiring), "head"))
    assert outcomes(result) == {"skip=true": "kept", "tiring=true": "no difference shown"}
    assert [rung.treatment for rung in result.ladder.rungs] == ["", "skip=true"]
    assert [m.name for m in result.measurements] == ["baseline", "step 1"]


def test_what_is_wrong_is_refused_at_a_glance_too(climb):
    wrong = Planted("wrong", lambda _: {"vision": 0.0}, lambda chunk, _, __: chunk + torch.tensor([0.5, 0.0]))
    result, _ = climb(entry(wrong, "vision"))
    assert outcomes(result) == {"wrong=true": "guard"}


def test_a_policy_near_its_target_is_measured_well_first(climb):
    result, _ = climb(entry(SKIP, "vision"), target_hz=80.0)  # 12.5 ms, and the policy takes 12
    assert result.ladder.ended == "the baseline reaches the target"
    assert result.measurements[0].samples.summary.n >= settings.CLOSING_MIN_PAIRS


def test_what_a_kept_treatment_computes_by_itself_is_left_alone(climb):
    engine = replace(entry(SKIP, "vision"), replaces=True)
    inside, whole = Planted("inside", lambda _: {"vision": 0.1}), Planted("whole", lambda _: {"head": 1.0})
    result, _ = climb(engine, entry(inside, "vision"), entry(whole))
    assert outcomes(result) == {"skip=true": "kept", "whole=true": "kept"}
    result, _ = climb(entry(SKIP, "vision"), entry(inside, "vision"), entry(whole))
    assert outcomes(result) == {"skip=true": "kept", "inside=true": "kept", "whole=true": "kept"}


class InOneEngine(Sleeper):
    """Shows no parts while the treatment 'engined' is on."""

    def call(self, phase: Phase, batch_size: int = 1) -> Callable[[int], Any]:
        with_parts = super().call(phase, batch_size)

        def run(index: int) -> Tensor:
            if "engined" not in self.on:
                return with_parts(index)
            with section(ITERATION), section("policy"):
                self.clock.sleep(sum(self.ms.values()) / 1e3)
            return self.change(torch.randn(1, 5, 2, generator=torch.Generator().manual_seed(index)), index)

        return run


def test_an_engine_of_all_parts_leaves_nothing_to_what_changes_how_torch_computes(climb):
    """The engine is one part with a name of its own, which takes most of the time."""
    planted = Planted("engined", lambda _: {"vision": 4.0, "head": 2.0})
    engine = replace(entry(planted, "vision", "head"), replaces=True)
    idle = replace(entry(Planted("idle"), rank=PROCESS), of_torch=True)
    result, _ = climb(engine, idle, kind=InOneEngine)
    assert outcomes(result) == {"engined=true": "kept"}
    assert "1 that can save" in result.ladder.ended


def test_what_changes_how_torch_computes_is_left_out_where_an_engine_computes_most(climb, monkeypatch):
    monkeypatch.setattr(settings, "MIN_SAVING", 0.6)
    engine = replace(entry(Planted("engined", lambda _: {"vision": 4.0}), "vision"), replaces=True)
    fewer = entry(Planted("fewer", lambda _: {"head": 3.0}), rank=PROCESS)
    result, _ = climb(engine, replace(fewer, of_torch=True))
    assert outcomes(result) == {"engined=true": "kept"}
    assert "1 that can save" in result.ladder.ended
    result, _ = climb(engine, fewer)
    assert outcomes(result) == {"engined=true": "kept", "fewer=true": "kept"}


def test_what_saves_little_of_its_part_is_left_out_where_the_target_is_far(climb, monkeypatch):
    monkeypatch.setattr(settings, "MIN_SAVING", 0.3)
    half = Planted("half", lambda now: {"vision": now.ms["vision"] / 2})
    result, _ = climb(replace(entry(half, "vision"), of_parts=0.2))
    assert outcomes(result) == {}
    assert "1 that can save" in result.ladder.ended
    result, _ = climb(entry(half, "vision"))
    assert outcomes(result) == {"half=true": "kept"}
