"""The bench beside the robot: the difference is given to its cause, and what the robot showed is kept.

Causes are judged on made-up figures; of the real run only that they are there.
"""

from __future__ import annotations

import os
import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from support.examples.made_up_rollout import MS, header, rtc
from support.fakes.sleeper import Clock

from strobe.core.kinds import advise, document, page
from strobe.core.runs import store
from strobe.core.timeline.clock import ThreadUse, cpu_ns, waited_ns
from strobe.loops.bench_calls import call_times, compare_places
from strobe.loops.reader import read_record
from strobe.rollout import run as benches
from strobe.rollout.answer import make_answer
from strobe.rollout.run import WatchedRollout


def use(wall: float, cpu: float, waited: float | None = 0.0) -> ThreadUse:
    """Milliseconds of a call, in nanoseconds."""
    return ThreadUse(round(wall * MS), round(cpu * MS), None if waited is None else round(waited * MS))


def make_watched_rollout(call: ThreadUse, *, seconds: float = 12.0) -> WatchedRollout:
    """A run at 30 Hz with calls of 90 ms every 667 ms; each of them used its thread as ``call``."""
    events = []
    for event in rtc(lambda _: 90.0, seconds=seconds):
        if event[0] == "merge":
            events.append(("used", 0, call.wall, call.cpu, -1 if call.waited is None else call.waited))
        events.append(event)
    facts = header()
    record = read_record(facts, events)
    return WatchedRollout(make_answer(facts, record), record=record)


class Calls:
    """A policy on the bench, on a clock of the tests' own: ``busy`` after ``gap_s`` of rest it takes longer."""

    def __init__(self, clock: Clock, call: ThreadUse, colder_ms: float = 0.0) -> None:
        self.clock, self.call, self.colder = clock, call, round(colder_ms * MS)
        self.refusal_reason: str | None = None
        self.made = 0
        self.on_call: Any = lambda number: None
        self._ended = clock.now

    def repeat_call(self) -> ThreadUse:
        self.made += 1
        self.on_call(self.made)
        colder = self.colder if self.clock.now - self._ended > 0.1 else 0
        wall, cpu, waited = self.call
        self.clock.sleep((wall + colder) / 1e9)
        self._ended = self.clock.now
        return ThreadUse(wall + colder, cpu + colder, waited)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    wound = Clock().wind(monkeypatch)
    monkeypatch.setattr("time.sleep", wound.sleep)
    return wound


def make_benched_rollout(
    clock: Clock, robot: ThreadUse, call: ThreadUse, colder_ms: float = 0.0, **more: Any
) -> WatchedRollout:
    found = make_watched_rollout(robot, **more)
    calls: Any = Calls(clock, call, colder_ms)
    found.calls = calls
    benches.bench(found)
    return found


def slower(found: WatchedRollout) -> Any:
    rules = [one for one in advise(found.result) if one.rule == "robot-slower"]
    assert len(rules) <= 1
    return rules[0] if rules else None


@pytest.mark.parametrize(
    ("robot", "cause", "said", "do"),
    [
        (use(41, 25), "blocked", "16.0 ms blocked (the GIL", "--display_data=false"),
        (use(41, 25, 16), "waiting for a CPU", "16.0 ms waiting for a CPU", "OMP_NUM_THREADS="),
        (use(41, 41), "on the CPU", "16.0 ms more CPU time", "OMP_NUM_THREADS="),
        (use(46, 25, 7), "blocked", "14.0 ms blocked (the GIL, locks, the device), 7.0 ms waiting for a CPU", "GIL"),
    ],
)
def test_the_difference_is_given_to_what_the_thread_did_meanwhile(clock, robot, cause, said, do):
    found = make_benched_rollout(clock, robot, use(25, 25))
    bench = found.result.rollout.bench
    assert bench is not None
    assert {one.place for one in bench.times} == {"bench", "bench at the robot's pace", "robot"}
    assert bench.shares[0].cause == cause
    here, there = bench.call_times("robot"), bench.call_times("bench")
    assert here is not None
    assert there is not None
    assert sum(one.ms for one in bench.shares) == pytest.approx(here.wall_ms - there.wall_ms)
    calls = found.result.rollout.inference
    assert calls is not None
    assert here.calls == calls.calls - 1, "the first is apart"
    (answer,) = [line for line in document(found.result).answers if "on the bench" in line]
    assert said in answer
    assert "25.0 ms on the bench (+" in answer
    finding = slower(found)
    assert finding.evidence["cause"] == cause
    assert do in finding.do or do in finding.why


def test_a_price_of_the_gaps_is_clocks_and_not_the_robots_company(clock):
    found = make_benched_rollout(clock, use(41, 41), use(25, 25), colder_ms=16)
    bench = found.result.rollout.bench
    assert bench is not None
    assert next((one.cause, round(one.ms, 3)) for one in bench.shares) == ("clocks and gaps", 16.0)
    assert all(one.ms == pytest.approx(0) for one in bench.shares[1:])
    assert bench.period_ms == pytest.approx(667, abs=35)
    assert "governor" in slower(found).do
    assert "16.0 ms from gaps between calls" in " ".join(document(found.result).answers)


def test_calls_that_are_as_fast_on_the_robot_are_no_finding(clock, tmp_path):
    found = make_benched_rollout(clock, use(25.1, 25), use(25, 25))
    assert slower(found) is None
    assert any("inconclusive" in line for line in document(found.result).answers)
    assert "Bench, paced" in page(found.result)
    store.save(found.result, tmp_path)
    assert store.load(tmp_path) == found.result


def test_a_bench_takes_about_ten_seconds_and_leaves_out_what_does_not_fit(clock):
    begun = clock.now
    found = make_benched_rollout(clock, use(41, 25), use(25, 25))
    assert clock.now - begun <= 12.5
    begun = clock.now
    slow = make_benched_rollout(clock, use(900, 900), use(700, 700))
    assert clock.now - begun <= 12.5
    bench = slow.result.rollout.bench
    assert bench is not None
    assert [one.place for one in bench.times] == ["bench", "robot"]
    assert any("does not fit in" in note for note in slow.result.notes)
    slower_still = make_benched_rollout(clock, use(3000, 3000), use(3000, 3000))
    bench = slower_still.result.rollout.bench
    assert bench is not None
    assert [one.place for one in bench.times] == ["robot"]
    assert any("too long for 10 s" in note for note in slower_still.result.notes)
    assert not any("on the bench" in line for line in document(slower_still.result).answers)
    assert found.result.notes == []


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
def test_what_ends_the_bench_costs_only_the_bench(clock, number):
    found = make_watched_rollout(use(41, 25))
    calls: Any = Calls(clock, use(25, 25))
    found.calls = calls

    def end(made: int) -> None:
        if made == 2 and number is None:
            raise RuntimeError("the policy holds no queue")
        if made == 2:
            os.kill(os.getpid(), number)

    calls.on_call = end
    before = signal.getsignal(signal.SIGTERM)
    benches.bench(found)
    assert signal.getsignal(signal.SIGTERM) is before
    (note,) = found.result.notes
    assert ("interrupted" if number else "RuntimeError: the policy holds no queue") in note
    bench = found.result.rollout.bench
    assert bench is not None
    assert bench.verdict is None
    assert [one.place for one in bench.times] == ["robot"]
    assert found.result.status == "complete"


def test_a_bench_that_is_cut_short_shows_what_it_has(clock):
    found = make_watched_rollout(use(41, 25))
    calls: Any = Calls(clock, use(25, 25))
    found.calls = calls

    def end(made: int) -> None:
        if made == 60:
            raise KeyboardInterrupt

    calls.on_call = end
    benches.bench(found)
    assert found.result.notes == ["the bench comparison was cut short"]


def test_too_few_calls_are_not_set_beside_the_bench(clock):
    found = make_benched_rollout(clock, use(41, 25), use(25, 25), seconds=3.0)
    assert found.result.notes == ["no bench comparison: it needs 6 policy calls after the first"]
    assert found.result.rollout.bench is None
    assert "bench" not in {section.key for section in document(found.result).sections}


def test_nothing_is_called_while_the_robot_is_connected(clock):
    found = make_watched_rollout(use(41, 25))
    calls: Any = Calls(clock, use(25, 25))
    calls.refusal_reason = "the robot is still connected"
    found.calls = calls
    benches.bench(found)
    assert calls.made == 0
    assert found.result.notes == ["no bench comparison: the robot is still connected"]


def test_where_the_system_tells_no_waiting_it_is_part_of_blocked():
    bench = compare_places([use(41, 25, None)] * 8, [use(25, 25, None)] * 8)
    assert bench is not None
    assert {one.cause for one in bench.shares} == {"blocked", "on the CPU"}
    assert bench.shares[0].ms == pytest.approx(16)
    assert bench.times[0].waiting_ms is None


def test_one_hiccup_does_not_count_and_parts_add_up():
    calls = [use(20 + index, 15, index) for index in range(10)]
    calm, hit = call_times("robot", calls), call_times("robot", [*calls[:-1], use(900, 15, 9)])
    assert hit == calm
    assert calm.wall_ms == 24.5, "the median"
    assert calm.wall_ms == pytest.approx(calm.cpu_ms + (calm.waiting_ms or 0) + calm.blocked_ms)


def test_a_thread_that_sleeps_is_neither_running_nor_waiting():
    seen = SimpleNamespace(cpu=0, waited=0)

    def sleep() -> None:
        before = waited_ns()
        cpu = cpu_ns()
        threading.Event().wait(0.2)
        seen.cpu = cpu_ns() - cpu
        after = waited_ns()
        seen.waited = 0 if before is None or after is None else after - before

    thread = threading.Thread(target=sleep)
    thread.start()
    thread.join()
    assert seen.cpu < 100 * MS
    assert seen.waited >= 0
