"""The backward pass by parts: each part's own time, no bit of a gradient changed, nothing left behind."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from strobe.core.timeline import Timeline, section
from strobe.core.timeline.probe import Hook
from strobe.train.backward import Backward


class Slow(torch.autograd.Function):
    """The identity, whose backward takes its time."""

    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, *gradients):
        time.sleep(ctx.seconds)
        return gradients[0], None


class Part(nn.Module):
    def __init__(self, seconds=0.0):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.seconds = seconds

    def forward(self, x):
        return {"out": Slow.apply(self.linear(x), self.seconds)}


class Model(nn.Module):
    """Sees (n, 4): two parts, and something between them that belongs to neither."""

    def __init__(self):
        super().__init__()
        self.eye, self.hand = Part(0.02), Part(0.04)

    def forward(self, x):
        seen = self.eye(x)["out"]
        return self.hand(Slow.apply(seen, 0.03))["out"].square().sum()


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


def backward(model, timeline, backward):
    loss = model(torch.ones(2, 4))
    start = timeline.mark()
    with section("backward"):
        loss.backward()
        backward.sections(start, timeline.mark())


def test_each_part_has_its_own_time(model):
    with Timeline() as timeline:
        watcher = Backward(timeline)
        with watcher.attach([Hook(model.eye, "forward", "eye"), Hook(model.hand, "forward", "hand")]):
            backward(model, timeline, watcher)
    whole, hand, eye = timeline.sections()
    assert [whole.path, hand.path, eye.path] == [("backward",), ("backward", "hand"), ("backward", "eye")]
    assert hand.ms >= 40
    assert eye.ms >= 20
    assert eye.start_ns - hand.end_ns >= 30e6, "what lies between belongs to neither"
    assert hand.start_ns >= whole.start_ns
    assert eye.end_ns <= whole.end_ns


def test_a_part_that_runs_twice_is_seen_twice(model):
    class Twice(nn.Module):
        def forward(self, x):
            return (model.eye(x)["out"] + model.hand(model.eye(x)["out"])["out"]).sum()

    with Timeline() as timeline:
        watcher = Backward(timeline)
        with watcher.attach([Hook(model.eye, "forward", "eye"), Hook(model.hand, "forward", "hand")]):
            backward(Twice(), timeline, watcher)
    names = [recorded.name for recorded in timeline.sections()]
    assert names.count("hand") == 1
    assert names.count("eye") == 2


def test_no_bit_of_a_gradient_changes_and_nothing_stays(model):
    model(torch.ones(2, 4)).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    with Timeline() as timeline:
        watcher = Backward(timeline)
        with watcher.attach([Hook(model.eye, "forward", "eye"), Hook(model.hand, "forward", "hand")]):
            backward(model, timeline, watcher)
    assert all(torch.equal(parameter.grad, was) for parameter, was in zip(model.parameters(), expected, strict=True))
    assert "forward" not in vars(model.eye)
    assert "forward" not in vars(model.hand)


def test_without_gradients_nothing_is_watched(model):
    with Timeline() as timeline, torch.no_grad():
        watcher = Backward(timeline)
        with watcher.attach([Hook(model.eye, "forward", "eye")]):
            model(torch.ones(2, 4))
        watcher.sections(timeline.mark(), timeline.mark())
    assert not timeline.sections()
