"""Exact treatments under a graph that replays operators and runs no Python: bit-equal to the same without the graph.

Observations differ in prompt and its length, and earlier ones come again. Treatments are put on once, as on a robot,
and around each call, as in a comparison.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from strobe.subjects.checks import varied
from strobe.subjects.loading import load_subject
from strobe.subjects.policy_subject import PolicySubject
from strobe.treatments import catalogue
from strobe.treatments.graphs.graph import CudaGraph
from strobe.treatments.graphs.replayed import Replayed
from strobe.treatments.treatment import Spec, Treatment, Variant

STEPS = {"pi05": "num_inference_steps", "smolvla": "num_steps", "pi0": "num_inference_steps"}
EXACT: dict[str, Spec] = {
    "cameras": {"cameras": "batched"},
    "padding": {"padding": "trimmed"},
    "tail": {"prefix_tail": "skipped"},
    "cache": {"prefix_cache": "static"},
    "timesteps": {"timesteps": "precomputed"},
    "masks": {"masks": "once"},
}
MORE: dict[str, Spec] = {"sdpa": {"attention": "sdpa"}, "fused": {"projections": "fused"}}
ALL = tuple(EXACT)
TOGETHER = [(name,) for name in (*EXACT, *MORE)] + [("cache", "masks"), ("cache", "sdpa"), ALL, (*ALL, "sdpa")]
VISITS = (0, 1, 0, 2, 1)


@cache
def tiny(kind: str) -> PolicySubject:
    return load_subject(policy_type=kind, size="tiny", overrides=["--device=cpu", f"--{STEPS[kind]}=2"])


@cache
def observations(kind: str) -> list[dict[str, object]]:
    # The same cameras in all, so that a graph is captured for few shapes.
    checks = varied(tiny(kind).inputs.checks(3), reads_words=True, may_miss=False)
    return checks.observations


def chunks(kind: str, treatments: list[Treatment], once: bool) -> list[Tensor]:
    subject, variant, found = tiny(kind), Variant("v", tuple(treatments)), []
    undo = variant.apply(subject) if once else None
    try:
        for index in VISITS:
            off = undo or variant.apply(subject)
            found.append(subject.act(dict(observations(kind)[index]), index).clone())
            if not once:
                off()
    finally:
        if undo is not None:
            undo()
    return found


# Around each call those that keep the most; the others are put on once, which takes fewer captures.
MOST = [("cache", "masks"), ALL, (*ALL, "sdpa")]
CASES = [(names, True) for names in TOGETHER] + [(names, False) for names in MOST]


@pytest.mark.parametrize("graphs", [("loop",), ("prefix",), ("prefix", "loop")], ids="+".join)
@pytest.mark.parametrize(
    ("names", "once"), CASES, ids=[f"{'+'.join(n)}{'' if once else ' around each call'}" for n, once in CASES]
)
@pytest.mark.parametrize("kind", ["pi05", "smolvla"])
def test_a_graph_changes_no_bit(kind: str, names: tuple[str, ...], graphs: tuple[str, ...], once: bool) -> None:
    specs = catalogue.ordered([{**EXACT, **MORE}[name] for name in names])
    plain = chunks(kind, [catalogue.make(spec) for spec in specs], once)
    assert not torch.equal(plain[0], plain[1])
    captures = [Replayed(warmups=2) for _ in graphs]
    captured = [CudaGraph(what, capture) for what, capture in zip(graphs, captures, strict=True)]
    found = chunks(kind, [*(catalogue.make(spec) for spec in specs), *captured], once)
    assert all(capture.recorded for capture in captures)
    assert [torch.equal(a, b) for a, b in zip(found, plain, strict=True)] == [True] * len(VISITS)


def test_a_timestep_that_no_table_has_is_no_number_in_a_graph() -> None:
    """On a GPU the table cannot look whether it has the timestep: it must not take another one's row."""
    from strobe.treatments.flow.timesteps import _Table
    from strobe.treatments.graphs.host_work import Host

    table = _Table(torch.tensor([1.0, 0.5]), torch.tensor([[1.0], [2.0], [torch.nan]]), None, [])
    with Host(torch.device("cpu")).warming():
        known, unknown = (table.index(torch.tensor([time])) for time in (0.5, 0.25))
    assert known is not None
    assert unknown is not None
    assert table.embeddings[known].tolist() == [[2.0]]
    assert table.embeddings[unknown].isnan().all()
    assert table.index(torch.tensor([0.25])) is None, "on a CPU it is seen, and computed as the policy does"


def test_what_a_warm_up_left_is_seen_by_the_replay() -> None:
    """The emulator sees the fault that it is for: a value kept from one call to the next."""
    kept: dict[str, Tensor] = {}
    given = torch.ones(3)
    replay, made = Replayed().record(lambda: kept.setdefault("x", given * 2), lambda: kept["x"] + 1, given.device)
    given.fill_(5)
    replay()
    assert made.tolist() == [3, 3, 3], "the product was not captured"
    replay, made = Replayed().record(lambda: given * 2, lambda: given * 2 + 1, given.device)
    given.fill_(7)
    replay()
    assert made.tolist() == [15, 15, 15]


def test_what_waits_for_the_device_cannot_be_captured() -> None:
    with pytest.raises(RuntimeError, match="waits for the device"):
        Replayed().record(lambda: None, lambda: torch.ones(1).item(), torch.device("cpu"))
