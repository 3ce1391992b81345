"""Findings on parts: the biggest, the backbone, the processors."""

import pytest
from support.findings_results import measured, result, rules

from strobe.findings import Thresholds


def test_the_biggest_part_says_what_it_could_give():
    parts = {"preprocessing": 5.0, "policy": 95.0, "policy/backbone": 60.0, "policy/encoder": 35.0}
    found = rules(result(measured(parts)))["biggest-part"]
    assert found.evidence["part"] == "backbone"
    assert found.evidence["without_ms"] == pytest.approx(40.0)
    assert "from 100 ms to 40 ms (computed)" in found.gain


def test_blocks_below_the_first_cut_do_not_hide_the_biggest_part():
    parts = {"policy": 100.0, "policy/encoder": 60.0, "policy/encoder/layer 0": 60.0, "policy/decoder": 40.0}
    assert rules(result(measured(parts)))["biggest-part"].evidence["part"] == "encoder"


def test_a_part_that_runs_twice_is_summed():
    parts = {"policy": 100.0, "policy/a": 40.0, "policy/b": 60.0}
    twice = measured(parts)
    twice.components.append(twice.components[1].model_copy())
    assert rules(result(twice))["biggest-part"].evidence["part_ms"] == pytest.approx(80.0)


def test_the_numbered_modules_of_two_sequences_are_not_one_part():
    parts = {"vision": 60.0, "vision/0": 30.0, "vision/2": 30.0, "denoiser": 40.0, "denoiser/2": 40.0}
    found = rules(result(measured(parts)))["biggest-part"].evidence
    assert (found["part"], found["part_ms"]) == ("vision", pytest.approx(60.0))


def test_without_components_there_is_no_biggest_part():
    assert "biggest-part" not in rules(result(measured({})))


@pytest.mark.parametrize(
    ("ms", "rule", "level"),
    [
        (70.0, "backbone-dominates", "good"),
        (69.9, "backbone-undecided", "info"),
        (50.0, "backbone-undecided", "info"),
        (49.9, "backbone-small", "info"),
    ],
)
def test_the_backbone_is_judged_by_its_share_of_the_forward_alone(ms: float, rule: str, level: str):
    parts = {"preprocessing": 100.0, "forward": 100.0, "forward/backbone": ms, "forward/encoder": 100.0 - ms}
    found = rules(result(measured(parts, phase="training forward", whole=200.0)))
    assert {name for name in found if name.startswith("backbone")} == {rule}
    assert found[rule].level == level


def test_batch_expansion_gains_what_the_backbone_saves():
    parts = {"forward": 100.0, "forward/backbone": 80.0}
    found = rules(result(measured(parts, phase="training forward")), Thresholds(delays=10))["backbone-dominates"]
    assert found.evidence["expanded_over_one"] == pytest.approx(0.8 + 10 * 0.2)


def test_the_backbone_is_not_judged_at_inference():
    found = rules(result(measured({"policy": 100.0, "policy/backbone": 80.0})))
    assert not any(name.startswith("backbone") for name in found)


def test_the_backbone_threshold_can_be_set():
    parts = {"forward": 100.0, "forward/backbone": 60.0}
    found = rules(result(measured(parts, phase="training forward")), Thresholds(backbone_dominates=0.6))
    assert "backbone-dominates" in found


@pytest.mark.parametrize(("ms", "fires"), [(20.0, False), (20.1, True)])
def test_heavy_preprocessing(ms: float, fires: bool):
    found = rules(result(measured({"preprocessing": ms, "policy": 100.0 - ms})))
    assert ("preprocessing-heavy" in found) == fires


@pytest.mark.parametrize(("ms", "fires"), [(70.0, False), (69.9, True)])
def test_a_policy_that_is_little_of_its_inference(ms: float, fires: bool):
    found = rules(result(measured({"policy": ms, "postprocessing": 100.0 - ms})))
    assert ("policy-share-low" in found) == fires
