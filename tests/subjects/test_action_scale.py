"""The spread of a policy's actions: where it is from, and which dimensions decide."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from strobe.subjects.action_scale import MEASURED, OWN, scale_of
from strobe.subjects.loading import load_subject

ACTION = "action"


def post(stats: dict[str, Any] | None) -> Any:
    return SimpleNamespace(steps=[SimpleNamespace(stats={ACTION: stats} if stats else {})])


def two_valued(low: float, high: float, share: float) -> dict[str, float]:
    mean = low + share * (high - low)
    return {"min": low, "max": high, "mean": mean, "std": (high - low) * (share * (1 - share)) ** 0.5}


def stats(*dimensions: dict[str, float]) -> dict[str, list[float]]:
    return {key: [one[key] for one in dimensions] for key in ("min", "max", "mean", "std")}


JOINT = {"min": -90.0, "max": 90.0, "mean": 3.0, "std": 25.0}


def test_the_policys_own_statistics_come_first_then_the_inputs_then_its_actions() -> None:
    own, data = stats(JOINT, JOINT), {ACTION: stats({**JOINT, "std": 9.0}, JOINT)}
    found = scale_of(post(own), data, None, "20 frames")
    assert (found.source, found.spread) == (OWN, [25.0, 25.0])
    found = scale_of(post(None), data, ["pan", "lift"], "20 frames")
    assert found.source == "the statistics of 20 frames"
    assert (found.names, found.spread) == (["pan", "lift"], [9.0, 25.0])
    chunks = [torch.tensor([[[0.0, 1.0], [2.0, 1.5]]])]
    found = scale_of(post(None), {}, None, "nothing", chunks)
    assert found.source == MEASURED
    assert found.spread == pytest.approx([1.0, 0.25])
    assert found.names == ["action 0", "action 1"]
    assert scale_of(post(None), {}, None, "nothing") is None


@pytest.mark.parametrize(("low", "high", "share"), [(0, 1, 0.4), (-1, 1, 0.5), (0, 100, 0.02)])
def test_a_dimension_that_only_ever_is_at_its_ends_decides(low: float, high: float, share: float) -> None:
    found = scale_of(post(stats(JOINT, two_valued(low, high, share))), {}, None, "")
    assert found.decides == [False, True]
    assert (found.middle[1], found.width[1]) == ((low + high) / 2, high - low)


def test_a_gripper_that_closes_slowly_decides_by_its_name() -> None:
    slow = {"min": 0.0, "max": 100.0, "mean": 40.0, "std": 20.0}
    assert scale_of(post(stats(JOINT, slow)), {}, ["pan.pos", "gripper.pos"], "").decides == [False, True]
    assert scale_of(post(stats(JOINT, slow)), {}, None, "").decides == [False, False]


def test_statistics_without_a_standard_deviation_give_one() -> None:
    own = {"min": [0.0], "max": [12**0.5]}
    assert scale_of(post(own), {}, None, "").spread == pytest.approx([1.0])
    assert scale_of(post({"q01": [0.0], "q99": [2 * 12**0.5]}), {}, None, "").spread == pytest.approx([2.0])


def test_a_dimension_that_does_not_move_takes_the_middle_spread_of_the_others() -> None:
    still = {**JOINT, "std": 0.0}
    found = scale_of(post(stats(JOINT, still, {**JOINT, "std": 35.0})), {}, ["a", "b", "c"], "")
    assert found.spread == [25.0, 25.0, 35.0]
    assert "b does not move in them" in found.source


def test_a_real_policy_has_the_statistics_that_it_unnormalises_with() -> None:
    subject = load_subject(policy_type="act", size="tiny", overrides=["--device=cpu"])
    scale = subject.scale()
    assert scale.source == OWN
    assert scale.names == [f"joint_{index}" for index in range(6)]
    assert scale.spread == pytest.approx([200 / 12**0.5] * 6)
