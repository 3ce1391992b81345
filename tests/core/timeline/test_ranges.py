"""NVTX ranges: the parts' names, nested as the parts are, each pushed and popped once on its thread."""

from __future__ import annotations

import threading
from collections import defaultdict

import pytest
import torch
from support.fakes.sleeper import Clock, Sleeper

from strobe.core.errors import UserError
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.studies.shared.measuring import Options, measure
from strobe.core.timeline import Timeline, section
from strobe.core.timeline.probe import Probe, attach
from strobe.core.timeline.ranges import require_ranges
from strobe.core.treatments.treatment import Variant


class Wire:
    """Stands for ``torch.cuda.nvtx``: the ranges of each thread, as a tool of CUDA would see them."""

    def __init__(self) -> None:
        self.open: dict[int, list[str]] = defaultdict(list)
        self.seen: list[tuple[str, ...]] = []  # the path of each range that was pushed

    def range_push(self, name: str) -> int:
        mine = self.open[threading.get_ident()]
        mine.append(name)
        self.seen.append(tuple(mine))
        return len(mine)

    def range_pop(self) -> int:
        self.open[threading.get_ident()].pop()  # fails if there is none
        return 0

    @property
    def is_balanced(self) -> bool:
        return not any(self.open.values())


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    wire = Wire()
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", wire.range_push)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", wire.range_pop)
    return wire


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("serialised", [False, True])
def test_ranges_are_the_sections(wire, made_up, device, serialised):
    with Timeline(device, serialised=serialised, nvtx=True) as timeline:
        with section("policy"), section("vision"):
            pass
        with section("policy"):
            for _ in range(2):
                with section("denoise step"):
                    pass
    assert wire.seen == [recorded.path for recorded in timeline.sections()]
    assert wire.seen[1] == ("policy", "vision")
    assert len(wire.seen) == 5
    assert wire.is_balanced


def test_a_measurement_with_ranges_has_one_for_each_part_of_each_call_and_says_so(wire, monkeypatch):
    subject = Sleeper(Clock().wind(monkeypatch))
    options = Options(SamplingBudget(iterations=4), counted=False, nvtx=True)
    measured = measure(subject, "inference", [Variant("inference")], options)
    assert wire.seen == [recorded.path for recorded in measured.sections]
    assert sum(path[-1] == "vision" for path in wire.seen) == measured.collected.rounds
    assert wire.is_balanced
    assert any("NVTX" in note for note in measured.measurements[0].notes)


def test_without_the_flag_nothing_is_pushed(wire, monkeypatch):
    subject = Sleeper(Clock().wind(monkeypatch))
    measured = measure(
        subject, "inference", [Variant("inference")], Options(SamplingBudget(iterations=4), counted=False)
    )
    assert wire.seen == []
    assert not any("NVTX" in note for note in measured.measurements[0].notes)


class Loop:
    def first(self, fails: bool = False) -> None:
        pass

    def inside(self, fails: bool = False) -> None:
        if fails:
            raise ArithmeticError

    def last(self, fails: bool = False) -> None:
        if fails:
            raise ArithmeticError

    def run(self, *fails: str) -> None:
        for name in ("first", "inside", "last"):
            getattr(self, name)(name in fails)


@pytest.mark.parametrize("fails", ["inside", "last"])
def test_a_call_that_raises_leaves_no_range_open_and_takes_no_other_down(wire, fails):
    loop = Loop()
    probes = [
        Probe.method("", "run", "whole"),
        Probe("step", "", "first", until=("", "last")),  # it stays open if what lies in between raises
        Probe.method("", "inside", "inside"),
    ]
    with Timeline(nvtx=True), attach(probes, loop), section("policy"):
        for broken in (True, False):
            if broken:
                with pytest.raises(ArithmeticError):
                    loop.run(fails)
            else:
                loop.run()
            assert wire.open[threading.get_ident()] == ["policy"]
    whole = [("policy", "whole"), ("policy", "whole", "step"), ("policy", "whole", "step", "inside")]
    assert wire.seen == [("policy",), *whole, *whole]
    assert wire.is_balanced


def test_each_thread_has_its_own_ranges(wire):
    turn = threading.Barrier(2)

    def work(name: str) -> None:
        with section(name):
            turn.wait(60)  # both are open
            with section("inside"):
                turn.wait(60)

    with Timeline(nvtx=True):
        thread = threading.Thread(target=work, args=("other",))
        thread.start()
        work("main")
        thread.join()
    assert sorted(wire.seen) == [("main",), ("main", "inside"), ("other",), ("other", "inside")]
    assert wire.is_balanced


def test_a_generator_that_stops_inside_its_section_leaves_none_open(wire):
    def batches():
        for number in range(2):
            with section("load"):
                yield number

    with Timeline(nvtx=True), section("epoch"):
        for _ in batches():
            with section("step"):
                pass
    assert wire.is_balanced
    assert sorted(path[-1] for path in wire.seen) == ["epoch", "load", "load", "step", "step"]


def test_ranges_are_refused_where_no_tool_could_see_them(wire, monkeypatch):
    require_ranges(torch.device("cuda", 0))
    assert wire.is_balanced
    for name in ("cpu", "mps", "xpu:0"):
        with pytest.raises(UserError, match=f"needs CUDA.*{name}"):
            require_ranges(torch.device(name))

    def fail(*_: object) -> int:
        raise RuntimeError("NVTX functions not installed. Are you sure you have a CUDA build?")

    monkeypatch.setattr(torch.cuda.nvtx, "range_push", fail)
    with pytest.raises(UserError, match="torch with NVTX"):
        require_ranges(torch.device("cuda", 0))
