"""A capture that fails leaves nothing in capture: on a model of torch's states, as its source has them.

torch.cuda.graph is torch's own here. What it stands on is made up: streams, the allocator's pools, the generator, and
`CUDAGraph` in C++, whose `capture_end` gives up as soon as CUDA says that the capture was invalidated.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest
import torch

from strobe.treatments.graphs import graph as captures


class Model:
    """The process's states: the current device, its current stream, pools that are being filled, the generators."""

    def __init__(self) -> None:
        self.device = 0
        self.current: list[Any] = [("default", 0), ("default", 1)]
        self.capturing: dict[Any, str] = {}  # stream → 'active' or 'invalidated'
        self.filling: list[tuple[int, Any]] = []
        self.held: dict[tuple[int, Any], int] = {}  # pools, with how many use each
        self.drawing_in_capture = [False, False]  # of each device's generator
        self.made = 0
        self.captured_on: list[Any] = []
        self.replayed = 0

    def fail(self) -> None:
        """Do what a capture forbids."""
        self.capturing[self.current[self.device]] = "invalidated"
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    def draw(self) -> None:
        stream = self.current[self.device]
        if stream not in self.capturing and self.drawing_in_capture[self.device]:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")

    def new(self) -> int:
        self.made += 1
        return self.made


class Stream:
    def __init__(self, model: Model) -> None:
        self.key = ("side", model.new(), model.device)
        self.device = model.device

    def wait_stream(self, _: Any) -> None: ...


class Graph:
    def __init__(self, model: Model) -> None:
        self.model, self.ended = model, False

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_: Any) -> None:
        model = self.model
        self.stream, self.where = model.current[model.device], model.device
        assert self.stream[0] != "default", "captured on a default stream"
        assert self.stream[2] == model.device
        model.drawing_in_capture[self.where] = True
        self.own = (self.where, pool if pool is not None else ("own", model.new()))
        model.filling.append(self.own)
        model.held[self.own] = model.held.get(self.own, 0) + 1
        model.capturing[self.stream] = "active"

    def capture_end(self) -> None:
        model = self.model
        if model.current[model.device] != self.stream:
            raise RuntimeError("Capture must end on the same stream it began on.")
        if model.capturing.pop(self.stream) == "invalidated":
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        model.filling.remove(self.own)
        model.drawing_in_capture[self.where] = False
        self.ended = True
        model.captured_on.append(self.stream)

    def pool(self) -> Any:
        if not self.ended:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self.own[1]

    def replay(self) -> None:
        self.model.draw()
        self.model.replayed += 1


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    model = Model()

    @contextmanager
    def device(which: Any) -> Any:
        before, model.device = model.device, torch.device(which).index or 0
        try:
            yield
        finally:
            model.device = before

    class UseStream:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            self.before = model.device, model.current[self.stream.device]
            model.device = self.stream.device
            model.current[model.device] = self.stream.key

        def __exit__(self, *_: Any) -> None:
            model.current[self.stream.device] = self.before[1]
            model.device = self.before[0]

    def end(index: int, pool: Any) -> None:
        if (index, pool) not in model.filling:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        model.filling.remove((index, pool))

    def release(index: int, pool: Any) -> None:
        model.held[index, pool] -= 1

    def set_stream(key: Any) -> None:
        model.current[model.device] = key.key

    class Now:
        def __init__(self) -> None:
            self.key, self.device = model.current[model.device], model.device

        def wait_stream(self, _: Any) -> None: ...

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: model.device)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: Stream(model))
    monkeypatch.setattr(torch.cuda, "stream", UseStream)
    monkeypatch.setattr(torch.cuda, "current_stream", Now)
    monkeypatch.setattr(torch.cuda, "set_stream", set_stream)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: Graph(model))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, model.new()))
    monkeypatch.setattr(
        torch.cuda, "is_current_stream_capturing", lambda: model.current[model.device] in model.capturing
    )
    monkeypatch.setattr(torch.cuda.graph, "default_capture_stream", None)
    monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: None, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", release, raising=False)
    monkeypatch.setattr(captures, "_streams", {})
    return model


def assert_capture_ended(model: Model) -> None:
    assert model.current == [("default", 0), ("default", 1)]
    assert not model.capturing
    assert not model.filling
    assert model.drawing_in_capture == [False, False]
    model.draw()


@pytest.mark.parametrize("where", ["cuda:0", "cuda:1"])
def test_a_failed_capture_leaves_stream_pool_and_generator_as_they_were(model: Model, where: str) -> None:
    device = torch.device(where)
    capture = captures.Cuda()
    earlier, _ = capture.record(model.draw, model.draw, device)
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):  # the cause, not what follows
        capture.record(model.draw, model.fail, device)
    assert_capture_ended(model)
    assert len(capture.pools) == 1
    failed = [count for (_, pool), count in model.held.items() if pool not in capture.pools and pool[0] == 0]
    assert failed == [0], "memory of a capture that failed is held for ever"
    earlier()
    replay, made = capture.record(model.draw, lambda: 5, device)
    replay()
    assert (made, model.replayed) == (5, 2)
    assert_capture_ended(model)


def test_what_fails_in_python_alone_ends_its_capture_as_ever(model: Model) -> None:
    def raise_changed_error() -> None:
        raise KeyError("it does other things now")

    capture = captures.Cuda()
    with pytest.raises(KeyError):
        capture.record(model.draw, raise_changed_error, torch.device("cuda:0"))
    assert_capture_ended(model)
    assert list(model.held.values()) == [1]  # the graph's own, until it is collected


def test_a_region_that_leaves_another_stream_behind(model: Model) -> None:
    """capture_end refuses to end a capture from there, and the stream would stay in it."""

    def wanders() -> None:
        model.current[model.device] = ("default", 0)
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        captures.Cuda().record(model.draw, wanders, torch.device("cuda:0"))
    assert_capture_ended(model)


def test_each_device_is_captured_on_a_stream_of_its_own(model: Model) -> None:
    """torch.cuda.graph has one stream for the process, on the device that captured first."""
    for index in (0, 1, 0, 1):
        captures.Cuda().record(model.draw, model.draw, torch.device("cuda", index))
        assert model.captured_on[-1][2] == index
    assert len(set(model.captured_on)) == 2  # each stream has workspaces of its own: there are to be few
    assert_capture_ended(model)
