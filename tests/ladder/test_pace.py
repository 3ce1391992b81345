"""Calls at a robot's pace, on a clock of the tests' own.

They begin at their deadlines, and the price of a gap is measured with its ratio.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.fakes.sleeper import Clock, Planted, Sleeper

from strobe.commands.breakdown import read as read_breakdown
from strobe.commands.compare import read as read_compare
from strobe.core.errors import UserError
from strobe.core.kinds import advise, document, page
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.runs import store
from strobe.core.studies.breakdown import PACED, breakdown
from strobe.core.studies.compare import compare
from strobe.core.studies.shared.cadence import ticks_between_calls
from strobe.core.studies.shared.measuring import Options
from strobe.core.subjects.subject import Phase
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Variant
from strobe.ladder.run import optimize
from strobe.ladder.settings import Aim

HZ, TICKS = 30.0, 5
PERIOD = TICKS / HZ
CALL = 0.012


class Config:
    def __init__(self, ticks: int) -> None:
        self.n_action_steps = ticks


class Policy:
    def __init__(self, ticks: int) -> None:
        self.config: Any = Config(ticks)


class Colder(Sleeper):
    """A sleeper that is called every five ticks on a robot.

    After an idle time its first part takes ``after_ms``, until it has worked for 0.1 s: clocks need time to rise.
    """

    def __init__(self, clock: Clock, after_ms: float = 8.0) -> None:
        super().__init__(clock)
        self.policy = Policy(TICKS)
        self.after_ms = after_ms
        self.begun: list[float] = []
        self._ended = self._woken = 0.0

    def call(self, phase: Phase, batch_size: int = 1) -> Callable[[int], Any]:
        inner = super().call(phase, batch_size)

        def run(index: int) -> Any:
            warm = dict(self.ms)
            self.begun.append(self.clock.now)
            if self.clock.now - self._ended > 0.05:
                self._woken = self.clock.now
            if self.clock.now - self._woken < 0.1:
                self.ms["vision"] = self.after_ms
            try:
                return inner(index)
            finally:
                self.ms = warm
                self._ended = self.clock.now

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    wound = Clock().wind(monkeypatch)
    monkeypatch.setattr(time, "sleep", wound.sleep)
    return wound


def options(pace_hz: float | None = HZ, rounds: int = 20) -> Options:
    return Options(SamplingBudget(iterations=rounds), counted=False, pace_hz=pace_hz, checked=False)


def broken_down(subject: Any, **more: Any):
    result, _ = breakdown(subject, ["inference"], options(**more))
    return result


def test_a_price_of_the_gaps_is_found_told_and_advised_on(clock, tmp_path):
    result = broken_down(Colder(clock, after_ms=11.0))
    assert [m.name for m in result.measurements] == ["inference", PACED]
    gap = result.gap
    assert gap is not None
    assert gap.verdict.kind == "slower"
    assert gap.verdict.ratio == pytest.approx(15 / 12, rel=0.01)
    assert gap.verdict.interval.low < 1.25 < gap.verdict.interval.high
    assert gap.verdict.pairs == 20
    together, paced = result.measurements
    assert together.cadence is None
    assert paced.cadence is not None
    assert (paced.cadence.ticks, paced.cadence.calls, paced.cadence.late) == (TICKS, 20, 0)
    assert paced.cadence.period_ms == pytest.approx(1e3 * PERIOD)
    (told,) = [line for line in document(result).answers if "back to back" in line]
    assert told.startswith("A call takes 12.0")
    assert "at the robot's pace of one every 167 ms (+2" in told
    assert told.endswith("the gaps cost time, because clocks fall and caches lose their content.")
    (finding,) = [one for one in advise(result) if one.rule == "gap-costs"]
    assert "25 %" in finding.title
    assert "cpupower frequency-set -g performance" in finding.do
    assert "Cadence" in page(result)
    store.save(result, tmp_path)
    assert store.load(tmp_path) == result


def test_gaps_that_cost_nothing_are_no_finding(clock):
    result = broken_down(Colder(clock))
    assert result.gap is not None
    assert result.gap.verdict.kind == "no difference shown"
    assert not [one for one in advise(result) if one.rule == "gap-costs"]
    assert any("the gaps cost little or nothing" in line for line in document(result).answers)


def test_calls_begin_at_their_deadlines(clock):
    subject = Colder(clock)
    result, _ = compare(
        subject, [Variant("a"), Variant("b", (Planted("b", lambda _: {"head": 6.0}),))], "inference", options()
    )
    begun = np.array(subject.begun)
    due = begun[0] + PERIOD * np.arange(len(begun))
    # Sleeps of this clock are up to 1 % too long or too short; what one is off must not be handed on.
    assert np.all(begun - due >= 0)
    assert np.all(begun - due <= 0.011 * PERIOD)
    assert {m.cadence.ticks for m in result.measurements if m.cadence} == {TICKS}
    assert not any("late" in line for line in document(result).answers)
    assert [c.verdict.kind for c in result.comparisons] == ["slower"]


def test_calls_longer_than_the_period_follow_on_one_another_and_are_told(clock):
    subject = Colder(clock)
    subject.ms = {"vision": 180.0, "head": 20.0}
    subject.after_ms = 180.0
    result, _ = compare(subject, [Variant("a"), Variant("b", (Planted("b"),))], "inference", options())
    begun = np.diff(subject.begun)
    assert np.all(begun == pytest.approx(0.2, rel=0.02)), "back to back: no call waits, none is made up for"
    (first, _) = result.measurements
    assert first.cadence is not None
    assert first.cadence.late == first.cadence.calls == 20
    said = [line for line in document(result).answers if "began late" in line]
    assert said[0].startswith("A: 20 of 20 calls began late: the call before took longer than 166.7 ms")


def test_without_a_pace_calls_are_back_to_back_as_before(clock):
    subject = Colder(clock, after_ms=11.0)
    result = broken_down(subject, pace_hz=None)
    assert [m.name for m in result.measurements] == ["inference"]
    assert result.gap is None
    assert result.measurements[0].cadence is None
    assert np.all(np.diff(subject.begun)[10:] == pytest.approx(CALL, rel=0.02))
    samples = result.measurements[0].samples
    assert len(subject.begun) == len(samples.warmup) + len(samples.values), "every call is timed"
    assert not [section for section in document(result).sections if section.key == "cadence"]


def test_a_climb_is_timed_at_the_robots_pace(clock, monkeypatch):
    from support.fakes.sleeper import entry

    entries = (entry(Planted("skip", lambda _: {"head": 0.0}), "head"),)
    monkeypatch.setattr(catalogue, "own_entries", lambda: entries)
    subject: Any = Colder(clock)
    result, _ = optimize(subject, Aim(target_hz=1000.0, time_limit=120.0), options())
    assert result.ladder is not None
    assert [rung.name for rung in result.ladder.rungs] == ["baseline", "step 1"]
    assert all(m.cadence is not None and m.cadence.late == 0 for m in result.measurements)
    assert any(section.key == "cadence" for section in document(result).sections)


def test_a_call_comes_once_per_executed_chunk():
    class Rtc:
        def __init__(self, enabled: bool) -> None:
            self.enabled, self.execution_horizon = enabled, 10

    subject: Any = type("Subject", (), {})()
    assert ticks_between_calls(subject) == 1, "a backbone"
    subject.policy = Policy(25)
    assert ticks_between_calls(subject) == 25
    subject.policy.config.rtc_config = Rtc(enabled=False)
    assert ticks_between_calls(subject) == 25
    subject.policy.config.rtc_config = Rtc(enabled=True)
    assert ticks_between_calls(subject) == 10
    subject.policy.config = object()
    assert ticks_between_calls(subject) == 1


def test_a_pace_is_for_inference():
    with pytest.raises(UserError, match=r"--pace is for inference, as on a robot, not for 'training forward'"):
        read_breakdown(["--policy.type=act", "--pace=30", "--phases=[training forward]"])
    with pytest.raises(UserError, match=r"--pace is for inference, as on a robot, not for 'training step'"):
        read_compare(["--policy.type=act", "--pace=30", "--levers=auto"])
    with pytest.raises(UserError, match=r"--pace=0.0: must be above 0"):
        read_breakdown(["--policy.type=act", "--pace=0"])
