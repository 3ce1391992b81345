"""The emulated device sees what a card would: tensors of two devices, waits and copies in a capture, stale values."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.devices.emulated_device import CUDA, TO_DEVICE, TO_HOST, WAIT, EmulatedDevice, Graph
from support.devices.graph_matrix import chunks, tiny
from torch import Tensor, nn

from strobe.core.errors import UserError
from strobe.core.subjects.subject import Subject
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.treatment import Effect, Treatment, Undo, require_policy
from strobe.treatments.graphs.graph import CudaGraph


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    with EmulatedDevice() as emulated:
        yield emulated


def test_tensors_are_where_they_were_told_to_be(device):
    for made in (
        torch.zeros(3, device="cuda"),
        torch.tensor([1.0], device=CUDA),
        torch.arange(4, device=0),
        torch.zeros(3).to("cuda:0"),
        torch.zeros(3).cuda(),
        torch.zeros(3).to(torch.zeros(1, device="cuda")),
        torch.zeros(3, device="cuda").to(torch.float16),
        torch.zeros(3, device="cuda")[1:] + 1,
        torch.zeros(3, device="cuda").new_ones(2),
        torch.randn(2, device="cuda") * torch.tensor(2.0),  # a number of the host's, which CUDA takes
        copy.deepcopy(torch.zeros(3, device="cuda")),
        nn.Linear(2, 2, device="cuda").weight,
    ):
        assert (made.device, made.is_cuda, made.is_cpu) == (CUDA, True, False)
    moved = torch.zeros(3, device="cuda").cpu()
    for made in (torch.zeros(3), moved, moved + 1, torch.zeros(2, device="cuda").new_ones(2, device="cpu")):
        assert (made.device.type, made.is_cuda) == ("cpu", False)
    assert torch.zeros(3, device="cuda").to("cpu", torch.float64).dtype is torch.float64
    linear = nn.Linear(2, 2).to("cuda")
    assert linear(torch.zeros(1, 2, device="cuda")).is_cuda


def test_two_devices_do_not_mix(device):
    here, there = torch.ones(3), torch.ones(3, device="cuda")
    for mixing in (
        lambda: here + there,
        lambda: there.add_(here),
        lambda: torch.cat([here, there]),
        lambda: torch.stack([torch.tensor(1.0), there.sum()]),
        lambda: nn.functional.linear(here[None], there[None]),
        lambda: there.index_select(0, torch.tensor([1])),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            mixing()
    with pytest.raises(RuntimeError, match="indices should be"):
        here[torch.zeros(1, dtype=torch.long, device="cuda")]
    with pytest.raises(TypeError, match="convert cuda"):
        there.numpy()
    with pytest.raises(TypeError, match="convert cuda"):
        np.asarray(there)
    assert (there * 2 + torch.tensor(1.0)).is_cuda


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (WAIT, lambda x: x.sum().item()),
        (WAIT, lambda x: bool(x.any())),
        (WAIT, lambda x: x.tolist()),
        (WAIT, lambda x: x[x > 0]),
        (WAIT, lambda x: x.nonzero()),
        (WAIT, lambda x: torch.cuda.synchronize()),
        (TO_HOST, lambda x: x.cpu()),
        (TO_DEVICE, lambda x: torch.tensor(1.0, device=x.device)),
        (TO_DEVICE, lambda x: torch.zeros(2).to(x.device)),
        (TO_DEVICE, lambda x: x[torch.tensor([0])]),
        (TO_DEVICE, lambda x: x.copy_(torch.zeros(3))),
        (TO_DEVICE, lambda x: torch.where(x > 0, x, 0.0)),
    ],
)
def test_what_goes_by_way_of_the_host_is_noted_and_cannot_be_captured(device, kind, what):
    x = torch.ones(3, device="cuda")
    assert not device.notes
    what(x)
    assert [note.kind for note in device.notes] == [kind]
    assert "test_emulated_device.py" in next(iter(device.notes)).where
    with pytest.raises(RuntimeError, match=r"when stream is capturing|not permitted in a capture"):
        Graph(device).record(lambda: None, lambda: what(x), CUDA)
    assert not device.recording


def test_a_graph_holds_work_of_the_device_alone(device):
    x, number = torch.ones(3, device="cuda"), torch.tensor(2.0)
    replay, made = Graph(device).record(lambda: None, lambda: x * (number + 1), CUDA)
    number.fill_(7)
    x.fill_(2)
    replay()
    assert made.cpu().tolist() == [6, 6, 6], "the host's sum was read in the capture"


def test_a_value_of_the_warm_up_and_freed_memory_are_seen(device):
    kept: dict[str, Tensor] = {}
    x = torch.ones(3, device="cuda")
    replay, made = Graph(device).record(lambda: kept.setdefault("x", x * 2), lambda: kept["x"] + 1, CUDA)
    x.fill_(5)
    replay()
    assert made.cpu().tolist() == [3, 3, 3], "the product was not captured"
    kept.clear()
    with pytest.raises(RuntimeError, match="memory that was freed"):
        replay()


def test_gradients_checkpoints_and_optimizers_are_on_the_device(device):
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)).to("cuda")

    def part(x: Tensor) -> Tensor:
        return model(x) + torch.zeros(1, device=x.device)  # the second time it runs in the backward pass

    optimizer = torch.optim.AdamW(model.parameters())
    made: Any = checkpoint(part, torch.ones(2, 3, device="cuda"), use_reentrant=False)
    made.sum().backward()
    optimizer.step()
    found = [p.grad for p in model.parameters()] + [state["exp_avg"] for state in optimizer.state.values()]
    assert all(one is not None and one.is_cuda for one in found)
    with torch.autocast("cuda"):
        assert model(torch.ones(2, 3, device="cuda")).dtype is torch.float16


def test_nothing_is_left_behind():
    own = torch.Tensor.device, torch.cuda.is_available, torch.autocast.__init__
    with EmulatedDevice() as device, device.holding(tiny("pi05")) as subject:
        weight = next(subject.module.parameters())
        assert weight.is_cuda
        assert subject.device.type == "cuda"
    assert (torch.Tensor.device, torch.cuda.is_available, torch.autocast.__init__) == own
    assert weight.device.type == subject.device.type == "cpu"
    subject.chunk(0)


class Faulty(Treatment):
    """A treatment of denoising steps with a fault in it."""

    effect: Effect = "exact"

    def __init__(self, fault: Any) -> None:
        self.fault = fault

    def apply(self, subject: Subject) -> Undo:
        patches = Patches()
        patches.wrap(
            require_policy(subject).policy.model,
            "denoise_step",
            lambda step: lambda *args, **kwargs: self.fault(step(*args, **kwargs)),
        )
        return patches.undo


def test_a_treatment_with_a_fault_is_caught(device):
    kept: dict[str, Tensor] = {}

    def acting(fault: Any) -> list[Tensor]:
        with device.holding(tiny("pi05")) as subject:
            return chunks(subject, [Faulty(fault), CudaGraph("loop", Graph(device))], once=True)

    right = acting(lambda velocity: velocity * 1)
    stale = acting(lambda velocity: kept.setdefault("first", velocity.clone()))
    assert [torch.equal(a, b) for a, b in zip(stale, right, strict=True)] == [False] * len(right)
    assert torch.equal(stale[0], stale[0])
    with pytest.raises(RuntimeError, match="same device"), device.holding(tiny("pi05")) as subject:
        chunks(subject, [Faulty(lambda velocity: velocity + torch.zeros(velocity.shape))], once=True)
    with pytest.raises(UserError, match=r"cannot be captured: .*(same device|capturing)"):
        acting(lambda velocity: velocity + torch.zeros(velocity.shape))
    with pytest.raises(UserError, match=r"cannot be captured: .*waits for the device"):
        acting(lambda velocity: velocity * (1 if velocity.sum().item() else 2))
