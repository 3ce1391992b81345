"""A climb within the machine's limits: no try of what gains nothing here, and that is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.examples.runs import measurement
from support.fakes.sleeper import Lines

from strobe.core.measure import ceiling as ceilings
from strobe.core.measure.roofline import limits
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.results.measurement import Measurement
from strobe.core.results.subject import Ceiling
from strobe.core.studies.shared import counting as counts
from strobe.core.studies.shared.measuring import Options
from strobe.core.treatments.treatment import CAPTURED, Spec
from strobe.ladder.candidates import Bounds, Candidate, Choice, sort_candidates
from strobe.ladder.run import optimize
from strobe.ladder.settings import Aim
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.treatments.numbers import precision

SLOW_HALF = Ceiling(gflops={"float32": 300.0, "bfloat16": 100.0, "int8": 1200.0}, memory_gbps=30.0)
GRAPHS = {"prefix": ("backbone",), "chunk": ()}  # what each captures
FAST_HALF = Ceiling(gflops={"float32": 300.0, "bfloat16": 1500.0, "int8": 1200.0}, memory_gbps=30.0)


def make_counted_measurement(ceiling: Ceiling) -> Measurement:
    """100 ms, of which the backbone's arithmetic needs 50 in float32, and the encoder's bytes 10."""
    made = measurement("baseline", {"policy": (1.0, {"backbone": 0.8, "encoder": 0.2})}, 100.0)
    of_parts = {"policy": (15.3, None), "backbone": (15.0, 10**6), "encoder": (0.3, 3 * 10**8)}
    for part in made.components:
        gflop, part.moved_bytes = of_parts.get(part.name, (0.0, None))
        part.gflop_by_dtype = {"float32": gflop} if gflop else {}
    [made.limit] = limits([made], ceiling)
    return made


def candidate(key: str, *parts: str, dtype: str = "", arithmetic: float = 1.0) -> Candidate:
    dtypes = (dtype,) if dtype else ()
    return Candidate(({key: dtype},), parts, "rounding", 0, dtypes=dtypes, arithmetic=arithmetic)


def test_a_dtype_that_this_machine_is_slower_in_is_left_out_where_products_are_the_limit():
    bounds = Bounds(make_counted_measurement(SLOW_HALF), SLOW_HALF)
    said = bounds.rejection_reason(candidate("engine", "backbone", dtype="bfloat16"))
    assert said == "in bfloat16, because this machine is slower in it (100 GFLOP/s, float32 300)"
    assert bounds.rejection_reason(candidate("precision", dtype="bfloat16")), "most of the whole is products"
    assert not bounds.rejection_reason(candidate("engine", "encoder", dtype="bfloat16")), "half the bytes may pay"
    assert not bounds.rejection_reason(candidate("engine", "backbone", dtype="float32"))
    assert not bounds.rejection_reason(candidate("int8", "backbone", dtype="int8"))
    assert not bounds.rejection_reason(candidate("channels_last", "backbone"))
    fast = Bounds(make_counted_measurement(FAST_HALF), FAST_HALF)
    assert not fast.rejection_reason(candidate("engine", "backbone", dtype="bfloat16"))
    assert not Bounds(measurement("uncounted", {"policy": 1.0}, 100.0), None).rejection_reason(
        candidate("x", dtype="bfloat16")
    )


def test_fewer_cores_than_the_arithmetic_needs_are_left_out():
    bounds = Bounds(make_counted_measurement(SLOW_HALF), SLOW_HALF)  # half the time is arithmetic at its ceiling
    assert bounds.rejection_reason(candidate("threads", arithmetic=0.5)) == "with fewer cores than the arithmetic needs"
    assert not bounds.rejection_reason(candidate("threads", arithmetic=0.75))
    assert bounds.counted.limit is not None
    bounds.counted.limit.ceiling_share = 1.2  # convolutions that need less arithmetic than is counted
    assert not bounds.rejection_reason(candidate("channels_last", "backbone"))


def test_what_a_machine_is_fast_in_is_tried_first():
    made = [
        candidate("engine", "backbone", dtype="float32"),
        candidate("precision", "backbone", dtype="bfloat16"),
        candidate("channels_last", "backbone"),
        candidate("engine", "backbone", dtype="bfloat16"),
    ]

    def first(ceiling: Ceiling) -> list[str]:
        now = make_counted_measurement(ceiling)
        return [one.text for one in sort_candidates(made, now, times=Bounds(now, ceiling).times)]

    assert first(FAST_HALF)[:2] == ["engine=bfloat16", "precision=bfloat16"]
    assert first(SLOW_HALF)[:2] == ["engine=float32", "channels_last="]


def test_after_a_refusal_its_parts_in_that_dtype_come_next_and_what_else_is_in_it_comes_last():
    def engine(path: str, dtype: str, *parts: str) -> Candidate:
        spec: Spec = {"engine": "openvino", "engine.part": path, "engine.precision": dtype}
        return Candidate((spec,), parts, "rounding", 0, dtypes=({"bf16": "bfloat16", "fp32": "float32"}[dtype],))

    whole = engine("model", "bf16", "backbone", "encoder")
    others = [
        candidate("precision", dtype="bfloat16"),
        engine("model", "fp32", "backbone", "encoder"),
        engine("model.encoder", "bf16", "encoder"),
        engine("model.backbone", "bf16", "backbone"),
    ]
    now = make_counted_measurement(FAST_HALF)

    def sort(*refused: Candidate) -> list[Candidate]:
        return sort_candidates(others, now, times=Bounds(now, FAST_HALF).times, refused=refused)

    wide, encoder, backbone = others[1:]
    assert sort(whole) == [backbone, encoder, wide, others[0]], "costliest part first"
    assert sort(backbone)[0] == wide


@pytest.mark.parametrize(("host_ms", "first"), [(99.0, "graph=chunk"), (40.0, "channels_last=")])
def test_a_graph_comes_first_where_the_device_waits_for_the_host(host_ms: float, first: str):
    now = make_counted_measurement(SLOW_HALF)
    now.clock = "device"
    for part in now.components:
        part.host_ms = host_ms * part.share
    graphs = [replace(candidate("graph", *parts, dtype=what), rank=CAPTURED) for what, parts in GRAPHS.items()]
    limited = Bounds(now, SLOW_HALF).limiting_factor(now)
    made = sort_candidates([candidate("channels_last", "backbone"), *graphs], now, limited=limited)
    assert made[0].text == first
    assert {one.text for one in made} == {"graph=prefix", "graph=chunk", "channels_last="}


@pytest.mark.parametrize(("share", "first"), [(0.6, "preprocessing=device"), (0.3, "graph=chunk")])
def test_preprocessing_that_holds_the_rate_comes_before_a_graph(share: float, first: str):
    parts = {"preprocessing": share, "policy": (1 - share, {"backbone": 1.0})}
    now = measurement("baseline", parts, 100.0)
    now.clock = "device"
    for part in now.components:
        part.host_ms = 99.0 * part.share
    whole = replace(candidate("graph", dtype="chunk"), rank=CAPTURED)
    made = sort_candidates(
        [whole, candidate("preprocessing", "preprocessing", dtype="device")], now, limited="launches"
    )
    assert made[0].text == first


def test_the_bound_of_several_dtypes_is_not_told_as_that_of_one():
    """Half the parts in bfloat16, which this machine is slow in: all of it in float32 may take less."""
    mixed = make_counted_measurement(SLOW_HALF)
    for part in mixed.components:
        if part.name in ("backbone", "policy"):
            whole = sum(part.gflop_by_dtype.values())
            share = 0.4 * whole
            part.gflop_by_dtype = {"float32": whole - share, "bfloat16": share}
    [mixed.limit] = limits([mixed], SLOW_HALF)
    assert mixed.limit is not None
    bounds = Bounds(mixed, SLOW_HALF)
    assert mixed.limit.least_ms > 61.0
    assert "at least 60 ms in float32" in (bounds.slow_arithmetic_reason(1.0, lossy=False) or ""), (
        "in float32 it is the same work"
    )


def test_a_target_that_arithmetic_alone_does_not_meet_is_told():
    bounds = Bounds(make_counted_measurement(SLOW_HALF), SLOW_HALF)  # 50 + 10 ms; in int8 12.5 + 2.5
    said = bounds.slow_arithmetic_reason(20.0, lossy=False)
    assert "at least 60 ms in float32 on this machine, 15 ms in int8 (--allow=lossy)" in (said or "")
    assert said.endswith("20 ms need fewer FLOP, such as fewer denoising steps or a smaller model")
    assert bounds.slow_arithmetic_reason(20.0, lossy=True) is None, "int8 may reach it"
    assert "15 ms in int8: 5 ms need fewer FLOP" in (bounds.slow_arithmetic_reason(5.0, lossy=True) or "")
    assert bounds.slow_arithmetic_reason(61.0, lossy=False) is None
    assert Bounds(make_counted_measurement(FAST_HALF), FAST_HALF).slow_arithmetic_reason(20.0, lossy=False) is None, (
        "bfloat16 takes 15 ms"
    )
    narrow = make_counted_measurement(SLOW_HALF)
    for part in narrow.components:
        part.gflop_by_dtype = {"bfloat16": sum(part.gflop_by_dtype.values())}
    [narrow.limit] = limits([narrow], SLOW_HALF)
    assert narrow.limit is not None
    assert narrow.limit.least_ms > 85.0, "baseline"
    reason = Bounds(narrow, SLOW_HALF).slow_arithmetic_reason(40.0, lossy=False)
    assert "least 70 ms in float32 on this machine" in (reason or "")
    assert Bounds(narrow, SLOW_HALF).slow_arithmetic_reason(80.0, lossy=False) is None, "float32 takes less"


@pytest.fixture
def act(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(precision, "_fast", lambda device: ("bf16",))
    return load_subject(
        PolicyOptions(type="act", size="tiny", overrides=["--device=cpu"]), InputOptions(image_size=(64, 64))
    )


@pytest.mark.slow("two climbs")
def test_a_climb_leaves_out_what_gains_nothing_here_unless_all_is_asked_for(act, monkeypatch):
    # Memory without a limit: the tiny policy's products are its limit, as a large one's are.
    machine = SLOW_HALF.model_copy(update={"memory_gbps": 1e9})
    monkeypatch.setattr(ceilings, "measure", lambda *_: machine)
    count, names = counts.count, list[str]()

    def counting(subject, variant, call, hooks):
        names.append(variant.name)
        return count(subject, variant, call, hooks)

    monkeypatch.setattr(counts, "count", counting)
    options = Options(SamplingBudget(iterations=8, seconds=5.0), batch_size=1)
    aim = Aim(target_hz=1e6, choice=Choice(only=("precision",)), time_limit=20.0)
    lines = Lines()
    result, _ = optimize(act, aim, options, reporter=lines)
    assert result.ladder is not None
    assert result.ladder.tries == []
    assert "in bfloat16, because this machine is slower in it (100 GFLOP/s, float32 300) (--all tries all)" in (
        result.ladder.ended
    )
    assert any("arithmetic and memory traffic take at least" in line for line in lines.lines)
    assert names == ["baseline"], "it is counted once, at the start"
    assert result.measurements[0].limit is not None, "and the closing run's figures have it"
    own = Aim(target_hz=1e6, choice=Choice(only=("precision",), own=(({"precision": "bf16"},),)), time_limit=20.0)
    result, _ = optimize(act, own, options)
    assert result.ladder is not None
    assert [one.treatment for one in result.ladder.tries] == ["precision=bf16"]
