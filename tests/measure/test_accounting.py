"""FLOP and live memory per section, against torch's own counter and against sizes known beforehand."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from strobe.measure.accounting import Accounting, allocator_of
from strobe.measure.weights import Weights
from strobe.subjects.loading import load_subject
from strobe.timeline import section
from strobe.timeline.probe import Hook


@pytest.mark.parametrize("policy_type", ["act", "diffusion", "smolvla", "pi05"])
@pytest.mark.parametrize("phase", ["inference", "training step"])
def test_the_whole_is_what_torchs_counter_counts(policy_type, phase):
    subject = load_subject(policy_type=policy_type, size="tiny")
    call = subject.call(phase, 2)
    call(0)
    accounting = Accounting()
    # In one piece attention is an operator that torch's counter does not know on the CPU; in steps it is its products.
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as counter:
            call(0)
        accounting.run(lambda: call(0))
    assert accounting.total.gflop * 1e9 == pytest.approx(counter.get_total_flops())


@pytest.mark.parametrize("heads", [4, 2])  # of key and value; fewer than the query's are shared
def test_fused_attention_counts_as_its_products(heads):
    query, key = torch.randn(2, 4, 7, 8), torch.randn(2, heads, 9, 8)
    mask = torch.ones(7, 9, dtype=torch.bool)
    found = []
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(backend):
            accounting = Accounting()
            accounting.run(lambda: scaled_dot_product_attention(query, key, key, mask, enable_gqa=heads < 4))
        found.append(accounting.total.gflop * 1e9)
    assert found[0] == pytest.approx(found[1]) == 2 * 2 * 4 * 7 * 9 * (8 + 8)


def test_fused_attention_s_backward_is_five_products():
    query = torch.randn(2, 4, 7, 8, requires_grad=True)
    accounting = Accounting()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        accounting.run(lambda: scaled_dot_product_attention(query, query, query).sum().backward())
    assert accounting.total.gflop * 1e9 == pytest.approx((2 + 5) * 2 * 2 * 4 * 7 * 7 * 8)


def test_flop_go_to_the_section_they_run_in_by_dtype():
    a, b = torch.randn(8, 16), torch.randn(16, 4)
    accounting = Accounting()

    def work():
        with section("outer"):
            a @ b
            with section("inner"):
                a.bfloat16() @ b.bfloat16()

    accounting.run(work)
    product = 2 * 8 * 16 * 4
    assert accounting.accounts[("outer",)].flop == {"float32": product, "bfloat16": product}
    assert accounting.accounts[("outer", "inner")].flop == {"bfloat16": product}


def test_peak_memory_is_what_was_live_at_once_above_the_start():
    weight = torch.zeros(1000)
    accounting = Accounting()

    def work():
        with section("chain"):
            x = weight + 1  # 4000 bytes live
            for _ in range(3):
                x = x * 2  # two at a time
        with section("pile"):
            kept = [weight + i for i in range(5)]
        with section("views"):
            weight[10:].view(-1, 10)
        return kept

    kept = accounting.run(work)
    assert accounting.accounts[("chain",)].peak_bytes == 8000
    assert accounting.accounts[("pile",)].peak_bytes == 20000
    assert accounting.accounts[("views",)].peak_bytes == 0
    assert accounting.live == 20000
    del kept
    assert accounting.live == 0


def test_what_is_kept_is_what_lives_on_after_a_part():
    weight = torch.zeros(1000, requires_grad=True)
    accounting = Accounting()

    def work():
        with section("forward"):
            loss = (weight.exp() * 2).sum()  # autograd keeps exp's result, and drops the product
        with section("backward"):
            loss.backward()  # makes a gradient of 4000 bytes, and frees what was kept
        return loss

    accounting.run(work)
    forward, backward = accounting.accounts[("forward",)], accounting.accounts[("backward",)]
    assert forward.peak_bytes == 8000 + 4
    assert forward.kept_bytes == 4000 + 4
    assert backward.kept_bytes == 4000 - 4000


def test_of_several_calls_the_one_that_took_most_counts():
    weight = torch.zeros(1000)
    accounting = Accounting()

    def work():
        kept = []
        for many in (2, 5, 1):
            with section("part"):
                kept += [weight + i for i in range(many)]
        with section("freeing"):
            kept.clear()

    accounting.run(work)
    assert (accounting.accounts[("part",)].kept_bytes, accounting.accounts[("part",)].peak_bytes) == (20000, 20000)
    assert (accounting.accounts[("freeing",)].kept_bytes, accounting.accounts[("freeing",)].peak_bytes) == (-32000, 0)


class Allocator:
    """Stands in for CUDA's, which cannot be had here: bytes in use, and their peak, which is reset when it is read."""

    source = "CUDA allocator"

    def __init__(self, weights: int) -> None:
        self.live = self.highest = weights

    def take(self, size: int) -> None:
        self.live += size
        self.highest = max(self.highest, self.live)

    def peak(self) -> int:
        highest, self.highest = self.highest, self.live
        return highest


def test_an_allocator_s_peak_is_told_apart_part_by_part():
    allocator = Allocator(weights=10_000)
    accounting = Accounting(allocator)

    def work():
        with section("outer"):
            allocator.take(300)
            allocator.take(-100)
            with section("inner"):
                allocator.take(50)
                allocator.take(-20)
            with section("workspace"):  # frees all that it took
                allocator.take(1000)
                allocator.take(-1000)
            allocator.take(-30)
        allocator.take(400)

    accounting.run(work)
    found = {path[-1]: (one.kept_bytes, one.peak_bytes) for path, one in accounting.accounts.items()}
    assert found == {"outer": (200, 1230), "inner": (30, 50), "workspace": (0, 1000)}
    assert (accounting.live, accounting.total.peak_bytes, accounting.peak) == (600, 1230, 11_230)


@pytest.mark.gpu
def test_cuda_s_allocator_counts_known_sizes():
    device = torch.device("cuda")
    weight = torch.zeros(2**20, device=device)  # 4 MiB; the allocator rounds to 512 bytes
    accounting = Accounting(allocator_of(device))

    def work():
        with section("chain"):
            x = weight + 1
            for _ in range(3):
                x = x * 2
        with section("none"):
            pass
        return x

    kept = accounting.run(work)
    chain, none = accounting.accounts[("chain",)], accounting.accounts[("none",)]
    assert (chain.kept_bytes, chain.peak_bytes) == (2**22, 2**23)
    assert (none.kept_bytes, none.peak_bytes) == (0, 0)
    assert accounting.total.peak_bytes == 2**23
    assert accounting.peak >= 3 * 2**22
    del kept


def test_weights_are_those_below_the_module_of_a_part():
    def block() -> torch.nn.Module:
        return torch.nn.ModuleDict({"attention": torch.nn.Linear(4, 4), "norm": torch.nn.BatchNorm1d(4)})

    model = torch.nn.ModuleDict({"first": block(), "second": block(), "head": torch.nn.Linear(4, 2).bfloat16()})
    first, second, head = model["first"], model["second"], model["head"]
    first["again"] = first["attention"]  # shared weights count once
    second["attention"].double()
    hooks = [Hook(first, "forward", "block 0"), Hook(second, "forward", "block 1"), Hook(head, "forward", "head")]
    hooks += [Hook(one["attention"], "forward", "attention") for one in (first, second)]
    hooks += [Hook(model, "named_children", "a method")]
    weights = Weights(hooks)
    head.float()  # a variant may change them afterwards
    norm = 4 * 4 * 4 + 8  # weight, bias, mean, variance; the number of batches
    assert weights.of(["block 0"]) == 20 * 4 + norm
    assert weights.of(["model", "block 1"]) == 20 * 8 + norm
    assert weights.of(["block 0", "attention"]) == 20 * 4
    assert weights.of(["model", "block 1", "attention"]) == 20 * 8
    assert weights.of(["head"]) == 10 * 2
    assert weights.of(["attention"]) is None  # of which block, nobody can tell
    assert weights.of(["a method"]) is None
    assert weights.of(["other"]) is None
