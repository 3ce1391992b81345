"""What changed between two runs, with intervals, and as a gate."""

from __future__ import annotations

import random

import pytest
from support.examples import runs

from strobe.core import kinds
from strobe.core.errors import UserError
from strobe.core.report import markdown
from strobe.core.results.answer import Result
from strobe.core.results.measurement import Memory
from strobe.history.diff_command import diff, gate
from strobe.history.results import Difference

SLOW = {"preprocess": 0.03, "policy": (0.96, {"image backbone": 0.6, "new encoder": 0.3, "decoder": 0.06})}


def rerun_result(**more: object) -> Result:
    """Another run of the same thing on the same machine: other noise, no change."""
    return runs.act(
        measurements=[
            runs.measurement("inference", runs.ACT, 148.2, seed=101),
            runs.measurement("training forward", runs.ACT, 1217.4, "training forward", seed=102),
        ],
        **more,
    )


def slower() -> Result:
    held = Memory(weights=206_388_760, peak_activations=2 * 2**30)
    return runs.act(
        strobe_version="0.2.0",
        config={"depth": 2, "seed": 1},
        measurements=[runs.measurement("inference", SLOW, 163.0, memory=held)],
    )


def judge_change(before: Result, after: Result) -> Difference:
    return diff(before, after, judge=runs.judge)


def outcomes(difference: Difference, allowed: float = 0.0) -> dict[str, str]:
    return {one.what: one.outcome for one in gate(difference, allowed)}


def sized_result(count: int, ms: float, seed: int = 0) -> Result:
    """A run of ``count`` samples."""
    measured = runs.measurement("inference", runs.ACT, ms)
    measured.samples, measured.components = runs.samples(ms, n=count, seed=seed), []
    return runs.act(measurements=[measured])


def test_a_run_again_shows_nothing_and_is_not_its_own_proof():
    assert set(outcomes(judge_change(runs.act(), runs.act())).values()) == {"not judged"}
    difference = judge_change(runs.act(), rerun_result())
    assert [m.verdict.kind for m in difference.measurements] == ["no difference shown"] * 2
    assert not any(m.components for m in difference.measurements)
    assert set(outcomes(difference).values()) == {"held"}
    parts = difference.measurements[0].judged
    assert parts > 5
    assert f"No change of {parts} parts is larger than chance explains." in markdown.render(kinds.document(difference))


def test_what_changed_is_said():
    difference = judge_change(runs.act(), slower())
    (only,) = difference.measurements
    assert only.verdict.kind == "slower"
    changes = {c.path[-1]: c.change for c in only.components}
    assert changes["new encoder"] == "appeared"
    assert changes["encoder"] == "gone"
    assert changes["image backbone"] == "faster"
    assert {c.name: c.after - c.before for c in only.memory}["peak activations"] == 2 * 2**30 - 912 * 2**20
    text = markdown.render(kinds.document(difference))
    for said in ("config seed: 0 before, 1 after", "strobe: 0.1.0 before, 0.2.0 after",
                 "measured before only: training forward", "policy › new encoder", "one after the other"):  # fmt: skip
        assert said in text
    assert Difference.model_validate_json(difference.model_dump_json()) == difference
    assert "</html>" in kinds.page(difference)


def test_another_machine_is_noted():
    other = runs.act()
    other.machine = runs.MACHINE.model_copy(update={"cpu": "Ryzen", "versions": {"torch": "2.12.0"}})
    notes = judge_change(runs.act(), other).notes
    assert "other machine: cpu was AMD EPYC 9B14, is Ryzen" in notes
    assert "version torch: 2.11.0 before, 2.12.0 after" in notes
    assert "version python: 3.12.9 before, not there after" in notes


def test_runs_that_share_nothing_are_refused():
    with pytest.raises(UserError, match="name two runs of the same study"):
        judge_change(runs.act(), runs.rtc())
    before, after = runs.act(), runs.act()
    before.measurements, after.measurements = before.measurements[:1], after.measurements[1:]
    with pytest.raises(UserError, match=r"inference before, training forward after"):
        judge_change(before, after)


def test_the_gate_asks_for_a_shown_slow_down_above_the_threshold():
    difference = judge_change(runs.act(), slower())
    ratio = difference.measurements[0].verdict.ratio
    assert outcomes(difference)["inference"] == "broken"
    assert outcomes(difference, ratio - 1.001)["inference"] == "broken"
    assert outcomes(difference, ratio - 0.999)["inference"] != "broken"
    assert outcomes(judge_change(slower(), runs.act()))["inference"] == "held"


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("after", [148.0, 1480.0])
def test_too_few_samples_are_not_judged(count, after):
    (one,) = gate(diff(sized_result(60, 148.0), sized_result(count, after, seed=1)))
    assert one.outcome == "not judged"
    assert f" and {count}: " in one.why
    assert "--iterations" in one.why


def test_noise_that_hides_a_slow_down_is_not_judged_unless_as_much_is_allowed():
    before, after = sized_result(60, 148.0), sized_result(60, 148.0, seed=1)
    chance = random.Random(3)
    for result in (before, after):
        values = [148 * (1 + abs(chance.gauss(0, 0.6))) for _ in range(60)]
        result.measurements[0].samples.values = values
    difference = diff(before, after)
    (one,) = gate(difference, 0.05)
    assert one.outcome == "not judged"
    assert "--fail-on-regression=" in one.why
    assert outcomes(difference, difference.measurements[0].verdict.interval.high) == {"inference": "held"}


def test_what_the_run_after_did_not_measure_is_not_judged():
    after = rerun_result()
    after.measurements = after.measurements[:1]
    assert outcomes(judge_change(runs.act(), after)) == {"inference": "held", "training forward": "not judged"}


@pytest.mark.parametrize(
    "change",
    [
        {"threads": 1}, {"cores": 8}, {"device_name": "a faster CPU"}, {"source": "another/checkpoint"},
        {"parameters": 7}, {"dtypes": {"bfloat16": 51_597_190}}, {"kind": "pi05"},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_runs_of_unlike_work_are_not_judged_and_what_differs_is_said(change):
    """Whichever is the slower one: a larger policy, or a slower machine, is no regression."""
    for after in (rerun_result(), slower()):
        owner = "machine" if hasattr(after.machine, next(iter(change))) else "subject"
        setattr(after, owner, getattr(after, owner).model_copy(update=change))
        found = [one for one in gate(judge_change(runs.act(), after)) if one.what == "inference"]
        assert [one.outcome for one in found] == ["not judged"]
        assert found[0].why.count("→") == 1


def test_a_difference_that_rounds_to_none_has_no_negative_zero():
    before, after = sized_result(60, 148.0), sized_result(60, 148.0, seed=1)
    after.measurements[0].samples.values = [0.99999 * ms for ms in before.measurements[0].samples.values]
    after.subject = after.subject.model_copy(update={"parameters": 7})
    (one,) = gate(diff(before, after))
    assert "measured: +0.0 %" in one.why


def test_parts_are_judged_at_a_level_that_allows_for_their_number():
    (only,) = judge_change(runs.act(), slower()).measurements
    assert {c.verdict.interval.level for c in only.components if c.verdict} == {1 - 0.05 / only.judged}
    assert only.verdict.interval.level == 0.95


@pytest.mark.long
def test_many_parts_without_a_change_rarely_claim_one():
    """The chance of any false claim in a measurement is held near 5 %, not 5 % for each of its parts."""
    claims = 0
    for seed in range(40):
        chance = random.Random(seed)
        trees = [runs.measurement("m", runs.ACT, 100.0) for _ in range(2)]
        for m in trees:
            for part in m.components:
                part.values = [10 * (1 + chance.gauss(0, 0.05)) for _ in range(40)]
                part.summary, part.share = runs.summary(part.values), 0.1
        before, after = runs.act(measurements=trees[:1]), runs.act(measurements=trees[1:])
        claims += bool(judge_change(before, after).measurements[0].components)
    assert claims <= 6


def test_the_real_verdict_fits():
    difference = diff(runs.act(), slower())
    assert difference.measurements[0].verdict.kind == "slower"
    same = diff(runs.act(), runs.act())
    assert same.measurements[0].verdict.kind in ("no difference shown", "inconclusive")


def test_interrupted_runs_are_named_at_the_top():
    text = markdown.render(kinds.document(judge_change(runs.act(), runs.act(status="interrupted"))))
    assert text.index("Interrupted:") < text.index("## ")
