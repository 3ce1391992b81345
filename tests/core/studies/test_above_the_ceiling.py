"""Shares of the ceiling: none for a variant in TF32; above 100 % it is measured again, and a cause is told."""

from __future__ import annotations

import pytest
import torch

from strobe.core.devices.accelerators import convolutions_in_tf32
from strobe.core.measure import ceiling
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.results.subject import Ceiling
from strobe.core.studies.shared import measuring
from strobe.core.studies.shared.measuring import ABOVE_CEILING, ABOVE_WITH_TF32, Options, measure
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.treatments import process_settings
from strobe.treatments.process_settings import TensorFloat32


def low() -> Ceiling:
    """A ceiling that every part runs above."""
    return Ceiling(gflops={"float32": 1e-6}, memory_gbps=1e-6)


@pytest.fixture
def repeated_ceiling(monkeypatch):
    """Figures that a machine gives when it is measured once more, to be set; and how often it was."""
    asked: list[Ceiling] = []
    figures = low()

    def measure_ceiling(device, dtypes, progress):
        asked.append(figures)
        return figures

    monkeypatch.setattr(ceiling, "measure", measure_ceiling)
    return figures, asked


class Anywhere(TensorFloat32):
    """tf32=true where there is none: its facts and its traits, without the mode."""

    def apply(self, subject):
        return lambda: None


def test_what_runs_above_the_ceiling_has_it_measured_again(repeated_ceiling):
    figures, asked = repeated_ceiling
    subject = load_subject(PolicyOptions(type="act", size="tiny"))
    options = Options(SamplingBudget(iterations=2))
    known = low()
    [found] = measure(subject, "inference", [Variant("baseline")], options, known).measurements
    assert len(asked) == 1
    assert ABOVE_CEILING in found.notes
    figures.gflops, figures.vector_gflops = {"float32": 1e6}, 5.0
    [found] = measure(subject, "inference", [Variant("baseline")], options, known).measurements
    assert len(asked) == 2
    assert known == Ceiling(gflops={"float32": 1e6}, vector_gflops=5.0, memory_gbps=1e-6)
    assert max(part.ceiling_share or 0 for part in found.components) < 1
    assert found.limit.ceiling_share < 1
    assert ABOVE_CEILING not in found.notes
    measure(subject, "inference", [Variant("baseline")], options, known)
    assert len(asked) == 2


def test_tf32_is_not_compared_with_the_ceiling_of_float32(monkeypatch, repeated_ceiling):
    subject = load_subject(PolicyOptions(type="act", size="tiny"))
    variants = [Variant("baseline"), Variant("tf32", (Anywhere(),))]
    found = measure(subject, "inference", variants, Options(SamplingBudget(iterations=2)), low()).measurements
    assert any(part.ceiling_share for part in found[0].components)
    assert not any(part.ceiling_share for part in found[1].components)
    assert ABOVE_CEILING in found[0].notes  # on a CPU: oneDNN's Winograd
    monkeypatch.setattr(measuring, "convolutions_in_tf32", lambda device: True)
    [found] = measure(subject, "inference", variants[:1], Options(SamplingBudget(iterations=2)), low()).measurements
    assert ABOVE_WITH_TF32 in found.notes
    assert ABOVE_CEILING not in found.notes


def test_a_note_names_the_products_that_are_not_counted(monkeypatch):
    subject = load_subject(PolicyOptions(type="act", size="tiny"))
    bare = subject.policy.predict_action_chunk

    def solving(batch, **options):
        torch.linalg.solve(torch.eye(3), torch.ones(3))
        return bare(batch, **options)

    monkeypatch.setattr(subject.policy, "predict_action_chunk", solving)
    [found] = measure(subject, "inference", [Variant("baseline")], Options(SamplingBudget(iterations=2))).measurements
    assert any("not counted" in note and "aten::_linalg_solve_ex" in note for note in found.notes)


@pytest.mark.parametrize(("capability", "able"), [((8, 0), True), ((9, 0), True), ((7, 5), False)])
def test_convolutions_are_in_tf32_by_default_where_the_card_has_it(monkeypatch, capability, able):
    asked = []
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(
        process_settings.torch.cuda, "get_device_capability", lambda device: asked.append(device) or capability
    )
    second = torch.device("cuda:1")
    assert convolutions_in_tf32(second) is able
    assert asked == [second]
    undo = process_settings.set_tensor_float("highest", False)  # as precision=fp32 does
    try:
        assert not convolutions_in_tf32(second)
    finally:
        undo()
    assert not convolutions_in_tf32(torch.device("cpu"))
