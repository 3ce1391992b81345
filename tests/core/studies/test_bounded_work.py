"""Each phase of a study shows how far it is, ends in its time, and keeps what it had when Ctrl-C comes."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch
from support.fakes.progress_log import ProgressSeen
from support.fakes.sleeper import Clock, Sleeper

from strobe.core.cli import live
from strobe.core.measure import ceiling
from strobe.core.measure.sampling import Progress, SamplingBudget
from strobe.core.sameness.reordered import features_reordered
from strobe.core.studies.compare import compare
from strobe.core.studies.shared import counting as counts
from strobe.core.studies.shared import measuring
from strobe.core.studies.shared.machine_state import measure_machine
from strobe.core.studies.shared.measuring import LATE, Options, Session
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions


def test_the_ceiling_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "_SECONDS", 1e-3)
    monkeypatch.setattr(ceiling, "_SIDES", (64,))
    kept = ProgressSeen()
    measure_machine(torch.device("cpu"), ["float32"], kept)
    (told,) = kept.stages.values()
    assert [one.done for one in told] == list(range(1, len(told) + 1))
    assert {one.expected for one in told} == {len(told)}
    assert told[-1].seconds_left == 0


class Counting:
    """Counting that takes its seconds by a clock, by the variant's name; Ctrl-C comes in at -1."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock().wind(monkeypatch)
        self.seconds: dict[str, float] = {}
        count = counts.count

        def slowly(subject: Any, variant: Variant, *more: Any) -> Any:
            if self.seconds[variant.name] < 0:
                raise KeyboardInterrupt
            self.clock.sleep(self.seconds[variant.name])
            return count(subject, variant, *more)

        monkeypatch.setattr(counts, "count", slowly)

    def measure(self, one: float, two: float, three: float, kept: ProgressSeen) -> measuring.Measured:
        """Measure three variants, whose counting takes so many seconds."""
        self.seconds = {"one": one, "two": two, "three": three}
        options = Options(SamplingBudget(iterations=3, seconds=10.0), probed=False)
        sleeper: Any = Sleeper(self.clock)
        variants = [Variant(name) for name in self.seconds]
        return Session(sleeper, "inference", variants, options, None, kept).measure()


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


def test_counting_ends_in_its_time_and_says_what_was_left_out(counting: Counting) -> None:
    kept = ProgressSeen()
    measured = counting.measure(15.0, 15.0, 15.0, kept)
    assert set(measured.counts) == {"one", "two"}
    assert [LATE in one.notes for one in measured.measurements] == [False, False, True]
    told = [one for what, stage in kept.stages.items() if "counting" in what for one in stage]
    assert [(one.done, one.expected) for one in told] == [(1, 3), (2, 3)]
    assert told[0].seconds_left == pytest.approx(30.0, rel=0.1)


def test_ctrl_c_in_counting_keeps_what_was_counted(counting: Counting) -> None:
    measured = counting.measure(1.0, -1.0, 1.0, ProgressSeen())
    assert measured.interrupted
    assert set(measured.counts) == {"one"}
    assert all(len(one.samples.values) == 3 for one in measured.measurements)


def test_a_look_that_ctrl_c_ends_leaves_the_comparison_unjudged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rounds alone do not say that actions are the same, where a closer look was begun."""
    from strobe.core.sameness.check import Sameness

    calls: list[None] = []
    act = Sameness._act

    def stop(same: Sameness, *given: Any) -> Any:
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return act(same, *given)

    monkeypatch.setattr(Sameness, "_act", stop)
    subject = load_subject(PolicyOptions(type="act", size="tiny", overrides=["--device=cpu"]))
    options = Options(SamplingBudget(iterations=3), counted=False)
    result, _ = compare(subject, [Variant("one"), Variant("two")], "inference", options)
    assert result.status == "interrupted"
    (comparison,) = result.comparisons
    assert len(result.measurements) == 2
    assert comparison.outcome == "not judged"
    assert "stopped before" in (comparison.unjudged or "")


def test_features_are_looked_at_on_fewer_clips_where_time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    from strobe.core.measure.time_limit import LookInterrupted, TimeLimit

    clock = Clock().wind(monkeypatch)
    subject: Any = Sleeper(clock)
    stop_at = [0]

    def call(index: int) -> torch.Tensor:
        clock.sleep(1.0)
        if index + 1 == stop_at[0]:
            raise KeyboardInterrupt
        return torch.randn(16, 4, generator=torch.Generator().manual_seed(index))

    monkeypatch.setattr(subject, "call", lambda *_: call)
    told: list[tuple[int, int]] = []
    moved = features_reordered(subject, Variant("x"), 4, lambda *done: told.append(done), TimeLimit(3.5))
    assert moved is not None
    assert moved.observations == 2
    assert told == [(1, 4), (2, 4)]
    stop_at[0] = 3
    with pytest.raises(LookInterrupted) as stopped:
        features_reordered(subject, Variant("x"), 4)
    assert stopped.value.found.observations == 2


def test_a_log_is_told_that_a_long_call_still_goes_on(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    now = [100.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    shown = live.Live()
    shown.stage("counting")
    now[0] += live.QUIET_S - 1
    shown.look()
    now[0] += 2
    shown.look()
    now[0] += live.EVERY_S - 1
    shown.look()
    now[0] += 2
    shown.progress(Progress(3, 9, 1.0, 60.0, "calls"))
    now[0] += live.EVERY_S + 1
    shown.look()
    shown.stage("another")
    shown.look()
    assert capsys.readouterr().err.splitlines() == [
        "… counting",
        "… counting: 11 s so far",
        "… counting: 3 of 9 calls, about 60 s left",
        "… counting: 73 s so far (3 calls done)",
        "… another",
    ]


def test_work_that_is_usually_over_at_once_is_named_where_it_takes_long(capsys, monkeypatch) -> None:
    before = set(threading.enumerate())
    with live.shown_if_slow("saving the run"):
        pass
    assert not capsys.readouterr().err
    monkeypatch.setattr(live, "SLOW_S", 0.01)
    with live.shown_if_slow("saving the run"):
        end, said = time.monotonic() + 5, ""
        while "so far" not in said and time.monotonic() < end:
            said += capsys.readouterr().err
            time.sleep(0.01)
    assert said == "… saving the run: 0 s so far\n", "once; the next line comes half a minute later"
    assert not set(threading.enumerate()) - before


def test_the_watch_ends_with_the_work(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "QUIET_S", 0.0)
    monkeypatch.setattr(live, "LOOK_S", 0.01)
    before = set(threading.enumerate())
    with live.Live() as shown:
        shown.stage("a long call")
        assert set(threading.enumerate()) - before
        end = time.monotonic() + 5
        while "so far" not in (said := capsys.readouterr().err) and time.monotonic() < end:
            time.sleep(0.01)
    assert "… a long call: 0 s so far" in said
    assert not set(threading.enumerate()) - before
