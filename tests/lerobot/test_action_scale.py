"""The spread of a policy's actions: where it is from, and which dimensions decide."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lerobot.configs import FeatureType, NormalizationMode, PolicyFeature
from lerobot.processor import PolicyProcessorPipeline, UnnormalizerProcessorStep
from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action
from support.builders.tiny_policies import load_tiny_subject
from torch import Tensor

from strobe.core.measure.agreement import agree
from strobe.core.measure.guard import Guards
from strobe.lerobot.policies.action_scale import MEASURED, OWN, measure_action_scale

ACTION = "action"
ROUNDING = Guards().strictest_guard(["rounding"])
INF, NAN = float("inf"), float("nan")


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
    found = measure_action_scale(post(own), data, None, "20 frames")
    assert (found.source, found.spread) == (OWN, [25.0, 25.0])
    found = measure_action_scale(post(None), data, ["pan", "lift"], "20 frames")
    assert found.source == "the statistics of 20 frames"
    assert (found.names, found.spread) == (["pan", "lift"], [9.0, 25.0])
    chunks = [torch.tensor([[[0.0, 1.0], [2.0, 1.5]]])]
    found = measure_action_scale(post(None), {}, None, "nothing", chunks)
    assert found.source == MEASURED
    assert found.spread == pytest.approx([1.0, 0.25])
    assert found.names == ["action 0", "action 1"]
    assert measure_action_scale(post(None), {}, None, "nothing") is None


@pytest.mark.parametrize(("low", "high", "share"), [(0, 1, 0.4), (-1, 1, 0.5), (0, 100, 0.02)])
def test_a_dimension_that_only_ever_is_at_its_ends_decides(low: float, high: float, share: float) -> None:
    found = measure_action_scale(post(stats(JOINT, two_valued(low, high, share))), {}, None, "")
    assert found.decides == [False, True]
    assert (found.middle[1], found.width[1]) == ((low + high) / 2, high - low)


def test_a_gripper_that_closes_slowly_decides_by_its_name() -> None:
    slow = {"min": 0.0, "max": 100.0, "mean": 40.0, "std": 20.0}
    assert measure_action_scale(post(stats(JOINT, slow)), {}, ["pan.pos", "gripper.pos"], "").decides == [False, True]
    assert measure_action_scale(post(stats(JOINT, slow)), {}, None, "").decides == [False, False]


def test_statistics_without_a_standard_deviation_give_one() -> None:
    own = {"min": [0.0], "max": [12**0.5]}
    assert measure_action_scale(post(own), {}, None, "").spread == pytest.approx([1.0])
    assert measure_action_scale(post({"q01": [0.0], "q99": [2 * 12**0.5]}), {}, None, "").spread == pytest.approx([2.0])


def invert_dimensions(chunks: Sequence[Tensor], dimensions: Sequence[int]) -> list[Tensor]:
    signs = torch.ones(chunks[0].shape[-1])
    signs[list(dimensions)] = -1
    means = torch.cat(list(chunks)).mean(0)
    return [means + signs * (chunk - means) for chunk in chunks]


def moving(*spreads: float) -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randn(50, len(spreads), generator=random) * torch.tensor(spreads) for _ in range(4)]


@pytest.mark.parametrize(
    ("own", "spreads", "wrong"),
    [
        ([{**JOINT, "std": 1.0}] * 6 + [{**JOINT, "std": 1e5}], [1.0] * 6 + [1e5], range(6)),  # one in other units
        ([JOINT] * 2 + [{"min": 0.0, "max": 0.08, "mean": 0.04, "std": 0.002}], [25.0, 25.0, 0.002], [2]),
        ([JOINT, {**JOINT, "std": INF}], [25.0, 25.0], [0]),  # a number that is none
        ([JOINT, {**JOINT, "std": INF}], [25.0, 25.0], [1]),
        ([JOINT, {**JOINT, "max": NAN, "min": NAN, "std": NAN}], [0.01, 0.01], [1]),
        ([{"min": -90.0, "max": 1e6}, {"min": -90.0, "max": 90.0}], [25.0, 25.0], [0]),  # an outlier
        ([{**JOINT, "std": 1e5}, JOINT], [25.0, 25.0], [0]),
        ([{**JOINT, "std": 0.0, "min": 3.0, "max": 3.0}, JOINT], [25.0, 25.0], [0]),  # not moving in the data
    ],
)
def test_no_dimension_hides_what_another_does(
    own: list[dict[str, float]], spreads: list[float], wrong: Sequence[int]
) -> None:
    chunks = moving(*spreads)
    found = measure_action_scale(post({key: [one[key] for one in own] for key in own[0]}), {}, None, "", chunks)
    assert found is not None
    assert ROUNDING.judge(agree(chunks, chunks, found)).outcome == "held"
    for dimension in wrong:
        seen = agree(chunks, invert_dimensions(chunks, [dimension]), found)
        assert ROUNDING.judge(seen).words, dimension
        assert seen.worst_dimension == f"action {dimension}"


def test_rounding_of_a_dimension_that_rests_is_no_fault_and_to_hold_it_still_is() -> None:
    resting = moving(25.0, 0.25)  # a joint that the observations leave where it is, at a hundredth of what it can do
    found = measure_action_scale(post(stats(JOINT, JOINT)), {}, None, "", resting)
    assert found.judged_by == ["statistics", "motion"]
    rounded = [chunk + 0.003 * 25 * torch.randn(50, 2, generator=torch.Generator().manual_seed(1)) for chunk in resting]
    assert ROUNDING.judge(agree(resting, rounded, found)).outcome == "held"
    held = [chunk * torch.tensor([1.0, 0.0]) for chunk in resting]
    assert ROUNDING.judge(agree(resting, held, found)).words


def test_a_dimension_that_never_moves_may_not_begin_to() -> None:
    chunks = [torch.cat([chunk, torch.full((50, 1), 500.0), torch.zeros(50, 1)], -1) for chunk in moving(25.0)]
    still = {"min": 500.0, "max": 500.0, "mean": 500.0, "std": 0.0}
    own = stats(JOINT, still, {**still, "min": 0.0, "max": 0.0, "mean": 0.0})
    found = measure_action_scale(post(own), {}, ["pan", "lift", "spare"], "", chunks)
    assert found.judged_by == ["statistics", "size", "size"]
    assert "lift, spare by its own size" in found.source
    for dimension, by in ((1, 0.1), (2, 1e-4)):
        moved = [chunk + by * torch.eye(3)[dimension] for chunk in chunks]
        assert ROUNDING.judge(agree(chunks, moved, found)).words, dimension


def test_a_number_that_is_none_is_named() -> None:
    found = measure_action_scale(post(stats(JOINT, {**JOINT, "std": INF})), {}, ["pan", "lift"], "", moving(25.0, 25.0))
    assert "lift" in (found.note or "")
    assert "pan" not in (found.note or "")
    assert "lift" in agree(moving(1.0, 1.0), moving(1.0, 1.0), found).note


def test_a_real_policy_has_the_statistics_that_it_unnormalises_with() -> None:
    subject = load_tiny_subject("act")
    scale = subject.scale()
    assert scale.source == OWN
    assert scale.names == [f"joint_{index}" for index in range(6)]
    assert scale.spread == pytest.approx([200 / 12**0.5] * 6)


def unnormaliser(mode: str, stats: dict[str, Any], key: str = ACTION) -> Any:
    """LeRobot's own postprocessor, which holds ``stats`` of two actions under ``key``."""
    step = UnnormalizerProcessorStep(
        features={ACTION: PolicyFeature(FeatureType.ACTION, (2,))},
        norm_map={FeatureType.ACTION: NormalizationMode(mode)},
        stats={key: {name: torch.tensor(value) for name, value in stats.items()}},
    )
    return PolicyProcessorPipeline(
        steps=[step], to_transition=policy_action_to_transition, to_output=transition_to_policy_action
    )


WIDE = stats({"min": -90.0, "max": 110.0, "mean": 10.0, "std": 25.0}, {"min": 0.0, "max": 1.0, "mean": 0.5, "std": 0.5})


@pytest.mark.parametrize(("mode", "normalised"), [("MEAN_STD", [1.0, 1.0]), ("MIN_MAX", [0.25, 1.0])])
def test_statistics_that_the_postprocessor_does_not_find_leave_the_actions_and_their_spread_normalised(
    mode: str, normalised: list[float]
) -> None:
    sound, inert = unnormaliser(mode, WIDE), unnormaliser(mode, WIDE, "so100.buffer.action")
    found = measure_action_scale(sound, {ACTION: WIDE}, ["pan", "gripper"], "20 frames", moving(25.0, 0.5))
    assert (found.spread, found.inert, found.note) == ([25.0, 0.5], False, "")
    assert (found.middle[1], found.width[1]) == (0.5, 1.0)
    found = measure_action_scale(inert, {ACTION: WIDE}, ["pan", "gripper"], "20 frames", moving(1.0, 1.0))
    assert found.spread == pytest.approx(normalised)
    assert found.inert
    assert "so100.buffer.action" in agree(moving(1.0, 1.0), moving(1.0, 1.0), found).note
    assert (found.decides[1], found.middle[1], found.width[1]) == (True, 0.0, 2.0), "the gripper is at −1 or 1"
    # An error is as many σ as of the same policy with its statistics.
    before = moving(1.0, 1.0)
    after = [chunk + 0.05 for chunk in before]
    said = [
        agree(
            [post(c) for c in before],
            [post(c) for c in after],
            measure_action_scale(post, {ACTION: WIDE}, None, "", before),
        )
        for post in (sound, inert)
    ]
    assert said[0].rms == pytest.approx(said[1].rms)
    # Without statistics of the inputs the mode alone tells.
    alone = measure_action_scale(inert, {}, None, "", moving(1.0, 1.0))
    assert alone.spread == pytest.approx([1.0, 1.0] if mode == "MEAN_STD" else [3**-0.5] * 2)


def test_actions_that_are_not_normalised_have_the_spread_of_the_data() -> None:
    found = measure_action_scale(
        unnormaliser("IDENTITY", {}, "other"), {ACTION: WIDE}, None, "20 frames", moving(25.0, 0.5)
    )
    assert (found.spread, found.inert, found.source) == ([25.0, 0.5], False, "the statistics of 20 frames")


def test_what_comes_after_the_unnormaliser_counts() -> None:
    after = unnormaliser("MEAN_STD", WIDE)

    class Radians(type(after.steps[0])):
        def __call__(self, transition: Any) -> Any:
            found = super().__call__(transition)
            return {**found, ACTION: found[ACTION] * torch.pi / 180}

    class OpenOrShut(type(after.steps[0])):
        def __call__(self, transition: Any) -> Any:
            found = super().__call__(transition)
            return {**found, ACTION: torch.where(found[ACTION] > 10, 1.0, -1.0)}

    after.steps[0].__class__ = Radians
    found = measure_action_scale(after, {}, None, "", moving(0.4, 0.01))
    assert found.spread == pytest.approx([25 * torch.pi / 180, 0.5 * torch.pi / 180])
    assert found.middle == pytest.approx([10 * torch.pi / 180, 0.5 * torch.pi / 180])
    after.steps[0].__class__ = OpenOrShut
    shut = [torch.sign(chunk) for chunk in moving(1.0, 1.0)]
    found = measure_action_scale(after, {}, None, "", shut)
    assert found.spread == pytest.approx([1.0, 1.0], rel=0.01)
    assert found.decides == [True, True]


def test_actions_relative_to_the_state_decide_where_the_actions_are() -> None:
    subject = load_tiny_subject("pi0", "--use_relative_actions=true")
    subject.inputs.meta.features[ACTION]["names"][5] = "gripper"
    chunks = [subject.chunk(index) for index in range(4)]
    scale = subject.scale(chunks)
    assert scale.spread == pytest.approx([200 / 12**0.5] * 6)
    low, high = (torch.cat(chunks)[..., 5].flatten().quantile(q) for q in (0, 1))
    assert scale.middle[5] == pytest.approx(float(low + high) / 2, rel=1e-3)


@pytest.mark.parametrize("kind", ["groot", "evo1", "xvla"])
def test_a_policy_with_steps_of_its_own_has_the_spread_of_its_actions(kind: str) -> None:
    subject = load_tiny_subject(kind)
    chunks = [subject.chunk(index) for index in range(4)]
    moved = torch.cat([chunk.double().flatten(0, -2) for chunk in chunks]).std(0, correction=0)
    for spread, own in zip(subject.scale(chunks).spread, moved.tolist(), strict=True):
        assert 0.1 * own < spread <= 40 * own * 1.001
