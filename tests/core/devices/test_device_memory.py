"""Memory and random numbers of an accelerator, on one that is made up: always of the device that is meant."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from support.devices.made_up_accelerator import GIB

from strobe.core.devices.accelerators import find_device_memory, generator_states, generators_restored, number_device
from strobe.core.errors import UserError
from strobe.core.measure.accounting import Accounting, find_allocator
from strobe.core.timeline import section

SECOND = torch.device("cuda:1")


def test_figures_are_those_of_the_device_that_is_meant(made_up):
    first, second = made_up.cards
    second.take(GIB)
    second.take(-GIB // 2)
    second.reserved, second.driver_free, first.driver_free = 2 * GIB, 3 * GIB, 0
    memory = find_device_memory(SECOND)
    assert memory is not None
    assert (memory.allocated_bytes(), memory.peak()) == (GIB // 2, GIB)
    assert memory.free() == 3 * GIB + 2 * GIB - GIB // 2  # what torch holds and does not use can be had as well
    memory.reset_peak()
    assert memory.peak() == GIB // 2
    assert (first.resets, second.resets) == (0, 1)


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_an_allocator_s_peak_by_part_on_a_second_device(made_up, kind):
    card = made_up.cards[1]
    card.take(10_000)  # weights
    allocator = find_allocator(torch.device(kind, 1))
    assert allocator is not None
    accounting = Accounting(allocator)

    def work():
        with section("part"):
            card.take(500)
            card.take(-400)

    accounting.run(work)
    account = accounting.accounts[("part",)]
    assert (account.kept_bytes, account.peak_bytes, accounting.peak) == (100, 500, 10_500)
    assert allocator.source == f"{kind.upper()} allocator"


def test_mps_tells_what_is_in_use_and_no_peak(monkeypatch):
    monkeypatch.setattr(torch, "get_device_module", lambda _: SimpleNamespace())
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: 7)
    memory = find_device_memory(torch.device("mps"))
    assert memory is not None
    memory.reset_peak()
    assert (memory.allocated_bytes(), memory.peak(), memory.free()) == (7, None, None)
    assert find_allocator(torch.device("mps")) is None
    assert find_device_memory(torch.device("cpu")) is None


def test_a_device_without_a_number_is_the_current_one(made_up):
    made_up.current = 1
    assert number_device("cuda") == SECOND
    assert number_device("cuda:0") == torch.device("cuda:0")
    assert str(number_device("mps:0")) == "mps"
    assert str(number_device("cpu")) == "cpu"


def test_random_numbers_of_the_device_that_is_meant_are_put_back(made_up):
    drawn = torch.ones(16, dtype=torch.uint8)
    before = torch.get_rng_state()
    with generators_restored(SECOND):
        torch.rand(3)
        made_up.cards[1].random = drawn
    assert torch.equal(torch.get_rng_state(), before)
    assert not made_up.cards[1].random.any()
    assert set(generator_states(torch.device("cuda"))) == {"cpu", "cuda:0"}


@pytest.mark.long
def test_a_training_step_may_use_what_torch_holds_for_later(made_up, monkeypatch):
    """An earlier policy's memory is torch's still, and the driver has none left: the step fits all the same."""
    from strobe.lerobot.policies.loading import load_subject
    from strobe.lerobot.policies.options import PolicyOptions
    from strobe.lerobot.policies.policy_subject import PolicySubject

    subject = load_subject(PolicyOptions(type="act", size="tiny"))
    monkeypatch.setattr(PolicySubject, "device", SECOND)
    card = made_up.cards[1]
    card.driver_free, card.reserved = 0, 4 * GIB
    subject._require_memory()
    card.take(4 * GIB)
    with pytest.raises(UserError, match="0 GiB are free"):
        subject._require_memory()
    made_up.cards[0].driver_free = 0  # and what the other device has is neither here nor there
    card.driver_free = 4 * GIB
    subject._require_memory()
