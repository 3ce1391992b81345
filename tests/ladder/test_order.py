"""What a ladder tries first on a simulated device, by what holds that device up: launches, memory or products."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.devices.emulated_device import EmulatedDevice
from support.examples.runs import measurement
from support.fakes.sleeper import Clock, Planted, Sleeper, entry

from strobe.core.errors import UserError
from strobe.core.measure.guard import Guards
from strobe.core.measure.roofline import limits
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.results.measurement import Measurement
from strobe.core.results.subject import Ceiling
from strobe.core.studies.shared.measuring import Options
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import CAPTURED, STRUCTURE, Entry, Spec, Treatment, Variant
from strobe.ladder import settings
from strobe.ladder.candidates import (
    Bounds,
    Candidate,
    Choice,
    candidates,
    is_slot_covered,
    make_candidate,
    sort_candidates,
    together,
)
from strobe.ladder.climb import Climb, Step, left_out, remaining
from strobe.ladder.in_time import judge_in_time
from strobe.ladder.results import Try
from strobe.ladder.run import optimize
from strobe.ladder.runner import ActionGuard, Runs
from strobe.ladder.settings import Aim, SilentClimb
from strobe.lerobot.policies.policy_subject import PolicySubject

# A card of 60 TFLOP/s in float32, eight times as many in 16 bits, and 3 TB/s.
CARD = Ceiling(gflops={"float32": 6e4, "bfloat16": 5e5, "float16": 5e5}, memory_gbps=3e3)
PARTS = {"vision tower": 0.2, "prefix KV cache": 0.3, "denoise step": 0.5}
KINDS = {"launches": (30.0, 0.2, 0.2), "memory": (0.4, 0.8, 0.2), "compute": (0.4, 0.2, 0.8)}


@functools.cache
def tiny(kind: str, *overrides: str) -> PolicySubject:
    return load_tiny_subject(kind, *overrides)  # type: ignore[return-value]


def make_measurement(what: str, dtype: str) -> Measurement:
    """A chunk of 100 ms of the device's time, which ``what`` takes most of.

    The host needs 30 times as long to launch it, or is done before it; products and bytes at their ceilings take 20 or
    80 ms.
    """
    host, memory, compute = KINDS[what]
    made = measurement("baseline", {"policy": (1.0, PARTS)}, 100.0)
    made.clock = "device"
    for part in made.components:
        if part.other:
            continue
        ms = 100.0 * (part.share or 0.0)
        part.host_ms = host * ms
        part.gflop_by_dtype = {dtype: compute * ms * (CARD.gflops[dtype] or 0.0) / 1e3}
        part.moved_bytes = round(memory * ms * (CARD.memory_gbps or 0.0) * 1e6)
    [made.limit] = limits([made], CARD)
    return made


def first(subject: PolicySubject, now: Measurement, on: tuple[str, ...] = ()) -> list[str]:
    """Return what would be tried, in order, with the treatments ``on``."""
    bounds = Bounds(now, CARD)
    specs = [spec for text in on for spec in catalogue.parse(text)]
    with EmulatedDevice() as device, device.holding(subject):
        offered = candidates(subject, Choice(effects=("exact", "rounding")), now)
    limited = bounds.limiting_factor(now, captured=any("graph" in spec for spec in specs))
    offered = [one for one in offered if not all(is_slot_covered(spec, specs) for spec in one.specs)]
    return [one.text for one in sort_candidates(offered, now, times=bounds.times, limited=limited)]


@pytest.mark.parametrize("kind", ["pi05", "act"])
def test_a_device_that_waits_for_launches_gets_one_graph_of_the_whole_call_first(kind: str):
    tried = first(tiny(kind), make_measurement("launches", "float32"))
    assert tried[0] == "graph=chunk"
    if kind == "pi05":
        assert tried[1:3] == ["graph=loop", "graph=prefix"], "what is smaller follows, the costlier part first"
        assert set(tried[3:5]) == {"timesteps=precomputed", "masks=once"}, "then what launches less"


def test_a_device_that_moves_bytes_gets_fewer_bytes_first():
    assert first(tiny("pi05"), make_measurement("memory", "float32"))[0] == "precision=bf16", "half of all bytes"
    tried = first(tiny("pi05", "--dtype=bfloat16"), make_measurement("memory", "bfloat16"))
    assert tried[0] == "prefix_cache=static", "no copy in each step"
    assert tried.index("attention=sdpa") < tried.index("masks=once")


def test_a_device_that_computes_gets_faster_or_fewer_products_first():
    assert first(tiny("pi05"), make_measurement("compute", "float32"))[0] == "precision=bf16", "eight times as fast"
    tried = first(tiny("pi05", "--dtype=bfloat16"), make_measurement("compute", "bfloat16"))
    assert tried[0] in ("padding=trimmed", "tf32=true")
    assert tried.index("padding=trimmed") < min(map(tried.index, ("masks=once", "prefix_cache=static", "graph=chunk")))


def test_with_a_graph_on_nothing_waits_for_launches():
    now = make_measurement("launches", "bfloat16")
    tried = first(tiny("pi05", "--dtype=bfloat16"), now, on=("graph=chunk",))
    assert not [text for text in tried if text.startswith("graph=")], "smaller graphs are inside it"
    assert tried.index("prefix_cache=static") < tried.index("masks=once"), "the roofline decides: as much memory"


def test_where_the_whole_is_refused_two_smaller_graphs_go_together():
    subject = tiny("pi05")

    def graph(what: str) -> Candidate:
        return make_candidate(subject, [{"graph": what}])

    both = together(graph("loop").specs, graph("prefix").specs)
    assert both == ({"graph": "loop"}, {"graph": "prefix"})
    assert not is_slot_covered({"graph": "prefix"}, graph("loop").specs)
    assert together(both, graph("chunk").specs) == ({"graph": "chunk"},), "the whole takes their place"


def test_without_a_clock_of_the_device_nothing_is_said_of_its_limit():
    now = make_measurement("launches", "float32")
    now.clock = "host"
    assert Bounds(now, CARD).limiting_factor(now) is None
    assert first(tiny("pi05"), now)[0] != "graph=chunk"


@pytest.fixture
def planted_climb(monkeypatch: pytest.MonkeyPatch):
    """A climb on a simulated device that is held up by ``limited``, with these entries and no others."""

    def climb(limited: str, *entries: Entry):
        monkeypatch.setattr(settings, "TRY_S", (0.2, 0.4))
        monkeypatch.setattr(catalogue, "own_entries", lambda: entries)
        monkeypatch.setattr(Bounds, "limiting_factor", lambda *_, captured=False: None if captured else limited)
        options = Options(SamplingBudget(iterations=10, seconds=10.0), batch_size=1, counted=False)
        result, _ = optimize(Sleeper(Clock().wind(monkeypatch)), Aim(target_hz=1e3, time_limit=60.0), options)
        assert result.ladder is not None
        return result.ladder

    return climb


def test_a_climb_tries_what_eases_the_limit_before_what_eases_the_costliest_part(planted_climb):
    costly = entry(Planted("costly", lambda _: {"vision": 1.0}), "vision")
    easing = replace(entry(Planted("easing", lambda _: {"head": 1.0}), "head"), eases=("memory",))
    assert [one.treatment for one in planted_climb("memory", costly, easing).tries][:2] == [
        "easing=true",
        "costly=true",
    ]
    assert next(one.treatment for one in planted_climb("compute", costly, easing).tries) == "costly=true"


def test_a_climb_falls_from_the_whole_call_to_both_of_its_parts_and_says_why(planted_climb):
    why = "graph=chunk: the chunk cannot be captured: item in smolvla/modeling.py:12 (looking): not permitted"
    ms = {"loop": {"head": 1.0}, "prefix": {"vision": 1.0}}

    def refuse() -> None:
        raise UserError(why)

    def make(spec: Spec) -> Treatment:
        what = str(spec["graph"])
        return Planted(what, lambda _: ms[what]) if what in ms else Planted(what, on_apply=refuse)

    parts = {"loop": ("head",), "prefix": ("vision",)}
    graphs = Entry(
        "graph", "planted", "exact", CAPTURED, make,
        candidates=lambda _: [{"graph": "loop"}, {"graph": "prefix"}, {"graph": "chunk"}],
        parts=lambda _, spec: parts.get(str(spec["graph"]), ()),
    )  # fmt: skip
    ladder = planted_climb("launches", graphs)
    whole, *others = ladder.tries
    assert (whole.treatment, whole.outcome, whole.reason) == ("graph=chunk", "does not apply", why)
    assert {one.treatment: one.outcome for one in others} == {"graph=prefix": "kept", "graph=loop": "kept"}
    assert {spec["graph"] for spec in ladder.rungs[-1].treatments} == {"prefix", "loop"}


def test_a_state_says_what_it_reached_and_what_remains_without_running_anything():
    """A run of the highest rung by itself says nothing of the next one."""
    tried = Try(treatment="", rung=0, before_ms=1, outcome="kept")
    start, faster = (
        Step(Variant(name), (), measurement(name, {"policy": (1.0, PARTS)}, ms), tried)
        for name, ms in (("a", 100.0), ("b", 99.0))
    )
    earlier: Any = SimpleNamespace(standing=lambda treatment, _: "left out" if "cache" in treatment else "unknown")
    climb = Climb(Aim(target_hz=10.0), earlier, Bounds(start.measurement, None), start, glanced=False)
    assert not climb.has_reached_target
    masks, cache = (
        Candidate(tuple(catalogue.parse(text)), (), "exact", 0) for text in ("masks=once", "prefix_cache=static")
    )
    alone = judge_in_time([90.0] * 100, climb.aim.target_ms, climb.aim.in_time)
    climb = replace(climb, in_time=alone, offered=(masks, cache))
    assert climb.has_reached_target
    assert remaining(climb) == [masks]
    assert left_out(climb).startswith("; skipped: 1 rejected by an earlier search")
    rejected = climb.add(climb.plan(masks, begun=True).reject("slower", "slower"))
    assert rejected.has_reached_target, "the highest rung is the same"
    assert remaining(rejected) == []
    accepted = climb.add(climb.plan(masks).accept(faster.variant, faster.measurement))
    assert (accepted.top.name, accepted.in_time, accepted.offered) == ("b", None, None)
    assert not accepted.has_reached_target


@pytest.mark.parametrize(
    ("paths", "limit_s", "outcomes"),
    [(("net", "net.vision", "net.head"), 60.0, ["guard", "kept", "guard"]),
     (("net.vision", "net.head"), 1.0, ["guard", "kept", "kept"])],
)  # fmt: skip
def test_where_a_whole_breaks_the_guard_a_climb_takes_its_parts_that_hold_and_the_rest_in_a_wider_dtype(
    paths: tuple[str, ...], limit_s: float, outcomes: list[str], monkeypatch: pytest.MonkeyPatch
):
    """The vision part holds in a narrow dtype, the head does not; the wide whole would undo the narrow part."""
    parts = {path: ("vision", "head") if path == "net" else (path.removeprefix("net."),) for path in paths}

    def make(spec: Spec) -> Treatment:
        mine, narrow = parts[str(spec["engine.part"])], spec["engine.precision"] == "bf16"
        wrong = 1.0 if narrow and "head" in mine else 0.0
        made = Planted(
            str(spec["engine.part"]),
            lambda subject: {part: subject.ms[part] * (0.4 if narrow else 0.7) for part in mine},
            lambda chunk, *_: chunk + wrong * torch.rand(chunk.shape),
            effect="rounding",
        )
        made.dtypes = ("bfloat16" if narrow else "float32",)
        return made

    specs: list[Spec] = [
        {"engine": True, "engine.part": path, "engine.precision": dtype} for path in parts for dtype in ("bf16", "fp32")
    ]
    engine = Entry(
        "engine", "planted", "rounding", STRUCTURE, make, options=("part", "precision"), candidates=lambda _: specs,
        parts=lambda _, spec: parts[str(spec["engine.part"])], replaces=True,
    )  # fmt: skip
    monkeypatch.setattr(settings, "TRY_S", (0.2, 0.4))
    monkeypatch.setattr(catalogue, "own_entries", lambda: (engine,))
    options = Options(SamplingBudget(iterations=10, seconds=10.0), batch_size=1, counted=False)
    result, _ = optimize(Sleeper(Clock().wind(monkeypatch)), Aim(target_hz=1e3, time_limit=limit_s), options)
    assert result.ladder is not None
    assert [one.outcome for one in result.ladder.tries[:3]] == outcomes
    accepted = [(spec["engine.part"], spec["engine.precision"]) for spec in result.ladder.rungs[-1].treatments]
    assert sorted(accepted) == [("net.head", "fp32"), ("net.vision", "bf16")]


def test_errors_are_in_the_spread_over_more_observations_than_a_try_has():
    subject = tiny("act")
    runs = Runs(subject, Options(SamplingBudget(iterations=2)), (), SilentClimb(), None)
    half, few = Variant("half", (catalogue.make({"precision": "bf16"}),)), list[Any](map(subject.chunk, range(2)))
    scale = subject.scale(few)
    assert scale is not None
    more: Any = SimpleNamespace(scale=scale.model_copy(update={"spread": [2 * sigma for sigma in scale.spread]}))
    guards = [ActionGuard(runs, Guards.parse("rms<=1e-9"), few, same) for same in (None, more)]
    narrow, wide = (guard.screen(half).agreement.rms for guard in guards)
    assert wide == pytest.approx((narrow or 0.0) / 2)
