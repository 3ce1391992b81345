"""MFU of a training: which step is counted, what it is compared with, and what is not judged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.examples.findings_results import make_measurement, result
from torch import nn

from strobe.core.kinds import document
from strobe.core.measure.compilations import CompileLog
from strobe.core.measure.components import Iteration
from strobe.core.report import markdown
from strobe.core.results.subject import Ceiling
from strobe.core.timeline.timeline import Section
from strobe.train.results import Training, TrainResult, Utilisation
from strobe.train.utilisation import CountedStep, peak, step_utilisation

MODEL = 3e9  # FLOP of the step that is counted below, at 100 GFLOP/s in 30 ms
PEAK = Ceiling(gflops={"float32": 100.0})


def make_counted_step(flop: float = MODEL) -> CountedStep:
    found = CountedStep(steps=10)
    found.run(1, CompileLog(), lambda: torch.ones(2, 2) @ torch.ones(2, 2))
    assert found.counter is not None
    found.counter.flop["float32"] = int(flop)
    return found


def steps(wait_ms: float, passes_ms: float = 60.0) -> tuple[list[Iteration], list[float]]:
    """Four steps on a clock of their own: they wait, then compute."""
    took = int((wait_ms + passes_ms) * 1e6)
    found = [Iteration(Section("step", ("step",), at * took, (at + 1) * took, "main"), []) for at in range(4)]
    return found, [passes_ms] * 4


def test_mfu_falls_when_the_step_waits_and_that_of_its_passes_does_not():
    at_once, waiting = (step_utilisation(make_counted_step(), *steps(wait), PEAK) for wait in (0.0, 40.0))
    assert at_once.share == pytest.approx(0.5)
    assert waiting.share == pytest.approx(0.3)
    assert at_once.passes_share == waiting.passes_share == pytest.approx(0.5)
    assert waiting.gflop == {"float32": pytest.approx(3.0)}


def test_the_second_step_alone_is_counted_and_returns_what_it_would_without():
    layer, batch = nn.Linear(4, 6), torch.randn(5, 4)
    found, outputs = CountedStep(steps=10), []
    for number in range(4):
        outputs.append(found.run(number, CompileLog(), lambda: layer(batch).sum()))
        outputs[-1].backward()
    assert len({output.item() for output in outputs}) == 1
    assert found.counter is not None
    assert dict(found.counter.flop) == {"float32": 2 * 5 * 4 * 6}, "one forward pass"
    assert found.warmup == 2


def test_each_dtype_is_held_against_its_own_peak():
    mixed = make_counted_step()
    assert mixed.counter is not None
    mixed.counter.flop["bfloat16"] = 8 * 10**9
    found = step_utilisation(mixed, *steps(0.0), Ceiling(gflops={"float32": 100.0, "bfloat16": 400.0}))
    assert found.least_ms == pytest.approx(30 + 20)


@pytest.mark.parametrize(
    ("recorded", "compiled", "processes", "why"),
    [
        (3, CompileLog(), "1", "4 or more"),
        (10, CompileLog(compiled=[(0, SimpleNamespace())]), "1", "compiled"),
        (10, CompileLog(broken=[SimpleNamespace()]), "1", "compiled"),
        (10, CompileLog(), "2", "several processes"),
    ],
)
def test_a_step_that_cannot_be_counted_runs_as_it_is_and_says_why(monkeypatch, recorded, compiled, processes, why):
    monkeypatch.setenv("WORLD_SIZE", processes)
    found = CountedStep(steps=recorded)
    assert found.run(1, compiled, lambda: 7) == 7
    assert found.counter is None
    assert found.warmup == 0
    assert peak(found, torch.device("cpu")).gflops == {}
    judged = step_utilisation(found, *steps(0.0), PEAK)
    assert judged.share is None
    assert why in judged.not_judged


def test_an_unknown_operator_and_a_missing_peak_leave_it_unjudged():
    unknown = CountedStep(steps=10)
    unknown.run(1, CompileLog(), lambda: torch.linalg.inv(torch.eye(4) @ torch.eye(4)))
    judged = step_utilisation(unknown, *steps(0.0), PEAK)
    assert judged.share is None
    assert "linalg" in (judged.not_judged or "")
    judged = step_utilisation(make_counted_step(), *steps(0.0), Ceiling())
    assert judged.share is None
    assert "float32" in (judged.not_judged or "")
    judged = step_utilisation(
        make_counted_step(), *steps(0.0, passes_ms=20.0), PEAK
    )  # of which the products alone take 30
    assert judged.share is judged.passes_share is None
    assert "above the measured peak" in (judged.not_judged or "")
    nothing = CountedStep(steps=10)
    nothing.run(1, CompileLog(), lambda: None)
    assert step_utilisation(nothing, *steps(0.0), PEAK).not_judged


def test_the_page_has_the_figure_or_the_reason():
    def page(mfu: Utilisation | None) -> str:
        figures: dict[str, Any] = {"batch_size": 8, "workers": 2, "steps": 20, "run_steps": 20, "planned_steps": 1000}
        figures |= {"samples_per_s": 80.0, "planned_hours": 1.0, "bound": "compute"}
        training = Training.model_validate(figures | {"data_share": 0.0, "overhead": 0.0, "mfu": mfu})
        step = make_measurement({"forward": 40.0, "other": 60.0}, name="training step", phase="training step")
        return markdown.render(document(result(step, of=TrainResult, training=training)))

    known = step_utilisation(make_counted_step(), *steps(40.0), PEAK)
    assert "MFU 30 % (ideal step " in page(known)
    assert "50 % counting forward and backward only" in page(known)
    assert "MFU: not judged: because" in page(Utilisation(not_judged="because"))
    assert "MFU" not in page(None)
