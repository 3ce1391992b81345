"""Errors per action dimension, in units of its spread: what a cosine over all numbers cannot see."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strobe.core.measure.agreement import agree, describe_agreement
from strobe.core.measure.guard import Guard, Guards
from strobe.core.results.agreement import ActionScale

OLD = Guard.parse("cosine>=0.999")
ROUNDING = Guards().strictest_guard(["rounding"])
ARM = ActionScale(
    source="a test",
    names=[f"joint_{index}" for index in range(6)] + ["gripper"],
    spread=[30.0] * 6 + [0.5],
    decides=[False] * 6 + [True],
    middle=[0.0] * 6 + [0.5],
    width=[0.0] * 6 + [1.0],
)
PLANE = ActionScale(
    source="a test", names=["x", "y"], spread=[10.0] * 2, decides=[False] * 2, middle=[0.0] * 2, width=[0.0] * 2
)


def arm(count: int = 16) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    chunks = []
    for _ in range(count):
        joints = 60 * torch.randn(1, 50, 6, generator=generator)
        chunks.append(torch.cat([joints, (torch.rand(1, 50, 1, generator=generator) > 0.5).float()], dim=-1))
    return chunks


def change_chunks(chunks: list[torch.Tensor], change) -> list[torch.Tensor]:
    return [change(chunk.clone()) for chunk in chunks]


def test_an_inverted_gripper_a_joint_that_is_off_and_a_dead_policy_pass_a_cosine_and_not_the_guard() -> None:
    def invert(chunk: torch.Tensor) -> torch.Tensor:
        chunk[..., 6] = 1 - chunk[..., 6]
        return chunk

    def offset_joint(chunk: torch.Tensor) -> torch.Tensor:
        chunk[..., 0] += 2.0
        return chunk

    before = arm()
    inverted = agree(before, change_chunks(before, invert), ARM)
    assert OLD.judge(inverted).outcome == "held"
    assert inverted.flips == 1
    assert inverted.worst_dimension == "gripper"
    assert "RMS 2 σ" in (ROUNDING.judge(inverted).words or "")
    assert "100 % of decisions flip" in describe_agreement(inverted)
    moved = agree(before, change_chunks(before, offset_joint), ARM)
    assert OLD.judge(moved).outcome == "held"
    assert moved.flips == 0
    assert moved.dimensions[0].offset == pytest.approx(2 / 30, rel=1e-4)
    assert ROUNDING.judge(moved).words == "RMS 0.067 σ, limit 0.02 σ"
    table = [500 + 10 * torch.randn(1, 50, 2) for _ in range(16)]
    dead = agree(table, [torch.full((1, 50, 2), 500.0)] * 16, PLANE)
    assert OLD.judge(dead).words is None or dead.cosine > 0.9995
    assert ROUNDING.judge(dead).words.startswith("RMS")


def test_the_executed_actions_are_told_apart_and_the_error_along_the_chunk() -> None:
    before = arm(2)

    def late(chunk: torch.Tensor) -> torch.Tensor:
        chunk[:, 40:, 3] += 15
        return chunk

    seen = agree(before, change_chunks(before, late), ARM, executed=10, calls=["first", "second"])
    assert (seen.executed, seen.executed_rms, seen.executed_worst) == (10, 0, 0)
    assert seen.worst == pytest.approx(0.5, rel=1e-4)
    assert seen.dimensions[3].along[:40] == [0.0] * 40
    assert seen.dimensions[3].along[40:] == pytest.approx([0.5] * 10, rel=1e-4)
    assert seen.worst_at.startswith("first, action 4")
    assert agree(before, before, ARM, executed=500).executed == 50


def test_a_decision_in_the_middle_is_none_and_one_beside_it_flips() -> None:
    before = [torch.full((1, 4, 7), 0.51)]
    assert agree(before, change_chunks(before, lambda chunk: chunk - 0.02), ARM).flips is None, "0.51 was no decision"
    clear = [torch.full((1, 4, 7), 0.56)]
    assert agree(clear, change_chunks(clear, lambda chunk: chunk - 0.02), ARM).flips == 0, "it stays on its side"
    assert agree(clear, change_chunks(clear, lambda chunk: chunk - 0.1), ARM).flips == 1


def test_what_is_not_finite_is_counted_and_never_held() -> None:
    before = arm(3)
    broken = change_chunks(before, lambda chunk: chunk)
    broken[1][0, 0, 0], broken[2][0, 1, 1] = float("nan"), float("inf")
    seen = agree(before, broken, ARM)
    assert seen.not_finite == 2
    assert seen.cosine == 0
    assert ROUNDING.judge(seen).words == "2 numbers are infinite or not a number"
    assert Guard.parse("exact").judge(seen).words == "2 numbers are infinite or not a number"


@given(
    errors=st.lists(st.floats(-5, 5), min_size=7, max_size=7),
    spread=st.lists(st.floats(0.01, 100), min_size=7, max_size=7),
)
def test_a_constant_error_is_its_own_rms_worst_and_offset(errors: list[float], spread: list[float]) -> None:
    scale = ARM.model_copy(update={"spread": spread})
    before = [torch.zeros(1, 5, 7)] * 2
    by = torch.tensor(errors, dtype=torch.float64)
    seen = agree(before, [chunk + by * torch.tensor(spread, dtype=torch.float64) for chunk in before], scale)
    for error, one in zip(errors, seen.dimensions, strict=True):
        assert one.rms == pytest.approx(abs(error), abs=1e-6)
        assert one.worst == pytest.approx(abs(error), abs=1e-6)
        assert one.p99 == pytest.approx(abs(error), abs=1e-6)
        assert one.offset == pytest.approx(error, abs=1e-6)
    assert seen.rms == max(one.rms for one in seen.dimensions)
    assert seen.worst == max(one.worst for one in seen.dimensions)


def test_a_spread_of_other_dimensions_is_refused() -> None:
    with pytest.raises(ValueError, match="the spread has 7 dimensions, the actions 2"):
        agree([torch.zeros(1, 5, 2)], [torch.zeros(1, 5, 2)], ARM)
