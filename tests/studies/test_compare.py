"""Variants of one subject."""

from __future__ import annotations

import pytest

from strobe.errors import UserError
from strobe.measure.sampling import SamplingBudget
from strobe.studies.compare import compare
from strobe.studies.measuring import Options
from strobe.subjects.loading import load_subject
from strobe.treatments.settings import Settings
from strobe.treatments.treatment import Variant


def test_a_comparison_needs_two_names():
    subject = load_subject(policy_type="act", size="tiny")
    options = Options(SamplingBudget(iterations=2))
    with pytest.raises(UserError, match="two variants"):
        compare(subject, [Variant("alone")], "inference", options)
    with pytest.raises(UserError, match="same name"):
        compare(subject, [Variant("x"), Variant("x")], "inference", options)


def test_a_setting_is_put_back_even_where_it_was_copied():
    subject = load_subject(policy_type="diffusion", size="tiny")
    policy = subject.policy
    before = (policy.config.num_inference_steps, policy.diffusion.num_inference_steps)
    undo = Settings({"num_inference_steps": 3}).apply(subject)
    assert policy.diffusion.num_inference_steps == 3
    undo()
    assert (policy.config.num_inference_steps, policy.diffusion.num_inference_steps) == before


def test_a_variant_that_fails_half_way_leaves_the_subject_as_it_was():
    subject = load_subject(policy_type="diffusion", size="tiny")
    before = subject.policy.diffusion.num_inference_steps
    variant = Variant("bad", (Settings({"num_inference_steps": 2}), Settings({"no_such_setting": 1})))
    with pytest.raises(UserError, match="no_such_setting"):
        variant.apply(subject)
    assert subject.policy.diffusion.num_inference_steps == before


def test_training_phases_can_be_compared_too():
    subject = load_subject(policy_type="act", size="tiny")
    options = Options(SamplingBudget(iterations=3), batch_size=2, counted=False)
    result, _ = compare(subject, [Variant("a"), Variant("b")], "training forward", options)
    assert [m.name for m in result.measurements] == ["a", "b"]
    assert result.comparisons[0].agreement is None


def test_verdicts_on_several_variants_are_together_as_sure_as_one():
    subject = load_subject(policy_type="act", size="tiny")
    options = Options(SamplingBudget(iterations=14), counted=False, checked=False)
    for names, level in (("ab", 0.99), ("abcde", 0.9975)):
        result, _ = compare(subject, [Variant(name) for name in names], "inference", options)
        for one in result.comparisons:
            assert one.verdict.interval.level == pytest.approx(level)
            assert one.difference is not None
            assert one.difference.level == one.verdict.interval.level


def test_a_policy_that_fails_where_faults_are_looked_for_keeps_its_timing(monkeypatch):
    """A closer look must not cost what was measured."""
    from strobe.sameness import check

    def fails(*_, **__):
        raise RuntimeError("this observation\nis too hard")

    monkeypatch.setattr(check.Sameness, "_act", fails)
    subject = load_subject(policy_type="act", size="tiny", overrides=["--device=cpu"])
    variants = [Variant("one"), Variant("two")]
    options = Options(SamplingBudget(iterations=3), counted=False)
    result, _ = compare(subject, variants, "inference", options)
    assert result.status == "complete"
    assert len(result.comparisons[0].agreement.dimensions) == 6, "of the rounds"
    (note,) = [one for one in result.notes if "closely" in one]
    assert "the untouched policy fails on observation 1: this observation is too hard" in note
    assert not result.yardsticks
