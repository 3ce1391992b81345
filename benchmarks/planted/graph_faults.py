"""Faults of graphs of the whole call, each with what puts it back and what sees it; as in `device_faults`."""

from __future__ import annotations

import re
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from support.devices.emulated_device import EmulatedDevice
from support.devices.graph_matrix import REFUSED, Case, Names, judge, tiny
from support.devices.graph_walks import KEPT, TRIMMED, Walk, Walked, walk
from support.devices.replayed_graph import Replayed

from strobe.core.families.registry import find_family
from strobe.lerobot.sampling import Graphs
from strobe.treatments.graphs import graph, regions
from strobe.treatments.graphs.host_work import Host


def wrong(names: Names, graph: str, *, once: bool = True, kind: str = "pi05") -> Callable[[], str]:
    """A check of one case: returns how it fails."""

    def judge_graph() -> str:
        with EmulatedDevice() as device:
            (verdict,) = judge(device, [Case(kind, names, (graph,), once)])
        if verdict.holds:
            return ""
        return verdict.error or "".join("=" if one else "X" for one in verdict.equal)

    return judge_graph


def astray(way: Walk, most: int | None = None) -> Callable[[], str]:
    """A check of one way: returns how it fails, which more than ``most`` captures are too."""

    def judge_walk() -> str:
        with EmulatedDevice() as device:
            walked: Walked = walk(device, way)
        if walked.holds and (most is None or walked.captures <= most):
            return ""
        found = "".join("=" if one else "X" for one in walked.equal)
        return walked.error or f"{found}, {walked.captures} captures"

    return judge_walk


# One treatment on two policies, more prompts than graphs, tasks of six lengths: each is a way.
SHARED = Walk("pi05", ("chunk",), policies=2, shared=True)
MANY = Walk("pi05", ("chunk",), (TRIMMED,), kept=KEPT)
TASKS = Walk("act", ("chunk",))


def noise_of_the_capture() -> AbstractContextManager[Any]:
    """No noise is drawn before a replay."""
    return mock.patch.object(Host, "draw")


def tasks_as_inputs() -> AbstractContextManager[Any]:
    """The words of a task are an input of the region."""
    return mock.patch.object(graph, "_drop_tensorless_entries", lambda value: value)


@contextmanager
def looks_at_the_host() -> Iterator[None]:
    """SmolVLA's vision tower looks at its mask on the host."""
    family = find_family("smolvla")
    assert family is not None
    record = Graphs.from_family(family)
    before = record.without_waits
    object.__setattr__(record, "without_waits", lambda _: ())
    try:
        yield
    finally:
        object.__setattr__(record, "without_waits", before)


def graphs_of_the_first() -> AbstractContextManager[Any]:
    """A treatment that is applied another policy keeps the graphs of the first."""
    apply = graph.CudaGraph.apply

    def apply_and_remember(self: Any, subject: Any) -> Any:
        self._module = subject.module
        return apply(self, subject)

    return mock.patch.object(graph.CudaGraph, "apply", apply_and_remember)


def always_captured() -> AbstractContextManager[Any]:
    """Each shape is captured, and the least recently used graph goes for it."""

    def has_room(captures: OrderedDict[Any, Any], key: Any) -> bool:
        if len(captures) >= regions.KEPT:
            captures.popitem(last=False)
        return True

    return mock.patch.object(regions, "_has_room", has_room)


def casts_of_the_warm_up() -> AbstractContextManager[Any]:
    """Autocast's casts of the warm-up are read by the graph."""
    return mock.patch.object(regions, "_casts_inside", nullcontext)


def freed_casts() -> str:
    """Returns what a graph of a layer under autocast, in float32 itself, gives in two calls."""
    layer = torch.nn.Linear(3, 3)
    place = regions.Regions("loop", tiny("act"), Replayed())
    place.look()
    try:
        for _ in range(2):
            given = torch.randn(2, 3)
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                if not torch.equal(place.run("loop", layer, given), layer(given)):  # type: ignore[arg-type]
                    return "X"
    except RuntimeError as error:
        return str(error)
    return ""


def closed_mappings() -> AbstractContextManager[Any]:
    """A mapping of transformers is one thing, into which nothing looks."""

    class Unknown(UserDict[Any, Any]): ...

    return mock.patch.object(regions, "UserDict", Unknown)


def drop_refusal_words() -> AbstractContextManager[Any]:
    """A refusal names neither operator nor line."""
    return mock.patch.object(regions, "_failure_place", return_value="")


def refusal() -> str:
    """Returns the refusal of GR00T's whole call, unless it names the operator and the line."""
    said = wrong((), "chunk", kind="groot")()
    return "" if re.search(REFUSED["groot"], said) else said or "it was captured"
