"""FLOP and live memory per section, against torch's own counter and against sizes known beforehand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from strobe.core.measure.accounting import Accounting, Weights, find_allocator
from strobe.core.results.measurement import Memory
from strobe.core.studies.shared.counting import Counted
from strobe.core.timeline import section
from strobe.core.timeline.probe import Hook
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions


@pytest.mark.parametrize("policy_type", ["act", "diffusion", "smolvla", "pi05"])
@pytest.mark.parametrize("phase", ["inference", "training step"])
def test_the_whole_is_what_torchs_counter_counts(policy_type, phase):
    subject = load_subject(PolicyOptions(type=policy_type, size="tiny"))
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


WIDE = torch.randn(2, 5, 16)
HEADS = nn.MultiheadAttention(16, 4, batch_first=True).eval()
LAYER = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
LINEAR, STACKED = nn.Linear(16, 8), nn.LSTM(16, 8, num_layers=2, bidirectional=True)
GATED, CELL = nn.GRU(16, 8), nn.LSTMCell(16, 8)
COMPLEX = torch.ones(3, 5, dtype=torch.complex64)
GATES = 4 * 8  # rows of an LSTM's weights
# Four projections, scores and their sum over the values.
ATTENTION = 2 * 10 * 4 * 16 * 16 + 2 * 2 * 5 * 5 * (16 + 16)

PRODUCTS: dict[str, tuple[Callable[[], object], int]] = {
    "linear": (lambda: LINEAR(WIDE), 2 * 10 * 16 * 8),
    "matmul": (lambda: WIDE @ torch.ones(16, 3), 2 * 10 * 16 * 3),
    "einsum": (lambda: torch.einsum("bij,bkj->bik", WIDE, WIDE), 2 * 2 * 5 * 5 * 16),
    "convolution": (
        lambda: nn.functional.conv2d(torch.ones(1, 4, 8, 8), torch.ones(6, 2, 3, 3), groups=2),
        2 * 6 * 36 * 18,
    ),
    "transposed": (lambda: nn.functional.conv_transpose1d(torch.ones(1, 4, 8), torch.ones(4, 3, 5)), 2 * 4 * 8 * 3 * 5),
    "attention": (
        lambda: scaled_dot_product_attention(WIDE[:, None], WIDE[:, None], WIDE[:, None]),
        2 * 2 * 5 * 5 * (16 + 16),
    ),
    "fast attention": (lambda: HEADS(WIDE, WIDE, WIDE), ATTENTION),
    "fast encoder layer": (lambda: LAYER(WIDE), ATTENTION + 2 * 10 * 2 * 16 * 32),
    "LSTM": (lambda: STACKED(WIDE), 2 * 10 * GATES * 2 * ((16 + 8) + (16 + 8))),
    "GRU": (lambda: GATED(WIDE), 2 * 10 * 3 * 8 * (16 + 8)),
    "LSTM cell": (lambda: CELL(WIDE[0]), 2 * 5 * GATES * (16 + 8)),
    "mv": (lambda: torch.ones(4, 5).mv(torch.ones(5)), 2 * 4 * 5),
    "addmv": (lambda: torch.addmv(torch.ones(4), torch.ones(4, 5), torch.ones(5)), 2 * 4 * 5),
    "dot": (lambda: torch.ones(5).dot(torch.ones(5)), 2 * 5),
    "addbmm": (lambda: torch.addbmm(torch.ones(4, 6), torch.ones(3, 4, 5), torch.ones(3, 5, 6)), 2 * 3 * 4 * 5 * 6),
    "baddbmm": (
        lambda: torch.baddbmm(torch.ones(3, 4, 6), torch.ones(3, 4, 5), torch.ones(3, 5, 6)),
        2 * 3 * 4 * 5 * 6,
    ),
    "in place": (lambda: torch.zeros(4, 6).addmm_(torch.ones(4, 5), torch.ones(5, 6)), 2 * 4 * 5 * 6),
    "few distances": (lambda: torch.cdist(WIDE, WIDE), 2 * 2 * 5 * 5 * 16),
    "many distances": (lambda: torch.cdist(torch.ones(30, 4), torch.ones(40, 4)), 2 * 30 * 40 * 4),
    "distances of all pairs": (lambda: torch.pdist(torch.ones(6, 5)), 2 * 15 * 5),
    "bilinear": (
        lambda: nn.functional.bilinear(torch.ones(7, 3), torch.ones(7, 4), torch.ones(5, 3, 4)),
        2 * 7 * 5 * (3 * 4 + 4),
    ),
    "complex": (lambda: COMPLEX @ COMPLEX.T, 4 * 2 * 3 * 3 * 5),
    "complex in a sum": (lambda: torch.einsum("ij,kj->ik", COMPLEX, COMPLEX.conj()), 4 * 2 * 3 * 3 * 5),
    "complex inner": (lambda: torch.vdot(COMPLEX[0], COMPLEX[1]), 4 * 2 * 5),
    "no product": (lambda: torch.cdist(WIDE, WIDE, p=1.0), 0),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_count_the_same_in_every_mode(name):
    call, expected = PRODUCTS[name]
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode():
            accounting = Accounting()
            accounting.run(call)
        assert accounting.flop.total() == expected, mode.__name__
        assert not accounting.uncounted


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(8, 8, 3, groups=8), (2, 8, 9, 9)),
        (nn.Conv2d(8, 4, 3, groups=4), (2, 8, 9, 9)),
        (nn.ConvTranspose1d(8, 6, 4, stride=2, groups=2), (2, 8, 12)),
        (nn.Conv2d(3, 4, 3), (1, 3, 8, 8)),
    ],
    ids=["depthwise", "grouped", "transposed", "dense"],
)
def test_the_gradients_of_a_convolution_cost_twice_the_convolution(layer, shape):
    forward, both = Accounting(), Accounting()
    forward.run(lambda: layer(torch.ones(shape)))
    inputs = torch.ones(shape, requires_grad=True)
    both.run(lambda: layer(inputs).sum().backward())
    assert both.flop.total() == 3 * forward.flop.total()


@pytest.mark.filterwarnings("ignore")  # torch means to move its quantisation elsewhere
def test_products_of_quantised_weights_count_as_int8():
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(16, 8)), {nn.Linear})
    accounting = Accounting()
    accounting.run(lambda: model(WIDE))
    assert accounting.flop == {"int8": 2 * 10 * 16 * 8}


def test_an_operator_that_multiplies_and_is_not_known_is_named():
    def mixes(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left @ right

    operator = torch.library.custom_op("strobe_test::mixes", mutates_args=())(mixes)
    accounting = Accounting()
    accounting.run(lambda: [torch.linalg.inv(torch.eye(4)), operator(torch.ones(3, 4), torch.ones(4, 5)), WIDE + 1])
    assert accounting.uncounted == {"aten::linalg_inv_ex": 1, "strobe_test::mixes": 1}


def test_a_class_of_tensors_of_its_own_counts_by_what_it_computes():
    from torch.testing._internal.two_tensor import TwoTensor

    left = TwoTensor(torch.ones(3, 4), torch.ones(3, 4))
    accounting = Accounting()
    accounting.run(lambda: left @ torch.ones(4, 5))
    assert accounting.flop.total() == 2 * (2 * 3 * 4 * 5)


def test_sections_of_another_thread_do_not_disturb_the_counted_one():
    accounting, entered, leave = Accounting(), threading.Event(), threading.Event()

    def elsewhere():
        with section("other thread"):
            entered.set()
            leave.wait(5)

    def work():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        entered.wait(5)
        with section("product"):
            torch.ones(3, 4) @ torch.ones(4, 5)
            leave.set()
            thread.join()

    accounting.run(work)
    assert {path: account.flop.total() for path, account in accounting.accounts.items()} == {
        ("product",): 2 * 3 * 4 * 5
    }


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


def test_memory_that_a_tensor_grows_by_counts():
    existing, accounting = torch.zeros(10), Accounting()

    def work():
        with section("grows"):
            grown = torch.empty(0)
            grown.resize_(1000)
            existing.resize_(110)
        with section("written"):
            torch.mul(torch.ones(500), 2, out=(out := torch.empty(0)))  # which gives it its size
        with section("shrinks"):
            grown.untyped_storage().resize_(0)
            grown.resize_(0)
        return grown, out

    kept = accounting.run(work)
    found = {path[-1]: account.kept_bytes for path, account in accounting.accounts.items()}
    assert found == {"grows": 4000 + 400, "written": 2000, "shrinks": -4000}
    assert accounting.accounts["grows",].moved_bytes >= 4000
    del kept


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
    allocator: Any = Allocator(weights=10_000)
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
    accounting = Accounting(find_allocator(device))

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
    def block() -> torch.nn.ModuleDict:
        return torch.nn.ModuleDict({"attention": torch.nn.Linear(4, 4), "norm": torch.nn.BatchNorm1d(4)})

    first, second, head = block(), block(), torch.nn.Linear(4, 2).bfloat16()
    model = torch.nn.ModuleDict({"first": first, "second": second, "head": head})
    first["again"] = first["attention"]  # shared weights count once
    second["attention"].double()
    hooks = [Hook(first, "forward", "block 0"), Hook(second, "forward", "block 1"), Hook(head, "forward", "head")]
    hooks += [Hook(one["attention"], "forward", "attention") for one in (first, second)]
    hooks += [Hook(model, "named_children", "a method")]
    weights = Weights(hooks)
    head.float()  # a variant may change them afterwards
    norm = 4 * 4 * 4 + 8  # weight, bias, mean, variance; the number of batches
    assert weights.module_bytes(["block 0"]) == 20 * 4 + norm
    assert weights.module_bytes(["model", "block 1"]) == 20 * 8 + norm
    assert weights.module_bytes(["block 0", "attention"]) == 20 * 4
    assert weights.module_bytes(["model", "block 1", "attention"]) == 20 * 8
    assert weights.module_bytes(["head"]) == 10 * 2
    assert weights.module_bytes(["attention"]) is None  # of which block, nobody can tell
    assert weights.module_bytes(["a method"]) is None
    assert weights.module_bytes(["other"]) is None


def test_the_lines_at_which_the_host_waits_for_a_device_are_named():
    def call() -> torch.Tensor:
        x = torch.arange(6.0)
        for _ in range(3):
            x = x + x.sum().item()  # a wait
        return x[x > 2].sum() + x.nonzero().sum()  # two

    def waits() -> dict[str, int]:
        accounting = Accounting()
        accounting.run(call)
        return dict(accounting.waits)

    assert waits() == {}  # on the CPU nobody waits
    with mock.patch.object(torch.Tensor, "device", property(lambda _: torch.device("cuda", 0))):
        seen = waits()
    line, place = call.__code__.co_firstlineno, "measure/test_accounting.py"
    assert seen == {
        f"aten::_local_scalar_dense at {place}:{line + 3}": 3,
        f"aten::index at {place}:{line + 4}": 1,
        f"aten::nonzero at {place}:{line + 4}": 1,
    }
    (note,) = Counted({}, Memory(), Weights([]), {}, seen).notes
    assert note.startswith("the host waits for the device in each call: aten::_local_scalar_dense at measure/")
