"""Variants of one subject."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from support.builders.tiny_policies import load_tiny_subject

from strobe.core.errors import UserError
from strobe.core.kinds import advise, document
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.sameness import check
from strobe.core.studies.breakdown import breakdown
from strobe.core.studies.compare import compare
from strobe.core.studies.shared.measuring import Options
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.lerobot.config_fields import Settings
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.treatments.flow.rtc import RealTimeChunking


def test_a_comparison_needs_two_names():
    subject = load_subject(PolicyOptions(type="act", size="tiny"))
    options = Options(SamplingBudget(iterations=2))
    with pytest.raises(UserError, match="two variants"):
        compare(subject, [Variant("alone")], "inference", options)
    with pytest.raises(UserError, match="same name"):
        compare(subject, [Variant("x"), Variant("x")], "inference", options)


def test_a_setting_is_put_back_even_where_it_was_copied():
    subject = load_subject(PolicyOptions(type="diffusion", size="tiny"))
    policy: Any = subject.policy
    before = (policy.config.num_inference_steps, policy.diffusion.num_inference_steps)
    undo = Settings({"num_inference_steps": 3}).apply(subject)
    assert policy.diffusion.num_inference_steps == 3
    undo()
    assert (policy.config.num_inference_steps, policy.diffusion.num_inference_steps) == before


def test_a_variant_that_fails_half_way_leaves_the_subject_as_it_was():
    subject = load_subject(PolicyOptions(type="diffusion", size="tiny"))
    policy: Any = subject.policy
    before = policy.diffusion.num_inference_steps
    variant = Variant("bad", (Settings({"num_inference_steps": 2}), Settings({"no_such_setting": 1})))
    with pytest.raises(UserError, match="no_such_setting"):
        variant.apply(subject)
    assert policy.diffusion.num_inference_steps == before


def test_a_loss_that_is_not_finite_gives_no_speed_and_one_finding():
    subject = load_subject(PolicyOptions(type="act", size="tiny", overrides=["--kl_weight=inf"]))
    options = Options(SamplingBudget(iterations=7), batch_size=2, counted=False)
    compared, _ = compare(subject, [Variant("a"), Variant("b")], "training forward", options)
    broken, _ = breakdown(subject, ["training forward"], options)
    for result, words in ((compared, "Not judged: the loss of `b`"), (broken, "The loss of act's training forward")):
        assert document(result).answers[0].startswith(f"{words} is infinite or not a number")
        found = [finding.rule for finding in advise(result)]
        assert (found[0], found.count("loss-not-finite")) == ("loss-not-finite", 1)
        assert "inconclusive" not in found


@pytest.mark.slow("a comparison of five variants")
def test_verdicts_on_several_variants_are_together_as_sure_as_one():
    subject = load_subject(PolicyOptions(type="act", size="tiny"))
    options = Options(SamplingBudget(iterations=14), counted=False, checked=False)
    for names, level in (("ab", 0.99), ("abcde", 0.9975)):
        result, _ = compare(subject, [Variant(name) for name in names], "inference", options)
        for one in result.comparisons:
            assert one.verdict.interval.level == pytest.approx(level)
            assert one.difference is not None
            assert one.difference.level == one.verdict.interval.level


def test_a_policy_that_fails_where_faults_are_looked_for_keeps_its_timing(monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("this observation\nis too hard")

    monkeypatch.setattr(check.Sameness, "_act", fails)
    subject = load_tiny_subject("act")
    variants = [Variant("one"), Variant("two")]
    options = Options(SamplingBudget(iterations=3), counted=False)
    result, _ = compare(subject, variants, "inference", options)
    assert result.status == "complete"
    assert len(result.comparisons[0].agreement.dimensions) == 6, "of the rounds"
    (note,) = [one for one in result.caveats if "closely" in one]
    assert "the baseline fails on every observation: this observation is too hard" in note
    assert not result.yardsticks
    assert result.comparisons[0].outcome == "held", "the same to the bit in the rounds, which needs no yardstick"


def fail_on_observation(monkeypatch, number: int) -> None:
    """Have the untouched and the treated policy fail on one of the check's observations, and on that alone."""
    act = check.Sameness._act

    def call(self, observation, seed):
        if seed == self.subject.seed + number:
            raise RuntimeError("this observation\nis too hard")
        return act(self, observation, seed)

    monkeypatch.setattr(check.Sameness, "_act", call)


class Zeros(Treatment):
    """Claims to be exact, and returns zeros."""

    effect = "exact"
    key = "zeros"

    def apply(self, subject: Any):
        loaded = subject.loaded
        made = loaded.postprocessor
        loaded.postprocessor = lambda chunk: 0 * made(chunk)
        return lambda: setattr(loaded, "postprocessor", made)


def test_a_variant_whose_call_fails_is_said_to_fail_and_not_to_change_the_actions(monkeypatch):
    def fails(*_):
        raise check.PolicyCallError("the call fails: no memory")

    monkeypatch.setattr(check.Sameness, "_make_call", fails)
    options = Options(SamplingBudget(iterations=3), counted=False)
    result, _ = compare(load_tiny_subject("act"), [Variant("one"), Variant("two", (Zeros(),))], "inference", options)
    assert (result.comparisons[0].agreement, result.comparisons[0].outcome) == (None, "broken")
    assert {found.rule for found in advise(result)} & {"call-fails", "exact-treatment-broken"} == {"call-fails"}


def test_one_observation_that_the_policy_cannot_take_leaves_a_yardstick_and_a_note(monkeypatch):
    fail_on_observation(monkeypatch, 1)
    subject = load_tiny_subject("act")
    options = Options(SamplingBudget(iterations=3), counted=False)
    result, _ = compare(subject, [Variant("one"), Variant("two", (Zeros(),))], "inference", options)
    assert "reordered sums" in [one.name for one in result.yardsticks]
    (note,) = [one for one in result.caveats if "fails in" in one]
    assert any("this observation is too hard" in sentence for sentence in document(result).answers)
    assert "observation 2" in note
    assert "this observation is too hard" in note
    assert result.comparisons[0].outcome == "broken"


def test_a_setting_of_what_is_executed_is_compared_on_the_actions_that_both_predict_and_not_judged():
    """Diffusion's chunk is as long as the actions that it executes."""
    flags = ["--device=cpu", "--n_action_steps=4", "--num_inference_steps=2"]
    subject = load_subject(PolicyOptions(type="diffusion", size="tiny", overrides=flags))
    longer = Variant("longer", (Settings({"n_action_steps": 6}),))
    result, _ = compare(
        subject, [Variant("baseline"), longer], "inference", Options(SamplingBudget(iterations=3), counted=False)
    )
    (comparison,) = result.comparisons
    assert comparison.outcome == "not judged"
    assert "play episodes" in (comparison.unjudged or "")
    assert comparison.agreement.predicted == 4
    assert comparison.agreement.worst == 0


def test_what_stands_beside_real_time_chunking_is_not_judged_rather_than_held_to_no_guard():
    flags = ["--device=cpu", "--num_steps=2"]
    subject = load_subject(PolicyOptions(type="smolvla", size="tiny", overrides=flags))
    guided = RealTimeChunking(RTCConfig(), 4)
    variants = [Variant("baseline"), Variant("rtc", (guided,)), Variant("rtc, zeros", (guided, Zeros()))]
    result, _ = compare(subject, variants, "inference", Options(SamplingBudget(iterations=3), counted=False))
    found = {pair.candidate: pair for pair in result.comparisons if pair.baseline == "baseline"}
    assert found["rtc"].outcome is None
    assert found["rtc, zeros"].outcome == "not judged"
    assert "on purpose" in (found["rtc, zeros"].unjudged or "")


@pytest.mark.parametrize("steps", [20, 3])
def test_a_running_policy_executes_its_chunk_from_the_first_action_on(steps):
    """Its queue is made again when the number of executed actions changes, and when that is taken back."""
    subject = load_tiny_subject("act", "--n_action_steps=8")
    policy = subject.policy
    batch = subject.loaded.preprocessor(subject.observation(0))
    policy.reset()

    def execute_actions(count: int) -> torch.Tensor:
        return torch.stack([policy.select_action(dict(batch)).squeeze(0) for _ in range(count)])

    with torch.no_grad():
        chunk = policy.predict_action_chunk(dict(batch)).squeeze(0)
        execute_actions(1)
        undo = Settings({"n_action_steps": steps}).apply(subject)
        assert torch.equal(execute_actions(steps + 1), torch.cat([chunk[:steps], chunk[:1]]))
        undo()
        assert torch.equal(execute_actions(9), torch.cat([chunk[:8], chunk[:1]]))
