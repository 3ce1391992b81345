"""A check of sameness on real tiny policies: it sees what is wrong, where, and leaves alone what is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.builders.tiny_policies import load_tiny_subject
from support.suite.matrix import matrix

from strobe.core.measure.guard import Guards
from strobe.core.sameness.check import PolicyCallError, Sameness, affordable
from strobe.core.sameness.visits import describe, plan
from strobe.core.subjects.subject import Subject
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.treatment import Effect, Treatment, Undo, Variant
from strobe.lerobot.config_fields import require_policy
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.flow.prefix_inputs import TrimmedPadding

EXACT = Guards().strictest_guard(["exact"])
ROUNDING = Guards().strictest_guard(["rounding"])


@dataclass
class Fault(Treatment):
    """Changes each chunk, given how many calls there were and which was the first chunk."""

    change: Callable[[torch.Tensor, dict[str, Any]], torch.Tensor]
    effect: Effect = "rounding"
    kept: dict[str, Any] = field(default_factory=dict)

    def apply(self, subject: Subject) -> Undo:
        loaded, patches = require_policy(subject).loaded, Patches()
        made = loaded.postprocessor

        def call(actions: torch.Tensor) -> torch.Tensor:
            chunk = made(actions).clone()
            self.kept.setdefault("first", chunk.clone())
            self.kept["calls"] = self.kept.get("calls", 0) + 1
            return self.change(chunk, self.kept)

        patches.put(loaded, "postprocessor", call)
        return patches.undo


@cache
def tiny(kind: str) -> PolicySubject:
    steps = {"pi05": ["--num_inference_steps=2"], "smolvla": ["--num_steps=2"]}.get(kind, [])
    return load_tiny_subject(kind, *steps)


@cache
def same(kind: str, count: int = 4) -> Sameness:
    return Sameness(tiny(kind), count=count)


def run_check(kind: str, change: Callable[[torch.Tensor, dict[str, Any]], torch.Tensor], passes: int = 1):
    one = same(kind)
    return one.check(Variant("fault", (Fault(change),)), plan(one.count, rtc=one.rtc, passes=passes))


def test_observations_differ_in_prompt_cameras_and_state() -> None:
    checks = tiny("pi05").checks(16)
    assert len(checks.observations) == 16
    assert len({one["task"] for one in checks.observations}) == 5
    assert len({len(one["task"].split()) for one in checks.observations}) >= 4
    assert len({tuple(one["observation.state"].flatten().tolist()) for one in checks.observations}) == 16
    assert sum("observation.images.wrist" not in one for one in checks.observations) == 2
    for one, near in zip(checks.observations, checks.neighbours, strict=True):
        assert one.keys() == near.keys()
        assert one["task"] == near["task"]
        assert not torch.equal(one["observation.state"], near["observation.state"])
    assert checks.same_shape == [0, 4, 6]


def test_a_policy_without_words_keeps_its_prompt_and_its_cameras() -> None:
    checks = tiny("act").checks(16)
    assert len({one["task"] for one in checks.observations}) == 1
    assert all("observation.images.wrist" in one for one in checks.observations)


@pytest.mark.parametrize("kind", matrix(["pi05", "act", "smolvla"], keep=2))
def test_the_untouched_policy_is_the_same_as_itself_to_the_bit(kind: str) -> None:
    agreement = same(kind).check(Variant("baseline"), plan(4, rtc=same(kind).rtc))
    assert agreement.worst == 0
    assert agreement.rms == 0
    assert agreement.cosine == pytest.approx(1)
    assert ("with RTC" in agreement.how) == (kind != "act")


def test_a_robot_at_rest_shows_nothing() -> None:
    one = Sameness(tiny("act"), count=4)
    one.checks.observations[:] = [one.checks.observations[0]] * 4
    agreement = one.check(Variant("baseline"), plan(4, rtc=False))
    assert agreement.distinct == 1
    judged = EXACT.judge(agreement)
    assert judged.outcome == "not judged"
    assert "all 4 observations are one" in (judged.words or "")


def test_an_exact_treatment_is_within_what_reordered_sums_do_and_bf16_is_not() -> None:
    one = same("pi05")
    reordered = one.yardstick("reordered sums", 4)
    assert reordered is not None
    assert 0 < reordered.rms < 1e-4
    visits = plan(one.count, rtc=one.rtc)
    trimmed = one.check(Variant("trimmed", (TrimmedPadding(),)), visits)
    assert EXACT.judge(trimmed, reordered).words is None
    from strobe.core.treatments import catalogue

    half = one.check(Variant("half", (catalogue.make({"precision": "bf16"}),)), visits)
    assert "it is not exact" in (EXACT.judge(half, reordered).words or "")
    assert ROUNDING.judge(half, reordered).words is None


def test_yardsticks_are_in_their_order_and_a_policy_without_noise_has_none_of_noise() -> None:
    found = {name: same("pi05").yardstick(name, 4) for name in ("reordered sums", "another noise draw")}
    near, other = (same("pi05").yardstick(name, 4) for name in ("neighbouring frame", "another observation"))
    assert near is not None
    assert other is not None
    assert found["reordered sums"].rms < near.rms < other.rms < found["another noise draw"].rms
    assert same("act").yardstick("another noise draw", 4) is None


def test_the_worst_is_found_by_name_call_and_place() -> None:
    def wrong(chunk: torch.Tensor, kept: dict[str, Any]) -> torch.Tensor:
        if kept["calls"] == 3:
            chunk[0, 7, 2] += 50.0
        return chunk

    agreement = run_check("act", wrong)
    assert agreement.worst_dimension == "joint_2"
    assert agreement.worst_at == "observation 1 again, action 8 of 100"
    assert agreement.worst == pytest.approx(50 / agreement.dimensions[2].spread, rel=1e-3)
    assert agreement.executed == 100
    along = agreement.dimensions[2].along
    assert along.index(max(along)) == 7


def test_a_joint_that_is_always_off_and_a_chunk_that_never_changes_are_refused() -> None:
    off = run_check("act", lambda chunk, _: chunk + 3.0)
    assert ROUNDING.judge(off).words.startswith("RMS 0.052 σ, limit 0.02 σ")
    assert off.dimensions[0].offset == pytest.approx(3 / off.dimensions[0].spread, rel=1e-3)
    dead = run_check("act", lambda _, kept: kept["first"])
    assert ROUNDING.judge(dead).words


def test_a_fault_in_one_of_twenty_calls_is_met() -> None:
    rare = run_check("act", lambda chunk, kept: chunk + 30.0 if kept["calls"] % 20 == 0 else chunk, passes=3)
    assert "max error" in (ROUNDING.judge(rare).words or "") or "RMS" in (ROUNDING.judge(rare).words or "")


def test_numbers_that_are_none_and_a_call_that_fails_are_told() -> None:
    def spoil_chunk(chunk: torch.Tensor, _: Any) -> torch.Tensor:
        chunk[0, 0, 0] = float("nan")
        return chunk

    agreement = run_check("act", spoil_chunk)
    assert agreement.not_finite == 8
    assert ROUNDING.judge(agreement).words == "8 numbers are infinite or not a number"

    def breaks(chunk: torch.Tensor, kept: dict[str, Any]) -> torch.Tensor:
        if kept["calls"] == 3:
            raise RuntimeError("the cache\nis gone")
        return chunk

    with pytest.raises(PolicyCallError, match=r"the call fails \(observation 1 again\): the cache is gone"):
        run_check("act", breaks)
    with pytest.raises(PolicyCallError, match=r"a chunk of \(1, 99, 6\), and \(1, 100, 6\) without"):
        run_check("act", lambda chunk, _: chunk[:, 1:])
    assert run_check("act", lambda chunk, _: chunk).worst == 0, "a check that failed leaves nothing on the policy"


def test_what_can_be_afforded() -> None:
    assert affordable(10, 0.001) == 16
    assert affordable(10, 0.1) == 14
    assert affordable(10, 60) == 4


@given(count=st.integers(1, 40), rtc=st.booleans(), passes=st.integers(1, 3))
def test_every_observation_is_seen_and_all_but_the_last_are_returned_to(count: int, rtc: bool, passes: int) -> None:
    visits = plan(count, rtc=rtc, passes=passes)
    plain = [visit.observation for visit in visits if not (visit.rtc or visit.isolated)]
    assert set(plain) == set(range(count))
    for pair in range(count - 1):
        assert plain[2 * pair + 2] == pair, "A B A: an earlier observation comes after a newer one"
        assert plain[2 * pair + 1] == pair + 1
    assert any(visit.reset for visit in visits)
    assert any(visit.isolated for visit in visits)
    assert any(visit.rtc for visit in visits) == rtc
    assert all(0 <= visit.observation < count for visit in visits)


def test_a_call_without_rtc_follows_each_call_with_it() -> None:
    visits = plan(16, rtc=True)
    guided = [index for index, visit in enumerate(visits) if visit.rtc]
    assert len(guided) == 4
    for index in guided:
        assert not visits[index + 1].rtc
        assert visits[index + 1].observation != visits[index].observation


def test_it_is_told_in_a_line() -> None:
    assert describe(plan(16, rtc=True)) == (
        "43 calls on 16 observations: 15 on returning to an earlier one, 4 with RTC, 4 with the treatments applied for "
        "the call alone"
    )
