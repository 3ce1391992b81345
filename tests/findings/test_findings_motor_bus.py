"""Findings on the motors' bus and on turns of the CPU, from made-up events whose cause is known: each alone."""

from __future__ import annotations

from typing import Any

import pytest
from support.made_up_rollout import MS, header, rtc

from strobe.kinds import advise
from strobe.loops.reader import read_course
from strobe.results.rollout import Rehearsal, RolloutResult, ServoLeft
from strobe.studies.rollout.answer import answer_of

PERIOD = round(1e9 / 30)


def read(
    tick: int,
    ms: float = 2.0,
    *,
    lost: int = 0,
    damaged: int = 0,
    waiting: int = 0,
    cpu: float = 0.95,
    waited: float = 0.0,
) -> Any:
    start, took = tick * PERIOD, ms * MS
    return ("bus", start, start + round(took), lost, damaged, waiting, round(cpu * took), round(waited * took))


def answered(reads: list[Any], *turns: Any) -> RolloutResult:
    first, *events = rtc(lambda _: 90.0)
    began = [("turns", 0, *turns[0])] if turns else []
    ended = [("turns", 10_000 * MS, *turns[1])] if turns else []
    facts = header()
    *events, end = [first, *began, *reads, *events]
    return answer_of(facts, read_course(facts, [*events, *ended, end]))


def rules(result: RolloutResult) -> list[str]:
    return [one.rule for one in advise(result)]


def test_a_bus_that_answers_at_once_is_no_finding() -> None:
    result = answered([read(tick) for tick in range(200)])
    assert rules(result) == []
    bus = result.rollout.bus
    assert bus is not None
    assert (bus.lost, bus.damaged, bus.stale, bus.failed_reads) == (0, 0, 0, 0)
    assert bus.ms.median == pytest.approx(2.0)
    assert bus.on_cpu == pytest.approx(0.95)


def test_answers_to_an_earlier_question_come_before_all_else() -> None:
    reads = [read(tick, waiting=48 if tick > 90 else 0, lost=int(tick == 90)) for tick in range(200)]
    result = answered(reads)
    (finding,) = advise(result)
    assert finding.rule == "stale-observations"
    assert "From 3.0 s on, 109 reads" in finding.seen
    assert "also the last one" in finding.seen
    assert "33 ms older" in finding.do


def test_bytes_left_over_once_are_no_finding() -> None:
    assert rules(answered([read(tick, waiting=12 if tick == 50 else 0) for tick in range(200)])) == []


@pytest.mark.parametrize(("kind", "rule"), [("lost", "lost-answers"), ("damaged", "damaged-answers")])
def test_tries_that_failed_are_told_with_their_price(kind: str, rule: str) -> None:
    reads = [read(tick, 52.0, **{kind: 1}) if tick % 50 == 0 else read(tick) for tick in range(200)]  # type: ignore[arg-type]
    (finding,) = advise(answered(reads))
    assert finding.rule == rule
    assert "4 tries in 4 of 200 reads" in finding.seen
    assert "52.0 ms (median), the others 2.0 ms" in finding.seen


def test_slow_reads_are_the_buss_or_another_threads() -> None:
    assert rules(answered([read(tick, 12.0) for tick in range(200)])) == ["slow-bus"]
    assert rules(answered([read(tick, 12.0, cpu=0.2) for tick in range(200)])) == ["threads-fight"]


def test_who_has_the_cpus_is_who_is_named() -> None:
    reads = [read(tick, 12.0, cpu=0.2, waited=0.7) for tick in range(200)]
    second = 1000 * MS
    others = answered(reads, (0, 0, 0), (2 * second, 3 * second, 19 * second))
    assert rules(others) == ["busy-machine"]
    turns = others.rollout.turns
    assert turns is not None
    assert (turns.waited_share, turns.own_cpus, turns.other_cpus) == pytest.approx((0.2, 0.3, 1.6))
    own = answered(reads, (0, 0, 0), (2 * second, 16 * second, 18 * second))
    assert rules(own) == ["busy-process"]
    calm = answered([read(tick) for tick in range(200)], (0, 0, 0), (second // 10, second, 2 * second))
    assert rules(calm) == []
    elsewhere = answered(reads, (-1, 0, 0), (-1, 0, 0))  # not Linux
    assert elsewhere.rollout.turns is None


def test_motors_that_end_the_run_are_named_by_the_error() -> None:
    result = answered([read(tick) for tick in range(60)] + [read(60, 152.0, lost=3)])
    result.status = "failed"
    result.rollout.error = (
        "ConnectionError: Failed to sync read 'Present_Position' on ids=[1]. There is no status packet!"
    )
    (finding,) = advise(result)
    assert finding.rule == "motors-gone"
    assert "3 tries had no answer" in finding.seen


def test_torque_that_was_left_on_is_named_joint_by_joint() -> None:
    result = answered([read(tick) for tick in range(60)])
    left = [
        ServoLeft(joint=name, id=id, torque=id > 1, lock=True, goal=2047, present=2047, celsius=30)
        for id, name in enumerate(("pan", "lift", "elbow"), start=1)
    ]
    result.rollout.rehearsal = Rehearsal(frames="", calibration="", latency_ms=1.0, arms={"robot": left})
    (finding,) = advise(result)
    assert finding.rule == "torque-left-on"
    assert "lift, elbow" in finding.seen
    assert "pan" not in finding.seen


def test_ticks_that_a_lost_answer_made_late_are_told_once() -> None:
    late = [7, 31, 55, 79, 103]
    events = rtc(lambda _: 90.0, extra=lambda tick: [("observation", 52.0)] if tick in late else [])
    starts = [event[1] for event in events if event[0] == "tick"]
    reads = [
        ("bus", start, start + round((51 if tick in late else 2) * MS), int(tick in late), 0, 0, 2 * MS, 0)
        for tick, start in enumerate(starts)
    ]
    first, *rest, end = events
    facts = header()
    assert rules(answer_of(facts, read_course(facts, [first, *reads, *rest, end]))) == ["lost-answers"]
    assert "slow-loop" in rules(answer_of(facts, read_course(facts, events)))
