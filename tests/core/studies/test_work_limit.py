"""A command's whole work ends within its limit; what did not fit is left out and named, with the seconds it needs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.examples.runs import act
from support.fakes.progress_log import ProgressSeen
from support.fakes.sleeper import Clock, Sleeper

from strobe.core.cli.live import Live
from strobe.core.cli.runner import Studied
from strobe.core.measure import ceiling
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.measure.time_limit import OTHER_S, TimeLimit, WorkLimit
from strobe.core.results.subject import Ceiling
from strobe.core.studies.breakdown import breakdown
from strobe.core.studies.compare import compare
from strobe.core.studies.shared import counting, measuring
from strobe.core.studies.shared.gradients import gradients
from strobe.core.studies.shared.machine_state import measure_machine
from strobe.core.studies.shared.measuring import Options
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.policy_cli.subject import Profilers
from strobe.traces import operators

S = 10.0  # of the rounds
WHOLE = 4 * S + 2 * OTHER_S


@cache
def tiny() -> PolicySubject:
    return load_tiny_subject("act")


def seconds_named(note: str) -> int:
    named = re.search(r"give --seconds=(\d+)$", note)
    assert named is not None, note
    return int(named[1])


def test_the_whole_takes_four_times_the_rounds_and_a_minute(clock: Clock) -> None:
    limit = WorkLimit(S)
    assert limit.fits(WHOLE - 1)
    assert not limit.fits(WHOLE + 1)
    clock.sleep(50.0)
    assert limit.fits(WHOLE - 60)
    assert not limit.fits(WHOLE - 40)
    limit.exclude(50.0)
    assert limit.fits(WHOLE - 10)
    limit.extend(-5.0)
    limit.extend(20.0)
    assert limit.fits(WHOLE + 30)
    assert WorkLimit().fits(1e9), "without seconds there is no limit"
    assert WorkLimit(S, phases=2).fits(WHOLE * 2 - 1)


@pytest.mark.parametrize("phases", [1, 3])
def test_the_seconds_that_are_named_are_enough(clock: Clock, phases: int) -> None:
    limit = WorkLimit(S, phases)
    clock.sleep(phases * WHOLE - 20.0)
    assert not limit.fits(100.0)
    enough = seconds_named(limit.leave_out("a profile was not recorded", 100.0))
    longer_rounds_s = phases * (enough - S)
    assert limit.took + longer_rounds_s + 100.0 < phases * (4 * enough + 2 * OTHER_S)
    assert enough < 100, "and no more than it takes"


def test_a_phase_of_the_work_ends_with_it(clock: Clock) -> None:
    looks = TimeLimit(1e6, within=WorkLimit(S))
    assert not looks.is_spent
    clock.sleep(WHOLE + 1)
    assert looks.is_spent


def options(**more: Any) -> Options:
    budget = SamplingBudget(iterations=3, seconds=S)
    return Options(budget, **{"probed": False, "limit": WorkLimit(S), **more})


def test_slow_rounds_take_the_place_of_the_seconds(clock: Clock) -> None:
    subject: Any = Sleeper(clock)
    subject.ms["vision"] = 60e3  # three rounds take three minutes
    chosen = options(counted=False)
    breakdown(subject, ["inference"], chosen)
    assert not chosen.limit.left_out
    assert chosen.limit.fits(400.0)


def test_counting_that_would_not_end_in_time_is_left_out(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "count", lambda *_: pytest.fail("counted"))
    subject: Any = Sleeper(clock)
    chosen = options(limit=WorkLimit(S))
    clock.sleep(WHOLE)
    measured = measuring.measure(subject, "inference", [Variant("baseline")], chosen)
    assert not measured.counts
    (note,) = chosen.limit.left_out
    assert note.startswith("FLOP and memory of baseline were not counted: the time was used up")


def test_phases_that_there_is_no_time_for_are_named(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    subject: Any = Sleeper(clock)
    chosen = options(counted=False, limit=WorkLimit(S, 2))
    call = subject.call

    def slow_end(*given: Any) -> Callable[[int], Any]:
        run = call(*given)
        return lambda index: (run(index), clock.sleep(3 * WHOLE if index == 2 else 0.0))[0]

    monkeypatch.setattr(subject, "call", slow_end)
    monkeypatch.setattr(WorkLimit, "extend", lambda *_: None)
    result, measured = breakdown(subject, ["inference", "training forward"], chosen)
    assert len(measured) == 1
    assert any(note.startswith("training forward was not measured: the time was used up") for note in result.notes)


class TestCeiling:
    @pytest.fixture(autouse=True)
    def slow(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Each product takes three seconds."""
        products: list[str] = []

        def product(_: Any, dtype: torch.dtype) -> float:
            clock.sleep(3.0)
            products.append(str(dtype).removeprefix("torch."))
            return 1.0

        monkeypatch.setattr(ceiling, "_product", product)
        monkeypatch.setattr(ceiling, "_vector", lambda _: 1.0)
        monkeypatch.setattr(ceiling, "_stream", lambda _: 1.0)
        return products

    def test_each_figure_is_measured_once_where_time_is_short(self, slow: list[str]) -> None:
        limit = WorkLimit(S)
        described = measure_machine(torch.device("cpu"), ["float32", "bfloat16"], ProgressSeen(), limit)
        assert slow == ["float32", "bfloat16", "int8"]
        assert set(described.ceiling.gflops) == set(slow)
        assert not limit.left_out

    def test_figures_that_there_is_no_time_for_are_named(self, clock: Clock, slow: list[str]) -> None:
        limit = WorkLimit(S)
        clock.sleep(WHOLE - 4.0)
        described = measure_machine(torch.device("cpu"), ["float32", "bfloat16"], ProgressSeen(), limit)
        assert slow == ["float32", "bfloat16"]
        assert described.ceiling.vector_gflops is None
        (note,) = limit.left_out
        assert "(products in int8, elementwise work, memory): the time was used up" in note

    def test_it_is_not_measured_once_more_without_time(
        self, clock: Clock, slow: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(measuring, "exceeds_ceiling", lambda _: True)
        subject: Any = Sleeper(clock)
        chosen = options(counted=False)
        clock.sleep(WHOLE)
        measuring.measure(subject, "inference", [Variant("baseline")], chosen, Ceiling(gflops={"float32": 1e-6}))
        assert not slow
        assert any("not measured once more" in note for note in chosen.limit.left_out)


class TestGradients:
    variants = (Variant("baseline"), Variant("one"), Variant("two"))

    def test_variants_that_there_is_no_time_for_are_named(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        limit, subject = WorkLimit(S), tiny()
        passed = subject.gradient

        def slowly(*given: Any, **more: Any) -> Any:
            clock.sleep(WHOLE / 4)
            return passed(*given, **more)

        monkeypatch.setattr(subject, "gradient", slowly)
        check = gradients(subject, self.variants, 2, limit=limit, step_s=1.0)
        assert set(check.agreements) == {"one"}
        (note,) = limit.left_out
        assert note.startswith("the gradient of two was not compared: the time was used up")

    def test_a_comparison_that_does_not_fit_is_not_begun(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        limit, subject = WorkLimit(S), tiny()
        monkeypatch.setattr(subject, "gradient", lambda *_, **__: pytest.fail("begun"))
        check = gradients(subject, self.variants, 2, limit=limit, step_s=WHOLE / 2)
        assert not check.agreements
        assert limit.left_out[0].startswith("gradients were not compared: the time was used up")

    def test_ctrl_c_keeps_the_variants_that_were_compared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        subject, calls = tiny(), list[None]()
        passed = subject.gradient

        def stop(*given: Any, **more: Any) -> Any:
            calls.append(None)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return passed(*given, **more)

        monkeypatch.setattr(subject, "gradient", stop)
        chosen = Options(SamplingBudget(iterations=2), counted=False, batch_size=2)
        result, _ = compare(subject, self.variants, "training step", chosen)
        assert result.status == "interrupted"
        of = {comparison.candidate: comparison.gradient for comparison in result.comparisons}
        assert of["one"] is not None
        assert of["two"] is None
        assert any(note.endswith("gradients of these were compared: two") for note in result.notes)


def test_a_profiler_that_does_not_fit_is_left_out(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def watch_profiler(*_: Any, **__: Any) -> Any:
        begun.append("operators")
        return SimpleNamespace(profile=None, sections=[], events=[], document=b"")

    monkeypatch.setattr(operators, "profile_operators", watch_profiler)
    flags: Any = SimpleNamespace(
        operators=True,
        nvtx=False,
        memory=False,
        skip_detailed=False,
        python_profile=None,
        memory_snapshot=False,
        profile_functions=None,
    )
    subject: Any = SimpleNamespace(device=torch.device("cpu"))
    profilers = Profilers(subject, flags, options())
    answer = Studied(act().model_copy(update={"notes": []}), {}, None, None)
    profilers.look(answer, "inference", Variant("baseline"), Live())
    assert (begun, answer.result.notes) == (["operators"], [])
    clock.sleep(WHOLE - 0.1)
    profilers.look(answer, "inference", Variant("baseline"), Live())
    assert begun == ["operators"]
    (note,) = answer.result.notes
    assert note.startswith("operators were not recorded: the time was used up; give --seconds=")
