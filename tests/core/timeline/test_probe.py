"""Probes: where they attach, when they fire, and that nothing of them stays."""

from __future__ import annotations

import copy
import io
import math
import pickle
import threading
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from strobe.core.errors import UserError
from strobe.core.timeline import Probe, ProbeError, Timeline, attach, section


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.head = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x, *, twice=False):
        for layer in self.layers:
            x = layer(x)
        return self.step(x, scale=2.0 if twice else 1.0)

    def step(self, x, scale):
        return self.head.forward(x) * scale  # called past __call__, as LeRobot does with the language model


def names(timeline: Timeline) -> list[str]:
    return [recorded.name for recorded in timeline.sections()]


def test_modules_methods_and_stars():
    model = Model()
    probes = [Probe.module("layers.*", "layer {}"), Probe.method("", "step", "step"), Probe.module("head", "head")]
    with Timeline() as timeline, attach(probes, model):
        model(torch.ones(1, 4))
    assert names(timeline) == ["layer 0", "layer 1", "layer 2", "step", "head"]
    assert timeline.sections()[-1].path == ("step", "head")


def test_results_and_arguments_are_untouched():
    model, x = Model(), torch.randn(2, 4)
    bare = model(x, twice=True)
    with attach([Probe.module("layers.*", "layer {}"), Probe.method("", "step", "s")], model):
        assert torch.equal(model(x, twice=True), bare)


def test_a_condition_decides_call_by_call():
    model = Model()
    probe = Probe.method("", "step", "doubled", when=lambda x, scale: scale == 2)
    with Timeline() as timeline, attach([probe], model):
        model(torch.ones(1, 4))
        model(torch.ones(1, 4), twice=True)
    assert names(timeline) == ["doubled"]


def test_functions_classes_and_callbacks():
    class Integrator:
        def run(self, x, denoise):
            return denoise(x) + denoise(x)

        @staticmethod
        def pass_through(x):
            return x

        @classmethod
        def make_and_run(cls, x):
            return cls().run(x, denoise=abs)

    globals()["Integrator"] = Integrator
    here = __name__
    before = {name: vars(Integrator)[name] for name in ("run", "pass_through", "make_and_run")}
    probes = [
        Probe.function("math:sqrt", "root"),
        Probe.function(f"{here}:Integrator.run", "run"),
        Probe.function(f"{here}:Integrator.run", "base", argument="denoise"),
        Probe.function(f"{here}:Integrator.pass_through", "fixed"),
        Probe.function(f"{here}:Integrator.make_and_run", "made"),
    ]
    sqrt = math.sqrt
    with Timeline() as timeline, attach(probes, None):
        assert math.sqrt(9) == 3
        assert Integrator().run(-2, denoise=abs) == Integrator().run(-2, abs) == 4
        assert (Integrator.pass_through(7), Integrator().pass_through(8), Integrator.make_and_run(-1)) == (7, 8, 2)
    assert names(timeline) == ["root", *["run", "base", "base"] * 2, "fixed", "fixed", "made", "run", "base", "base"]
    assert math.sqrt is sqrt
    assert all(vars(Integrator)[name] is own for name, own in before.items())


@given(st.lists(st.sampled_from(["layers.*", "layers.0", "head", "head.0", ""]), max_size=6), st.booleans())
def test_detaching_leaves_the_same_objects_behind(paths, fails):
    model = Model()
    own = model.layers[0].__dict__["forward"] = model.layers[0].forward  # an instance that had one of its own
    before = [(module, dict(vars(module))) for module in model.modules()]
    probes = [Probe.module(path, f"{path or 'model'}".replace("*", "{}")) for path in paths]
    try:
        with Timeline(), attach(probes, model):
            model(torch.ones(1, 4))
            if fails:
                raise ArithmeticError
    except ArithmeticError:
        pass
    for module, attributes in before:
        assert vars(module).keys() == attributes.keys()
        assert all(vars(module)[name] is value for name, value in attributes.items())
    assert model.layers[0].forward is own


def save_and_reload(model: Model) -> Model:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, copy.copy, lambda model: pickle.loads(pickle.dumps(model)), save_and_reload],
    ids=["deepcopy", "copy", "pickle", "torch.save"],
)
def test_a_copy_of_a_probed_object_runs_its_own_code_without_probes(copied: Callable[[Model], Model]):
    model, x = Model(), torch.ones(1, 4)
    probes = [Probe.module("", "model"), Probe.module("layers.*", "layer {}"), Probe.method("", "step", "step")]
    with attach(probes, model), attach(probes[:2], model):
        twin = copied(model)
    assert not set(vars(twin)) - set(vars(model))
    with torch.no_grad():
        for weight in twin.parameters():
            weight.zero_()
    twin.step = lambda x, scale: 7 + 0 * x  # the original's code would not look at it
    with Timeline() as timeline:
        assert twin(x).unique().item() == 7
    assert names(timeline) == []


def test_a_copy_keeps_what_its_original_had_of_its_own():
    model = Model()
    model.step = lambda x, scale: x * 0 + scale
    with attach([Probe.method("", "step", "step")], model):
        twin = copy.deepcopy(model)
    assert vars(twin)["step"] is model.step


@pytest.mark.parametrize("of", ["instance", "class", "module"])
def test_probes_that_are_taken_off_in_another_order_leave_nothing_behind(of: str):
    class Worker:
        def run(self, x):
            return x + 1

        @staticmethod
        def pass_through(x):
            return x

    globals()["Worker"] = Worker
    worker = Worker()
    target = {"instance": (worker, "run"), "class": (Worker, "pass_through"), "module": (math, "floor")}[of]
    probe = {
        "instance": Probe.method("", "run", "{}"),
        "class": Probe.function(f"{__name__}:Worker.pass_through", "{}"),
        "module": Probe.function("math:floor", "{}"),
    }[of]
    before = set(vars(target[0]))
    first, second, third = (
        attach([Probe(name, probe.path, probe.attribute)], worker) for name in ("first", "second", "third")
    )
    for gone, left in ((second, ["third", "first"]), (first, ["third"]), (third, [])):
        gone.detach()
        with Timeline() as timeline:
            assert getattr(*target)(1) in (1, 2)
        assert names(timeline) == left
    assert set(vars(target[0])) == before


def test_a_probe_that_does_not_fit_names_itself_and_leaves_nothing_on():
    model = Model()
    with pytest.raises(ProbeError, match="probe 'vision tower' does not fit") as caught:
        attach([Probe.module("head", "head"), Probe.module("vision.tower", "vision tower")], model)
    assert isinstance(caught.value, UserError)
    assert "\n" not in str(caught.value)
    assert "forward" not in vars(model.head)
    with pytest.raises(ProbeError, match="'gone'"):
        attach([Probe.function("math:no_such_function", "gone")], None)
    with pytest.raises(ProbeError, match="'empty'"):
        attach([Probe.module("layers.0.*", "empty")], model)
    with attach([Probe.module("no.such", "x", optional=True)], Model()) as attached:
        assert attached.names == []


def test_a_probe_inside_a_compiled_region_is_named_not_lost():
    torch.compiler.reset()
    model = Model()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    probes = [Probe.module("layers.*", "compiled layer {}")]
    with Timeline() as timeline, attach(probes, model), section("whole"):
        compiled(torch.ones(1, 4))
    assert names(timeline) == ["whole"]
    assert {"compiled layer 0", "compiled layer 1", "compiled layer 2"} <= set(timeline.unseen)


def test_a_stretch_lasts_from_one_callable_to_the_end_of_another():
    class Loop:
        def first(self, x):
            return x + 1

        def last(self, x, fails=False):
            if fails:
                raise ArithmeticError
            return 2 * x

        def run(self):
            return self.last(self.first(1)) + self.last(self.first(2))

    loop, before = Loop(), set(vars(Loop()))
    probes = [Probe.method("", "last", "inside"), Probe("step", "", "first", until=("", "last"))]
    with Timeline() as timeline, attach(probes, loop):
        assert loop.run() == 10
        with pytest.raises(ArithmeticError):
            loop.last(loop.first(1), fails=True)
    assert names(timeline) == ["step", "inside"] * 3
    assert [section.path for section in timeline.sections()][1] == ("step", "inside")
    assert set(vars(loop)) == before


def test_each_thread_has_a_stretch_of_its_own():
    class Loop:
        def first(self):
            pass

        def last(self):
            pass

    loop, turn = Loop(), threading.Barrier(2)

    def work():
        loop.first()
        turn.wait(60)  # both are open
        loop.last()
        turn.wait(60)

    with Timeline() as timeline, attach([Probe("step", "", "first", until=("", "last"))], loop):
        thread = threading.Thread(target=work)
        thread.start()
        work()
        thread.join()
    assert [(recorded.name, recorded.path) for recorded in timeline.sections()] == [("step", ("step",))] * 2
    assert len({recorded.thread for recorded in timeline.sections()}) == 2
