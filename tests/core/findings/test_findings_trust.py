"""Findings on figures that are to be trusted less: unnamed time, silent probes, few samples."""

from collections.abc import Sequence
from random import Random
from typing import Any

from support.examples.findings_results import approve_findings, make_comparison, make_measurement, result, rules

from strobe.core.report.breakdown import answers
from strobe.core.results.answer import CompareResult
from strobe.core.results.call_times import Growth, find_growth
from strobe.core.timeline.sections import STOPPED


def make_unnamed_share(ms: float) -> Any:
    """A share of 'other' that is summed over the first two levels."""
    return result(make_measurement({
        "policy": 97.0, "policy/encoder": 90.0, "policy/encoder/other": 30.0, "policy/other": 3.0, "other": ms,
    }))  # fmt: skip


def make_judged_result(kind: str, low: float = 1.1, cause: Any = "noise") -> Any:
    """A comparison whose interval excludes 1, unless ``low`` does not."""
    one = make_comparison(kind)
    one.verdict.interval.low, one.verdict.cause = low, cause
    return result(comparisons=[one], of=CompareResult)


def make_calls(times: Sequence[float], machine_change: float | None, notes: Sequence[str] = ("drift",)) -> Any:
    calls = make_measurement({}, notes=list(notes))
    calls.samples.values, calls.samples.machine_change = list(times), machine_change
    return result(calls)


def make_queue_result(period: int) -> Any:
    """Calls of 0.1 ms, of which each so many takes 30 ms."""
    few = make_measurement({}, n=40, whole=0.1)
    few.samples.values = [30.0 if index % period == 0 else 0.1 for index in range(40)]
    return result(few)


def test_what_is_found() -> None:
    approve_findings("trust", {
        "other-large": {
            "5 % in no named part": ("", make_unnamed_share(2.0)),
            "5.1 % in no named part": ("other-large", make_unnamed_share(2.1)),
            "a policy without a record": ("other-large", result(make_measurement({"other": 50.0}), anatomy="modules")),
        },
        "unseen-parts|unsteady|calls-grow": {
            "a probe that saw nothing": ("unseen-parts", result(make_measurement({}, unseen={"encoder": "compiled"}))),
            "calls that grow": ("calls-grow", make_calls(range(8, 58), 1.003)),
            "drift": ("unsteady", result(make_measurement({}, notes=["drifted 8 % slower"]))),
            "neither": ("", result(make_measurement({}))),
        },
        "inconclusive": {
            "too short to judge": ("inconclusive", make_judged_result("inconclusive")),  # longer, not quieter
            "a wide interval": ("inconclusive", make_judged_result("inconclusive", 0.7)),
            "a queue of actions": ("inconclusive", make_judged_result("inconclusive", 0.7, "a queue")),
            "shown": ("", make_judged_result("slower")),
        },
        "few-calls-work": {
            "each tenth fills a queue": ("few-calls-work", make_queue_result(10)),
            "each call is like the others": ("", make_queue_result(1)),
            "two of three are slow": ("", make_calls([5.0, 100.0, 100.0], None, [])),
        },
        "few-samples": {
            "9 samples": ("few-samples", result(make_measurement({}, n=9))),
            "10 samples": ("", result(make_measurement({}, n=10))),
        },
        "stand-ins": {
            "a stand-in": ("stand-ins", result(stand_ins=["a tokenizer"])),
            "no stand-in": ("", result())
        },
    })  # fmt: skip


def test_calls_that_grow_are_told_from_a_machine_that_slows_down() -> None:
    growing = make_calls(range(8, 58), None)
    assert "calls-grow" in rules(growing)
    assert answers(growing)[0].endswith("inference take longer and longer.")
    assert answers(growing)[1].startswith("9 ms in the first calls, 56 ms in the last of 50")
    for times in (range(100, 140), [100 - 20 * 0.9**at for at in range(60)]):
        assert "cool down" in rules(make_calls(times, 1.3))["unsteady"].do
        assert "cool down" not in rules(make_calls(times, 1.0)).popitem()[1].do
    assert "sections" in rules(result(make_measurement({}, unseen={"read": STOPPED})))["unseen-parts"].do


def test_growth_begins_anew_after_a_reset_that_helps() -> None:
    episode, begins = list(range(8, 48)), range(0, 200, 40)
    assert find_growth(episode * 5, begins) == Growth(first_ms=9, last_ms=46, calls=40, resets=4)
    assert find_growth(range(8, 208), begins) == Growth(first_ms=9, last_ms=206, calls=200, resets=0)
    assert find_growth([*range(100, 8, -4), *[8] * 60]) is None  # a slow start
    random = Random(0)
    assert not any(find_growth([random.lognormvariate(2, 0.5) for _ in range(40)]) for _ in range(200))
    assert not any(find_growth([8] * at + [12] * (60 - at)) for at in range(61))  # a program was started
