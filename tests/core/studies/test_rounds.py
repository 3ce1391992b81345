"""Every round keeps its own parts, whatever the timeline has lost of the others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from support.fakes.sleeper import Clock, Planted, Sleeper
from torch import Tensor

from strobe.core.measure.sampling import SamplingBudget
from strobe.core.studies.shared.measuring import Measured, Options, measure
from strobe.core.subjects.subject import ITERATION, Phase
from strobe.core.timeline import section
from strobe.core.treatments.treatment import Variant

ROUNDS = 12
VARIANTS = [Variant("a"), Variant("b", (Planted("b"),)), Variant("c", (Planted("c"),))]


class Exact(Clock):
    def sleep(self, seconds: float) -> None:
        self.now += seconds


def vision_ms(name: str, index: int) -> float:
    """No two rounds of no two variants take equally long."""
    return 10.0 * ("abc".index(name) + 1) + (index * 7 % 5) * 0.1 + index * 0.001


class Losing(Sleeper):
    """A sleeper that opens the section of an iteration as often as ``opened`` says of a variant's round."""

    def __init__(self, clock: Clock, opened: dict[tuple[str, int], int]) -> None:
        super().__init__(clock)
        self.opened = opened

    def call(self, phase: Phase, batch_size: int = 1) -> Callable[[int], Any]:
        def run(index: int) -> Tensor:
            name = next(iter(self.on), "a")
            times = self.opened.get((name, index), 1)
            for _ in range(max(1, times)):
                with ExitStack() as stack:
                    if times:
                        stack.enter_context(section(ITERATION))
                    with section("vision"):
                        self.clock.sleep(vision_ms(name, index) / 1e3)
            return torch.full((1, 2), float(index))

        return run


@pytest.fixture
def measurement_runner(monkeypatch: pytest.MonkeyPatch):
    def run(opened: dict[tuple[str, int], int]) -> Measured:
        subject: Any = Losing(Exact().wind(monkeypatch), opened)
        options = Options(SamplingBudget(iterations=ROUNDS), counted=False)
        return measure(subject, "inference", VARIANTS, options)

    return run


def parts(measured: Measured) -> dict[str, list[float]]:
    return {m.name: next(c.values for c in m.components if c.name == "vision") for m in measured.measurements}


def expected_times(measured: Measured, *lost: int) -> dict[str, list[Any]]:
    kept = [index for index in range(measured.collected.warmup_rounds, measured.collected.rounds) if index not in lost]
    return {name: [pytest.approx(vision_ms(name, index), abs=1e-5) for index in kept] for name in "abc"}


def test_rounds_that_are_all_there_are_all_kept(measurement_runner):
    seen = measurement_runner({})
    assert parts(seen) == expected_times(seen)
    assert not [note for m in seen.measurements for note in m.notes]


@pytest.mark.parametrize("times", [0, 2, 3], ids=["lost", "doubled", "tripled"])
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_an_iteration_that_is_not_there_once_costs_its_round_alone(times: int, name: str, measurement_runner):
    seen = measurement_runner({(name, 5): times})
    assert parts(seen) == expected_times(seen, 5)
    for measurement in seen.measurements:
        assert len(measurement.samples.values) == seen.collected.rounds - seen.collected.warmup_rounds - 1
        (note,) = [note for note in measurement.notes if "left out" in note]
        assert note.startswith(f"1 of {seen.collected.rounds} rounds left out (the first is round 6)")
    assert len(seen.actions["a"]) == seen.collected.rounds - seen.collected.warmup_rounds


def test_losses_in_several_rounds_and_variants_are_told_together(measurement_runner):
    seen = measurement_runner({("a", 3): 0, ("c", 3): 2, ("b", 7): 0, ("a", 8): 2})
    assert parts(seen) == expected_times(seen, 3, 7, 8)
    assert any(note.startswith("3 of") for note in seen.measurements[0].notes)


def test_a_first_round_that_was_lost_is_told_too(measurement_runner):
    seen = measurement_runner({("b", 0): 0})
    assert parts(seen) == expected_times(seen)
    assert len(seen.measurements[1].samples.warmup) == seen.collected.warmup_rounds - 1
    assert "the first is round 1" in seen.measurements[0].notes[0]


def test_a_subject_that_opens_no_iteration_is_an_error(measurement_runner):
    with pytest.raises(RuntimeError, match="no round of a, b, c was recorded as one 'iteration'"):
        measurement_runner({(name, index): 0 for name in "abc" for index in range(100)})
