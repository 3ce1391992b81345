"""Policies under graphs on a way of many prompts: six lengths in random order, few graphs kept, two policies in turn.

Each chunk must have the bits that the policy gives without a graph, whether a graph or the policy itself made it.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from strobe.core.families.registry import find_family
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.sampling import Flow, Graphs
from strobe.treatments.graphs import regions
from strobe.treatments.graphs.graph import CudaGraph
from support.devices.emulated_device import EmulatedDevice, Graph
from support.devices.graph_matrix import WARMUPS, Case, Names, exact, observations, possible_graphs, tiny, treatments

TASK = "pick up the small red cube that lies there and put it onto the upper shelf of the wooden cabinet now"
LENGTHS = (1, 3, 5, 8, 12, 20)  # of prompts, in words
ROUNDS = 2  # each prompt comes so often, in random order
KEPT = 3  # graphs where the bound is reached
TRIMMED = "padding=trimmed, padding.multiple=1"  # each length of a prompt is a shape of its own
BUCKETED = "prompt_length=bucketed"  # a shape for each 16 tokens


@dataclass(frozen=True)
class Walk:
    """A way of one kind of policy, or of two with different weights in turn.

    Args:
        kept: graphs of a region that are kept at most.
        guided: Real-Time Chunking is on, with its guidance in closed form.
        shared: one treatment is applied both policies, now on one and now on the other.
    """

    kind: str
    graphs: Names
    names: Names = ()
    kept: int = 8
    guided: bool = False
    policies: int = 1
    shared: bool = False

    def __str__(self) -> str:
        more = [
            *(["RTC"] if self.guided else []),
            *(["two policies"] if self.policies > 1 else []),
            *(["one treatment for both"] if self.shared else []),
            *([f"{self.kept} graphs at most"] if self.kept < len(LENGTHS) else []),
        ]
        names = " + ".join(name.partition("=")[0] for name in self.names) or "untouched"
        return ", ".join([f"{self.kind}: {names}, graph={'+'.join(self.graphs)}", *more])


@dataclass(frozen=True)
class Walked:
    """What came of a way: for each chunk whether its bits are right, and how many captures were made.

    ``most``: captures of a region that would mean one is made again and again.
    """

    walk: Walk
    equal: tuple[bool, ...]
    captures: int
    most: int
    error: str = ""

    @property
    def holds(self) -> bool:
        """Whether all is as without the graph, and there were graphs, but none in each call."""
        return not self.error and all(self.equal) and 0 < self.captures <= self.most

    def __str__(self) -> str:
        found = self.error or "".join("=" if one else "X" for one in self.equal)
        return f"{self.walk}: {found}, {self.captures} captures, at most {self.most}"


def walks(kind: str) -> list[Walk]:
    """Return the ways of a type of policy: the bound not reached and reached, RTC, two policies."""
    family = find_family(kind)
    flow = family is not None and family.get(Flow) is not None
    graphs = possible_graphs(kind)[-1]
    every = (*exact(kind), TRIMMED) if flow else exact(kind)
    names = (TRIMMED,) if flow else ()
    one = Walk(kind, graphs, names)
    found = [one, replace(one, kept=KEPT), replace(one, names=every, kept=KEPT), replace(one, policies=2)]
    found += [replace(one, policies=2, shared=True)]
    if flow:
        found += [replace(one, guided=True, kept=KEPT), replace(one, names=(TRIMMED, BUCKETED), kept=KEPT)]
    return found


def walk(device: EmulatedDevice, way: Walk) -> Walked:
    """Go ``way`` on ``device``."""
    subjects = [tiny(way.kind), other(way.kind)][: way.policies]
    order = [number for number in range(len(LENGTHS)) for _ in range(ROUNDS)]
    random.Random(0).shuffle(order)
    graphs: list[Graph] = []
    try:
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(regions, "KEPT", way.kept))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # that the bound is reached
            for subject in subjects:
                stack.enter_context(device.holding(subject))
            plain = _chunks(way, subjects, order, None)
            found = _chunks(way, subjects, order, graphs, device)
    except Exception as error:  # of whatever kind: it is the answer
        return Walked(way, (), 0, 0, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    captures = sum(graph.recorded for graph in graphs)
    # All shapes once; where the bound is reached, half of the calls: those that a graph of another prompt went for.
    # One treatment on two policies makes those of each policy's half of the way: weights are a graph's own.
    half = len(order) // 2
    each = len(set(order[:half])) + len(set(order[half:])) if way.shared else len(LENGTHS)
    each = half if way.kept < len(LENGTHS) else each
    # A graph of the prefix is two where its embedding can be captured too.
    family = find_family(way.kind)
    embedded = family is not None and Graphs.from_family(family).embedding is not None
    regions_of_each = [1 + (what == "prefix" and embedded) for what in way.graphs]
    most = each * sum(regions_of_each) * (len(graphs) // len(way.graphs))
    return Walked(way, tuple(map(torch.equal, found, plain)), captures, most)


@cache
def other(kind: str) -> PolicySubject:
    """Another policy of the kind, with other weights."""
    made = copy.deepcopy(tiny(kind))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in made.module.parameters():
            weight.mul_(1 + 0.1 * torch.rand(1, generator=generator))
    return made


def _chunks(
    way: Walk, subjects: Sequence[PolicySubject], order: Sequence[int], graphs: list[Graph] | None, device: Any = None
) -> list[Tensor]:
    """The chunk of each visit, of each policy in turn; without graphs for None. Those that are made join ``graphs``."""
    variants: list[Variant] = []
    for _ in subjects:
        if way.shared and variants:
            variants.append(variants[0])
            continue
        on = treatments(Case(way.kind, way.names, way.graphs, guided=way.guided))
        if graphs is not None:
            made = [Graph(device, WARMUPS) for _ in way.graphs]
            graphs += made
            on += [CudaGraph(what, graph) for what, graph in zip(way.graphs, made, strict=True)]
        variants.append(Variant("v", tuple(on)))
    found: list[Tensor] = []
    with ExitStack() as stack:
        if not way.shared:
            for variant, subject in zip(variants, subjects, strict=True):
                stack.callback(variant.apply(subject))
        for place, number in enumerate(order):
            # A treatment that both share is taken from one and put on the other for half of the way each.
            both = list(zip(variants, subjects, strict=True))
            for variant, subject in both if not way.shared else both[2 * place // len(order) :][:1]:
                undo = variant.apply(subject) if way.shared else None
                try:
                    found.append(subject.act(dict(prompted_observation(way.kind, number)), number).clone())
                finally:
                    if undo is not None:
                        undo()
    return found


@cache
def prompted_observation(kind: str, number: int) -> dict[str, Any]:
    """The observation with the prompt of that number in `LENGTHS`."""
    seen = observations(kind)
    one, prompt = seen[number % len(seen)], " ".join(TASK.split()[: LENGTHS[number]])
    return {**one, "task": prompt if isinstance(one.get("task", ""), str) else [prompt]}
