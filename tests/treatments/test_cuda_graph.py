"""Captured regions: what is copied in and out, what makes a new capture, what cannot be captured.

A capture is played on the CPU (`Replayed`): a replay runs the operators of the capture on the same memory, as a graph
does. So a forgotten input, a stale number or a shared output shows.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from support.checks.treatment_block import treat
from support.devices.emulated_device import EmulatedDevice, Graph
from support.devices.replayed_graph import Replayed
from support.suite.matrix import matrix
from torch import Tensor, nn
from transformers import BatchFeature

from strobe.core.errors import UserError
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.flow.rtc import ClosedFormGuidance, RealTimeChunking
from strobe.treatments.graphs import graph, regions
from strobe.treatments.graphs.graph import Cuda, CudaGraph
from strobe.treatments.graphs.host_work import Host
from strobe.treatments.layers.attention import FusedAttention
from strobe.treatments.numbers.precision import Precision
from strobe.treatments.training import MixedPrecision

WARMUPS = 2
STEPS = {
    "pi05": "num_inference_steps",
    "pi0": "num_inference_steps",
    "smolvla": "num_steps",
    "diffusion": "num_inference_steps",
}


@functools.cache
def tiny(kind: str, device: str = "cpu") -> PolicySubject:
    steps = [f"--{STEPS[kind]}=2"] if kind in STEPS else []
    return load_subject(PolicyOptions(type=kind, size="tiny", overrides=[f"--device={device}", *steps]))  # type: ignore[return-value]


def chunks(subject: PolicySubject, *treatments: Treatment, count: int = 2) -> list[Tensor]:
    found = []
    for index in range(count):
        with treat(subject, Variant("v", treatments)):
            found.append(subject.chunk(index))
    return found


REGIONS = [
    ("act", "chunk", 1), ("pi0", "loop", 1), ("pi05", "prefix", 2), ("smolvla", "loop", 1), ("smolvla", "prefix", 2),
    ("pi05", "chunk", 1), ("diffusion", "chunk", 1),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "what", "regions"), matrix(REGIONS, keep=3))
def test_a_replay_is_the_call_with_the_same_noise(kind: str, what: str, regions: int) -> None:
    subject = tiny(kind)
    plain = chunks(subject)
    with EmulatedDevice() as device, device.holding(subject):
        capture = Graph(device)
        graph = CudaGraph(what, capture)
        first, again = chunks(subject, graph), chunks(subject, graph)
    assert capture.recorded == regions  # once, for all observations
    for found in (first, again):
        assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))
    assert not torch.equal(plain[0], plain[1])
    assert all(torch.equal(a, b) for a, b in zip(chunks(subject), plain, strict=True))  # nothing is left behind


def test_other_weights_settings_and_treatments_are_captured_anew() -> None:
    subject = tiny("pi05")
    capture = Replayed(WARMUPS)
    graph = CudaGraph("loop", capture)
    config: Any = subject.policy.config
    assert torch.equal(chunks(subject, graph, count=1)[0], chunks(subject, count=1)[0])
    in_bf16 = Precision("bf16")
    assert torch.equal(chunks(subject, in_bf16, graph, count=1)[0], chunks(subject, in_bf16, count=1)[0])
    assert capture.recorded == 2
    before, config.num_inference_steps = config.num_inference_steps, 1
    try:
        assert torch.equal(chunks(subject, graph, count=1)[0], chunks(subject, count=1)[0])
        assert capture.recorded == 3
    finally:
        config.num_inference_steps = before
    fused = FusedAttention()
    assert torch.equal(chunks(subject, fused, graph, count=1)[0], chunks(subject, fused, count=1)[0])
    assert capture.recorded == 4
    chunks(subject, graph)
    chunks(subject, fused, graph)
    assert capture.recorded == 4  # all are kept
    traits = graph.traits()
    assert traits.captures == 4
    assert traits.capture_s
    assert {"graph captures", "graph capture s"} <= traits.labelled_values().keys(), "a report shows what they cost"


def test_at_the_bound_other_shapes_run_without_a_graph_until_they_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "KEPT", 2)
    capture = Replayed(WARMUPS)
    place = regions.Regions("chunk", tiny("act"), capture)
    place.look()

    def count_graphs(length: int) -> int:
        """Return how many graphs there were after a call of ``length``, whose result must be right."""
        given = torch.arange(float(length))
        with torch.no_grad():
            found = place.run("chunk", lambda x: x * 2 + 1, given)
        assert isinstance(found, torch.Tensor)
        assert torch.equal(found, given * 2 + 1)
        return capture.recorded

    assert [count_graphs(length) for length in (1, 2, 1)] == [1, 2, 2]
    with pytest.warns(UserWarning, match="2 graphs of the chunk are in memory, the maximum"):
        assert count_graphs(3) == 2
    assert [count_graphs(length) for _ in range(4) for length in (1, 2, 3)] == [2] * 12, (
        "in turn: no capture in each call"
    )
    assert [count_graphs(length) for length in (3, 3)] == [3, 3], "it comes again before the least recently used one"
    assert [count_graphs(length) for length in (2, 3)] == [3, 3], "the other one is still there"
    assert [count_graphs(length) for length in (4, 5, 6, 7, 8)] == [3] * 5, "each once: eager"


def test_autocast_keeps_no_cast_that_a_graph_reads() -> None:
    """It keeps casts of weights until its block ends, and the warm-up's are freed by the next call.

    As in GR00T's head, whose inputs and outputs are mappings that torch does not look into.
    """
    layer, capture = nn.Linear(3, 3), Replayed(WARMUPS)
    place = regions.Regions("loop", tiny("act"), capture)
    place.look()
    for _ in range(2):
        given = BatchFeature({"x": torch.randn(2, 3), "more": BatchFeature({"y": torch.randn(2, 3)})})
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            made: Any = place.run("loop", lambda got: BatchFeature({"z": layer(got["x"]) + got["more"]["y"]}), given)
            assert type(made) is BatchFeature
            assert torch.equal(made["z"], layer(given["x"]) + given["more"]["y"])
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            assert torch.is_autocast_cache_enabled()
    assert capture.recorded == 1


@pytest.mark.parametrize("what", ["loop", "chunk"])
def test_a_graph_under_autocast_casts_its_weights_itself(what: str) -> None:
    """What autocast casts before a capture is freed when its context ends, as with `policy.use_amp` in a rollout."""
    subject = tiny("pi05")
    capture = Replayed(WARMUPS)
    half, graph = MixedPrecision("bf16"), CudaGraph(what, capture)
    plain, cast = chunks(subject), chunks(subject, half)
    for _ in range(2):
        assert all(torch.equal(a, b) for a, b in zip(chunks(subject, half, graph), cast, strict=True))
    assert capture.recorded == 1
    assert all(torch.equal(a, b) for a, b in zip(chunks(subject, graph), plain, strict=True))
    with torch.autocast("cpu", torch.bfloat16):
        own = chunks(subject)
        assert all(torch.equal(a, b) for a, b in zip(chunks(subject, graph), own, strict=True))
    assert capture.recorded == 3
    assert not torch.equal(plain[0], cast[0])


def test_guidance_in_closed_form_is_captured_and_autograd_is_refused() -> None:
    subject = tiny("pi0")
    rtc = RealTimeChunking(RTCConfig(enabled=True, execution_horizon=6), 2)
    capture = Replayed(WARMUPS)
    guided = (rtc, ClosedFormGuidance())
    for what in ("loop", "chunk"):
        graph = CudaGraph(what, capture)
        with treat(subject, Variant("v", (*guided, graph))):
            found = [subject.chunk(index) for index in range(2)]
        assert all(torch.equal(a, b) for a, b in zip(found, chunks(subject, *guided), strict=True))
        with pytest.raises(UserError, match="autograd cannot be captured"):
            chunks(subject, rtc, graph)
    assert capture.recorded == 2


def test_rtc_that_is_turned_on_later_runs_without_the_graph_and_says_so() -> None:
    """A rollout turns RTC on after the recipe: its loop must go on, and plain calls find the graph again."""
    subject = tiny("pi0")
    rtc = RealTimeChunking(RTCConfig(enabled=True, execution_horizon=6), 2)
    for what in ("loop", "chunk"):
        emulated = Replayed()
        plain, guided = chunks(subject, count=1)[0], chunks(subject, rtc, count=1)[0]
        with treat(subject, CudaGraph(what, emulated)):
            assert torch.equal(subject.chunk(0), plain)
            with pytest.warns(UserWarning, match=f"graph={what} is not used in calls with RTC: .*guidance"):
                assert torch.equal(chunks(subject, rtc, count=1)[0], guided)
            assert torch.equal(subject.chunk(0), plain)
        assert emulated.recorded == 1


def test_what_comes_out_is_the_callers_own() -> None:
    subject = tiny("act")
    graph = CudaGraph("chunk", Replayed(WARMUPS))
    with treat(subject, graph):
        first = subject.model_chunk(0)
        kept = first.clone()
        subject.model_chunk(1)
        assert torch.equal(first, kept)


def test_another_policys_loop_passes_through() -> None:
    mine = tiny("pi05")
    other = copy.deepcopy(mine)
    capture = Replayed(WARMUPS)
    plain = other.chunk(0)
    with treat(mine, CudaGraph("loop", capture)):
        assert torch.equal(other.chunk(0), plain)
        assert capture.recorded == 0


def test_off_cuda_and_off_its_kind_it_says_so() -> None:
    with pytest.raises(UserError, match=r"needs CUDA, but .* is on cpu"):
        CudaGraph("loop").apply(tiny("pi05"))
    with pytest.raises(UserError, match=r"for flow policies .* possible here: chunk"):
        CudaGraph("loop", Replayed(WARMUPS)).apply(tiny("act"))
    with pytest.raises(UserError, match="cannot be captured; none of its kind can be"):
        CudaGraph("chunk", Replayed(WARMUPS)).apply(tiny("vqbet"))
    with pytest.raises(UserError, match="did you mean 'chunk'"):
        catalogue.make({"graph": "chunks"})
    assert not graph.ENTRY.candidates(tiny("pi05"))  # on a CPU


def test_a_loop_that_is_not_met_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = tiny("pi05")
    model: Any = subject.policy.model
    monkeypatch.setitem(vars(model), "sample_actions", lambda *_, **__: torch.zeros(1, 50, 32))
    with pytest.raises(UserError, match="already changes this part"):
        chunks(subject, CudaGraph("loop", Replayed(WARMUPS)), count=1)


def test_what_cannot_be_captured_is_one_line() -> None:
    class Failing(Replayed):
        def record(self, warm: Any, run: Any, device: Any) -> Any:
            raise RuntimeError("operation not permitted\nwhen stream is capturing")

    subject = tiny("pi05")
    state = torch.get_rng_state()
    with pytest.raises(UserError, match="the denoising loop cannot be captured: operation not permitted when stream"):
        chunks(subject, CudaGraph("loop", Failing()), count=1)
    torch.set_rng_state(state)
    with pytest.raises(UserError, match="holds a object"):
        regions.Structure({"unknown": object()}, "it")


@pytest.mark.parametrize(("what", "operator"), [("chunk", "item"), ("loop", "tolist")])
def test_what_cannot_be_captured_is_named_with_its_line(
    monkeypatch: pytest.MonkeyPatch, what: str, operator: str
) -> None:
    """The ladder then goes on to smaller graphs, and its line says which operator of which line was in the way."""
    subject = tiny("pi05")
    model: Any = subject.policy.model
    step = model.denoise_step

    def looking(*args: Any, **kwargs: Any) -> Any:
        velocity = step(*args, **kwargs)
        getattr(velocity.sum(), operator)()
        return velocity

    monkeypatch.setitem(vars(model), "denoise_step", looking)
    with EmulatedDevice() as device, device.holding(subject):
        where = rf"cannot be captured: {operator} in treatments/test_cuda_graph.py:\d+ \(looking\): "
        with pytest.raises(UserError, match=where):
            chunks(subject, CudaGraph(what, Graph(device)), count=1)
        assert len(chunks(subject, CudaGraph("prefix", Graph(device)), count=1)) == 1


def test_numbers_of_the_host_are_remembered_and_noise_is_drawn_anew() -> None:
    host = Host(torch.device("cpu"))

    def region(number: float) -> Tensor:
        sent = torch.tensor([number, 1.0])
        sent += torch.randn(2)  # the region may write into what it is given
        return sent

    torch.manual_seed(1)
    with host.warming():
        warm = region(2.0)
    torch.manual_seed(1)
    host.draw()
    for _ in range(2):
        with host.capturing():
            assert torch.equal(region(3.0), warm)  # as it was: the number does not come from the host again
    torch.manual_seed(2)
    host.draw()
    torch.manual_seed(2)
    expected = torch.tensor([2.0, 1.0]) + torch.randn(2)
    with host.capturing():
        assert torch.equal(region(0.0), expected)
    look, scores = torch.tensor([True, False]), torch.randn(2, dtype=torch.bfloat16)
    with host.warming():
        chosen = torch.where(look, 0.0, -1e30), torch.where(look, scores, -3.0)
    for ours, theirs in zip(chosen, (torch.where(look, 0.0, -1e30), torch.where(look, scores, -3.0)), strict=True):
        assert torch.equal(ours, theirs)
        assert ours.dtype == theirs.dtype
    with host.warming():
        region(1.0)
    with pytest.raises(RuntimeError, match="less than before"), host.capturing():
        pass


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "what", "regions"), REGIONS)
def test_on_the_device_a_replay_is_the_call(kind: str, what: str, regions: int) -> None:
    subject = tiny(kind, "cuda")
    plain = chunks(subject)
    graph = CudaGraph(what)
    for found in (chunks(subject, graph), chunks(subject, graph)):
        assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))


@pytest.mark.gpu
def test_on_the_device_guidance_and_both_graphs_together() -> None:
    subject = tiny("pi05", "cuda")
    guided = (
        RealTimeChunking(RTCConfig(enabled=True, execution_horizon=6), 2),
        ClosedFormGuidance(),
        Precision("bf16"),
    )
    plain = chunks(subject, *guided)
    found = chunks(subject, *guided, CudaGraph("prefix"), CudaGraph("loop"))
    assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))


@pytest.mark.gpu
def test_on_the_device_a_failed_capture_leaves_nothing_in_capture() -> None:
    device, capture = torch.device("cuda"), Cuda()
    place = torch.zeros(4, device=device)
    replay, _ = capture.record(lambda: place.add_(1), lambda: place.add_(1), device)
    before = torch.cuda.current_stream()
    for _ in range(3):
        with pytest.raises(RuntimeError):
            capture.record(lambda: None, lambda: place.sum().item(), device)
        assert torch.cuda.current_stream() == before
        assert not torch.cuda.is_current_stream_capturing()
        torch.manual_seed(1)
        first = torch.randn(5, device=device)
        torch.manual_seed(1)
        assert torch.equal(torch.randn(5, device=device), first)
        had = place.clone()
        replay()
        assert torch.equal(place, had + 1)
        held = torch.empty(2**24, device=device, pin_memory=False)
        pinned = torch.empty(2**20, pin_memory=True)
        del held, pinned
    capture.record(lambda: place.mul_(2), lambda: place.mul_(2), device)[0]()
