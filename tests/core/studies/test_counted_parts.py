"""FLOP are counted in the parts that have their time, whatever a treatment wraps."""

from __future__ import annotations

import pytest

from strobe.core.studies.shared.counting import count
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions

VISION = "model.vlm_with_expert.vlm.model.vision_model"


@pytest.mark.parametrize(
    "treatments", ["cameras=batched", f"cameras=batched, engine=openvino, engine.part={VISION}, engine.precision=fp32"]
)
def test_a_method_that_a_treatment_wraps_is_counted_in_its_part(treatments: str) -> None:
    """Batched cameras call what LeRobot calls once a camera: the vision tower has its FLOP in both cases."""
    if "openvino" in treatments:
        pytest.importorskip("openvino", reason="needs the extra 'openvino'")
    subject = load_subject(
        PolicyOptions(type="smolvla", size="tiny", overrides=["--device=cpu", "--num_steps=1"]), InputOptions(cameras=2)
    )
    hooks, call = subject.hooks("inference", 2), subject.call("inference", 1)
    flop = {}
    for variant in (Variant("baseline"), Variant("batched", catalogue.compose(catalogue.parse(treatments)))):
        accounts = count(subject, variant, call, hooks).accounts
        assert accounts is not None
        flop[variant.name] = {path: sum(account.flop.values()) for path, account in accounts.items() if account.flop}
    assert any(path[-1] == "vision tower" for path in flop["baseline"])
    assert flop["batched"] == flop["baseline"]
