"""What LeRobot's own timer says of a run is compared with the ticks that Strobe saw."""

from __future__ import annotations

import pytest
from support.made_up_rollout import header, rtc

from strobe.core.kinds import advise
from strobe.loops.reader import read_record
from strobe.rollout.answer import make_answer
from strobe.rollout.findings.lerobot_timer import parse_last_summary

# Printed by CycleTimer of LeRobot 0.6.2 (commit 7427f3180) over 40 ticks, with a multiplier of 1 and of 2.
PLAIN = """Cadence summary — whole run · target 30 Hz (33.3 ms budget per tick): 40 ticks, 39 judged
  effective cadence: 29.28 Hz over 1.3 s measured
  ticks over the 33.3 ms work budget: 0/39 (0.0%) — work mean 4.9 ms, worst 13.3 ms
  pacing headroom: 29.2 ms slept per tick on average (max 34.0 ms) — near zero means the loop is saturated"""
DOUBLED = """Cadence summary — whole run · target 30 Hz × 2 (16.7 ms tick slot, 33.3 ms cycle budget): 40 ticks
  effective cadence: 29.88 Hz policy / 59.75 Hz commands over 0.7 s measured"""


def timer_findings(rate: str, seconds: str) -> list[str]:
    """Findings of a made-up run of 8 s at 30 Hz whose timer says so."""
    report = PLAIN.replace("29.28 Hz", rate).replace("1.3 s", seconds)
    events = rtc(lambda _: 90.0)
    facts = header()
    result = make_answer(facts, read_record(facts, [*events[:-1], ("cadence", report), events[-1]]))
    assert result.rollout.cadence == report
    return [each.rule for each in advise(result) if each.rule == "timers-disagree"]


def test_a_rate_that_differs_is_named() -> None:
    assert timer_findings("25.00 Hz", "8.0 s") == ["timers-disagree"]


@pytest.mark.parametrize(("rate", "seconds"), [("30.00 Hz", "8.0 s"), ("29.60 Hz", "8.0 s"), ("25.00 Hz", "80.0 s")])
def test_the_same_rate_and_another_run_are_not(rate: str, seconds: str) -> None:
    assert timer_findings(rate, seconds) == []


def test_ticks_are_commands_and_not_calls_of_the_policy() -> None:
    assert parse_last_summary(DOUBLED) == (59.75, 0.7)
    assert parse_last_summary(PLAIN) == (29.28, 1.3)


@pytest.mark.parametrize("report", ["", "too short to measure a rate", "effective cadence: 1.2.3 Hz over 4 s"])
def test_a_report_without_a_rate_says_nothing(report: str) -> None:
    assert parse_last_summary(report) is None
