"""Findings on a lower precision: the speed it buys and how far it moves the actions."""

from collections.abc import Sequence

import pytest
from support.findings_results import N, measured, put_on, result, rules, treated

from strobe.results.agreement import Agreement
from strobe.results.answer import CompareResult
from strobe.results.comparison import Comparison, Verdict
from strobe.results.data import Interval
from strobe.results.traits import Traits, TreatmentTraits

SAME = Agreement(cosine=1.0, largest_error=0.5, mean_error=0.1, observations=N, note="")


def run(
    ratio: float,
    *,
    width: float = 0.01,
    kind: str = "faster",
    names: tuple[str, str] = ("fp32", "bf16"),
    same: Agreement = SAME,
    fast: float = 400.0,
    part: str = "",
    others: Sequence[TreatmentTraits] = (),
) -> CompareResult:
    """A comparison of two precisions: ``names`` of baseline and candidate."""
    baseline, name = names
    interval = Interval(low=ratio - width, high=ratio + width, level=0.99)
    verdict = Verdict(kind=kind, ratio=ratio, interval=interval, pairs=N, sentence="")  # type: ignore[arg-type]
    made = result(
        measured({"policy": 100.0}, name=baseline, traits=treated(put_on("precision", baseline))),
        measured(
            {"policy": 100.0 * ratio},
            name=name,
            whole=100.0 * ratio,
            traits=treated(put_on("precision", name, part=part), *others),
        ),
        of=CompareResult,
        gflops={"float32": 100.0, "bfloat16": fast, "float16": fast},
    )
    made.comparisons.append(
        Comparison(baseline=baseline, candidate=name, verdict=verdict, difference_ms=1.0, agreement=same)
    )
    return made


@pytest.mark.parametrize(
    ("speed_up", "rule", "word"),
    [
        (0.5, "slow", "under 1.5"),
        (1.4, "slow", "under 1.5"),
        (1.7, "fast", "good"),
        (2.5, "fast", "excellent"),
    ],
)
def test_a_lower_precision_is_judged_by_the_guides_thresholds(speed_up: float, rule: str, word: str):
    found = rules(run(1 / speed_up))
    assert {r for r in found if r.startswith("precision")} == {f"precision-bf16-{rule}"}
    assert word in found[f"precision-bf16-{rule}"].title
    assert found[f"precision-bf16-{rule}"].evidence["speed_up"] == pytest.approx(speed_up)


def test_good_up_to_two_where_only_part_of_the_interval_lies_above():
    assert "good" in rules(run(1 / 2.01, width=0.02))["precision-bf16-fast"].title


def test_nothing_is_said_that_the_samples_do_not_show():
    silent = (run(1 / 1.5, width=0.02), run(0.4, kind="too noisy"), run(0.7, width=0.2))
    assert not [rule for made in silent for rule in rules(made) if rule.startswith("precision")]


def test_no_difference_shown_is_shown_to_be_under_the_threshold():
    assert "precision-bf16-slow" in rules(run(1.0, kind="no difference shown"))


def test_the_reason_is_the_machine_where_its_product_is_no_faster():
    assert "no fast units" in rules(run(1.0, fast=90.0))["precision-bf16-slow"].why
    bound = rules(run(1.0, fast=400.0))["precision-bf16-slow"]
    assert "The limit is not the arithmetic" in bound.why
    assert "4 × as fast" in bound.why
    assert "66.7 ms" in bound.gain
    part = rules(run(1.0, part="model.backbone"))["precision-bf16-slow"]
    assert "Only 'model.backbone'" in part.why


def test_only_lower_precisions_are_judged_and_only_alone():
    assert not [r for r in rules(run(0.3, names=("bf16", "fp32"))) if r.startswith("precision")]
    assert not [r for r in rules(run(0.3, names=("bf16", "fp16"))) if r.startswith("precision")]
    assert not [r for r in rules(run(0.3, others=[put_on("compile", "default")])) if r.startswith("precision")]
    assert "precision-tf32-fast" in rules(run(0.3, names=("fp32", "tf32")))
    as_it_is = run(0.3)
    as_it_is.measurements[0].traits = Traits()
    assert "precision-bf16-fast" in rules(as_it_is)
    as_it_is.subject.dtypes = {"bfloat16": 2, "float32": 1}
    assert not [r for r in rules(as_it_is) if r.startswith("precision")]


@pytest.mark.parametrize(("cosine", "fires"), [(0.9989, True), (0.999, False)])
def test_outputs_that_moved(cosine: float, fires: bool):
    found = rules(run(0.55, same=SAME.model_copy(update={"cosine": cosine})))
    assert ("precision-bf16-inaccurate" in found) == fires
    if fires:
        assert found["precision-bf16-inaccurate"].level == "warning"


def test_overflow_is_named():
    found = rules(
        run(
            0.55,
            names=("fp32", "fp16"),
            same=SAME.model_copy(update={"cosine": 0.0, "note": "3 numbers of 9 are infinite"}),
        )
    )
    assert "3 numbers of 9 are infinite." in found["precision-fp16-inaccurate"].seen
