"""How alike actions are, as people read it: sentences, tables and plots, in σ with yardsticks, or by cosines alone."""

from __future__ import annotations

import math
import re

import pytest
from support import example_runs as runs
from support.approved import approve_cases
from support.browser import Browse
from support.example_ladder import climbed
from support.example_sameness import GUARD, YARDSTICKS, apart, check, dimension, exact, joints, verified, yardstick
from support.shown import PAYLOAD, printed, spoken, without_policy

from strobe import kinds
from strobe.report import sameness, sameness_plots, verify
from strobe.report.document import Table
from strobe.results import units
from strobe.results.agreement import Agreement
from strobe.results.answer import CompareResult, OptimizeResult, Result, VerifyResult


def compared(agreement: Agreement, **more) -> CompareResult:
    """pi0.5 with RTC and without, where RTC moved the actions that far."""
    result = runs.rtc(yardsticks=YARDSTICKS)
    result.comparisons[0] = result.comparisons[0].model_copy(update={"agreement": agreement, **more})
    return result


def table(result: Result, key: str = sameness.KEY) -> Table:
    found = next(section.table for section in kinds.document(result).sections if section.key == key)
    assert found is not None
    return found


def column(of: Table, title: str) -> list[str | None]:
    return [row.cells[[one.title for one in of.columns].index(title)] for row in of.rows]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"), (0.00374, "0.0037"), (0.001, "0.001"), (3.04e-7, "3e-7"), (2.06e-7, "2.1e-7"), (0.614, "0.61"),
        (12.4, "12"), (1234, "1,200"), (-0.0213, "−0.021"), (-4.2e-5, "−4.2e-5"),
    ],
)  # fmt: skip
def test_errors_have_two_figures(value: float, shown: str):
    assert units.sigma(value) == shown
    assert units.sigma(None) is None


def test_sentences_are_those_that_were_approved():
    moved = apart(joints(0.004))
    sixteen = moved.model_copy(update={"observations": 74, "distinct": 16})
    missing = "only paired episodes show success_drop"
    comparisons = {
        "a guard that holds": compared(moved, effect="rounding", guard=GUARD),
        "a guard that is broken by flips": compared(
            apart(joints(0.04, gripper=0.031)), guard=GUARD, broken="rms 0.04 σ > 0.02 σ"
        ),
        "not moved at all": compared(apart([dimension("x", 0.0)])),
        "numbers that are none": compared(apart(joints(0.001), not_finite=3)),
        "a whole chunk is executed": compared(apart(joints(0.004), executed=20), guard="exact"),
        "a cosine alone": runs.rtc(),
    }
    verifications = {
        "passed": verified(),
        "failed": verified(exact(), check(rms=0.04, broken="rms 0.04 σ > 0.02 σ")),
        "failed in the call": verified(exact(agreement=None, broken="the call fails: no such thing"), check()),
        "interrupted": verified(status="interrupted"),
        "no check": verified(checks=[]),
        "the user's own guard": verified(guard="rms<=0.5"),
        "sixteen observations": verified(check(agreement=sixteen)),
        "sixteen observations, of which one breaks it": verified(check(agreement=sixteen, broken="rms 1 σ > 0.02 σ")),
        "not judged": verified(exact(), check(unjudged=missing)),
    }
    ladder = {"a ladder": spread_ladder(), "a ladder of cosines": climbed()}
    approve_cases("sameness", {name: spoken(one) for name, one in (comparisons | verifications | ladder).items()})


def test_the_table_has_candidates_then_yardsticks():
    found = table(compared(apart(joints(0.004, gripper=0.0125)), guard=GUARD))
    assert column(found, "Actions of") == [
        "With RTC", "yardsticks", "reordered sums", "another noise draw", "neighbouring frame", "another observation",
    ]  # fmt: skip
    assert column(found, "RMS (σ)") == ["0.004", "", "3e-7", "0.61", "0.05", "0.8"]
    assert column(found, "p99 (σ)")[0] == "0.01"
    assert column(found, "Worst (σ)")[:3] == ["0.016", "", "1.2e-6"]
    assert column(found, "Worst in")[0] == "joint_0, observation 3 again, action 18 of 20"
    assert column(found, "Flips")[0] == "1.2 %"
    assert column(found, "Executed: RMS (σ)")[0] == "0.002"
    assert column(found, "Guard")[0] == "held"
    assert column(found, "Cosine")[0] == "0.999812"
    assert column(found, "Calls")[0] == "74"
    broken = table(compared(apart(joints(0.04)), guard=GUARD, broken="rms 0.04 σ > 0.02 σ"))
    assert column(broken, "Guard")[0] == "broken: rms 0.04 σ > 0.02 σ"


def test_figures_of_what_is_executed_are_left_out_where_that_is_the_whole_chunk():
    titles = [one.title for one in table(compared(apart(joints(0.004), executed=20))).columns]
    assert "Executed: RMS (σ)" not in titles
    assert "Executed: RMS (σ)" in [one.title for one in table(compared(apart(joints(0.004)))).columns]


def test_of_many_dimensions_the_console_has_the_worst_and_those_that_decide():
    dimensions = joints(0.004, count=14)
    dimensions[9].worst = 0.7
    result = compared(apart(dimensions))
    few = table(result, "agreement-dimensions")
    assert column(few, "Dimension") == ["joint_0", "joint_1", "joint_2", "joint_9", "gripper"]
    full = table(result, "agreement-0")
    assert len(full.rows) == 15
    assert "joint_13" not in printed(result)
    assert "joint_13" in kinds.page(result)
    assert not [section for section in kinds.document(compared(apart(joints(0.004, count=4)))).sections
                if section.key == "agreement-0"]  # fmt: skip


def test_a_dimension_is_told_in_its_own_units_too():
    result = compared(apart([dimension("x", 0.04, offset=-0.03), dimension("grip", 0.01, flips=0.25)]))
    found = table(result, "agreement-dimensions")
    assert column(found, "Mean offset (σ)") == ["−0.03", "0"]
    assert column(found, "Mean offset (own units)") == ["−0.3", "0"]
    assert column(found, "σ (own units)") == ["10", "10"]
    assert column(found, "Flips") == [None, "25 %"]


def test_cosines_alone_are_shown_as_they_were():
    result = runs.rtc()
    section = next(one for one in kinds.document(result).sections if one.key == "agreement")
    assert section.table is not None
    assert [one.title for one in section.table.columns] == [
        "Actions of", "Cosine", "Largest error", "Mean error", "Observations"]  # fmt: skip
    assert section.table.rows[0].cells == ["With RTC vs Without RTC", "0.987120", "0.2213", "0.0142", "8"]
    assert section.text == []
    assert len(kinds.document(result).answers) == 1
    assert sameness.KEY not in kinds.figures(result)


def test_a_cosine_that_was_held_against_a_guard_says_so():
    result = runs.rtc()
    result.comparisons[0].guard, result.comparisons[0].broken = "cosine>=0.999", "cosine 0.98712 < 0.999"
    assert column(table(result), "Guard") == ["broken: cosine 0.98712 < 0.999"]


def test_the_plot_has_a_line_for_each_dimension_over_the_yardsticks():
    (plot,) = kinds.figures(compared(apart(joints(0.004))))[sameness.KEY]
    lines = [trace for trace in plot.data if trace.get("legendrank") is None]
    assert [trace["name"] for trace in lines] == [*(f"joint_{index}" for index in range(6)), "gripper"]
    assert lines[0]["x"] == list(range(1, 21))
    assert lines[0]["y"] == pytest.approx([0.004 * (0.5 + step / 19) for step in range(20)], rel=1e-3)
    assert lines[0]["customdata"][0] == ["0.002 σ", "0.02", "joint_0"]
    bands = [trace for trace in plot.data if trace.get("fill")]
    assert [trace["name"] for trace in bands] == [one.name for one in YARDSTICKS]
    assert bands[1]["y"][0] == pytest.approx(0.305)
    bottom = plot.data[plot.data.index(bands[1]) - 1]
    assert bottom["y"][0] == pytest.approx(0.61 / 4 / 2, rel=1e-3)
    assert {shape["x0"] for shape in plot.layout["shapes"]} == {8.5}
    low, high = plot.layout["yaxis"]["range"]
    assert low < math.log10(3e-7 / 8)
    assert high > math.log10(0.8 * 1.5)


def test_zeros_are_at_the_floor_of_the_plot_or_not_drawn():
    some = dimension("x", 0.01, along=[0.0, 0.01, 0.02])
    nothing = dimension("held", 0.0, along=[0.0, 0.0, 0.0])
    (plot,) = sameness_plots.plots([sameness.Candidate("x", apart([some, nothing]))], [])[sameness.KEY]
    assert [trace["name"] for trace in plot.data] == ["x"]
    assert plot.data[0]["y"] == [0.001, 0.01, 0.02]
    assert plot.data[0]["customdata"][0][0] == "0 σ"
    assert plot.caption.endswith("0, not drawn: held.")
    (plot,) = sameness_plots.plots([sameness.Candidate("x", apart([nothing]))], YARDSTICKS)[sameness.KEY]
    assert plot.caption.startswith("No action moved: 0 is not drawn.")


def test_many_dimensions_share_one_entry_of_the_legend():
    (plot,) = kinds.figures(compared(apart(joints(0.004, count=30))))[sameness.KEY]
    lines = [trace for trace in plot.data if trace.get("legendrank") is None]
    assert len(lines) == 31
    assert [trace["name"] for trace in lines if trace.get("showlegend", True)] == [
        "25 others", *(f"joint_{index}" for index in range(6)),
    ]  # fmt: skip


def test_a_broken_candidate_comes_before_those_that_hold():
    many = [sameness.Candidate(f"v{index}", apart(joints(0.001)), guard=GUARD) for index in range(9)]
    many[2] = sameness.Candidate("v2", apart(joints(0.5)), guard=GUARD, broken="rms 0.5 σ > 0.02 σ")
    assert [one.name for one in sameness.focus(many)] == ["v2", "v7", "v8"]
    many[8] = sameness.Candidate("v8", apart(joints(0.5)), guard=GUARD, broken="rms 0.5 σ > 0.02 σ")
    said = sameness.answers(many, YARDSTICKS)
    assert len(said) == 8
    assert [sentence.split()[0] for sentence in said[:6]] == ["v0", "v1", "v2", "v3", "v4", "v8"]
    assert said[-2] == "The table has 3 more."


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (verified(), "held"),
        (verified(exact(), check(rms=0.04, broken="rms 0.04 σ > 0.02 σ")), "broken"),
        (verified(status="interrupted"), "not judged"),
        (verified(checks=[]), "not judged"),
        (verified(exact(), check(unjudged="only paired episodes show success_drop")), "not judged"),
        (verified(exact(unjudged="nobody looked"), check(broken="rms 1 σ > 0.02 σ")), "broken"),
    ],
)
def test_a_verification_says_its_outcome_first(result: VerifyResult, outcome: str):
    word = {"held": "PASSED", "broken": "FAILED", "not judged": "NOT JUDGED"}[outcome]
    assert kinds.document(result).answers[0].startswith(word)
    assert result.outcome == outcome
    assert result.passed == (outcome == "held")


def test_a_verification_shows_its_checks_and_how_far_each_moved():
    failed = exact(agreement=None, broken="the call fails (with RTC): no such thing")
    found = table(verified(failed, check()), "checks")
    assert column(found, "Check") == ["padding=trimmed", "all treatments"]
    assert column(found, "Outcome") == ["failed: the call fails (with RTC): no such thing", "held"]
    assert column(found, "Their effect") == ["exact", "rounding"]
    assert column(found, "Guard") == ["exact", GUARD]
    assert column(found, "Treatments") == ["padding=trimmed", "precision=bf16, padding=trimmed"]
    assert column(table(verified()), "RMS (σ)")[:2] == ["4e-7", "0.004"]
    assert len(kinds.figures(verified())[sameness.KEY]) == 2


def test_of_observations_that_all_hold_a_share_may_still_be_wrong():
    assert (1 - verify.at_most_wrong(16)) ** 16 == pytest.approx(0.05)


def spread_ladder() -> OptimizeResult:
    result = climbed()
    for one in result.comparisons[:2]:
        one.agreement, one.guard = apart(joints(0.004, gripper=0.0125)), GUARD
    result.yardsticks = [yardstick("reordered sums", 3e-7)]
    return result


def test_a_ladder_tells_spreads_beside_the_cosine():
    result = spread_ladder()
    page = kinds.document(result)
    price = table(result, "price")
    assert column(price, "RMS (σ)") == [None, "0.004", "0.004"]
    assert column(price, "Worst (σ)")[1] == "0.016"
    assert column(price, "Flips")[1] == "1.2 %"
    assert column(table(result), "Actions of")[:2] == [
        "1 cameras=batched", "2 precision=bf16, precision.part=…vision_tower",
    ]  # fmt: skip
    (plot,) = kinds.figures(result)[sameness.KEY]
    assert plot.title == "Error along the chunk: 2 precision=bf16, precision.part=…vision_tower"
    assert [section.key for section in page.sections].count(sameness.KEY) == 1


def test_a_ladder_of_cosines_is_shown_as_it_was():
    titles = [one.title for one in table(climbed(), "price").columns]
    assert titles[2:5] == ["Cosine", "Largest error", "Mean error"]


def test_names_from_outside_run_nothing(browse: Browse):
    dimensions = [dimension(PAYLOAD + one.name, one.rms, flips=one.flips) for one in joints(0.004)]
    spoilt = apart(dimensions, spread=PAYLOAD, how=PAYLOAD, worst_at=PAYLOAD, worst_dimension=PAYLOAD)
    poisoned = check(PAYLOAD, agreement=spoilt, broken=PAYLOAD, guard=PAYLOAD, treatments=[PAYLOAD])
    of_yardstick = yardstick("another observation", 1e-4, about=PAYLOAD, dimensions=dimensions)
    result = verified(poisoned, exact(), recipe=PAYLOAD, guard=PAYLOAD, yardsticks=[of_yardstick])
    result.findings = kinds.advise(result)
    dom = browse(without_policy(kinds.page(result)))
    assert "data-pwned" not in dom[dom.index("<html") : dom.index(">", dom.index("<html"))]
    body = re.sub(r"<script\b.*?</script>", "", dom, flags=re.S)
    assert not re.search(r"<img|<i>|<script", body)
    assert dom.count('<div class="plot js-plotly-plot"') == 2


@pytest.mark.matrix
def test_the_page_draws_it(browse: Browse):
    dom = browse(kinds.page(verified()))
    assert "data-errors" not in dom[dom.index("<html") : dom.index(">", dom.index("<html"))]
    assert dom.count('<div class="plot js-plotly-plot"') == 2
    assert "executed: the first 8" in dom
