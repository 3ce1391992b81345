"""Treatments under graphs on an emulated device: the most telling cases of `benchmarks/device_matrix.py`.

Each bit must be that of the same treatments without the graph. Observations differ in prompt and its length, and
earlier ones come again.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from support.checks.treatment_block import treat
from support.devices.emulated_device import EmulatedDevice, Graph
from support.devices.graph_matrix import Case, exact, judge, observations, rounding, tiny
from support.devices.graph_walks import BUCKETED, KEPT, LENGTHS, TRIMMED, Walk, prompted_observation, walk
from support.devices.training_pair import all_levers, train_both_ways
from support.suite.matrix import matrix
from torch import Tensor

from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Variant
from strobe.treatments.graphs.graph import CudaGraph

CACHE, MASKS, SDPA = ("prefix_cache=static",), ("masks=once",), ("attention=sdpa",)
ALL, MORE = ("all exact",), ("all exact", "and those that round")
BOTH = ("prefix", "loop")
CASES = [
    Case("pi05", CACHE, ("loop",)),  # what a warm-up laid down was not captured
    Case("pi05", MASKS, ("loop",)),  # another prompt's mask
    Case("pi05", MASKS, ("loop",), once=False),  # freed when the treatment was reverted
    Case("pi05", SDPA, ("loop",)),  # kept in a warm-up, and not in the capture
    Case("pi05", CACHE, ("prefix",), once=False),  # the living cache as the form of what a graph returns
    Case("pi05", ALL, BOTH, guided=True),
    Case("act", SDPA, ("chunk",)),
    Case("smolvla", (), ("chunk",)),  # its vision tower looks at a mask on the host
    # And the same on others.
    Case("pi05", ALL, BOTH, once=False),
    Case("smolvla", CACHE, ("loop",)),
    Case("pi05", SDPA, ("chunk",)),
    Case("smolvla", CACHE, ("prefix",), once=False),
    Case("smolvla", ALL, BOTH, once=False),
    Case("pi05", MORE, BOTH),
    Case("pi05", MORE, ("chunk",)),
    Case("smolvla", MORE, BOTH),
    Case("pi0", MORE, ("loop",)),
    Case("groot", (), ("loop",)),  # casts of weights that autocast keeps
]


@pytest.mark.parametrize("case", matrix(CASES, keep=8), ids=str)
def test_a_graph_changes_no_bit(case: Case) -> None:
    every, more = exact(case.kind), rounding(case.kind)
    names = {ALL: every, MORE: (*every, *more)}.get(case.names, case.names)
    assert not case.names or names
    with EmulatedDevice() as device:
        (verdict,) = judge(device, [Case(case.kind, names, case.graphs, case.once, case.guided)])
    assert verdict.holds, str(verdict)


WALKS = [
    Walk("smolvla", ("chunk",), (TRIMMED,), kept=KEPT),  # six lengths of prompts, three graphs
    Walk("pi05", ("chunk",), policies=2, shared=True),  # the second policy with the graphs of the first
    Walk("smolvla", ("chunk",), (BUCKETED,), kept=KEPT, policies=2),  # 2 to 48 tokens: a graph for each 16
    Walk("act", ("chunk",)),  # a capture for each task
    Walk("smolvla", ("chunk",), (TRIMMED,), kept=KEPT, guided=True),
    Walk("pi05", ("prefix", "loop"), (TRIMMED,), kept=KEPT),
    Walk("smolvla", ("prefix", "loop"), (BUCKETED,), kept=KEPT, guided=True),
    Walk("pi05", ("chunk",), (TRIMMED, BUCKETED), kept=KEPT),
]


@pytest.mark.slow("24 chunks for each way")
@pytest.mark.parametrize("way", matrix(WALKS, keep=3), ids=str)
def test_prompts_in_random_order_and_policies_in_turn_change_no_bit(way: Walk) -> None:
    with EmulatedDevice() as device:
        found = walk(device, way)
    assert found.holds, str(found)
    assert way.kind != "act" or found.captures == 1
    assert way.names != (BUCKETED,) or way.guided or found.captures == 3 * way.policies


@pytest.mark.slow("twelve chunks and three captures, against the policy without any treatment", each_change=True)
@pytest.mark.parametrize("names", [(BUCKETED,), (TRIMMED, BUCKETED)])
def test_prompts_in_buckets_act_as_the_policy_does(names: tuple[str, ...]) -> None:
    """The padding is masked: no action moves by more than the last bits of its sums. A copy acts as its original."""
    subject = copy.deepcopy(tiny("smolvla"))
    numbers = range(len(LENGTHS))
    plain = [subject.act(dict(prompted_observation("smolvla", number)), number).clone() for number in numbers]
    with EmulatedDevice() as device, device.holding(subject):
        capture = Graph(device, 2)
        composed = catalogue.compose([spec for name in names for spec in catalogue.parse(name)])
        with treat(subject, Variant("v", (*composed, CudaGraph("chunk", capture)))):
            found = [subject.act(dict(prompted_observation("smolvla", number)), number).clone() for number in numbers]
    assert capture.recorded == 3, "16, 32 and 48 tokens"
    for ours, theirs in zip(found, plain, strict=True):
        assert float((ours - theirs).abs().max()) <= 1e-5 * float(theirs.abs().max())
    assert all(map(torch.equal, plain, [subject.act(dict(prompted_observation("smolvla", n)), n) for n in numbers])), (
        "left behind"
    )


def test_calls_in_and_out_of_inference_mode_share_a_graph() -> None:
    """What is made in that mode, only calls in it may write to: LeRobot's engines differ in it."""
    subject, seen = tiny("pi05"), [dict(one) for one in observations("pi05")]
    with EmulatedDevice() as device, device.holding(subject):
        plain = [subject.act(dict(one), 0).clone() for one in seen[:2]]
        with treat(subject, Variant("v", (CudaGraph("loop", Graph(device, 2)),))):
            with torch.inference_mode():
                found = [subject.act(dict(seen[0]), 0).clone()]
            found.append(subject.act(dict(seen[1]), 0).clone())
    assert all(map(torch.equal, found, plain))


def test_a_call_through_a_graph_walks_no_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """LeRobot puts a policy in eval mode for each chunk: a thousand modules, milliseconds beside a graph of thirty."""
    subject, (seen, *_) = tiny("pi05"), observations("pi05")
    model: Any = subject.policy.model
    with EmulatedDevice() as device, device.holding(subject):
        plain = subject.act(dict(seen), 0).clone()
        with treat(subject, Variant("v", (CudaGraph("chunk", Graph(device, 2)),))):
            assert torch.equal(subject.act(dict(seen), 0), plain)
            monkeypatch.setattr(model, "train", lambda mode=True: pytest.fail("walked again"))
            assert torch.equal(subject.act(dict(seen), 0), plain)
            monkeypatch.undo()
            subject.policy.train()
            assert torch.equal(subject.act(dict(seen), 0), plain)
            assert not model.training


@pytest.mark.parametrize(("kind", "checkpoints"), [("pi05", True), ("smolvla", False)])
def test_a_training_step_is_the_same_on_the_device(kind: str, checkpoints: bool) -> None:
    found = [train_both_ways(kind, lever, checkpoints) for lever in (all_levers()[0], all_levers()[-1])]
    assert [str(one) for one in found if not one.holds] == []


def test_a_timestep_that_no_table_has_is_no_number_in_a_graph() -> None:
    """On a GPU the table cannot look whether it has the timestep: it must not take another one's row."""
    from strobe.treatments.flow.step_values import _Table

    def index(time: float, device: str) -> Tensor | None:
        rows = torch.tensor([[1.0], [2.0], [torch.nan]], device=device)
        table = _Table(torch.tensor([1.0, 0.5], device=device), rows, None, [])
        found = table.index(torch.tensor([time], device=device))
        return None if found is None else table.embeddings.index_select(0, found).cpu()

    with EmulatedDevice():
        known, unknown = index(0.5, "cuda"), index(0.25, "cuda")
    assert known is not None
    assert unknown is not None
    assert known.tolist() == [[2.0]]
    assert unknown.isnan().all()
    assert index(0.25, "cpu") is None, "on a CPU it is seen, and computed as the policy does"
