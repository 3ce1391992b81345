"""What the ways to train over delays were measured to cost, beside the rule of thumb that does not know them all."""

from __future__ import annotations

from typing import Any

import pytest
from support.findings_results import compared, measured, put_on, result, rules, treated

from strobe.results.answer import CompareResult
from strobe.results.comparison import Comparison, Verdict
from strobe.results.data import Interval
from strobe.results.measurement import Measurement
from strobe.results.traits import DelayTraining, PolicyTraits, Traits

PARTS = {"forward": 40.0, "forward/backbone": 26.0, "forward/encoder": 10.0, "backward": 55.0}


def way(name: str, training: str, attention: str = "one_way", **settings: Any) -> Measurement:
    trained = DelayTraining(way="sampled", prefix_attention=attention, delays=11)
    settings |= {} if training == "sampled" else {"delay_training": training}
    treatments = [put_on("policy", None, settings=settings)] if settings else []
    traits = treated(*treatments, policy=PolicyTraits(delay_training=trained))
    return measured(PARTS, name=name, phase="training step", traits=traits)


def against(candidate: str, ratio: float, kind: Any = "slower", margin: float = 0.02) -> Comparison:
    interval = Interval(low=ratio - margin, high=ratio + margin, level=0.99)
    verdict = Verdict(kind=kind, ratio=ratio, interval=interval, pairs=20, sentence="")
    return compared(kind, candidate=candidate, baseline="as it is").model_copy(update={"verdict": verdict})


def test_packing_that_costs_little_is_told_where_the_share_alone_is_undecided():
    ways = way("as it is", "sampled"), way("packed", "packed")
    found = rules(result(*ways, of=CompareResult, comparisons=[against("packed", 1.09)]))["delays-packed"]
    assert found.level == "good"
    assert "all 11 delays cost 1.09 ×" in found.title
    assert "65 %" in found.seen
    assert "undecided" in found.seen
    assert "--policy.delay_training=packed --policy.prefix_attention=one_way" in found.do
    assert found.evidence["per_delay"] == pytest.approx(1.09 / 11)


def test_expanding_that_is_dear_points_to_packing():
    ways = way("as it is", "sampled"), way("expanded", "expanded")
    found = rules(result(*ways, of=CompareResult, comparisons=[against("expanded", 5.4)]))["delays-expanded"]
    assert found.level == "info"
    assert "5.40 ×" in found.title
    assert "packed" in found.do


def test_unlike_attention_is_said():
    ways = (
        way("as it is", "sampled", "two_way"),
        way("packed", "packed", "two_way", prefix_attention="one_way"),
    )
    found = rules(result(*ways, of=CompareResult, comparisons=[against("packed", 1.1)]))["delays-packed"]
    assert "differ in prefix_attention" in found.seen


@pytest.mark.parametrize("kind", ["too noisy"])
def test_nothing_is_claimed_from_noise(kind: str):
    ways = way("as it is", "sampled"), way("packed", "packed")
    assert "delays-packed" not in rules(result(*ways, of=CompareResult, comparisons=[against("packed", 1.1, kind)]))


def test_nothing_is_said_of_policies_without_delays():
    ways = measured(PARTS, name="as it is", phase="training step"), measured(PARTS, name="b", phase="training step")
    found = rules(result(*ways, of=CompareResult, comparisons=[against("b", 1.1)]))
    assert not [rule for rule in found if rule.startswith("delays-")]


def test_the_breakdown_counts_the_policy_s_own_delays_and_names_the_comparison():
    traits = Traits(policy=PolicyTraits(delay_training=DelayTraining(delays=6)))
    forward = measured({"forward": 100.0, "forward/backbone": 65.0}, phase="training forward", name="t", traits=traits)
    found = rules(result(forward))["backbone-undecided"]
    assert found.evidence["delays"] == 6
    assert "strobe compare" in found.do
    assert "packed" in found.do
