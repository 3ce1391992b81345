"""Findings on figures that are to be trusted less: unnamed time, silent probes, few samples."""

from typing import Any

from support.findings_results import approve_findings, compared, measured, result

from strobe.core.results.answer import CompareResult


def unnamed(ms: float) -> Any:
    """A share of 'other' that is summed over the first two levels."""
    return result(measured({
        "policy": 97.0, "policy/encoder": 90.0, "policy/encoder/other": 30.0, "policy/other": 3.0, "other": ms,
    }))  # fmt: skip


def judged(kind: str, low: float = 1.1, cause: Any = "noise") -> Any:
    """A comparison whose interval excludes 1, unless ``low`` does not."""
    one = compared(kind)
    one.verdict.interval.low, one.verdict.cause = low, cause
    return result(comparisons=[one], of=CompareResult)


def of_a_queue(period: int) -> Any:
    """Calls of 0.1 ms, of which each so many takes 30 ms."""
    few = measured({}, n=40, whole=0.1)
    few.samples.values = [30.0 if index % period == 0 else 0.1 for index in range(40)]
    return result(few)


def test_what_is_found() -> None:
    approve_findings("trust", {
        "other-large": {
            "5 % in no named part": ("", unnamed(2.0)),
            "5.1 % in no named part": ("other-large", unnamed(2.1)),
            "a policy without a record": ("other-large", result(measured({"other": 50.0}), anatomy="modules")),
        },
        "unseen-parts|unsteady": {
            "a probe that saw nothing": ("unseen-parts", result(measured({}, unseen={"encoder": "compiled"}))),
            "drift": ("unsteady", result(measured({}, notes=["drifted 8 % slower"]))),
            "neither": ("", result(measured({}))),
        },
        "too-noisy": {
            "too short to judge": ("too-noisy", judged("too noisy")),  # is to be longer, and not quieter
            "too noisy to judge": ("too-noisy", judged("too noisy", 0.7)),
            "a queue of actions": ("too-noisy", judged("too noisy", 0.7, "a queue")),
            "shown": ("", judged("slower")),
        },
        "few-calls-work": {
            "each tenth fills a queue": ("few-calls-work", of_a_queue(10)),
            "each call is like the others": ("", of_a_queue(1)),
        },
        "few-samples": {
            "9 samples": ("few-samples", result(measured({}, n=9))),
            "10 samples": ("", result(measured({}, n=10))),
        },
        "stand-ins": {
            "a stand-in": ("stand-ins", result(stand_ins=["a tokenizer"])),
            "no stand-in": ("", result()),
        },
    })  # fmt: skip
