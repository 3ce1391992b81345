"""FLOP and live memory per section, against torch's own counter and against sizes known beforehand."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from strobe.measure.accounting import Accounting
from strobe.subjects.loading import load_subject
from strobe.timeline import section


@pytest.mark.parametrize("policy_type", ["act", "diffusion", "smolvla", "pi05"])
@pytest.mark.parametrize("phase", ["inference", "training step"])
def test_the_whole_is_what_torchs_counter_counts(policy_type, phase):
    subject = load_subject(policy_type=policy_type, size="tiny")
    call = subject.call(phase, 2)
    call(0)
    with FlopCounterMode(display=False) as counter:
        call(0)
    accounting = Accounting()
    accounting.run(lambda: call(0))
    assert accounting.total.gflop * 1e9 == pytest.approx(counter.get_total_flops())


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
