"""Treatments under CUDA graphs on an emulated device: is each bit what the same treatments make without a graph?

A policy is given observations that differ in prompt and its length, and earlier ones come again. Treatments are applied
once, as on a robot, or around each call, as in a comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import torch
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.families.registry import find_family, list_types_having
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import PROCESS, Treatment, Variant
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.policies.varied_checks import PROMPTS
from strobe.lerobot.sampling import Flow, Graphs
from strobe.treatments.flow.rtc import ClosedFormGuidance, RealTimeChunking
from strobe.treatments.graphs.graph import CudaGraph
from support.builders.tiny_policies import load_short_subject
from support.devices.emulated_device import EmulatedDevice, Graph

VISITS = (0, 1, 0, 2, 1)  # of observations
HORIZON, DELAY = 6, 2  # of Real-Time Chunking
WARMUPS = 2
# A policy whose whole call no graph can hold, by what it looks at: the operator and the line that say so.
REFUSED = {"groot": r"cannot be captured: __getitem__ in qwen3_vl/modeling_qwen3_vl.py:\d+ \(get_rope_index\)"}
# Beside what is exact: they move sums, and a graph must not move them further.
ROUNDING = ("attention", "projections")
LAST_BITS = 1e-6  # of a chunk's largest action: eight times float32's precision

Names = tuple[str, ...]  # treatments as they are written on a command line


@dataclass(frozen=True)
class Case:
    """Treatments of one policy under graphs.

    Args:
        once: put on once for all calls, or around each.
        guided: Real-Time Chunking is on, with its guidance in closed form.
    """

    kind: str
    names: Names
    graphs: Names
    once: bool = True
    guided: bool = False

    def __str__(self) -> str:
        what = " + ".join([*(["RTC"] if self.guided else []), *self.names]) or "untouched"
        return f"{self.kind}: {what}, graph={'+'.join(self.graphs)}{'' if self.once else ', around each call'}"


@dataclass(frozen=True)
class Verdict:
    """The outcome of a case: whether each visit's chunk was the same, or why there is none."""

    case: Case
    equal: tuple[bool, ...]
    captures: int
    error: str = ""

    @property
    def holds(self) -> bool:
        """Whether all is as without the graph, and there was a graph."""
        return not self.error and all(self.equal) and self.captures > 0

    def __str__(self) -> str:
        found = self.error or "".join("=" if one else "X" for one in self.equal)
        return f"{self.case}: {found}, {self.captures} captures"


def kinds() -> list[str]:
    """Return the types of policy that graphs are for: flow policies, and those whose whole sampling can be captured."""
    return sorted({*list_types_having(Flow), *list_types_having(lambda family: Graphs.from_family(family).whole)})


def possible_graphs(kind: str) -> list[Names]:
    """Return the graphs, alone and together, that a type of policy can have."""
    family = find_family(kind)
    assert family is not None
    graphs = Graphs.from_family(family)
    flow: list[Names] = [("loop",), ("prefix",), ("prefix", "loop")] if family.get(Flow) is not None else []
    loop: list[Names] = [("loop",)] if graphs.loop is not None else []
    return [*flow, *loop, *([("chunk",)] if graphs.whole is not None and kind not in REFUSED else [])]


@cache
def tiny(kind: str) -> PolicySubject:
    """A tiny policy on the CPU, of few denoising steps."""
    return load_short_subject(kind, image_size=(64, 64))


@cache
def observations(kind: str) -> list[dict[str, Any]]:
    """One for each number in `VISITS`: with the same cameras, and prompts of different length."""
    found = tiny(kind).inputs.checks(max(VISITS) + 1).observations
    prompts = sorted(PROMPTS, key=len)
    chosen = (prompts[1], prompts[-1], prompts[0])
    return [
        {**one, "task": prompt if isinstance(one.get("task", ""), str) else [prompt]}
        for one, prompt in zip(found, chosen, strict=True)
    ]


@cache
def exact(kind: str) -> Names:
    """Return the exact treatments that a type of policy is offered, without those of the process."""
    return _offered_names(kind, lambda entry: entry.effect == "exact" and entry.rank != PROCESS)


@cache
def rounding(kind: str) -> Names:
    """Return those of `ROUNDING` that a type of policy is offered."""
    return _offered_names(kind, lambda entry: entry.key in ROUNDING)


def together(kind: str) -> Iterator[Names]:
    """Yield no treatment, each one, each pair, all exact ones, and these with those that round."""
    every, more = exact(kind), rounding(kind)
    found: list[Names] = [(), *((one,) for one in (*every, *more)), *combinations((*every, *more), 2)]
    found += [(*every, *some) for some in ((), *((one,) for one in more), more)]
    yield from dict.fromkeys(found)


def judge(device: EmulatedDevice, cases: Sequence[Case]) -> Iterator[Verdict]:
    """Run each case on its policy, which ``device`` holds. What two neighbours have in common is run once."""
    plain: list[Tensor] = []
    of: Any = None
    for case in cases:
        subject = tiny(case.kind)
        graphs = [Graph(device, WARMUPS) for _ in case.graphs]
        try:
            with device.holding(subject):
                if of != (case.kind, case.names, case.guided):
                    plain = chunks(subject, treatments(case), once=True)
                    of = case.kind, case.names, case.guided
                    if torch.equal(plain[0], plain[1]):
                        raise UserError("the observations make no difference to the policy")
                captured = [CudaGraph(what, graph) for what, graph in zip(case.graphs, graphs, strict=True)]
                found = chunks(subject, [*treatments(case), *captured], once=case.once)
        except Exception as error:  # of whatever kind: it is the answer
            yield Verdict(case, (), 0, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
            continue
        equal = tuple(_same(a, b, case) for a, b in zip(found, plain, strict=True))
        yield Verdict(case, equal, min(graph.recorded for graph in graphs))


def treatments(case: Case) -> list[Treatment]:
    """The treatments of ``case`` without its graphs, new ones, in their order."""
    made = list(catalogue.compose([spec for name in case.names for spec in catalogue.parse(name)]))
    if case.guided:
        made.insert(0, RealTimeChunking(RTCConfig(enabled=True, execution_horizon=HORIZON), DELAY))
        made.append(ClosedFormGuidance())
    return made


def chunks(subject: PolicySubject, made: Sequence[Treatment], *, once: bool) -> list[Tensor]:
    """The chunk of each visit; an observation has the same noise whenever it comes."""
    variant, found = Variant("v", tuple(made)), []
    undo = variant.apply(subject) if once else None
    try:
        for index in VISITS:
            off = undo or variant.apply(subject)
            try:
                found.append(subject.act(dict(observations(subject.info.kind)[index]), index).clone())
            finally:
                if not once:
                    off()
    finally:
        if undo is not None:
            undo()
    return found


def _same(found: Tensor, plain: Tensor, case: Case) -> bool:
    """Whether each bit is the same; with treatments that round, all but the last few.

    They stack weights, and on some CPUs MKL takes the sums of a product in an order that depends on where its matrices
    lie in memory. What a graph does wrong is larger by far: another prompt moves a chunk by a thousand times as much.
    """
    if set(case.names).isdisjoint(rounding(case.kind)):
        return torch.equal(found, plain)
    return bool((found - plain).abs().max() <= LAST_BITS * plain.abs().max())


def _offered_names(kind: str, wanted: Any) -> Names:
    specs = [spec for entry in catalogue.entries() if wanted(entry) for spec in entry.candidates(tiny(kind))]
    return tuple(catalogue.format_spec(spec) for spec in catalogue.sort_specs(specs) if "graph" not in spec)
