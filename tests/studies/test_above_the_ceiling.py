"""Shares of the ceiling: none for a variant in TF32, and on CUDA a share above 100 % has its own cause."""

from __future__ import annotations

import pytest
import torch

from strobe.measure.sampling import SamplingBudget
from strobe.results.machine import Ceiling
from strobe.studies import measuring
from strobe.studies.measuring import ABOVE_CEILING, ABOVE_WITH_TF32, Options, measure
from strobe.subjects.loading import load_subject
from strobe.treatments.numbers import tf32
from strobe.treatments.numbers.tf32 import TensorFloat32, convolutions_in_tf32
from strobe.treatments.treatment import Variant

LOW = Ceiling(gflops={"float32": 1e-6})


class Anywhere(TensorFloat32):
    """tf32=true where there is none: its facts and its traits, without the mode."""

    def apply(self, subject):
        return lambda: None


def test_tf32_is_not_compared_with_the_ceiling_of_float32(monkeypatch):
    subject = load_subject(policy_type="act", size="tiny")
    variants = [Variant("as it is"), Variant("tf32", (Anywhere(),))]
    found = measure(subject, "inference", variants, Options(SamplingBudget(iterations=2)), LOW).measurements
    assert any(part.ceiling_share for part in found[0].components)
    assert not any(part.ceiling_share for part in found[1].components)
    assert ABOVE_CEILING in found[0].notes  # on a CPU: oneDNN's Winograd
    monkeypatch.setattr(measuring, "convolutions_in_tf32", lambda device: True)
    [found] = measure(subject, "inference", variants[:1], Options(SamplingBudget(iterations=2)), LOW).measurements
    assert ABOVE_WITH_TF32 in found.notes
    assert ABOVE_CEILING not in found.notes


@pytest.mark.parametrize(("capability", "able"), [((8, 0), True), ((9, 0), True), ((7, 5), False)])
def test_convolutions_are_in_tf32_by_default_where_the_card_has_it(monkeypatch, capability, able):
    asked = []
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(tf32.torch.cuda, "get_device_capability", lambda device: asked.append(device) or capability)
    second = torch.device("cuda:1")
    assert convolutions_in_tf32(second) is able
    assert asked == [second]
    undo = tf32.set_tensor_float("highest", False)  # as precision=fp32 does
    try:
        assert not convolutions_in_tf32(second)
    finally:
        undo()
    assert not convolutions_in_tf32(torch.device("cpu"))
