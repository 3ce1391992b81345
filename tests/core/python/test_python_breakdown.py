"""`strobe.breakdown` in Python: which parts an object of anybody's has, by a clock of the test's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.fakes.sleeper import Clock
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

import strobe
from strobe.core.errors import UserError
from strobe.core.results.subject import Ceiling

X = torch.ones(2, 3)


class Slow(nn.Module):
    """A layer that takes its time by the test's clock."""

    def __init__(self, clock: Clock, ms: float) -> None:
        super().__init__()
        self.clock, self.ms, self.inside = clock, ms, nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.clock.sleep(self.ms / 1e3)
        return self.inside(x)


class Net(nn.Module):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.vision, self.head = Slow(clock, 8.0), Slow(clock, 4.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encode(x))

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self.vision(x)


class Policy:
    """An object as other projects have: a method for observations, a model that it holds, and time of its own."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.model, self.name = clock, Net(clock).eval(), "mine"
        self.critic = nn.Linear(3, 3)  # is not called

    def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        self.clock.sleep(0.004)
        with torch.no_grad():
            return {"actions": self.model(observation["state"]).numpy(), "ms": 3.0}


def parts(answer: Any) -> dict[str, float]:
    (measurement,) = answer.measurements
    return {" > ".join(part.path): part.summary.median for part in measurement.components}


def test_an_object_is_cut_along_the_modules_that_it_holds(clock: Clock):
    answer = strobe.breakdown(Policy(clock), {"state": X}, seconds=1, count=False)
    found = parts(answer)
    assert found["model"] == pytest.approx(12.0, rel=0.02)
    assert found["model > model.encode > vision"] == pytest.approx(8.0, rel=0.02)
    assert found["model > head"] == pytest.approx(4.0, rel=0.02)
    assert found["other"] == pytest.approx(4.0, rel=0.02)
    assert not any("critic" in path for path in found)
    assert answer.subject.kind == "object with infer()"
    assert not any("one part" in note for note in answer.notes)
    table = answer.to_pandas()
    assert "model > head" in set(table["part"])


def test_nothing_is_left_on_the_object(clock: Clock):
    policy = Policy(clock)
    strobe.breakdown(policy, {"state": X}, seconds=1, count=False)
    assert not {"forward", "encode"} & vars(policy.model).keys()


def test_a_module_is_cut_along_its_own_modules(clock: Clock):
    found = parts(strobe.breakdown(Net(clock).eval(), X, seconds=1, count=False))
    assert found["vision"] == pytest.approx(8.0, rel=0.02)
    assert found["head"] == pytest.approx(4.0, rel=0.02)


def test_a_bound_method_is_cut_along_its_owner(clock: Clock):
    found = parts(strobe.breakdown(Policy(clock).infer, {"state": X}, seconds=1, count=False))
    assert found["model > head"] == pytest.approx(4.0, rel=0.02)


def test_a_function_is_one_part_and_says_so(clock: Clock):
    def act(x: Any) -> Any:
        clock.sleep(0.02)
        return x

    answer = strobe.breakdown(act, X, seconds=1)
    assert parts(answer) == {}
    assert "act is one part: no torch module was found in it" in answer.notes
    assert not any(finding.rule == "other-large" for finding in answer.findings)


def test_a_function_has_the_sections_that_it_opens(clock: Clock):
    def act(x: Any) -> Any:
        with strobe.section("prepare"):
            clock.sleep(0.015)
        clock.sleep(0.005)
        return x

    answer = strobe.breakdown(act, X, seconds=1)
    assert parts(answer) == {"prepare": pytest.approx(15.0, rel=0.05), "other": pytest.approx(5.0, rel=0.05)}
    assert not any("is one part" in note for note in answer.notes)
    pair = strobe.compare({"a": act, "b": act}, X, seconds=1)
    assert not any(measurement.components for measurement in pair.measurements)


def test_what_is_compiled_is_one_part_and_says_so():
    compiled = torch.compile(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).eval(), backend="eager")
    answer = strobe.breakdown(compiled, X, seconds=0.2)
    assert parts(answer) == {}
    assert "Sequential is one part: it is compiled by torch.compile" in answer.notes


def test_a_call_that_cannot_be_counted_keeps_its_times(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("strobe.core.measure.ceiling.measure", lambda *_: Ceiling())

    class Refusing(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if _get_current_dispatch_mode() is not None:
                raise NotImplementedError("not under a mode")
            return super().forward(x)

    answer = strobe.breakdown(Refusing(clock).eval(), X, seconds=1)
    assert parts(answer)["head"] == pytest.approx(4.0, rel=0.02)
    (measurement,) = answer.measurements
    assert any("were not counted: 'inference' failed" in note for note in measurement.notes)


def test_its_flop_are_counted(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("strobe.core.measure.ceiling.measure", lambda *_: Ceiling())
    answer = strobe.breakdown(Net(clock).eval(), X, seconds=1)
    head = next(part for part in answer.measurements[0].components if part.name == "head")
    assert head.gflop == pytest.approx(2 * 2 * 3 * 3 / 1e9)


def test_a_depth_below_one_is_refused():
    with pytest.raises(UserError, match="depth=0"):
        strobe.breakdown(len, "x", depth=0)
