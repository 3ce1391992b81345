"""Memory that a captured variant needs: what its graphs hold between replays counts, and no other variant's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.devices.made_up_accelerator import Accelerator

from strobe.core.studies.shared.counting import count
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.treatments.engines.compile import Compile
from strobe.treatments.graphs.graph import CudaGraph

SECOND = torch.device("cuda:1")
MINE, ANOTHER, TREES = (0, 7), (0, 8), (0, 9)


class Put(Treatment):
    """A treatment that changes nothing, with the pools of ``inner``."""

    effect = "exact"

    def __init__(self, inner: Treatment) -> None:
        self.inner, self.builds = inner, inner.builds

    def pools(self, device: torch.device) -> Any:
        return self.inner.pools(device)

    def apply(self, subject: Any) -> Any:
        return lambda: None


@pytest.fixture
def made_up(monkeypatch):
    accelerator = Accelerator()
    monkeypatch.setattr(torch, "get_device_module", lambda _: accelerator)
    monkeypatch.setattr(torch.cuda, "memory_snapshot", accelerator.memory_snapshot)
    accelerator.cards[0].segments = [{"segment_pool_id": MINE, "total_size": 30_000, "allocated_size": 0}]
    accelerator.cards[1].segments = [
        {"segment_pool_id": MINE, "total_size": 2000, "allocated_size": 500},
        {"segment_pool_id": MINE, "total_size": 100, "allocated_size": 0},
        {"segment_pool_id": ANOTHER, "total_size": 50_000, "allocated_size": 0},
        {"segment_pool_id": TREES, "total_size": 700, "allocated_size": 0},
        {"segment_pool_id": (0, 0), "total_size": 90_000, "allocated_size": 0},
    ]
    return accelerator


def measure_peak(accelerator: Accelerator, treatment: Treatment) -> int | None:
    card = accelerator.cards[1]

    def call(_: int) -> None:
        card.take(1000)
        card.take(-1000)

    subject: Any = SimpleNamespace(device=SECOND)
    memory = count(subject, Variant("v", (Put(treatment),)), call, []).memory
    assert memory.peak_device == 1000 + (memory.graphs or 0), "what graphs hold is a figure of its own"
    return memory.peak_device


def test_a_graph_s_pool_counts_as_memory_of_its_variant(made_up):
    """Between replays no tensor lives in it, so that the allocator counts it as free; every replay writes there."""
    graph = CudaGraph("loop")
    graph.capture.pools.append(MINE)
    assert measure_peak(made_up, graph) == 1000 + 1500 + 100
    assert measure_peak(made_up, CudaGraph("prefix")) == 1000


def test_so_does_that_of_graphs_that_torch_compile_captures(made_up, monkeypatch):
    managers = {1: SimpleNamespace(cuda_graphs_thread_pool=TREES)}
    trees = SimpleNamespace(get_manager=lambda index, create_if_none_exists: managers.get(index))
    monkeypatch.setitem(__import__("sys").modules, "torch._inductor.cudagraph_trees", trees)
    assert measure_peak(made_up, Compile("reduce-overhead")) == 1000 + 700
    assert measure_peak(made_up, Compile("default")) == 1000
    managers.clear()
    assert measure_peak(made_up, Compile("reduce-overhead")) == 1000
