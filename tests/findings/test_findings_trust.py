"""Findings on figures that are to be trusted less: unnamed time, silent probes, few samples."""

import pytest
from support.findings_results import compared, measured, result, rules

from strobe.results.answer import CompareResult


@pytest.mark.parametrize(("ms", "fires"), [(2.0, False), (2.1, True)])
def test_time_in_no_named_part_is_summed_over_the_first_two_levels(ms: float, fires: bool):
    parts = {"policy": 97.0, "policy/encoder": 90.0, "policy/encoder/other": 30.0, "policy/other": 3.0, "other": ms}
    assert ("other-large" in rules(result(measured(parts)))) == fires


def test_a_policy_without_a_record_is_told_to_get_one():
    found = rules(result(measured({"other": 50.0}), anatomy="modules"))["other-large"]
    assert "'strobe.families'" in found.do


def test_probes_that_saw_nothing():
    assert "unseen-parts" in rules(result(measured({}, unseen={"encoder": "compiled"})))
    assert "unseen-parts" not in rules(result(measured({})))


def test_a_comparison_too_noisy_to_judge():
    assert "too-noisy" in rules(result(comparisons=[compared("too noisy")], of=CompareResult))
    assert "too-noisy" not in rules(result(comparisons=[compared("slower")], of=CompareResult))


def test_a_run_too_short_to_judge_is_to_be_longer_and_not_quieter():
    short = rules(result(comparisons=[compared("too noisy")], of=CompareResult))["too-noisy"]  # its interval excludes 1
    wide = compared("too noisy")
    wide.verdict.interval.low = 0.7
    assert "--iterations" in short.do
    assert "--iterations" not in rules(result(comparisons=[wide], of=CompareResult))["too-noisy"].do


def test_drift_is_passed_on():
    found = rules(result(measured({}, notes=["drifted 8 % slower"])))["unsteady"]
    assert "drifted 8 % slower" in found.seen
    assert "unsteady" not in rules(result(measured({})))


@pytest.mark.parametrize(("n", "fires"), [(9, True), (10, False)])
def test_few_samples(n: int, fires: bool):
    assert ("few-samples" in rules(result(measured({}, n=n)))) == fires


def test_stand_ins_are_named():
    assert "a tokenizer" in rules(result(stand_ins=["a tokenizer"]))["stand-ins"].seen
    assert "stand-ins" not in rules(result())
